"""Memory of the arrays of a kernel: they share what lives at different times, and results do not show it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.execution import batched
from lgjax.execution.kernels import native, programs
from lgjax.execution.kernels.memory import Arena
from tests.execution import test_kernel

N, BATCH = 16, 37


@pytest.fixture
def texts(monkeypatch):
    """The texts of kernels, in which arrays are arrays."""
    found, real = [], native.kernel_text
    monkeypatch.setattr(programs, "SCALARS", -1)
    monkeypatch.setattr(native, "kernel_text", lambda *args: found.append(real(*args)) or found[-1])
    native.forget()
    yield found
    native.forget()


def matrices(text):
    """How many matrices the memory of a vector of systems has room for."""
    width = int(re.search(r"<(\d+) x float>", text)[1])
    found = re.search(r"%arrays = alloca \[(\d+) x i8\]", text)
    return int(found[1]) / (4 * width * N * N) if found else 0


def run(function, *args):
    """In a kernel, and by XLA for one system after the other."""
    got = jax.jit(jax.vmap(batched(function)))(*args)
    return got, [jax.jit(function)(*(a[n] for a in args)) for n in range(BATCH)]


def agree(got, right, rtol):
    for n, one in enumerate(right):
        jax.tree.map(lambda a, b, n=n: np.testing.assert_allclose(a[n], b, rtol=rtol, atol=rtol), got, one)


def inputs(dtype="float32"):
    random = np.random.default_rng(0)
    return jnp.asarray(random.normal(size=(BATCH, N, N)) / N, dtype), jnp.asarray(random.normal(size=(BATCH, N)), dtype)


def test_what_is_taken_is_free_and_what_is_given_back_is_taken_again():
    random, arena, own = np.random.default_rng(1), Arena(), []
    for _ in range(3000):
        if own and random.random() < 0.5:
            arena.give(*own.pop(random.integers(len(own))))
        else:
            length = int(random.integers(1, 60))
            own.append((arena.take(length), length))
        places = sorted([*own, *arena.free])  # side by side, without gaps
        assert [first + length for first, length in places] == [*(first for first, _ in places[1:]), arena.size]
        assert all(a + n < b for (a, n), (b, _) in zip(arena.free, arena.free[1:], strict=False))
    for one in own:
        arena.give(*one)
    assert arena.free == [(0, arena.size)]


def product(M, x):
    for _ in range(6):
        M = jnp.sin(M) @ M
    return M[0] + x


def in_its_place(M, x):
    M = jnp.sin(M @ M)
    for k in range(4):
        M = M.reshape(-1).at[np.arange(0, N * N, N + 1)].add(x * k).reshape(N, N)
    return M @ x


def before_and_after(M, x):
    """As before, but the first matrix is read again."""
    first = jnp.sin(M @ M)
    return in_its_place(M, x) + (first + 0.5) @ x


def from_where_it_is(M, x):
    """A loop begins with what nothing else reads."""
    turn = lambda k, c: (c[0] * 0.5 + c[1][k], c[1] * 0.9)
    return jax.lax.fori_loop(0, N, turn, (x, jnp.sin(M @ M)))[0]


def from_its_diagonal(M, x):
    """A copy that is made before the diagonal is read would not take the place of the matrix."""
    M = jnp.sin(M @ M)
    more = jnp.cumsum(M.reshape(-1)[:: N + 1]) + x
    return M.reshape(-1).at[np.arange(0, N * N, N + 1)].add(more, unique_indices=True).reshape(N, N) @ x


def one_after_the_other(M, x):
    """The next matrix is written over the last one, what else a turn needs is not."""

    def turn(k, c):
        vector, matrix = c
        after = jnp.cos(matrix) * 0.3
        other = jnp.sin(after @ after)
        return 0.1 * vector[k] + other @ x, after

    vector, matrix = jax.lax.fori_loop(0, N, turn, (x, M))
    return jnp.sin(matrix @ matrix) @ vector


def the_last_one_too(M, x):
    """The last matrix is read when the next one is known."""

    def turn(k, c):
        vector, matrix = c
        after = jnp.cos(matrix) * 0.3
        return matrix @ (after @ vector) + x[k], after

    return jax.lax.fori_loop(0, N, turn, (x, M))[0]


def through_a_loop_inside(M, x):
    """A loop inside changes the matrix where a number says so, and the turn goes on with what it makes of it."""

    def turn(k, c):
        vector, matrix = c
        row = matrix @ vector
        write = lambda c: (jnp.zeros((), bool), jax.lax.dynamic_update_slice(c[1], row[None], (k, 0)))
        return jnp.sin(0.5 * vector + 0.1 * row), jax.lax.while_loop(lambda c: c[0], write, (vector[k] > 0, matrix))[1]

    vector, matrix = jax.lax.fori_loop(0, N, turn, (x, jnp.sin(M)))
    return matrix @ vector


def part_by_part(second, read):
    """A turn writes a row, then a second part, a column over its entry. read: which matrix the turn multiplies by."""

    def function(M, x):
        def turn(k, c):
            vector, matrix = c
            after = jax.lax.dynamic_update_slice(matrix, vector[None], (k, 0))
            after = jax.lax.dynamic_update_slice(after, 0.5 * second(k, vector, matrix)[:, None], (0, k))
            return jnp.sin((matrix, after)[read] @ vector) * 0.1 + 0.1 * x, after

        vector, matrix = jax.lax.fori_loop(0, N, turn, (x, jnp.sin(M)))
        return matrix @ vector

    return function


# the most matrices that live at one time, the argument among them
MOST = {"product": (product, 3), "in its place": (in_its_place, 2), "before and after": (before_and_after, 3),
        "from where it is": (from_where_it_is, 2), "from its diagonal": (from_its_diagonal, 2),
        "one after the other": (one_after_the_other, 3), "the last one too": (the_last_one_too, 3),
        "through a loop inside": (through_a_loop_inside, 1),
        "part by part": (part_by_part(lambda k, vector, _: vector, 0), 1),
        "part by part of the last": (part_by_part(lambda k, _, matrix: matrix[k], 1), 2)}  # fmt: skip


@pytest.mark.parametrize("name", MOST)
def test_arrays_have_room_for_those_that_live_at_one_time(texts, name):
    function, most = MOST[name]
    got, right = run(function, *inputs())
    agree(got, right, 1e-5)
    assert most - 1 < max(map(matrices, texts)) <= most + 0.6  # and for vectors
    agree(test_kernel.launched(function, *inputs(), memory=True), right, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("read", ["number", "vector", "matrix", "all"])
def test_systems_that_are_done_keep_what_is_read_after_a_loop(texts, read, dtype):
    """Each goes on until its number is small: others go on with what is not read, and write over it."""

    def function(M, x):
        def turn(state):
            number, turns, vector, matrix = state
            vector = 0.5 * (matrix @ vector) + 0.1 * vector
            return 0.8 * number, turns + jnp.int32(1), vector, jnp.cos(matrix) * 0.3

        start = jnp.abs(x[0]) + 1e-3, jnp.int32(0), x, M
        number, turns, vector, matrix = jax.lax.while_loop(lambda s: s[0] > 0.05, turn, start)
        some = {"number": (number, turns), "vector": vector, "matrix": matrix}
        return some.get(read, (number, turns, vector, matrix))

    args = inputs(dtype)
    got, right = run(function, *args)
    agree(got, right, 1e-5 if dtype == "float32" else 1e-12)
    alone = jax.jit(jax.vmap(batched(function)))(*(a[5:6] for a in args))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[5], b[0]), got, alone)
    assert texts
