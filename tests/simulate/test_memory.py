"""Rollouts in reverse mode: memory grows as the square root of the steps, is predicted, and gradients stay the same."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import models

BATCH = 4


@cache
def model():
    return models.chain(1)


def final(factor, v, steps=30, remat=False, save_every=None):
    """States of a pendulum with its gravity scaled: two parameters, several results."""
    copy = model().replace(gravity=factor * model().gravity)
    path = lgjax.rollout(copy, lgjax.neutral(copy), v, None, 0.01, steps, save_every=save_every, remat=remat)
    return jnp.concatenate([path.v[-1], path.q.joints[-1]])


@cache
def measured(steps, save_every=None):
    """XLA's bytes for gradients with respect to states, with checkpoints."""

    def loss(q, v):
        path = lgjax.rollout(model(), q, v, None, 1e-3, steps, save_every=save_every, remat=True)
        return jnp.sum(path.v**2) + jnp.sum(path.q.joints)

    start = (lgjax.neutral(model()), jnp.ones(1))
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (BATCH, *x.shape)), start)
    return jax.jit(jax.vmap(jax.grad(loss, (0, 1)))).lower(*batch).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize(("steps", "save_every"), [(10_000, None), pytest.param(10_000, 20, marks=pytest.mark.slow)])
def test_memory_is_predicted_within_thirty_percent(steps, save_every):
    predicted = lgjax.control.rollout_memory(model(), steps, batch=BATCH, save_every=save_every)
    assert abs(predicted / measured(steps, save_every) - 1) < 0.3, (predicted, measured(steps, save_every))


def test_memory_grows_as_the_square_root_of_the_steps():
    assert measured(10_000) < 2 * 1.05 * measured(2500)


def test_gradients_are_those_without_checkpoints_and_of_forward_mode():
    inputs = (jnp.asarray(1.1), jnp.asarray([0.7]))
    there = jax.jit(jax.jacrev(final, (0, 1)))(*inputs)
    again = jax.jit(jax.jacrev(partial(final, remat=True), (0, 1)))(*inputs)
    forward = jax.jit(jax.jacfwd(final, (0, 1)))(*inputs)
    for other in (again, forward):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15), there, other)
