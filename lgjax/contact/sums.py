"""Sums and largest entries of small arrays whose last axis is the batch.

XLA for CPUs vectorizes a sum of rows, but no reduction of an axis other than the last. A single system, which becomes
a program of scalars, takes one operation, which is traced in a fraction of the time.
"""

from collections.abc import Iterable
from functools import reduce

import jax
import jax.numpy as jnp

Array = jax.Array


def total(terms: Iterable[Array]) -> Array:
    """The sum of arrays, or of the rows of one array."""
    if isinstance(terms, jax.Array) and _single(terms):
        return jnp.sum(terms, 0)
    return reduce(jnp.add, terms)


def largest(rows: Array) -> Array:
    """The largest entries over the first axis."""
    return jnp.max(rows, 0) if _single(rows) else reduce(jnp.maximum, rows)


def least(rows: Array) -> Array:
    return jnp.min(rows, 0) if _single(rows) else reduce(jnp.minimum, rows)


def times(matrix: Array, x: Array) -> Array:
    """matrix x: (..., i, B) of a matrix (..., i, j, B) and x (j, B)."""
    if _single(matrix, x):
        return (matrix[..., 0] @ x[:, 0])[..., None]
    return total(matrix[..., j, :] * x[j] for j in range(len(x)))


def products(a: Array, b: Array) -> Array:
    """a^T b: (i, j, B) of a (k, i, B) and b (k, j, B)."""
    if _single(a, b):
        return (a[..., 0].T @ b[..., 0])[..., None]
    return total(a[k][:, None] * b[k][None] for k in range(len(a)))


def diagonal(G: Array) -> Array:
    """(n, B) of G (n, n, B)."""
    n, *_, size = G.shape
    return G.reshape(n * n, size)[:: n + 1]


def _single(*arrays: Array) -> bool:
    return all(x.shape[-1] == 1 for x in arrays)
