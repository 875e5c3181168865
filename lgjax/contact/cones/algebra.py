"""Sums, products and linear systems of small arrays whose last axis is the batch.

XLA for CPUs vectorizes a sum of rows, but no reduction of an axis other than the last. A single system, which becomes
a program of scalars, takes one operation, which is traced in a fraction of the time. Where it stays with XLA on a GPU,
products have to be asked for in full precision.
"""

from collections.abc import Iterable
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


def total(terms: Iterable[Array]) -> Array:
    """The sum of arrays, or of the rows of one array."""
    if isinstance(terms, jax.Array) and single(terms):
        return jnp.sum(terms, 0)
    return reduce(jnp.add, terms)


def largest(rows: Array) -> Array:
    """The largest entries over the first axis."""
    return jnp.max(rows, 0) if single(rows) else reduce(jnp.maximum, rows)


def least(rows: Array) -> Array:
    return jnp.min(rows, 0) if single(rows) else reduce(jnp.minimum, rows)


def times(matrix: Array, x: Array) -> Array:
    """matrix x: (..., i, B) of a matrix (..., i, j, B) and x (j, B)."""
    if single(matrix, x):
        return jnp.matmul(matrix[..., 0], x[:, 0], precision="highest")[..., None]
    return total(matrix[..., j, :] * x[j] for j in range(len(x)))


def products(a: Array, b: Array) -> Array:
    """a^T b: (i, j, B) of a (k, i, B) and b (k, j, B)."""
    if single(a, b):
        return jnp.matmul(a[..., 0].T, b[..., 0], precision="highest")[..., None]
    return total(a[k][:, None] * b[k][None] for k in range(len(a)))


def diagonal(G: Array) -> Array:
    """(n, B) of G (n, n, B)."""
    n, *_, size = G.shape
    return G.reshape(n * n, size)[:: n + 1] if single(G) else jnp.stack([G[i, i] for i in range(n)])


def plus_diagonal(G: Array, d: Array) -> Array:
    """G (m, n, B) + diag d (m, B)."""
    m, n, size = G.shape
    if single(G):
        return G.reshape(m * n, size).at[np.arange(0, m * (n + 1), n + 1)].add(d, unique_indices=True).reshape(G.shape)
    return G + d[:, None] * jnp.eye(m, n, dtype=G.dtype)[..., None]


def plus_blocks(G: Array, blocks: Array) -> Array:
    """G (m, n, B) + blocks (k, r, r, B) on the diagonal of its first k r rows."""
    (k, r, *_, size), (m, n, _) = blocks.shape, G.shape
    if single(G):
        own, row, column = np.ogrid[:k, :r, :r]
        places = (own * r + row) * n + own * r + column
        return G.reshape(m * n, size).at[places].add(blocks, unique_indices=True).reshape(G.shape)
    unit = jnp.eye(k, dtype=G.dtype)[:, None, :, None, None]
    square = (blocks[:, :, None] * unit).reshape(k * r, k * r, size)
    return G + jnp.pad(square, ((0, m - k * r), (0, n - k * r), (0, 0)))


def single(*arrays: Array) -> bool:
    """Whether this is one system."""
    return all(x.shape[-1] == 1 for x in arrays)


# ---- linear systems
SEGMENT = 16  # columns of one system alone that are eliminated by one loop
SMALL, SMALL_ALONE = 24, 200  # rows of a system of a batch, and of one alone, which are solved here


def solve(matrix: Array, y: Array) -> Array:
    """The x (n, B) with matrix x = y, matrix (n, n, B); a library solves for many rows."""
    if len(y) > (SMALL_ALONE if single(y) else SMALL):
        return jnp.linalg.solve(jnp.moveaxis(matrix, 2, 0), y.T[..., None])[..., 0].T
    transposed = jnp.swapaxes(matrix, 0, 1)
    return jax.lax.custom_linear_solve(
        partial(times, matrix), y, lambda _, y: _eliminate(transposed, y), lambda _, y: _eliminate(matrix, y)
    )


def _eliminate(columns: Array, y: Array) -> Array:
    """`solve` for a matrix of columns (n, n, B), by Gaussian elimination with partial pivoting.

    Rows stay in their places; `turn_of` (n, B) is the turn in which a row became the pivot, or n if it has not yet. A
    row that has been the pivot is left alone: if it were eliminated as well (Gauss-Jordan), round-off would be five
    times as large. A zero pivot is not reported.
    """
    n = len(y)
    places = jnp.arange(n, dtype=jnp.int32)[:, None]

    def forward(k, j, table, turn_of):
        """One of the rows that are left becomes the pivot of column j, which is row k of the table."""
        own = jax.lax.dynamic_slice_in_dim(table, k, 1)[0]
        size = jnp.where(turn_of < n, -jnp.ones_like(own), jnp.abs(own))
        most = largest(size)
        best = least(jnp.where(size == most, places, n))  # NaN: none
        # Without barriers, each entry of the table would compute this and the parts below again.
        best = jax.lax.optimization_barrier(best)

        pivot = _column(table, best)
        turn_of = jnp.where(places == best, j, turn_of)
        parts = _quotient(own, jax.lax.dynamic_slice_in_dim(pivot, k, 1))
        parts = jax.lax.optimization_barrier(jnp.where(turn_of < n, jnp.zeros_like(own), parts))
        return table - parts * pivot[:, None], turn_of

    def back(i, carry):
        """Finds x_j for the last j that is not known yet."""
        x, right = carry
        j = n - 1 - i
        own, here = jax.lax.dynamic_slice_in_dim(table, j, 1)[0], turn_of == j
        at_pivot = lambda a: total(jnp.where(here, a, jnp.zeros_like(a)))
        found = jax.lax.optimization_barrier(_quotient(at_pivot(right), at_pivot(own)))
        return jax.lax.dynamic_update_slice_in_dim(x, found[None], j, 0), right - own * found

    table, turn_of = jnp.concatenate([columns, y[None]]), jnp.full(y.shape, n, jnp.int32)  # the table is (n + 1, n, B)
    done, size = [], SEGMENT if single(y) else n
    for first in range(0, n, size):  # columns that are done are left out
        count = min(size, n - first)
        turn = lambda j, carry, first=first: forward(j, first + j, *carry)
        table, turn_of = jax.lax.fori_loop(0, count, turn, (table, turn_of))
        done, table = [*done, table[:count]], table[count:]
    right, table = table[0], jnp.concatenate(done)
    return jax.lax.fori_loop(0, n, back, (jnp.zeros_like(y), right))[0]


def _column(table: Array, place: Array) -> Array:
    """(m, B) of a table (m, n, B): of each system the column at its place (B,)."""
    if single(table):
        return jax.lax.dynamic_index_in_dim(table, place[0], 1, keepdims=False)

    def more(i, found):
        return jnp.where(place == i, jax.lax.dynamic_slice_in_dim(table, i, 1, 1)[:, 0], found)

    return jax.lax.fori_loop(0, table.shape[1], more, jnp.zeros_like(table[:, 0]))


def _quotient(a: Array, b: Array) -> Array:
    """a / b, or a where b is zero."""
    return a / jnp.where(b == 0, jnp.ones_like(b), b)
