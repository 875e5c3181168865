"""Derivatives of the dynamics and of rollouts are those of central differences, also at rest, where people start."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit
from jax.flatten_util import ravel_pytree

import lgjax
from tests.dynamics import trees

DIRECTIONS = 3
DTYPES = [jnp.float64, jnp.float32]


@cache
def robot():
    """A floating body with an arm."""
    return lgjax.build(
        [
            trees.body("base", None, "free", 1),
            trees.body("arm", "base", "revolute", 2, damping=0.1, armature=0.1),
        ],
        "robot",
    )


def at_rest(model):
    return lgjax.neutral(model), jnp.zeros(model.nv, model.dtype)


def moving(model):
    q, v, *_ = jax.tree.map(lambda x: x[0], trees.random_states(model))
    return q, v


STATES = {"moving": moving, "at rest": at_rest}


def final_position(parameters, model, q):
    """A number made of the base's position after 8 steps; parameters: velocity, torques of a controller, masses."""
    v, torques, factors = parameters
    copy = model.replace(inertias=model.inertias.scaled(factors))

    def controller(t, q, v):
        return torques[0] + torques[1] * jnp.sin(5 * t) - 0.2 * v

    path = lgjax.rollout(copy, q, v, controller, 0.02, 8, save_every=None)
    return path.q.free_poses.translation[0, 0] @ jnp.asarray([1.0, -0.7, 0.4], model.dtype)


@cache
def of_rollout(dtype, second_order=False):
    """Value and gradient of the rollout in flat parameters; of second order also their derivatives along d."""
    model = robot().astype(dtype)
    shapes = (jnp.zeros(model.nv, dtype), jnp.zeros((2, model.nv), dtype), jnp.zeros(model.nbodies, dtype))
    unravel = ravel_pytree(shapes)[1]
    value_and_grad = jax.value_and_grad(lambda x, q: final_position(unravel(x), model, q))
    if second_order:
        return jit(lambda x, q, d: jax.jvp(lambda y: value_and_grad(y, q), (x,), (d,)))
    return jit(value_and_grad)


def point(state):
    """Flat parameters (velocity, torques, mass factors), the configuration, and directions to look along."""
    model = robot()
    q, v = STATES[state](model)
    random = np.random.default_rng(5)
    torques = random.normal(size=(2, model.nv)) * (state == "moving")
    factors = np.ones(model.nbodies) + 0.1 * random.normal(size=model.nbodies) * (state == "moving")
    x = np.concatenate([v, torques.ravel(), factors])
    directions = random.normal(size=(DIRECTIONS, x.size))
    # along each kind of parameter by itself, too
    parts = np.split(np.arange(x.size), [model.nv, 3 * model.nv])
    alone = np.zeros((3, x.size))
    for row, part in zip(alone, parts, strict=True):
        row[part] = random.normal(size=part.size)
    return x, q, np.concatenate([directions, alone])


@pytest.mark.parametrize("state", STATES)
def test_gradients_of_a_rollout_are_central_differences(state):
    """With respect to the initial velocity, the torques of a controller and the masses."""
    x, q, directions = point(state)
    f, h = of_rollout(jnp.float64), 1e-5
    _, gradient = f(x, q)
    for d in directions:
        slope = (f(x + h * d, q)[0] - f(x - h * d, q)[0]) / (2 * h)
        np.testing.assert_allclose(gradient @ d, slope, rtol=1e-6, atol=1e-9)
        assert np.abs(slope) > 1e-4 or state == "at rest"


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_second_derivatives_of_a_rollout_are_central_differences(state):
    """Forward over reverse; the forward derivative of the value is the reverse one."""
    x, q, directions = point(state)
    f, first, h = of_rollout(jnp.float64, second_order=True), of_rollout(jnp.float64), 1e-5
    for d in directions:
        (_, gradient), (slope, curvature) = f(x, q, d)
        np.testing.assert_allclose(slope, gradient @ d, rtol=1e-10, atol=1e-13)
        difference = (first(x + h * d, q)[1] - first(x - h * d, q)[1]) / (2 * h)
        np.testing.assert_allclose(curvature, difference, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_gradients_in_float32_are_those_in_float64(state):
    x, q, _ = point(state)
    narrow = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), tree)
    exact, rounded = of_rollout(jnp.float64)(x, q), of_rollout(jnp.float32)(*narrow((x, q)))
    for a, b in zip(jax.tree.leaves(rounded), jax.tree.leaves(exact), strict=True):
        assert a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, atol=1e-4 * max(1.0, float(np.abs(b).max())))


def dynamics(model, q, x):
    """Forward dynamics at q exp(dq), v, tau; x: (3, nv)."""
    dq, v, tau = x
    return lgjax.forward_dynamics(model, lgjax.retract(model, q, dq), v, tau)


@cache
def of_dynamics(dtype):
    """Derivatives of a weighted sum of the dynamics: forward mode, reverse mode, forward over reverse."""
    model = robot().astype(dtype)
    weights = jnp.asarray(np.random.default_rng(7).normal(size=model.nv), dtype)

    def derivatives(q, x, d):
        f = lambda x: dynamics(model, q, x) @ weights
        (value, gradient), (slope, curvature) = jax.jvp(jax.value_and_grad(f), (x,), (d,))
        return value, gradient, slope, curvature

    return jit(derivatives)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("state", STATES)
def test_gradients_of_the_dynamics(state, dtype):
    """Finite and right in forward and reverse mode and of second order; at the identity and zero velocity too."""
    model = robot()
    q, v = STATES[state](model)
    random = np.random.default_rng(3)
    x = np.stack([np.zeros(model.nv), v, random.normal(size=model.nv) * (state == "moving")])
    d, h = random.normal(size=x.shape), 1e-5
    exact = of_dynamics(jnp.float64)
    value, gradient, slope, curvature = exact(q, x, d)
    if dtype == jnp.float32:
        narrow = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), tree)
        for a, b in zip(of_dynamics(dtype)(*narrow((q, x, d))), (value, gradient, slope, curvature), strict=True):
            np.testing.assert_allclose(a, b, atol=3e-4 * max(1.0, float(np.abs(b).max())))
        return
    above, below = exact(q, x + h * d, d), exact(q, x - h * d, d)
    np.testing.assert_allclose(np.sum(gradient * d), (above[0] - below[0]) / (2 * h), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(slope, np.sum(gradient * d), rtol=1e-11)
    np.testing.assert_allclose(curvature, (above[1] - below[1]) / (2 * h), rtol=1e-6, atol=1e-6)
