"""Motions, projections and derivatives of mechanisms with couplings: a bead on a curve, by hand and by SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from scipy.integrate import solve_ivp

import lgjax
from lgjax.dynamics.loops import couple_joints


def parabola():
    """A slide along x and one along z; the second follows as z = x^2 / 2, so that the mass there is on a parabola."""
    mass = {"mass": 1.5, "inertia": np.eye(3)}
    model = lgjax.build(
        [
            lgjax.Body("x", None, lgjax.Joint("x", "prismatic", (1, 0, 0)), **mass),
            lgjax.Body("z", "x", lgjax.Joint("z", "prismatic", (0, 0, 1)), **mass),
        ],
        "bead",
    )
    return model, couple_joints(model, "z", "x", (0.0, 0.0, 0.5))


def test_rollout_follows_the_curve_of_a_coupling():
    """(3 + 1.5 x^2) x'' + 1.5 x x'^2 + 1.5 g x = 0, by SciPy."""
    model, loop = parabola()
    q, v = lgjax.configuration(model, joints=[0.8, 0.32]), jnp.asarray([0.5, 0.4])
    path = lgjax.rollout(model, q, v, None, 1e-2, 100, loops=loop, save_every=10)
    right = lambda t, y: [y[1], -1.5 * (y[0] * y[1] ** 2 + 9.81 * y[0]) / (3 + 1.5 * y[0] ** 2)]
    exact = solve_ivp(right, (0, 1), [0.8, 0.5], rtol=1e-11, atol=1e-12, t_eval=np.linspace(0, 1, 11)).y
    np.testing.assert_allclose(path.q.joints[:, 0], exact[0], atol=1e-7)
    np.testing.assert_allclose(path.q.joints[:, 1], exact[0] ** 2 / 2, atol=1e-7)
    np.testing.assert_allclose(path.v[:, 1], exact[0] * exact[1], atol=1e-6)
    assert not path.status


def test_projection_closes_couplings():
    """The nearest point of the parabola: its normal leads to the start; metric of equal lengths."""
    model, loop = parabola()
    start = np.array([0.9, 1.3])
    found = lgjax.project_positions(model, loop, lgjax.configuration(model, joints=start), metric="plain")
    x, z = np.asarray(found.q.joints)
    np.testing.assert_allclose(z, x * x / 2, atol=1e-9)
    np.testing.assert_allclose((start - (x, z)) @ (1, x), 0, atol=1e-6)
    assert found.converged


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_coefficients_are_differentiated_and_batched(dtype):
    """x'' = -3 g c / (3 + 1.5 c^2) / 2 on a slope z = c x: its derivative by c, at rest and at zero."""
    model = parabola()[0].astype(dtype)
    at_rest = lgjax.neutral(model), jnp.zeros(2, dtype), jnp.zeros(2, dtype)

    def acceleration(c):
        loop = couple_joints(model, "z", "x", jnp.stack([0 * c, c]))
        return lgjax.constrained_forward_dynamics(model, loop, *at_rest).vdot[0]

    c = jnp.asarray([0.0, 0.5, -1.0], dtype)
    values, slopes = jit(jax.vmap(jax.value_and_grad(acceleration)))(c)
    size = 3 + 1.5 * c**2
    np.testing.assert_allclose(values, -1.5 * 9.81 * c / size, rtol=1e-5 if dtype == jnp.float32 else 1e-12)
    wanted = -1.5 * 9.81 * (3 - 1.5 * c**2) / size**2
    np.testing.assert_allclose(slopes, wanted, rtol=1e-5 if dtype == jnp.float32 else 1e-12)
