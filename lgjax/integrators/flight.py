"""The flight of one rigid body between obstacles: variational steps, impacts found to round-off, and their derivative.

`fly` is a small machine that makes one variational step per turn.  A step that ends outside the admissible set starts
a search for the time of impact, which takes a few turns more; then the body bounces and the rest of the step follows.
Under vmap every body is at its own turn of its own step, so those that search hold up none that fly.
`replay` runs the same flight along its recorded impacts, in a loop of fixed length that has derivatives in both modes.
Source: [tran2024] sections 5.2-5.5, Algorithm 2.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.groups.iteration import iterate_while
from lgjax.groups.se3 import Pose
from lgjax.integrators.impact import (
    GRAZING_RATIO,
    STOPPED,
    BounceStatus,
    Contact,
    Laws,
    approach_rate,
    contact_speed,
    impact,
)
from lgjax.integrators.rest import Closest, choose, land, window
from lgjax.integrators.variational import RigidBody, RigidState, variational_step

Array = jax.Array

FREE, PROBE, COMMIT, SEARCH = range(4)
# A bounce that would last less than this part of what is left of the step is rest.
REST_RATIO = 1e-6


class Record(NamedTuple):
    """The first impacts, in order; each (record,), entries past their number are zero, plane -1.

    steps    the step that each is in.
    taus     time after the last impact or the start of the step, s.
    times    time after the start of the flight, s.
    planes   what was hit.
    rates    rate of the gap before the impact, m/s, negative.
    impulses normal impulse, N s.
    """

    steps: Array
    taus: Array
    times: Array
    planes: Array
    rates: Array
    impulses: Array


class Flight(NamedTuple):
    """Where the machine is.

    base, gap, rate   the last accepted state, the gap there and its rate.
    step, left        steps finished, and what is left of the present one, s.
    mode, tau         what the next turn does, and the time that it tries from `base`, s.
    low, high, turns  bracket of the time of impact, s, and turns of the search so far.
    hits, total       impacts in this step and altogether.
    resting           whether the body is on a plane for good.
    """

    base: RigidState
    gap: Array
    rate: Array
    step: Array
    left: Array
    mode: Array
    tau: Array
    low: Array
    high: Array
    turns: Array
    hits: Array
    total: Array
    resting: Array
    status: Array
    record: Record


def _flag(flag: BounceStatus, condition: Array) -> Array:
    return jnp.where(condition, jnp.int32(int(flag)), jnp.int32(0))


def take_off(body: RigidBody, closest: Closest, state: RigidState, h: Array, record: int) -> Flight:
    """The machine at the start.  A gap that is negative by round-off alone counts as contact."""
    contact = closest(state)
    chi_rate = approach_rate(body, state, contact)
    inside = contact.gap < -window(state.pose)
    finite = ~jnp.isnan(contact.gap) & jnp.isfinite(chi_rate)
    status = _flag(BounceStatus.STARTED_INSIDE, inside) | _flag(BounceStatus.NOT_FINITE, ~finite)
    zero, none = jnp.zeros_like(h), jnp.zeros((), jnp.int32)
    empty = Record(
        jnp.full((record,), -1, jnp.int32),
        jnp.zeros((record,), h.dtype),
        jnp.zeros((record,), h.dtype),
        jnp.full((record,), -1, jnp.int32),
        jnp.zeros((record,), h.dtype),
        jnp.zeros((record,), h.dtype),
    )
    lifted = jnp.maximum(-contact.gap, 0)
    translation = state.pose.translation + jnp.where(inside, 0, lifted) * contact.normal
    base = RigidState(Pose(state.pose.rotation, translation), state.angular, state.linear)
    flying = jnp.zeros((), bool)
    return Flight(
        base,
        jnp.maximum(contact.gap, 0),
        chi_rate,
        none,
        h,
        none,
        h,
        zero,
        zero,
        none,
        none,
        none,
        flying,
        status,
        empty,
    )


def _first_guess(f: Flight, gap: Array) -> Array:
    """Where the parabola through the base, with its rate, and the gap at the end of the step is zero."""
    bend = (gap - f.gap - f.rate * f.tau) / (f.tau * f.tau)
    root = jnp.sqrt(jnp.maximum(f.rate * f.rate - 4.0 * bend * f.gap, 0))
    falling = 2.0 * f.gap / (root - f.rate)
    rising = (f.rate + root) / (-2.0 * bend)
    return jnp.where(f.rate < 0, falling, rising)


def _dip(f: Flight, gap: Array, rate: Array) -> tuple[Array, Array]:
    """Whether the cubic through both ends of a step goes below zero between them, and the time of its lowest point."""
    turning = (f.rate < 0) & (rate > 0)
    u = f.rate / jnp.where(turning, f.rate - rate, -jnp.ones_like(rate))
    v = 1.0 - u
    lowest = v * v * ((1.0 + 2.0 * u) * f.gap + u * f.tau * f.rate) + u * u * ((3.0 - 2.0 * u) * gap - v * f.tau * rate)
    return turning & (lowest < 0), u * f.tau


def _finish_step(f: Flight, state: RigidState, gap: Array, rate: Array, resting: Array, h: Array) -> Flight:
    none, zero = jnp.zeros_like(f.step), jnp.zeros_like(h)
    return f._replace(
        base=state, gap=gap, rate=rate, step=f.step + 1, left=h, tau=h, mode=none, low=zero, high=zero, turns=none,
        hits=none, resting=resting,
    )  # fmt: skip


def _searched(f: Flight, gap: Array, rate: Array, tolerance: Array, h: Array) -> tuple[Flight, Array]:
    """A narrower bracket and the next time to try; and whether the time just tried is that of the impact."""
    low = jnp.where(gap >= 0, f.tau, f.low)
    high = jnp.where(gap < 0, f.tau, f.high)
    narrow = high - low <= 2.0 * float(jnp.finfo(h.dtype).eps) * h
    newton = f.tau - (gap - 0.5 * tolerance) / jnp.where(rate < 0, rate, -jnp.ones_like(rate))
    # Every fourth turn halves the bracket, so that the search ends whatever the gap does.
    trusted = (rate < 0) & (newton < high) & (f.turns % 4 != 3)
    tau = jnp.where(narrow, low, jnp.where(trusted, jnp.maximum(newton, low), 0.5 * (low + high)))
    found = ((gap >= 0) & (gap <= tolerance) & (rate < 0)) | (narrow & (f.tau == low))
    return f._replace(low=low, high=high, tau=tau, turns=f.turns + 1), found


def _bounced(
    f: Flight, body: RigidBody, before: RigidState, after: RigidState, impulse: Array, contact: Contact, h: Array,
    most: int,
) -> Flight:  # fmt: skip
    """After an impact that turned the state `before` into `after`."""
    rate = approach_rate(body, before, contact)
    grazing = -rate < GRAZING_RATIO * contact_speed(body, before, contact)
    hits, size = f.hits + 1, f.record.steps.shape[0]
    full = f.total >= size
    here = jnp.arange(size, dtype=jnp.int32) == f.total
    time = f.step.astype(h.dtype) * h + (h - f.left) + f.tau
    news = Record(f.step, f.tau, time, contact.index, rate, impulse)
    record = jax.tree.map(lambda old, new: jnp.where(here, new, old), f.record, news)
    flags = (
        _flag(BounceStatus.GRAZING, grazing)
        | _flag(BounceStatus.FLAT, contact.flat)
        | _flag(BounceStatus.NOT_RECORDED, full)
        | _flag(BounceStatus.ZENO, hits >= most)
    )
    none, left = jnp.zeros_like(f.mode), f.left - f.tau
    return f._replace(
        base=after, gap=contact.gap, rate=approach_rate(body, after, contact), left=left, tau=left, mode=none,
        turns=none, hits=hits, total=f.total + 1, resting=f.resting | (hits >= most), status=f.status | flags,
        record=record,
    )  # fmt: skip


def _turn(f: Flight, body: RigidBody, closest: Closest, laws: Laws, h: Array, most: int, chart: str) -> Flight:
    trial, solved = variational_step(body, f.base, f.tau, chart)
    contact = closest(trial)
    gap, rate, tolerance = contact.gap, approach_rate(body, trial, contact), window(trial.pose)
    finite = ~jnp.isnan(gap) & jnp.isfinite(rate)
    status = f.status | _flag(BounceStatus.NOT_SOLVED, ~solved) | _flag(BounceStatus.NOT_FINITE, ~finite)
    inside, searching = gap < 0, f.mode == SEARCH
    # A body that touches and would touch again at once does not bounce any more.
    at_once = (f.gap <= tolerance) & (f.rate * f.tau <= REST_RATIO * -gap) & (f.hits > 0)
    rests = f.resting | at_once
    lands = rests & inside & ~searching
    struck, impulse = impact(body, trial, contact, laws)
    rested = land(body, closest, laws, f.base, trial, contact, lands)
    landed = _finish_step(f, rested, jnp.zeros_like(gap), jnp.zeros_like(gap), lands, h)
    landed = landed._replace(status=f.status | _flag(BounceStatus.ZENO, lands))
    dips, lowest = _dip(f, gap, rate)
    narrowed, found = _searched(f, gap, rate, tolerance, h)
    guess = _first_guess(f, gap)
    guess = jnp.where((guess > 0) & (guess < f.tau), guess, 0.5 * f.tau)
    search = f._replace(
        mode=jnp.full_like(f.mode, SEARCH), low=jnp.zeros_like(h), high=f.tau, tau=guess, turns=jnp.zeros_like(f.turns)
    )
    cases = [
        (~(solved & finite), f._replace(status=status)),
        (searching & found, _bounced(f, body, trial, struck, impulse, contact, h, most)),
        (searching, narrowed),
        (lands, landed),
        (inside, search),
        (f.mode == PROBE, f._replace(mode=jnp.full_like(f.mode, COMMIT), tau=f.left)),
        ((f.mode == FREE) & dips & ~rests, f._replace(mode=jnp.full_like(f.mode, PROBE), tau=lowest)),
    ]
    return choose(cases, _finish_step(f, trial, gap, rate, jnp.zeros_like(f.resting), h))


def fly(
    flight: Flight, body: RigidBody, closest: Closest, laws: Laws, h: Array, target: Array, most: int, chart: str
) -> Flight:
    """Turns until `target` steps of size h are finished or the body is stopped; `most` impacts per step, then rest."""

    def unfinished(f: Flight) -> Array:
        return (f.step < target) & ((f.status & int(STOPPED)) == 0)

    return iterate_while(unfinished, lambda f: _turn(f, body, closest, laws, h, most, chart), flight)


class Replayed(NamedTuple):
    """The states after every step and every impact, in order, and what `Record` says of the impacts."""

    states: RigidState
    times: Array
    rates: Array
    impulses: Array


def _time_of_impact(
    body: RigidBody, closest: Closest, state: RigidState, hit: Array, recorded: Array, chart: str
) -> Array:
    """The recorded time after `state`, with the derivatives of the time at which the gap vanishes."""

    def gap(tau: Array) -> Array:
        # Without an impact, an equation that is solved and harmless to differentiate.
        there, _ = variational_step(body, state, tau, chart)
        return jnp.where(hit, closest(there).gap, tau - recorded)

    def newton(f: Any, tau: Array) -> Array:
        # The recorded time is the root but for round-off.  The iteration is there because JAX differentiates
        # through it, where it should not, in forward over reverse mode through a scan.
        value, slope = jax.jvp(f, (tau,), (jnp.ones_like(tau),))
        return tau - value / jax.lax.stop_gradient(slope)

    return jax.lax.custom_root(gap, recorded, newton, lambda linear, y: y / linear(jnp.ones_like(y)))


def replay(
    body: RigidBody,
    closest: Closest,
    laws: Laws,
    state: RigidState,
    h: Array,
    steps: int,
    finished: Array,
    record: Record,
    chart: str,
    sweeps: int,
) -> Replayed:
    """The flight again, along its recorded impacts, whose times follow from the vanishing of the gap.

    A loop of steps + record segments, each one step and perhaps one impact; first and second derivatives in both modes
    are those of the implicit function (saltation).  Past `finished` steps nothing moves; a body at rest is put on its
    planes in `sweeps` goes.
    """
    size = record.steps.shape[0]

    def segment(carry: Any, _: Any) -> Any:
        state, step, left, j = carry
        k = jnp.minimum(j, size - 1)
        hit = (j < size) & (record.steps[k] == step)
        root = _time_of_impact(body, closest, state, hit, record.taus[k], chart)
        tau = jnp.where(hit, root, left)
        trial, _ = variational_step(body, state, tau, chart)
        contact = closest(trial)
        # The recorded impacts are all there are: what is inside without one is at rest.
        lands = ~hit & (contact.gap < 0)
        struck, impulse = impact(body, trial, contact, laws)
        rested = land(body, closest, laws, state, trial, contact, lands, sweeps)
        rate = approach_rate(body, trial, contact)
        active = step < finished
        after = choose([(hit, struck), (lands, rested)], trial)
        after = jax.tree.map(lambda new, old: jnp.where(active, new, old), after, state)
        time = step.astype(h.dtype) * h + (h - left) + tau
        one = (hit & active).astype(jnp.int32)
        return (after, step + 1 - one, jnp.where(hit, left - tau, h), j + one), (after, time, rate, impulse)

    start = (state, jnp.zeros((), jnp.int32), h, jnp.zeros((), jnp.int32))
    # Only the states between segments are kept for reverse mode.
    _, (states, times, rates, impulses) = jax.lax.scan(jax.checkpoint(segment), start, None, length=steps + size)
    # The j-th impact is segment number (its step) + j.
    at = jnp.clip(record.steps, 0) + jnp.arange(size, dtype=jnp.int32)
    real = record.steps >= 0
    keep = lambda values: jnp.where(real, values[at], jnp.zeros_like(record.taus))
    return Replayed(states, keep(times), keep(rates), keep(impulses))
