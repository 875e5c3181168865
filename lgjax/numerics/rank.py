"""Rank-revealing elimination and pseudoinverse of small matrices, as loops of elementwise work.

Library routines would be called for each matrix of a batch; these run a batch as one, anywhere in a program.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array


class Independent(NamedTuple):
    """The independent rows of a matrix A (m, n).

    combine: (m, m), combine A has orthonormal rows where `kept` is true, zero rows elsewhere. kept: (m,) bool.
    rank: () int32. rows: combine A as it was found, (m, n).
    """

    combine: Array
    kept: Array
    rank: Array
    rows: Array


def product(a, b) -> Array:
    """a b in full precision."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def default_tolerance(dtype) -> float:
    """Relative size below which what is left of a row counts as nothing: half the digits."""
    return float(jnp.finfo(dtype).eps) ** 0.5


def longest_row(matrix) -> Array:
    """Length () of the longest row, what tolerances are relative to."""
    return jnp.sqrt(jnp.max(jnp.sum(lax.stop_gradient(matrix) ** 2, -1)))


def independent_rows(matrix, limit) -> Independent:
    """Orthogonalizes the rows, the longest first, until nothing longer than `limit` is left of any.

    The choice is piecewise constant: `combine` is a constant to derivatives.
    """
    matrix = lax.stop_gradient(matrix)
    m, n = matrix.shape
    places = jnp.arange(m)
    least = lax.stop_gradient(limit) ** 2

    def turn(_, state):
        table, done = state
        lengths = jnp.where(done, -1, jnp.sum(table[:, :n] ** 2, -1))
        best = jnp.argmax(lengths)
        here = places == best
        good = jnp.max(lengths) > least
        pivot = jnp.sum(jnp.where(here[:, None], table, 0), 0)
        # again, because a short remainder has lost its right angles to the rows before
        again = jnp.where(done, jnp.sum(table[:, :n] * pivot[:n], -1), 0)
        pivot = pivot - jnp.sum(again[:, None] * table, 0)
        squared = jnp.sum(pivot[:n] ** 2)
        unit = pivot * lax.rsqrt(jnp.where(good, squared, jnp.ones_like(squared)))
        left = jnp.where(done | here, 0, jnp.sum(table[:, :n] * unit[:n], -1))
        reduced = jnp.where(here[:, None], unit, table - left[:, None] * unit)
        return jnp.where(good, reduced, table), done | (here & good)

    table = jnp.concatenate([matrix, jnp.eye(m, dtype=matrix.dtype)], 1)
    table, kept = lax.fori_loop(0, min(m, n), turn, (table, jnp.zeros(m, bool)))
    table = jnp.where(kept[:, None], table, 0)
    return Independent(table[:, n:], kept, jnp.sum(kept, dtype=jnp.int32), table[:, :n])


@jax.custom_jvp
def pseudo_inverse(matrix, limit) -> Array:
    """Moore-Penrose inverse (n, m) of a matrix (m, n) but for what is shorter than `limit`.

    With the derivative where the rank does not change.
    """
    first = independent_rows(matrix, limit)
    columns = product(matrix, first.rows.T)  # matrix = columns rows
    second = independent_rows(columns.T, 0 * limit)
    return product(first.rows.T, product(second.combine.T, second.rows))


@pseudo_inverse.defjvp
def _pseudo_inverse_jvp(primals, tangents):
    """Source: G. Golub, V. Pereyra, SIAM J. Numer. Anal. 10 (1973), eq. (4.12)."""
    matrix, limit = primals
    change = tangents[0]
    inverse = pseudo_inverse(matrix, limit)
    off_range = change - product(matrix, product(inverse, change))
    off_domain = change - product(product(change, inverse), matrix)
    first = product(inverse, product(change, inverse))
    second = product(product(inverse, inverse.T), off_range.T)
    third = product(off_domain.T, product(inverse.T, inverse))
    return inverse, second + third - first


@jax.custom_jvp
def regular_inverse(matrix) -> Array:
    """Inverse of a regular matrix (n, n) by Gauss-Jordan elimination with row exchanges."""
    n = len(matrix)
    places = jnp.arange(n)

    def column(k, table):
        at_k = jnp.arange(2 * n) == k
        entries = jnp.sum(jnp.where(at_k, table, 0), -1)
        best = jnp.argmax(jnp.where(places >= k, jnp.abs(entries), -1))
        upper, lower = table[k], jnp.sum(jnp.where((places == best)[:, None], table, 0), 0)
        table = jnp.where((places == best)[:, None], upper, table)
        pivot = lower / jnp.sum(jnp.where(at_k, lower, 0))
        entries = jnp.where(places == best, jnp.sum(jnp.where(places == k, entries, 0)), entries)
        cleared = table - jnp.where(places == k, 0, entries)[:, None] * pivot
        return jnp.where((places == k)[:, None], pivot, cleared)

    table = jnp.concatenate([matrix, jnp.eye(n, dtype=matrix.dtype)], 1)
    return lax.fori_loop(0, n, column, table)[:, n:]


@regular_inverse.defjvp
def _regular_inverse_jvp(primals, tangents):
    inverse = regular_inverse(*primals)
    return inverse, -product(inverse, product(tangents[0], inverse))
