"""On a GPU every kernel gives what this machine's processor gives in float64. Without a GPU nothing of this runs.

    pytest -n 8 tests/execution/test_device.py        with XLA_PYTHON_CLIENT_PREALLOCATE=false

Read first: `test_kernel.py`, which interprets the same kernels.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import specialize
from tests.dynamics import trees
from tests.execution.test_kernel import ALGORITHMS, SIZE, close

if jax.default_backend() != "gpu":
    pytest.skip("there is no GPU", allow_module_level=True)


def rollout_gradient(model, q, v, vdot, tau, wrenches):
    motor = lambda t, q, v: 1e-3 * (tau * jnp.tanh(v) - jnp.exp(-t) * v)
    loss = lambda q, v: jnp.sum(lgjax.rollout(model, q, v, motor, 1e-3, 12, save_every=None).v ** 2)
    return jax.grad(loss, (0, 1))(q, v)


def tangent(model, q, v, vdot, tau, wrenches):
    return jax.jvp(lambda v, tau: lgjax.forward_dynamics(model, q, v, tau), (v, tau), (vdot, v))


def second_derivative(model, q, v, vdot, tau, wrenches):
    forward = lambda v: jnp.sum(lgjax.forward_dynamics(model, q, v, tau) * vdot)
    return jax.jvp(jax.grad(forward), (v,), (vdot,))


ALL = ALGORITHMS | {"rollout gradient": rollout_gradient, "tangent": tangent, "second derivative": second_derivative}
MODELS = {name: partial(trees.model, name) for name in ("forest", "shoulder", "pendulum", "single body")}
MODELS |= {"quadruped": lgjax.models.quadruped, "arm": lgjax.models.arm}
TOLERANCES = {"second derivative": 4e5, "rollout gradient": 4e4, "time derivatives": 4e4}


@pytest.mark.parametrize("robot", MODELS)
@pytest.mark.parametrize("algorithm", ALL)
def test_algorithms(algorithm, robot):
    """In both precisions; the model as an argument, and specialized, with a batch of whole blocks, first and last."""
    function, cpu = ALL[algorithm], jax.devices("cpu")[0]
    with jax.default_device(cpu):
        model = MODELS[robot]().astype("float64")
        states = trees.random_states(model, SIZE)
        each = (None, *[0] * len(states))
        expected = jax.device_get(jax.jit(jax.vmap(function, each))(model, *states))
    model, states = jax.device_get((model, states))
    for dtype in ("float32", "float64"):
        own, *short = jax.tree.map(partial(jnp.asarray, dtype=dtype), (model, *states))
        special = partial(function, specialize(own))
        whole, last = jax.tree.map(lambda x: x[:32], short), jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), short)
        moved = jax.jit(jax.vmap(special, -1, -1))(*last)
        general = jax.jit(jax.vmap(function, each))(own, *short)
        moved = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), moved)
        bound = TOLERANCES.get(algorithm, 4e3) * np.finfo(dtype).eps
        close(general, expected, bound)
        close(moved, expected, bound)
        close(jax.jit(jax.vmap(special))(*whole), jax.tree.map(lambda x: x[:32], expected), bound)
        assert {x.dtype.name for x in jax.tree.leaves((general, moved))} == {dtype}
