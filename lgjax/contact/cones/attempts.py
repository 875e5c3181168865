"""Attempts at impulses where the sweeps of `solver.py` stall, by two methods that take turns.

Read first: `interior.py` and `newton.py`. They complement each other: the interior-point method solves boxes
that stick on more corners than they need; Newton's method, robots with more contacts than joints.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact.cones.algebra import largest, total
from lgjax.contact.cones.interior import interior_steps
from lgjax.contact.cones.law import ConeProblem, natural_map
from lgjax.contact.cones.newton import newton_steps
from lgjax.execution._jax import call_apart
from lgjax.numerics.loops import iterate_while

Array = jax.Array

COUPLING = 1.0, 0.0  # of interior points, in attempts 0 and 2
DAMPING = (1e-1, 1e-7), (1e-4, 1e-4)  # of Newton's first and last steps, in attempts 1 and 3, and in later ones
STEPS = 80  # at most, in an attempt
BETTER = 0.1  # impulses are taken where their violation of the law is below this fraction of the old one
GROUP = 8  # systems that are solved together


def attempt(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, number: Array) -> Array:
    """Impulses (n, B) that an attempt finds where these are much better, otherwise x.

    Only systems that are `going` (B,) take steps, each until the law holds within `close` (B,) m/s. They are few of a
    batch, so they are gathered from it, a group at a time. stiffness (n, B): the inverse of `step_of_rows`.
    number (): how many attempts there were before; it chooses the method.
    """
    size = x.shape[-1]
    if size <= GROUP:
        return _improved(p, stiffness, x, going, close, number)
    order = jnp.argsort(~going, stable=True)
    count = jnp.sum(going, dtype=jnp.int32)

    def group(state):
        first, x = state
        start = jnp.minimum(first, size - GROUP)
        at = jax.lax.dynamic_slice_in_dim(order, start, GROUP)
        own = going[at] & (start + jnp.arange(GROUP, dtype=jnp.int32) >= first)
        problem, stiff, old = jax.tree.map(lambda y: y[..., at], (p, stiffness, x))
        return first + GROUP, x.at[..., at].set(_improved(problem, stiff, old, own, close[at], number))

    return iterate_while(lambda s: s[0] < count, group, (jnp.zeros((), jnp.int32), x))[1]


class _Trial(NamedTuple):
    """State of an attempt: a point of the method, the best impulses so far with their `_violation`, the steps done."""

    point: Any
    best: Array
    least: Array
    largest: Array
    step: Array


def _improved(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, number: Array) -> Array:
    """`attempt` without groups: interior points, which start from the same point always, are attempts 0 and 2."""
    number = jnp.asarray(number, jnp.int32)
    inside = (number == 0) | (number == 2)
    choice = lambda values: jnp.asarray(values, x.dtype)[number // 2 % 2]
    by = lambda going: partial(_best, p, stiffness, x, going, close)
    interior = lambda: by(going & inside)(*interior_steps(p, choice(COUPLING)))
    newton = lambda: by(going & ~inside)(*newton_steps(p, x, choice(DAMPING), STEPS))
    return jax.lax.cond(inside, interior, newton)


def _best(p: ConeProblem, stiffness, x, going, close, start: Any, step: Callable, impulses: Callable) -> Array:
    """The best impulses of a method, where they are better enough than x."""

    def violation(x):
        return call_apart(_violation)(natural_map(p, x), x, stiffness)

    def move(s: _Trial) -> _Trial:
        point = step(s.point, s.step)
        found = impulses(point)
        size, largest = violation(found)
        better = going & (s.largest > close) & (size < s.least)
        choose = partial(jnp.where, better)
        return _Trial(point, choose(found, s.best), choose(size, s.least), choose(largest, s.largest), s.step + 1)

    wanted = lambda s: (s.step < STEPS) & jnp.any(going & (s.largest > close))
    size, largest = violation(x)
    found = iterate_while(wanted, move, _Trial(start, x, size, largest, jnp.zeros((), jnp.int32)))
    return jnp.where(found.least < BETTER**2 * size, found.best, x)


def _violation(image: Array, point: Array, stiffness: Array) -> tuple[Array, Array]:
    """Squared norm of a change in the metric of `solver._change`, and its largest entry as a velocity."""
    change = jnp.abs(image - point)
    return total(change * change * stiffness), largest(change * stiffness)
