"""Sparse block LU factorization of the matrix 1 + F K F^T of interior-point and Newton steps.

F is the factor of `blocks.py`; K has a block (3, 3) for each contact. So each contact adds to the blocks (6, 6) of the
velocities that it couples, and the others are zero. Gaussian elimination by blocks follows the minimum-degree order:
next comes the block with the fewest neighbors, the blocks that are coupled with it. Eliminating it couples its
neighbors (fill-in). The order is found once, from the static pattern. For a stack the matrix is block tridiagonal, and
the time grows in proportion to the number of boxes.

There is no pivoting: near the central path of the interior-point method the symmetric part of the matrix is positive
definite. Read first: `blocks.py`. Next: `interior.py`.

Source: George and Liu, Computer solution of large sparse positive definite systems (1981), for the order.
"""

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.blocks import SIZE, Pattern, Run
from lgjax.numerics.rank import product

Array = jax.Array

MOST_NEIGHBORS = 3  # of a block when it is eliminated; if a pattern has more, a dense matrix is used


class Order(NamedTuple):
    """Order of elimination and layout of the matrix, static.

    blocks: (m,), in the order in which they are eliminated. neighbors: (m, d), the later blocks that are coupled with
    each, padded with m. number: (m + 1, m + 1), where each block of the matrix is stored; blocks that stay zero are at
    `zero`.
    """

    blocks: np.ndarray
    neighbors: np.ndarray
    number: np.ndarray
    zero: int


@lru_cache(64)
def minimum_degree_order(pattern: Pattern) -> Order:
    """The minimum-degree order for a pattern, with its fill-in."""
    m = pattern.blocks
    coupled: list[set[int]] = [set() for _ in range(m)]
    for places in (*pattern.contacts, *pattern.rows):
        for a in places:
            coupled[a].update(b for b in places if b != a)
    full = [{a, *others} for a, others in enumerate(coupled)]
    left, order, neighbors = set(range(m)), [], []
    while left:
        first = min(left, key=lambda a: (len(coupled[a]), a))
        own = sorted(coupled[first])
        for a in own:
            coupled[a] = (coupled[a] | set(own)) - {a, first}
            full[a] |= set(own)
        left.remove(first)
        order.append(first)
        neighbors.append(own)
    most = max(map(len, neighbors), default=0)
    table = [[*own, *[m] * (most - len(own))] for own in neighbors]
    stored = [(a, b) for a in range(m) for b in sorted(full[a])]
    number = np.full((m + 1, m + 1), len(stored), np.int32)
    for n, (a, b) in enumerate(stored):
        number[a, b] = n
    return Order(np.array(order, np.int32), np.array(table, np.int32).reshape(m, most), number, len(stored))


def most_neighbors(pattern: Pattern) -> int:
    """The largest number of neighbors of a block when it is eliminated."""
    return minimum_degree_order(pattern).neighbors.shape[1]


class BlockLU(NamedTuple):
    """The matrix after block elimination, (count + 1, 6, 6): LU factors of each pivot block, and the blocks beside and
    below the pivots as they were when they were eliminated. The last block is zero.
    """

    blocks: Array
    order: Order

    def solve(self, z: Array) -> Array:
        """The y with (1 + F K F^T) y = z: forward and backward substitution. y, z: as `BlockMatrix.spread` returns."""
        M, (pivots, neighbors, number, _) = self
        most = neighbors.shape[1]

        def forward(i, z):
            own = _solved(_block(M, _at(number[pivots, pivots], i)), _part(z, _at(pivots, i)))
            at = [_at(neighbors[:, a], i) for a in range(most)]
            lower = [_block(M, _at(number[neighbors[:, a], pivots], i)) for a in range(most)]
            return _put_parts(z, at, [_part(z, k) - product(L, own) for k, L in zip(at, lower, strict=True)])

        def backward(turn, z):
            i = len(pivots) - 1 - turn
            own = _part(z, _at(pivots, i))
            for a in range(most):
                upper = _block(M, _at(number[pivots, neighbors[:, a]], i))
                own = own - product(upper, _part(z, _at(neighbors[:, a], i)))
            own = _solved(_block(M, _at(number[pivots, pivots], i)), own)
            return _put_parts(z, [_at(pivots, i)], [own])

        z = jax.lax.fori_loop(0, len(pivots), forward, z)
        return jax.lax.fori_loop(0, len(pivots), backward, z)


def identity(pattern: Pattern, dtype) -> Array:
    """The unit matrix (count + 1, 6, 6), to which `plus_contact` adds."""
    order = minimum_degree_order(pattern)
    own = np.zeros((order.zero + 1, SIZE, SIZE))
    own[np.diagonal(order.number)[:-1]] = np.eye(SIZE)
    return jnp.asarray(own, dtype)


def plus_contact(M: Array, pattern: Pattern, run: Run, F: list[Array], K: Array) -> Array:
    """M + F K F^T for a contact or row of a run, with its blocks F and its K (m, m)."""
    number, width = minimum_degree_order(pattern).number, range(len(F))
    places = [(a, b) for a in width for b in width]
    left = [product(f, K) for f in F]
    at = [run.of_group(number[run.places[:, a], run.places[:, b]]) for a, b in places]
    new = [_block(M, k) + product(left[a], F[b].T) for k, (a, b) in zip(at, places, strict=True)]
    return _put_blocks(M, at, new)


def factorized(M: Array, pattern: Pattern) -> BlockLU:
    """The block LU factors of M."""
    order = minimum_degree_order(pattern)
    number, pivots, neighbors, _ = order.number, order.blocks, order.neighbors, order.zero
    most = neighbors.shape[1]

    def eliminate(i, M):
        pivot = _at(number[pivots, pivots], i)
        LU = _factored(_block(M, pivot))
        uppers = [_block(M, _at(number[pivots, neighbors[:, b]], i)) for b in range(most)]
        at, new = [pivot], [LU]
        for a in range(most):
            part = _divided(_block(M, _at(number[neighbors[:, a], pivots], i)), LU)
            for b in range(most):
                at.append(_at(number[neighbors[:, a], neighbors[:, b]], i))
                new.append(_block(M, at[-1]) - product(part, uppers[b]))
        return _put_blocks(M, at, new)

    return BlockLU(jax.lax.fori_loop(0, len(pivots), eliminate, M), order)


# ---- dense blocks (6, 6), row by row, so that a kernel holds them in registers
def _at(table: np.ndarray, i) -> Array:
    return jnp.asarray(np.asarray(table, np.int32))[i]


def _block(M: Array, number) -> Array:
    row = lambda r: jax.lax.dynamic_slice(M, (number, np.int32(r), np.int32(0)), (1, 1, SIZE))[0, 0]
    return jnp.stack([row(r) for r in range(SIZE)])


def _put_blocks(M: Array, numbers: list, blocks: list[Array]) -> Array:
    """M with new blocks, all computed before the first is written, so that a loop writes them in place."""
    for number, block in zip(numbers, blocks, strict=True):
        M = jax.lax.dynamic_update_slice_in_dim(M, block[None], number, 0)
    return M


def _part(z: Array, block) -> Array:
    return jax.lax.dynamic_slice_in_dim(z, SIZE * block, SIZE)


def _put_parts(z: Array, blocks: list, parts: list[Array]) -> Array:
    for block, part in zip(blocks, parts, strict=True):
        z = jax.lax.dynamic_update_slice_in_dim(z, part, SIZE * block, 0)
    return z


def _factored(block: Array) -> Array:
    """L and U of a block (6, 6) without pivoting, in one array; a zero pivot is replaced by 1."""
    rows, done = list(block), []
    while rows:
        row, k = rows[0], len(done)
        pivot = jnp.where(row[k] == 0, jnp.ones_like(row[k]), row[k])
        row = row.at[k].set(pivot)
        done.append(row)
        parts = [other[k] / pivot for other in rows[1:]]
        after = np.arange(SIZE) > k
        rows = [jnp.where(after, x - p * row, x).at[k].set(p) for p, x in zip(parts, rows[1:], strict=True)]
    return jnp.stack(done)


def _solved(LU: Array, z: Array) -> Array:
    """The y (6,) with L U y = z."""
    y: list[Array] = []
    for k in range(SIZE):
        y.append(z[k] - sum(LU[k, j] * y[j] for j in range(k)))
    for k in reversed(range(SIZE)):
        y[k] = (y[k] - sum(LU[k, j] * y[j] for j in range(k + 1, SIZE))) / LU[k, k]
    return jnp.stack(y)


def _divided(block: Array, LU: Array) -> Array:
    """The X (6, 6) with X L U = block."""
    x: list[Array] = []
    for k in range(SIZE):
        x.append((block[:, k] - sum(LU[j, k] * x[j] for j in range(k))) / LU[k, k])
    for k in reversed(range(SIZE)):
        x[k] = x[k] - sum(LU[j, k] * x[j] for j in range(k + 1, SIZE))
    return jnp.stack(x, 1)
