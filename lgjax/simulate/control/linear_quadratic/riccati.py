"""Riccati's recursion of a linear-quadratic problem with gaps, one step after the other.

    x' = A x + B u + gap,   cost  Σ lx x + lu u + (x lxx x + 2 u lux x + u luu u) / 2  + the same of the last state

Each step is one kernel.
Source: [mayne1966], [tassa2014] for boxes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution import batched
from lgjax.numerics.definite import definite, solved
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.rank import product
from lgjax.simulate.control.linear_quadratic.parts import Part, block, columns_of, cut, spread, together
from lgjax.simulate.control.linear_quadratic.sparse import (
    Columns,
    Matrix,
    after,
    before,
    before_both,
    dense,
    moved,
)

Array = jax.Array

BOX_ITERATIONS, BOX_LENGTHS = 100, (1.0, 0.5, 0.2)


class Expansion(NamedTuple):
    """Dynamics x' = A x + B u + gap to first and cost to second order in tangents x and changes u of the controls.

    A and B are arrays or `Sparse`, B also `Columns` of A. Parts of the Hessian are arrays, or lxx and luu `Diagonal`;
    one that is None is zero. The whole Hessian of the cost also includes J^T J of every Gauss-Newton factor J
    (k, states + controls).
    """

    A: Any
    B: Any
    lx: Array
    lu: Array
    lxx: Any
    lux: Any
    luu: Any
    gap: Array
    factors: tuple[Array, ...] = ()

    def of(self, part: Part) -> "Expansion":
        """The expansion of a part of the problem."""
        x, u = part
        among = lambda matrix, rows, columns: None if matrix is None else block(matrix, rows, columns)
        both = (*x, *(len(self.lx) + k for k in u))
        B = columns_of(self.B, part) if isinstance(self.B, Columns) else block(self.B, x, u)
        return Expansion(
            block(self.A, x, x), B, cut(self.lx, 0, x), cut(self.lu, 0, u), among(self.lxx, x, x),
            among(self.lux, u, x), among(self.luu, u, u), cut(self.gap, 0, x),
            tuple(cut(cut(factor, 0, u), 1, both) for factor in self.factors),
        )  # fmt: skip


def _whole(cost: Any, factors: Sequence[Array], rows: slice, columns: slice) -> Any:
    """A part of the Hessian, from what is kept of it and from the factors."""
    products = [product(factor[:, rows].T, factor[:, columns]) for factor in factors]
    return sum(products, 0 if cost is None else dense(cost))


class Regulator(NamedTuple):
    """Changes `feedforward` (controls,) and gains `feedback` (controls, states) of every step, and what to expect.

    slope, curvature: of the cost along the changes of the controls. gap_cost: what closing the gaps adds to it.
    gradient: of the whole cost with respect to the controls, zero where a bound holds its control.
    """

    feedforward: Array
    feedback: Array
    slope: Array
    curvature: Array
    gap_cost: Array
    gradient: Array


def backward(
    expansion: Expansion,
    last: Any,
    below: Array,
    above: Array,
    regularization: Array,
    boxed: bool,
    parts: Sequence[Part] = (),
) -> Any:
    """The regulator; arrays (steps, ...). below, above: (steps, controls), how far the controls may change.

    boxed: whether there are bounds at all. regularization: a cost of squared changes of the controls, half of it each.
    parts: those that nothing couples, all of them or none. Where the Hessian of a step is not positive definite,
    feedforward, feedback, slope and curvature of its part are NaN, at that step and all earlier ones.
    """
    step: Callable[..., Any] = batched(partial(_step, boxed=boxed, parts=parts))
    before = lambda values, inputs: step(values, *inputs, regularization)
    values, found = jax.lax.scan(before, _first_values(last, parts), (expansion, below, above), reverse=True)
    return _regulator(values, found)


class Value(NamedTuple):
    """The cost to go about a state: gradient, Hessian, adjoint, and the sums of the steps ahead, see `Regulator`."""

    x: Array
    xx: Array
    adjoint: Array
    slope: Array
    curvature: Array
    gap_cost: Array


Values = tuple[Value, ...]  # of the parts of a problem


def _first_values(last: tuple[Array, Array], parts: Sequence[Part]) -> Values:
    """From gradient and Hessian of what the last state costs."""
    zero = jnp.zeros_like(last[0][0])
    of = lambda x, xx: Value(x, xx, x, zero, zero, zero)
    return tuple(of(cut(last[0], 0, x), block(last[1], x, x)) for x, _ in parts) or (of(*last),)


def _step(
    values: Values,
    e: Expansion,
    below: Array,
    above: Array,
    regularization: Array,
    boxed: bool,
    parts: Sequence[Part] = (),
) -> tuple[Values, tuple[Array, Array, Array]]:
    """The values one step earlier, and feedforward, feedback and gradient of the step."""
    if not parts:
        value, found = _step_of_part(values[0], e, below, above, regularization, boxed)
        return (value,), found
    own = lambda x, part: cut(x, 0, part.controls)
    done = [
        _step_of_part(value, e.of(part), own(below, part), own(above, part), regularization, boxed)
        for value, part in zip(values, parts, strict=True)
    ]
    new, found = zip(*done, strict=True)
    feedforward, feedback, gradient = zip(*found, strict=True)
    feedback = [spread(gain, 1, part.states, len(e.lx)) for gain, part in zip(feedback, parts, strict=True)]
    rows = lambda pieces: together(pieces, [part.controls for part in parts])
    return new, (rows(feedforward), rows(feedback), rows(gradient))


def _regulator(values: Values, found: tuple[Array, Array, Array]) -> Regulator:
    """From the values of the first state, and feedforward, feedback and gradient of all steps."""
    feedforward, feedback, gradient = found
    total = lambda numbers: jnp.sum(jnp.stack(numbers), 0)
    slope, curvature = total([value.slope for value in values]), total([value.curvature for value in values])
    return Regulator(feedforward, feedback, slope, curvature, total([value.gap_cost for value in values]), gradient)


def _step_of_part(
    value: Value, e: Expansion, below: Array, above: Array, regularization: Array, boxed: bool
) -> tuple[Value, tuple[Array, Array, Array]]:
    x = slice(len(e.lx))
    across, by_x = product(value.xx, e.gap), after(value.xx, e.A)
    gap_cost = value.gap_cost + jnp.sum(e.gap * (value.x + across / 2))
    gradients = jnp.stack([value.x + across, value.adjoint], 1)
    of_x, of_u = before_both(e.A, e.B, gradients)
    qx, qu = e.lx + of_x[:, 0], e.lu + of_u[:, 0]
    xx, qux, quu = _hessian(value.xx, by_x, e, regularization)
    if boxed:
        k, gain = _boxed(quu, qu, qux, below, above)
        moved, turned = product(quu, k), product(quu, gain)
        vx = qx + product(gain.T, moved + qu) + product(qux.T, k)
        cross = product(gain.T, turned / 2 + qux)
        vxx = _whole(e.lxx, e.factors, x, x) + _symmetric(xx) + cross + cross.T
        curvature = jnp.sum(k * moved)
    else:
        (gain, by_x), (k, by_one) = solved(quu, qux, qu[:, None])
        k, gain = -k[:, 0], -gain
        vxx = _whole(e.lxx, e.factors, x, x) + _symmetric(xx - product(by_x.T, by_x))
        vx = qx - product(by_x.T, by_one[:, 0])
        curvature = jnp.sum(by_one * by_one)
    gradient = e.lu + of_u[:, 1]
    held = ((below >= 0) & (gradient > 0)) | ((above <= 0) & (gradient < 0))
    slope = value.slope + jnp.sum(k * qu)
    new = Value(vx, vxx, e.lx + of_x[:, 1], slope, value.curvature + curvature, gap_cost)
    return new, (k, gain, jnp.where(held, 0, gradient))


def _symmetric(a: Array) -> Array:
    return (a + a.T) / 2


def _hessian(vxx: Array, by_x: Array, e: Expansion, regularization: Array) -> tuple[Array, Array, Array]:
    """A^T vxx A, without this step's lxx, and the whole Hessian in controls and states, and in controls.

    by_x: vxx A.
    regularization: as if it were a cost of changes of the controls.
    """
    x, u = slice(len(e.lx)), slice(len(e.lx), None)
    xx = before(e.A, by_x)
    if isinstance(e.B, Columns):
        ux = e.B.of(xx, 0)
        uu = e.B.of(ux, 1)
    else:
        ux, uu = before(e.B, by_x), before(e.B, after(vxx, e.B))
    qux, quu = _whole(e.lux, e.factors, u, x) + ux, _whole(e.luu, e.factors, u, u) + uu
    return xx, qux, quu + regularization * np.eye(len(e.lu), dtype=e.lx.dtype)


def _boxed(quu: Array, qu: Array, qux: Array, below: Array, above: Array) -> tuple[Array, Array]:
    """The change of controls within its box that minimizes the quadratic, and the gains of those that are free.

    NaN where quu is not positive definite. Source: [tassa2014] section III.
    """
    good, identity = definite(quu), np.eye(len(qu), dtype=quu.dtype)

    def solve(fixed: Array, right: Array) -> Array:
        free = ~fixed
        inner = jnp.where(free[:, None] & free[None, :], quu, identity)
        return solved(inner, jnp.where(free[:, None], right, 0))[0].x

    k = within_box(quu, qu, below, above, lambda fixed, right: solve(fixed, right[:, None])[:, 0])
    gain = solve(_held(k, qu + product(quu, k), below, above), -qux)
    return jnp.where(good, k, jnp.nan), jnp.where(good, gain, jnp.nan)


def _held(k: Array, gradient: Array, below: Array, above: Array) -> Array:
    """Which of the controls their bounds hold."""
    return ((k <= below) & (gradient > 0)) | ((k >= above) & (gradient < 0))


def within_box(quu: Array, qu: Array, below: Array, above: Array, solve: Callable[[Array, Array], Array]) -> Array:
    """The k within its box that minimizes k^T quu k / 2 + qu^T k.

    An iteration takes Newton's step of the controls that are not fixed at a bound, and projects it into the box. Where
    that does not lower the quadratic by a share of what the whole step would, it goes until the first control meets a
    bound, which is fixed there; and where none does, one is set free again that wants to leave its bound. So it ends.
    solve(fixed, right): the solution of quu x = right in the rows and columns that are not fixed, and zero in the
    others.
    Source: [tassa2014] section III for projections; [nocedal2006] section 16.5 for active sets.
    """

    def iteration(state: Any) -> Any:
        count, k, fixed, _ = state
        gradient = qu + product(quu, k)
        step = jnp.where(fixed, 0, solve(fixed, -gradient))
        gain = -jnp.sum(gradient * step) / 2
        best, least = k, jnp.zeros_like(gain)
        for length in BOX_LENGTHS:
            there = jnp.clip(k + length * step, below, above)
            value = jnp.sum((there - k) * (gradient + product(quu, there - k) / 2))
            best, least = jnp.where(value < least, there, best), jnp.minimum(value, least)
        good = least < -gain / 10
        bound = jnp.where(step > 0, above, below)
        room = jnp.where(step == 0, jnp.inf, (bound - k) / jnp.where(step == 0, 1, step))
        length = jnp.minimum(jnp.min(room), 1)
        met = (room <= length) & (length < 1)
        new = jnp.where(good, best, jnp.where(met, bound, jnp.clip(k + length * step, below, above)))
        gradient = qu + product(quu, new)
        held = _held(new, gradient, below, above)
        leaving = jnp.where(fixed & ~held, jnp.abs(gradient), 0)
        freed = fixed & ~((leaving > 0) & (leaving == jnp.max(leaving)))
        then = jnp.where(good, held, jnp.where(length < 1, fixed | met, freed))
        ended = jnp.all(new == k + step) & jnp.all(then == fixed)
        return count + 1, new, then, ~ended & jnp.isfinite(gain)

    k = jnp.clip(jnp.zeros_like(qu), below, above)
    fixed = _held(k, qu + product(quu, k), below, above)
    start = jnp.zeros((), jnp.int32), k, fixed, jnp.ones((), bool)
    return iterate_while(lambda state: (state[0] < BOX_ITERATIONS) & state[3], iteration, start)[1]


def linear_motion(A: Matrix, B: Matrix | Columns, gap: Array, regulator: Regulator) -> tuple[Array, Array]:
    """Tangents (steps + 1, states) and changes (steps, controls) under the regulator, from the start's zero."""

    @batched
    def step(x: Array, inputs: Any) -> tuple[Array, Any]:
        A, B, gap, k, gain = inputs
        u = k + product(gain, x)
        return moved(A, B, x, u) + gap, (x, u)

    steps = A, B, gap, regulator.feedforward, regulator.feedback
    end, (x, u) = jax.lax.scan(step, jnp.zeros_like(gap[0]), steps)
    return jnp.concatenate([x, end[None]]), u
