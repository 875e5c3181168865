"""A function on scalars gives what it gives on arrays, with what is known while tracing folded away."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lgjax.execution import batched
from lgjax.execution.scalars.program import program_of

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(2, 5, 3, 3))
BLOCK = jax.ShapeDtypeStruct((3, 3), np.dtype(float))

STEPS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / (2 + jnp.abs(y)),
    "neg": lambda x, y: -x,
    "scalars": lambda x, y: 2.0 * x - y / 4.0 + 1.0 - (3.0 - x),
    "reciprocal": lambda x, y: 1.0 / (2.0 + y * y),
    "sin": lambda x, y: jnp.sin(x),
    "cos": lambda x, y: jnp.cos(x),
    "sqrt": lambda x, y: jnp.sqrt(jnp.abs(x)),
    "rsqrt": lambda x, y: lax.rsqrt(jnp.abs(x) + 1),
    "square": lambda x, y: jnp.square(x),
    "integer_pow": lambda x, y: x**3,
    "exp": lambda x, y: jnp.exp(x),
    "atan2": lambda x, y: jnp.arctan2(x, y),
    "select": lambda x, y: jnp.where(x > y, x, 2 * y),
    "select a constant": lambda x, y: jnp.where(x > 0, x, 0.0),
    "maximum": lambda x, y: jnp.maximum(x, y),
    "dot_general": lambda x, y: x @ y,
    "batched dot_general": lambda x, y: jnp.einsum("ij,ij->i", x, y, precision="highest"),
    "matrix times vector": lambda x, y: x @ y[0],
    "reduce_sum": lambda x, y: jnp.sum(x, 1) + jnp.sum(y),
    "transpose": lambda x, y: x.T - y,
    "reshape": lambda x, y: (x.reshape(9) - y.T.reshape(9)).reshape(3, 3),
    "slice": lambda x, y: x[1:, :2] + y[:2, ::2],
    "index": lambda x, y: x[1] * y[2, 0],
    "dynamic_slice": lambda x, y: lax.dynamic_slice(x, (1, 0), (2, 2)) * y[:2, :2],
    "concatenate": lambda x, y: jnp.concatenate([x, y[:1]]),
    "stack": lambda x, y: jnp.stack([x[0], y[1], jnp.zeros(3, x.dtype)], -1),
    "derivative of a stack": lambda x, y: jax.vjp(lambda a: jnp.stack([a[0], a[1] * a[0]], 1), x)[1](y[:, :2])[0],
    "split": lambda x, y: [part * y[:1, :1] for part in lax.split(x, (1, 2), 1)],
    "iota of rank two": lambda x, y: x * lax.broadcasted_iota(x.dtype, (3, 3), 0) + y,
    "broadcast": lambda x, y: jnp.broadcast_to(x[0], (2, 3)) + y[1, :2, None],
    "pad": lambda x, y: lax.pad(x + y, y[0, 0], ((1, 2, 0), (-1, 0, 2))),
    "expand_dims and squeeze": lambda x, y: jnp.squeeze(x[:, None] + y[:, None], 1),
    "rev": lambda x, y: jnp.flip(x, 1) - y,
    "where with eye": lambda x, y: x @ jnp.eye(3, dtype=x.dtype) + jnp.eye(3, dtype=x.dtype),
    "jit": lambda x, y: jax.jit(lambda a: a * a + 1.0)(x) - y,
    "custom_jvp": lambda x, y: jax.nn.relu(x) + y,
    "the same value twice": lambda x, y: (x, x + 0.0, 1.0 * x),
    "cross": lambda x, y: jnp.cross(x[0], y[0]),
    "derivative": lambda x, y: jax.jvp(lambda a: jnp.sin(a) * a, (x,), (y,))[1],
}
# Which entries are known before the step runs: none, a rotation about z, zeros and ones.
KNOWN = {
    "nothing known": np.full((3, 3), np.nan),
    "rotation about z": np.array([[np.nan, np.nan, 0], [np.nan, np.nan, 0], [0, 0, 1]]),
    "all known": np.array([[1.0, 0, -1], [0, 2, 0], [0.5, 0, 1]]),
}


def with_known(step, pattern):
    """The step, where x has numbers that are known in the places in which `pattern` is not NaN."""
    return lambda x, y: step(jnp.where(np.isnan(pattern), x, np.nan_to_num(pattern)), y)


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("name", STEPS)
def test_every_operation_gives_what_it_gives_directly(name, known):
    step = with_known(STEPS[name], KNOWN[known])
    for f, x, y in ((step, X, Y), (lambda x, y: step(y, x), Y, X)):
        got = jax.jit(jax.vmap(batched(f)))(x, y)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-14), got, jax.vmap(f)(x, y))


def operations(step, pattern=KNOWN["nothing known"]) -> dict[str, int]:
    """How many of which operations the step consists of."""
    return dict(program_of(with_known(step, pattern), BLOCK, BLOCK).operations)


def test_a_rotation_about_z_costs_four_products():
    assert operations(lambda R, y: R @ y[0], KNOWN["rotation about z"]) == {"mul": 4, "add": 2}


def test_constants_cost_nothing():
    eye, zero = np.eye(3), np.zeros((3, 3))
    assert operations(lambda x, y: x @ y, eye) == {}
    assert operations(lambda x, y: x @ y + x, zero) == {}
    assert operations(lambda x, y: jnp.sin(x) @ jnp.cos(x) + x / (1 + jnp.cos(y)), zero).keys() <= {"cos", "add"}
    assert all(x == 0 for x in program_of(with_known(lambda x, y: x * y, zero), BLOCK, BLOCK).outputs[0].flat)


def test_what_passes_through_is_the_same_number():
    program = program_of(lambda x: (x * 1.0 + 0.0, jnp.negative(-x)), BLOCK)
    for out in program.outputs:
        assert [a.index for a in out.flat] == [b.index for b in program.inputs[0].flat]


def test_dtypes_are_kept():
    program = program_of(lambda x: 2.0 * x @ x + jnp.sin(x) / 3.0, jax.ShapeDtypeStruct((3, 3), np.dtype("float32")))
    assert program.out_dtypes == [np.dtype("float32")]


def test_levels_of_a_recursion_are_written_out_and_other_loops_are_not():
    run = lambda unroll: lambda x, y: lax.scan(lambda c, r: (c @ r, None), x, jnp.stack([y] * 20), unroll=unroll)[0]
    loop, written = (program_of(run(n), BLOCK, BLOCK) for n in (1, 20))
    assert len(loop.ops) < 200 < len(written.ops)
    assert loop.operations == written.operations


@pytest.mark.parametrize("name", ["lgamma", "sort"])
def test_an_operation_that_mixes_entries_in_ways_unknown_is_refused_by_name(name):
    with pytest.raises(NotImplementedError, match=f"'{name}' cannot be done scalar by scalar"):
        program_of({"lgamma": lax.lgamma, "sort": jnp.sort}[name], BLOCK)
