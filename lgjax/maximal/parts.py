"""Parts of a system in absolute coordinates: descriptions of bodies, further coordinates, joints and forces.

A `System` takes lists of these.  Numbers may be traced; what is known is checked when the system is built.
Every joint and force names its bodies; "world" is the inertial frame.  SI units and radians.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WORLD = "world"
IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
ORIGIN = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Body:
    """A body whose frame has its origin at the center of mass; inertia (3,) principal moments or (3, 3), body axes."""

    name: str
    mass: Any
    inertia: Any


@dataclass(frozen=True)
class VectorNode:
    """Further coordinates (size,) that are integrated as a vector, with a constant mass (), (size,) or (size, size).

    Source: [holzinger2024] eq. (31), the nodes called conventional there.
    """

    name: str
    size: int
    mass: Any = 1.0


@dataclass(frozen=True)
class Joint:
    """A joint between bodies a and b, each with the pose of the joint in its body frame.

    kind          what it holds, of origins o and axes x, y, z of the two joint frames
    "spherical"   o_a = o_b
    "revolute"    o_a = o_b and z_a = ±z_b; `drive` prescribes the angle from x_a to x_b about z
    "universal"   o_a = o_b and z_a ⟂ z_b
    "prismatic"   equal axes, o_b on the line through o_a along z_a; `drive` prescribes z_a·(o_b - o_a)
    "cylindrical" z_a = ±z_b, o_b on the line through o_a along z_a
    "fixed"       equal frames
    "distance"    |o_b - o_a| = length, or drive(t)
    drive: t -> scalar, a function with two derivatives; compared by identity, so define it once.
    """

    name: str
    kind: str
    a: str
    b: str
    origin_a: Any = ORIGIN
    origin_b: Any = ORIGIN
    frame_a: Any = IDENTITY
    frame_b: Any = IDENTITY
    length: Any = 0.0
    drive: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class UserConstraint:
    """function(t, q, parameters) -> (size,) that is to vanish; its Jacobian is found by differentiation."""

    name: str
    function: Callable[[Any, Any, Any], Any]
    size: int
    parameters: Any = ()


@dataclass(frozen=True)
class Gravity:
    """The acceleration of gravity (3,) in the world, for every body."""

    vector: Any = (0.0, 0.0, -9.81)


@dataclass(frozen=True)
class Spring:
    """A spring with damper between points of two bodies: tension stiffness (|d| - length) + damping d|d|/dt."""

    a: str
    b: str
    point_a: Any = ORIGIN
    point_b: Any = ORIGIN
    stiffness: Any = 0.0
    damping: Any = 0.0
    length: Any = 0.0


@dataclass(frozen=True)
class Bushing:
    """Springs and dampers along the world axes, (3,) each, between points of two bodies that are to coincide."""

    a: str
    b: str
    point_a: Any = ORIGIN
    point_b: Any = ORIGIN
    stiffness: Any = ORIGIN
    damping: Any = ORIGIN


@dataclass(frozen=True)
class TorsionSpring:
    """A spring and damper about the z axis that a joint keeps common to two frames, towards the angle drive(t), or 0.

    The angle is that from x_a to x_b about z_a; its difference to drive(t) is taken between -π and π.  With `drive` it
    is a PD controller.  drive: t -> scalar; compared by identity, so define it once.
    """

    a: str
    b: str
    frame_a: Any = IDENTITY
    frame_b: Any = IDENTITY
    stiffness: Any = 0.0
    damping: Any = 0.0
    drive: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Load:
    """Constant forces at a point of a body and constant torques, (3,) each, in world or in body axes."""

    body: str
    point: Any = ORIGIN
    force_world: Any = ORIGIN
    force_body: Any = ORIGIN
    torque_world: Any = ORIGIN
    torque_body: Any = ORIGIN


@dataclass(frozen=True)
class UserForce:
    """function(t, q, v, parameters) -> generalized force (n,), dual to v; `couples` if bodies feel each other by it."""

    function: Callable[[Any, Any, Any, Any], Any]
    parameters: Any = ()
    couples: bool = True


Node = Body | VectorNode
Constraint = Joint | UserConstraint
ForceElement = Gravity | Spring | Bushing | TorsionSpring | Load | UserForce
