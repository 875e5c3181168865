"""Symmetric positive definite systems of a few rows, by Cholesky's factor U, row by row."""

from itertools import accumulate, pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lgjax.numerics.rank import product

Array = jax.Array

SMALL = 40  # rows of a matrix that is factored here; a library factors larger ones


class Solution(NamedTuple):
    """The solution x of U^T U x = right for columns, NaN where the matrix is not positive definite, and U^-T right."""

    x: Array
    half: Array


def solved(matrix: Array, *rights: Array) -> list[Solution]:
    """Solutions for several right-hand sides (m, k) of a matrix (m, m), which is factored once."""
    right = jnp.concatenate(rights, 1)
    x, half = (_by_library if len(matrix) > SMALL else _row_by_row)(matrix, right)
    ends = list(accumulate(part.shape[1] for part in rights))
    return [Solution(x[:, start:stop], half[:, start:stop]) for start, stop in pairwise([0, *ends])]


def definite(matrix: Array) -> Array:
    """Whether a symmetric matrix is positive definite."""
    if len(matrix) > SMALL:
        return jnp.all(jnp.isfinite(jax.lax.linalg.cholesky(matrix, symmetrize_input=False)))
    return _rows(matrix)[1]


def _rows(table: Array) -> tuple[list[Array], Array]:
    """Rows of [U, U^-T R] from a table [U^T U, R], each from its pivot on, and whether all pivots are positive."""
    m, rows, positive = len(table), [], []
    for i in range(m):
        pivot = table[0, 0]
        # Without a barrier each entry of the table would compute it again.
        row = jax.lax.optimization_barrier(table[0] / jnp.sqrt(pivot))
        rows.append(row)
        positive.append(pivot > 0)
        table = table[1:, 1:] - row[1 : m - i, None] * row[1:]
    return rows, jnp.all(jnp.stack(positive))


def _row_by_row(matrix: Array, right: Array) -> tuple[Array, Array]:
    m = len(matrix)
    rows, positive = _rows(jnp.concatenate([matrix, right], 1))
    half = jnp.stack([row[m - i :] for i, row in enumerate(rows)])
    x = half[m - 1 :] / rows[-1][0]
    for i in reversed(range(m - 1)):
        x = jnp.concatenate([((half[i] - product(rows[i][1 : m - i], x)) / rows[i][0])[None], x])
    return jnp.where(positive, x, jnp.nan), half


def _by_library(matrix: Array, right: Array) -> tuple[Array, Array]:
    lower = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    solve = lambda right, transpose: jax.lax.linalg.triangular_solve(
        lower, right, left_side=True, lower=True, transpose_a=transpose
    )
    half = solve(right, False)
    return solve(half, True), half
