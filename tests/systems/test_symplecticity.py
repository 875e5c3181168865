"""Symplecticity itself: the two-form of T*G that a step leaves over.

On the right-trivialised bundle a tangent vector at (g, μ) is (ξ, ν): g' = ξ g, μ' = ν.  The canonical one-form <μ, ξ> has
the differential dθ = <dμ ∧ ξ> + <μ, [ξ, ξ]>, because the right-invariant form ρ = dg g⁻¹ obeys dρ(X, Y) = [ρ X, ρ Y], so
ω = -dθ is <ν₂, ξ₁> - <ν₁, ξ₂> - <μ, [ξ₁, ξ₂]>, which is [celledoni2021] eq. (13).
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from lgjax.groups.cotangent import Covector
from lgjax.integrators import (
    RK4,
    MuntheKaas,
    SymplecticLie,
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


def trivialised(derivative, q):
    """Rows of a Jacobian whose first nine are those of dQ (3, 3, k): dQ Qᵀ = hat(ξ) in their place."""
    turn = np.einsum("ijk,lj->ilk", derivative, q)
    return np.stack([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]]) / 2


@cache
def start(formulation):
    """The top after some motion, away from the identity and with π not along an axis."""
    s = heavy_top(formulation, **TOP)
    turn = jax.scipy.linalg.expm(jnp.asarray(hat([0.4, -0.9, 0.3])))
    pi = turn @ jnp.asarray([0.7, 1.1, -0.6])
    if formulation == "cotangent":
        return s, Covector(turn, pi)
    return s, Covector((turn, jnp.asarray([0.1, 0.2, -0.3])), jnp.concatenate([pi, s.y0.mu[3:]]))


def step_jacobian(formulation, method, h):
    """One step's Jacobian in (ξ, ν), and μ before and after."""
    s, y0 = start(formulation)

    def step(z):
        n = z.shape[0] // 2
        q = y0.g if formulation == "cotangent" else y0.g[0]
        q = q + jnp.cross(z[:3], q, axisb=0, axisc=0)
        y = Covector(q if formulation == "cotangent" else (q, y0.g[1] + z[3:n]), y0.mu + z[n:])
        return method.step(s.space, s.field, 0.0, y, h, method.init(s.space, s.field, 0.0, y))[0]

    @jax.jit
    def both(z):
        return step(z), jax.jacfwd(step)(z)

    end, rate = jax.tree.map(np.asarray, both(jnp.zeros(2 * len(y0.mu))))
    if formulation == "cotangent":
        rows = [trivialised(rate.g, end.g), rate.mu]
    else:
        rows = [trivialised(rate.g[0], end.g[0]), rate.g[1], rate.mu]
    return np.concatenate(rows), np.asarray(y0.mu), end.mu


def test_the_exact_flow_preserves_the_two_form():
    """By SciPy in matrices, differentiated by complex steps: the form, its signs and its trivialisation are right."""
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
    jacobian = np.concatenate([trivialised(derivative[:9].reshape(3, 3, 6), q1), derivative[9:]])
    assert np.max(np.abs(jacobian)) > 1.5
    assert defect(jacobian, mu0, end[9:]) < 1e-10
    without_bracket = np.block([[np.zeros((3, 3)), np.eye(3)], [-np.eye(3), np.zeros((3, 3))]])
    assert np.max(np.abs(jacobian.T @ without_bracket @ jacobian - without_bracket)) > 0.1


@pytest.mark.parametrize("formulation", ["cotangent", "quadratic"])
@pytest.mark.parametrize("name", METHODS)
def test_symplectic_methods_preserve_the_two_form_to_round_off(name, formulation):
    jacobian, before, after = step_jacobian(formulation, METHODS[name], H)
    assert np.max(np.abs(jacobian - np.eye(len(jacobian)))) > 0.1
    assert defect(jacobian, before, after) < 1e-12


@pytest.mark.parametrize("formulation", ["cotangent", "quadratic"])
def test_rkmk4_leaves_a_defect_of_the_order_of_its_error(formulation):
    """h⁵ in one step."""
    coarse, fine = (defect(*step_jacobian(formulation, MuntheKaas(RK4), h)) for h in (H, H / 2))
    assert fine > 1e-9
    assert 4.5 < np.log2(coarse / fine) < 5.7


@pytest.mark.parametrize("theta", [0.0, 0.5])
def test_a_method_with_an_error_in_its_update_is_found_out(theta, monkeypatch):
    """The momentum pushed without the turn of eq. (17), or the stage without the last term of eq. (15)."""
    method = SymplecticLie(theta)
    update, stage = symplectic._update, symplectic._stage
    unturned = lambda group, y, z, theta: update(group, y, z, theta)._replace(
        mu=z[group.dim :] + group.coAd(group.inverse(group.exp(z[: group.dim])), y.mu)
    )
    plain = lambda group, y, z, theta: stage(group, y, z, theta)._replace(
        mu=group.codexp(-z[: group.dim], y.mu + group.coAd(group.exp(theta * z[: group.dim]), z[group.dim :]))
    )
    monkeypatch.setattr(symplectic, "_update", unturned)
    assert defect(*step_jacobian("cotangent", method, H)) > 1e-3
    monkeypatch.setattr(symplectic, "_update", update)
    if theta > 0.0:
        monkeypatch.setattr(symplectic, "_stage", plain)
        assert defect(*step_jacobian("cotangent", method, H)) > 1e-3


def test_slgikk_is_slgi_in_the_rotation_and_its_momentum():
    """Eqs. (29) and (30) know nothing of q and p is constant, so that a step of T*(SO(3) x R³) is one of T*SO(3)."""
    for theta in (0.0, 0.5, 1.0):
        ends = []
        for formulation in ("cotangent", "quadratic"):
            s, y = start(formulation)
            method = SymplecticLie(theta)
            step = jax.jit(lambda y, carry, s=s, m=method: m.step(s.space, s.field, 0.0, y, H, carry))
            carry = method.init(s.space, s.field, 0.0, y)
            for _ in range(20):
                y, carry = step(y, carry)
            ends.append((y.g, y.mu) if formulation == "cotangent" else (y.g[0], y.mu[:3]))
        for a, b in zip(*ends, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)
