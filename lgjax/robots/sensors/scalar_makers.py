"""Makers of sensors of joints, lengths, actuators, energies and of the clock.

Joints are given by a name, several names, or None for all that have what is measured; then there are several sensors.
Read first: `makers.py`.
"""

from collections.abc import Sequence
from typing import Any, Unpack

import jax.numpy as jnp

from lgjax.dynamics.forces import Force
from lgjax.dynamics.joint_parameters import scalars_of
from lgjax.dynamics.transmissions import Transmissions
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics.messages import listed
from lgjax.robots.sensors import scalars
from lgjax.robots.sensors.group import Kind
from lgjax.robots.sensors.makers import Options, made
from lgjax.robots.sensors.record import Sensors
from lgjax.robots.sensors.scalars import ActuatorForces, Energies, Entries, Lengths

Joints = str | Sequence[str] | None


def _several(what: str, given: Any) -> tuple[str, ...] | None:
    return None if given is None else (given,) if isinstance(given, str) else checks.names(what, given)


def _scalars(model: Model | Mechanism, kind: Kind, joints: Joints, suffix: str, read: str, options: Options) -> Sensors:
    """read: whether the entries are coordinates "q", velocities "v", or both."""
    model = checked_model(model, leaves=True)
    chosen = _several("joints", joints)
    found = list(zip(*scalars_of(model, chosen), strict=True))
    if chosen is not None:
        found.sort(key=lambda row: chosen.index(row[0]))
    names, v_index, q_index = ([row[k] for row in found] for k in range(3))
    rows = {"q": zip(q_index), "v": zip(v_index), "qv": zip(q_index, v_index, strict=True)}
    called = [name if names.count(name) == 1 else f"{name}[{names[:k].count(name)}]" for k, name in enumerate(names)]
    return made(model, Entries(kind, tuple(rows[read])), [f"{name}_{suffix}" for name in called], options)


# ---- joints
def joint_position(model: Model | Mechanism, joints: Joints = None, **options: Unpack[Options]) -> Sensors:
    """Coordinates () of joints, rad or m: one sensor for each scalar coordinate."""
    return _scalars(model, scalars.JOINT_POSITION, joints, "position", "q", options)


def joint_velocity(model: Model | Mechanism, joints: Joints = None, **options: Unpack[Options]) -> Sensors:
    """Velocities () of joints, rad/s or m/s: one sensor for each scalar coordinate."""
    return _scalars(model, scalars.JOINT_VELOCITY, joints, "velocity", "v", options)


def joint_actuator_force(model: Model | Mechanism, joints: Joints = None, **options: Unpack[Options]) -> Sensors:
    """Generalized forces () of all actuators at joints, N m or N: entries of `Instant.actuator_torque`."""
    return _scalars(model, scalars.JOINT_ACTUATOR_FORCE, joints, "actuator_force", "v", options)


def joint_limit_position(model: Model | Mechanism, joints: Joints = None, **options: Unpack[Options]) -> Sensors:
    """Distances () to the limit that a joint has passed, rad or m, negative; 0 within the limits."""
    return _scalars(model, scalars.LIMIT_POSITION, joints, "limit_position", "q", options)


def joint_limit_velocity(model: Model | Mechanism, joints: Joints = None, **options: Unpack[Options]) -> Sensors:
    """Rates () of `joint_limit_position`, rad/s or m/s: positive on the way back; 0 within the limits."""
    return _scalars(model, scalars.LIMIT_VELOCITY, joints, "limit_velocity", "qv", options)


def joint_limit_force(model: Model | Mechanism, joints: Joints = None, **options: Unpack[Options]) -> Sensors:
    """Magnitudes () of the generalized forces of joint limits, N m or N: entries of `Instant.limit_force`."""
    return _scalars(model, scalars.LIMIT_FORCE, joints, "limit_force", "v", options)


def ball_orientation(model: Model | Mechanism, joints: Joints = None, **options: Unpack[Options]) -> Sensors:
    """Rotations of spherical joints, child to parent: unit quaternions wxyz (4,), w >= 0."""
    return _balls(model, scalars.BALL_ORIENTATION, joints, "orientation", options)


def ball_velocity(model: Model | Mechanism, joints: Joints = None, **options: Unpack[Options]) -> Sensors:
    """Angular velocities (3,) of spherical joints, in the frame of the child, rad/s."""
    return _balls(model, scalars.BALL_VELOCITY, joints, "velocity", options)


def _balls(model: Model | Mechanism, kind: Kind, joints: Joints, suffix: str, options: Options) -> Sensors:
    model = checked_model(model, leaves=True)
    tree, chosen = model.tree, _several("joints", joints)
    known = {name: k for k, name in enumerate(tree.joint_names) if tree.kinds[k].coordinates == "ball_rotations"}
    names = tuple(known) if chosen is None else chosen
    for name in names:
        if name not in known:
            raise ValueError(f"no spherical joint {name!r} in {model.name!r}; spherical joints: {listed(known)}")
    if kind == scalars.BALL_ORIENTATION:
        entries = tuple((tree.q_start[known[name]],) for name in names)
    else:
        entries = tuple(tuple(tree.v_start[known[name]] + k for k in range(3)) for name in names)
    return made(model, Entries(kind, entries), [f"{name}_{suffix}" for name in names], options)


# ---- tendons and actuators
def length(model: Model | Mechanism, transmissions: Any, which: Any = None, **options: Unpack[Options]) -> Sensors:
    """Lengths () of tendons or of the transmissions of actuators, m or rad.

    transmissions: `lgjax.actuators.Transmissions`, or `Actuators` for theirs. which: indices, or names of actuators;
    None for all. One sensor for each.
    """
    return _lengths(model, scalars.LENGTH, transmissions, which, "position", options)


def length_rate(model: Model | Mechanism, transmissions: Any, which: Any = None, **options: Unpack[Options]) -> Sensors:
    """Rates () of change of `length`, m/s or rad/s."""
    return _lengths(model, scalars.LENGTH_RATE, transmissions, which, "velocity", options)


def _lengths(
    model: Model | Mechanism, kind: Kind, transmissions: Any, which: Any, suffix: str, options: Options
) -> Sensors:
    model = checked_model(model, leaves=True)
    found = checks.of_kind("transmissions", getattr(transmissions, "transmission", transmissions), Transmissions)
    names = tuple(getattr(transmissions, "names", [f"length[{k}]" for k in range(len(found))]))
    if found.tree != model.tree:
        raise ValueError(f"the transmissions are of {found.tree.name!r}, not of {model.name!r}")
    index = _chosen("which", which, names)
    return made(model, Lengths(kind, index, found), [f"{names[k]}_{suffix}" for k in index], options)


def actuator_force(
    model: Model | Mechanism, actuators: Any, which: Any = None, total: bool = False, **options: Unpack[Options]
) -> Sensors:
    """Forces () of actuators, N or N m: entries of `Instant.actuator_force`.

    actuators: `Actuators`, or the names of all actuators in the order of the forces. which: names or indices, None for
    all. total: one sensor for the sum, such as of all actuators that pull on one tendon.
    """
    model = checked_model(model, leaves=True)
    names = checks.names("actuators", getattr(actuators, "names", actuators))
    index = _chosen("which", which, names)
    together = checks.truth("total", total)
    entries = (index,) if together else tuple((k,) for k in index)
    called = ["actuator_force"] if together else [f"{names[k]}_force" for k in index]
    return made(model, ActuatorForces(scalars.ACTUATOR_FORCE, entries), called, options)


def _chosen(what: str, given: Any, names: tuple[str, ...]) -> tuple[int, ...]:
    """Indices of those given by names or indices."""
    if given is None:
        return tuple(range(len(names)))
    some = [given] if isinstance(given, str) or not hasattr(given, "__iter__") else list(given)
    for one in some:
        if isinstance(one, str) and one not in names:
            raise ValueError(f"{what}: there is no {one!r}; there are {listed(names)}")
    return checks.indices(what, [names.index(x) if isinstance(x, str) else x for x in some], len(names), "entry", "n")


# ---- the whole
def clock(model: Model | Mechanism, **options: Unpack[Options]) -> Sensors:
    """Time (), s."""
    return made(checked_model(model, leaves=True), Entries(scalars.CLOCK, ((),)), ["clock"], options)


def potential_energy(
    model: Model | Mechanism, forces: Force | None = None, offset: Any = 0.0, **options: Unpack[Options]
) -> Sensors:
    """Potential energy () of gravity and of `forces` such as springs, J, plus `offset`.

    MuJoCo also counts links that are fixed to the world, which are not in the model; `offset` (J) can add them.
    """
    model = checked_model(model, leaves=True)
    if forces is not None:
        checks.of_kind("forces", forces, Force)
    offset = checks.array("offset", offset, (1,), model.dtype)
    return made(model, Energies(scalars.POTENTIAL_ENERGY, offset, (forces,)), ["potential_energy"], options)


def kinetic_energy(model: Model | Mechanism, **options: Unpack[Options]) -> Sensors:
    """Kinetic energy (), J, including that of the armature."""
    model = checked_model(model, leaves=True)
    none = jnp.zeros(1, model.dtype)
    return made(model, Energies(scalars.KINETIC_ENERGY, none, (None,)), ["kinetic_energy"], options)
