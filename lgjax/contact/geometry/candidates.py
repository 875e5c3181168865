"""Where a shape can touch: rounded corners, which do not depend on the direction, or points that do.

A sphere is one rounded corner, a capsule two, a box eight: centers and radii, all treated alike and at once. The other
shapes give their support point, a cylinder three points of each rim. Of a polyhedron with many corners a few are
chosen in each step, see `Patch`. Read first: `lgjax/shapes/contact.py`.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm
from lgjax.shapes.combined import Union
from lgjax.shapes.contact import Contact, Shape, farthest, tie, unit
from lgjax.shapes.convex import Box, Capsule, Cylinder, Placed, Polyhedron, Rounded, Sphere, cuboid_vertices

Array = jax.Array

FEW = 8  # corners of a polyhedron that are all candidates
# A corner that is higher than another by this part of their distance may take its place, for more spread: a turn by
# this angle brings it down. Facets that meet at smaller angles count as one.
SLOPE = 1 / 32
# Along which one of two corners that spread equally wide is preferred; no direction of a usual shape.
ASIDE = np.array([0.61, 0.35, 0.71])


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
    if isinstance(shape, Patch):
        down = unit(direction)
        return shape.lowest(sm.matvec(shape.vertices, down), down) + shape.radius * down
    return shape.support(direction).point[None]


def _rims(shape: Cylinder, d: Array) -> Array:
    """Three points of each rim, the lowest first, a third of a turn apart, so that a cylinder can stand on them."""
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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Patch(Shape):
    """Polyhedron with many corners (n, 3), rounded by a radius (), of which `count` touch in a step."""

    vertices: Array
    radius: Array
    count: int = field(metadata={"static": True})

    def support(self, direction: Array) -> Contact:
        point, flat = farthest(self.vertices, unit(direction))
        return Contact(point + self.radius * unit(direction), flat)

    def middle(self) -> Array:
        return jnp.mean(self.vertices, axis=0)

    def lowest(self, depths: Array, down: Array) -> Array:
        """The corners (count, 3) that touch, from the depths (n,) of all and the unit direction down (3,)."""
        numbers = _spread(*jax.lax.stop_gradient((self.vertices, depths, down)), self.count)
        return jnp.stack([self.vertices[n] for n in numbers])


def patch_of(shape: Shape, points: int) -> Patch | None:
    """A polyhedron with more than a few corners, also placed or rounded, as a patch; None for other shapes."""
    inner, corners = shape, corners_of(shape)
    while isinstance(inner, Placed | Rounded):
        inner = inner.shape
    if corners is None or not isinstance(inner, Polyhedron) or len(corners.radii) <= max(FEW, points):
        return None
    return Patch(corners.centers, corners.radii[0], points)


def _spread(vertices: Array, depths: Array, down: Array, count: int) -> list[Array]:
    """Numbers () of corners: the deepest and those that a body with this side down stands on.

    First, of the low ones, the farthest in a fixed direction, then the one farthest from it, the one farthest from
    their line, the one farthest outside their triangle, and those farthest from all so far. This is a choice by
    `SLOPE`, so that round-off does not change it. Then, if none of them is the deepest, it replaces the nearest.
    """
    taken: list[Array] = []
    places: list[Array] = []
    aside = sm.matvec(vertices, jnp.asarray(ASIDE, vertices.dtype))
    numbers = np.arange(len(vertices), dtype=np.int32)
    length = lambda x: jnp.sqrt(sm.dot(x, x))

    def beside(a: Array, b: Array) -> Array:
        """Signed distances (n,) from a line between two corners."""
        across = sm.cross(down, b - a)
        size = jnp.maximum(length(across), float(jnp.finfo(across.dtype).tiny))
        return sm.matvec(vertices - a, across / size)

    for k in range(count):
        if k == 0:
            wide = aside
        elif k == 2:
            wide = jnp.abs(beside(*places))
        elif k == 3:
            a, b, c = places
            side = -jnp.sign(sm.dot(sm.cross(down, b - a), c - a))
            wide = jnp.maximum(jnp.maximum(side * beside(a, b), side * beside(b, c)), side * beside(c, a))
        else:
            away = jnp.stack([length(vertices - place) for place in places])
            wide = jnp.min(away, axis=0)
        score = depths + SLOPE * (wide + 0.01 * aside)
        for number in taken:
            score = jnp.where(numbers == number, jnp.full_like(score, -jnp.inf), score)
        taken.append(jnp.argmax(score).astype(jnp.int32))
        places.append(vertices[taken[-1]])
    lowest = jnp.argmax(depths).astype(jnp.int32)
    deep = jnp.max(jnp.stack([depths[number] for number in taken]))
    missed = depths[lowest] > deep + tie(depths.dtype) * jnp.max(jnp.abs(vertices))
    nearest = jnp.argmin(jnp.stack([length(place - vertices[lowest]) for place in places]))
    return [jnp.where(missed & (nearest == k), lowest, number) for k, number in enumerate(taken)]


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
