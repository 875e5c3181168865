"""Where a shape can touch: rounded corners, which do not depend on the direction, or points that do.

A sphere is one rounded corner, a capsule two, a box eight: centers and radii, all treated alike and at once. The other
shapes give their support point, a cylinder three points of each rim. Read first: `lgjax/shapes/contact.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm
from lgjax.shapes.combined import Union
from lgjax.shapes.contact import Shape, unit
from lgjax.shapes.convex import Box, Capsule, Cylinder, Placed, Polyhedron, Rounded, Sphere, cuboid_vertices

Array = jax.Array


class Corners(NamedTuple):
    """Balls whose hull touches: centers (k, 3), frame of the shape's carrier, radii (k,), m."""

    centers: Array
    radii: Array


def parts_of(shape: Shape) -> list[Shape]:
    """The shapes that a union is made of, placed and rounded as it is; a shape that is no union alone."""
    if isinstance(shape, Union):
        return [part for one in shape.parts for part in parts_of(one)]
    if isinstance(shape, Placed):
        return [Placed(part, shape.pose) for part in parts_of(shape.shape)]
    if isinstance(shape, Rounded):
        return [Rounded(part, shape.radius) for part in parts_of(shape.shape)]
    return [shape]


def corners_of(shape: Shape) -> Corners | None:
    """The rounded corners of a shape, or None if it has none."""
    if isinstance(shape, Sphere):
        return Corners(shape.center[None], shape.semi_axes[:1])
    if isinstance(shape, Capsule):
        ends = jnp.asarray([[0, 0, -1], [0, 0, 1]], shape.center.dtype)
        return Corners(shape.center + shape.half_length * ends, jnp.broadcast_to(shape.radius, (2,)))
    if isinstance(shape, Box):
        corners = shape.center + shape.half_extents * jnp.asarray(cuboid_vertices(np.ones(3)), shape.center.dtype)
        return Corners(corners, jnp.zeros_like(corners[:, 0]))
    if isinstance(shape, Polyhedron):
        return Corners(shape.vertices, jnp.zeros_like(shape.vertices[:, 0]))
    if isinstance(shape, Rounded):
        inner = corners_of(shape.shape)
        return inner and Corners(inner.centers, inner.radii + shape.radius)
    if isinstance(shape, Placed):
        inner = corners_of(shape.shape)
        return inner and Corners(shape.pose.act(inner.centers), inner.radii)
    return None


def points_towards(shape: Shape, direction: Array) -> Array:
    """Points (k, 3) of a shape without corners that may touch a plane whose normal is against `direction` (3,)."""
    if isinstance(shape, Placed):
        return shape.pose.act(points_towards(shape.shape, sm.tmatvec(shape.pose.rotation, direction)))
    if isinstance(shape, Cylinder):
        return _rims(shape, unit(direction))
    return shape.support(direction).point[None]


def _rims(shape: Cylinder, d: Array) -> Array:
    """Of each rim the lowest point and two others at a third of a turn, so that a standing cylinder has a support."""
    flat = d[:2]
    length = norm(flat)
    upright = length <= 1e-6
    axis = jnp.asarray([1, 0], d.dtype)
    x, y = jnp.unstack(jnp.where(upright, axis, flat / jnp.where(upright, jnp.ones_like(length), length)))
    turns = 2 * np.pi / 3 * np.arange(3)
    c, s = jnp.asarray(np.cos(turns), d.dtype), jnp.asarray(np.sin(turns), d.dtype)
    around = shape.radius * jnp.stack([c * x - s * y, s * x + c * y], -1)
    rims = [
        jnp.concatenate([around, jnp.broadcast_to(end * shape.half_length, (3, 1))], -1)
        for end in (jnp.ones_like(length), -jnp.ones_like(length))
    ]
    return shape.center + jnp.concatenate(rims)


def segment_of(shape: Shape) -> Corners | None:
    """A sphere or capsule as the two ends (2, 3) of its segment and its radius (1,), or None for other shapes."""
    inner = shape
    while isinstance(inner, Placed):
        inner = inner.shape
    if not isinstance(inner, Capsule | Sphere):
        return None
    corners = corners_of(shape)
    assert corners is not None
    ends = corners.centers if len(corners.centers) == 2 else jnp.concatenate([corners.centers] * 2)
    return Corners(ends, corners.radii[:1])
