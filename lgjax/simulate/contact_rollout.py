"""Rigid contacts in `rollout`: steps of `contact_step` or of `event_step`, and the record of what happens."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact import (
    ContactStatus,
    EventDriven,
    TimeStepping,
    contact_points,
    contact_step,
    contact_velocities,
)
from lgjax.contact.contacts import Contacts
from lgjax.contact.event_driven import event_step
from lgjax.contact.modes import Tolerances
from lgjax.dynamics.loops.status import LoopStatus
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.status import flag
from lgjax.simulate.loop_rollout import loop_report, loop_status, loops_seen, watched
from lgjax.simulate.steppers import Stepper

Array = jax.Array

STICKS = 1e-6  # a contact may slide whose friction is this close to its cone, relatively


class ContactRecord(NamedTuple):
    """Record of n contacts, with a leading time axis (T,), as the states.

    force: (T, n, 3) N, mean over the step that led to the state, in the contact frames (normal, two tangents); zero at
    the start. velocity: (T, n, 3) m/s of the contacts after that step. gap: (T, n) m, at the state. state: (T, n)
    int32, 0 open, 1 sticking, 2 sliding. residual: (T,) the largest violation of the law of contact in any step so far,
    in m/s, with `EventDriven` as a part of the largest velocity or acceleration. joint_force: (T, nv) N m or N, mean
    over that step, of joint limits and dry joint friction.
    """

    force: Array
    velocity: Array
    gap: Array
    state: Array
    residual: Array
    joint_force: Array


class _Seen(NamedTuple):
    """Impulses and velocities of the last step, the worst residual so far, and flags of all steps, 1.0 or 0.0: not
    solved, ended early, impacts at once of which one sets off another."""

    impulse: Array
    velocity: Array
    residual: Array
    failed: Array
    joint_impulse: Array
    early: Array
    at_once: Array
    left_out: Array
    loops: Any = ()  # the record of closed loops, see `loop_rollout`


@dataclass(frozen=True)
class _ContactSteps(Stepper):
    """Common parts of steps with rigid contacts. loops: closed loops, which `TimeStepping` keeps closed."""

    model: Model
    contacts: Contacts
    method: Any
    loops: tuple = ()

    def first_seen(self, q, v):
        none, zero = jnp.zeros((len(self.contacts), 3), v.dtype), jnp.zeros((), v.dtype)
        return _Seen(none, none, zero, zero, jnp.zeros_like(v), zero, zero, zero, self._loops_seen(q, v))

    def _loops_seen(self, q, v):
        return watched(self.model, self.loops, q, v) if self.loops else ()

    def status(self, seen):
        found = flag(ContactStatus.NOT_SOLVED, seen.failed > 0) | flag(ContactStatus.TOO_MANY_PARTS, seen.early > 0)
        found = found | flag(ContactStatus.AT_ONCE, seen.at_once > 0)
        found = found | flag(ContactStatus.TOO_MANY_NEAR, seen.left_out > 0)
        return found | loop_status(seen.loops) if self.loops else found

    def report(self, qs, vs, seen, h):
        found: dict[str, Any] = loop_report(seen.loops) if self.loops else {}
        if len(self.contacts) or self.contacts.limited or self.contacts.dry:
            found["contacts"] = contact_record(self.model, self.contacts, qs, vs, self.method, seen, h)
        return found


class EventSteps(_ContactSteps):
    """`EventDriven`."""

    def step(self, forces, t, q, v, h, seen, carry):
        acting = lambda s, q, v: (self.tau(forces, t + s, q, v), self.applied(forces, t + s, q, v))
        found = event_step(self.model, self.contacts, q, v, acting, h, self.method)
        had = lambda which: (found.status & int(which) > 0).astype(v.dtype)
        new = seen._replace(
            impulse=found.impulse,
            residual=jnp.maximum(seen.residual, found.residual),
            failed=jnp.maximum(seen.failed, had(ContactStatus.NOT_SOLVED)),
            early=jnp.maximum(seen.early, had(ContactStatus.TOO_MANY_PARTS)),
        )
        return found.q, found.v, new, ()


class TimeSteps(_ContactSteps):
    """`TimeStepping`, with contacts and loops or without."""

    def step(self, forces, t, q, v, h, seen, carry):
        half = t + 0.5 * h
        applied = None if forces.wrenches is None else partial(self.applied, forces, half)
        gives = None if forces.implicit is None else partial(forces.implicit, half)
        tau, loops = partial(self.tau, forces, half), self.loops or None
        guess = seen.impulse, seen.joint_impulse
        found = contact_step(self.model, self.contacts, q, v, tau, h, guess, applied, loops, gives, method=self.method)
        had = lambda which: (found.status & int(which) > 0).astype(v.dtype)
        redundant = found.status & int(LoopStatus.REDUNDANT) > 0
        closed = loops_seen(found.open, found.slip, found.v, jnp.zeros((), bool), redundant)
        new = seen._replace(
            impulse=found.impulse,
            velocity=found.velocity,
            residual=jnp.maximum(seen.residual, found.residual),
            failed=jnp.maximum(seen.failed, had(ContactStatus.NOT_SOLVED)),
            at_once=jnp.maximum(seen.at_once, had(ContactStatus.AT_ONCE)),
            left_out=jnp.maximum(seen.left_out, had(ContactStatus.TOO_MANY_NEAR)),
            joint_impulse=found.joint_impulse,
            loops=jnp.maximum(seen.loops, closed) if self.loops else (),
        )
        return found.q, found.v, new, ()


def contact_record(model: Model, contacts: Contacts, qs: Configuration, vs: Array, method, seen: Any, h: Array):
    """The record of the saved states."""
    gap = jax.vmap(lambda q: contact_points(model, contacts, q).gap)(qs)
    force = seen.impulse / h
    if isinstance(method, EventDriven):
        velocity = jax.vmap(lambda q, v: contact_velocities(model, contacts, q, v))(qs, vs)
        state = _states(gap, velocity, vs)
        return ContactRecord(force, velocity, gap, state, seen.residual, seen.joint_impulse / h)
    size = jnp.sqrt(jnp.sum(force[..., 1:] ** 2, -1))
    slip = jnp.sqrt(jnp.sum(seen.velocity[..., 1:] ** 2, -1))
    # Where contacts share a load in many ways, one may be at its cone though nothing moves.
    moves = slip > float(jnp.finfo(slip.dtype).eps) ** 0.5
    pushes, slides = force[..., 0] > 0, moves & (size >= (1 - STICKS) * contacts.friction * force[..., 0])
    state = jnp.where(pushes, jnp.where(slides, jnp.int32(2), jnp.int32(1)), jnp.int32(0))
    return ContactRecord(force, seen.velocity, gap, state, seen.residual, seen.joint_impulse / h)


def _states(gap: Array, velocity: Array, v: Array) -> Array:
    """State of each contact (T, n): 0 open, 1 sticking, 2 sliding. It is closed without a gap and a normal velocity."""
    small = Tolerances.of(gap.dtype)
    slow = small.velocity * (1 + jnp.max(jnp.abs(v), -1))[:, None]
    closed = (gap <= small.gap) & (jnp.abs(velocity[..., 0]) <= slow)
    slides = jnp.sum(velocity[..., 1:] ** 2, -1) > slow**2
    return jnp.where(closed, jnp.where(slides, jnp.int32(2), jnp.int32(1)), jnp.int32(0))


def check_contacts(contacts: Any, method: Any, closed: Any, checkpoint: Any = None) -> None:
    """Raise TypeError or ValueError for contacts and a method that do not go together."""
    if contacts is None and isinstance(method, EventDriven):
        raise ValueError("EventDriven needs contacts; without any, take a method of lgjax.integrators")
    if contacts is None:
        return
    if not isinstance(contacts, Contacts):
        raise TypeError(f"contacts must be Contacts, got {checks.shown(contacts)}")
    if not isinstance(method, TimeStepping | EventDriven):
        raise ValueError(
            "rigid contacts take method=lgjax.contact.TimeStepping() or contact.EventDriven(), got "
            f"{method!r}; for compliant ones with any method add lgjax.forces.contact to the controller"
        )
    smoothing = contacts.smoothing
    if isinstance(method, EventDriven) and smoothing is not None and checks.known(smoothing) and float(smoothing) > 0:
        raise ValueError(f"EventDriven takes contacts without smoothing, got {float(smoothing):g} m")
    if isinstance(method, EventDriven) and (len(contacts.limited) or len(contacts.dry)):
        raise ValueError("EventDriven takes contacts without joint_limits and joint_friction; TimeStepping has both")
    if closed and isinstance(method, EventDriven):
        raise ValueError("EventDriven takes no closed loops; contact.TimeStepping solves them together with contacts")
