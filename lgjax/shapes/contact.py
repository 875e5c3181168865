"""Planes, the signed distance of a body from one, and what every shape provides.

A body touches a plane at the point of it that lies farthest against the plane's normal. So one function per shape is
enough: the support point, the point of the body farthest along a direction. Only the convex hull of a body can touch a
plane, and a union needs no more than the farther of its parts.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution.compiled import compiled
from lgjax.groups.arguments import Fields, Record, takes
from lgjax.groups.se3 import Pose
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm

Array = jax.Array


class Contact(NamedTuple):
    """Point (3,) of a body farthest along a direction, body frame, m; `flat` () says that it is not the only one.

    Where a whole edge or face is farthest, to round-off (`tie`), the point is the middle of its corners: it does not
    depend on the order of the corners or on the last bit of the attitude, and it turns with the body.
    """

    point: Array
    flat: Array


class Gap(NamedTuple):
    """Signed distance () of a body from a plane, m, negative inside it; the touching point and `flat` of `Contact`."""

    gap: Array
    point: Array
    flat: Array


class Shape:
    """Protocol of a shape: a pytree whose arrays are leaves, in the frame of the body that carries it.

    The origin of that frame is the body's center of mass (`mass_properties` finds it, `placed` moves there).
    """

    def support(self, direction: Array) -> Contact:
        """The point farthest along `direction` (3,), not 0, body frame; differentiable where it is unique."""
        raise NotImplementedError

    def constraints(self, point: Array) -> Array:
        """Smooth convex functions (k,) of a point (3,), all <= 0 exactly in the shape; no units, about -1 amid it."""
        raise ValueError(f"{type(self).__name__} has no constraint functions, which an intersection needs")

    def middle(self) -> Array:
        """A point (3,) near the middle of the shape."""
        raise NotImplementedError

    def core(self) -> "tuple[Any, Any] | None":
        """The shape without its rounding, a `Core` of `cores.py`, and the radius; None where no formula has it.

        Raises ValueError for a shape that is not convex.
        """
        return None

    def astype(self, dtype) -> "Shape":
        """The same shape with every array in `dtype`."""
        return jax.tree.map(lambda x: x.astype(dtype), self)


@jax.tree_util.register_pytree_node_class
class Plane:
    """Plane n·z + offset = 0; bodies live where n·z + offset >= 0.

    normal (..., 3), world frame, normalized here; offset (...), m, broadcast to it. Leading axes are several planes.
    Both may be traced, batched and differentiated. Raises ValueError for a wrong shape, a non-finite value or a known
    normal of length zero. Source: [tran2024] eq. (58), with the normal towards the bodies.
    """

    def __init__(self, normal, offset=0.0):
        dtype = checks.float_dtype(normal)
        given = np.shape(normal) if hasattr(normal, "dtype") or checks.known(normal) else (3,)
        if not given or given[-1] != 3:
            raise ValueError(f"normal of the plane has shape {given}, not (..., 3)")
        normal = checks.array("normal of the plane", normal, given, dtype)
        size = jnp.max(jnp.abs(normal), axis=-1, keepdims=True)
        if checks.known(size) and np.any(zero := np.asarray(size)[..., 0] == 0):
            raise ValueError(f"normal of the plane has length zero: {checks.entries(normal, zero)}")
        scaled = normal / jax.lax.stop_gradient(size)  # so that tiny and huge normals keep their digits
        self.normal = scaled / norm(scaled)[..., None]
        self.offset = checks.array("offset of the plane", offset, given[:-1], dtype)

    def tree_flatten(self):
        return (self.normal, self.offset), None

    @classmethod
    def tree_unflatten(cls, _, leaves) -> "Plane":
        # Not through __init__: transformations put tangents, batch axes and placeholders here.
        plane = object.__new__(cls)
        plane.normal, plane.offset = leaves
        return plane

    def __repr__(self) -> str:
        return f"Plane(normal={self.normal}, offset={self.offset})"

    def astype(self, dtype) -> "Plane":
        """The same plane with both arrays in `dtype`."""
        return jax.tree.map(lambda x: x.astype(dtype), self)


# Forms of arguments.
POSE = Fields(Pose, ((3, 3), (3,)))
SHAPE, PLANE = Record(Shape), Record(Plane)


@compiled
@takes(True, shape=SHAPE, plane=PLANE, pose=POSE)
def gap(shape: Shape, plane: Plane, pose: Pose) -> Gap:
    """Signed distance from one plane of a body at `pose` (body to world), and the body's point nearest to it.

    The distance is n·(x + R rho) + offset with rho the support point along -R^T n. Its gradient is n in x and, for
    turns of R in the body frame, rho x R^T n, whatever the shape (`gap_derivatives`); where the point is unique
    derivatives of every order are right. Source: [tran2024] eqs. (7), (59), (63), (66).
    """
    contact = shape.support(-sm.tmatvec(pose.rotation, checks.of_shape("plane.normal", plane.normal, (3,))))
    return Gap(sm.dot(plane.normal, pose.act(contact.point)) + plane.offset, *contact)


@compiled
@takes(True, shape=SHAPE, plane=PLANE, pose=POSE)
def gap_derivatives(shape: Shape, plane: Plane, pose: Pose) -> tuple[Array, Array]:
    """Gradient of the distance: force direction n (3,), world frame, and moment rho x R^T n (3,), body frame, m.

    The rate of the distance is force · xdot + moment · omega, omega the body-frame angular velocity. The motion of rho
    on the surface contributes nothing (envelope theorem). Source: [tran2024] eqs. (35), (60), (67).
    """
    normal = sm.tmatvec(pose.rotation, checks.of_shape("plane.normal", plane.normal, (3,)))
    return plane.normal, sm.cross(shape.support(-normal).point, normal)


def unit(direction: Array) -> Array:
    """The direction (3,) with length 1."""
    # The scale keeps tiny and huge directions from under- and overflowing; the result does not depend on it.
    scaled = direction / jax.lax.stop_gradient(jnp.max(jnp.abs(direction)))
    return scaled / norm(scaled)


def tie(dtype) -> float:
    """Relative difference of heights below which points count as equally far, the effect of round-off."""
    return 16 * float(jnp.finfo(dtype).eps)


def farthest(points: Array, direction: Array) -> Contact:
    """Point farthest along a unit direction, of points (n, 3); the mean of those that tie."""
    heights = sm.matvec(points, direction)
    size = jnp.max(jnp.abs(points))
    tied = jax.lax.stop_gradient(heights >= jnp.max(heights) - tie(heights.dtype) * size)
    weights = jnp.where(tied, jnp.ones_like(heights), jnp.zeros_like(heights))
    count = jnp.sum(weights)
    # Points that coincide to round-off are one point.
    first = points[jnp.argmax(tied)]
    apart = jnp.max(jnp.abs(points - first), axis=-1) > tie(heights.dtype) * size
    return Contact(jnp.sum(weights[:, None] * points, axis=0) / count, jnp.any(tied & apart))
