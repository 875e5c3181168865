"""Newton's method for Coulomb's law: it differentiates the natural map and finds impulses to round-off.

Read first: `cone_law.py`. Where contacts share a load, the matrix of Newton's method is singular. So a fraction of the
mean diagonal of G is added to its diagonal (Levenberg damping). Attempts take turns: in one the fraction falls from
step to step, so that the first steps are short and safe and the last ones nearly Newton's; in the next it stays the
same.

Sources: Alart and Curnier, A mixed formulation for frictional contact problems prone to Newton like solution methods
(1991); Levenberg (1944) for the damping.
"""

from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cone_law import ConeProblem, natural_map, project, step_of_rows, times
from lgjax.contact.responses import total
from lgjax.execution._jax import call_apart
from lgjax.numerics.loops import iterate_while

Array = jax.Array

NEWTON_STEPS = 80  # at most
# Of the first and the last step, in units of the mean diagonal of G. Attempts take one pair and the other in turn.
DAMPING = ((1e-1, 1e-7), (1e-4, 1e-4))
BETTER = 0.1  # Newton's result is taken where its violation of the law is below this fraction of the old one
GROUP = 8  # systems that are solved together
SMALL = 24  # up to this number of rows, linear systems are solved here, without calling a library


def newton(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, attempt: Array) -> Array:
    """Impulses (n, B) after steps of Newton's method where these are much better, otherwise x.

    Only systems that are `going` (B,) take steps, each until the law holds within `close` (B,) m/s. They are few of a
    batch, so they are gathered from it, a group at a time. stiffness (n, B): the inverse of `step_of_rows`. attempt ():
    chooses a pair of `DAMPING`.
    """
    size = x.shape[-1]
    if size <= GROUP:
        return _newton(p, stiffness, x, going, close, attempt)
    order = jnp.argsort(~going, stable=True)
    count = jnp.sum(going, dtype=jnp.int32)

    def group(state):
        first, x = state
        start = jnp.minimum(first, size - GROUP)
        at = jax.lax.dynamic_slice_in_dim(order, start, GROUP)
        own = going[at] & (start + jnp.arange(GROUP, dtype=jnp.int32) >= first)
        problem, stiff, old = jax.tree.map(lambda y: y[..., at], (p, stiffness, x))
        return first + GROUP, x.at[..., at].set(_newton(problem, stiff, old, own, close[at], attempt))

    return iterate_while(lambda s: s[0] < count, group, (jnp.zeros((), jnp.int32), x))[1]


class _Trial(NamedTuple):
    """State of Newton's method: the point, the best one so far with its `_violation`, and the steps done."""

    point: Array
    best: Array
    least: Array
    largest: Array
    step: Array


def _newton(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, attempt: Array) -> Array:
    """`newton` without groups: all systems at once."""

    def violation(x):
        return call_apart(_violation)(natural_map(p, x), x, stiffness)

    def move(s: _Trial) -> _Trial:
        damping = first * (last / first) ** (s.step.astype(x.dtype) / (NEWTON_STEPS - 1))
        change = solve_linearized(p, s.point, s.point - natural_map(p, s.point), damping=damping * mean)
        point = s.point - change
        size, largest = violation(point)
        better = going & (s.largest > close) & (size < s.least)
        choose = partial(jnp.where, better)
        return _Trial(point, choose(point, s.best), choose(size, s.least), choose(largest, s.largest), s.step + 1)

    first, last = jnp.asarray(DAMPING, x.dtype)[attempt % len(DAMPING)]
    mean = total(p.G[i, i] for i in range(len(p.G))) / len(p.G)
    wanted = lambda s: (s.step < NEWTON_STEPS) & jnp.any(going & (s.largest > close))
    size, largest = violation(x)
    found = iterate_while(wanted, move, _Trial(x, x, size, largest, jnp.zeros((), jnp.int32)))
    return jnp.where(found.least < BETTER**2 * size, found.best, x)


def _violation(image: Array, point: Array, stiffness: Array) -> tuple[Array, Array]:
    """Squared norm of a change in the metric of `cone_solver._change`, and its largest entry as a velocity."""
    change = jnp.abs(image - point)
    return total(change * change * stiffness), reduce(jnp.maximum, change * stiffness)


def solve_linearized(p: ConeProblem, x: Array, y: Array, small: int = SMALL, damping: Any = 0.0) -> Array:
    """The dx (n, B) with (1 - dF/dx) dx = y for the natural map F at x; a library solves for more than `small` rows.

    damping, () or (B,), is added to the diagonal of G.
    """
    k, n, steps = len(p.friction), len(p.G), step_of_rows(p.G, len(p.friction))
    z = x - steps * (times(p.G, x) + p.b)
    unit = jnp.eye(n, dtype=x.dtype)[..., None]
    inner = unit - steps[:, None] * (p.G + damping * unit)  # dz/dx
    # A row of a contact depends on the three z of this contact: one of them at a time, in all contacts at once.
    move = lambda c: jax.jvp(partial(project, p), (z,), (_every_third(c, k, z),))[1]
    part = lambda c: inner[np.asarray([3 * (i // 3) + c if i < 3 * k else i for i in range(n)], int)]
    slope = total(move(c)[:, None] * part(c) for c in range(3 if k else 1))
    if n <= small:
        return _eliminate(jnp.swapaxes(unit - slope, 0, 1), y)
    return jnp.linalg.solve(jnp.moveaxis(unit - slope, 2, 0), y.T[..., None])[..., 0].T


def _every_third(c: int, k: int, like: Array) -> Array:
    """Ones at row c of each of k contacts and, if c is 0, at all further rows; zeros elsewhere."""
    chosen = [i % 3 == c if i < 3 * k else c == 0 for i in range(len(like))]
    return jnp.broadcast_to(jnp.asarray(chosen, like.dtype)[:, None], like.shape)


def _eliminate(columns: Array, y: Array) -> Array:
    """The x (n, B) with sum_j columns[j] x_j = y, columns (n, n, B), by Gauss-Jordan elimination with row pivoting.

    A loop of elementwise operations: unlike a library call, XLA can compile it together with the code around it.
    """
    n = len(y)
    table = jnp.concatenate([columns, y[None]])  # (n + 1, n, B)
    places = jnp.arange(n, dtype=jnp.int32)[:, None]

    def turn(j, carry):
        """Row `best` of the remaining rows becomes the row of x_j."""
        table, row_of = carry
        own = jax.lax.dynamic_slice_in_dim(table, j, 1)[0]
        size = jnp.where(row_of < 0, jnp.abs(own), -jnp.ones_like(own))
        largest = reduce(jnp.maximum, size)
        best = reduce(jnp.minimum, jnp.where(size == largest, places, n))  # NaN: none
        here = places == jax.lax.optimization_barrier(best)

        def more(i, found):
            row = jax.lax.dynamic_slice_in_dim(table, i, 1, 1)[:, 0]
            return jnp.where(best == i, row, found)

        pivot = jax.lax.fori_loop(0, n, more, jnp.zeros_like(table[:, 0]))  # (n + 1, B)
        value = jax.lax.dynamic_slice_in_dim(pivot, j, 1)
        # Without the barrier, each entry of the table would compute it again.
        pivot = jax.lax.optimization_barrier(pivot / jnp.where(value == 0, jnp.ones_like(value), value))
        others = table - jnp.where(here, jnp.zeros_like(own), own) * pivot[:, None]
        return jnp.where(here, pivot[:, None], others), jnp.where(here, j, row_of)

    start = table, jnp.full(y.shape, -1, jnp.int32)
    table, row_of = jax.lax.fori_loop(0, n, turn, start)
    found = lambda j: total(jnp.where(row_of == j, table[n], jnp.zeros_like(y)))
    return jax.lax.map(found, jnp.arange(n, dtype=jnp.int32))
