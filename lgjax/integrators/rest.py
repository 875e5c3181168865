"""A body that lies, slides or rolls on its obstacles after more impacts than can be counted.

A step on obstacles is a variational step under a constant contact force: the first half of its impulse is such that
the body arrives on the obstacle, the second such that it does not approach it then.  Of a body at rest the two halves
cancel those of gravity.  Whether it is at rest is decided by what contact can do, not by how slow the body is: it holds
when impulses within the friction cones can bring it to rest against the forces of a whole step.
Source: none; the two halves are those of the RATTLE method, the test is the convex problem of static equilibrium.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.groups import small_matrix as sm
from lgjax.groups import so3
from lgjax.groups.iteration import iterate_while
from lgjax.groups.se3 import Pose
from lgjax.integrators.impact import Contact, Laws, approach_rate, contact_speed, impact
from lgjax.integrators.variational import (
    RigidBody,
    RigidState,
    forces,
    kinetic_energy,
    potential_energy,
    variational_step,
)

Array = jax.Array

MAX_SWEEPS = 16
MAX_ITERATIONS = 60
STUCK = 1e-3
# A body holds when its speed after a step is at most this part of what the forces of the step would give it alone.
HOLDS = 1e-4
# Faster than as many times that, no contact brings it to rest in one step, and nothing is tried.
SLOW = 8.0


class Touching(NamedTuple):
    """Points (k, 3) of the body that may touch, body frame, the normals (k, 3) there, world frame, and gaps (k,)."""

    points: Array
    normals: Array
    gaps: Array


@dataclass(frozen=True)
class Scene:
    """What flies above what.

    closest      the closest contact at a state; of equal gaps the one that is approached fastest.
    contact      the contact with one obstacle, by its index.
    touching     all points that can touch at once at a pose, for the equilibrium of a body at rest.
    normals      (n, 3) of the obstacles, world frame.
    radius       (), no point of the body is farther from its centre of mass, m.
    h            (), step size, s.
    max_impacts  impacts that a step may have.
    """

    body: RigidBody
    laws: Laws
    closest: Callable[[RigidState], Contact]
    contact: Callable[[RigidState, Array], Contact]
    touching: Callable[[Pose], Touching]
    normals: Array
    radius: Array
    h: Array
    max_impacts: int
    chart: str


def window(pose: Pose) -> Array:
    """Gaps between 0 and this () count as contact: a few units in the last place of what the gap is computed from."""
    return 4.0 * float(jnp.finfo(pose.translation.dtype).eps) * (1.0 + jnp.max(jnp.abs(pose.translation)))


def choose(cases: list[tuple[Array, Any]], otherwise: Any) -> Any:
    """The value of the first case whose condition holds."""
    for condition, value in reversed(cases):
        otherwise = jax.tree.map(lambda yes, no, c=condition: jnp.where(c, yes, no), value, otherwise)
    return otherwise


def at_rest(state: RigidState) -> RigidState:
    """The pose of a state without momenta."""
    return RigidState(state.pose, jnp.zeros_like(state.angular), jnp.zeros_like(state.linear))


def rest_step(scene: Scene, base: RigidState, trial: RigidState, tau: Array, sweeps: int | None = None) -> RigidState:
    """The state `tau` after `base` on the obstacles, where the free step ends inside them at `trial`.

    The step gains no energy: what a shift lifts, the motion pays.  Where a body cannot be put outside, it stays where
    it was.  With `sweeps`, the contacts that are treated, one after the other, it has derivatives in both modes.
    """
    body = scene.body
    contact = scene.closest(trial)
    rate = approach_rate(body, trial, contact)
    pushed, _ = _pushed(scene, trial, contact, sweeps)
    # The part of the impulse of the whole step that brings the gap to zero; one half in steady contact.
    approaches = rate < 0
    share = contact.gap / (tau * jnp.where(approaches, rate, -jnp.ones_like(rate)))
    share = jnp.where(approaches & (tau > 0), jnp.clip(share, 0.0, 1.0), jnp.zeros_like(share))
    moment = so3.act(trial.pose.rotation, pushed.angular - trial.angular)
    angular = base.angular + share * sm.tmatvec(base.pose.rotation, moment)
    kicked = RigidState(base.pose, angular, base.linear + share * (pushed.linear - trial.linear))
    arrival, found = variational_step(body, kicked, tau, scene.chart)
    there = scene.closest(arrival)
    # What is left of the gap, of higher order in the step, is closed on both sides.
    near = there.gap <= -0.5 * contact.gap
    height = jnp.where(near, 0.25 * window(arrival.pose) - there.gap, jnp.zeros_like(there.gap))
    arrival = _shifted(arrival, height, there)
    state, last = _pushed(scene, arrival, scene.closest(arrival), sweeps)
    return _without_gain(body, base, state, (last.gap < 0) | ~found)


def _shifted(state: RigidState, height: Array, contact: Contact) -> RigidState:
    pose = Pose(state.pose.rotation, state.pose.translation + height * contact.normal)
    return RigidState(pose, state.angular, state.linear)


def _pushed(scene: Scene, state: RigidState, contact: Contact, sweeps: int | None) -> tuple[RigidState, Contact]:
    """The state outside the obstacles and not approaching them, and the closest contact there.

    One contact after the other, the worst first, is left by a shift along its normal and a plastic impact; in a loop
    until none remains, or `sweeps` times.
    """
    body, laws = scene.body, scene.laws
    plastic = Laws(jnp.zeros_like(laws.restitution), laws.friction)
    eps = float(jnp.finfo(contact.gap.dtype).eps)

    def unfinished(carry: Any) -> Array:
        state, contact, k = carry
        still = 32.0 * eps * (1.0 + jax.lax.stop_gradient(contact_speed(body, state, contact)))
        approaching = (contact.gap <= window(state.pose)) & (approach_rate(body, state, contact) < -still)
        return (k < MAX_SWEEPS) & ((contact.gap < 0) | approaching)

    def sweep(carry: Any) -> Any:
        state, contact, k = carry
        height = jnp.where(contact.gap < 0, 0.25 * window(state.pose) - contact.gap, jnp.zeros_like(contact.gap))
        state, _ = impact(body, _shifted(state, height, contact), contact, plastic)
        return state, scene.closest(state), k + 1

    carry = (state, contact, jnp.zeros((), jnp.int32))
    if sweeps is None:
        carry = iterate_while(unfinished, sweep, carry)
    else:
        for _ in range(sweeps):
            carry = choose([(unfinished(carry), sweep(carry))], carry)
    return carry[0], carry[1]


def _without_gain(body: RigidBody, base: RigidState, state: RigidState, stuck: Array) -> RigidState:
    """The state slowed down until it has no more energy than `base`; `base` at rest where it is stuck or too high."""
    moving = kinetic_energy(body, state)
    left = kinetic_energy(body, base) + potential_energy(body, base.pose) - potential_energy(body, state.pose)
    round_off = 64.0 * float(jnp.finfo(left.dtype).eps) * (1.0 + jnp.abs(potential_energy(body, base.pose)))
    stuck = stuck | (left < -round_off)
    gains, one, zero = moving > left, jnp.ones_like(moving), jnp.zeros_like(moving)
    ratio = jnp.where(gains, jnp.maximum(left, 0) / jnp.where(gains, moving, one), one)
    slower = jnp.where(ratio > 0, jnp.sqrt(jnp.where(ratio > 0, ratio, one)), zero)
    slower = jnp.where(stuck, zero, slower)
    pose = choose([(stuck, base.pose)], state.pose)
    return RigidState(pose, slower * state.angular, slower * state.linear)


def rest_or_hold(
    scene: Scene, base: RigidState, trial: RigidState, tau: Array, active: Array
) -> tuple[RigidState, Array]:
    """`rest_step`, or `base` at rest where contact holds the body, and whether it does; only where `active`.

    A loop of at most one turn: a batch without a body at rest skips it.
    """

    def rest(carry: Any) -> Any:
        held = holds(scene, base, trial, tau)
        state = choose([(held, at_rest(base))], rest_step(scene, base, trial, tau))
        return jnp.zeros_like(active), state, held

    start = (active, base, jnp.zeros_like(active))
    return iterate_while(lambda carry: carry[0], rest, start)[1:]


def holds(scene: Scene, base: RigidState, trial: RigidState, tau: Array) -> Array:
    """Whether contact can bring to rest a body that the forces of a step take from `base` to `trial`.

    Of all impulses within the friction cones at the points that the free step brings inside, those are sought that
    leave the least kinetic energy, a convex problem, by accelerated projected gradients.  The body holds when that is
    less than `HOLDS`² times what the forces give it.
    """
    body, friction = scene.body, scene.laws.friction
    mu = jnp.zeros_like(tau) if friction is None else friction
    points, normals, gaps = scene.touching(trial.pose)
    touches = gaps <= 1e-3 * jnp.abs(jnp.min(gaps, initial=jnp.inf))
    R = trial.pose.rotation
    moment, force = forces(body, base.pose)
    given = kinetic_energy(body, RigidState(base.pose, tau * moment, tau * force))
    lever = sm.matmul(R, sm.hat(points))
    yielding = sm.identity(3, tau.dtype) / body.mass + sm.matmul(lever, sm.matmult(sm.inv3(body.inertia), lever))
    sizes = jnp.sqrt(jnp.sum(yielding * yielding, axis=(-2, -1)))
    total = jnp.sum(jnp.where(touches, sizes, jnp.zeros_like(sizes)))
    length = 1.0 / jnp.where(total > 0, total, jnp.ones_like(total))

    def after(impulses: Array) -> RigidState:
        pushes = sm.tmatvec(R, impulses)
        angular = trial.angular + jnp.sum(sm.cross(points, pushes), axis=0)
        return RigidState(trial.pose, angular, trial.linear + jnp.sum(impulses, axis=0))

    def in_cones(impulses: Array) -> Array:
        normal = sm.dot(impulses, normals)
        tangential = impulses - normal[:, None] * normals
        slip = jnp.sqrt(sm.dot(tangential, tangential))
        inside = slip <= mu * normal
        size = jnp.where(inside, normal, jnp.maximum((normal + mu * slip) / (1.0 + mu * mu), 0))
        part = jnp.where(inside, jnp.ones_like(slip), mu * size / jnp.where(slip > 0, slip, jnp.ones_like(slip)))
        kept = size[:, None] * normals + part[:, None] * tangential
        return jnp.where(touches[:, None], kept, jnp.zeros_like(kept))

    def iterate(carry: Any) -> Any:
        old, ahead, weight, _, k = carry
        there = after(ahead)
        turning = sm.cross(sm.solve3(body.inertia, there.angular), points)
        slope = there.linear / body.mass + so3.act(R, turning)
        new = in_cones(ahead - length * slope)
        change = new - old
        # The momentum of the iteration starts anew where it points uphill.
        uphill = jnp.sum(slope * change) > 0
        weight = jnp.where(uphill, jnp.ones_like(weight), weight)
        heavier = 0.5 * (1.0 + jnp.sqrt(1.0 + 4.0 * weight * weight))
        # Where the cones leave next to nothing of a step, the body moves and nothing holds it.
        small = jnp.max(jnp.abs(change), initial=0.0) <= STUCK * length * jnp.max(jnp.abs(slope), initial=0.0)
        ahead = new + jnp.where(uphill, jnp.zeros_like(weight), (weight - 1.0) / heavier) * change
        return new, ahead, heavier, small, k + 1

    def unfinished(carry: Any) -> Array:
        impulses, _, _, small, k = carry
        return slow & ~small & (k < MAX_ITERATIONS) & (kinetic_energy(body, after(impulses)) > HOLDS**2 * given)

    slow = kinetic_energy(body, base) <= SLOW**2 * (1.0 + mu * mu) * given
    none = jnp.zeros_like(points)
    start = (none, none, jnp.ones_like(tau), jnp.zeros_like(slow), jnp.zeros((), jnp.int32))
    impulses = iterate_while(unfinished, iterate, start)[0]
    return slow & (kinetic_energy(body, after(impulses)) <= HOLDS**2 * given)
