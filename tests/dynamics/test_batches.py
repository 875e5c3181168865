"""Results do not depend on the place in a batch, nor on its size, bit by bit; compiled as users compile."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import models
from tests import optimized
from tests.dynamics import trees

FUNCTIONS = {
    "forward": lgjax.forward_dynamics,
    "inverse": lgjax.inverse_dynamics,
    "mass": lambda model, q, v, tau: lgjax.mass_matrix(model, q),
    "gradient": lambda model, q, v, tau: jax.grad(lambda v: jnp.sum(lgjax.forward_dynamics(model, q, v, tau) ** 2))(v),
    "rollout": lambda model, q, v, tau: lgjax.rollout(model, q, v, lambda *_: tau, 1e-3, 2, save_every=None).v,
}
CASES = [(name, "float32") for name in FUNCTIONS] + [("forward", "float64"), ("inverse", "float64")]


@pytest.mark.parametrize("size", [41, 1100])  # in one part, and in two or three
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_place_and_size_do_not_show(name, dtype, size):
    """Batches of other sizes, if of fewer than 9, and rollouts, which also add outside, may differ in the last bit."""
    model = models.chain(2, floating_base=True).astype(dtype)
    q, v, _, tau, _ = jax.tree.map(lambda x: x.astype(dtype), trees.random_states(model, size))
    run = optimized.jit(jax.vmap(FUNCTIONS[name], (None, 0, 0, 0)))
    result = lambda chosen: np.asarray(run(model, *jax.tree.map(lambda x: x[chosen], (q, v, tau))))
    whole, order = result(slice(None)), np.random.default_rng(0).permutation(size)
    np.testing.assert_array_equal(result(order), whole[order])
    for part in (slice(4, 7), slice(5, 14)):
        error = np.abs(result(part) - whole[part]).max()
        exact = part.stop - part.start > 8 and name != "rollout"
        assert error <= (0 if exact else {"float32": 1e-6, "float64": 1e-14}[dtype] * np.abs(whole[part]).max())


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_places_of_a_few(dtype, size):
    """Equal systems beside each other, which a remainder of a loop would tell apart."""
    model = models.quadruped().astype(dtype)
    q, v, _, tau, _ = jax.tree.map(lambda x: jnp.repeat(x.astype(dtype), size, 0), trees.random_states(model, 1))
    out = np.asarray(optimized.jit(jax.vmap(lgjax.forward_dynamics, (None, 0, 0, 0)))(model, q, v, tau))
    np.testing.assert_array_equal(out, np.broadcast_to(out[:1], out.shape))
