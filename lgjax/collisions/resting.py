"""A body that lies, slides or rolls on its obstacles after more impacts than can be counted.

A step on obstacles is a variational step under a constant contact force: the first half of its impulse is such that
the body arrives on the obstacle, the second such that it does not approach the obstacle then.  For a body at rest the
two halves cancel those of gravity.  Rest is decided by what contact can do, not by how slow the body is: contact holds
the body when impulses within the friction cones can bring it to rest against the forces of a whole step.
Source: none; the two halves are those of the RATTLE method, the test is the convex problem of static equilibrium.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.collisions.impact import ContactPoint, Laws, part_within
from lgjax.collisions.variational import (
    RigidBody,
    RigidState,
    forces,
    kinetic_energy,
    potential_energy,
    variational_step,
)
from lgjax.groups import so3
from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.fixed_point import fixed_point
from lgjax.numerics.loops import iterate_while

Array = jax.Array

MAX_SHIFTS = 16
# At most so many iterations for the impulses, and for the impulses that try to bring a body to rest.
MAX_ITERATIONS = 150
MAX_TRIES = 60
# The iteration for the impulses ends when velocities change by less than this fraction of the largest.
CONVERGED = 1e-13
MANY = 12  # points that may touch at once: as many as those of a box in a corner of a room
# At the end of a step, gaps below this fraction of the depth that the free step reaches count as contact.
TOUCHES = 1e-3
STUCK = 1e-3  # tries end when the cones leave no more than this fraction of a gradient step
# Contact holds a body when its speed after a step is at most this fraction of what forces alone would give it.
HOLDS = 1e-4
# No contact brings a body to rest in one step that is faster than this multiple of that speed, and nothing is tried.
SLOW = 8.0


class Touching(NamedTuple):
    """Points (k, 3) of the body that may touch, body frame, the normals (k, 3) there, world frame, and gaps (k,)."""

    points: Array
    normals: Array
    gaps: Array


@dataclass(frozen=True)
class Scene:
    """Body and obstacles, whose contacts are functions of the state.

    closest      the closest contact at a state; of equal gaps the one that is approached fastest.
    contact      the contact with one obstacle at a state, by the obstacle's index.
    touching     all points that can touch at once at a pose, for the equilibrium of a body at rest.
    normals      (n, 3) of the obstacles, world frame.
    radius       (), m; no point of the body is farther from its center of mass.
    h            (), step size, s.
    max_impacts  impacts that a step may have.
    chart        coordinates of the rotation of a step, see `bounce`.
    """

    body: RigidBody
    laws: Laws
    closest: Callable[[RigidState], ContactPoint]
    contact: Callable[[RigidState, Array], ContactPoint]
    touching: Callable[[Pose], Touching]
    normals: Array
    radius: Array
    h: Array
    max_impacts: int
    chart: str


def window(pose: Pose) -> Array:
    """Largest gap () that counts as contact, m: a few units in the last place of what the gap is computed from."""
    return 4.0 * float(jnp.finfo(pose.translation.dtype).eps) * (1.0 + jnp.max(jnp.abs(pose.translation)))


def choose(cases: list[tuple[Array, Any]], otherwise: Any) -> Any:
    """The value of the first case whose condition holds."""
    for condition, value in reversed(cases):
        otherwise = jax.tree.map(lambda yes, no, c=condition: jnp.where(c, yes, no), value, otherwise)
    return otherwise


def at_rest(state: RigidState) -> RigidState:
    """A state with the same pose and no momenta."""
    return RigidState(state.pose, jnp.zeros_like(state.angular), jnp.zeros_like(state.linear))


def rest_step(scene: Scene, base: RigidState, trial: RigidState, tau: Array, active: Array | None = None) -> RigidState:
    """The state on the obstacles a time `tau` after `base`, for a free step that ends inside them at `trial`.

    The step gains no energy: the energy to lift the body is taken from its motion.  A body that cannot be put outside
    stays where it was.  Loops run for bodies that are `active`, so that a batch does not wait for the others; with None
    there are derivatives in both modes.
    """
    body = scene.body
    going = jnp.asarray(True) if active is None else active
    contact = scene.closest(trial)
    rows = _nearest(scene, trial.pose)
    points, normals, gaps = _touching(scene, trial.pose, rows)
    levers = so3.act(trial.pose.rotation, points)
    # The kick is such that the body arrives on the obstacles, having slipped no more than friction lets it.
    mean = 0.5 * (_velocities(body, base, levers) + _velocities(body, trial, levers))
    sinking = gaps / jnp.where(tau > 0, tau, jnp.ones_like(tau))
    mean = mean + (sinking - sm.dot(mean, normals))[:, None] * normals
    touches = gaps <= -contact.gap
    impulses = _coulomb(scene, trial.pose, levers, normals, touches, mean, jnp.zeros_like(mean), going)
    arrival, found = variational_step(body, _struck(base, levers, impulses), tau, scene.chart)
    there = scene.closest(arrival)
    # The rest of the gap is of higher order in the step; it is closed from both sides.
    near = there.gap <= -0.5 * contact.gap
    height = jnp.where(near, 0.25 * window(arrival.pose) - there.gap, jnp.zeros_like(there.gap))
    arrival, last = _lifted(scene, _shifted(arrival, height, there), active)
    points, normals, gaps = _touching(scene, arrival.pose, rows)
    levers = so3.act(arrival.pose.rotation, points)
    touches = gaps <= jnp.maximum(window(arrival.pose), -TOUCHES * contact.gap)
    before = _velocities(body, arrival, levers)
    # The impulses at both ends of a step in steady contact are the same.
    impulses = _coulomb(scene, arrival.pose, levers, normals, touches, before, impulses, going)
    stuck = (last.gap < -window(arrival.pose)) | ~found
    return _without_gain(body, base, _struck(arrival, levers, impulses), stuck, active)


def decided(condition: Array, active: Array | None) -> Array:
    """The condition () where `active`, computed once; elsewhere it is false.

    XLA may compute a condition anew in every kernel that obeys it and round it differently, so that some fields of a
    state obey and others do not.  What a loop carries is computed once.
    """
    if active is None:
        return condition
    no = jnp.zeros_like(condition)
    return iterate_while(lambda carry: carry[0], lambda carry: (no, condition), (active, no))[1]


def _nearest(scene: Scene, pose: Pose) -> Array:
    """Rows of `scene.touching` of the points nearest to the obstacles: as many as one obstacle has, or `MANY`."""
    gaps = scene.touching(pose).gaps
    count = min(gaps.shape[0], max(MANY, gaps.shape[0] // max(1, scene.normals.shape[0])))
    left, numbers, rows = jax.lax.stop_gradient(gaps), jnp.arange(len(gaps), dtype=jnp.int32), []
    for _ in range(0 if count == len(gaps) else count):
        rows.append(jnp.argmin(left).astype(jnp.int32))
        left = jnp.where(numbers == rows[-1], jnp.inf, left)
    return jnp.stack(rows) if rows else numbers


def _touching(scene: Scene, pose: Pose, rows: Array) -> Touching:
    return jax.tree.map(lambda x: x[rows], scene.touching(pose))


def _shifted(state: RigidState, height: Array, contact: ContactPoint) -> RigidState:
    return state._replace(pose=state.pose._replace(translation=state.pose.translation + height * contact.normal))


def _lifted(scene: Scene, state: RigidState, active: Array | None) -> tuple[RigidState, ContactPoint]:
    """The state shifted out of the obstacles, the deepest first, and the closest contact there.

    Shifts end when it is outside, after MAX_SHIFTS, or, for `active` None, after as many as there are obstacles.
    """

    def inside(carry: Any) -> Array:
        return (carry[2] < MAX_SHIFTS) & (carry[1].gap < 0) & (True if active is None else active)

    def shift(carry: Any) -> Any:
        state, contact, k = carry
        state = _shifted(state, 0.25 * window(state.pose) - contact.gap, contact)
        return state, scene.closest(state), k + 1

    carry = (state, scene.closest(state), jnp.zeros((), jnp.int32))
    if active is not None:
        carry = iterate_while(inside, shift, carry)
    else:
        for _ in range(scene.normals.shape[0]):
            carry = choose([(inside(carry), shift(carry))], carry)
    return carry[0], carry[1]


def _velocities(body: RigidBody, state: RigidState, levers: Array) -> Array:
    """Velocities (k, 3) of points of the body at `levers` (k, 3) from its center of mass, all in the world frame."""
    spin = so3.act(state.pose.rotation, sm.solve3(body.inertia, state.angular))
    return state.linear / body.mass + sm.cross(spin, levers)


def _struck(state: RigidState, levers: Array, impulses: Array) -> RigidState:
    """The state after impulses (k, 3) at `levers` (k, 3), world frame."""
    moment = jnp.sum(sm.cross(levers, impulses), axis=0)
    angular = state.angular + sm.tmatvec(state.pose.rotation, moment)
    return RigidState(state.pose, angular, state.linear + jnp.sum(impulses, axis=0))


def _coulomb(
    scene: Scene,
    pose: Pose,
    levers: Array,
    normals: Array,
    touches: Array,
    before: Array,
    guess: Array,
    active: Array,
) -> Array:
    """Impulses (k, 3), world frame, at all points that touch at once, by Coulomb's law.

    After them no point approaches, only points that do not leave push, and friction, up to μ times the normal impulse,
    opposes the slip.  `before` (k, 3) are the velocities without them, `guess` (k, 3) a first guess of the impulses.
    All change together, each towards the impulse that stops its point, and are put back into their cones (at the length
    μ times the normal part, not at the nearest point of the cone, which would lift what slides), until nothing changes.
    Source: the fixed point of Alart and Curnier's form of the law.
    """
    body, friction = scene.body, scene.laws.friction
    mu = 0.0 if friction is None else friction
    normal_step, tangential_step = _steps(scene, pose, levers, normals, touches)
    smallest = jnp.minimum(normal_step, tangential_step)[:, None]
    total, response = _responses(body, pose, levers)
    none = jnp.zeros_like(before)
    largest = jnp.max(jnp.where(touches[:, None], jnp.abs(before), none), initial=0.0)
    close = max(CONVERGED, 64.0 * float(jnp.finfo(before.dtype).eps)) * largest

    def kept(flat: Array) -> Array:
        impulses = flat.reshape(before.shape)
        slope = before + response(total(impulses))
        size, rate = sm.dot(impulses, normals), sm.dot(slope, normals)
        push = jnp.maximum(size - normal_step * rate, 0)
        if friction is None:  # slips that are round-off have lengths whose second derivatives overflow
            return jnp.where(touches[:, None], push[:, None] * normals, none).ravel()
        tangential = impulses - size[:, None] * normals - tangential_step[:, None] * (slope - rate[:, None] * normals)
        part = part_within(tangential, mu * push)
        return jnp.where(touches[:, None], push[:, None] * normals + part[:, None] * tangential, none).ravel()

    guess = jnp.where(touches[:, None], guess, none).ravel()
    limits = jnp.broadcast_to(close * smallest, before.shape).ravel()
    return fixed_point(kept, guess, limits, MAX_ITERATIONS, (largest > 0) & active).reshape(before.shape)


def _responses(body: RigidBody, pose: Pose, levers: Array) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """The functions impulses (k, 3) -> wrench (6,), and wrench -> the velocities (k, 3) that it gives the points."""
    dtype = levers.dtype
    ones = jnp.broadcast_to(sm.identity(3, dtype), (levers.shape[0], 3, 3))
    twists = jnp.concatenate([ones, -sm.hat(levers)], axis=-1)
    R = pose.rotation
    inverse = sm.matmult(sm.matmul(R, sm.inv3(body.inertia)), R)
    turning = -sm.matmul(sm.hat(levers), inverse)
    yielding = jnp.concatenate([ones / body.mass, turning], axis=-1)
    exact = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    return lambda impulses: exact("kij,ki->j", twists, impulses), lambda wrench: exact("kij,j->ki", yielding, wrench)


def _steps(scene: Scene, pose: Pose, levers: Array, normals: Array, touches: Array) -> tuple[Array, Array]:
    """Steps (k,) of normal and tangential impulses per velocity, kg, with which the iteration converges.

    They are the masses that the points have by themselves, divided by the largest eigenvalue of the matrix by which the
    points act on each other, which the root of a high power of it bounds.
    """
    body = scene.body
    # In units of the body's size, so that momenta and moments compare.
    inverse = sm.matmult(sm.matmul(pose.rotation, sm.inv3(body.inertia)), pose.rotation) * scene.radius**2
    hats = sm.hat(levers / scene.radius)
    yielding = sm.identity(3, inverse.dtype) / body.mass + sm.matmult(sm.matmul(hats, inverse), hats)
    normal = sm.dot(normals, sm.matvec(yielding, normals))
    tangential = 0.5 * (sm.trace(yielding) - normal)
    counts = touches.astype(normal.dtype)
    masses = (counts / tangential)[:, None, None] * sm.identity(3, normal.dtype)
    masses = masses + (counts / normal - counts / tangential)[:, None, None] * sm.outer(normals, normals)
    mixed = jnp.sum(sm.matmul(masses, hats), axis=0)
    turning = jnp.sum(sm.matmul(sm.tmatmul(hats, masses), hats), axis=0)
    left = jnp.concatenate([jnp.sum(masses, axis=0), -sm.transpose(mixed)]) / body.mass
    power = jnp.concatenate([left, sm.matmul(jnp.concatenate([-mixed, turning]), inverse)], axis=1)

    def square(_: int, carry: Any) -> Any:
        power, logarithm, part = carry
        size = jnp.sqrt(jnp.sum(power * power))
        size = jnp.where(size > 0, size, jnp.ones_like(size))
        return sm.matmul(power / size, power / size), logarithm + part * jnp.log(size), 0.5 * part

    start = jax.lax.stop_gradient((power, jnp.zeros_like(body.mass), jnp.ones_like(body.mass)))
    step = jnp.exp(-jax.lax.fori_loop(0, 7, square, start)[1])
    return jax.lax.stop_gradient((step / normal, step / tangential))


def _without_gain(
    body: RigidBody, base: RigidState, state: RigidState, stuck: Array, active: Array | None
) -> RigidState:
    """The state, slowed down to the energy of `base` if it has more; where it is stuck or too high, `base` at rest."""
    moving = kinetic_energy(body, state)
    left = kinetic_energy(body, base) + potential_energy(body, base.pose) - potential_energy(body, state.pose)
    round_off = 64.0 * float(jnp.finfo(left.dtype).eps) * (1.0 + jnp.abs(potential_energy(body, base.pose)))
    stuck = decided(stuck | (left < -round_off), active)
    gains, one, zero = moving > left, jnp.ones_like(moving), jnp.zeros_like(moving)
    # Energies that are only round-off have no derivatives; those of their quotient and of its root have no bound.
    left, moving = choose([(left > round_off, (left, moving))], jax.lax.stop_gradient((left, moving)))
    ratio = jnp.where(stuck, zero, jnp.where(gains, jnp.maximum(left, 0) / jnp.where(gains, moving, one), one))
    slower = jnp.where(ratio > 0, jnp.sqrt(jnp.where(ratio > 0, ratio, one)), zero)
    return RigidState(choose([(stuck, base.pose)], state.pose), slower * state.angular, slower * state.linear)


def rest_or_hold(
    scene: Scene, base: RigidState, trial: RigidState, tau: Array, active: Array
) -> tuple[RigidState, Array]:
    """`rest_step`, or `base` at rest where contact holds the body, and whether it does; only where `active`.

    A loop of at most one turn: a batch without a body at rest skips it.
    """

    def rest(carry: Any) -> Any:
        held = decided(holds(scene, base, trial, tau, carry[0]), carry[0])
        state = choose([(held, at_rest(base))], rest_step(scene, base, trial, tau, carry[0] & ~held))
        return jnp.zeros_like(active), state, held

    start = (active, base, jnp.zeros_like(active))
    return iterate_while(lambda carry: carry[0], rest, start)[1:]


def holds(scene: Scene, base: RigidState, trial: RigidState, tau: Array, active: Array) -> Array:
    """Whether contact can bring to rest a body that the forces of a step take from `base` to `trial`, and keep it so.

    The points are those that the free step brings inside.  A body that has just slid up a slope and turns can be
    stopped there but not kept: the motion of a step from rest must be stopped too.
    """
    body, friction = scene.body, scene.laws.friction
    mu = jnp.zeros_like(tau) if friction is None else friction
    rows = _nearest(scene, trial.pose)
    touching = _touching(scene, trial.pose, rows)
    touches = touching.gaps <= 1e-3 * jnp.abs(jnp.min(touching.gaps, initial=jnp.inf))
    moment, force = forces(body, base.pose)
    pushed = RigidState(base.pose, tau * moment, tau * force)
    given = kinetic_energy(body, pushed)
    slow = active & (kinetic_energy(body, base) <= SLOW**2 * (1.0 + mu * mu) * given)
    stops = _can_stop(body, mu, touching, touches, trial, given, slow)
    # From rest fewer points come inside than in motion.
    under = _touching(scene, base.pose, rows)
    final = _velocities(body, pushed, so3.act(base.pose.rotation, under.points))
    gaps = under.gaps + 0.5 * tau * sm.dot(final, under.normals)
    touches = gaps <= 1e-3 * jnp.abs(jnp.min(gaps, initial=jnp.inf))
    return _can_stop(body, mu, under, touches, pushed, given, stops)


def _can_stop(
    body: RigidBody, mu: Array, touching: Touching, touches: Array, start: RigidState, given: Array, active: Array
) -> Array:
    """Whether impulses can bring to rest a body with these momenta; only where `active`.

    Accelerated projected gradients find the impulses within the friction cones, at the points that touch, that leave
    the least kinetic energy, a convex problem.  The body is at rest when that is at most `HOLDS`² times the energy that
    the forces of a step give it, `given`.
    """
    points, normals, _ = touching
    R = start.pose.rotation
    lever = sm.matmul(R, sm.hat(points))
    yielding = sm.identity(3, given.dtype) / body.mass + sm.matmul(lever, sm.matmult(sm.inv3(body.inertia), lever))
    sizes = jnp.sqrt(jnp.sum(yielding * yielding, axis=(-2, -1)))
    total = jnp.sum(jnp.where(touches, sizes, jnp.zeros_like(sizes)))
    length = 1.0 / jnp.where(total > 0, total, jnp.ones_like(total))
    levers = so3.act(R, points)

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
        slope = _velocities(body, _struck(start, levers, ahead), levers)
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

    def moves(impulses: Array) -> Array:
        return kinetic_energy(body, _struck(start, levers, impulses)) > HOLDS**2 * given

    def unfinished(carry: Any) -> Array:
        impulses, _, _, small, k = carry
        return active & ~small & (k < MAX_TRIES) & moves(impulses)

    none = jnp.zeros_like(points)
    first = (none, none, jnp.ones_like(given), jnp.zeros_like(active), jnp.zeros((), jnp.int32))
    return active & ~moves(iterate_while(unfinished, iterate, first)[0])
