"""Rigid contacts in `rollout`: every step is one of `contact_step`, and what happens at the contacts is recorded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact import ContactStatus, TimeStepping, contact_points, contact_step
from lgjax.contact.contacts import Contacts
from lgjax.dynamics.time_derivatives.taylor_series import checked_result
from lgjax.integrators.method import Method
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics.status import flag

Array = jax.Array

STICKS = 1e-6  # a contact may slide whose friction is this close to its cone, relatively


class ContactRecord(NamedTuple):
    """What happened at n contacts, with a leading time axis (T,), as the states.

    force: (T, n, 3) N, mean over the step that led to the state, in the contact frames (normal, two tangents); zero at
    the start. velocity: (T, n, 3) m/s of the contacts after that step. gap: (T, n) m, at the state. state: (T, n)
    int32, 0 open, 1 sticking, 2 sliding. residual: (T,) m/s, the largest violation of the law of contact in any step so
    far. joint_force: (T, nv) N m or N, mean over that step, of joint limits and dry joint friction.
    """

    force: Array
    velocity: Array
    gap: Array
    state: Array
    residual: Array
    joint_force: Array


class _Seen(NamedTuple):
    """Of the last step, the worst residual so far, and whether any step was not solved (1.0 or 0.0)."""

    impulse: Array
    velocity: Array
    residual: Array
    failed: Array
    joint_impulse: Array


@dataclass(frozen=True)
class _Stepping(Method):
    """`TimeStepping` of one mechanism, on states ((q, v), seen)."""

    model: Model
    contacts: Contacts
    method: TimeStepping
    controller: Callable | None
    wrenches: Callable | None

    def init(self, space, field, t, y):
        return ()

    def step(self, space, field, t, y, h, carry):
        (q, v), seen = y
        model = self.model
        half = t + 0.5 * h

        def tau(q: Configuration, v: Array) -> Array:
            if self.controller is None:
                return jnp.zeros_like(v)
            return checked_result("controller", self.controller(half, q, v), v.shape, v.dtype)

        def wrenches(q: Configuration, v: Array) -> Array:
            assert self.wrenches is not None
            return checked_result("wrenches", self.wrenches(half, q, v), (model.nbodies, 6), v.dtype)

        applied = None if self.wrenches is None else wrenches
        found = contact_step(model, self.contacts, q, v, tau, h, seen.impulse, applied, method=self.method)
        failed = (found.status & int(ContactStatus.NOT_SOLVED) > 0).astype(v.dtype)
        residual = jnp.maximum(seen.residual, found.residual)
        failed = jnp.maximum(seen.failed, failed)
        new = _Seen(found.impulse, found.velocity, residual, failed, found.joint_impulse)
        return ((found.q, found.v), new), ()


def with_contacts(model: Model, contacts: Contacts, start, method: TimeStepping, controller, wrenches):
    """Start and method for states ((q, v), seen) from the start (q, v)."""
    none = jnp.zeros((len(contacts), 3), model.dtype)
    zero = jnp.zeros((), model.dtype)
    return (start, _Seen(none, none, zero, zero, jnp.zeros(model.nv, model.dtype))), _Stepping(
        model, contacts, method, controller, wrenches
    )


def contact_report(model: Model, contacts: Contacts, qs: Configuration, seen: Any, h: Array):
    """The record of the saved states and the status () of all steps."""
    gap = jax.vmap(lambda q: contact_points(model, contacts, q).gap)(qs)
    force = seen.impulse / h
    size = jnp.sqrt(jnp.sum(force[..., 1:] ** 2, -1))
    slip = jnp.sqrt(jnp.sum(seen.velocity[..., 1:] ** 2, -1))
    # Where contacts share a load in many ways, one may be at its cone though nothing moves.
    moves = slip > float(jnp.finfo(slip.dtype).eps) ** 0.5
    pushes, slides = force[..., 0] > 0, moves & (size >= (1 - STICKS) * contacts.friction * force[..., 0])
    state = jnp.where(pushes, jnp.where(slides, jnp.int32(2), jnp.int32(1)), jnp.int32(0))
    record = ContactRecord(force, seen.velocity, gap, state, seen.residual, seen.joint_impulse / h)
    return record, flag(ContactStatus.NOT_SOLVED, seen.failed[-1] > 0)


def check_contacts(contacts: Any, method: Any, closed: Any, checkpoint: Any = None) -> None:
    """Raise TypeError or ValueError for contacts and a method that do not go together."""
    if contacts is None:
        return
    if not isinstance(contacts, Contacts):
        raise TypeError(f"contacts must be Contacts, got {contacts!r}")
    if not isinstance(method, TimeStepping):
        raise ValueError(
            f"rigid contacts take method=lgjax.contact.TimeStepping(), got {method!r}; for compliant ones with any "
            "method add lgjax.forces.contact to the controller"
        )
    if closed:
        raise ValueError("contacts and closed loops are not solved together")
