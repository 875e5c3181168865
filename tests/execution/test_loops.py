"""Loops of batched functions are those of `jax.vmap`, whatever the carried values depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.execution import batched
from lgjax.numerics.loops import iterate_while

SIZE, LENGTH = 5, 4
RNG = np.random.default_rng(0)
X, ROWS = RNG.uniform(1, 3, (SIZE, 6)), RNG.normal(size=(SIZE, LENGTH, 3))


def counted(x, rows):
    """The counter stays one number, what it is added to becomes one for each system."""
    turn = lambda carry, row: (
        (carry[0] + 1, carry[1] + x[carry[0]], 2 * carry[2]),
        (carry[0], jnp.sin(row) * carry[1]),
    )
    return jax.lax.scan(turn, (jnp.zeros((), jnp.int32), 0.0, 1.0), rows)


def passed_on(x, rows):
    """A value reaches the last of three carries after three turns, so that marks settle late."""
    turn = lambda carry, row: ((x[0], carry[0], carry[1]), carry[2] + row)
    return jax.lax.scan(turn, (0.0, 0.0, 0.0), rows, reverse=True)


def without_rows(x, rows):
    return jax.lax.scan(lambda carry, _: (carry * x[1], carry), jnp.ones(2), None, LENGTH)


def without_turns(x, rows):
    return jax.lax.scan(lambda carry, row: (carry + row, carry * x[0]), jnp.zeros(3), rows[:0])


def the_same_for_all(x, rows):
    """Nothing in the loop belongs to a system."""
    return jax.lax.scan(lambda carry, row: (carry + row, carry), 0.0, jnp.arange(3.0))[0] + x


def nested(x, rows):
    inner = lambda carry, row: jax.lax.scan(lambda c, r: (c + r * x[2], c), carry, row)
    return jax.lax.scan(inner, jnp.zeros(()), rows)


def repeated(x, rows):
    """Each system has its own number of turns."""
    return iterate_while(lambda c: c[1] < 100, lambda c: (c[0] + 1, c[1] * x[0] + 1, c[2]), (0, x[1], jnp.ones(3)))


def as_often_for_all(x, rows):
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + x), (0, jnp.zeros(6)))


def asked_of_constants(x, rows):
    return jax.lax.while_loop(lambda c: c < x[0] * 10, lambda c: c + x[1], 0.0)


def loops_in_loops(x, rows):
    """The outer loop ends at different times; the inner ones count turns of their own."""

    def turn(carry):
        n, y = carry
        return n + 1, y + jax.lax.fori_loop(0, n, lambda k, z: z + x[k % 6], 0.0) + 1

    return iterate_while(lambda carry: carry[1] < 7 * x[3], turn, (0, 0.0))


LOOPS = [
    counted, passed_on, without_rows, without_turns, the_same_for_all, nested, repeated, as_often_for_all,
    asked_of_constants, loops_in_loops,
]  # fmt: skip


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=str)
@pytest.mark.parametrize("loop", LOOPS, ids=lambda f: f.__name__)
def test_a_loop_of_a_batched_function_is_the_loop_of_vmap(loop, axes):
    args = [a if axis == 0 else a[0] for a, axis in zip((X, ROWS), axes, strict=True)]
    expected = jax.jit(jax.vmap(loop, axes))(*args)
    found = jax.jit(jax.vmap(batched(loop), axes))(*args)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-14)
