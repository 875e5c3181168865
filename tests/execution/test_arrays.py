"""Arrays in memory: programs of loops over their entries give what XLA gives, on both machines, in any batch.

What is an array is a matter of size, so the limits are lowered: small functions then have arrays of every kind.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.execution import batched
from lgjax.execution.kernels import native, programs
from lgjax.execution.scalars import arrays, loops
from lgjax.execution.scalars.program import program_of
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.loops import only_if
from tests.execution import test_kernel, test_program

rng = np.random.default_rng(0)
SIZES = (1, 3, 17)


@pytest.fixture(params=["few", "all"])
def small(request, monkeypatch):
    """Arrays of a few entries, or of two, are arrays in memory."""
    large, kept = {"few": (30, 6), "all": (2, 2)}[request.param]
    monkeypatch.setattr(programs, "SCALARS", -1)
    for where, name, value in (
        (arrays, "LARGE", large), (arrays, "WORK", 2 * large), (arrays, "KEPT", kept), (loops, "KEPT", kept),
        (loops, "READ", kept),
    ):  # fmt: skip
        monkeypatch.setattr(where, name, value)
    native.forget()
    yield request.param
    native.forget()


def matrices(*shape):
    """One for each of 17 systems."""
    return rng.normal(size=(17, *shape)) + (4 * np.eye(shape[0]) if len(set(shape)) == 1 == len(shape) - 1 else 0)


M, N, x = matrices(8, 8), matrices(8, 6), matrices(8)


def row(M, i, axis=0):
    return jax.lax.dynamic_index_in_dim(M, i, axis, keepdims=False)


def doubled(M, i, x):
    return jax.lax.dynamic_update_slice_in_dim(M, (2 * row(M, i) + x)[None], i, 0)


def group(M, i, x):
    """Rows 2 i and 2 i + 1 changed where their first entries are positive."""

    def turn(j, M):
        k = 2 * i + j
        return only_if(row(M, k)[0] > 0, lambda M: doubled(M, k, x), M)

    return jax.lax.fori_loop(0, 2, turn, M)


def gauss_seidel(M, x):
    def turn(i, x):
        return jax.lax.dynamic_update_slice_in_dim(x, (x[i] - 0.1 * row(M, i) @ x)[None], i, 0)

    return jax.lax.fori_loop(0, 8, turn, x)


def eliminated(M, x):
    """The matrix and the right side after elimination without pivots: both change in their places."""

    def turn(j, carry):
        M, x = carry
        part = jnp.where(jnp.arange(8) > j, row(M, j, 1) / row(M, j)[j], 0)
        return M - part[:, None] * row(M, j), x - part * x[j]

    return jax.lax.fori_loop(0, 8, turn, (M, x))


def repeated(M, x):
    """A loop that ends by itself and remembers its last five changes."""

    def turn(s):
        k, x, memory = s
        y = 0.5 * x + 0.02 * (M @ jnp.tanh(x))
        memory = jax.lax.dynamic_update_slice_in_dim(memory, (y - x)[None], k % 5, 0)
        return k + 1, y + 0.01 * row(memory, (k * k) % 5), memory

    start = jnp.int32(0), x, jnp.zeros((5, 8), x.dtype)
    return jax.lax.while_loop(lambda s: (s[0] < 12) & (jnp.max(jnp.abs(s[1])) > 0.4), turn, start)


def long_branch(M, x):
    for k in range(9):
        x = jnp.sin(0.1 * M @ x + 0.1 * k) + jnp.concatenate([x[1:], x[:1]])
    return x


def places(i):
    """Indices that the number of a turn says, by every operation on whole numbers."""
    sign = jnp.where(i > 3, 1, -1)
    known = 7 - i, jnp.minimum(2 * i, 7), jnp.maximum(i - 2, 0), i // 2, i % 3, abs(i - 4), -i + 7, (i & 5) | 2
    return *known, 4 + sign * (i % 4), (i >= 2).astype(jnp.int32), ((i < 5) & ~(i == 3)).astype(jnp.int32) + 1


def passed_through(y, part):
    """Its rows one after the other, in a loop that reads the whole of it."""
    return jax.lax.fori_loop(0, 4, lambda j, y: 0.5 * y + part[j] * jnp.sum(part), y)


def part_after_part(M, x, parts=3, own=False):
    """Rows and columns are added one after the other, and some replaced. own: whether parts of the array are added."""
    for k in range(parts):
        at = np.array([k, k + 3])
        M = M.at[np.ix_(at, at[::-1])].add(M[:2, :2] if own else x[k] * x[:2, None], unique_indices=True)
    return M.at[1].set(x, unique_indices=True)


def with_what_was_before(M, x):
    """Each of the arrays that are written is read again later, as it is or in another shape."""
    first = M.at[:, 1].add(x, unique_indices=True)
    second = first.at[:, 2].add(2 * x, unique_indices=True)
    flat = second.reshape(64)
    third = flat.at[::9].add(x, unique_indices=True)
    alone = jax.jit(lambda y: (y.at[0].add(x, unique_indices=True), y.T))(M.at[3].set(x, unique_indices=True))
    return first, second, third, alone


def replaced(M, x, mode):
    """A row, a column, an entry and a row of parts at numbers that are not known, some of them outside."""
    i, j = (4 * x[:2]).astype(jnp.int32) + 3
    put = lambda A, at, new: A.at[at].set(new, mode=mode)
    boxes = put((2 * M).reshape(4, 4, 4), (i % 4, j), M[2, :4])
    away = put((2 * M)[None], (1, i), x)  # a known number outside of an axis of length one
    return away, put(M, i, M @ x), put(M, (slice(None), i), 2 * x), put(M, (i, j), x[3]), boxes, put(M > 0, j, M[1] > x)


FUNCTIONS = {
    "replaced, or left where it is outside": lambda M, N, x: replaced(M, x, None),
    "replaced, or moved inside": lambda M, N, x: replaced(M, x, "clip"),
    "a matrix and a vector": lambda M, N, x: M @ x,
    "matrices": lambda M, N, x: (M @ N, N.T @ M.T, jnp.einsum("ij,kj->ki", M, M), jnp.vdot(M, M)),
    "a product with a batch": lambda M, N, x: jnp.einsum("bij,bj->bi", M.reshape(4, 2, 8), M[:4]),
    "every entry": lambda M, N, x: jnp.where(x < M, jnp.sin(M) * 2 + x[:, None], jnp.sqrt(jnp.abs(M.T))).T,
    "truth values and integers": lambda M, N, x: (
        M > 0, jnp.sum(M > 0, 0, dtype=jnp.int32), (2 * M).astype(jnp.int32) // 3, jnp.any(M > 6, 1), jnp.all(M > -2),
    ),
    "known numbers": lambda M, N, x: M + 3 * jnp.eye(8, dtype=M.dtype) + jnp.arange(8, dtype=M.dtype),
    "sums and bounds": lambda M, N, x: (
        M.sum(0), M.max(1), (M * M).sum(), M.min(), jnp.max((M > 1).astype(jnp.int32), 0),
    ),
    "one after the other": lambda M, N, x: jnp.concatenate([M, x[None], M[::-1], jnp.ones((2, 8), M.dtype)], 0) * 2,
    "side by side": lambda M, N, x: jnp.concatenate([M, N], 1)[:, 3:11] @ x,
    "stacked": lambda M, N, x: jnp.stack([M @ x, x, M.T @ x, jnp.zeros_like(x)], 1),
    "stacked rows": lambda M, N, x: (jnp.stack(N.swapaxes(0, 1), 1), jnp.stack(N.swapaxes(0, 1), 0)),
    "padded": lambda M, N, x: jax.lax.pad(M * 2, jnp.asarray(1.5, M.dtype), ((1, 2, 0), (0, 1, 1))),
    "rows in another order": lambda M, N, x: (
        M[np.array([3, 1, 1, 7])] * 2, M[::-2, 1:5], M[np.array([0, 5]), np.array([2, 2])],
    ),
    "the diagonal": lambda M, N, x: M.reshape(64)[::9] * x,
    "another shape": lambda M, N, x: (M * M).reshape(4, 2, 8).transpose(1, 0, 2).reshape(8, 8) @ x,
    "other orders of axes": lambda M, N, x: jax.lax.reshape(N + 1, (4, 12), (1, 0)),
    "entries of a list": lambda M, N, x: (
        M.at[np.array([1, 3])].add(2 * x[None]), M.at[2, 3].set(x[0]), M.at[:, 1].set(x),
    ),
    "entries that meet": lambda M, N, x: (M.at[np.array([1, 3, 1])].add(x), M.at[np.array([1, 1])].set(2 * x)[:1]),
    "part after part": lambda M, N, x: (part_after_part(M, x), part_after_part(M, x, own=True)),
    "part after part, in a loop": lambda M, N, x: jax.lax.fori_loop(
        0, 3, lambda i, c: part_after_part(0.3 * c, x) + c.T, M
    ),
    "part after part of what a loop carries": lambda M, N, x: jax.lax.fori_loop(
        0, 3, lambda i, c: part_after_part(c, 0.1 * x), M
    ),
    "part after part, and what was before": lambda M, N, x: with_what_was_before(M, x),
    "a derivative of part after part": lambda M, N, x: jax.grad(
        lambda x: jnp.sum(part_after_part(M * x, x) ** 2)
    )(x),
    "blocks on the diagonal": lambda M, N, x: M.reshape(64).at[np.arange(0, 64, 9)].add(x).reshape(8, 8),
    "a loop over rows": lambda M, N, x: gauss_seidel(M, x),
    "in its place": lambda M, N, x: eliminated(M, x),
    "the same backwards": lambda M, N, x: jax.lax.scan(lambda c, r: (c + 0.1 * r * c[0], r @ c), x, M, reverse=True),
    "a loop that saves arrays": lambda M, N, x: jax.lax.scan(lambda c, r: (0.9 * c + r, c), x, M),
    "a loop that ends by itself": lambda M, N, x: repeated(M, x),
    "a branch": lambda M, N, x: jax.lax.cond(x[0] > 0, lambda: M @ x + jnp.sin(M).sum(0), lambda: x * 2),
    "a long branch": lambda M, N, x: jax.lax.cond(x[0] > 0, lambda: long_branch(M, x), lambda: x * 2),
    "two that change places": lambda M, N, x: jax.lax.fori_loop(
        0, 3, lambda i, c: (c[1], c[0] + M @ c[1] * 0.1), (x, 2 * x)
    ),
    "one that follows the other": lambda M, N, x: jax.lax.fori_loop(
        0, 4, lambda i, c: (0.1 * M @ c[0] + c[1], c[0]), (x, 2 * x)
    ),
    "a part of one that changes": lambda M, N, x: jax.lax.fori_loop(
        0, 8, lambda i, c: jax.lax.dynamic_update_slice_in_dim(0.5 * c, x[:1], i, 0), x
    ),
    "two that read one another": lambda M, N, x: jax.lax.fori_loop(
        0, 3, lambda i, c: (0.5 * c[0] + c[1], 0.5 * c[1] - c[0]), (M, 2 * M)
    ),
    "one that reads itself elsewhere": lambda M, N, x: jax.lax.fori_loop(0, 3, lambda i, c: 0.5 * c + c.T, M),
    "loops that end by themselves side by side": lambda M, N, x: jax.vmap(
        lambda row: jax.lax.while_loop(lambda y: y[0] < 3, lambda y: 0.5 * y + 2 + 0.1 * y[::-1], row)
    )(jnp.concatenate([M] * 4)[:, :3]),
    "one that nothing changes": lambda M, N, x: jax.lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1], 0.1 * s[1] @ s[2]), (0, M, x)
    )[2],
    "loops in a loop": lambda M, N, x: jax.lax.fori_loop(
        0, 3, lambda i, y: jax.lax.fori_loop(0, 8, lambda j, z: z + 0.1 * M[j] * z[i], y), x
    ),
    "numbers of a turn": lambda M, N, x: jax.lax.fori_loop(
        0, 8, lambda i, y: y + sum(k * M[place] for k, place in enumerate(places(i), 1)), x
    ),
    "a part by turn, in a loop": lambda M, N, x: jax.lax.fori_loop(
        0, 2, lambda i, y: passed_through(y, jax.lax.dynamic_slice_in_dim(jnp.sin(M), 3 * i, 4)), x
    ),
    "an entry that a loop outside counts": lambda M, N, x: jax.lax.fori_loop(
        0, 4, lambda i, y: y + jax.lax.fori_loop(0, 2, lambda j, z: z + M[2 * i + j] + M[i, j], 0 * x), x
    ),
    "rows at sums of turns": lambda M, N, x: jax.lax.fori_loop(
        0, 4, lambda i, M: jax.lax.fori_loop(0, 2, lambda j, M: doubled(M, 2 * i + j, x), M), M
    ),
    "rows in groups, in systems that go on": lambda M, N, x: jax.lax.fori_loop(
        0, 4, lambda i, M: only_if(row(x, 2 * i) > 0, lambda M: group(M, i, x), M), M
    ),
    "entries at numbers": lambda M, N, x: (
        row(M, jnp.argmax(x).astype(jnp.int32)), row(M, jnp.int32(9 * x[0]), 1), jnp.argmin(M, 0).astype(jnp.int32),
    ),
    "many entries at numbers": lambda M, N, x: (
        x[jnp.argsort(np.arange(8)) * 0 + jnp.argmin(M, 0)], jnp.zeros(8, x.dtype).at[jnp.argmin(M, 1)].add(x),
    ),
    "a part replaced at a number": lambda M, N, x: jax.lax.dynamic_update_slice(
        M, x[None], (jnp.int32(4 * x[0]), jnp.int32(0))
    ),
    "running sums": lambda M, N, x: (jnp.cumsum(M, 0), jnp.cumprod(x), jax.lax.cummax(M, 1)),
    "a solver": lambda M, N, x: jax.lax.custom_linear_solve(
        lambda y: M @ y, x, lambda _, b: eliminated(M, b)[1], lambda _, b: b / 4
    ),
    "a derivative": lambda M, N, x: jax.grad(lambda x: jnp.sum(jnp.sin(M @ x) ** 2))(x),
    "a derivative through a loop": lambda M, N, x: jax.grad(
        lambda M: jnp.sum(jax.lax.fori_loop(0, 3, lambda i, x: jnp.sin(0.1 * M @ x), x) ** 2)
    )(M),
    "parts, of which one is empty": lambda M, N, x: [2 * y for y in jnp.split(M, [3, 3], 0)],
    "nothing": lambda M, N, x: (M[:0] @ x, jnp.zeros((0, 8), M.dtype), M[:, :0].sum(1)),
}  # fmt: skip


def written(function, small):
    """Of arrays that are in memory, where few entries make one; elsewhere what is given are scalars."""
    return (lambda M, N, x: function(1.5 * M, 1.5 * N, 1.5 * x)) if small == "few" else function


def on_processor(function, *args):
    """Through one native function."""
    run = jax.jit(jax.vmap(batched(function))).lower(*args)
    assert "lgjax_" in run.as_text()
    return jax.tree.leaves(run.compile()(*args))


def expected(function, *args):
    return jax.tree.leaves(jax.jit(jax.vmap(function))(*args))


def agree(got, right, dtype):
    for a, b in zip(got, right, strict=True):
        assert a.shape == b.shape
        tolerance = 100 * np.finfo(dtype).eps * (1 + np.max(np.abs(b), initial=0)) * np.issubdtype(b.dtype, np.floating)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_on_a_processor(small, name):
    function = written(FUNCTIONS[name], small)
    for dtype in ("float32", "float64"):
        args = [jnp.asarray(a, dtype) for a in (M, N, x)]
        found = [on_processor(function, *(a[:n] for a in args)) for n in SIZES]
        agree(found[-1], expected(function, *args), dtype)
        for n, some in zip(SIZES, found, strict=True):  # to the last bit
            jax.tree.map(lambda a, b, n=n: np.testing.assert_array_equal(a, b[:n]), some, found[-1])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_on_a_gpu(small, name):
    function, args = written(FUNCTIONS[name], small), [jnp.asarray(a, "float32") for a in (M, N, x)]
    found = test_kernel.launched(function, *args, memory=True)
    agree(jax.tree.leaves(found), expected(function, *args), "float32")


OTHERS = {k: f for k, f in test_program.FUNCTIONS.items() if k not in ("entries at numbers", "a product with no rows")}


@pytest.mark.parametrize("name", OTHERS)
def test_operations_of_other_programs(small, name):
    """What has no rule for arrays is done on scalars."""
    args = [jnp.asarray(test_program.X, "float64")]
    right = expected(OTHERS[name], *args)
    agree(on_processor(OTHERS[name], *args), right, "float64")
    agree(jax.tree.leaves(test_kernel.launched(OTHERS[name], *args, memory=True)), right, "float64")


def test_large_arrays_stay_arrays():
    """A program does not grow with them, nor with what is computed of them."""

    def solved(M, x):
        return jax.lax.fori_loop(0, len(x), lambda j, c: c - 0.01 * M[j] * c[j], jnp.sin(M @ x + jnp.cos(M) @ x))

    def lines(n):
        shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((n, n), (n,))]
        program = program_of(lambda M, x: solved(M, x)[0], *shapes, memory=True)
        return program.lines - sum(name == "store" for name, *_ in program.ops)

    assert lines(40) == lines(80) < 100


def test_parts_that_are_written_one_after_the_other_take_one_copy():
    shapes = [jax.ShapeDtypeStruct(shape, float) for shape in ((48, 48), (48,))]
    program = program_of(lambda M, x: part_after_part(M @ M, x, 5), *shapes, memory=True)
    fills = [what for name, what, _ in program.ops if name == "fill"]
    assert [fill.into for fill in fills if fill.length == 48 * 48] == [False, False, *[True] * 6]


@pytest.mark.parametrize("name", ["in its place", "every entry"])
def test_llvm_need_not_see_how_loops_count(small, monkeypatch, name):
    args = [jnp.asarray(a) for a in (M, N, x)]
    seen, texts = on_processor(FUNCTIONS[name], *args), []
    real = native.kernel_text
    monkeypatch.setattr("lgjax.execution.kernels.llvm_writer.HIDDEN", 0)
    monkeypatch.setattr(native, "kernel_text", lambda *a: texts.append(real(*a)) or texts[-1])
    native.forget()
    jax.tree.map(np.testing.assert_array_equal, seen, on_processor(FUNCTIONS[name], *args))
    assert "asm" in texts[-1]


def test_as_few_systems_in_a_vector_as_fit(monkeypatch):
    """Many arrays leave the caches of a core: vectors of fewer systems give the same numbers."""
    args = [jnp.asarray(a, "float32") for a in (M, N, x)]
    texts = []
    text = native.kernel_text
    monkeypatch.setattr(programs, "SCALARS", -1)
    monkeypatch.setattr(native, "kernel_text", lambda *a, **k: texts.append(text(*a, **k)) or texts[-1])
    function = FUNCTIONS["in its place"]
    monkeypatch.setattr(arrays, "LARGE", 30)
    found = []
    for most in (2**20, 1):
        monkeypatch.setattr("lgjax.execution.kernels.llvm.ARRAYS", most)
        native.forget()
        found.append(on_processor(function, *args))
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert "<4 x float>" in texts[1]
    assert native.machine().registers == 16 or "<4 x float>" not in texts[0]


def test_what_was_loaded_or_is_repeated_is_not_stored_again():
    """A product of matrices as outer products: its columns are loaded, and each is there as often as there are rows."""
    turn = lambda a, _: (0.1 * sm.matmul(a, a), None)
    program = program_of(lambda a: jax.lax.scan(turn, a, None, length=60)[0], np.eye(17), memory=True)
    (loop,) = (what for name, what, _ in program.graph.ops if name == "loop")
    assert [name for name, _, _ in loop.graph.ops].count("store") == 0
    a = np.random.default_rng(1).normal(size=(3, 17, 17))
    found = jax.jit(jax.vmap(batched(lambda a: jax.lax.scan(turn, a, None, length=3)[0])))(a)
    once = lambda a: 0.1 * (a @ a)
    np.testing.assert_allclose(found, once(once(once(a))), rtol=1e-10)


def test_a_batch_inside_may_have_results_that_are_not_computed_yet():
    """Each system decides for itself, and what it returns is only read where it is summed."""

    def outer_product(x):
        chosen = jax.lax.cond(x[0] > 0, lambda x: 2 * x, lambda x: x, x)
        return chosen[:, None] * jnp.linspace(0.0, 1.0, 16)

    def moved(x, of):
        turn = lambda x, _: (x + 1e-2 * jnp.sum(jax.vmap(of)(jnp.stack([x, -x])), (0, 2)), None)
        return jax.lax.scan(turn, x, length=60)[0]

    x = jnp.linspace(-1.0, 1.0, 80).reshape(5, 16)
    found = jax.jit(jax.vmap(batched(lambda x: moved(x, batched(outer_product)))))(x)
    np.testing.assert_allclose(found, jax.jit(jax.vmap(lambda x: moved(x, outer_product)))(x), rtol=1e-12)
