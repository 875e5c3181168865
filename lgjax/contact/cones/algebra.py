"""Linear systems and diagonals of the small matrices of a contact problem."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.blocks import BlockMatrix
from lgjax.numerics.rank import product

Array = jax.Array

SEGMENT = 12  # columns that are eliminated by one loop
BLOCK = 3  # of them at once, which reads and writes the others once
SMALL = 200  # rows of a system that is solved here; a library solves larger ones


def times(G: Array | BlockMatrix, x: Array) -> Array:
    """G x (n,)."""
    return G.times(x) if isinstance(G, BlockMatrix) else product(G, x)


@jax.jit
def diagonal(G: Array | BlockMatrix) -> Array:
    """(n,) of G (n, n)."""
    return G.diagonal() if isinstance(G, BlockMatrix) else G.reshape(-1)[:: len(G) + 1]


@partial(jax.jit, static_argnames="k")
def own_blocks(G: Array | BlockMatrix, k: int) -> Array:
    """The blocks (k, 3, 3) of contacts on the diagonal of G."""
    if isinstance(G, BlockMatrix):
        return G.own
    return G[: 3 * k, : 3 * k].reshape(k, 3, k, 3)[np.arange(k), :, np.arange(k)]


@jax.jit
def plus_diagonal(G: Array | BlockMatrix, d: Array):
    """G (m, n) + diag d (m,)."""
    if isinstance(G, BlockMatrix):
        return G.plus(d)
    m, n = G.shape
    return G.reshape(-1).at[np.arange(0, m * (n + 1), n + 1)].add(d, unique_indices=True).reshape(G.shape)


@jax.jit
def plus_blocks(G: Array, blocks: Array) -> Array:
    """G (m, n) + blocks (k, r, r) on the diagonal of its first k r rows."""
    (k, r, *_), n = blocks.shape, G.shape[1]
    own, row, column = np.ogrid[:k, :r, :r]
    places = (own * r + row) * n + own * r + column
    return G.reshape(-1).at[places].add(blocks, unique_indices=True).reshape(G.shape)


def solve(matrix: Array, y: Array) -> Array:
    """The x (n,) with matrix x = y, matrix (n, n)."""
    return jnp.linalg.solve(matrix, y) if len(y) > SMALL else _eliminate(matrix.T, y)


@jax.jit
def _eliminate(columns: Array, y: Array) -> Array:
    """`solve` for a matrix of columns (n, n), by Gaussian elimination with partial pivoting.

    Rows stay in their places; `turn_of` (n,) is the turn in which a row became the pivot, or n if it has not yet. A row
    that has been the pivot is left alone: if it were eliminated as well (Gauss-Jordan), round-off would be five times
    as large. A zero pivot is not reported.
    """
    n = len(y)
    places = jnp.arange(n, dtype=jnp.int32)

    def chosen(panel, turn_of, j):
        """The row that becomes the pivot of a column, which is the first of a panel, and its part in each row left."""
        size = jnp.where(turn_of < n, -jnp.ones_like(panel[0]), jnp.abs(panel[0]))
        best = jnp.min(jnp.where(size == jnp.max(size), places, n))  # NaN: none
        # Without barriers, each entry of the table would compute this and the parts below again.
        best = jax.lax.optimization_barrier(best)
        turn_of = jnp.where(places == best, j, turn_of)
        parts = _quotient(panel[0], jax.lax.dynamic_index_in_dim(panel[0], best, keepdims=False))
        parts = jax.lax.optimization_barrier(jnp.where(turn_of < n, jnp.zeros_like(parts), parts))
        return best, parts, turn_of

    def forward(block, first, turn, carry):
        """Columns that are a block of the table's lose what is not in their pivots' rows, and so does the table."""
        table, turn_of = carry
        panel, pivots = jax.lax.dynamic_slice_in_dim(table, block * turn, block), []
        for c in range(block):
            best, parts, turn_of = chosen(panel, turn_of, first + block * turn + c)
            row = jax.lax.dynamic_index_in_dim(table, best, 1, keepdims=False)
            for other, of_other in pivots:
                row = row - other * jax.lax.dynamic_index_in_dim(of_other, best, keepdims=False)
            row = jax.lax.optimization_barrier(row)
            own = jax.lax.dynamic_slice_in_dim(row, block * turn, block)
            panel = panel[1:] - parts * own[c + 1 :, None]
            pivots.append((row, parts))
        for row, parts in pivots:
            table = table - parts * row[:, None]
        return table, turn_of

    def back(i, carry):
        """Finds x_j for the last j that is not known yet."""
        x, right = carry
        j = n - 1 - i
        own, here = jax.lax.dynamic_index_in_dim(table, j, keepdims=False), turn_of == j
        at_pivot = lambda a: jnp.sum(jnp.where(here, a, jnp.zeros_like(a)))
        found = jax.lax.optimization_barrier(_quotient(at_pivot(right), at_pivot(own)))
        return jax.lax.dynamic_update_index_in_dim(x, found, j, 0), right - own * found

    table, turn_of = jnp.concatenate([columns, y[None]]), jnp.full(y.shape, n, jnp.int32)
    done, first = [], 0
    while first < n:  # columns that are done are left out
        count = min(SEGMENT, n - first)
        block = BLOCK if count >= BLOCK else 1
        count -= count % block
        turn = partial(forward, block, first)
        table, turn_of = jax.lax.fori_loop(0, count // block, turn, (table, turn_of))
        done, table, first = [*done, table[:count]], table[count:], first + count
    right, table = table[0], jnp.concatenate(done)
    return jax.lax.fori_loop(0, n, back, (jnp.zeros_like(y), right))[0]


def _quotient(a: Array, b: Array) -> Array:
    """a / b, or a where b is zero."""
    return a / jnp.where(b == 0, jnp.ones_like(b), b)
