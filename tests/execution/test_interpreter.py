"""A step on scalars gives what it gives on arrays, with what is known at trace time folded away."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

from lgjax.execution.scalars.interpreter import Block
from lgjax.execution.step import emission, scalarized, step_p

LANES = 5
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(2, 3, 3, LANES))
POSITIVE = np.abs(X) + 0.1


def block(array, known=None) -> Block:
    """The scalars of an array (..., lanes); where `known` (...) is not NaN they are Python numbers."""
    entries = np.empty(array.shape[:-1], object)
    for index in np.ndindex(entries.shape):
        number = np.nan if known is None else known[index]
        entries[index] = jnp.asarray(array[index]) if np.isnan(number) else float(number)
    return Block(entries, jnp.dtype(array.dtype))


def unblock(x: Block) -> np.ndarray:
    full = np.empty((*x.entries.shape, LANES))
    for index in np.ndindex(x.entries.shape):
        full[index] = x.entries[index]
    return full


def directly(step, *arrays):
    return jax.vmap(step, in_axes=-1, out_axes=-1)(*map(jnp.asarray, arrays))


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


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("name", STEPS)
def test_every_operation_gives_what_it_gives_directly(name, known):
    step, pattern = STEPS[name], KNOWN[known]
    x = np.where(np.isnan(pattern)[..., None], X, np.nan_to_num(pattern)[..., None])
    expected = directly(step, x, Y)
    got = scalarized(step)(block(x, pattern), block(Y))
    jax.tree.map(lambda b, e: np.testing.assert_allclose(unblock(b), e, atol=1e-14), got, expected)
    got = scalarized(step)(block(Y), block(x, pattern))
    jax.tree.map(lambda b, e: np.testing.assert_allclose(unblock(b), e, atol=1e-14), got, directly(step, Y, x))


def operations(step, *blocks) -> dict[str, int]:
    """How many of which arithmetic operations the scalarized step consists of, calls included."""
    leaves = [x for b in blocks for x in b.entries.flat if not isinstance(x, float)]

    def run(*values):
        stream = iter(values)
        filled = []
        for b in blocks:
            entries = np.empty(b.entries.shape, object)
            for index in np.ndindex(entries.shape):
                x = b.entries[index]
                entries[index] = x if isinstance(x, float) else next(stream)
            filled.append(Block(entries, b.dtype))
        out = jax.tree.leaves(scalarized(step)(*filled))
        return [x for b in out for x in b.entries.flat if not isinstance(x, float)]

    counts: dict[str, int] = {}

    def count(jaxpr):
        for eqn in jaxpr.eqns:
            if eqn.primitive is step_p:
                count(jax.make_jaxpr(emission(**eqn.params))(*(x.aval for x in eqn.invars)).jaxpr)
                continue
            inner = [p for p in eqn.params.values() if isinstance(p, (core.Jaxpr, core.ClosedJaxpr))]
            for p in inner:
                count(p.jaxpr if isinstance(p, core.ClosedJaxpr) else p)
            if not inner:
                counts[eqn.primitive.name] = counts.get(eqn.primitive.name, 0) + 1

    count(jax.make_jaxpr(run)(*leaves).jaxpr)
    return {name: counts[name] for name in ("add", "sub", "mul", "div", "neg", "sin", "cos") if name in counts}


def test_a_rotation_about_z_costs_four_products():
    R = block(X, KNOWN["rotation about z"])
    assert operations(lambda R, v: R @ v, R, block(Y[0])) == {"mul": 4, "add": 2}


def test_constants_cost_nothing():
    eye = block(X, np.eye(3))
    zero = block(X, np.zeros((3, 3)))
    assert operations(lambda x, y: x @ y, eye, block(Y)) == {}
    assert operations(lambda x, y: x @ y + x, zero, block(Y)) == {}
    assert operations(lambda x, y: jnp.sin(x) @ jnp.cos(x) + x / (1 + jnp.cos(y)), zero, block(Y)).keys() <= {
        "cos", "add",
    }  # fmt: skip
    assert all(x == 0 for x in scalarized(lambda x, y: x * y)(zero, block(Y)).entries.flat)


def test_what_passes_through_is_the_same_array():
    b = block(X[0])
    out = scalarized(lambda x: (x * 1.0 + 0.0, jnp.negative(-x)))(b)
    assert all(a is e for a, e in zip(out[0].entries, b.entries, strict=True))


def test_dtypes_are_kept():
    x = block(X.astype(np.float32), KNOWN["rotation about z"])
    out = scalarized(lambda x: 2.0 * x @ x + jnp.sin(x) / 3.0)(x)
    assert out.dtype == jnp.float32
    assert {e.dtype for e in out.entries.flat if not isinstance(e, float)} == {jnp.dtype(jnp.float32)}


def test_blocks_of_one_pattern_share_a_trace():
    """Numbers are part of the pattern, and so is which entries are the same array."""
    traces = []

    def step(x, y):
        traces.append(x)
        return x * y + jnp.sin(y)

    run = scalarized(step)
    one, two = jnp.asarray(X[0, 0]), jnp.asarray(X[0, 1])
    entries = lambda *values: Block(np.array([*values, None], object)[:-1], X.dtype)
    cases = [  # x, y, whether it is traced anew
        (entries(one, two), entries(two, one), True),
        (entries(two, one), entries(one, two), False),
        (entries(one, two), entries(two, two), True),
        (entries(one, 2.0), entries(two, one), True),
        (entries(two, 3.0), entries(one, two), True),
        (entries(two, 2.0), entries(one, two), False),
    ]
    for x, y, anew in cases:
        before = len(traces)
        got = run(x, y)
        assert len(traces) == before + anew
        for g, a, b in zip(got.entries, x.entries, y.entries, strict=True):
            np.testing.assert_allclose(g, a * b + np.sin(b), rtol=1e-14)


def test_gradients_pass_through():
    def loss(x):
        out = scalarized(lambda a: jnp.sin(a) @ a)(block_of(x))
        return sum(jnp.sum(e) for e in out.entries.flat)

    def block_of(x):
        entries = np.empty((3, 3), object)
        for i, j in np.ndindex(3, 3):
            entries[i, j] = x[i, j]
        return Block(entries, x.dtype)

    direct = lambda x: jnp.sum(jnp.einsum("ijl,jkl->ikl", jnp.sin(x), x, precision="highest"))
    np.testing.assert_allclose(jax.grad(loss)(jnp.asarray(X)), jax.grad(direct)(jnp.asarray(X)), atol=1e-13)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("cumsum", lambda x: jnp.cumsum(x)),
        ("sort", lambda x: jnp.sort(x)),
        ("scan", lambda x: lax.scan(lambda c, a: (c + a, c), x[0], x)[1]),
        ("cond", lambda x: lax.cond(x[0] > 0, lambda: x, lambda: -x)),
    ],
)
def test_an_operation_that_mixes_entries_in_ways_unknown_is_refused_by_name(name, step):
    with pytest.raises(NotImplementedError, match=f"a body step uses '{name}'.*execution='plain'"):
        scalarized(step)(block(X[0]))
