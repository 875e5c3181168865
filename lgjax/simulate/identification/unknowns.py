"""Unknown parameters of a mechanism and its drives, as coordinates x that are zero at the guess.

Unknowns add up: inertias(model, ["hand"]) + viscous(model) + gear(model). Read next: `records.py`, `identify.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.dynamics.inertial_parameters import (
    NAMES,
    from_log_cholesky,
    inertial_parameters,
    log_cholesky,
    with_inertial_parameters,
)
from lgjax.dynamics.joint_parameters import coordinates_of
from lgjax.groups import se3
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics.messages import listed
from lgjax.robots.actuators import Actuators
from lgjax.robots.robot import Robot

Array = jax.Array
TWIST = ("wx", "wy", "wz", "vx", "vy", "vz")


class Plant(NamedTuple):
    """A mechanism and its drives: the forces of the joints are gear * command less the friction of the model.

    gear: (nv,) force per unit of command. `Model.damping`, `Model.friction` and `Model.armature` all act. robot: a
    `Robot` on this model, whose loops and passive forces act too, and whose commands are controls of its actuators, if
    it has any, which the gear does not change. None for a model alone.
    """

    model: Model
    gear: Array
    robot: Robot | None = None


def plant_of(model: Model | Robot, gear: ArrayLike = 1.0) -> Plant:
    """The plant of a model, whose commands are forces unless gears (a number or (nv,)) say otherwise, or of a robot."""
    robot, model = model if isinstance(model, Robot) else None, checked_model(model)
    return Plant(model, checks.array("gear", gear, (model.nv,), model.dtype), robot)


@dataclass(frozen=True)
class Unknowns:
    """Coordinates x (n,) of what is not known. names: (n,). apply(plant, x) -> Plant, the guess at x = 0."""

    names: tuple[str, ...]
    apply: Callable[[Plant, Array], Plant]

    def __len__(self) -> int:
        return len(self.names)

    def __add__(self, other: "Unknowns") -> "Unknowns":
        return Unknowns(self.names + other.names, partial(_both, self, other))


def _both(first: Unknowns, second: Unknowns, plant: Plant, x: Array) -> Plant:
    return second.apply(first.apply(plant, x[: len(first)]), x[len(first) :])


# ---- inertias
def masses(model: Model | Mechanism, bodies: Sequence[str] | None = None) -> Unknowns:
    """Logarithms of the factors by which bodies are denser than guessed; bodies None takes all."""
    model = checked_model(model)
    index = _bodies(model, bodies)
    return Unknowns(tuple(f"log mass factor of {model.body_names[i]}" for i in index), partial(_denser, index))


def _denser(index: np.ndarray, plant: Plant, x: Array) -> Plant:
    factor = jnp.ones(plant.model.nbodies, x.dtype).at[index].set(jnp.exp(x))
    return plant._replace(model=plant.model.replace(inertias=plant.model.inertias.scaled(factor)))


def inertias(model: Model | Mechanism, bodies: Sequence[str] | None = None, physical: bool = True) -> Unknowns:
    """Ten inertial parameters of each body, as changes of `log_cholesky`, in which every body can exist.

    physical=False: changes of `inertial_parameters` themselves, in which torques are linear.
    """
    model = checked_model(model)
    index = _bodies(model, bodies)
    rows = (10 * index[:, None] + np.arange(10)).ravel()
    names = ("a", "d1", "d2", "d3", "s12", "s23", "s13", "t1", "t2", "t3") if physical else NAMES
    apply = partial(_other_inertias, rows, physical)
    return Unknowns(tuple(f"{name} of {model.body_names[i]}" for i in index for name in names), apply)


def _other_inertias(rows: np.ndarray, physical: bool, plant: Plant, x: Array) -> Plant:
    ten = inertial_parameters(plant.model)
    own = ten[rows].reshape(-1, 10)
    change = x.reshape(-1, 10)
    own = from_log_cholesky(log_cholesky(own) + change) if physical else own + change
    return plant._replace(model=with_inertial_parameters(plant.model, ten.at[rows].set(own.reshape(-1))))


# ---- joints and drives
def viscous(model: Model | Mechanism, joints: Sequence[str] | None = None) -> Unknowns:
    """Changes of `Model.damping`, N m s/rad or N s/m; joints None takes all but the free ones."""
    return _of_joints(model, joints, "damping")


def coulomb(model: Model | Mechanism, joints: Sequence[str] | None = None) -> Unknowns:
    """Changes of the dry friction `Model.friction`, N m or N."""
    return _of_joints(model, joints, "friction")


def armature(model: Model | Mechanism, joints: Sequence[str] | None = None) -> Unknowns:
    """Changes of `Model.armature`, kg m^2 or kg."""
    return _of_joints(model, joints, "armature")


def gear(model: Model | Mechanism, joints: Sequence[str] | None = None) -> Unknowns:
    """Changes of `Plant.gear`; records of torques do not see a gear whose guess is 0."""
    names, index = coordinates_of(model, joints)
    return Unknowns(tuple(f"gear of {name}" for name in names), partial(_other_gear, np.asarray(index)))


def _other_gear(index: np.ndarray, plant: Plant, x: Array) -> Plant:
    return plant._replace(gear=plant.gear.at[index].add(x))


def _of_joints(model: Model | Mechanism, joints: Sequence[str] | None, leaf: str) -> Unknowns:
    names, index = coordinates_of(model, joints)
    return Unknowns(tuple(f"{leaf} of {name}" for name in names), partial(_other_joints, leaf, np.asarray(index)))


def _other_joints(leaf: str, index: np.ndarray, plant: Plant, x: Array) -> Plant:
    changed = getattr(plant.model, leaf).at[index].add(x)
    return plant._replace(model=plant.model.replace(**{leaf: changed}))


# ---- actuators of a robot
def control_gains(robot: Robot, names: Sequence[str] | None = None) -> Unknowns:
    """Logarithms of factors on what actuators do per unit of control and of length, such as kp of a servo."""
    return _of_actuators(robot, names, "control gain", _stiffer)


def velocity_gains(robot: Robot, names: Sequence[str] | None = None) -> Unknowns:
    """Logarithms of factors on the part of the forces of actuators that is proportional to speed, such as kv."""
    return _of_actuators(robot, names, "velocity gain", _more_damped)


def time_constants(robot: Robot, names: Sequence[str] | None = None) -> Unknowns:
    """Logarithms of factors on the time constants of activations."""
    return _of_actuators(robot, names, "time constant", _slower)


def delays(robot: Robot, names: Sequence[str] | None = None) -> Unknowns:
    """Changes of the delays of actuators, s. The actuators need memory for all delays that the search may try: samples=
    of their makers, or `Actuators.replace(samples=)`. A delay is kept between zero and what the memory holds.
    """
    return _of_actuators(robot, names, "delay", _later)


def _of_actuators(robot: Robot, names: Sequence[str] | None, what: str, change: Callable) -> Unknowns:
    if not isinstance(robot, Robot) or robot.actuators is None:
        raise TypeError(f"the {what} belongs to actuators of a Robot, got {checks.shown(robot)}")
    known = robot.actuators.names
    chosen = known if names is None else checks.names("names", names)
    for name in chosen:
        if name not in known:
            raise ValueError(f"no actuator {name!r} in {robot.model.name!r}; actuators: {listed(known)}")
    index = np.asarray([known.index(name) for name in chosen], int)
    return Unknowns(tuple(f"{what} of {name}" for name in chosen), partial(_other_actuators, index, change))


def _other_actuators(index: np.ndarray, change: Callable, plant: Plant, x: Array) -> Plant:
    robot = plant.robot
    if robot is None or robot.actuators is None:
        raise TypeError("unknowns of actuators need a plant of a Robot: pass the robot to identify")
    moved = jnp.zeros(len(robot.actuators), x.dtype).at[index].set(x)
    return plant._replace(robot=replace(robot, actuators=replace(robot.actuators, **change(robot.actuators, moved))))


def _stiffer(actuators: Actuators, x: Array) -> dict[str, Array]:
    factor = jnp.exp(x)
    bias = jnp.asarray(actuators.bias).at[:, 1].multiply(factor)
    return {"gain": actuators.gain * factor[:, None], "bias": bias}


def _more_damped(actuators: Actuators, x: Array) -> dict[str, Array]:
    return {"bias": jnp.asarray(actuators.bias).at[:, 2].multiply(jnp.exp(x))}


def _slower(actuators: Actuators, x: Array) -> dict[str, Array]:
    return {"time_constant": actuators.time_constant * jnp.exp(x)}


def _later(actuators: Actuators, x: Array) -> dict[str, Array]:
    return {"delay": jnp.maximum(actuators.delay + x, 0)}


# ---- frames
def placements(model: Model | Mechanism, bodies: Sequence[str] | None = None) -> Unknowns:
    """Small displacements of joints on their parents, as twists (6,) in the joint frame, rad and m."""
    model = checked_model(model)
    index = _bodies(model, bodies)
    return _displaced("placements", model.body_names, index)


def frames(model: Model | Mechanism, names: Sequence[str]) -> Unknowns:
    """Small displacements of named frames, of sensors for instance, as twists (6,) in the frame, rad and m."""
    model = checked_model(model)
    known = [name for name, _ in model.tree.frames]
    names = checks.names("names", names)
    for name in names:
        if name not in known:
            raise ValueError(f"no frame {name!r} in {model.name!r}; frames: {listed(known)}")
    return _displaced("frames", known, np.asarray([known.index(name) for name in names]))


def _displaced(leaf: str, names: Sequence[str], index: np.ndarray) -> Unknowns:
    what, apply = leaf.removesuffix("s"), partial(_other_places, leaf, index)
    return Unknowns(tuple(f"{what} {part} of {names[i]}" for i in index for part in TWIST), apply)


def _other_places(leaf: str, index: np.ndarray, plant: Plant, x: Array) -> Plant:
    poses = getattr(plant.model, leaf)
    moved = se3.compose(jax.tree.map(lambda a: a[index], poses), se3.exp(x.reshape(-1, 6)))
    changed = jax.tree.map(lambda a, b: a.at[index].set(b), poses, moved)
    return plant._replace(model=plant.model.replace(**{leaf: changed}))


def _bodies(model: Model | Mechanism, bodies: Sequence[Any] | None) -> np.ndarray:
    model = checked_model(model)
    if isinstance(bodies, str) or not isinstance(bodies, Sequence | None):
        raise TypeError(f"bodies must be a list of names, got {checks.shown(bodies)}")
    chosen = range(model.nbodies) if bodies is None else [model.tree.body(name) for name in bodies]
    return np.asarray(chosen, int)
