"""A rigid body that bounces on a plane: the four experiments of the source.  Source: [tran2024] section 7."""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.collisions.variational import RigidBody, RigidState, forces, rigid_body, total_energy
from lgjax.groups import SE3, HomogeneousSpace, product_space, right_translation, so3, vector_space
from lgjax.groups.se3 import Pose
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.renamed import attributes
from lgjax.shapes import Plane, Shape, box, ellipsoid, rounded, union
from lgjax.systems.problem import arrays, gravity_vector

Array = jax.Array

CASES = ("ellipsoid", "tilted", "union", "cube")
# In the order of the cases: principal moments of inertia, kg m², for a mass of 1 kg.
INERTIAS = {
    "ellipsoid": (5.0, 4.0, 2.6),
    "tilted": (5.0, 4.0, 2.6),
    "union": (7.5932718, 9.9326434, 8.2731252),
    "cube": (2.0, 2.0, 2.0),
}
UNION_CENTER = -0.9937128


class BouncingBody(NamedTuple):
    """Arguments of ``bounce(p.body, p.shape, p.planes, p.state, p.dt, steps)``.

    The first five are those of a `Problem`, the motion between impacts for any other integrator: y0 = (pose, Π, γ),
    moved from the right by the body twist.
    """

    parameters: dict[str, Array]
    space: HomogeneousSpace
    field: Callable[[Any, Any], Any]
    y0: Any
    invariants: dict[str, Callable[[Any], Array]]
    body: RigidBody
    shape: Shape
    planes: Plane
    dt: Array

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(h="dt")

    @property
    def state(self) -> RigidState:
        """The initial state."""
        return RigidState(*self.y0)


def bouncing_body(case: str = "ellipsoid", rounding: float = 1e-13, dtype: Any = None) -> BouncingBody:
    """One of the four bodies of mass 1 kg thrown up from 10 m, with steps of 0.01 s.

    "ellipsoid"  of semi-axes 2, 3, 4 m on the horizontal plane.
    "tilted"     the same, the plane tilted by two degrees about y.
    "union"      of two ellipsoids, 3, 4, 5 m and 6, 1, 1 m; its inertia as printed in the source.
    "cube"       of side 2√3 m, its corners rounded with radius `rounding`, m.
    Raises ValueError for a negative rounding.
    """
    checks.choice("case", case, CASES)
    p = arrays(
        dtype,
        mass=(1.0, ()),
        inertia=(INERTIAS[case], (3,)),
        gravity=(gravity_vector(9.80665), (3,)),
        position=((0.0, 0.0, 10.0), (3,)),
        linear_momentum=((2.0, 2.0, 10.0), (3,)),
        angular_momentum=((4.0, -4.0, 4.0), (3,)),
        dt=(0.01, ()),
    )
    dtype = p["dt"].dtype
    body = rigid_body(p["mass"], p["inertia"], p["gravity"], dtype=dtype)
    tilt = math.radians(2.0) if case == "tilted" else 0.0
    plane = Plane(jnp.asarray((math.sin(tilt), 0.0, math.cos(tilt)), dtype))
    space, field = free_flight(body)
    y0 = (Pose(so3.identity(dtype), p["position"]), p["angular_momentum"], p["linear_momentum"])
    invariants = {"energy": partial(_energy, body), "angular momentum": _angular_momentum}
    return BouncingBody(p, space, field, y0, invariants, body, _shape(case, rounding, dtype), plane, p["dt"])


def _energy(body: RigidBody, y: Any) -> Array:
    return total_energy(body, RigidState(*y))


def _angular_momentum(y: Any) -> Array:
    return so3.act(y[0].rotation, y[1])


def _shape(case: str, rounding: float, dtype: Any) -> Shape:
    number = lambda *x: jnp.asarray(x, dtype)
    if case == "cube":
        return rounded(box(number(*[math.sqrt(3.0)] * 3)), rounding)
    if case == "union":
        large = ellipsoid(number(3.0, 4.0, 5.0), number(1.5 + UNION_CENTER, 0.0, 0.0))
        return union(large, ellipsoid(number(6.0, 1.0, 1.0), number(-4.5 + UNION_CENTER, 0.0, 0.0)))
    return ellipsoid(number(2.0, 3.0, 4.0))


def free_flight(body: RigidBody) -> tuple[Any, Any]:
    """Space and field of the motion of a body without impacts, of states (pose, Π, γ)."""
    return product_space(right_translation(SE3), vector_space(3), vector_space(3)), partial(_flight, body)


def _flight(body: RigidBody, t: Array, y: Any) -> Any:
    pose, angular, linear = y
    moment, force = forces(body, pose)
    omega = sm.solve3(body.inertia, angular)
    velocity = so3.act(so3.inverse(pose.rotation), linear) / body.mass
    return sm.join(omega, velocity), sm.cross(angular, omega) + moment, force
