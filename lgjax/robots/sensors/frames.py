"""Sensors of frames: position, orientation, velocity, acceleration and what an inertial unit measures.

With R = R_b^T R_a, d, w, v, the rotation of frame a seen from its reference b, the place of its origin there, and their
twists in their own frames, its velocity seen from b is u = R v_a - v_b - w_b x d, its angular velocity R w_a - w_b.
The derivatives of both in time are the accelerations. Read first: `scene.py`, `group.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import jax

from lgjax.groups import se3, so3
from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm
from lgjax.robots.sensors.group import STATIC, Group, Kind
from lgjax.robots.sensors.scene import Places, Scene

Array = jax.Array
V, VDOT = ("v",), ("v", "vdot")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Frames(Group):
    """Frames on bodies, seen from reference frames on others; -1 is the world. Poses are in joint frames."""

    kind: Kind = field(metadata=STATIC)
    bodies: tuple[int, ...] = field(metadata=STATIC)
    references: tuple[int, ...] = field(metadata=STATIC)
    offsets: Pose
    reference_offsets: Pose

    def __len__(self) -> int:
        return len(self.bodies)

    def read(self, scene: Scene) -> Array:
        own = Places(scene, self.bodies, self.offsets)
        return READINGS[self.kind](own, Places(scene, self.references, self.reference_offsets))


def _relative(own: Places, other: Places) -> Pose:
    return se3.compose(se3.inverse(other.pose), own.pose)


def _linear_velocity(own: Places, other: Places) -> Array:
    R, d = _relative(own, other)
    w, v = other.twist
    return sm.matvec(R, own.twist[1]) - v - sm.cross(w, d)


def _angular_velocity(own: Places, other: Places) -> Array:
    return sm.matvec(_relative(own, other).rotation, own.twist[0]) - other.twist[0]


def _linear_acceleration(own: Places, other: Places) -> Array:
    R, d = _relative(own, other)
    w, _ = other.twist
    turning, a = other.acceleration
    seen = sm.matvec(R, own.acceleration[1]) - a - sm.cross(turning, d)
    return seen - sm.cross(w, sm.cross(w, d) + 2 * _linear_velocity(own, other))


def _angular_acceleration(own: Places, other: Places) -> Array:
    R = _relative(own, other).rotation
    turned = sm.cross(other.twist[0], sm.matvec(R, own.twist[0]))
    return sm.matvec(R, own.acceleration[0]) - other.acceleration[0] - turned


def _proper_acceleration(own: Places, other: Places) -> Array:
    return sm.matvec(_relative(own, other).rotation, own.acceleration[1])


def _axis(k: int, own: Places, other: Places) -> Array:
    return _relative(own, other).rotation[..., k]


GYRO = Kind("gyro", 3, V)
VELOCIMETER = Kind("velocimeter", 3, V)
ACCELEROMETER = Kind("accelerometer", 3, VDOT)
POSITION = Kind("frame position", 3)
ORIENTATION = Kind("frame orientation", 4, form="rotation")
AXES = {axis: Kind(f"frame {axis} axis", 3, form="direction") for axis in "xyz"}
LINEAR_VELOCITY = Kind("frame linear velocity", 3, V)
ANGULAR_VELOCITY = Kind("frame angular velocity", 3, V)
LINEAR_ACCELERATION = Kind("frame linear acceleration", 3, VDOT)
ANGULAR_ACCELERATION = Kind("frame angular acceleration", 3, VDOT)
PROPER_ACCELERATION = Kind("frame proper acceleration", 3, VDOT)
READINGS: dict[Kind, Callable[[Places, Places], Array]] = {
    GYRO: lambda own, _: own.twist[0],
    VELOCIMETER: lambda own, _: own.twist[1],
    ACCELEROMETER: lambda own, _: own.acceleration[1],
    POSITION: lambda own, other: _relative(own, other).translation,
    ORIENTATION: lambda own, other: so3.to_quaternion(_relative(own, other).rotation),
    **{AXES[axis]: partial(_axis, k) for k, axis in enumerate("xyz")},
    LINEAR_VELOCITY: _linear_velocity,
    ANGULAR_VELOCITY: _angular_velocity,
    LINEAR_ACCELERATION: _linear_acceleration,
    ANGULAR_ACCELERATION: _angular_acceleration,
    PROPER_ACCELERATION: _proper_acceleration,
}


MAGNETOMETER = Kind("magnetometer", 3)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Magnetometers(Group):
    """A field (k, 3) of the world in frames on bodies."""

    kind: Kind = field(metadata=STATIC)
    bodies: tuple[int, ...] = field(metadata=STATIC)
    offsets: Pose
    flux: Array

    def __len__(self) -> int:
        return len(self.bodies)

    def read(self, scene: Scene) -> Array:
        return sm.tmatvec(Places(scene, self.bodies, self.offsets).pose.rotation, self.flux)
