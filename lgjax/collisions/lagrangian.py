"""The collision integrator in Lagrangian form: from one increment of the pose to the next, with impacts between.

A step is known by what it adds to the pose.  Its discrete Legendre transform gives the momenta with which the next one
departs; at an impact they jump.  No momentum is stepped forward, and none is part of the result.
Source: [tran2024] sections 5.1.1 to 5.4.1, Table 1 (a), in the order of Algorithm 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.collisions.impact import STOPPED, BounceStatus, ContactPoint, Laws, approach_rate, impact
from lgjax.collisions.variational import RigidBody, RigidState, advance, arrival, departure, step_energy
from lgjax.groups.se3 import Pose
from lgjax.numerics.implicit import implicit_number, over
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.status import flag

Array = jax.Array

MAX_HALVINGS = 200  # of a bracket, which is at round-off long before
JUMP_ITERATIONS = 6  # of Newton's method, which starts next to its root
STOPPED_HERE = int(STOPPED | BounceStatus.ZENO)


class Settings(NamedTuple):
    """Static settings: `closest` finds the contact of a body, its obstacles and a state."""

    closest: Callable[[RigidBody, Any, RigidState], ContactPoint]
    jump: str
    symmetric: bool
    max_impacts: int
    chart: str


class Problem(NamedTuple):
    """Differentiable inputs: body, whatever `closest` takes, step (), s, and tolerance (), m."""

    body: RigidBody
    obstacles: Any
    h: Array
    tolerance: Array


class LagrangianImpacts(NamedTuple):
    """The first `record` impacts in order; entries past their number are zero, plane -1.

    ts          (record,) times, s.
    planes      (record,) index of the plane.
    poses       Pose (record, ...) of the body at the impact.
    rates       (record,) rates of the gap just before, m/s, negative.
    impulses    (record,) normal impulses, N s.
    mismatches  (record,) discrete energy of the step after the impact less that of the step before it, J.
    """

    ts: Array
    planes: Array
    poses: Pose
    rates: Array
    impulses: Array
    mismatches: Array


class Arc(NamedTuple):
    """A step of any length: the state at its end, its discrete energy, the contact there, and whether it was found."""

    state: RigidState
    energy: Array
    contact: ContactPoint
    found: Array


class Course(NamedTuple):
    """State of a body between two steps.

    state   the pose, and the momenta with which the next step departs.
    energy  discrete energy of the last step, J.
    delay   time beyond the steps done times h, s; zero unless steps are symmetric about impacts.
    step    steps done.
    """

    state: RigidState
    energy: Array
    delay: Array
    step: Array
    impacts: Array
    status: Array
    record: LagrangianImpacts


class _Within(NamedTuple):
    """State of a body within a step: `ahead` tries the `left` of it, `struck` says that it departs from an impact."""

    course: Course
    ahead: Arc
    left: Array
    spent: Array
    struck: Array


def arc(s: Settings, p: Problem, state: RigidState, h: Array) -> Arc:
    """The step of size h that departs with the momenta of `state`; one of size zero stays there."""
    moves = h > 0
    size = jnp.where(moves, h, p.h)
    increment, found = departure(p.body, state, size, s.chart)
    end = advance(state.pose, increment)
    energy = step_energy(p.body, state.pose, end, increment, size)
    arrived = arrival(p.body, end, increment, size)
    arrived = jax.tree.map(lambda new, old: jnp.where(moves, new, old), arrived, state)
    return Arc(arrived, energy, s.closest(p.body, p.obstacles, arrived), found | ~moves)


def _bisection(s: Settings, p: Problem, state: RigidState, left: Array, inside: Array) -> Array:
    """The last time before the body is inside, to round-off or as soon as the gap is within the tolerance."""

    def unfinished(carry: Any) -> Array:
        low, high, close, i = carry
        wide = high - low > 2.0 * float(jnp.finfo(high.dtype).eps) * high
        return inside & wide & ~close & (i < MAX_HALVINGS)

    def iterate(carry: Any) -> Any:
        low, high, _, i = carry
        middle = 0.5 * (low + high)
        there = arc(s, p, state, middle)
        gap = there.contact.gap
        close = (gap >= 0) & (gap <= p.tolerance) & (approach_rate(p.body, there.state, there.contact) < 0)
        return jnp.where(gap >= 0, middle, low), jnp.where(gap >= 0, high, middle), close, i + 1

    start = (jnp.zeros_like(left), left, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
    return iterate_while(unfinished, iterate, start)[0]


def _time_of_impact(s: Settings, p: Problem, state: RigidState, left: Array, inside: Array) -> Array:
    """The time () of bisection, with the derivatives of the time at which the gap vanishes."""
    tau = _bisection(s, *jax.lax.stop_gradient((p, state, left)), inside)

    def gap(t: Array) -> Array:
        # Without an impact, an equation that is harmless to differentiate.
        return jnp.where(inside & (tau > 0), arc(s, p, state, t).contact.gap, t - tau)

    return implicit_number(gap, tau)


def _jump(
    s: Settings, p: Problem, before: RigidState, contact: ContactPoint, energy: Array, left: Array
) -> tuple[RigidState, Array, Array]:
    """The state after an elastic impact, the impulse, and whether it was found.

    "hamiltonian" keeps H, as Corollary 4.6 has it; "discrete" the discrete energy of the steps on both sides, the
    first of them of energy `energy` and the second of size `left`, as eq. (22a) and the first rows of F^i have it.
    """
    after, impulse = impact(p.body, before, contact, Laws(jnp.ones_like(left), None))
    if s.jump == "hamiltonian":
        return after, impulse, jnp.ones((), bool)

    def struck(part: Array) -> RigidState:
        angular = before.angular + part * (after.angular - before.angular)
        return RigidState(before.pose, angular, before.linear + part * (after.linear - before.linear))

    def mismatch(part: Array) -> Array:
        return arc(s, p, struck(part), left).energy - energy

    one = jnp.ones_like(left)

    def newton(part: Array, _: Any) -> tuple[Array, Array]:
        value, slope = jax.jvp(mismatch, (part,), (one,))
        return part - over(value, slope), jnp.abs(value)

    part, errors = jax.lax.scan(newton, one, None, length=JUMP_ITERATIONS)
    error = errors[-1]
    small = 1e3 * float(jnp.finfo(left.dtype).eps) * (1.0 + jnp.abs(energy))
    last = left <= 0
    chosen = struck(jnp.where(last, one, part))
    return chosen, impulse * jnp.where(last, one, part), (error <= small) & (part > 0) | last


def _accepted(w: _Within, taken: Arc, size: Array) -> Course:
    """After a step of that size; if it departed from an impact, the mismatch of energy there is known."""
    moves, record = size > 0, w.course.record
    here = jnp.arange(record.planes.shape[0], dtype=jnp.int32) == w.course.impacts - 1
    news = jnp.where(here & w.struck & moves, taken.energy - w.course.energy, record.mismatches)
    energy = jnp.where(moves, taken.energy, w.course.energy)
    return w.course._replace(state=taken.state, energy=energy, record=record._replace(mismatches=news))


def _impact(s: Settings, p: Problem, w: _Within) -> _Within:
    """From the last impact or the start of the step to the next impact, and a try of what is left of the step."""
    inside = w.ahead.contact.gap < 0
    tau = _time_of_impact(s, p, w.course.state, w.left, inside)
    touching = arc(s, p, w.course.state, tau)
    course = _accepted(w, touching, tau)
    left = tau if s.symmetric else w.left - tau
    rate = approach_rate(p.body, touching.state, touching.contact)
    after, impulse, found = _jump(s, p, touching.state, touching.contact, course.energy, left)
    record = course.record
    here = jnp.arange(record.planes.shape[0], dtype=jnp.int32) == course.impacts
    time = course.step.astype(p.h.dtype) * p.h + course.delay + w.spent + tau
    news = LagrangianImpacts(time, touching.contact.plane, touching.state.pose, rate, impulse, jnp.zeros_like(rate))
    pick = lambda new, old: jnp.where(here.reshape((-1,) + (1,) * new.ndim), new, old)
    status = (
        course.status
        | flag(BounceStatus.NOT_SOLVED, ~found)
        | flag(BounceStatus.FLAT, touching.contact.flat)
        | flag(BounceStatus.NOT_RECORDED, course.impacts >= here.shape[0])
    )
    course = course._replace(
        state=after, status=status, impacts=course.impacts + 1, record=jax.tree.map(pick, news, record)
    )
    return _Within(course, arc(s, p, after, left), left, w.spent + tau, jnp.ones((), bool))


def step(s: Settings, p: Problem, course: Course) -> Course:
    """One step of size h, or of twice the time to each impact if steps are symmetric; a stopped body stays."""
    zero = jnp.zeros_like(p.h)
    start = _Within(course, arc(s, p, course.state, p.h), p.h, zero, jnp.zeros((), bool))
    active = (course.status & STOPPED_HERE) == 0

    def turn(w: _Within, _: Any) -> tuple[_Within, None]:
        hit = active & (w.ahead.contact.gap < 0) & w.ahead.found
        return jax.lax.cond(hit, lambda w: _impact(s, p, w), lambda w: w, w), None

    # Only the states between impacts are kept for reverse mode.
    w, _ = jax.lax.scan(jax.checkpoint(turn), start, None, length=s.max_impacts)
    done = _accepted(w, w.ahead, w.left)
    finite = ~jnp.isnan(w.ahead.contact.gap) & jnp.isfinite(w.ahead.energy)
    status = (
        done.status
        | flag(BounceStatus.NOT_SOLVED, ~w.ahead.found)
        | flag(BounceStatus.NOT_FINITE, w.ahead.found & ~finite)
        | flag(BounceStatus.ZENO, w.ahead.found & (w.ahead.contact.gap < 0))
    )
    delay = course.delay + (w.spent + w.left - p.h) if s.symmetric else course.delay
    done = done._replace(step=course.step + 1, delay=delay)
    good = active & ((status & STOPPED_HERE) == 0)
    kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), done, course)
    return kept._replace(status=jnp.where(active, status, course.status))


def depart(s: Settings, p: Problem, state: RigidState, energy: Array, record: int) -> Course:
    """The course at the start, the state and the discrete energy of the step that led there given."""
    contact = s.closest(p.body, p.obstacles, state)
    none, zeros = jnp.zeros((), jnp.int32), jnp.zeros((record,), p.h.dtype)
    poses = Pose(jnp.zeros((record, 3, 3), p.h.dtype), jnp.zeros((record, 3), p.h.dtype))
    empty = LagrangianImpacts(zeros, jnp.full((record,), -1, jnp.int32), poses, zeros, zeros, zeros)
    round_off = 1e2 * float(jnp.finfo(p.h.dtype).eps) * (1.0 + jnp.max(jnp.abs(state.pose.translation)))
    unknown = jnp.isnan(contact.gap) | ~jnp.isfinite(energy)
    status = flag(BounceStatus.STARTED_INSIDE, contact.gap < -round_off) | flag(BounceStatus.NOT_FINITE, unknown)
    return Course(state, energy, jnp.zeros_like(p.h), none, none, status, empty)
