"""Sensors of a robot, in the order of the file, and those of its file that nothing here measures."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lgjax.dynamics.forces import Force
from lgjax.dynamics.transmissions import Transmissions
from lgjax.multibody.build import Body
from lgjax.multibody.importers.description import Description, Measure, Place
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.robots import sensors as made
from lgjax.robots.actuators import Actuators
from lgjax.robots.assembly.places import frame
from lgjax.robots.sensors import Beyond, Sensors

OF_FRAME: dict[str, Callable[..., Sensors]] = {
    "accelerometer": made.accelerometer,
    "gyro": made.gyro,
    "velocimeter": made.velocimeter,
}
OF_FRAMES: dict[str, Callable[..., Sensors]] = {
    "framepos": made.frame_position,
    "framequat": made.frame_orientation,
    "framelinvel": made.frame_linear_velocity,
    "frameangvel": made.frame_angular_velocity,
    "frameangacc": made.frame_angular_acceleration,
}
OF_SUBTREE: dict[str, Callable[..., Sensors]] = {
    "force": made.force,
    "torque": made.torque,
    "subtreecom": made.subtree_center_of_mass,
    "subtreelinvel": made.subtree_linear_velocity,
    "subtreeangmom": made.subtree_angular_momentum,
}
OF_JOINT: dict[str, Callable[..., Sensors]] = {
    "jointpos": made.joint_position,
    "jointvel": made.joint_velocity,
    "jointactfrc": made.joint_actuator_force,
    "ballquat": made.ball_orientation,
    "ballangvel": made.ball_velocity,
}


class Parts:
    """Parts of a robot that sensors may read besides its model."""

    def __init__(
        self,
        model: Model,
        description: Description,
        tendons: Transmissions | None,
        actuators: Actuators | None,
        forces: Force | None,
    ):
        self.model, self.description = model, description
        self.tendons, self.actuators, self.forces = tendons, actuators, forces


def sensors(parts: Parts) -> tuple[Sensors | None, list[str]]:
    """All sensors that can be made, and what is left out."""
    found, left_out = None, []
    for measure in parts.description.measures:
        one = _sensor(parts, measure)
        if one is None:
            left_out.append(f"sensor {measure.where} ({measure.kind})")
            continue
        if measure.delay or any(measure.interval):
            left_out.append(f"delay of sensor {measure.where}")
        found = one if found is None else found + one
    return found, left_out


def _sensor(parts: Parts, measure: Measure) -> Sensors | None:
    """The sensor; None for one whose target is not there, or that is not known."""
    model, kind, target = parts.model, measure.kind, measure.target
    options: dict[str, Any] = {"name": measure.name, "noise": measure.noise, "cutoff": measure.cutoff or np.inf}
    if isinstance(target, Place):
        return _of_place(parts, measure, target, options)
    if kind in OF_JOINT:
        return OF_JOINT[kind](model, [target], **options)
    if kind == "clock":
        return made.clock(model, **options)
    if kind == "e_kinetic":
        return made.kinetic_energy(model, **options)
    if kind == "e_potential":
        return made.potential_energy(model, parts.forces, **options)
    return _of_length(parts, kind, str(target), options)


def _of_place(parts: Parts, measure: Measure, target: Place, options: dict[str, Any]) -> Sensors | None:
    model, kind, at = parts.model, measure.kind, frame(parts.model, target)
    reference = None if measure.reference is None else frame(model, measure.reference)
    if kind in OF_FRAME:
        return OF_FRAME[kind](model, at, **options)
    if kind in OF_FRAMES:
        return OF_FRAMES[kind](model, at, reference, **options)
    if kind == "framelinacc":
        return made.frame_linear_acceleration(model, at, reference, proper=True, **options)
    if kind in ("framexaxis", "frameyaxis", "framezaxis"):
        return made.frame_axis(model, at, kind.removeprefix("frame")[0], reference, **options)
    if kind == "magnetometer":
        return made.magnetometer(model, at, parts.description.magnetic, **options)
    if kind == "touch":
        shape, size = measure.shape
        links = [target.link] if target.link is not None else []
        return made.touch(model, at, links, (shape, np.array(size[: SIZES[shape]])), **options) if links else None
    if kind in OF_SUBTREE and target.link is not None:
        return OF_SUBTREE[kind](model, at, _beyond(parts, target.link), **options)
    return None


SIZES = {"sphere": 1, "capsule": 2, "cylinder": 2, "box": 3, "ellipsoid": 3}


def _of_length(parts: Parts, kind: str, target: str, options: dict[str, Any]) -> Sensors | None:
    model, description = parts.model, parts.description
    tendons = [tendon.name for tendon in description.tendons]
    if kind in ("tendonpos", "tendonvel"):
        if parts.tendons is None or target not in tendons:
            return None
        make = made.length if kind == "tendonpos" else made.length_rate
        return make(model, parts.tendons, tendons.index(target), **options)
    if parts.actuators is None:
        return None
    pulling = [drive.name for drive in description.drives if drive.targets[0] == target]
    if kind == "tendonactfrc" and pulling:
        return made.actuator_force(model, parts.actuators, pulling, total=True, **options)
    if target not in parts.actuators.names:
        return None
    if kind == "actuatorfrc":
        return made.actuator_force(model, parts.actuators, target, **options)
    make = {"actuatorpos": made.length, "actuatorvel": made.length_rate}.get(kind)
    return None if make is None else make(model, parts.actuators, target, **options)


def _beyond(parts: Parts, link: str) -> Beyond | None:
    """Links and bodies beyond a link on a fixed joint; None for a link with a moving joint."""
    if link in parts.model.body_names:
        return None
    rigid, moving = [link], []
    for body in parts.description.bodies:  # parents come first
        if body.parent in rigid:
            (rigid if body.joint.kind == "fixed" else moving).append(body.name)
    by_name = {body.name: body for body in parts.description.bodies}
    return Beyond(link, _inertia(by_name, rigid, link), tuple(moving), tuple(rigid))


def _inertia(bodies: dict[str, Body], rigid: list[str], link: str) -> Inertia:
    """Inertia about the origin of the first of some links that are fixed to one another, and in its axes."""
    mass, moment, rotational = 0.0, np.zeros(3), np.zeros((3, 3))
    poses = {link: (np.eye(3), np.zeros(3))}
    for name in rigid:
        body = bodies[name]
        if name != link:
            turn, at = poses[str(body.parent)]
            poses[name] = turn @ body.rotation, at + turn @ body.position
        turn, at = poses[name]
        c = at + turn @ body.com
        mass, moment = mass + body.mass, moment + body.mass * c
        rotational += turn @ body.inertia @ turn.T + body.mass * (c @ c * np.eye(3) - np.outer(c, c))
    return Inertia(mass, moment, rotational)  # type: ignore[arg-type]
