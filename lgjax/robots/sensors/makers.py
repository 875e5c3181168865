"""Makers of sensors of frames, bodies and contacts. `scalar_makers.py` has those of joints, lengths and energies.

A frame is the name of a body or frame of the model, or a pair (name, Pose) of one and a pose in it. Every maker takes
`Options`. All readings are SI units. Read first: `record.py`.
"""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.robots.sensors import frames, subtrees
from lgjax.robots.sensors.frames import Frames, Magnetometers
from lgjax.robots.sensors.group import Group, Kind
from lgjax.robots.sensors.record import LEVELS, Sensors, level
from lgjax.robots.sensors.scene import label, located
from lgjax.robots.sensors.subtrees import Beyond, Subtrees
from lgjax.robots.sensors.touching import COUNT, EVERYWHERE, SIZES, TOUCH, ContactCounts, Touch


class Options(TypedDict, total=False):
    """Options of every maker, for all of its sensors. name: of the sensor, or names of several; None for the default.

    noise: standard deviation of the white noise of one reading. bias: that of a constant error, drawn at the start.
    drift: that of the walk of the bias in one second. cutoff: the largest reading, inf by default. See `Sensors.noisy`.
    Numbers, or arrays with an entry for each sensor, 0 by default.
    """

    name: str | Sequence[str] | None
    noise: Any
    bias: Any
    drift: Any
    cutoff: Any


def made(model: Model, group: Group, names: Sequence[str], options: Options) -> Sensors:
    """A record of the sensors of one group, called `names` unless the options name them."""
    given = dict(options)
    name = given.pop("name", None)
    chosen = tuple(names) if name is None else (name,) if isinstance(name, str) else checks.names("name", name)
    if len(chosen) != len(group):
        raise ValueError(f"name has {len(chosen)} names, expected {len(group)}")
    if unknown := set(given) - set(LEVELS):
        raise TypeError(f"unknown option {sorted(unknown)[0]!r} of a sensor; there are name, {', '.join(LEVELS)}")
    levels = {
        what: level(what, given.get(what, np.inf if what == "cutoff" else 0.0), chosen, model.dtype) for what in LEVELS
    }
    return Sensors(model, chosen, (group,), tuple((0, row) for row in range(len(group))), **levels)


def _one(pose: Any) -> Any:
    """A pytree of arrays as that of one sensor."""
    return jax.tree.map(lambda x: x[None], pose)


def _frame(model: Model | Mechanism, kind: Kind, frame: Any, reference: Any, suffix: str, options: Options) -> Sensors:
    model = checked_model(model, leaves=True)
    body, offset = located(model, frame)
    other, reference_offset = located(model, reference, "reference")
    group = Frames(kind, (body,), (other,), *_one((offset, reference_offset)))
    return made(model, group, [f"{label(frame)}_{suffix}"], options)


# ---- inertial units
def accelerometer(model: Model | Mechanism, frame: Any, **options: Unpack[Options]) -> Sensors:
    """Acceleration minus gravity (3,) of the frame's origin, in the frame, m/s^2: 9.81 upwards at rest."""
    return _frame(model, frames.ACCELEROMETER, frame, None, "accelerometer", options)


def gyro(model: Model | Mechanism, frame: Any, **options: Unpack[Options]) -> Sensors:
    """Angular velocity (3,) of the frame, in the frame, rad/s."""
    return _frame(model, frames.GYRO, frame, None, "gyro", options)


def velocimeter(model: Model | Mechanism, frame: Any, **options: Unpack[Options]) -> Sensors:
    """Velocity (3,) of the frame's origin, in the frame, m/s."""
    return _frame(model, frames.VELOCIMETER, frame, None, "velocimeter", options)


def magnetometer(model: Model | Mechanism, frame: Any, field: Any, **options: Unpack[Options]) -> Sensors:
    """Uniform field (3,) in the axes of the frame, such as the magnetic one. field: (3,) in the world, any unit."""
    model = checked_model(model, leaves=True)
    body, offset = located(model, frame)
    field = checks.array("field of the magnetometer", field, (3,), model.dtype, exact=True)
    group = Magnetometers(frames.MAGNETOMETER, (body,), _one(offset), field[None])
    return made(model, group, [f"{label(frame)}_magnetometer"], options)


# ---- frames
def frame_position(model: Model | Mechanism, frame: Any, reference: Any = None, **options: Unpack[Options]) -> Sensors:
    """Position (3,) of the frame's origin in the reference frame, m. reference: None is the world."""
    return _frame(model, frames.POSITION, frame, reference, "position", options)


def frame_orientation(
    model: Model | Mechanism, frame: Any, reference: Any = None, **options: Unpack[Options]
) -> Sensors:
    """Orientation of the frame in the reference frame: unit quaternion wxyz (4,), w >= 0."""
    return _frame(model, frames.ORIENTATION, frame, reference, "orientation", options)


def frame_axis(
    model: Model | Mechanism, frame: Any, axis: str, reference: Any = None, **options: Unpack[Options]
) -> Sensors:
    """Axis "x", "y" or "z" of the frame, a unit vector (3,) in the reference frame."""
    kind = frames.AXES[checks.choice("axis", axis, ("x", "y", "z"))]
    return _frame(model, kind, frame, reference, f"{axis}_axis", options)


def frame_linear_velocity(
    model: Model | Mechanism, frame: Any, reference: Any = None, **options: Unpack[Options]
) -> Sensors:
    """Velocity (3,) of the frame's origin relative to the reference frame, in its axes, m/s."""
    return _frame(model, frames.LINEAR_VELOCITY, frame, reference, "linear_velocity", options)


def frame_angular_velocity(
    model: Model | Mechanism, frame: Any, reference: Any = None, **options: Unpack[Options]
) -> Sensors:
    """Angular velocity (3,) of the frame relative to the reference frame, in its axes, rad/s."""
    return _frame(model, frames.ANGULAR_VELOCITY, frame, reference, "angular_velocity", options)


def frame_linear_acceleration(
    model: Model | Mechanism, frame: Any, reference: Any = None, proper: bool = False, **options: Unpack[Options]
) -> Sensors:
    """Acceleration (3,) of the frame's origin relative to the reference frame, in its axes, m/s^2.

    It is the derivative of `frame_linear_velocity`. proper: instead the acceleration minus gravity in the world, as
    for `accelerometer`, in the axes of the reference frame, whose motion does not count; it is MuJoCo's framelinacc.
    """
    kind = frames.PROPER_ACCELERATION if checks.truth("proper", proper) else frames.LINEAR_ACCELERATION
    return _frame(model, kind, frame, reference, "linear_acceleration", options)


def frame_angular_acceleration(
    model: Model | Mechanism, frame: Any, reference: Any = None, **options: Unpack[Options]
) -> Sensors:
    """Derivative (3,) of `frame_angular_velocity`, in the axes of the reference frame, rad/s^2."""
    return _frame(model, frames.ANGULAR_ACCELERATION, frame, reference, "angular_acceleration", options)


# ---- what is beyond a frame
def _subtree(
    model: Model | Mechanism, kind: Kind, frame: Any, beyond: Beyond | None, suffix: str, options: Options
) -> Sensors:
    model = checked_model(model, leaves=True)
    body, offset = located(model, frame)
    if body < 0 and beyond is None:
        raise ValueError(f"frame {label(frame)!r} is fixed to the world: say with beyond= what the sensor carries")
    roots, links, inertia = subtrees.hanging(model, body, beyond)
    group = Subtrees(kind, (body,), (roots,), (links,), *_one((offset, inertia)))
    return made(model, group, [f"{label(frame)}_{suffix}"], options)


def force(model: Model | Mechanism, frame: Any, beyond: Beyond | None = None, **options: Unpack[Options]) -> Sensors:
    """Force (3,) that a joint transmits to the bodies beyond it, in the axes of the frame, N.

    It is the force of the parent on the child, as in MuJoCo's force sensor: upwards at rest. Without `beyond` the joint
    is that of the body that carries the frame. The model merges links on fixed joints into one body; `beyond` describes
    the links beyond a fixed joint, and the sensor then measures that joint, with the mass of `beyond.inertia`. Contact
    forces count at their links; `Instant.wrenches` on a body act on the parent's side of its fixed joints. The reading
    includes forces between bodies that no joint transmits, such as those of springs between points and closed loops.
    """
    return _subtree(model, subtrees.FORCE, frame, beyond, "force", options)


def torque(model: Model | Mechanism, frame: Any, beyond: Beyond | None = None, **options: Unpack[Options]) -> Sensors:
    """Torque (3,) about the frame's origin that a joint transmits to the bodies beyond it, in the frame, N m.

    See `force`. The component along the axis of the joint is the torque of its actuator, damping and armature.
    """
    return _subtree(model, subtrees.TORQUE, frame, beyond, "torque", options)


def subtree_center_of_mass(
    model: Model | Mechanism, body: Any, beyond: Beyond | None = None, **options: Unpack[Options]
) -> Sensors:
    """Center of mass (3,) of a body and all bodies beyond it, world, m. beyond: as in `force`."""
    return _subtree(model, subtrees.CENTER_OF_MASS, body, beyond, "center_of_mass", options)


def subtree_linear_velocity(
    model: Model | Mechanism, body: Any, beyond: Beyond | None = None, **options: Unpack[Options]
) -> Sensors:
    """Velocity (3,) of the center of mass of a body and all bodies beyond it, world, m/s. beyond: as in `force`."""
    return _subtree(model, subtrees.LINEAR_VELOCITY, body, beyond, "subtree_velocity", options)


def subtree_angular_momentum(
    model: Model | Mechanism, body: Any, beyond: Beyond | None = None, **options: Unpack[Options]
) -> Sensors:
    """Angular momentum (3,) of a body and all bodies beyond it about their center of mass, world axes, kg m^2/s.

    beyond: as in `force`.
    """
    return _subtree(model, subtrees.ANGULAR_MOMENTUM, body, beyond, "angular_momentum", options)


# ---- contact
def touch(
    model: Model | Mechanism,
    frame: Any,
    links: str | Sequence[str] | None = None,
    zone: tuple[str, Any] | None = None,
    **options: Unpack[Options],
) -> Sensors:
    """Sum () of the normal forces at the contacts of some links, N.

    links: names as in `ContactForces.links`; None for all links fixed to the body of the frame. zone: shape around the
    frame's origin in which contacts count, with its size in m: ("sphere", radius), ("capsule" or "cylinder", (radius,
    half length along z)), ("box" or "ellipsoid", half extents (3,)); None counts all contacts. A contact is in the zone
    if its point is, or if the ray from its point along the normal, away from the link, meets the zone.
    """
    model = checked_model(model, leaves=True)
    body, offset = located(model, frame)
    if links is None:
        fixed = [name for name, on in model.tree.frames if on == body]
        chosen = (*([model.body_names[body]] if body >= 0 else []), *fixed)
    else:
        chosen = checks.names("links", [links] if isinstance(links, str) else links)
    kind, size = (EVERYWHERE, ()) if zone is None else _zone(zone)
    size = checks.array("size of the zone", size, (SIZES[kind],), model.dtype)
    size = checks.positive("size of the zone", size)
    whole = jnp.concatenate([size, jnp.ones(3 - len(size), model.dtype)])
    group = Touch(TOUCH, (body,), (chosen,), (kind,), *_one((offset, whole)))
    return made(model, group, [f"{label(frame)}_touch"], options)


def contact_count(
    model: Model | Mechanism,
    links: str | Sequence[str],
    others: str | Sequence[str | None] | None = None,
    **options: Unpack[Options],
) -> Sensors:
    """Number () of contacts with a positive normal force between some links and others.

    links, others: names as in `ContactForces.links`; None in the list of others is the ground. Without `others` all
    contacts of the links count. The derivative is zero. Source: MuJoCo's contact sensor with data "found".
    """
    model = checked_model(model, leaves=True)
    own = checks.names("links", [links] if isinstance(links, str) else links)
    if isinstance(others, str):
        others = (others,)
    if others is not None:
        checks.names("others", [name for name in others if name is not None])
    group = ContactCounts(COUNT, (own,), (None if others is None else tuple(others),))
    return made(model, group, [f"{'_'.join(own)}_contacts"], options)


def _zone(zone: Any) -> tuple[str, Any]:
    if not isinstance(zone, tuple) or len(zone) != 2:
        raise TypeError(f"zone is a pair of a kind and a size, got {checks.shown(zone)}")
    return checks.choice("kind of the zone", zone[0], tuple(SIZES)[1:]), zone[1]
