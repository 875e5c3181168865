"""The flight of one rigid body between obstacles: variational steps, with every impact found to round-off.

`fly` is a small machine that makes one variational step per turn.  A step that ends outside the admissible set is
followed by a search for the time of impact, which takes a few turns more; then the body bounces and the rest of the
step follows.  Under vmap every body is at its own turn of its own step, so bodies that search do not hold up the rest.

No impact is missed: the acceleration of the body's points away from a plane stays below a bound that follows from its
spin and the forces.  Between two times at which the body is outside it therefore cannot have dipped deeper than a
parabola of that curvature; where that is deeper than `DIP` of its radius, the time between them is halved and examined
again.  Steps that turn a body by more than `PART_ANGLE` are made in equal parts that do not.

The verdict on a step is one number, found at the end of a turn and obeyed in the next.  If it were computed where it is
obeyed, XLA would recompute it for every field of the state, round it differently, and mix two decisions.
Source: [tran2024] sections 5.2-5.5, Algorithm 2.
"""

import enum
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lgjax.collisions.impact import (
    GRAZING_RATIO,
    STOPPED,
    BounceStatus,
    ContactPoint,
    approach_rate,
    contact_speed,
    impact,
)
from lgjax.collisions.resting import Scene, choose, rest_or_hold, window
from lgjax.collisions.variational import RigidBody, RigidState, forces, variational_step
from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.status import flag

Array = jax.Array

# A bounce that would last less than this fraction of what is left of the step counts as rest.
REST_RATIO = 1e-6
# Steps that turn the body by more than PART_ANGLE, rad, are made in at most MAX_PARTS parts.
PART_ANGLE = 0.5
MAX_PARTS = 1000
# In a part of a step no point accelerates by more than SPIN times |ω|² times its distance from the center of mass.  The
# discrete motion, which this is about, reaches 2.6 for parts of half a radian; a rigid body that of |ω|² alone 1.3.
SPIN = 3.0
# No dip deeper than this fraction of the body's radius goes unnoticed,
DIP = 1e-4
# unless noticing it takes intervals shorter than this fraction of a part: then the status says TOO_LONG.
SHORTEST = 1e-3
NEVER = jnp.iinfo(jnp.int32).max


class Record(NamedTuple):
    """The first impacts, in order; each (record,), entries past their number are zero, plane and segment -1.

    segments segment of the flight that each ends: a stretch up to an impact, to the end of a part, or of the step.
    taus     time after the start of that segment, s.
    times    time after the start of the flight, s.
    planes   what was hit.
    rates    rate of the gap before the impact, m/s, negative.
    impulses normal impulse, N s.
    """

    segments: Array
    taus: Array
    times: Array
    planes: Array
    rates: Array
    impulses: Array


class Verdict(enum.IntEnum):
    """Verdict on a trial step, which says what is done next."""

    FINISH = 0  # the part of the step ends outside: accepted
    NOT_SOLVED = 1  # the body stops
    NOT_FINITE = 2  # the body stops
    LAND = 3  # it ends inside, and the body is at rest: a step on the obstacles, or contact holds it
    WAIT = 4  # it ends inside, and the body has had all impacts of a step: the step ends where the body is
    LOOK = 5  # it could have dipped into an obstacle: half the time is tried first
    BOUNCE = 6  # the time tried is that of the impact
    NARROW = 7  # the search for that time goes on
    SEARCH = 8  # it ends inside: a search begins
    FURTHER = 9  # outside, but not at the end of the part


class Place(NamedTuple):
    """A state of the body, its gap () there, m, and the rate of the gap, m/s."""

    state: RigidState
    gap: Array
    rate: Array


class Trial(NamedTuple):
    """The step that was tried from the base: its end, the obstacle that is closest there, the verdict."""

    end: Place
    plane: Array
    verdict: Array


class Search(NamedTuple):
    """Time after the base that is tried next, and what is known of the times before it; all in s from the base.

    tau               the time that is tried; at most to the end of the part of the step.
    clear, clear_gap  a time before which there is no impact, and the gap there.
    narrowing         whether the time of an impact is being narrowed down.
    low, high, turns  then its bracket, and the turns taken so far.
    """

    tau: Array
    clear: Array
    clear_gap: Array
    narrowing: Array
    low: Array
    high: Array
    turns: Array


class Flight(NamedTuple):
    """State of the machine.

    base         the last accepted place.
    search       the search for the next one.
    step, left   steps finished, and what is left of the present one, s.
    hits, total  impacts in this step and altogether.
    cuts         segments finished beyond one per step: impacts, and parts of steps before the last.
    resting      whether the body is on a plane for good.
    asleep       the segment from which on contact holds it where it is, `NEVER` if not yet.
    trial        the outcome of the time tried.
    """

    base: Place
    search: Search
    step: Array
    left: Array
    hits: Array
    total: Array
    cuts: Array
    resting: Array
    asleep: Array
    status: Array
    record: Record
    trial: Trial


def take_off(scene: Scene, state: RigidState, record: int) -> Flight:
    """The machine at the start.  A gap that is negative by round-off alone counts as contact."""
    contact = scene.closest(state)
    rate = approach_rate(scene.body, state, contact)
    inside = contact.gap < -window(state.pose)
    finite = ~jnp.isnan(contact.gap) & jnp.isfinite(rate)
    none, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    times, numbers = jnp.zeros((record,), scene.h.dtype), jnp.full((record,), -1, jnp.int32)
    lifted = jnp.where(inside, 0, jnp.maximum(-contact.gap, 0))
    pose = Pose(state.pose.rotation, state.pose.translation + lifted * contact.normal)
    base = Place(RigidState(pose, state.angular, state.linear), jnp.maximum(contact.gap, 0), rate)
    flight = Flight(
        base=base, search=_whole_part(base), step=none, left=scene.h, hits=none, total=none, cuts=none, resting=no,
        asleep=jnp.full_like(none, NEVER),
        status=flag(BounceStatus.STARTED_INSIDE, inside) | flag(BounceStatus.NOT_FINITE, ~finite),
        record=Record(segments=numbers, taus=times, times=times, planes=numbers, rates=times, impulses=times),
        trial=Trial(base, contact.plane, none),
    )  # fmt: skip
    return _tried(flight, scene)


def _whole_part(base: Place) -> Search:
    """The search from a new base: the whole part of the step is tried first."""
    zero, forever = jnp.zeros_like(base.gap), jnp.full_like(base.gap, jnp.inf)
    no, none = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    return Search(tau=forever, clear=zero, clear_gap=base.gap, narrowing=no, low=zero, high=zero, turns=none)


class Part(NamedTuple):
    """The next part of a step: its length (), s, whether it is the last, whether at most MAX_PARTS are needed."""

    length: Array
    last: Array
    resolved: Array


def next_part(body: RigidBody, state: RigidState, left: Array) -> Part:
    """The part that follows `state`, one of the equal parts of what is left of a step, `left` (), s."""
    state = jax.lax.stop_gradient(state)
    moment, _ = forces(body, state.pose)
    spin, growth = (_length(sm.solve3(body.inertia, x)) for x in (state.angular, moment))
    time = jax.lax.stop_gradient(left)
    count = jnp.maximum(jnp.ceil(time * (spin + 0.5 * time * growth) / PART_ANGLE - 1e-3), 1)
    return Part(left / count, count == 1, count <= MAX_PARTS)


def _length(vector: Array) -> Array:
    return jnp.sqrt(sm.dot(vector, vector))


def _rounding_of_rate(scene: Scene, state: RigidState) -> Array:
    """Bound () on the round-off in the rate of a gap, m/s."""
    spin = sm.solve3(scene.body.inertia, state.angular)
    speed = _length(state.linear) / scene.body.mass + _length(spin) * scene.radius
    return 32.0 * float(jnp.finfo(speed.dtype).eps) * speed


def _deepest(scene: Scene, base: RigidState, start: Array, end: Array, time: Array) -> Array:
    """The least gap () that can occur between the gaps `start` and `end`, m, which are `time` apart, s.

    The gap is the least of the heights of the body's points.  No height has a second derivative above the bound, so
    each is above a parabola of that curvature through the two gaps.
    """
    body = scene.body
    moment, force = forces(body, base.pose)
    spin = sm.solve3(body.inertia, base.angular)
    lift = jnp.max(sm.matvec(scene.normals, force), initial=-jnp.inf) / body.mass
    turn = SPIN * sm.dot(spin, spin) + 2.0 * _length(sm.solve3(body.inertia, moment))
    sag = 0.5 * jnp.maximum(lift + turn * scene.radius, 0) * time * time
    between = jnp.abs(end - start) < sag
    fall = sag + start - end
    return jnp.where(
        between, start - 0.25 * fall * fall / jnp.where(between, sag, jnp.ones_like(sag)), jnp.minimum(start, end)
    )


def _first_guess(base: Place, search: Search, gap: Array) -> Array:
    """The zero of the parabola through the base, with its rate, and the gap at the time tried; else the middle."""
    tau = search.tau
    bend = (gap - base.gap - base.rate * tau) / (tau * tau)
    root = jnp.sqrt(jnp.maximum(base.rate * base.rate - 4.0 * bend * base.gap, 0))
    guess = jnp.where(base.rate < 0, 2.0 * base.gap / (root - base.rate), (base.rate + root) / (-2.0 * bend))
    return jnp.where((guess > search.clear) & (guess < tau), guess, 0.5 * (search.clear + tau))


def _finished(f: Flight, scene: Scene, part: Part, end: Place) -> Flight:
    """The machine at `end`, where a part of a step ends, the last one or another."""
    one = part.last.astype(jnp.int32)
    return f._replace(
        base=end,
        search=_whole_part(end),
        step=f.step + one,
        left=jnp.where(part.last, scene.h, f.left - part.length),
        cuts=f.cuts + 1 - one,
        hits=jnp.where(part.last, 0, f.hits),
        resting=jnp.zeros_like(f.resting),
        status=f.status | flag(BounceStatus.NOT_RECORDED, f.cuts + 1 - one > f.record.segments.shape[0]),
    )


def _narrowed(f: Flight, scene: Scene) -> Search:
    """A narrower bracket of the time of an impact, and the next time to try."""
    s, (state, gap, rate) = f.search, f.trial.end
    low = jnp.where(gap >= 0, s.tau, s.low)
    high = jnp.where(gap < 0, s.tau, s.high)
    narrow = high - low <= 2.0 * float(jnp.finfo(gap.dtype).eps) * scene.h
    newton = s.tau - (gap - 0.5 * window(state.pose)) / jnp.where(rate < 0, rate, -jnp.ones_like(rate))
    # Every fourth turn halves the bracket, so that the search ends whatever the gap does.
    trusted = (rate < 0) & (newton < high) & (s.turns % 4 != 3)
    tau = jnp.where(narrow, low, jnp.where(trusted, jnp.maximum(newton, low), 0.5 * (low + high)))
    return s._replace(low=low, high=high, tau=tau, turns=s.turns + 1)


def _bounced(f: Flight, scene: Scene, before: RigidState, contact: ContactPoint) -> Flight:
    """The machine after the impact of the state `before`, at the time just tried."""
    body, tau = scene.body, f.search.tau
    after, impulse = impact(body, before, contact, scene.laws)
    rate = approach_rate(body, before, contact)
    grazing = -rate < GRAZING_RATIO * contact_speed(body, before, contact)
    hits, size = f.hits + 1, f.record.segments.shape[0]
    here = jnp.arange(size, dtype=jnp.int32) == f.total
    time = f.step.astype(rate.dtype) * scene.h + (scene.h - f.left) + tau
    news = Record(segments=f.step + f.cuts, taus=tau, times=time, planes=contact.plane, rates=rate, impulses=impulse)
    flags = (
        flag(BounceStatus.GRAZING, grazing)
        | flag(BounceStatus.FLAT, contact.flat)
        | flag(BounceStatus.NOT_RECORDED, f.cuts >= size)
        | flag(BounceStatus.ZENO, hits >= scene.max_impacts)
    )
    base = Place(after, contact.gap, approach_rate(body, after, contact))
    return f._replace(
        base=base,
        search=_whole_part(base),
        left=f.left - tau,
        hits=hits,
        total=f.total + 1,
        cuts=f.cuts + 1,
        status=f.status | flags,
        record=jax.tree.map(lambda old, new: jnp.where(here, new, old), f.record, news),
    )


def bounces_end(scene: Scene, rate: Array, gap: Array, time: Array, full: Array) -> Array:
    """Whether a body that leaves a plane at `rate`, and would be at `gap` a time later, bounces no more by then.

    Either the bounce itself is too short; or the body has had as many impacts as a step may have (`full`), and the
    bounces that follow, each shorter than the one before by the coefficient of restitution, take no longer than the
    time altogether.
    """
    short = rate * time <= REST_RATIO * -gap
    e = scene.laws.restitution
    return short | (full & (e * rate * time <= (1.0 - e) * -gap))


def _tried(f: Flight, scene: Scene) -> Flight:
    """The machine with the step of the time `tau` tried, and the verdict on it."""
    body, base = scene.body, f.base
    part = next_part(body, base.state, f.left)
    search = f.search._replace(tau=jnp.minimum(f.search.tau, part.length))
    tau, narrowing = search.tau, search.narrowing
    whole = tau >= part.length
    state, solved = variational_step(body, base.state, tau, scene.chart)
    contact = scene.closest(state)
    gap, rate, tolerance = contact.gap, approach_rate(body, state, contact), window(state.pose)
    finite = ~jnp.isnan(gap) & jnp.isfinite(rate)
    inside, full = gap < 0, f.hits >= scene.max_impacts
    # A body that touches and has bounced its last, or never approached, does not bounce any more.
    bounced = (f.hits > 0) | (base.rate >= -_rounding_of_rate(scene, base.state))
    ends = bounced & (base.gap <= tolerance) & bounces_end(scene, base.rate, gap, tau, full)
    rests = f.resting | (ends & inside)
    narrow = search.high - search.low <= 2.0 * float(jnp.finfo(gap.dtype).eps) * scene.h
    found = ((gap >= 0) & (gap <= tolerance) & (rate < 0)) | (narrow & (tau == search.low))
    span = tau - search.clear
    deep = _deepest(scene, base.state, search.clear_gap, jnp.maximum(gap, 0), span) < -DIP * scene.radius
    # One that has had its impacts and ends outside flies on: it would wait for ever.
    unseen = deep & ~rests & ~full & ((narrowing & found) | (~narrowing & ~inside))
    look = unseen & (span > SHORTEST * part.length)
    cases = [
        (~(solved & part.resolved), Verdict.NOT_SOLVED),
        (~finite, Verdict.NOT_FINITE),
        (rests & inside & whole & ~narrowing, Verdict.LAND),
        (full & ~rests & inside, Verdict.WAIT),
        (look, Verdict.LOOK),
        (narrowing & found, Verdict.BOUNCE),
        (narrowing, Verdict.NARROW),
        (inside, Verdict.SEARCH),
        (~whole, Verdict.FURTHER),
    ]
    verdict = choose([(c, jnp.int32(int(v))) for c, v in cases], jnp.int32(int(Verdict.FINISH)))
    status = f.status | flag(BounceStatus.TOO_LONG, unseen & ~look)
    return f._replace(search=search, status=status, trial=Trial(Place(state, gap, rate), contact.plane, verdict))


def _decided(f: Flight, scene: Scene, waits: Array) -> Flight:
    """The machine after the verdict is obeyed.  A body that `waits` for others of its batch costs them nothing."""
    base, search, (end, index, verdict) = f.base, f.search, f.trial
    says = lambda which: verdict == int(which)
    part = next_part(scene.body, base.state, f.left)
    rested, held = rest_or_hold(scene, base.state, end.state, search.tau, says(Verdict.LAND) & ~waits)
    on_plane = Place(rested, jnp.zeros_like(end.gap), jnp.zeros_like(end.gap))
    landed = _finished(f, scene, part, on_plane)
    landed = landed._replace(resting=jnp.ones_like(held), status=landed.status | int(BounceStatus.ZENO))
    # A step is over for a body that is held, and for one that has had its impacts.
    over = Part(f.left, jnp.ones_like(held), part.resolved)
    asleep = _finished(f, scene, over, on_plane)._replace(asleep=f.step + f.cuts, status=landed.status)
    span, no = search.tau - search.clear, jnp.zeros_like(search.narrowing)
    begun = search._replace(
        narrowing=~no,
        low=search.clear,
        high=search.tau,
        tau=_first_guess(base, search, end.gap),
        turns=jnp.zeros_like(search.turns),
    )
    nearer = search._replace(tau=search.clear + 0.5 * span, narrowing=no)
    further = search._replace(clear=search.tau, clear_gap=end.gap, tau=search.tau + 2.0 * span)
    cases = [
        (says(Verdict.NOT_SOLVED), f._replace(status=f.status | int(BounceStatus.NOT_SOLVED))),
        (says(Verdict.NOT_FINITE), f._replace(status=f.status | int(BounceStatus.NOT_FINITE))),
        (says(Verdict.LAND) & held, asleep),
        (says(Verdict.LAND), landed),
        (says(Verdict.WAIT), _finished(f, scene, over, base)),
        (says(Verdict.LOOK), f._replace(search=nearer)),
        (says(Verdict.BOUNCE), _bounced(f, scene, end.state, scene.contact(end.state, index))),
        (says(Verdict.NARROW), f._replace(search=_narrowed(f, scene))),
        (says(Verdict.SEARCH), f._replace(search=begun)),
        (says(Verdict.FURTHER), f._replace(search=further)),
    ]
    return choose(cases, _finished(f, scene, part, end))


def fly(flight: Flight, scene: Scene, target: Array) -> Flight:
    """Take turns until `target` steps are finished or the body is stopped.

    A step has at most `max_impacts` impacts.  A body that would have more waits where it is for the next step, with its
    momenta; one whose bounces all end within the step comes to rest on the plane.
    """

    def unfinished(f: Flight) -> Array:
        return (f.step < target) & ((f.status & int(STOPPED)) == 0) & (f.asleep == NEVER)

    flight = iterate_while(unfinished, lambda f: _tried(_decided(f, scene, ~unfinished(f)), scene), flight)
    # What is asleep stays so: nothing moves but the body.
    return flight._replace(step=jnp.where(flight.asleep == NEVER, flight.step, target))
