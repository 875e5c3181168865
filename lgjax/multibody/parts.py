"""Joints and bodies as they are described to `build`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import numpy as np

from lgjax.multibody.joints import JointKind
from lgjax.numerics.renamed import arguments

Numbers = float | Sequence[float] | np.ndarray
Vector = Sequence[float] | np.ndarray | jax.Array
Matrix = Sequence[Sequence[float]] | np.ndarray | jax.Array


@dataclass(frozen=True)
class Joint:
    """Joint between a body and its parent. SI units and radians; vectors are in the body frame at q = 0.

    Kinds, with their scalar coordinates (rad and m); or your own, from `joint_kind`, with z along the axis:

    "revolute", "continuous"  angle about the axis
    "prismatic"               displacement along it
    "helical"                 angle about it, with an advance of `pitch` meters per radian along it
    "cylindrical"             angle about it, displacement along it
    "universal"               angle about it, then about `second_axis`, which turns with it
    "planar"                  angle about it, normal to the plane, then displacements along `second_axis` and along the
                              direction that completes a right-handed frame; neither direction turns
    "spherical", "free"       no axis, no scalar coordinates
    "fixed"                   no axis, no motion

    Args:
        name: unique among the joints of a model.
        kind: one of the above.
        axis: (3,) direction, of any length.
        origin: (3,) a point on the axis, m; zero for a free joint.
        lower, upper, effort, velocity_limit, friction: limits of position, force and speed, and dry friction, N m or N;
            data that the dynamics do not apply.
        damping, armature: viscous damping, N m s/rad or N s/m, and inertia added on the joint side, kg m^2 or kg. Like
            limits and friction, one number for all coordinates of the joint, or one for each.
        pitch: advance of a helical joint, m/rad.
        second_axis: (3,), perpendicular to the axis, x of the joint frame; None turns x by the shortest rotation of z
            to the axis.
    """

    name: str
    kind: str | JointKind
    axis: Vector = (0.0, 0.0, 1.0)
    origin: Vector = (0.0, 0.0, 0.0)
    lower: Numbers = -np.inf
    upper: Numbers = np.inf
    effort: Numbers = np.inf
    velocity_limit: Numbers = np.inf
    damping: Numbers = 0.0
    friction: Numbers = 0.0
    armature: Numbers = 0.0
    pitch: float = 0.0
    second_axis: Vector | None = None


Joint.__init__ = arguments(rate="velocity_limit")(Joint.__init__)


@dataclass(frozen=True)
class Body:
    """Rigid body: the pose of its frame in its parent's frame at q = 0, and its inertia. SI units.

    Args:
        name: unique among the bodies of a model.
        parent: name of the body that carries it, None for the world.
        joint: the `Joint` between the two.
        rotation, position: (3, 3) and (3,), the pose of its frame in its parent's frame at q = 0, m.
        mass, com, inertia: kg; center of mass (3,) in the body frame, m; inertia (3, 3) about the center of mass in the
            axes of the body frame, kg m^2.
    """

    name: str
    parent: str | None
    joint: Joint
    rotation: Matrix = field(default_factory=lambda: np.eye(3))
    position: Vector = field(default_factory=lambda: np.zeros(3))
    mass: float = 0.0
    com: Vector = field(default_factory=lambda: np.zeros(3))
    inertia: Matrix = field(default_factory=lambda: np.zeros((3, 3)))
