"""An instant of a mechanism: all that sensors may depend on, and how it is made of a state or of a step.

Read first: `Instant`. Next: `scene.py`, its kinematics.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.contact.contacts import Contacts
from lgjax.contact.time_stepping import contact_points
from lgjax.dynamics.forward import forward_dynamics
from lgjax.dynamics.jacobians import carrier
from lgjax.dynamics.kinematics import forward_kinematics
from lgjax.multibody.arguments import checked_arguments, checked_array, checked_configuration, checked_model
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ContactForces:
    """Forces at n contacts, world frame. `contact_forces` returns those of rigid contacts.

    point: (n, 3) m. force: (n, 3) N, on the first link of each pair. normal: (n, 3), unit vectors towards that link.
    links: for each contact the two links, names of bodies or frames; the second is None for the ground.
    """

    point: Array
    force: Array
    normal: Array
    links: tuple[tuple[str, str | None], ...] = field(metadata={"static": True})


class Instant(NamedTuple):
    """State of a mechanism at one time, with accelerations and forces; None for those that are not known.

    t: () s. q, v (nv,): its state. vdot: (nv,) accelerations. wrenches: (nbodies, 6), external wrenches [n, f] on the
    bodies without those of contacts, body frames; None for none. contact: `ContactForces`, None for none.
    actuator_force: (n,) forces of actuators, N or N m, as `Actuators.forces` returns them. actuator_torque: (nv,)
    generalized forces of all actuators. limit_force: (nv,) generalized forces of joint limits.
    """

    t: Any
    q: Any
    v: Any = None
    vdot: Any = None
    wrenches: Any = None
    contact: ContactForces | None = None
    actuator_force: Any = None
    actuator_torque: Any = None
    limit_force: Any = None


def checked_instant(model: Model, given: Any) -> Instant:
    """`given`, an Instant of one state of the model; TypeError or ValueError naming what does not fit."""
    found = checks.of_kind("what sensors read", given, Instant)
    shapes = {"t": (), "v": (model.nv,), "vdot": (model.nv,), "wrenches": (model.nbodies, 6)}
    shapes |= {"actuator_torque": (model.nv,), "limit_force": (model.nv,)}
    arrays = {
        name: checks.scalar("t", found.t, model.dtype)
        if name == "t"
        else checked_array(name, getattr(found, name), shape, model.dtype, model=model)
        for name, shape in shapes.items()
        if getattr(found, name) is not None
    }
    if found.contact is not None:
        checks.of_kind("contact", found.contact, ContactForces)
    return found._replace(q=checked_configuration("q", found.q, model), **arrays)


@checked_arguments("forces", compiles=False)
def contact_forces(model: Model, contacts: Contacts, q: Configuration, forces: Array) -> ContactForces:
    """Contact forces of all n candidates in the world frame, as `ContactForces`.

    forces: (n, 3) N in the contact frames (normal, two tangents): `ContactRecord.force`, or the impulses of
    `contact_step` divided by dt. Raises ValueError for forces of another shape.
    """
    forces = checks.array("forces", forces, (len(contacts), 3), model.dtype, exact=True)
    found = contact_points(model, contacts, q)
    return ContactForces(found.point, sm.tmatvec(found.frame, forces), found.frame[:, 0], contacts.links)


def instant(
    model: Model | Mechanism,
    t: ArrayLike | None,
    q: Configuration,
    v: Array,
    tau: Array | None = None,
    wrenches: Array | None = None,
    *,
    contact: ContactForces | None = None,
    actuator_force: Array | None = None,
    actuator_torque: Array | None = None,
    limit_force: Array | None = None,
) -> Instant:
    """Instant of the state (q, v) at time t, with the accelerations of `forward_dynamics` under the given forces.

    tau: (nv,) N m or N, sum of the generalized forces of actuators, springs and limits; None for none. For a Robot it
    is robot.actuators.torque(q, v, control, activation) plus robot.forces(t, q, v), where it has them. wrenches,
    contact: they act as well. actuator_force, actuator_torque, limit_force: only for sensors that read them, they do
    not act. See `Instant`. Closed loops do not act either: read robots with loops by `after_step`. Raises ValueError
    for wrong shapes.
    """
    model = checked_model(model, leaves=True)
    found = Instant(t, q, v, None, wrenches, contact, actuator_force, actuator_torque, limit_force)
    found = checked_instant(model, found)
    tau = jnp.zeros_like(found.v) if tau is None else tau
    pushed = found.wrenches
    if contact is not None:
        touched = _contact_wrenches(model, found.q, contact)
        pushed = touched if pushed is None else pushed + touched
    return found._replace(vdot=forward_dynamics(model, found.q, found.v, tau, pushed))


def after_step(
    model: Model | Mechanism,
    t: ArrayLike | None,
    q: Configuration,
    v: Array,
    v_before: Array,
    dt: ArrayLike,
    *,
    contacts: Contacts | None = None,
    force: Array | None = None,
    wrenches: Array | None = None,
    actuator_force: Array | None = None,
    actuator_torque: Array | None = None,
    limit_force: Array | None = None,
) -> Instant:
    """Instant of the state (q, v) after a step of dt seconds, with the mean accelerations (v - v_before) / dt.

    Use it with rigid contacts, where velocities jump: an accelerometer then reads the mean over the step. v_before:
    (nv,) velocities before the step. contacts, force: give both or neither; force (n, 3) N are the mean forces in the
    contact frames, `ContactRecord.force` or the impulses of `contact_step` divided by dt. Other arguments are means
    over the step, as in `Instant`. Poses and velocities are those of (q, v): readings of forces have errors of order dt
    in motion, and none at rest. Raises ValueError for wrong shapes.
    """
    model = checked_model(model, leaves=True)
    if (contacts is None) != (force is None):
        raise ValueError("contacts and force go together: give both or neither")
    contact = None if contacts is None or force is None else contact_forces(model, contacts, q, force)
    found = Instant(t, q, v, v_before, wrenches, contact, actuator_force, actuator_torque, limit_force)
    found = checked_instant(model, found)
    dt = checks.scalar("dt", dt, model.dtype, positive=True)
    return found._replace(vdot=(found.v - found.vdot) / dt)


def _contact_wrenches(model: Model, q: Configuration, contact: ContactForces) -> Array:
    """Wrenches (nbodies, 6) of contacts on the bodies, body frames."""
    poses = forward_kinematics(model, q)
    total = jnp.zeros((model.nbodies, 6), model.dtype)
    for side, sign in ((0, 1), (1, -1)):
        body = np.asarray([body_of(model, pair[side]) for pair in contact.links], int)
        taken = np.flatnonzero(body >= 0)
        if len(taken):
            R, p = jax.tree.map(lambda x, b=body[taken]: x[b], poses)
            force, arm = sign * contact.force[taken], contact.point[taken] - p
            wrench = sm.join(sm.tmatvec(R, sm.cross(arm, force)), sm.tmatvec(R, force))
            total = total.at[body[taken]].add(wrench)
    return total


def body_of(model: Model, link: str | None) -> int:
    """The body that carries a link, -1 for the world."""
    return -1 if link is None else carrier(model, link)[0]
