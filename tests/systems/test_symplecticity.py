"""Symplecticity itself: the two-form of T*G that a step leaves over.

On the right-trivialized bundle a tangent vector at (g, μ) is (ξ, ν): g' = ξ g, μ' = ν.  The right-invariant form
ρ = dg g⁻¹ obeys dρ(X, Y) = [ρ X, ρ Y], so the canonical one-form θ = <μ, ρ> gives ω = -dθ as
<ν₂, ξ₁> - <ν₁, ξ₂> - <μ, [ξ₁, ξ₂]>, which is [celledoni2021] eq. (13).
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from lgjax.groups.cotangent import Covector
from lgjax.integrators import (
    RK4,
    MuntheKaas,
    SymplecticLie,
    integrate,
    suzuki,
    symplectic,
    triple_jump,
)
from lgjax.systems import heavy_top
from tests.systems.cases import TOP

MIDPOINT = SymplecticLie(0.5)
METHODS = {
    "theta 0": SymplecticLie(0.0),
    "theta 0.3": SymplecticLie(0.3),
    "theta 1/2": MIDPOINT,
    "theta 1": SymplecticLie(1.0),
    "triple jump 4": triple_jump(MIDPOINT),
    "Suzuki 4": suzuki(MIDPOINT),
    "Suzuki 6": suzuki(MIDPOINT, 6),
}
BUNDLES = ("cotangent", "quadratic")
QUICK = (("theta 0.3", "cotangent"), ("theta 1/2", "quadratic"))
CASES = [
    pytest.param(name, bundle, marks=() if (name, bundle) in QUICK else pytest.mark.slow)
    for name in METHODS
    for bundle in BUNDLES
]
H = 0.1


def hat(w):
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])


def two_form(mu):
    """Matrix of ω at (g, μ) for (ξ, ν); μ = π of T*SO(3), or [π, p] of T*(SO(3) x R³), where R³ commutes."""
    n = len(mu)
    bracket = np.zeros((n, n))
    bracket[:3, :3] = hat(mu[:3])  # -π·(ξ₁ × ξ₂) = ξ₁·(π × ξ₂)
    return np.block([[bracket, np.eye(n)], [-np.eye(n), np.zeros((n, n))]])


def defect(jacobian, before, after):
    """Largest entry of Jᵀ ω(μ₁) J - ω(μ₀)."""
    return np.max(np.abs(jacobian.T @ two_form(after) @ jacobian - two_form(before)))


def trivialized(derivative, q):
    """Rows of a Jacobian whose first nine are those of dQ (3, 3, k): dQ Qᵀ = hat(ξ) in their place."""
    turn = np.einsum("ijk,lj->ilk", derivative, q)
    return np.stack([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]]) / 2


@cache
def start(formulation):
    """The top after some motion, away from the identity and with π not along an axis."""
    s = heavy_top(formulation, **TOP)
    turn = expm(hat([0.4, -0.9, 0.3]))
    turn, pi = jnp.asarray(turn), jnp.asarray(turn @ [0.7, 1.1, -0.6])
    if formulation == "cotangent":
        return s, Covector(turn, pi)
    return s, Covector((turn, jnp.asarray([0.1, 0.2, -0.3])), jnp.concatenate([pi, s.y0.mu[3:]]))


def step_jacobian(formulation, method, *steps):
    """For each length of a step its Jacobian in (ξ, ν), and μ before and after."""
    (s, y0), t = start(formulation), jnp.zeros(())

    def step(z, h):
        n = z.shape[0] // 2
        q = y0.g if formulation == "cotangent" else y0.g[0]
        q = q + jnp.cross(z[:3], q, axisb=0, axisc=0)
        y = Covector(q if formulation == "cotangent" else (q, y0.g[1] + z[3:n]), y0.mu + z[n:])
        return method.step(s.space, s.field, t, y, h, method.init(s.space, s.field, t, y))[0]

    @jax.jit
    def both(z, h):
        return step(z, h), jax.jacfwd(step)(z, h)

    for h in steps:
        end, rate = jax.tree.map(np.asarray, both(jnp.zeros(2 * len(y0.mu)), jnp.asarray(h)))
        if formulation == "cotangent":
            rows = [trivialized(rate.g, end.g), rate.mu]
        else:
            rows = [trivialized(rate.g[0], end.g[0]), rate.g[1], rate.mu]
        yield np.concatenate(rows), np.asarray(y0.mu), end.mu


def test_the_exact_flow_preserves_the_two_form():
    """By SciPy in matrices, differentiated by complex steps: the form, its signs and its trivialization are right."""
    s, y0 = start("cotangent")
    p = jax.tree.map(np.asarray, s.parameters)
    inverse = np.linalg.inv(p["tensor"])

    def rate(t, y):
        q, pi = y[:9].reshape(3, 3), y[9:]
        torque = np.cross(q @ p["lever"], p["gravity"])
        return np.concatenate([(hat(q @ inverse @ (q.T @ pi)) @ q).ravel(), torque])

    columns, small = [], 1e-30
    q0, mu0 = np.asarray(y0.g), np.asarray(y0.mu)
    for k in range(6):
        z = np.zeros(6, complex)
        z[k] = 1j * small
        y = np.concatenate([(q0 + hat(z[:3]) @ q0).ravel(), mu0 + z[3:]])
        columns.append(solve_ivp(rate, (0.0, 0.4), y, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1])
    end = np.real(columns[0])
    derivative = np.imag(np.stack(columns, axis=1)) / small
    q1 = end[:9].reshape(3, 3)
    jacobian = np.concatenate([trivialized(derivative[:9].reshape(3, 3, 6), q1), derivative[9:]])
    assert np.max(np.abs(jacobian)) > 1.5
    assert defect(jacobian, mu0, end[9:]) < 1e-10
    without_bracket = np.block([[np.zeros((3, 3)), np.eye(3)], [-np.eye(3), np.zeros((3, 3))]])
    assert np.max(np.abs(jacobian.T @ without_bracket @ jacobian - without_bracket)) > 0.1


@pytest.mark.parametrize(("name", "formulation"), CASES)
def test_symplectic_methods_preserve_the_two_form_to_round_off(name, formulation):
    ((jacobian, before, after),) = step_jacobian(formulation, METHODS[name], H)
    assert np.max(np.abs(jacobian - np.eye(len(jacobian)))) > 0.1
    assert defect(jacobian, before, after) < 1e-12


@pytest.mark.parametrize("formulation", ["cotangent", pytest.param("quadratic", marks=pytest.mark.slow)])
def test_rkmk4_leaves_a_defect_of_the_order_of_its_error(formulation):
    """h⁵ in one step."""
    coarse, fine = (defect(*found) for found in step_jacobian(formulation, MuntheKaas(RK4), H, H / 2))
    assert fine > 1e-9
    assert 4.5 < np.log2(coarse / fine) < 5.7


def unturned_momentum(group, start, end, xi, theta):
    """The mean of the momenta without their turns."""
    return theta * start + (1 - theta) * end


def unturned_rates(group, rate, momentum):
    """Eq. (17) without the turn of the momentum."""
    return rate


@pytest.mark.parametrize(
    "broken", [unturned_momentum, pytest.param(unturned_rates, marks=pytest.mark.slow)], ids=lambda f: f.__name__
)
def test_an_error_in_a_method_is_found_out(broken, monkeypatch):
    monkeypatch.setattr(symplectic, f"_{broken.__name__.split('_')[1]}", broken)
    ((jacobian, before, after),) = step_jacobian("cotangent", MIDPOINT, H)
    assert defect(jacobian, before, after) > 1e-3


@pytest.mark.parametrize("theta", [0.5, *(pytest.param(x, marks=pytest.mark.slow) for x in (0.0, 1.0))])
def test_slgikk_is_slgi_in_the_rotation_and_its_momentum(theta):
    """Eqs. (29) and (30) know nothing of q and p is constant, so that a step of T*(SO(3) x R³) is one of T*SO(3)."""
    ends = []
    for formulation in BUNDLES:
        (s, y), method = start(formulation), SymplecticLie(theta)
        t, h = jnp.zeros(()), jnp.asarray(H)
        step = jax.jit(lambda y, carry, s=s, m=method, t=t, h=h: m.step(s.space, s.field, t, y, h, carry))
        carry = method.init(s.space, s.field, t, y)
        for _ in range(20):
            y, carry = step(y, carry)
        ends.append((y.g, y.mu) if formulation == "cotangent" else (y.g[0], y.mu[:3]))
    for a, b in zip(*ends, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)


def test_a_fast_top_stays_on_the_group_in_single_precision():
    # 1.5 rad a step about nearly the same axis: its round-off is nearly the same at every step, and adds up
    top = heavy_top("cotangent", dtype=jnp.float32)
    run = lambda y: integrate(top.space, top.field, y, 0.0, 400.0, 40_000, MIDPOINT, save_every=None).ys
    end = jax.jit(run)(top.y0)
    R = np.asarray(jax.tree.map(lambda x: x[-1], end).g, float)
    np.testing.assert_allclose(R.T @ R, np.eye(3), atol=1e-6)
