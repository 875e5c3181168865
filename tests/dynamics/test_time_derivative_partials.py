"""Jacobians of time derivatives of the dynamics are those of forward mode through the recursions themselves."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.dynamics.time_derivatives import (
    forward_dynamics_time_derivative_partials,
    inverse_dynamics_time_derivative_partials,
)
from tests.dynamics import trees

ORDER = 2


@cache
def model_of(name):
    """A floating base with a ball; scalar joints, and such whose motions depend on coordinates."""
    bodies = {
        "ball": [trees.body("base", None, "free", 1, damping=0.2), trees.body("ball", "base", "spherical", 2)],
        "slide": [
            trees.body("swing", None, "revolute", 3, damping=0.2, armature=0.1),
            trees.body("slide", "swing", "prismatic", 4, damping=0.1),
        ],
        "universal": [
            trees.body("reach", None, "universal", 3, damping=0.2, armature=0.1),
            trees.body("slide", "reach", "prismatic", 4, damping=0.1),
        ],
    }
    return lgjax.build(bodies[name], name)


def state(name, at_rest=False):
    model, factor = model_of(name), 0 if at_rest else 1
    random = np.random.default_rng(0)
    q = lgjax.random_configuration(jax.random.key(0), model)
    v = factor * jnp.asarray(random.normal(size=(ORDER + 2, model.nv)))
    return q, v, factor * jnp.asarray(random.normal(size=(ORDER + 1, model.nbodies, 6)))


@cache
def programs(name):
    model = model_of(name)
    zero = jnp.zeros(model.nv)

    def inverse(q, v, wrenches):
        tau = lambda dq, v: lgjax.inverse_dynamics_time_derivatives(
            model, lgjax.retract(model, q, dq), v, ORDER, wrenches=wrenches
        )
        return jax.jacfwd(tau, (0, 1))(zero, v)

    def forward(q, v, tau, wrenches):
        vdot = lambda dq, v, tau: lgjax.forward_dynamics_time_derivatives(
            model, lgjax.retract(model, q, dq), v, tau, wrenches=wrenches
        )
        return jax.jacfwd(vdot, (0, 1, 2))(zero, v, tau)

    found_inverse = lambda q, v, w: inverse_dynamics_time_derivative_partials(model, q, v, ORDER, w)
    found_forward = lambda q, v, tau, w: forward_dynamics_time_derivative_partials(model, q, v, tau, w)
    return tuple(map(jax.jit, (found_inverse, inverse, found_forward, forward)))


def close(found, expected, tolerance=1e-11):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max()))


CASES = [(name, at_rest) for name in ("slide", "universal") for at_rest in (False, True)]
CASES = [pytest.param(*case, marks=[pytest.mark.slow] * (case[0] != "slide")) for case in CASES]


@pytest.mark.parametrize(("name", "at_rest"), CASES)
def test_of_inverse_dynamics(name, at_rest):
    """To order 2, with wrenches, damping and armature."""
    found, expected = (program(*state(name, at_rest)) for program in programs(name)[:2])
    close(found.q, expected[0])
    close(found.v, jnp.swapaxes(expected[1], 1, 2))


@pytest.mark.parametrize(("name", "at_rest"), CASES)
def test_of_forward_dynamics(name, at_rest):
    q, v, wrenches = state(name, at_rest)
    found, expected = (program(q, v[0], v[1:], wrenches) for program in programs(name)[2:])
    close(found.q, expected[0])
    close(found.v, expected[1])
    close(found.tau, jnp.swapaxes(expected[2], 1, 2))


def test_order_zero_is_that_of_the_partials_of_a_floating_base():
    model = model_of("ball")
    q, v, vdot, tau, wrenches = jax.tree.map(lambda x: x[0], trees.random_states(model))
    found = inverse_dynamics_time_derivative_partials(model, q, jnp.stack([v, vdot]), 0, wrenches[None])
    expected = lgjax.inverse_dynamics_partials(model, q, v, vdot, wrenches)
    for a, b in ((found.q[0], expected.q), (found.v[0, 0], expected.v), (found.v[0, 1], expected.vdot)):
        close(a, b, 1e-12)
    found = forward_dynamics_time_derivative_partials(model, q, v, tau[None])
    expected = lgjax.forward_dynamics_partials(model, q, v, tau)
    for a, b in ((found.q[0], expected.q), (found.v[0], expected.v), (found.tau[0, 0], expected.tau)):
        close(a, b, 1e-12)


@pytest.mark.slow
def test_the_rate_of_a_floating_base_and_a_batch_in_float32():
    """Order 1 on a free joint and a ball, for two states at once, against forward mode."""
    model = model_of("ball")
    q, v, _ = jax.tree.map(lambda x: jnp.stack([x, x]), state("ball"))
    v = v[:, :3] * jnp.asarray([1.0, 0.1])[:, None, None]
    tau = lambda dq, q, v: lgjax.inverse_dynamics_time_derivatives(model, lgjax.retract(model, q, dq), v, 1)
    by_q, by_v = jax.jit(jax.vmap(jax.jacfwd(tau, (0, 2)), (None, 0, 0)))(jnp.zeros(model.nv), q, v)
    of = jax.jit(jax.vmap(lambda m, q, v: inverse_dynamics_time_derivative_partials(m, q, v, 1), (None, 0, 0)))
    for dtype, tolerance in ((jnp.float64, 1e-12), (jnp.float32, 1e-5)):
        found = of(*jax.tree.map(lambda x, d=dtype: x.astype(d), (model, q, v)))
        assert found.q.dtype == dtype
        close(found.q, by_q, tolerance)
        close(found.v, jnp.swapaxes(by_v, 2, 3), tolerance)


def test_bad_stacks_are_refused():
    model, v = lgjax.models.chain(1), jnp.zeros((3, 1))
    with pytest.raises(ValueError, match=r"v has shape \(3, 1\), expected \(4, 1\)"):
        inverse_dynamics_time_derivative_partials(model, lgjax.neutral(model), v, 2)
    with pytest.raises(ValueError, match="tau is a stack"):
        forward_dynamics_time_derivative_partials(model, lgjax.neutral(model), v[0], v[0])
