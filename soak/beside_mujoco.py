"""A robot from an MJCF beside MuJoCo's reading of it, at random states.

What a robot has and MuJoCo calls a constraint (loops, limits, dry friction, contact) is left out on both sides, for it
is exact or smooth here and soft there.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import lgjax
from lgjax.conventions import from_mujoco, to_mujoco
from lgjax.dynamics.forces import Force, Sum
from lgjax.dynamics.forces.tendons import TendonFriction, TendonLimits
from lgjax.multibody.importers.description import Description
from lgjax.multibody.importers.mjcf.loading import describe_mjcf
from lgjax.multibody.importers.mjcf.sensors import READ, kind_of
from lgjax.multibody.importers.source import read
from lgjax.robots.assembly.transmissions import tendon_lengths
from lgjax.sensors import ContactForces, Instant
from soak.answers import Answer, first, states


class Given(NamedTuple):
    """Flat states of MuJoCo, controls and activations, (STATES, ...), and a velocity basis turned into its frame."""

    q: np.ndarray
    v: np.ndarray
    control: np.ndarray
    activation: np.ndarray
    turns: np.ndarray


def described(path: Path, folder: Path, ignore: frozenset[str]) -> Description:
    """What the importer reads of an MJCF: names of tendons, and which sensors there are."""
    return describe_mjcf(read(path, "robot"), "warn", folder, ignore, 64)


def beside_mujoco(robot: Any, description: Description, theirs: Any, seed: int, count: int) -> list[Answer]:
    """All that a state has: mass matrix, forces of all kinds, actuators, tendons, sensors.

    Accelerations that sensors read are MuJoCo's own, so that a mass matrix of any condition may stand between.
    """
    off = mujoco.mjtDisableBit
    theirs.opt.disableflags |= int(off.mjDSBL_CONTACT.value | off.mjDSBL_CONSTRAINT.value)
    given = _states(robot.model, theirs, seed, count)
    expected = _answers_of_mujoco(theirs, given)
    names = [_name(theirs, "ACTUATOR", i) for i in range(theirs.nu)]
    on = [] if robot.actuators is None else [names.index(name) for name in robot.actuators.names]
    active = [theirs.actuator_actadr[i] for i in on if theirs.actuator_actadr[i] >= 0]
    inputs = given.q, given.v, given.control[:, on], given.activation[:, active], expected["qacc"]
    tendons = tendon_lengths(robot.model, description.tendons)
    ours = _ours(robot.replace(forces=smooth(robot.forces)), tendons, theirs.opt.timestep, *inputs)
    rope = [_name(theirs, "TENDON", i) for i in range(theirs.ntendon)]
    columns = {
        "actuator forces": on,
        "tendon lengths": [rope.index(tendon.name) for tendon in description.tendons],
        "sensors": _columns_read(robot, description, theirs),
    }
    answers = []
    for name, value in ours.items():
        there = expected[name][:, columns[name]] if name in columns else expected[name]
        scale = expected.get(f"scale of {name}")
        if name == "sensors":
            value, there, scale = _alike(robot.sensors, np.asarray(value), there)
        answers.append(Answer(name, np.asarray(value), there, scale))
    return answers


def _states(model: lgjax.Model, theirs: Any, seed: int, count: int) -> Given:
    """Random states, controls that reach a bit beyond their ranges, and activations within theirs."""
    q, v, _ = states(model, seed, count)
    draw = np.random.default_rng(seed)
    control = _within(draw.normal(size=(count, theirs.nu)), theirs.actuator_ctrllimited, theirs.actuator_ctrlrange)
    activation = draw.normal(size=(count, theirs.na))
    for i in range(theirs.nu):
        if theirs.actuator_actadr[i] >= 0 and theirs.actuator_actlimited[i]:
            low, high = theirs.actuator_actrange[i]
            activation[:, theirs.actuator_actadr[i]] = draw.uniform(low, high, count)

    @jax.jit
    def convert(q, v):
        turned = lambda q: to_mujoco(model, first(jax.tree.map(lambda y: y[None], q), model.nv), jnp.eye(model.nv)).v.T
        x = to_mujoco(model, q, v)
        return x.q, x.v, jax.vmap(turned)(q)

    flat_q, flat_v, turns = map(np.asarray, convert(q, v))
    return Given(flat_q, flat_v, control, activation, turns)


def _alike(sensors: Any, ours: np.ndarray, theirs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Readings of both in parts of the largest of the sensor, and the scale 1; what is rounding beside others is none.

    Quaternions of MuJoCo get our sign: both are the same rotation.
    """
    found, least = np.stack([ours, theirs]), 1e-6 * np.abs(theirs).max(initial=0)
    for kind, part in zip(sensors.kinds, sensors.slices.values(), strict=True):
        if kind.form == "rotation":
            found[1, :, part] *= np.sign(np.sum(ours[:, part] * theirs[:, part], axis=1, keepdims=True))
        found[:, :, part] /= max(np.abs(theirs[:, part]).max(initial=0), least) or 1.0
    return found[0], found[1], np.ones(len(ours))


def _within(values: np.ndarray, limited: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Normal numbers, and where there is a range numbers that reach a bit beyond it."""
    middle, half = ranges.mean(1), np.diff(ranges, axis=1)[:, 0] / 2
    return np.where(limited.astype(bool), middle + 1.5 * half * np.tanh(values), values)


def _name(theirs: Any, kind: str, index: int) -> str:
    name = mujoco.mj_id2name(theirs, getattr(mujoco.mjtObj, f"mjOBJ_{kind}"), index)
    return name or f"{kind.lower()}_{index}"


def smooth(force: Force | None) -> Force | None:
    """Passive forces without those that MuJoCo has as constraints."""
    parts = () if force is None else force.forces if isinstance(force, Sum) else (force,)
    kept = [
        replace(part, coulomb=None, smoothing=None) if isinstance(part, TendonFriction) else part
        for part in parts
        if not isinstance(part, TendonLimits)
    ]
    return Sum(tuple(kept)) if kept else None


def _ours(robot: Any, tendons: Any, dt: float, *given: np.ndarray) -> dict[str, jax.Array]:
    model, drives, sensors = robot.model, robot.actuators, robot.sensors
    nothing = ContactForces(*(jnp.zeros((0, 3), model.dtype),) * 3, ())

    def one(robot, tendons, q, v, control, activation, acceleration):
        rest = from_mujoco(model, q, v, jnp.zeros_like(acceleration)).vdot
        q, v, vdot, _ = from_mujoco(model, q, v, acceleration)
        found = {"mass matrix": lgjax.mass_matrix(model, q)}
        bias = lgjax.inverse_dynamics(model, q, v, rest)
        found["bias and passive forces"] = bias if robot.forces is None else bias - robot.forces(0.0, q, v)
        forces = torque = None
        if drives is not None:
            forces, torque = (f(q, v, control, activation, dt) for f in (drives.forces, drives.torque))
            found |= {"actuator forces": forces, "actuator torques": torque}
        if tendons is not None:
            found["tendon lengths"] = tendons.lengths(q)
        if sensors is not None:
            at = Instant(jnp.zeros((), v.dtype), q, v, vdot, None, nothing, forces, torque, jnp.zeros_like(v))
            found["sensors"] = sensors(at)
        return found

    return jax.jit(jax.vmap(one, (None, None, *(0,) * 5)))(robot, tendons, *map(jnp.asarray, given))


def _answers_of_mujoco(theirs: Any, given: Given) -> dict[str, np.ndarray]:
    """In this library's coordinates but for `qacc`."""
    data, rows = mujoco.MjData(theirs), []
    size = lambda *x: max(np.abs(y).max(initial=0) for y in x)
    for q, v, control, activation, T in zip(*given, strict=True):
        data.qpos[:], data.qvel[:], data.ctrl[:], data.act[:] = q, v, control, activation
        mujoco.mj_forward(theirs, data)
        full = np.zeros((theirs.nv, theirs.nv))
        mujoco.mj_fullM(theirs, data, full)
        carried = _carried_by_actuators(theirs, data)
        passive, driven = data.qfrc_passive + carried, data.qfrc_actuator - carried
        row = {
            "mass matrix": T.T @ full @ T,
            "bias and passive forces": T.T @ (data.qfrc_bias - passive),
            "scale of bias and passive forces": size(T.T @ data.qfrc_bias, T.T @ passive, full),
            "actuator forces": data.actuator_force.copy(),
            "actuator torques": T.T @ driven,
            "scale of actuator torques": size(T.T @ driven, carried),
            "tendon lengths": data.ten_length.copy(),
            "sensors": data.sensordata.copy(),
            "qacc": data.qacc.copy(),
        }
        rows.append(row)
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _carried_by_actuators(theirs: Any, data: Any) -> np.ndarray:
    """Gravity compensation that MuJoCo counts among the forces of actuators."""
    found = np.zeros(theirs.nv)
    for j in np.flatnonzero(theirs.jnt_actgravcomp):
        start = theirs.jnt_dofadr[j]
        end = start + {0: 6, 1: 3}.get(int(theirs.jnt_type[j]), 1)
        found[start:end] = data.qfrc_gravcomp[start:end]
    return found


def _columns_read(robot: Any, description: Description, theirs: Any) -> list[int]:
    """Entries of MuJoCo's readings that the sensors of a robot have, in their order."""
    if robot.sensors is None:
        return []
    known = [i for i in range(theirs.nsensor) if kind_of(mujoco, theirs.sensor_type[i]) in READ]
    places: dict[str, Sequence[int]] = {}
    for i, measure in zip(known, description.measures, strict=True):
        start = theirs.sensor_adr[i]
        places[measure.name] = range(start, start + theirs.sensor_dim[i])
    return [k for name in robot.sensors.names for k in places[name]]
