"""Convex shapes whose support point is a formula: ellipsoid, sphere, box, capsule, cylinder, polyhedron; rounding and
placing.

Lengths in meters, points and directions in the body frame. Builders check known numbers (ValueError names the part and
the value) and accept traced ones unchecked; the dtype is that of the first argument.
"""

import itertools
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.groups.arguments import Record, takes
from lgjax.groups.se3 import Pose
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm
from lgjax.shapes.contact import SHAPE, Array, Contact, Shape, farthest, tie, unit
from lgjax.shapes.cores import Brick, Core, Drum, Egg, Hull

UNKNOWN = "the faces of a polyhedron need vertices that are known, not traced"
MOST_CORNERS = 256  # of a polyhedron whose faces a distance finds


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ellipsoid(Shape):
    """Semi-axes (3,) along the axes of the body frame, about a center (3,)."""

    semi_axes: Array
    center: Array

    def support(self, direction: Array) -> Contact:
        u = self.semi_axes * unit(direction)
        return Contact(self.center + self.semi_axes * u / norm(u), jnp.zeros((), bool))

    def constraints(self, point: Array) -> Array:
        z = (point - self.center) / self.semi_axes
        return sm.dot(z, z)[None] - 1

    def core(self) -> tuple[Core, Any]:
        return Egg(self.semi_axes, self.center), 0.0

    def middle(self) -> Array:
        return self.center


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sphere(Ellipsoid):
    """An ellipsoid with three equal semi-axes: a kind of its own, known also where the radius is traced."""

    def core(self) -> tuple[Core, Any]:
        return Hull(self.center[None]), self.semi_axes[0]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Box(Shape):
    """Half the edge lengths (3,) along the axes of the body frame, about a center (3,)."""

    half_extents: Array
    center: Array

    def support(self, direction: Array) -> Contact:
        d = unit(direction)
        # An edge ties when its two ends are equally far; its middle is then the point.
        level = jnp.abs(d) * self.half_extents <= tie(d.dtype) * jnp.max(self.half_extents)
        side = jnp.where(level, jnp.zeros_like(d), jnp.sign(d))
        return Contact(self.center + side * self.half_extents, jnp.any(level))

    def constraints(self, point: Array) -> Array:
        z = (point - self.center) / self.half_extents
        return sm.join(z - 1, -z - 1)

    def core(self) -> tuple[Core, Any]:
        return Brick(self.half_extents, self.center), 0.0

    def middle(self) -> Array:
        return self.center


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Capsule(Shape):
    """Points within `radius` () of a segment of half length `half_length` () along z about a center (3,)."""

    radius: Array
    half_length: Array
    center: Array

    def support(self, direction: Array) -> Contact:
        d = unit(direction)
        level = jnp.abs(d[2]) * self.half_length <= tie(d.dtype) * (self.half_length + self.radius)
        side = jnp.where(level, jnp.zeros_like(d[2]), jnp.sign(d[2]))
        zero = jnp.zeros_like(side)
        axis = sm.stack(zero, zero, side * self.half_length)
        return Contact(self.center + axis + self.radius * d, level & (self.half_length > 0))

    def constraints(self, point: Array) -> Array:
        z = point - self.center
        beyond = z - sm.stack(0 * z[0], 0 * z[1], jnp.clip(z[2], -self.half_length, self.half_length))
        return (sm.dot(beyond, beyond) / (self.radius * self.radius))[None] - 1

    def core(self) -> tuple[Core, Any]:
        zero = jnp.zeros_like(self.half_length)
        along = sm.stack(zero, zero, self.half_length)
        return Hull(jnp.stack([self.center - along, self.center + along])), self.radius

    def middle(self) -> Array:
        return self.center


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cylinder(Shape):
    """Disc of `radius` () swept along z to `half_length` () on both sides of a center (3,)."""

    radius: Array
    half_length: Array
    center: Array

    def support(self, direction: Array) -> Contact:
        d = unit(direction)
        size = tie(d.dtype) * (self.half_length + self.radius)
        level, upright = jnp.abs(d[2]) * self.half_length <= size, norm(d[:2]) * self.radius <= size
        side = jnp.where(level, jnp.zeros_like(d[2]), jnp.sign(d[2]))
        outward = d[:2] / jnp.where(upright, jnp.ones_like(d[2]), norm(jnp.where(upright, jnp.ones_like(d[:2]), d[:2])))
        around = jnp.where(upright, jnp.zeros_like(outward), self.radius * outward)
        return Contact(self.center + sm.stack(around[0], around[1], side * self.half_length), level | upright)

    def constraints(self, point: Array) -> Array:
        z = point - self.center
        around = (z[0] * z[0] + z[1] * z[1]) / (self.radius * self.radius) - 1
        along = z[2] / self.half_length
        return sm.stack(around, along - 1, -along - 1)

    def core(self) -> tuple[Core, Any]:
        return Drum(self.radius, self.half_length, self.center), 0.0

    def middle(self) -> Array:
        return self.center


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Polyhedron(Shape):
    """Convex hull of vertices (n, 3).  Source: [tran2024] section 6.3."""

    vertices: Array

    def support(self, direction: Array) -> Contact:
        return farthest(self.vertices, unit(direction))

    def core(self) -> tuple[Core, Any]:
        return Hull(self.vertices), 0.0

    def middle(self) -> Array:
        return jnp.mean(self.vertices, axis=0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Facets(Polyhedron):
    """Polyhedron that knows its faces: for each the indices of three corners, counterclockwise seen from outside."""

    faces: tuple[tuple[int, int, int], ...] = field(metadata={"static": True})

    @classmethod
    def of(cls, solid: Polyhedron) -> "Facets":
        """One triple per face of the hull of known vertices."""
        return cls(solid.vertices, tuple(map(tuple, faces_of(solid.vertices, merge=True).tolist())))

    def constraints(self, point: Array) -> Array:
        a, b, c = (self.vertices[np.array(corner)] for corner in zip(*self.faces, strict=True))
        normal = sm.cross(b - a, c - a)
        return sm.dot(normal, point - a) / sm.dot(normal, a - self.middle())

    def core(self) -> tuple[Core, Any]:
        return Hull(self.vertices, self.faces), 0.0


def faces_of(vertices, merge: bool = False) -> np.ndarray:
    """Triangles (m, 3) of vertex indices on the hull of known vertices, outward; with merge one per plane.

    ValueError if the vertices are traced: which of them are corners of which face must be known. ImportError without
    SciPy.
    """
    if not checks.known(vertices):
        raise ValueError(UNKNOWN)
    try:
        from scipy.spatial import ConvexHull
    except ImportError:
        raise ImportError("the faces of a polyhedron need the package scipy: pip install scipy") from None
    points = np.asarray(vertices, float)
    hull = ConvexHull(points)
    triangles = hull.simplices.copy()
    a, b, c = (points[triangles[:, k]] for k in range(3))
    inward = np.einsum("ij,ij->i", np.cross(b - a, c - a), hull.equations[:, :3]) < 0
    triangles[inward] = triangles[inward][:, [0, 2, 1]]
    if merge:
        planes = hull.equations / np.append(np.ones(3), np.abs(points).max())
        same = np.abs(planes[:, None] - planes[None]).max(axis=-1) < 1e-9
        triangles = triangles[np.argmax(same, axis=1) == np.arange(len(planes))]
    return triangles


@lru_cache(maxsize=256)
def _polygons(data: bytes) -> tuple[tuple[int, ...], ...]:
    """Corners of the faces of the hull of points, see `Faced`."""
    points, found = np.frombuffer(data).reshape(-1, 3), []
    size = np.abs(points - points.mean(0)).max()
    for a, b, c in points[faces_of(points, merge=True)]:
        normal = np.cross(b - a, c - a)
        normal /= np.linalg.norm(normal)
        on = np.flatnonzero(np.abs((points - a) @ normal) < 1e-9 * size)
        place = points[on] - points[on].mean(0)
        turn = np.arctan2(place @ np.cross(normal, place[0]), place @ place[0])
        found.append(tuple(int(n) for n in on[np.argsort(turn)]))
    longest = max(map(len, found))
    return tuple(face + face[-1:] * (longest - len(face)) for face in found)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Faced(Polyhedron):
    """Polyhedron that knows all corners of its faces, in their order, the last one repeated to the longest face."""

    faces: tuple[tuple[int, ...], ...] = field(metadata={"static": True})

    @classmethod
    def of(cls, solid: Polyhedron) -> "Faced":
        """With the faces of the hull of known vertices."""
        if not checks.known(solid.vertices):
            raise ValueError(UNKNOWN)
        return cls(solid.vertices, _polygons(np.asarray(solid.vertices, float).tobytes()))

    def core(self) -> tuple[Core, Any]:
        return Hull(self.vertices, self.faces, whole=True), 0.0


def with_faces(shape: Shape) -> Shape:
    """The shape, whose polyhedron knows its faces if its vertices are known, and not too many."""
    if isinstance(shape, Placed):
        return Placed(with_faces(shape.shape), shape.pose)
    if isinstance(shape, Rounded):
        return Rounded(with_faces(shape.shape), shape.radius)
    if type(shape) is not Polyhedron or not checks.known(shape.vertices) or len(shape.vertices) > MOST_CORNERS:
        return shape
    try:
        return Faced.of(shape)
    except (ValueError, RuntimeError):  # not finite, or in a plane to round-off
        return shape


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rounded(Shape):
    """Points within `radius` () of a shape: corners and edges become parts of spheres and cylinders.

    Source: [tran2024] eqs. (65), (66).
    """

    shape: Shape
    radius: Array

    def support(self, direction: Array) -> Contact:
        point, flat = self.shape.support(direction)
        return Contact(point + self.radius * unit(direction), flat)

    def middle(self) -> Array:
        return self.shape.middle()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Placed(Shape):
    """Shape at `pose`, which maps its own frame to the body's."""

    shape: Shape
    pose: Pose

    def support(self, direction: Array) -> Contact:
        point, flat = self.shape.support(sm.tmatvec(self.pose.rotation, direction))
        return Contact(self.pose.act(point), flat)

    def constraints(self, point: Array) -> Array:
        return self.shape.constraints(sm.tmatvec(self.pose.rotation, point - self.pose.translation))

    def middle(self) -> Array:
        return self.pose.act(self.shape.middle())


def ellipsoid(semi_axes: Any, center: Any = 0.0) -> Ellipsoid:
    """Ellipsoid with semi-axes (3,) > 0, m, along the axes of the body frame, about center (3,).

    Source: [tran2024] eqs. (5), (7).
    """
    dtype = checks.float_dtype(semi_axes)
    axes = checks.positive(
        "semi-axes of the ellipsoid", checks.array("semi-axes of the ellipsoid", semi_axes, (3,), dtype)
    )
    return Ellipsoid(axes, checks.array("center of the ellipsoid", center, (3,), dtype))


def sphere(radius: Any, center: Any = 0.0) -> Sphere:
    """Sphere of a radius > 0, m, about center (3,)."""
    dtype = checks.float_dtype(radius)
    value = checks.positive("radius of the sphere", checks.array("radius of the sphere", radius, (), dtype))
    return Sphere(jnp.broadcast_to(value, (3,)), checks.array("center of the sphere", center, (3,), dtype))


def box(half_extents: Any, center: Any = 0.0, rounding: Any = 0.0) -> Shape:
    """Box with half edge lengths (3,) > 0, m, about center (3,); a number makes a cube. `rounding` as in `rounded`."""
    dtype = checks.float_dtype(half_extents)
    half = checks.positive(
        "half extents of the box", checks.array("half extents of the box", half_extents, (3,), dtype)
    )
    return rounded(Box(half, checks.array("center of the box", center, (3,), dtype)), rounding)


def capsule(radius: Any, half_length: Any, center: Any = 0.0) -> Capsule:
    """Capsule about center (3,): radius > 0 around a segment along z that reaches half_length >= 0 to both sides, m."""
    dtype = checks.float_dtype(radius)
    r = checks.positive("radius of the capsule", checks.array("radius of the capsule", radius, (), dtype))
    half = checks.array("half length of the capsule", half_length, (), dtype)
    checks.positive("half length of the capsule", half, allow_zero=True)
    return Capsule(r, half, checks.array("center of the capsule", center, (3,), dtype))


def cylinder(radius: Any, half_length: Any, center: Any = 0.0) -> Cylinder:
    """Cylinder about center (3,): radius > 0 around z, which it follows to half_length > 0 on both sides, m."""
    dtype = checks.float_dtype(radius)
    r = checks.positive("radius of the cylinder", checks.array("radius of the cylinder", radius, (), dtype))
    half = checks.array("half length of the cylinder", half_length, (), dtype)
    checks.positive("half length of the cylinder", half)
    return Cylinder(r, half, checks.array("center of the cylinder", center, (3,), dtype))


def polyhedron(vertices: Any, rounding: Any = 0.0) -> Shape:
    """Convex hull of vertices (n, 3), n >= 4, m, not all in one plane. `rounding` as in `rounded`.

    A point inside the hull changes nothing; one inside a face takes part only when that face lies flat.
    """
    corners = checks.array("vertices of the polyhedron", vertices, (None, 3), checks.float_dtype(vertices))
    if len(corners) < 4:
        raise ValueError(f"a polyhedron needs at least 4 vertices, not {len(corners)}")
    if checks.known(corners):
        points = np.asarray(corners, float)
        spread = np.linalg.svd(points - points.mean(0), compute_uv=False)
        if spread[2] <= 1e3 * float(jnp.finfo(corners.dtype).eps) * spread[0]:
            raise ValueError(f"vertices of the polyhedron lie in one plane: {checks.entries(corners)}")
    return rounded(Polyhedron(corners), rounding)


def cuboid_vertices(half_extents) -> np.ndarray:
    """The corners (8, 3) of a box about the origin."""
    return np.asarray(half_extents) * np.array(list(itertools.product((-1.0, 1.0), repeat=3)))


@takes(shape=SHAPE)
def rounded(shape: Shape, radius: ArrayLike) -> Shape:
    """Points within `radius` >= 0, m, of a shape, which grows by as much; 0 returns the shape itself.

    Source: [tran2024] eq. (65).
    """
    value = checks.array("rounding", radius, (), jax.tree.leaves(shape)[0].dtype)
    checks.positive("rounding", value, allow_zero=True)
    return shape if checks.known(value) and not np.any(np.asarray(value)) else Rounded(shape, value)


@takes(shape=SHAPE, pose=Record(Pose))
def placed(shape: Shape, pose: Pose) -> Placed:
    """Shape turned and moved by `pose` (its own frame to the body's); rotation (3, 3), translation (3,)."""
    dtype = jax.tree.leaves(shape)[0].dtype
    rotation = checks.array("rotation of the pose", pose.rotation, (3, 3), dtype)
    checks.rotation("rotation of the pose", rotation, 1e-4)
    return Placed(shape, Pose(rotation, checks.array("translation of the pose", pose.translation, (3,), dtype)))
