"""Linear systems of constrained dynamics, [[A, Bᵀ], [B T, 0]], by a dense factorization or by elimination of A."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from lgjax.numerics import small_matrix as sm

Array = jax.Array

BLOCK = 3  # rows and columns that are eliminated at a time
SHORT = 12  # longest sum of a product of matrices that is written as a sum in a batch
WHOLE = 20  # rows up to which one loop over blocks is faster than halves


class Factor(NamedTuple):
    """A eliminated: A⁻¹ as one matrix (n, n) or its blocks (k, b, b), A⁻¹Bᵀ (n, m), B T (m, n), (B T A⁻¹ Bᵀ)⁻¹.

    weight: of Bᵀ B T that was added to A, or None.
    """

    inverse: Array
    columns: Array
    rows: Array
    complement: Array
    weight: Array | None


def _small_inverse(m: Array) -> Array:
    """Inverses of matrices (..., n, n) by Gauss-Jordan in place, one elementwise pass per column."""
    for k in range(m.shape[-1]):
        here = np.arange(m.shape[-1]) == k
        # 1 in place k: the pivot's own row and column then come out as those of the inverse.
        row = jnp.where(here, 1.0, m[..., k : k + 1, :]) / m[..., k : k + 1, k : k + 1]
        m = jnp.where(here[:, None], row, jnp.where(here, 0.0, m) - m[..., :, k : k + 1] * row)
    return m


def _product(a: Array, b: Array) -> Array:
    """a b, written out where that is short, and always for one system: no library is called from one function."""
    return sm.matmul(a, b) if a.shape[-1] <= SHORT else _long_product(a, b)


_long_product = custom_vmap(sm.matmul)


@_long_product.def_vmap
def _(size: int, batched: Any, a: Array, b: Array) -> tuple[Array, bool]:
    del size, batched  # an operand without the axis is broadcast
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST), True


def _times(a: Array, x: Array) -> Array:
    """Product (m,) of a matrix (m, n) and a vector (n,): one loop in a kernel, unless it is short."""
    return sm.matvec(a, x) if a.size <= SHORT * SHORT else _long_times(a, x)


_long_times = custom_vmap(lambda a, x: jnp.sum(a * x, axis=1))


@_long_times.def_vmap
def _(size: int, batched: Any, a: Array, x: Array) -> tuple[Array, bool]:
    a, x = (y if b else y[None] for y, b in zip((a, x), batched, strict=True))
    return jnp.matmul(a, x[..., None], precision=jax.lax.Precision.HIGHEST)[..., 0], True


def inverse(m: Array) -> Array:
    """Inverses of matrices (..., n, n) without row exchanges: for matrices near positive definite ones.

    Elementwise work only, so that a batch runs as one; a library routine would be called for each matrix, and XLA may
    not return from such calls within loops that run side by side.  Gauss-Jordan by blocks is a loop, which is compiled
    in a tenth of the time that written out it would take; large matrices are cut into halves, whose products are dense.
    The barriers keep each product from being computed again in everything that reads it.
    """
    n, wait = m.shape[-1], jax.lax.optimization_barrier
    if n <= BLOCK:
        return _small_inverse(m)
    if n <= WHOLE:
        return _inverse_by_blocks(m)
    k = n // 2
    a = inverse(m[..., :k, :k])
    right, below = wait(_product(a, m[..., :k, k:])), wait(_product(m[..., k:, :k], a))
    d = wait(inverse(wait(m[..., k:, k:] - _product(m[..., k:, :k], right))))
    corner = wait(_product(d, below))
    top = jnp.concatenate([a + _product(right, corner), -_product(right, d)], axis=-1)
    return wait(jnp.concatenate([top, jnp.concatenate([-corner, d], axis=-1)], axis=-2))


def _inverse_by_blocks(m: Array) -> Array:
    """Gauss-Jordan in place, BLOCK rows and columns at a time; the last block is filled up with those of the unit."""
    n, axis, wait = m.shape[-1], m.ndim - 1, jax.lax.optimization_barrier
    count = -(-n // BLOCK)
    filling = np.arange(BLOCK * count) >= n
    m = jnp.pad(m, [(0, 0)] * (m.ndim - 2) + [(0, int(filling.sum()))] * 2) + np.diag(filling).astype(m.dtype)
    block = np.arange(BLOCK * count) // BLOCK
    cut = lambda x, k, axis: jax.lax.dynamic_slice_in_dim(x, k * BLOCK, BLOCK, axis)
    put = lambda x, part, k, axis: jax.lax.dynamic_update_slice_in_dim(x, part, k * BLOCK, axis)

    def turn(k: Array, m: Array) -> Array:
        own = block == k
        rows, columns = cut(m, k, axis - 1), cut(m, k, axis)
        pivot = wait(_small_inverse(cut(rows, k, axis)))
        # the block's own rows and columns then come out as those of the inverse
        rows = wait(put(sm.matmul(pivot, jnp.where(own, 0.0, rows)), pivot, k, axis))
        return put(jnp.where(own, 0.0, m) - sm.matmul(columns, rows), rows, k, axis - 1)

    return jax.lax.fori_loop(0, count, turn, m)[..., :n, :n]


def _apply(a: Array, x: Array) -> Array:
    """Product of a matrix (n, n), or of a block diagonal one with blocks (k, b, b), and a matrix (n, m) or vector."""
    product = _times if x.ndim == 1 else _product
    if a.ndim == 2:
        return product(a, x)
    return jax.vmap(product)(a, x.reshape(*a.shape[:2], *x.shape[1:])).reshape(x.shape)


def factorize(a: Array, b: Array, bt: Array) -> Factor:
    """Factors for A (n, n), or block diagonal A with blocks (k, b, b), B (m, n) and B T (m, n).

    A dense A may be singular on what the constraints hold: Bᵀ (B T) is added to it, at the size of A, which does not
    change the solution.  Where blocks are given they must be regular.
    """
    weight = None
    if a.ndim == 2 and b.shape[0]:
        weight = jnp.max(jnp.abs(jnp.diagonal(a)))
        a = a + weight * _product(sm.transpose(b), bt)
    inverse_a = jax.lax.optimization_barrier(inverse(a))
    columns = jax.lax.optimization_barrier(_apply(inverse_a, sm.transpose(b)))
    complement = _product(bt, columns) if b.shape[0] else jnp.zeros((0, 0), a.dtype)
    return Factor(inverse_a, columns, bt, inverse(jax.lax.optimization_barrier(complement)), weight)


def solve(factor: Factor, r: Array) -> Array:
    """The solution (n + m,) for a right side (n + m,)."""
    n = factor.columns.shape[0]
    if not factor.rows.shape[0]:
        return _apply(factor.inverse, r)
    x = _apply(factor.inverse, r[:n])
    if factor.weight is not None:
        x = x + factor.weight * _times(factor.columns, r[n:])
    multipliers = _times(factor.complement, _times(factor.rows, x) - r[n:])
    return jnp.concatenate([x - _times(factor.columns, multipliers), multipliers])


def general_inverse(matrix: Array) -> tuple[Array, Array]:
    """Inverse of a matrix (n, n) by Gauss-Jordan in place with row exchanges, and the least pivot ().

    The pivot is in units of the largest sum of a row; of a singular matrix it is round-off, or NaN.  Slower than a
    library routine, but like `inverse` safe within loops, and quickly compiled, also as a part of one function: rows
    are put in place by masks, since no such function can scatter.
    """
    n = len(matrix)
    places = jnp.arange(n)

    def column(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        table, order, pivots = carry
        sizes = jnp.where(places >= k, jnp.abs(table[:, k]), -1.0)
        best = sm.largest(jnp.where(sizes == sm.largest(sizes), places, 0))
        here, there, lower = places == k, places == best, table[best]
        table = jnp.where(there[:, None], table[k], table)
        order = jnp.where(there, order[k], jnp.where(here, order[best], order))
        # 1 in place k: the pivot's own row and column then come out as those of the inverse.
        row = jnp.where(here, 1.0, lower) / lower[k]
        rest = jnp.where(here, 0.0, table[:, k])
        table = jnp.where(here[:, None], row, jnp.where(here, 0.0, table) - rest[:, None] * row)
        return table, order, jnp.where(here, jnp.abs(lower[k]), pivots)

    start = matrix, places, jnp.zeros_like(matrix[0])
    table, order, pivots = jax.lax.fori_loop(0, n, column, start)
    # Column j comes from where `order` is j; chosen by masks, which in a kernel is one loop.
    inverse = jnp.sum(jnp.where((order == places[:, None])[None], table[:, None], 0), axis=2)
    sums = sm.matvec(jnp.abs(matrix), jnp.ones_like(matrix[0]))
    return inverse, -sm.largest(-pivots) / sm.largest(sums)
