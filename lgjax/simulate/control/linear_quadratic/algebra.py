"""Small dense algebra with any axes behind those of the matrices, where a CPU works on systems side by side.

Large matrices go to libraries.  What is a layer is fused on its own: XLA would compute the entries that others are made
of again wherever they are used.
"""

from collections.abc import Callable, Sequence
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


def factor(matrix: Array) -> tuple[list[Block], Array]:
    """The blocks of Cholesky's factor U of a matrix (m, m, ...), and whether all pivots are positive.

    Where one is not, the numbers are NaN. Layers slice their inputs themselves: a slice made outside would be copied,
    which takes as long as the arithmetic.
    """
    m = matrix.shape[0]
    count = -(-m // BLOCK)
    edges = [i * m // count for i in range(count + 1)]
    rest, blocks, definite = matrix, [], True
    for n in (stop - start for start, stop in pairwise(edges)):
        inverse, positive = apart(*layer(lambda a, n=n: _inverse_of_factor(a[:n, :n]))(rest))
        beyond = rest[:n, n:]
        if beyond.shape[1]:
            right = lambda inverse, a, n=n: _written_out(transposed(inverse), a[:n, n:])
            less = lambda a, beyond, n=n: a[n:, n:] - _written_out(transposed(beyond), beyond)
            (beyond,) = apart(layer(right)(inverse, rest))
            (rest,) = apart(layer(less)(rest, beyond))
        blocks.append(Block(inverse, beyond))
        definite = positive & definite
    return blocks, jnp.asarray(definite)


def half_solved(blocks: list[Block], right: Array) -> list[Array]:
    """The blocks of U^-T right, for columns `right` (m, k, ...)."""
    halves: list[Array] = []
    for inverse, beyond in blocks:
        n = len(inverse)
        (half,) = apart(layer(lambda inverse, x, n=n: _written_out(transposed(inverse), x[:n]))(inverse, right))
        if beyond.shape[1]:
            less = lambda x, beyond, half, n=n: x[n:] - _written_out(transposed(beyond), half)
            (right,) = apart(layer(less)(right, beyond, half))
        halves.append(half)
    return halves


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


class Solution(NamedTuple):
    """The solution x of U^T U x = right for columns, NaN where the matrix is not positive definite, and U^-T right in
    blocks of rows.
    """

    x: Array
    halves: list[Array]


def solved(matrix: Array, *rights: Array) -> list[Solution]:
    """Solutions for several right-hand sides (m, k, ...); the matrix is factored once."""
    if len(matrix) > (SOLVED if matrix.ndim == 2 else SOLVED_IN_BATCHES):
        return _solved_by_library(matrix, rights)
    blocks, definite = factor(matrix)
    halves = [half_solved(blocks, right) for right in rights]
    return [Solution(jnp.where(definite, back_substituted(blocks, half), jnp.nan), half) for half in halves]


def _solved_by_library(matrix: Array, rights: Sequence[Array]) -> list[Solution]:
    """The same with the matrices last: large ones do not stay in registers, however they are ordered."""
    last, first = (lambda x: jnp.moveaxis(x, (0, 1), (-2, -1))), (lambda x: jnp.moveaxis(x, (-2, -1), (0, 1)))
    lower = jax.lax.linalg.cholesky(last(matrix), symmetrize_input=False)
    solve = lambda right, transpose: jax.lax.linalg.triangular_solve(
        lower, right, left_side=True, lower=True, transpose_a=transpose
    )
    halves = [solve(last(right), False) for right in rights]
    return [Solution(first(solve(half, True)), [first(half)]) for half in halves]
