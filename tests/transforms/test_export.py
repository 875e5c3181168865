"""Programs that `jax.export` writes, for a batch whose size is open: they give what `jax.jit` gives for each size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import lgjax

MODEL = lgjax.models.chain(3)
FUNCTIONS = {
    "forward": lambda v, x: lgjax.forward_dynamics(MODEL, lgjax.neutral(MODEL), v, x),
    "mass": lambda v, x: lgjax.mass_matrix(MODEL, lgjax.retract(MODEL, lgjax.neutral(MODEL), v)),
    "gradient": jax.grad(lambda v, x: jnp.sum(lgjax.forward_dynamics(MODEL, lgjax.neutral(MODEL), v, x) ** 2)),
    "rollout": lambda v, x: lgjax.rollout(MODEL, lgjax.neutral(MODEL), v, lambda t, q, v: x, 0.01, 3).v,
    "two batches": lambda v, x: jax.vmap(lambda y: lgjax.forward_dynamics(MODEL, lgjax.neutral(MODEL), v, y))(
        jnp.stack([x, 2 * x])
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_size_of_a_batch_may_be_open(name):
    batch = jax.jit(jax.vmap(FUNCTIONS[name]))
    (size,) = export.symbolic_shape("size")
    of = jax.ShapeDtypeStruct((size, MODEL.nv), np.dtype("float64"))
    program = export.deserialize(export.export(batch)(of, of).serialize())
    v, x = jax.random.normal(jax.random.key(0), (2, 11, MODEL.nv))
    for count in (1, 3, 11):
        found, expected = program.call(v[:count], x[:count]), batch(v[:count], x[:count])
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * float(jnp.abs(expected).max()))


def test_a_program_can_be_differentiated():
    function = jax.jit(FUNCTIONS["forward"])
    v, x = jax.random.normal(jax.random.key(0), (2, MODEL.nv))
    program = export.deserialize(export.export(function)(v, x).serialize(vjp_order=1))
    found, expected = (jax.grad(lambda x, f=f: jnp.sum(f(v, x)))(x) for f in (program.call, function))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
