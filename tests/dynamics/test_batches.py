"""Results do not depend on the place in a batch, bit by bit, nor, to round-off, on its size; XLA's default settings."""

import jax
import numpy as np
import pytest

import lgjax
from lgjax import models
from tests.dynamics import trees

run = jax.jit(jax.vmap(lgjax.forward_dynamics, (None, 0, 0, 0)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_place_and_size_do_not_show(dtype):
    """Where the batch fills the processor's vectors the bits are the same; else the last one may differ."""
    model = models.chain(2, floating_base=True).astype(dtype)
    q, v, _, tau, _ = jax.tree.map(lambda x: x.astype(dtype), trees.random_states(model, 48))
    whole = run(model, q, v, tau)
    order = np.random.default_rng(0).permutation(48)
    np.testing.assert_array_equal(run(model, *jax.tree.map(lambda x: x[order], (q, v, tau))), whole[order])
    some = run(model, *jax.tree.map(lambda x: x[5:12], (q, v, tau)))
    scale = np.abs(whole[5:12]).max()
    np.testing.assert_allclose(some, whole[5:12], rtol=0, atol={"float32": 1e-6, "float64": 1e-14}[dtype] * scale)
