"""Small dense algebra with any axes behind those of the matrices, where a CPU works on systems side by side.

Large matrices go to libraries.  What is a layer is fused on its own: XLA would compute the entries that others are made
of again wherever they are used.
"""

from collections.abc import Callable
from functools import wraps
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from lgjax.execution._jax import call_apart as layer

Array = jax.Array

# Beyond these sizes a library is faster: of the longest sum of a product, and of one with a vector; of a matrix to
# solve with, alone and in a batch.
WRITTEN_OUT, WRITTEN_OUT_OF_VECTORS = 24, 48
SOLVED, SOLVED_IN_BATCHES = 24, 40
BLOCK = 6  # rows that are eliminated at once


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
        out = _written_out(a, b)
    else:
        out = jnp.einsum("ik...,kj...->ij...", a, b, precision="highest")
    return out[:, 0] if column else out


def _written_out(a: Array, b: Array) -> Array:
    return sum((a[:, k, None] * b[k] for k in range(1, a.shape[1])), a[:, 0, None] * b[0])


def transposed(a: Array) -> Array:
    return jnp.swapaxes(a, 0, 1)


def apart(*arrays: Array) -> Any:
    """The arrays as they are, computed once: XLA would compute them again wherever they are used."""
    return jax.lax.optimization_barrier(arrays)


class Block(NamedTuple):
    """A block of rows of the factor U: the inverse of its triangle on the diagonal, and the entries right of that.

    The inverse is upper triangular, with its zeros.
    """

    inverse: Array
    beyond: Array


def eliminated(matrix: Array, right: Array) -> tuple[list[Block], list[Array], Array]:
    """The blocks of Cholesky's factor U of the matrix, those of U^-T right, and whether all pivots are positive.

    matrix (m, m, ...), right (m, k, ...). Where one is not, the numbers are NaN.
    """
    m = matrix.shape[0]
    count = -(-m // BLOCK)
    edges = [i * m // count for i in range(count + 1)]
    rows, blocks, halves, definite = layer(lambda a, b: jnp.concatenate([a, b], 1))(matrix, right), [], [], True
    for start, stop in pairwise(edges):
        size, left = stop - start, m - stop
        inverse, positive = apart(*layer(_inverse_of_factor)(rows[:size, :size]))
        (done,) = apart(
            layer(lambda inverse, rows: _written_out(transposed(inverse), rows))(inverse, rows[:size, size:])
        )
        blocks.append(Block(inverse, done[:, :left]))
        halves.append(done[:, left:])
        definite = positive & definite
        if left:
            less = lambda rows, done: rows - _written_out(transposed(done[:, : len(rows)]), done)
            (rows,) = apart(layer(less)(rows[size:, size:], done))
    return blocks, halves, jnp.asarray(definite)


def _inverse_of_factor(matrix: Array) -> tuple[Array, Array]:
    """U^-1 for a few rows, whose numbers stay in registers, and whether all pivots are positive."""
    m, positive = len(matrix), True
    rest = [list(row) for row in matrix]
    zeros = lambda: [[jnp.zeros_like(matrix[0, 0])] * m for _ in range(m)]
    scales, U, inverse = [], zeros(), zeros()
    for i in range(m):
        positive = (rest[i][i] > 0) & positive
        scales.append(1 / jnp.sqrt(rest[i][i]))
        for j in range(i + 1, m):
            U[i][j] = rest[i][j] * scales[i]
        for row in range(i + 1, m):
            for j in range(row, m):
                rest[row][j] = rest[row][j] - U[i][row] * U[i][j]
    for j in range(m):
        inverse[j][j] = scales[j]
        for i in reversed(range(j)):
            inverse[i][j] = -scales[i] * sum(U[i][k] * inverse[k][j] for k in range(i + 1, j + 1))
    return jnp.stack([jnp.stack(row) for row in inverse]), jnp.asarray(positive)


def back_substituted(blocks: list[Block], halves: list[Array]) -> Array:
    """U^-1 of the right-hand sides, given as blocks."""
    found: list[Array] = []
    for (inverse, beyond), half in reversed(list(zip(blocks, halves, strict=True))):
        if found:
            below = found[0] if len(found) == 1 else jnp.concatenate(found)
            (half,) = apart(layer(lambda half, beyond, x: half - _written_out(beyond, x))(half, beyond, below))
        found[:0] = apart(layer(_written_out)(inverse, half))
    return jnp.concatenate(found)


def solved(matrix: Array, right: Array) -> tuple[Array, Array]:
    """The solution of a positive definite system for columns `right`, NaN where it is not, and U^-T right."""
    if len(matrix) > (SOLVED if matrix.ndim == 2 else SOLVED_IN_BATCHES):
        return _solved_by_library(matrix, right)
    blocks, halves, definite = eliminated(matrix, right)
    return jnp.where(definite, back_substituted(blocks, halves), jnp.nan), jnp.concatenate(halves)


def _solved_by_library(matrix: Array, right: Array) -> tuple[Array, Array]:
    """The same with the matrices last: large ones do not stay in registers, however they are ordered."""
    matrix, right = (jnp.moveaxis(x, (0, 1), (-2, -1)) for x in (matrix, right))
    lower = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    half = jax.lax.linalg.triangular_solve(lower, right, left_side=True, lower=True)
    found = jax.lax.linalg.triangular_solve(lower, half, left_side=True, lower=True, transpose_a=True)
    return jnp.moveaxis(found, (-2, -1), (0, 1)), jnp.moveaxis(half, (-2, -1), (0, 1))
