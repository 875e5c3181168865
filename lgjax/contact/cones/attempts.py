"""Attempts at impulses where the sweeps of `solver.py` stall, by two methods that take turns.

Read first: `interior.py` and `newton.py`. They complement each other: the interior-point method solves boxes
that stick on more corners than they need; Newton's method, robots with more contacts than joints.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact.cones.interior import interior_steps
from lgjax.contact.cones.law import ConeProblem, natural_map
from lgjax.contact.cones.newton import newton_steps
from lgjax.numerics.loops import iterate_while

Array = jax.Array

COUPLING = 1.0, 0.0  # of interior points, in attempts 0 and 2
DAMPING = (1e-1, 1e-7), (1e-4, 1e-4)  # of Newton's first and last steps, in attempts 1 and 3, and in later ones
STEPS, EARLY_STEPS = 80, 30  # at most, in an attempt, and in the early one
EARLY_BETTER = 0.7
STALL_STEPS = 4  # an attempt within the limit ends if so many steps do not halve what is left
BETTER = 0.1  # impulses are taken where their violation of the law is below this fraction of the old one


class _Trial(NamedTuple):
    """State of an attempt: a point of the method, the best impulses so far with their `_violation`, the steps done, and
    the one that last halved the violation.
    """

    point: Any
    best: Array
    least: Array
    largest: Array
    step: Array
    halved: Array


def early_attempt(
    p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, limit: Array, again: Array
) -> Array:
    """As `attempt`, by interior points with the factor of G; it ends also where it stalls within `limit` () m/s."""
    return _best(
        p,
        stiffness,
        x,
        going,
        close,
        limit,
        EARLY_STEPS,
        EARLY_BETTER,
        *interior_steps(p, jnp.where(again, 0.0, jnp.ones_like(close))),
    )


def attempt(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, number: Array) -> Array:
    """Impulses (n,) that an attempt finds where these are much better, otherwise x.

    Where `going` () is true it takes steps until the law holds within `close` () m/s. stiffness (n,): the inverse of
    `step_of_rows`. number (): how many attempts there were before; it chooses the method. Interior points, which start
    from the same point always, are attempts 0 and 2.
    """
    number, p = jnp.asarray(number, jnp.int32), p._replace(factor=None)
    inside = (number == 0) | (number == 2)
    choice = lambda values: jnp.asarray(values, x.dtype)[number // 2 % 2]
    by = lambda going: partial(_best, p, stiffness, x, going, close, jnp.zeros_like(close), STEPS, BETTER)
    interior = lambda: by(going & inside)(*interior_steps(p, choice(COUPLING)))
    newton = lambda: by(going & ~inside)(*newton_steps(p, x, choice(DAMPING), STEPS))
    return jax.lax.cond(inside, interior, newton)


def _best(
    p: ConeProblem,
    stiffness,
    x,
    going,
    close,
    limit,
    steps: int,
    better_part: float,
    start: Any,
    step: Callable,
    impulses: Callable,
) -> Array:
    """The best impulses of a method, where they are better enough than x."""

    def violation(x):
        return _violation(natural_map(p, x), x, stiffness)

    def move(s: _Trial) -> _Trial:
        point = step(s.point, s.step)
        found = impulses(point)
        size, largest = violation(found)
        better = wanted(s) & (size < s.least)
        halved = jnp.where(better & (size < 0.25 * s.least), s.step, s.halved)
        choose = partial(jnp.where, better)
        return _Trial(
            point, choose(found, s.best), choose(size, s.least), choose(largest, s.largest), s.step + 1, halved
        )

    def wanted(s: _Trial) -> Array:
        stalls = (s.largest <= limit) & (s.step > s.halved + STALL_STEPS)
        return (s.step < steps) & going & (s.largest > close) & ~stalls

    size, largest = violation(x)
    none = jnp.zeros((), jnp.int32)
    found = iterate_while(wanted, move, _Trial(start, x, size, largest, none, none))
    return jnp.where(found.least < better_part**2 * size, found.best, x)


def _violation(image: Array, point: Array, stiffness: Array) -> tuple[Array, Array]:
    """Squared norm of a change in the metric of `solver._change`, and its largest entry as a velocity."""
    change = jnp.abs(image - point)
    return jnp.sum(change * change * stiffness), jnp.max(change * stiffness)
