"""A function scalarized as a whole gives what it gives directly; its operations are ordered for few registers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import specialize
from lgjax.execution.cost import kernel_cost
from lgjax.execution.scalars.program import program_of
from tests.dynamics import trees
from tests.execution.test_kernel import close, launched

X = np.random.default_rng(0).normal(size=(4, 3, 3))


def number(x):
    """A whole number, from -3 to 7 in the systems below: some are no index of three rows."""
    return (3 * x[..., 0, 0]).astype(jnp.int32)


def long_branch(x):
    for k in range(30):
        x = jnp.sin(0.3 * x @ x.T + 0.1 * k)
    return x


FUNCTIONS = {
    "gather": lambda x: x[np.array([2, 0]), 1:],
    "scatter": lambda x: x.at[1, np.array([0, 2])].set(x[0, :2]),
    "slices": lambda x: jax.lax.dynamic_update_slice(x, 2 * jax.lax.dynamic_slice(x, (1, 1), (2, 2)), (0, 1)),
    "split": lambda x: jnp.split(x, 3)[1] * x,
    "tiles": lambda x: jnp.tile(jax.lax.stop_gradient(x), (2, 3)),
    "other orders of axes": lambda x: (jnp.stack(x[:2].T, 1), jax.lax.reshape(x[:2], (2, 3), (1, 0))),
    "powers": lambda x: x**3 + x**-2,
    "derivatives of tanh": jax.grad(lambda x: jnp.sum(jnp.tanh(x))),
    "comparisons as numbers": lambda x: (x > 0.3).astype(x.dtype) * x + (jnp.arange(3) < 2).astype(x.dtype),
    "truth values": lambda x: ((x > 0) & ~(x > 1), jnp.where((x > 0) ^ (x < 0.5), x, -x), x.astype(jnp.int32)),
    "constants": lambda x: jnp.asarray(X[0], x.dtype) @ x + 2.0,
    "counts of truth values": lambda x: (
        x * jnp.sum(x > 0, dtype=jnp.int32).astype(x.dtype),
        jnp.sum(x > 0, 0, dtype=jnp.int32),
        (x > 0).astype(jnp.int32),
    ),
    "whether a number is zero": lambda x: x.astype(jnp.int32).astype(bool),
    "a product with no rows": lambda x: jax.lax.dot(x[:0], x),
    "a loop without a turn": lambda x: jax.lax.scan(lambda y, i: (2 * y, y), x, None, length=0),
    "a derivative through a loop without a turn": jax.grad(
        lambda x: jnp.sum(jax.lax.fori_loop(0, 0, lambda i, y: jnp.sin(y), x) ** 2)
    ),
    "a sum of nothing": lambda x: jnp.sum(x[:0], 0) + jnp.sum(x[:, :0]),
    "nothing": lambda x: jnp.ones((2, 2), x.dtype),
    "the same twice": lambda x: (x, x + 0.0, x * 1.0),
    "a branch": lambda x: jax.lax.cond(x[0, 0] > 0, lambda x: x, lambda x: 2 * x, x),
    "a loop": lambda x: jax.lax.fori_loop(0, 5, lambda i, y: 0.5 * y[::-1] + i * x, x),
    "a loop over numbers": lambda x: jax.lax.scan(
        lambda y, c: (c[0] * y.T + c[1] * x, None), x, X[:, :2, 0].astype(x.dtype)
    )[0],
    "loops in a loop": lambda x: jax.lax.fori_loop(
        0, 3, lambda i, y: jax.lax.fori_loop(0, 2, lambda j, z: 0.3 * z + y + j, x), x
    ),
    "a loop that saves": lambda x: jax.lax.scan(lambda y, i: (0.5 * y, y[0]), x, None, length=3),
    "a long loop that saves": lambda x: jax.lax.scan(
        lambda y, i: (0.9 * y, y[0] + i), x, jnp.arange(12, dtype=x.dtype), reverse=True
    ),
    "what a loop saved, read": lambda x: read_again(x, lambda stack: stack, False),
    "what a loop saved, read from its end": lambda x: read_again(x, lambda stack: stack, True),
    "what a loop saved, turned round": lambda x: read_again(x, lambda stack: stack[::-1], True),
    "what a loop saved, here and there": lambda x: jnp.stack([saved(x)[1][0][n] for n in (3, 11)]),
    "loops that save in a loop": lambda x: jax.lax.fori_loop(
        0, 3, lambda i, y: 0.1 * y + read_again(y, lambda s: s, True), x
    ),
    "an array read turn by turn": lambda x: jax.lax.scan(lambda y, z: (0.5 * y + z, y @ z), x[0], jnp.tile(x, (4, 1))),
    "entries counted by turns": lambda x: jax.lax.fori_loop(
        0, 9, lambda i, y: y.at[i % 3, i // 3].add(x[i // 3, 0]), x
    ),
    "entries counted by many turns": lambda x: jax.lax.fori_loop(
        0, 900, lambda i, y: y.at[i % 3].add(0.1 * x[i % 2]), x
    ),
    "an entry at a number": lambda x: (x[number(x)], x.at[number(x), 1].get(mode="fill"), jnp.take(x, number(x), 0)),
    "entries at numbers": lambda x: x[number(x + jnp.arange(2, dtype=x.dtype)[:, None, None]), np.array([0, 2])],
    "a slice at a number": lambda x: jax.lax.dynamic_slice(x, (number(x), number(x) - 9), (2, 1)),
    "a slice replaced at a number": lambda x: jax.lax.dynamic_update_slice(x, x[:2, :1], (number(x), np.int32(1))),
    "entries replaced at a number": lambda x: (
        x.at[number(x)].set(7.0),
        x.at[number(x), 0].add(x[0, 1]),
        x.at[:, number(x)].set(x[0], mode="clip"),
    ),
    "a loop that ends by itself": lambda x: jax.lax.while_loop(
        lambda s: jnp.sum(s[0]) < 20, lambda s: (1.5 * s[0] + jnp.abs(x), s[1] + 1), (x, np.int32(0))
    ),
    "a loop that does not begin": lambda x: jax.lax.while_loop(lambda y: jnp.sum(y) > 1e9, lambda y: 2 * y, x),
    "a loop that some systems do not begin": lambda x: jax.lax.while_loop(
        lambda y: y[0, 0] > 0, lambda y: y - 0.3 - 0.1 * jnp.abs(x), x
    ),
    "loops that end by themselves in one another": lambda x: jax.lax.while_loop(
        lambda s: s[1] < 4.0,
        lambda s: (jax.lax.while_loop(lambda y: y[0, 1] < s[1], lambda y: y + 0.3, s[0]), s[1] + 1.0),
        (x, jnp.zeros((), x.dtype)),
    ),
    "a long branch": lambda x: jax.lax.cond(x[0, 0] > 0, long_branch, lambda x: 2 * x, x),
    "long branches": lambda x: jax.lax.switch(
        number(x) - 1, [lambda x: -x, long_branch, lambda x: long_branch(x + 1)], x
    ),
    "places of the largest and the least": lambda x: (
        jnp.argmax(x, 0).astype(jnp.int32),
        jnp.argmin(x.at[0, 0].set(jnp.nan), 1).astype(jnp.int32),
    ),
    "running sums and bounds": lambda x: (
        jnp.cumsum(x, 0),
        jnp.cumprod(x, 1),
        jax.lax.cummax(x, 0, reverse=True),
        jnp.prod(x),
    ),
    "equal numbers of other types": lambda x: (
        jnp.where(x > 0, 1.0, 0.0) * x,
        jnp.where(x > 0, 1, 0).astype(jnp.int32) + number(x),
        jnp.where(x > 0, True, False),
    ),
    "zeros of both signs": lambda x: [jnp.arctan2(jnp.where(x > 0, z, x), -1.0) for z in (0.0, -0.0)],
    "truth values compared": lambda x: [
        f((x > 0).astype(y), (x.T > 0.5).astype(y)).astype(jnp.int32)
        for f in (jax.lax.lt, jax.lax.le, jax.lax.gt, jax.lax.ge, jax.lax.eq, jax.lax.ne, jax.lax.max, jax.lax.min)
        for y in (bool, jnp.int32)
    ],
    "the first that is true": lambda x: jnp.argmax(x > 0, 0).astype(jnp.int32),
    "known integers": lambda x: (
        jnp.where(x[0] > 0, np.int32(3) * jnp.arange(3, dtype=jnp.int32), jnp.int32(5)),
        jax.lax.div(jnp.arange(6, dtype=jnp.int32), jnp.int32(2)).astype(x.dtype) * x[0, 0],
    ),
    "a known division by zero": lambda x: jnp.where(np.arange(3) > 0, 1 / jnp.arange(3, dtype=x.dtype), 2.0) * x,
    "signs": lambda x: jnp.nan_to_num(jnp.sign(jnp.where(x > 1, jnp.nan, jnp.where(x > 0.5, 0.0, x))), nan=7.0),
    "remainders": lambda x: (x * 9 % 0.7, jnp.remainder(-3 * x, 2 * np.pi), jax.lax.rem(x, jnp.full_like(x, jnp.inf))),
    "a derivative through a loop": jax.grad(
        lambda x: jnp.sum(jax.lax.fori_loop(0, 20, lambda i, y: 0.1 * jnp.sin(y @ x), x))
    ),
}


def saved(x):
    """The results of a loop and what it saved in each of 12 turns: a matrix, an integer and a truth value."""

    def turn(y, i):
        return jnp.cos(0.9 * y.T + i.astype(x.dtype)), (y + x, i, y[0, 1] > 0.5)

    return jax.lax.scan(turn, x, jnp.arange(12, dtype=jnp.int32))


def read_again(x, change, reverse):
    """A second loop that reads them."""

    def turn(y, now):
        z, i, positive = now
        return jnp.where(positive, 0.5 * y + z, y - 0.1 * i.astype(x.dtype) * z), None

    final, stacks = saved(x)
    return jax.lax.scan(turn, final, jax.tree.map(change, stacks), reverse=reverse)[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_operation_gives_what_it_gives_directly(name):
    for dtype in ("float32", "float64"):
        x = jnp.asarray(X, dtype)
        got, expected = launched(FUNCTIONS[name], x), jax.vmap(FUNCTIONS[name])(x)
        # Sums of three products may be taken in another order; everything else is the same operation.
        close(got, expected, 8 * np.finfo(dtype).eps)
        names = lambda tree: [x.dtype.name for x in jax.tree.leaves(tree)]
        assert names(got) == names(expected)


def test_what_is_not_arithmetic_on_scalars_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="sort"):
        program_of(jnp.sort, X[0])
    with pytest.raises(NotImplementedError, match="entries at a number that is not known, each among 300"):
        program_of(lambda x: jnp.tile(x, (100, 100))[number(x)], X[0])
    with pytest.raises(NotImplementedError, match="a scan that saves more than"):
        program_of(lambda x: jax.lax.scan(lambda y, i: (y, y), x, None, length=1000)[1], X[0])
    long = lambda x, a: jax.lax.scan(lambda y, i: (y * a, y), x, None, length=900)[1][-1]
    many = lambda x: [long(x, a) for a in (0.5, 0.6, 0.7)]
    with pytest.raises(NotImplementedError, match="bytes that wait in memory or are saved by loops"):
        launched(many, jnp.asarray(X))


def test_operations_are_counted_and_ordered_for_few_registers():
    special = specialize(lgjax.models.quadruped())
    q, v, _, tau, _ = jax.tree.map(lambda x: x[0], trees.random_states(special, 1))
    program = program_of(lambda *args: lgjax.forward_dynamics(special, *args), q, v, tau)
    counts = program.operations
    assert counts["sin"] == counts["cos"] == 12
    assert sum(counts.values()) <= 4250
    assert program.waiting <= 200
    position = {index: place for place, index in enumerate(program.order)}
    for index in program.order:
        assert all(position[a.index] < position[index] for a in program.ops[index][2] if hasattr(a, "index"))


def test_cost_of_a_pendulum():
    """Of a rod on a hinge little is left: an angle, a speed and a torque go in, an acceleration comes out."""
    model = specialize(lgjax.models.chain(1).astype("float32"))
    one = lgjax.neutral(model), np.zeros(1, np.float32), np.zeros(1, np.float32)
    cost = kernel_cost(lambda *s: lgjax.forward_dynamics(model, *s), *one)
    assert cost["bytes"] <= 16
    assert cost["arithmetic"] <= 12
    steps = lambda q, v: lgjax.rollout(model, q, v, None, 1e-3, 5, save_every=None).v
    assert kernel_cost(steps, *one[:2])["operations"]["sin"] == 20


def test_arrays_of_a_trace_must_be_arguments():
    def outer(y):
        with pytest.raises(ValueError, match="closes over traced arrays"):
            program_of(lambda x: x * y, jax.ShapeDtypeStruct((3,), jnp.float32))
        return y

    jax.make_jaxpr(outer)(jnp.ones(3, jnp.float32))


def test_known_quotients_are_those_of_the_kernel():
    """0 / 0 is no number, and 1 / 0 is infinite, without a warning of NumPy's."""
    x = np.array([0.0, -0.0, 1.0, -2.0])
    program = program_of(lambda y: jnp.asarray(x) / jnp.zeros(4) + 0 * y, jax.ShapeDtypeStruct((), "float64"))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.asarray(program.outputs[0], float), x / np.zeros(4))
