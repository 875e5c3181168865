"""Sensors of joints, lengths, actuators, energies and the clock, which read an instant as it is.

Read first: `group.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces import Force
from lgjax.dynamics.transmissions import Transmissions
from lgjax.groups import so3
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm
from lgjax.robots.sensors.group import STATIC, Group, Kind
from lgjax.robots.sensors.scene import Scene

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Entries(Group):
    """Entries of arrays of an instant: for each sensor those that it reads or adds up."""

    kind: Kind = field(metadata=STATIC)
    entries: tuple[tuple[int, ...], ...] = field(metadata=STATIC)

    def __len__(self) -> int:
        return len(self.entries)

    def read(self, scene: Scene) -> Array:
        return READINGS[self.kind](scene, np.asarray(self.entries, int))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ActuatorForces(Group):
    """Sums of forces of actuators."""

    kind: Kind = field(metadata=STATIC)
    actuators: tuple[tuple[int, ...], ...] = field(metadata=STATIC)

    def __len__(self) -> int:
        return len(self.actuators)

    def read(self, scene: Scene) -> Array:
        force = jnp.asarray(scene.instant.actuator_force)
        most = 1 + max((k for some in self.actuators for k in some), default=-1)
        if force.ndim != 1 or len(force) < most or force.dtype != scene.model.dtype:
            expected = f"one number of {scene.model.dtype} for each actuator, at least {most}"
            raise ValueError(f"actuator_force is {force.dtype}{list(force.shape)}, expected {expected}")
        return jnp.stack([jnp.sum(force[np.asarray(some, int)]) for some in self.actuators])[:, None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lengths(Group):
    """Lengths of transmissions, such as tendons, or their rates."""

    kind: Kind = field(metadata=STATIC)
    which: tuple[int, ...] = field(metadata=STATIC)
    transmissions: Transmissions

    def __len__(self) -> int:
        return len(self.which)

    def read(self, scene: Scene) -> Array:
        q, v = scene.instant.q, scene.instant.v
        world = None if self.transmissions.model is None else scene.world
        lengths, rates = self.transmissions.lengths, self.transmissions.rates
        whole = lengths(q, world) if self.kind == LENGTH else rates(q, v, world)
        return whole[np.asarray(self.which, int)][:, None]

    def for_model(self, model: Model) -> "Lengths":
        return replace(self, transmissions=self.transmissions.for_model(model))

    def joined(self, other: Group) -> Group | None:
        if isinstance(other, Lengths) and other.kind == self.kind and other.transmissions is self.transmissions:
            return replace(self, which=self.which + other.which)
        return None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Energies(Group):
    """Potential energies of gravity and of forces, or kinetic energies, and numbers added to them."""

    kind: Kind = field(metadata=STATIC)
    offsets: Array
    forces: tuple[Force | None, ...]

    def __len__(self) -> int:
        return len(self.forces)

    def read(self, scene: Scene) -> Array:
        model = scene.model
        if self.kind == KINETIC_ENERGY:
            moving = jnp.sum(sm.dot(scene.moving.twist[:-1], scene.momentum))
            whole = (moving + jnp.sum(model.armature * scene.instant.v**2)) / 2
        else:
            R, p = jax.tree.map(lambda x: x[:-1], scene.moving.pose)
            inertia = model.inertias
            moment = jnp.sum(sm.matvec(R, inertia.moment) + inertia.mass[:, None] * p, 0)
            whole = -sm.dot(model.gravity, moment + jnp.sum(inertia.mass) * scene.moving.origin)
        own = [whole if force is None else whole + force.energy(scene.instant.q) for force in self.forces]
        return (jnp.stack(own) + self.offsets)[:, None]

    def for_model(self, model: Model) -> "Energies":
        return replace(self, forces=tuple(force and force.for_model(model) for force in self.forces))

    def joined(self, other: Group) -> Group | None:
        if isinstance(other, Energies) and other.kind == self.kind:
            return replace(self, offsets=sm.join(self.offsets, other.offsets), forces=self.forces + other.forces)
        return None


# ---- joints
def _limit(scene: Scene, entries: np.ndarray) -> tuple[Array, Array]:
    """How far joints are inside their nearer limits (k,), negative where they are beyond, and the sign of the lower."""
    x, index = scene.instant.q.joints, entries[:, 0]
    lower, upper = x[index] - scene.model.lower[index], scene.model.upper[index] - x[index]
    return jnp.minimum(lower, upper), jnp.where(lower <= upper, 1, -1).astype(x.dtype)


def _limit_velocity(scene: Scene, entries: np.ndarray) -> Array:
    inside, sign = _limit(scene, entries)
    return jnp.where(inside < 0, sign * scene.instant.v[entries[:, 1]], 0)[:, None]


JOINT_POSITION = Kind("joint position", 1)
JOINT_VELOCITY = Kind("joint velocity", 1, ("v",))
BALL_ORIENTATION = Kind("ball orientation", 4, form="rotation")
BALL_VELOCITY = Kind("ball velocity", 3, ("v",))
LIMIT_POSITION = Kind("joint limit position", 1)
LIMIT_VELOCITY = Kind("joint limit velocity", 1, ("v",))
LIMIT_FORCE = Kind("joint limit force", 1, ("limit_force",))
JOINT_ACTUATOR_FORCE = Kind("joint actuator force", 1, ("actuator_torque",))
CLOCK = Kind("clock", 1, ("t",))
READINGS: dict[Kind, Callable[[Scene, np.ndarray], Array]] = {
    JOINT_POSITION: lambda scene, entries: scene.instant.q.joints[entries],
    JOINT_VELOCITY: lambda scene, entries: scene.instant.v[entries],
    BALL_ORIENTATION: lambda scene, entries: so3.to_quaternion(scene.instant.q.ball_rotations[entries[:, 0]]),
    BALL_VELOCITY: lambda scene, entries: scene.instant.v[entries],
    LIMIT_POSITION: lambda scene, entries: jnp.minimum(_limit(scene, entries)[0], 0)[:, None],
    LIMIT_VELOCITY: _limit_velocity,
    LIMIT_FORCE: lambda scene, entries: jnp.abs(scene.instant.limit_force[entries]),
    JOINT_ACTUATOR_FORCE: lambda scene, entries: scene.instant.actuator_torque[entries],
    CLOCK: lambda scene, entries: jnp.broadcast_to(scene.instant.t, (len(entries), 1)),
}
ACTUATOR_FORCE = Kind("actuator force", 1, ("actuator_force",))
LENGTH = Kind("length", 1)
LENGTH_RATE = Kind("length rate", 1, ("v",))
POTENTIAL_ENERGY = Kind("potential energy", 1)
KINETIC_ENERGY = Kind("kinetic energy", 1, ("v",))
