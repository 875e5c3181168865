"""Impact of one rigid body: the jump of its momenta.  Source: [tran2024] section 4.2."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lgjax.collisions.variational import BODY, POSE, RigidBody, RigidState, advance, departure, end_momenta
from lgjax.execution.compiled import compiled
from lgjax.groups import so3
from lgjax.groups.arguments import Fields, Maybe, takes
from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.status import NOT_FINITE, Flags

Array = jax.Array


class BounceStatus(Flags):
    """Flags that say what happened to a body; 0 means success, flags add up.

    The first three stop it: its state stays the last good one.

    NOT_FINITE      1: the motion or the distance is not a finite number
    STARTED_INSIDE  2: the first state penetrates a plane
    NOT_SOLVED      4: a step turns the body too far, even in parts: dt is too large
    ZENO            8: more impacts than a step may have or than can be counted: the body waited or came to rest, see
                    `bounce`
    GRAZING         16: an impact was almost tangential: derivatives through it mean nothing
    FLAT            32: an impact was on an edge or a face: the contact point was one of many
    NOT_RECORDED    64: more impacts and further parts of steps than `record`; derivatives are wrong from there on
    TOO_LONG        128: dt is too long for so fast a motion: an impact may have been missed
    """

    OK = 0
    NOT_FINITE = NOT_FINITE
    STARTED_INSIDE = 2
    NOT_SOLVED = 4
    ZENO = 8
    GRAZING = 16
    FLAT = 32
    NOT_RECORDED = 64
    TOO_LONG = 128


STOPPED = BounceStatus.STARTED_INSIDE | BounceStatus.NOT_SOLVED | BounceStatus.NOT_FINITE
GRAZING_RATIO = 1e-3  # of the approach to the speed of the contact point


class ContactPoint(NamedTuple):
    """The place where a body is closest to leaving the admissible set.

    gap     () signed distance, meters, negative inside.
    point   (3,) closest point of the body, body frame.
    normal  (3,) unit normal of the obstacle there, world frame, towards the admissible side.
    flat    () whether the closest point is one of many.
    plane   () index of the plane.
    """

    gap: Array
    point: Array
    normal: Array
    flat: Array
    plane: Array


class Laws(NamedTuple):
    """Laws of an impact: coefficients () of restitution and friction, None for no friction at all."""

    restitution: Array
    friction: Array | None


CONTACT = Fields(ContactPoint, ((), (3,), (3,), None, None))
LAWS = Fields(Laws, ((), Maybe(())))


def arm(contact: ContactPoint, pose: Pose) -> Array:
    """The moment χ (3,) in the body frame of a unit force along the normal.  Source: [tran2024] eq. (35)."""
    return sm.cross(contact.point, sm.tmatvec(pose.rotation, contact.normal))


def contact_velocity(body: RigidBody, state: RigidState, contact: ContactPoint) -> Array:
    """Velocity (3,) of the contact point of the body, world frame, m/s."""
    turning = sm.cross(sm.solve3(body.inertia, state.angular), contact.point)
    return state.linear / body.mass + so3.act(state.pose.rotation, turning)


def contact_speed(body: RigidBody, state: RigidState, contact: ContactPoint) -> Array:
    """Length () of the velocity of the contact point, m/s; without a derivative."""
    velocity = contact_velocity(body, state, contact)
    return jnp.sqrt(sm.dot(velocity, velocity))


def approach_rate(body: RigidBody, state: RigidState, contact: ContactPoint) -> Array:
    """Rate of the gap (), m/s: normal velocity of the contact point, negative for an approach."""
    return sm.dot(contact.normal, contact_velocity(body, state, contact))


def _after(state: RigidState, impulse: Array, contact: ContactPoint) -> RigidState:
    """The momenta after an impulse (3,), world frame, at the contact point."""
    body_impulse = sm.tmatvec(state.pose.rotation, impulse)
    angular = state.angular + sm.cross(contact.point, body_impulse)
    return RigidState(state.pose, angular, state.linear + impulse)


def impact(body: RigidBody, state: RigidState, contact: ContactPoint, laws: Laws) -> tuple[RigidState, Array]:
    """The state after an impact at a contact, and the normal impulse (), N s; nothing happens to a receding body.

    Without friction the momenta jump along the covector [χ, n] of the gap, which for restitution 1 keeps the energy
    exactly.  Friction is Coulomb's for the impulse: the frictionless one plus as much of the difference to the sticking
    one as the cone allows.  That never gains energy.  Source: [tran2024] eq. (40).
    """
    chi = arm(contact, state.pose)
    rate = approach_rate(body, state, contact)
    yielding = sm.dot(chi, sm.solve3(body.inertia, chi)) + sm.dot(contact.normal, contact.normal) / body.mass
    arrest = jnp.where(rate < 0, -rate / yielding, jnp.zeros_like(rate))  # the impulse that ends the approach
    size = (1.0 + laws.restitution) * arrest
    if laws.friction is None:
        return _after(state, size * contact.normal, contact), size
    pushed = (laws.friction > 0) & (rate < 0)
    slip = _sticking_impulse(body, state, contact) - arrest * contact.normal
    slip = jnp.where(pushed, slip, jnp.zeros_like(slip))
    normal = sm.dot(slip, contact.normal)
    tangential = slip - normal * contact.normal
    part = part_within(tangential, laws.friction * size, laws.friction * normal)
    impulse = size * contact.normal + part * slip
    return _after(state, impulse, contact), sm.dot(impulse, contact.normal)


def part_within(tangential: Array, limit: Array, gain: Array | float = 0.0) -> Array:
    """The largest part κ () <= 1 of an impulse t (..., 3) with |κ t| <= limit + κ gain.

    All is divided by a constant of its size first, so that second derivatives stay in the range of float32. They are 0
    where impulse and limit are below 4e-19 in float32.
    """
    size = jax.lax.stop_gradient(jnp.maximum(jnp.max(jnp.abs(tangential), axis=-1), limit))
    moves = size > 4 * float(jnp.finfo(size.dtype).tiny) ** 0.5
    size = jnp.where(size > 0, size, jnp.ones_like(size))
    t = jnp.where(moves[..., None], tangential, jax.lax.stop_gradient(tangential)) / size[..., None]
    limit, gain = (jnp.where(moves, x, jax.lax.stop_gradient(x)) / size for x in (limit, gain))
    square = sm.dot(t, t)
    slides = (square > 0) & (jnp.sqrt(jax.lax.stop_gradient(square)) > limit + gain)
    excess = jnp.sqrt(jnp.where(slides, square, jnp.ones_like(square))) - gain
    return jnp.where(slides, limit / jnp.where(slides, excess, jnp.ones_like(excess)), jnp.ones_like(limit))


def _sticking_impulse(body: RigidBody, state: RigidState, contact: ContactPoint) -> Array:
    """The impulse (3,), world frame, that brings the contact point to rest."""
    lever = sm.matmul(state.pose.rotation, sm.hat(contact.point))
    turned = sm.matmul(lever, sm.matmult(sm.inv3(body.inertia), lever))
    yielding = sm.identity(3, lever.dtype) / body.mass + turned
    return -sm.solve3(yielding, contact_velocity(body, state, contact))


@compiled
@takes(True, body=BODY, start=POSE, touching=POSE, h=(), next_h=(), contact=CONTACT, laws=LAWS)
def lagrangian_impact(
    body: RigidBody, start: Pose, touching: Pose, h: Array, next_h: Array, contact: ContactPoint, laws: Laws
) -> tuple[Pose, Array]:
    """The pose next_h after an impact at the pose `touching`, which came h after `start`, and the normal impulse ().

    The Lagrangian form of an impact: two poses in, the next one out; the Hamiltonian keeps its value.  The same map
    leads to the end of a step and to the next impact within it.  Source: [tran2024] Table 1 (a), F^i and F^Imp+.
    """
    struck, impulse = impact(body, end_momenta(body, start, touching, h), contact, laws)
    return advance(touching, departure(body, struck, next_h)[0]), impulse
