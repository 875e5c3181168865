"""Linear systems of constrained dynamics, [[A, Bᵀ], [B T, 0]], by a dense factorisation or by elimination of A."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lgjax.groups import small_matrix as sm

Array = jax.Array


class Dense(NamedTuple):
    """LU factors (n + m, n + m) and row exchanges of the whole matrix."""

    lu: Array
    pivots: Array


class Eliminated(NamedTuple):
    """A block diagonal A eliminated: its inverse blocks (k, b, b), A⁻¹Bᵀ (n, m), B T (m, n), LU of B T A⁻¹ Bᵀ."""

    inverse: Array
    columns: Array
    rows: Array
    lu: Array
    pivots: Array


def _inverse(blocks: Array) -> Array:
    """Inverses of matrices (..., b, b), b small, without row exchanges: for blocks near a positive definite one."""
    size = blocks.shape[-1]
    if size == 1:
        return 1.0 / blocks
    eye = jnp.broadcast_to(jnp.eye(size, dtype=blocks.dtype), blocks.shape)
    table = jnp.concatenate([blocks, eye], axis=-1)
    for k in range(size):
        pivot = table[..., k : k + 1, :] / table[..., k : k + 1, k : k + 1]
        # Row k less itself plus the pivot row: one expression for all rows.
        column = table[..., :, k : k + 1] - jnp.eye(size, dtype=blocks.dtype)[:, k : k + 1]
        table = table - column * pivot
    return table[..., size:]


def apply_blocks(blocks: Array, x: Array) -> Array:
    """Product of a block diagonal matrix, blocks (k, b, b), and a matrix (k b, m)."""
    count, size = blocks.shape[:2]
    return sm.matmul(blocks, x.reshape(count, size, x.shape[-1])).reshape(x.shape)


def factorise(a: Array, b: Array, bt: Array) -> Dense | Eliminated:
    """Factors for A (n, n) dense or (k, b, b) block diagonal, B (m, n) and B T (m, n)."""
    if a.ndim == 2:
        m = b.shape[0]
        corner = jnp.zeros((m, m), a.dtype)
        top = jnp.concatenate([a, sm.transpose(b)], axis=1)
        return Dense(*jax.scipy.linalg.lu_factor(jnp.concatenate([top, jnp.concatenate([bt, corner], axis=1)])))
    inverse = _inverse(a)
    columns = apply_blocks(inverse, sm.transpose(b))
    if not b.shape[0]:
        return Eliminated(inverse, columns, bt, jnp.zeros((0, 0), a.dtype), jnp.zeros((0,), jnp.int32))
    return Eliminated(inverse, columns, bt, *jax.scipy.linalg.lu_factor(sm.matmul(bt, columns)))


def solve(factor: Dense | Eliminated, r: Array) -> Array:
    """The solution (n + m,) for a right side (n + m,)."""
    if isinstance(factor, Dense):
        return jax.scipy.linalg.lu_solve((factor.lu, factor.pivots), r)
    n = factor.columns.shape[0]
    x = apply_blocks(factor.inverse, r[:n, None])[:, 0]
    if not factor.lu.shape[0]:
        return x
    multipliers = jax.scipy.linalg.lu_solve((factor.lu, factor.pivots), sm.matvec(factor.rows, x) - r[n:])
    return jnp.concatenate([x - sm.matvec(factor.columns, multipliers), multipliers])
