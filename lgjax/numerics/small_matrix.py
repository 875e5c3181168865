"""3-vector and small-matrix products written as multiply-adds.

A float32 ``dot`` runs in TF32 on recent GPUs unless told otherwise, and a batch of 3x3 products is
elementwise work anyway, so nothing here calls ``dot_general``: every contraction is an explicit sum of
products, which XLA fuses with its surroundings.  Every function broadcasts over leading axes and keeps
the dtype of its arguments.

The functions are jitted: each is traced, differentiated and transposed once for each shape, however often a program
calls it. Otherwise a program would spend most of the time before its compilation on tracing them.
"""

import operator
from collections.abc import Iterable
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


@jax.jit
def stack(*components: Array) -> Array:
    """Vector (..., n) from n components of broadcastable shapes (...)."""
    return jnp.stack(_alike(components), axis=-1)


@jax.jit
def components(x: Array) -> list[Array]:
    """The n components (...) of a vector (..., n): one operation, whose transpose is `stack`."""
    return list(jnp.unstack(x, axis=-1))


def _alike(arrays: tuple[Array, ...]) -> list[Array]:
    """Broadcast to the same shape, which most of them have."""
    return list(arrays) if len({jnp.shape(x) for x in arrays}) == 1 else jnp.broadcast_arrays(*arrays)


def _repeated(x: Array, n: int, axis: int) -> Array:
    """n copies along a new axis.

    The transpose of a stack adds slices; that of a broadcast is a reduction, which XLA hands to a library on a CPU,
    where it takes a hundred times as long as the products around it.
    """
    return jnp.stack([x] * n, axis=axis) if n else jnp.repeat(jnp.expand_dims(x, axis), 0, axis=axis)


def _sum(terms: Iterable[Array]) -> Array:
    """In their order."""
    return reduce(operator.add, terms)


def largest(x: Array) -> Array:
    """Largest entry (...) of a vector (..., n), 0 of an empty one: by halves."""
    if not x.shape[-1]:
        return jnp.zeros(x.shape[:-1], x.dtype)
    while (n := x.shape[-1]) > 1:
        halves = jnp.maximum(x[..., : n // 2], x[..., n // 2 : n - n % 2])
        x = jnp.concatenate([halves, x[..., n - 1 :]], axis=-1) if n % 2 else halves
    return x[..., 0]


@jax.jit
def join(*parts: Array) -> Array:
    """Concatenate vectors (..., n_i) along the last axis, leading axes broadcast."""
    lead = jnp.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return jnp.concatenate([jnp.broadcast_to(part, (*lead, part.shape[-1])) for part in parts], axis=-1)


@jax.jit
def rows(*vectors: Array) -> Array:
    """Matrix (..., m, n) whose rows are the m given vectors (..., n)."""
    return jnp.stack(_alike(vectors), axis=-2)


def identity(n: int, dtype: jax.typing.DTypeLike, batch: tuple[int, ...] = ()) -> Array:
    """Identity matrices (*batch, n, n)."""
    return jnp.broadcast_to(np.eye(n, dtype=dtype), (*batch, n, n))


@jax.jit
def dot(a: Array, b: Array) -> Array:
    """Scalar product (...) of two vectors (..., n)."""
    return _sum(components(a * b))


@jax.jit
def scale(s: Array, x: Array) -> Array:
    """Product of a scalar (...) and a vector (..., n)."""
    return _repeated(s, x.shape[-1], -1) * x


@jax.jit
def cross(a: Array, b: Array) -> Array:
    """Vector product of two 3-vectors (..., 3)."""
    a0, a1, a2 = components(a)
    b0, b1, b2 = components(b)
    return stack(a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0)


@jax.jit
def outer(a: Array, b: Array) -> Array:
    """Matrix (..., m, n) with entries a_i b_j."""
    return _repeated(a, b.shape[-1], -1) * _repeated(b, a.shape[-1], -2)


def transpose(m: Array) -> Array:
    """Transpose of the last two axes."""
    return jnp.swapaxes(m, -1, -2)


@jax.jit
def matvec(m: Array, x: Array) -> Array:
    """Product (..., m) of a matrix (..., m, n) and a vector (..., n)."""
    return _sum(jnp.unstack(m * _repeated(x, m.shape[-2], -2), axis=-1))


@jax.jit
def tmatvec(m: Array, x: Array) -> Array:
    """Product (..., n) of the transpose of a matrix (..., m, n) and a vector (..., m)."""
    return _sum(jnp.unstack(m * _repeated(x, m.shape[-1], -1), axis=-2))


@jax.jit
def matmul(a: Array, b: Array) -> Array:
    """Product (..., m, n) of two matrices (..., m, k) and (..., k, n)."""
    return _sum(map(outer, jnp.unstack(a, axis=-1), jnp.unstack(b, axis=-2)))


@jax.jit
def tmatmul(a: Array, b: Array) -> Array:
    """Product of the transpose of a (..., k, m) and b (..., k, n)."""
    return matmul(transpose(a), b)


@jax.jit
def matmult(a: Array, b: Array) -> Array:
    """Product of a (..., m, k) and the transpose of b (..., n, k)."""
    return matmul(a, transpose(b))


@jax.jit
def hat(w: Array) -> Array:
    """Skew matrix (..., 3, 3) with hat(w) x = w × x.  Source: [celledoni2021] eq. (5)."""
    w0, w1, w2 = components(w)
    zero = jnp.zeros_like(w0)
    return rows(stack(zero, -w2, w1), stack(w2, zero, -w0), stack(-w1, w0, zero))


@jax.jit
def vee(m: Array) -> Array:
    """Inverse of `hat`: the vector (..., 3) of the skew part of a matrix (..., 3, 3)."""
    skew = stack(m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1])
    return 0.5 * skew


@jax.jit
def trace(m: Array) -> Array:
    """Sum (...) of the diagonal of a square matrix (..., n, n)."""
    total = m[..., 0, 0]
    for i in range(1, m.shape[-1]):
        total = total + m[..., i, i]
    return total


@jax.jit
def det3(m: Array) -> Array:
    """Determinant (...) of a 3x3 matrix."""
    r0, r1, r2 = jnp.unstack(m, axis=-2)
    return dot(r0, cross(r1, r2))


@jax.jit
def inv3(m: Array) -> Array:
    """Inverse of a 3x3 matrix by cofactors; infinite or NaN where it is singular."""
    r0, r1, r2 = jnp.unstack(m, axis=-2)
    c0, c1, c2 = cross(r1, r2), cross(r2, r0), cross(r0, r1)
    return transpose(rows(c0, c1, c2)) / dot(r0, c0)[..., None, None]


@jax.jit
def solve3(m: Array, x: Array) -> Array:
    """Solution (..., 3) of m y = x for a 3x3 matrix, by cofactors."""
    r0, r1, r2 = jnp.unstack(m, axis=-2)
    c0, c1, c2 = cross(r1, r2), cross(r2, r0), cross(r0, r1)
    return tmatvec(rows(c0, c1, c2), x) / dot(r0, c0)[..., None]


@jax.jit
def ldl(m: Array) -> list[list[Array]]:
    """Entries of the factors of m = L D Lᵀ, m (..., n, n) symmetric positive definite, n small.

    Row i holds L_i0 ... L_i(i-1) and then 1/D_ii; only the lower triangle of m is read. The loops unroll, so this is
    for n <= 6. No square root is taken, and n = 1 is one reciprocal.
    """
    factor: list[list[Array]] = []
    for i in range(m.shape[-1]):
        row: list[Array] = []  # L_ij D_jj
        for j in range(i):
            entry = m[..., i, j]
            for k in range(j):
                entry = entry - row[k] * factor[j][k]
            row.append(entry)
        unit = [entry * factor[j][j] for j, entry in enumerate(row)]
        pivot = m[..., i, i]
        for entry, lower in zip(row, unit, strict=True):
            pivot = pivot - entry * lower
        factor.append([*unit, 1 / pivot])
    return factor


@jax.jit
def ldl_solve(factor: list[list[Array]], x: Array) -> Array:
    """Solution (..., n) of L D Lᵀ y = x for a factor made by `ldl`."""
    n = len(factor)
    y: list[Array] = []
    for i in range(n):
        entry = x[..., i]
        for k in range(i):
            entry = entry - factor[i][k] * y[k]
        y.append(entry)
    for i in reversed(range(n)):
        entry = y[i] * factor[i][i]
        for k in range(i + 1, n):
            entry = entry - factor[k][i] * y[k]
        y[i] = entry
    return stack(*y)


@jax.jit
def diagonal(d: Array) -> Array:
    """Diagonal matrix (..., n, n) of a vector (..., n)."""
    return d[..., None] * np.eye(d.shape[-1], dtype=d.dtype)


@jax.jit
def symmetric(m: Array) -> Array:
    """The symmetric matrix with the upper triangle of m (..., n, n); the lower one is never read."""
    n = m.shape[-1]
    return rows(*(stack(*(m[..., min(i, j), max(i, j)] for j in range(n))) for i in range(n)))
