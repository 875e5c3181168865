"""Cores of shapes: what is left of a convex shape without its rounding, as labels of support points.

A support point is found in two parts. `label` decides from a direction what cannot change smoothly: the corner of a
box, the end of a cylinder. `point` is the point of that label, a smooth function of the direction and of the shape's
numbers. Labels are arrays of floats (k,), so that a search can carry them. Read first: `contact.py`.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm
from lgjax.shapes.contact import Array, Shape
from lgjax.shapes.ridges import Ridges, of_faces

# Directions in which a search for the deepest normal begins, and signs of the corners of a box.
AXES = np.concatenate([np.eye(3), -np.eye(3)])
FACES = np.array([np.roll([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], k + 1, 1) for k in range(3)])
SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
SIDES = ((0, 2, 3, 1), (4, 6, 7, 5), (0, 1, 5, 4), (2, 3, 7, 6), (0, 4, 6, 2), (1, 5, 7, 3))  # corners of faces
FEW = 24  # corners of a polyhedron whose edges are tried with round bodies
RIM = 8  # points of the rim of a cylinder that stand for it where it lies on its end
SPREAD = np.array([[x, y, z] for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1) if (x, y, z) != (0, 0, 0)])
SPREAD = SPREAD / np.linalg.norm(SPREAD, axis=1, keepdims=True)


class Core:
    """Protocol of a core; a pytree whose arrays are leaves. Directions and points (3,) in the frame of the shape."""

    # Whether it is a polytope and `normals` and `ridges` hold every one of its faces and edges.
    polytope = False
    # Whether it has so many edges that their pairs are tried in a loop.
    listed = False
    # Whether it is the same seen from its middle in opposite directions, and `normals` ends with the opposites of its
    # first half.
    symmetric = False
    # From how many normals the least overlap is searched.
    starts = 6
    # Whether all of it lies within `size` of its middle.
    bounded = True
    # Whether labels hold points that stay where a search found them, until they are settled.
    stays = False

    # How many numbers a label has.
    label_size = 1

    def label(self, direction: Array) -> Array:
        """The label (k,) of the support point along a direction."""
        raise NotImplementedError

    def point(self, label: Array, direction: Array) -> Array:
        """The support point (3,) of a label, as it moves with the direction."""
        raise NotImplementedError

    def points_of(self, labels: Array, direction: Array) -> list[Array]:
        """The points (3,) of labels (m, k)."""
        return [self.point(label, direction) for label in labels]

    def support(self, direction: Array) -> tuple[Array, Array]:
        """The support point (3,) along a direction and its label (k,)."""
        label = self.label(direction)
        return self.point(label, direction), label

    def height(self, direction: Array) -> Array:
        """How far () the core reaches along a direction (3,), times its length."""
        return sm.dot(direction, self.support(direction)[0])

    def settled(self, label: Array) -> Array:
        """The same label, for points that a search kept where it found them: from now on they move."""
        return label

    def middle(self) -> Array:
        """A point (3,) in the middle."""
        raise NotImplementedError

    def size(self) -> Array:
        """About half of the largest extent ()."""
        raise NotImplementedError

    def normals(self) -> Array:
        """Unit directions (m, 3) that are or may be near normals of faces."""
        return jnp.asarray(SPREAD, self.middle().dtype)

    def edges(self) -> Array:
        """Directions (m, 3) of straight edges, of any length."""
        return jnp.zeros((0, 3), self.middle().dtype)

    # Whether it has an ellipse or ellipsoid, see `squares`.
    oval = False

    def squares(self) -> Array:
        """Squares (3,) of the semi-axes of its round part, along the axes of the shape."""
        raise NotImplementedError

    def ridges(self) -> Ridges:
        """The edges of a polytope."""
        return Ridges(*[jnp.zeros((0, 3), self.middle().dtype)] * 4)

    # How many corners a face has that another body can lie on; 0 for a core that is round everywhere, 2 for a segment.
    corners = 0

    def face(self, direction: Array) -> tuple[Array, Array]:
        """Corners (m, 3) around the face that looks most along a unit direction, and its unit normal (3,).

        A straight edge of a cylinder is a face without area.
        """
        raise NotImplementedError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Brick(Core):
    """A box; the label is the signs of a corner."""

    half_extents: Array
    center: Array
    polytope = True
    symmetric = True
    label_size = 3

    def label(self, direction: Array) -> Array:
        return jnp.where(direction >= 0, jnp.ones_like(direction), -jnp.ones_like(direction))

    def point(self, label: Array, direction: Array) -> Array:
        return self.center + label * self.half_extents

    def height(self, direction: Array) -> Array:
        return sm.dot(direction, self.center) + sm.dot(jnp.abs(direction), self.half_extents)

    def middle(self) -> Array:
        return self.center

    def size(self) -> Array:
        return norm(self.half_extents)

    def normals(self) -> Array:
        return jnp.asarray(AXES, self.center.dtype)

    def edges(self) -> Array:
        return jnp.asarray(np.eye(3), self.center.dtype)

    def ridges(self) -> Ridges:
        return of_faces(self.center + jnp.asarray(SIGNS, self.center.dtype) * self.half_extents, SIDES)

    corners = 4

    def face(self, direction: Array) -> tuple[Array, Array]:
        up = np.arange(3, dtype=np.int32) == jnp.argmax(jnp.abs(direction)).astype(jnp.int32)
        side = jnp.where(up, jnp.where(direction >= 0, 1.0, -1.0).astype(direction.dtype), 0)
        # The corners of the face along z, then those along x and y by exchanging axes.
        around = jnp.asarray(FACES, direction.dtype)
        signs = jnp.where(up[0], around[0], jnp.where(up[1], around[1], around[2])) + side
        return self.center + signs * self.half_extents, side


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Hull(Core):
    """The hull of points (n, 3); the label is the number of a point.

    faces: three corners of each, as in `Facets`, or all in their order, the last one repeated so that all are equally
    long; () if not known. whole: whether all are there.
    """

    points: Array
    faces: tuple[tuple[int, ...], ...] = field(default=(), metadata={"static": True})
    whole: bool = field(default=False, metadata={"static": True})

    @property
    def starts(self) -> int:
        return 6 if len(self.points) <= 2 else 16  # many local optima, near normals that are not known

    @property
    def polytope(self) -> bool:
        return len(self.points) <= 2 or self.whole

    @property
    def listed(self) -> bool:
        return len(self.points) > 2

    def label(self, direction: Array) -> Array:
        best = jnp.argmax(sm.matvec(self.points, direction))
        return best.astype(direction.dtype)[None]

    def point(self, label: Array, direction: Array) -> Array:
        if len(self.points) == 1:
            return self.points[0]
        return self.points[label[0].astype(jnp.int32)]

    def middle(self) -> Array:
        return jnp.mean(self.points, axis=0)

    def size(self) -> Array:
        return jnp.max(norm(self.points - self.middle()))

    def normals(self) -> Array:
        if len(self.points) <= 2:
            return jnp.zeros((0, 3), self.points.dtype)
        if not self.faces:
            return jnp.concatenate([super().normals(), self._outward(self.points)])
        a, b, c = (self.points[np.array(corner)] for corner in zip(*map(_apart, self.faces), strict=True))
        across = sm.cross(b - a, c - a)
        length = norm(across)[:, None]
        return across / jnp.where(length > 0, length, jnp.ones_like(length))

    def _outward(self, points: Array) -> Array:
        away = points - self.middle()
        length = norm(away)[:, None]
        return away / jnp.where(length > 0, length, jnp.ones_like(length))

    def edges(self) -> Array:
        if len(self.points) == 2:
            return self.points[1:] - self.points[:1]
        return self.ridges().along if self.whole and len(self.points) <= FEW else super().edges()

    def ridges(self) -> Ridges:
        if len(self.points) == 2:
            along = self.edges()
            return Ridges(self.points[:1], along, jnp.zeros_like(along), jnp.zeros_like(along))
        return of_faces(self.points, self.faces) if self.whole else super().ridges()

    @property
    def corners(self) -> int:
        return 2 if len(self.points) == 2 else len(self.faces[0]) if self.whole else 0

    def face(self, direction: Array) -> tuple[Array, Array]:
        if len(self.points) == 2:
            along = self.points[1] - self.points[0]
            square = sm.dot(along, along)
            across = direction - sm.dot(direction, along) / jnp.where(square > 0, square, jnp.ones_like(square)) * along
            length = norm(across)
            steep = length < 0.1
            across = across / jnp.where(steep, jnp.ones_like(length), length)
            return self.points, jnp.where(steep, direction, across)
        normals = self.normals()
        best = jnp.argmax(sm.matvec(normals, direction)).astype(jnp.int32)
        index = jnp.asarray(np.array(self.faces, np.int32))[best]
        return self.points[index], normals[best]


def _apart(face: tuple[int, ...]) -> tuple[int, int, int]:
    """Three corners of a face about as far apart as they can be in its order."""
    around = tuple(dict.fromkeys(face))
    return around[0], around[len(around) // 3], around[2 * len(around) // 3]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Egg(Core):
    """An ellipsoid; its label says nothing."""

    semi_axes: Array
    center: Array

    def label(self, direction: Array) -> Array:
        return jnp.zeros_like(direction[:1])

    def point(self, label: Array, direction: Array) -> Array:
        u = self.semi_axes * direction
        return self.center + self.semi_axes * u / norm(u)

    def middle(self) -> Array:
        return self.center

    def size(self) -> Array:
        return jnp.max(self.semi_axes)

    def normals(self) -> Array:
        return jnp.asarray(AXES, self.center.dtype)

    oval = True

    def squares(self) -> Array:
        return self.semi_axes * self.semi_axes


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Drum(Core):
    """A cylinder; the label is the end (1 or -1) and the point of its rim, (0, 0) for one that moves."""

    radius: Array
    half_length: Array
    center: Array
    stays = True
    starts = 12
    label_size = 3

    def label(self, direction: Array) -> Array:
        one = jnp.ones_like(direction[2])
        out = self._outward(direction)
        return sm.stack(jnp.where(direction[2] >= 0, one, -one), out[0], out[1])

    def _outward(self, direction: Array) -> Array:
        length = norm(direction[:2])
        upright = length == 0
        flat = jnp.where(upright, jnp.asarray(np.array([1.0, 0.0]), direction.dtype), direction[:2])
        return flat / jnp.where(upright, jnp.ones_like(length), length)

    def point(self, label: Array, direction: Array) -> Array:
        moves = (label[1] == 0) & (label[2] == 0)
        out = jnp.where(moves, self._outward(direction), label[1:])
        return self.center + sm.stack(self.radius * out[0], self.radius * out[1], self.half_length * label[0])

    def settled(self, label: Array) -> Array:
        return jnp.concatenate([label[:1], jnp.zeros_like(label[1:])])

    def middle(self) -> Array:
        return self.center

    def size(self) -> Array:
        return self.radius + self.half_length

    def normals(self) -> Array:
        turns = np.pi / 4 * np.arange(8)
        around = np.stack([np.cos(turns), np.sin(turns), 0 * turns], 1)
        return jnp.asarray(np.concatenate([AXES[[2, 5]], around]), self.center.dtype)

    def edges(self) -> Array:
        return jnp.asarray(np.eye(3)[2:], self.center.dtype)

    oval = True

    def squares(self) -> Array:
        zero = jnp.zeros_like(self.radius)
        return sm.stack(self.radius * self.radius, self.radius * self.radius, zero)

    corners = RIM

    def face(self, direction: Array) -> tuple[Array, Array]:
        side = jnp.where(direction[2] >= 0, 1.0, -1.0).astype(direction.dtype)
        out = self._outward(direction)
        on_end = jnp.abs(direction[2]) > 0.7
        # Where it stands nearly upright, which point of the rim is lowest is round-off: from there on a fixed one.
        upright = norm(direction[:2]) < 1e-6
        first = jnp.where(upright, jnp.asarray(np.array([1.0, 0.0]), out.dtype), out)
        turns = 2 * np.pi / RIM * np.arange(RIM)
        c, s = jnp.asarray(np.cos(turns), out.dtype), jnp.asarray(np.sin(turns), out.dtype)
        rim = self.radius * jnp.stack([c * first[0] - s * first[1], s * first[0] + c * first[1]], 1)
        ends = jnp.asarray(np.where(np.arange(RIM) < RIM // 2, 1.0, -1.0), out.dtype)
        line = jnp.broadcast_to(self.radius * out, (RIM, 2))
        flat = jnp.where(on_end, rim, line)
        along = self.half_length * jnp.where(on_end, side, ends)
        zero = jnp.zeros_like(side)
        normal = jnp.where(on_end, sm.stack(zero, zero, side), sm.stack(out[0], out[1], zero))
        return self.center + jnp.concatenate([flat, along[:, None]], 1), normal


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Other(Core):
    """A convex shape of which only the support point is a formula or a search.

    The label is the point itself, and whether it stays there. A point that stays has the derivatives of the support
    point in the shape's numbers.
    """

    shape: Shape
    stays = True
    bounded = False
    label_size = 4

    def label(self, direction: Array) -> Array:
        return self.support(direction)[1]

    def point(self, label: Array, direction: Array) -> Array:
        return self.points_of(label[None], direction)[0]

    def points_of(self, labels: Array, direction: Array) -> list[Array]:
        found = self.shape.support(direction).point  # once: it may be a search
        still = found - jax.lax.stop_gradient(found)
        return [jnp.where(label[0] > 0, label[1:] + still, found) for label in labels]

    def support(self, direction: Array) -> tuple[Array, Array]:
        found = self.shape.support(direction).point
        return found, sm.join(jnp.ones_like(direction[:1]), found)

    def settled(self, label: Array) -> Array:
        return jnp.zeros_like(label)

    def middle(self) -> Array:
        return self.shape.middle()

    def size(self) -> Array:
        ends = [self.shape.support(jnp.asarray(axis, self.middle().dtype)).point for axis in AXES[:3]]
        return jnp.max(jnp.stack([norm(end - self.middle()) for end in ends]))
