"""The derivative of a flight: the same motion along its recorded impacts, in a loop of fixed length.

Impact times follow from the vanishing of the gap, so that first and second derivatives in both modes are those of the
implicit function (saltation).  Source: [tran2024] section 5.5.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.collisions.flight import Record, bounces_end, next_part
from lgjax.collisions.impact import approach_rate, impact
from lgjax.collisions.resting import Scene, at_rest, choose, rest_step
from lgjax.collisions.variational import RigidState, variational_step
from lgjax.execution import batched
from lgjax.numerics.implicit import implicit_number

Array = jax.Array


class Replayed(NamedTuple):
    """The states after every segment, in order, and what `Record` says of the impacts."""

    states: RigidState
    times: Array
    rates: Array
    impulses: Array


class _Place(NamedTuple):
    """Carry of the replay: the state, the rate of the gap there if an impact was the last, and as in `Flight`."""

    state: RigidState
    rate: Array
    step: Array
    left: Array
    hits: Array
    total: Array


def _time_of_impact(scene: Scene, state: RigidState, hit: Array, recorded: Array) -> Array:
    """The recorded time after `state`, with the derivatives of the time at which the gap vanishes.

    A gap that does not change there, of a body that grazes the obstacle, fixes no time: then they are zero.
    """

    def gap(tau: Array) -> Array:
        # Without an impact, an equation that is solved and harmless to differentiate.
        there, _ = variational_step(scene.body, state, tau, scene.chart)
        return jnp.where(hit, scene.closest(there).gap, tau - recorded)

    return implicit_number(gap, recorded)


def replay(
    scene_of: Callable[[Any], Scene],
    problem: Any,
    state: RigidState,
    steps: int,
    finished: Array,
    record: Record,
    asleep: Array,
) -> Replayed:
    """The flight of `fly` again, of steps + record segments, each one part of a step and perhaps one impact: a kernel.

    Past `finished` steps nothing moves, nor from segment `asleep` on.
    """
    size, h = record.segments.shape[0], problem.h

    @batched
    def segment(problem: Any, record: Record, finished: Array, asleep: Array, place: _Place, number: Array) -> Any:
        scene = scene_of(problem)
        body, state = scene.body, place.state
        k = jnp.minimum(place.total, size - 1)
        hit = (place.total < size) & (record.segments[k] == number)
        part = next_part(body, state, place.left)
        tau = jnp.where(hit, _time_of_impact(scene, state, hit, record.taus[k]), part.length)
        trial, _ = variational_step(body, state, tau, scene.chart)
        contact = scene.closest(trial)
        struck, impulse = impact(body, trial, contact, scene.laws)
        rate = approach_rate(body, trial, contact)
        held, full = number >= asleep, place.hits >= scene.max_impacts
        # The recorded impacts are all there are: what is inside without one is at rest.
        inside = contact.gap < 0
        lands = inside & (~full | bounces_end(scene, place.rate, contact.gap, tau, full))
        rested = rest_step(scene, state, trial, tau)
        after = choose([(held, at_rest(state)), (hit, struck), (lands, rested), (full & inside, state)], trial)
        active = place.step < finished
        after = jax.tree.map(lambda new, old: jnp.where(active, new, old), after, state)
        one = (hit & active).astype(jnp.int32)
        over = ~hit & (held | part.last | (full & inside & ~lands))
        time = place.step.astype(tau.dtype) * scene.h + (scene.h - place.left) + tau
        there = _Place(
            state=after,
            rate=jnp.where(hit, jax.lax.stop_gradient(approach_rate(body, struck, contact)), place.rate),
            step=place.step + over.astype(jnp.int32),
            left=jnp.where(over, scene.h, place.left - tau),
            hits=jnp.where(over, 0, place.hits + one),
            total=place.total + one,
        )
        return there, (after, time, rate, impulse)

    none = jnp.zeros((), jnp.int32)
    # The rate begins with a tangent, as it goes on: JAX takes the derivative of a segment once, not twice.
    start = _Place(state, rate=0 * h, step=none, left=h, hits=none, total=none)
    numbers = jnp.arange(steps + size, dtype=jnp.int32)
    along = lambda place, number: segment(problem, record, finished, asleep, place, number)
    # Only the states between segments are kept for reverse mode.
    _, (states, times, rates, impulses) = jax.lax.scan(jax.checkpoint(along), start, numbers)
    at = jnp.clip(record.segments, 0, steps + size - 1)
    keep = lambda values: jnp.where(record.segments >= 0, values[at], jnp.zeros_like(record.taus))
    return Replayed(states, keep(times), keep(rates), keep(impulses))
