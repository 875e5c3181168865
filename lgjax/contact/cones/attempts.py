"""Attempts at impulses where the sweeps of `solver.py` stall, by two methods that take turns.

Read first: `interior.py` and `newton.py`. They complement each other: the interior-point method solves boxes
that stick on more corners than they need; Newton's method, robots with more contacts than joints.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact.cones.algebra import diagonal
from lgjax.contact.cones.block_steps import newton_change
from lgjax.contact.cones.block_steps import violation as violation_by_blocks
from lgjax.contact.cones.blocks import BlockMatrix
from lgjax.contact.cones.interior import interior_steps
from lgjax.contact.cones.law import ConeProblem, natural_map
from lgjax.contact.cones.newton import newton_steps
from lgjax.numerics.loops import iterate_while

Array = jax.Array

COUPLING = 1.0, 0.0  # of interior points, in attempts 0 and 2, and in the two early ones
DAMPING = (1e-1, 1e-7), (1e-4, 1e-4)  # of Newton's first and last steps, in attempts 1 and 3, and in later ones


class _Rule(NamedTuple):
    """When an attempt ends: after `steps` steps, or, within the limit, after `stall` steps that do not halve the
    violation of the law, else after `longest` ones, if given. Impulses are taken where their violation is below the
    fraction `better` of the old one.
    """

    steps: Any
    stall: Any
    better: float
    longest: Any = None


LATE, EARLY = _Rule(80, 80, 0.1), _Rule(30, 4, 0.7)
FACES, NEWTON = _Rule(40, 2, 0.7, 16), _Rule(12, 2, 0.7, 4)  # of the first attempts for faces
BRIEF = 5  # such attempts
WITHIN, NEAR = 0.02, 0.5  # parts of the limit where an attempt for faces is done, and where it is if it stalls


class _Trial(NamedTuple):
    """State of an attempt: a point of the method, the best impulses so far with their `_violation`, the number of steps
    done, and the step that last halved the violation; own: None, or what is left of that of the method's own points,
    which it then is.
    """

    point: Any
    best: Array
    least: Array
    largest: Array
    step: Array
    halved: Array
    own: Array | None


def attempt(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, number: Array) -> Array:
    """Impulses (n,) that an attempt finds where these are much better, otherwise x.

    Where `going` () is true it takes steps until the law holds within `close` () m/s. stiffness (n,): the inverse of
    `step_of_rows`. number (): how many attempts there were before; it chooses the method. Interior points, which start
    from the same point always, are attempts 0 and 2, and all attempts with a `BlockMatrix`.
    """
    number, p = jnp.asarray(number, jnp.int32), p._replace(factor=None)
    inside = (number == 0) | (number == 2)
    choice = lambda values, turn=number // 2 % 2: jnp.asarray(values, x.dtype)[turn]
    by = lambda going: partial(_best, p, stiffness, x, going, (close, close), LATE)
    if isinstance(p.G, BlockMatrix):
        return by(going)(*interior_steps(p, choice(COUPLING, number % 2)))
    interior = lambda: by(going & inside)(*interior_steps(p, choice(COUPLING)))
    newton = lambda: by(going & ~inside)(*newton_steps(p, x, choice(DAMPING), LATE.steps))
    return jax.lax.cond(inside, interior, newton)


def early_attempt(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, limit, again) -> Array:
    """`attempt` by interior points with the factor of G alone; it also ends where it stalls within limit ().

    again (): whether it is the second time.
    """
    coupling = jnp.where(again, *(jnp.asarray(value, x.dtype) for value in COUPLING[::-1]))
    return _best(p, stiffness, x, going, (close, limit), EARLY, *interior_steps(p, coupling))


def face_attempt(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array, limit: Array, number) -> Array:
    """`attempt` by Newton's method and interior points alternately; it ends where it stalls, or far within limit ().

    Newton's method comes first, for it changes the impulses least. Later attempts take as long as those of `attempt`.
    """
    number = jnp.asarray(number, jnp.int32)
    late, inner = number >= BRIEF, number % 2 == 1
    ends, coupling = (jnp.maximum(close, WITHIN * limit), NEAR * limit), jnp.asarray(COUPLING, x.dtype)[number // 2 % 2]
    longer = lambda n: jnp.where(late, LATE.steps, n)
    rule = lambda x: _Rule(longer(x.steps), longer(x.stall), x.better, longer(x.longest))

    def step(x: Array, turn: Array) -> Array:
        (first, last), (brief, _) = DAMPING[0], DAMPING[1]
        falling = first * (last / first) ** (turn.astype(x.dtype) / (LATE.steps - 1))
        return x + newton_change(p, x, jnp.where(late, falling, brief) * jnp.mean(diagonal(p.G)))

    interior = lambda: _best(p, stiffness, x, going & inner, ends, rule(FACES), *interior_steps(p, coupling))
    newton = lambda: _best(p, stiffness, x, going & ~inner, ends, rule(NEWTON), x, step, lambda x: x)
    return jax.lax.cond(inner, interior, newton)


def _best(
    p: ConeProblem, stiffness, x, going, ends: tuple[Array, Array], rule: _Rule, start: Any, step: Callable, impulses
) -> Array:
    """The best impulses of a method, where they are better enough than x. ends: `close` and `limit`."""
    close, limit = ends

    def violation(x):
        if isinstance(p.G, BlockMatrix):
            return violation_by_blocks(p, x)
        return _violation(natural_map(p, x), x, stiffness)

    def move(s: _Trial) -> _Trial:
        point = step(s.point, s.step)
        found = impulses(point)
        size, largest = violation(found)
        choose = partial(jnp.where, wanted(s) & (size < s.least))
        known = choose(found, s.best), choose(size, s.least), choose(largest, s.largest)
        if s.own is None:
            halved = choose(jnp.where(size < 0.25 * s.least, s.step, s.halved), s.halved)
            return _Trial(point, *known, s.step + 1, halved, None)
        halves = size < 0.25 * s.own
        own, halved = jnp.where(halves, size, s.own), jnp.where(halves, s.step, s.halved)
        return _Trial(point, *known, s.step + 1, halved, own)

    def wanted(s: _Trial) -> Array:
        if rule.longest is None:
            stalls = (s.largest <= limit) & (s.step > s.halved + rule.stall)
        else:
            stalls = s.step > s.halved + jnp.where(s.largest <= limit, rule.stall, rule.longest)
        return (s.step < rule.steps) & going & (s.largest > close) & ~stalls

    size, largest = violation(x)
    none = jnp.zeros((), jnp.int32)
    own = jnp.full_like(size, jnp.inf) if isinstance(p.G, BlockMatrix) else None
    found = iterate_while(wanted, move, _Trial(start, x, size, largest, none, none, own))
    return jnp.where(found.least < rule.better**2 * size, found.best, x)


def _violation(image: Array, point: Array, stiffness: Array) -> tuple[Array, Array]:
    """Squared norm of a change in the metric of `solver._change`, and its largest entry as a velocity."""
    change = jnp.abs(image - point)
    return jnp.sum(change * change * stiffness), jnp.max(change * stiffness)
