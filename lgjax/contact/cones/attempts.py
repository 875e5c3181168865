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

COUPLING = 1.0, 0.0  # of interior points, in attempts 0 and 2, and in the two early ones
DAMPING = (1e-1, 1e-7), (1e-4, 1e-4)  # of Newton's first and last steps, in attempts 1 and 3, and in later ones


class _Rule(NamedTuple):
    """When an attempt ends: after `steps` steps, or, within the limit, after `stall` steps that do not halve the
    violation of the law. Impulses are taken where their violation is below the fraction `better` of the old one.
    """

    steps: int
    stall: int
    better: float


LATE, EARLY = _Rule(80, 80, 0.1), _Rule(30, 4, 0.7)


class _Trial(NamedTuple):
    """State of an attempt: a point of the method, the best impulses so far with their `_violation`, the number of steps
    done, and the step that last halved the violation.
    """

    point: Any
    best: Array
    least: Array
    largest: Array
    step: Array
    halved: Array


def attempt(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, number: Array) -> Array:
    """Impulses (n,) that an attempt finds where these are much better, otherwise x.

    Where `going` () is true it takes steps until the law holds within `close` () m/s. stiffness (n,): the inverse of
    `step_of_rows`. number (): how many attempts there were before; it chooses the method. Interior points, which start
    from the same point always, are attempts 0 and 2.
    """
    number, p = jnp.asarray(number, jnp.int32), p._replace(factor=None)
    inside = (number == 0) | (number == 2)
    choice = lambda values: jnp.asarray(values, x.dtype)[number // 2 % 2]
    by = lambda going: partial(_best, p, stiffness, x, going, (close, close), LATE)
    interior = lambda: by(going & inside)(*interior_steps(p, choice(COUPLING)))
    newton = lambda: by(going & ~inside)(*newton_steps(p, x, choice(DAMPING), LATE.steps))
    return jax.lax.cond(inside, interior, newton)


def early_attempt(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, limit, again) -> Array:
    """As `attempt`, but only by interior points with the factor of G; it also ends where it stalls within limit ().

    again (): whether it is the second time.
    """
    coupling = jnp.where(again, *(jnp.asarray(value, x.dtype) for value in COUPLING[::-1]))
    return _best(p, stiffness, x, going, (close, limit), EARLY, *interior_steps(p, coupling))


def _best(
    p: ConeProblem, stiffness, x, going, ends: tuple[Array, Array], rule: _Rule, start: Any, step: Callable, impulses
) -> Array:
    """The best impulses of a method, where they are better enough than x. ends: `close` and `limit`."""
    close, limit = ends

    def violation(x):
        return _violation(natural_map(p, x), x, stiffness)

    def move(s: _Trial) -> _Trial:
        point = step(s.point, s.step)
        found = impulses(point)
        size, largest = violation(found)
        choose = partial(jnp.where, wanted(s) & (size < s.least))
        halved = choose(jnp.where(size < 0.25 * s.least, s.step, s.halved), s.halved)
        known = choose(found, s.best), choose(size, s.least), choose(largest, s.largest)
        return _Trial(point, *known, s.step + 1, halved)

    def wanted(s: _Trial) -> Array:
        stalls = (s.largest <= limit) & (s.step > s.halved + rule.stall)
        return (s.step < rule.steps) & going & (s.largest > close) & ~stalls

    size, largest = violation(x)
    none = jnp.zeros((), jnp.int32)
    found = iterate_while(wanted, move, _Trial(start, x, size, largest, none, none))
    return jnp.where(found.least < rule.better**2 * size, found.best, x)


def _violation(image: Array, point: Array, stiffness: Array) -> tuple[Array, Array]:
    """Squared norm of a change in the metric of `solver._change`, and its largest entry as a velocity."""
    change = jnp.abs(image - point)
    return jnp.sum(change * change * stiffness), jnp.max(change * stiffness)
