"""Entries at numbers that a program computes: they are read from memory where the array is large, on both machines."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import lgjax
from lgjax.execution import batched
from lgjax.execution.scalars.indexing import LOOKED_UP
from lgjax.execution.scalars.program import program_of
from tests.execution.test_kernel import launched

rng = np.random.default_rng(3)
SYSTEMS = 37
GRID = rng.normal(size=(9, 11))
WHOLE = rng.integers(-99, 99, (9, 11)).astype(np.int32)
NUMBERS = rng.integers(-14, 14, (SYSTEMS, 4)).astype(np.int32)  # some outside, on both sides
MANY = np.arange(40, dtype=np.int32)
assert GRID.size > LOOKED_UP


def entry(mode):
    return lambda grid, k: grid.at[k[0], k[1]].get(mode=mode) + grid.reshape(-1).at[9 * k[2] + k[3]].get(mode=mode)


def summed(grid, k):
    """Entries at numbers of each turn of a loop."""
    turn = lambda total, n: (total + grid[k[n % 4] % 9, (k[0] + n) % 11], None)
    return lax.scan(turn, jnp.zeros((), grid.dtype), jnp.arange(12, dtype=jnp.int32))[0]


def until(grid, k):
    """A loop that ends by what it looks up."""
    step = lambda s: (s[0] + 1, s[1] + grid[s[0] % 9, k[1] % 11])
    return lax.while_loop(lambda s: (s[0] < 20) & (s[1] < 3), step, (jnp.abs(k[0]), jnp.zeros((), grid.dtype)))


FUNCTIONS = {
    "inside": entry("promise_in_bounds"),
    "clipped": entry("clip"),
    "filled": entry("fill"),
    "a row and a column": lambda grid, k: (lax.dynamic_index_in_dim(grid, k[0]), grid[:, k[1] % 11]),
    "a window": lambda grid, k: lax.dynamic_slice(grid, (k[0], k[1]), (2, 3)),
    "a window along one axis": lambda grid, k: lax.dynamic_slice(grid, (jnp.int32(2), k[1]), (3, 2)),
    "several": lambda grid, k: grid[k % 9, k[::-1] % 11],
    "at numbers in memory": lambda grid, k: grid[(k[:, None] + MANY) % 9, (k[0] + MANY) % 11],
    "under vmap": lambda grid, k: jax.vmap(lambda n: 2 * grid[n % 9, 3] + grid.T[n % 11, 2])(k),
    "every other": lambda grid, k: grid[::2, 1::3][k[0] % 5, k[1] % 3],
    "of what is computed": lambda grid, k: (grid * grid)[k[0] % 9, k[1] % 11],
    "in a loop": summed,
    "in a loop that ends by itself": until,
    "at known numbers": lambda grid, k: grid[np.array([1, 3]), np.array([2, 2])] + k[:2].astype(grid.dtype),
}


OTHERS = [("filled", "float64"), ("filled", "int32"), ("in a loop", "float64"), ("a window", "int32")]


def arguments(name, dtype):
    grid = jnp.asarray(WHOLE if dtype == "int32" else GRID > 0 if dtype == "bool" else GRID, dtype)
    inside = name == "inside"
    return grid, jnp.asarray(np.abs(NUMBERS) % 6 if inside else NUMBERS)


def equal(found, right):
    for a, b in zip(*map(jax.tree.leaves, (found, right)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=0 if a.dtype.kind != "f" else 30 * np.finfo(a.dtype).eps)


@pytest.mark.parametrize(("name", "dtype"), [*((x, "float32") for x in FUNCTIONS), *OTHERS])
def test_on_a_processor(name, dtype):
    """Of an array for all systems, known or not, and of one for each, which lie one after the other or side by side."""
    function, (grid, k) = FUNCTIONS[name], arguments(name, dtype)
    own = grid + jnp.arange(SYSTEMS, dtype=grid.dtype)[:, None, None]
    run = lambda f, axes, *args: jax.jit(jax.vmap(f, axes)).lower(*args)
    for axes, args in (((None, 0), (grid, k)), ((0, 0), (own, k)), ((-1, -1), (jnp.moveaxis(own, 0, -1), k.T))):
        found = run(batched(function), axes, *args)
        assert "lgjax_" in found.as_text()
        equal(found.compile()(*args), run(function, axes, *args).compile()(*args))
    known = partial(function, grid)
    equal(run(batched(known), 0, k).compile()(k), run(known, 0, k).compile()(k))
    one = [x[0] for x in (own, k)]
    equal(jax.jit(batched(function))(*one), jax.jit(function)(*one))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_on_a_gpu(name):
    function, (grid, k) = FUNCTIONS[name], arguments(name, "float32")
    own = grid + jnp.arange(SYSTEMS, dtype=grid.dtype)[:, None, None]
    right = jax.vmap(function)(own, k)
    equal(launched(function, own, k), right)
    equal(launched(function, own, k, memory=True), right)
    equal(launched(function, own, k, front=lambda n: True), right)
    equal(
        launched(function, k, shared=(grid,)),
        jax.vmap(partial(function, grid))(k),
    )
    equal(launched(partial(function, grid), k, memory=True), jax.vmap(partial(function, grid))(k))


def test_truth_values_are_looked_up():
    grid, k = arguments("several", "bool")
    function = FUNCTIONS["several"]
    equal(jax.jit(jax.vmap(batched(function), (None, 0)))(grid, k), jax.vmap(partial(function, grid))(k))
    equal(
        launched(function, k, shared=(grid,)),
        jax.vmap(partial(function, grid))(k),
    )


@pytest.mark.parametrize("name", [x for x in FUNCTIONS if x not in ("a row and a column", "of what is computed")])
def test_a_program_does_not_grow_with_the_array(name):
    k = jax.ShapeDtypeStruct((4,), jnp.int32)
    sizes = ((9, 11), (90, 110))
    given = [program_of(FUNCTIONS[name], jax.ShapeDtypeStruct(s, jnp.float32), k) for s in sizes]
    held = [program_of(partial(FUNCTIONS[name], jnp.asarray(rng.normal(size=s), jnp.float32)), k) for s in sizes]
    for small, large in (given, held):
        assert large.lines <= small.lines + 10


def test_the_size_of_what_is_looked_up_does_not_count():
    grid, k = jnp.asarray(rng.normal(size=(300, 400)), jnp.float32), jnp.asarray(NUMBERS)
    found = jax.jit(jax.vmap(batched(FUNCTIONS["clipped"]), (None, 0))).lower(grid, k)
    assert "lgjax_" in found.as_text()
    equal(found.compile()(grid, k), jax.vmap(partial(FUNCTIONS["clipped"], grid))(k))


def test_a_small_array_is_chosen_from():
    """What has few entries stays numbers."""
    program = program_of(
        lambda x, k: x[k], *(jax.ShapeDtypeStruct((n,), t) for n, t in ((8, jnp.float32), (1, jnp.int32)))
    )
    assert "pick" not in {name for name, *_ in program.ops}


def test_slopes_of_a_terrain():
    """Heights in a kernel and their derivatives are those of XLA, also by the heights."""
    heights = jnp.asarray(0.1 * GRID)
    places = jnp.asarray(rng.uniform(-1, 1, (SYSTEMS, 2)))

    def height(heights, place):
        return lgjax.contact.HeightField(heights, 0.15)(place[None])[0][0]

    for of in (height, jax.grad(height, 1), jax.grad(height), jax.jacfwd(jax.grad(height, 1), 1)):
        found, right = (jax.jit(jax.vmap(f, (None, 0)))(heights, places) for f in (batched(of), of))
        np.testing.assert_allclose(found, right, atol=1e-13)
