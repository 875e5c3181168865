"""Riccati's recursion of a linear-quadratic problem with gaps: one step after the other, or by an associative scan.

    x' = A x + B u + gap,   cost  Σ lx x + lu u + (x lxx x + 2 u lux x + u luu u) / 2  + the same of the last state

Batches come last: every array may have axes behind those that are named, and `jax.vmap` puts its axis there, so that a
CPU works on systems side by side in registers whatever the sizes of the matrices.
Source: [mayne1966], [tassa2014] for boxes; [sarkka2023] for the scan.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from lgjax.execution._jax import call_apart

Array = jax.Array

BOX_SWEEPS = 8
# Beyond these sizes a library is faster: of the longest sum of a product and of matrices to solve with, and of the
# longest sum of a product with a vector.
WRITTEN_OUT, WRITTEN_OUT_OF_VECTORS = 24, 48


class Expansion(NamedTuple):
    """Dynamics x' = A x + B u + gap to first and cost to second order in tangents x and changes u of the controls.

    A and B are None where they are constant; functions are given them apart then, as `matrices`.
    """

    A: Any
    B: Any
    lx: Array
    lu: Array
    lxx: Array
    lux: Array
    luu: Array
    gap: Array


class Regulator(NamedTuple):
    """Changes `push` (controls,) and gains `feedback` (controls, states) of every step, and what is expected of them.

    slope, curve: of the cost along the changes of the controls. closing: what closing the gaps adds to it. gradient: of
    the whole cost with respect to the controls, zero where a bound holds its control.
    """

    push: Array
    feedback: Array
    slope: Array
    curve: Array
    closing: Array
    gradient: Array


# ---- small dense algebra with any axes behind
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


def transposed_times(a: Any, b: Array) -> Array:
    """a^T b; of a matrix a of NumPy, only with its entries that are not 0, those of a diagonal together."""
    if not isinstance(a, np.ndarray):
        return times(transposed(a), b)
    rows = []
    for start, stop, terms in _diagonals(a):
        parts = [b[k : k + stop - start] * jnp.asarray(factor, b.dtype) for k, factor in terms]
        zero = jnp.zeros((stop - start, *b.shape[1:]), b.dtype)
        rows.append(sum(parts[1:], parts[0]) if parts else zero)
    return jnp.concatenate(rows)


def _diagonals(a: np.ndarray) -> list:
    """(first column, last + 1, ((row in the first column, number), ...)) of columns with the same numbers, shifted."""
    runs: list = []
    for j, column in enumerate(a.T):
        terms = tuple((int(k), float(column[k])) for k in np.flatnonzero(column))
        if runs:
            start, stop, first = runs[-1]
            if tuple((k + j - start, number) for k, number in first) == terms:
                runs[-1] = (start, stop + 1, first)
                continue
        runs.append((j, j + 1, terms))
    return runs


def _apart(*arrays: Array) -> Any:
    """The arrays as they are, computed once: XLA would compute them again wherever they are used."""
    return jax.lax.optimization_barrier(arrays)


def eliminated(matrix: Array, right: Array) -> tuple[Array, Array, Array]:
    """Cholesky's factor of the matrix: its upper half U, U^-T right, and whether all pivots are positive.

    matrix (m, m, ...), right (m, k, ...). Where one is not, the numbers are NaN.
    """
    m = matrix.shape[0]
    rows, definite = jnp.concatenate([matrix, right], 1), True
    done = []
    for j in range(m):
        pivot = rows[0, j]
        definite = (pivot > 0) & definite
        done.append(rows[0] / jnp.sqrt(pivot))
        (row,) = _apart(done[-1])
        rows = rows[1:] - row[j + 1 : m, None] * row[None]
    (found,) = _apart(jnp.stack(done))
    return found[:, :m], found[:, m:], jnp.asarray(definite)


def back_substituted(upper: Array, right: Array) -> Array:
    """U^-1 right."""
    m = upper.shape[0]
    out: list = [None] * m
    for j in reversed(range(m)):
        (row,) = _apart(right[-1] / upper[j, j])
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


# ---- step by step
def backward(
    expansion: Expansion,
    last: Any,
    below: Array,
    above: Array,
    regularization: Array,
    boxed: bool,
    matrices: Any = None,
) -> Any:
    """The regulator; arrays (steps, ...). below, above: (steps, controls), how far the controls may change.

    boxed: whether there are bounds at all. regularization: a cost of squared changes of the controls, half of it each.
    Where the Hessian of a step is not positive definite, all is NaN.
    """
    run = batch_last(lambda *args: _recursion(*args, boxed=boxed, matrices=matrices))
    return run(expansion, last, below, above, regularization)


def _recursion(e: Expansion, last: Any, below, above, regularization, boxed: bool, matrices: Any) -> Regulator:
    def step(value: Value, inputs: tuple[Expansion, Array, Array]) -> tuple[Value, Any]:
        return one_step(value, *inputs, regularization, boxed, matrices)

    value, (k, gain, gradient) = jax.lax.scan(step, first_value(last), (e, below, above), reverse=True)
    return Regulator(k, gain, value.slope, value.curve, value.closing, gradient)


class Value(NamedTuple):
    """The cost to go about a state: gradient, Hessian, adjoint, and slope, curve and closing of the steps ahead."""

    x: Array
    xx: Array
    adjoint: Array
    slope: Array
    curve: Array
    closing: Array


def first_value(last: tuple[Array, Array]) -> Value:
    """From gradient and Hessian of what the last state costs."""
    zero = jnp.zeros_like(last[0][0])
    return Value(*last, last[0], zero, zero, zero)


def one_step(
    value: Value, e: Expansion, below: Array, above: Array, regularization: Array, boxed: bool, matrices: Any = None
) -> tuple[Value, tuple[Array, Array, Array]]:
    """The value one step earlier, and push, feedback and gradient of the step."""
    n, m = len(e.lx), len(e.lu)
    identity = np.eye(m, dtype=e.lx.dtype).reshape(m, m, *[1] * (e.lx.ndim - 1))
    both = jnp.concatenate([e.A, e.B], 1) if matrices is None else np.concatenate(matrices, 1)
    across = times(value.xx, e.gap)
    closing = value.closing + jnp.sum(e.gap * (value.x + across / 2), 0)
    vx = value.x + across
    (carried,) = _apart(transposed(transposed_times(both, value.xx)))  # which is symmetric
    vectors = transposed_times(both, jnp.stack([vx, value.adjoint], 1))
    (hessian,) = _apart(transposed_times(both, carried))
    qx, qu = e.lx + vectors[:n, 0], e.lu + vectors[n:, 0]
    qxx, qux, quu = e.lxx + hessian[:n, :n], e.lux + hessian[n:, :n], e.luu + hessian[n:, n:]
    quu = quu + regularization * identity  # as if it were a cost of changes
    if boxed:
        k, gain = _apart(*_boxed(quu, qu, qux, below, above))
        moved, turned = times(quu, k), times(quu, gain)
        vx = qx + times(transposed(gain), moved + qu) + times(transposed(qux), k)
        cross = times(transposed(gain), turned / 2 + qux)
        vxx, curve = qxx + cross + transposed(cross), jnp.sum(k * moved, 0)
    else:
        found, half = _apart(*solved(quu, jnp.concatenate([qux, qu[:, None]], 1)))
        gain, k = -found[:, :n], -found[:, n]
        less = call_apart(lambda a, b: times(transposed(a), b))(half[:, :n], half)
        vx, vxx, curve = qx - less[:, n], qxx - less[:, :n], jnp.sum(half[:, n] ** 2, 0)
    gradient = e.lu + vectors[n:, 1]
    held = ((below >= 0) & (gradient > 0)) | ((above <= 0) & (gradient < 0))
    new = Value(
        vx, (vxx + transposed(vxx)) / 2, e.lx + vectors[:n, 1], value.slope + jnp.sum(k * qu, 0),
        value.curve + curve, closing,
    )  # fmt: skip
    return Value(*_apart(*new)), (k, gain, jnp.where(held, 0, gradient))


def _boxed(quu: Array, qu: Array, qux: Array, below: Array, above: Array) -> tuple[Array, Array]:
    """The change of controls within its box that minimises the quadratic, and the gains of those that are free.

    Projected Newton sweeps; NaN where quu is not positive definite. Source: [tassa2014] section III.
    """
    m = len(qu)
    definite = eliminated(quu, qux)[2]
    identity = np.eye(m, dtype=quu.dtype).reshape(m, m, *[1] * (quu.ndim - 2))

    def held(k: Array) -> Array:
        slope = qu + times(quu, k)
        return ((k <= below) & (slope > 0)) | ((k >= above) & (slope < 0))

    def solve(fixed: Array, right: Array) -> Array:
        free = ~fixed
        inner = jnp.where(free[:, None] & free[None, :], quu, identity)
        return solved(inner, jnp.where(free[:, None], right, 0))[0]

    def sweep(_: Any, k: Array) -> Array:
        fixed = held(k)
        right = -qu - times(quu, jnp.where(fixed, k, 0))
        return jnp.clip(jnp.where(fixed, k, solve(fixed, right[:, None])[:, 0]), below, above)

    k = jax.lax.fori_loop(0, BOX_SWEEPS, sweep, jnp.clip(jnp.zeros_like(qu), below, above))
    gain = solve(held(k), -qux)
    return jnp.where(definite, k, jnp.nan), jnp.where(definite, gain, jnp.nan)


def linear_motion(A: Array, B: Array, gap: Array, regulator: Regulator) -> tuple[Array, Array]:
    """Tangents (steps + 1, states) and changes (steps, controls) under the regulator, from the start's zero."""
    return batch_last(_linear_motion)(A, B, gap, regulator.push, regulator.feedback)


def _linear_motion(A: Array, B: Array, gap: Array, push: Array, feedback: Array) -> tuple[Array, Array]:
    def step(x: Array, inputs: Any) -> tuple[Array, Any]:
        A, B, gap, k, gain = inputs
        u = k + times(gain, x)
        return times(A, x) + times(B, u) + gap, (x, u)

    end, (x, u) = jax.lax.scan(step, jnp.zeros_like(gap[0]), (A, B, gap, push, feedback))
    return jnp.concatenate([x, end[None]]), u
