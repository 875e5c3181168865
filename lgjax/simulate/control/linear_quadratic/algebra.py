"""Small dense algebra with any axes behind those of the matrices, where a CPU works on systems side by side.

Large matrices go to libraries.  What is a layer is fused on its own: XLA would compute the entries that others are made
of again wherever they are used.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from lgjax.execution._jax import call_apart as layer

Array = jax.Array

# Beyond these sizes a library is faster: of the longest sum of a product and of matrices to solve with, and of the
# longest sum of a product with a vector.
WRITTEN_OUT, WRITTEN_OUT_OF_VECTORS = 24, 48


def batch_last(function: Callable) -> Callable:
    """`function` of arrays that takes more axes behind those of its arguments: under vmap the batch is there."""
    plain = wraps(function)(lambda *args: function(*args))

    def rule(size: int, batched: Any, *args: Any) -> tuple[Any, Any]:
        behind = lambda x, b: jnp.moveaxis(x, 0, -1) if b else jnp.broadcast_to(x[..., None], (*x.shape, size))
        outs = plain(*jax.tree.map(behind, args, tuple(batched)))
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), outs), jax.tree.map(lambda _: True, outs)

    call = custom_vmap(plain)
    call.def_vmap(rule)
    return call


def times(a: Array, b: Array) -> Array:
    """Product (i, j, ...) of (i, k, ...) and (k, j, ...), or (i, ...) where b is (k, ...), in full precision."""
    column = b.ndim < a.ndim
    b = b[:, None] if column else b
    if a.shape[1] <= (WRITTEN_OUT_OF_VECTORS if column else WRITTEN_OUT):
        out = sum((a[:, k, None] * b[k] for k in range(1, a.shape[1])), a[:, 0, None] * b[0])
    else:
        out = jnp.einsum("ik...,kj...->ij...", a, b, precision="highest")
    return out[:, 0] if column else out


def transposed(a: Array) -> Array:
    return jnp.swapaxes(a, 0, 1)


def apart(*arrays: Array) -> Any:
    """The arrays as they are, computed once: XLA would compute them again wherever they are used."""
    return jax.lax.optimization_barrier(arrays)


def eliminated(matrix: Array, right: Array) -> tuple[Array, Array, Array]:
    """Cholesky's factor of the matrix: its upper half U, U^-T right, and whether all pivots are positive.

    matrix (m, m, ...), right (m, k, ...). Where one is not, the numbers are NaN.
    """
    m = matrix.shape[0]
    rows, definite = layer(lambda a, b: jnp.concatenate([a, b], 1))(matrix, right), True
    scaled = lambda rows, j: rows[0] / jnp.sqrt(rows[0, j])
    reduced = lambda rows, row, j: rows[1:] - row[j + 1 : m, None] * row[None]
    done = []
    for j in range(m):
        definite = (rows[0, j] > 0) & definite
        (row,) = apart(layer(partial(scaled, j=j))(rows))
        done.append(row)
        if j < m - 1:
            rows = layer(partial(reduced, j=j))(rows, row)
    found = layer(lambda *rows: jnp.stack(rows))(*done)
    return found[:, :m], found[:, m:], jnp.asarray(definite)


def back_substituted(upper: Array, right: Array) -> Array:
    """U^-1 right."""
    m = upper.shape[0]
    out: list = [None] * m
    for j in reversed(range(m)):
        (row,) = apart(right[-1] / upper[j, j])
        out[j] = row
        right = right[:-1] - upper[:j, j, None] * row[None]
    return jnp.stack(out)


def solved(matrix: Array, right: Array) -> tuple[Array, Array]:
    """The solution of a positive definite system for columns `right`, NaN where it is not, and U^-T right."""
    if len(matrix) > WRITTEN_OUT:
        return _solved_by_library(matrix, right)
    upper, half, definite = eliminated(matrix, right)
    return jnp.where(definite, back_substituted(upper, half), jnp.nan), half


def _solved_by_library(matrix: Array, right: Array) -> tuple[Array, Array]:
    """The same with the matrices last: large ones do not stay in registers, however they are ordered."""
    matrix, right = (jnp.moveaxis(x, (0, 1), (-2, -1)) for x in (matrix, right))
    lower = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    half = jax.lax.linalg.triangular_solve(lower, right, left_side=True, lower=True)
    found = jax.lax.linalg.triangular_solve(lower, half, left_side=True, lower=True, transpose_a=True)
    return jnp.moveaxis(found, (-2, -1), (0, 1)), jnp.moveaxis(half, (-2, -1), (0, 1))
