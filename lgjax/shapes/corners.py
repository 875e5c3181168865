"""Corners of shapes, for bodies that lie on more than one point, and the middle of shapes with a formula for it."""

import jax.numpy as jnp
import numpy as np

from lgjax.numerics import small_matrix as sm
from lgjax.shapes.combined import Union
from lgjax.shapes.contact import Array, Shape
from lgjax.shapes.convex import Box, Capsule, Placed, Polyhedron, Rounded, cuboid_vertices


def corners(shape: Shape) -> tuple[Array, Array]:
    """Points (k, 3), body frame, and radii (k,) of balls about them, m, that a shape can lie on at the same time.

    Corners of boxes and polyhedra, both ends of a capsule, and those of placed and rounded shapes and of unions of
    them; none, k = 0, where a surface is curved or the corners are not known (intersections).
    """
    if isinstance(shape, Placed):
        points, radii = corners(shape.shape)
        return shape.pose.act(points), radii
    if isinstance(shape, Rounded):
        points, radii = corners(shape.shape)
        return points, radii + shape.radius
    if isinstance(shape, Union):
        parts = [corners(part) for part in shape.parts]
        return jnp.concatenate([points for points, _ in parts]), jnp.concatenate([radii for _, radii in parts])
    if isinstance(shape, Box):
        unit = jnp.asarray(cuboid_vertices(np.ones(3)), shape.half_extents.dtype)
        points = shape.center + unit * shape.half_extents
        return points, jnp.zeros_like(points[:, 0])
    if isinstance(shape, Polyhedron):
        return shape.vertices, jnp.zeros_like(shape.vertices[:, 0])
    if isinstance(shape, Capsule):
        zero = jnp.zeros_like(shape.half_length)
        along = sm.stack(zero, zero, shape.half_length)
        return jnp.stack([shape.center - along, shape.center + along]), jnp.stack([shape.radius, shape.radius])
    dtype = shape.middle().dtype
    return jnp.zeros((0, 3), dtype), jnp.zeros((0,), dtype)
