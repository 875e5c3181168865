"""Collision geometry of a model as a description: numbers, not arrays, so that it is static and costs programs nothing.

`lgjax.Contacts` makes shapes of `lgjax.shapes` from it, whose arrays can be batched and differentiated.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from lgjax.groups.se3 import Pose
from lgjax.numerics import checks
from lgjax.shapes import Shape, box, capsule, cylinder, ellipsoid, placed, sphere
from lgjax.shapes.convex import Polyhedron

# The numbers in `size`, m, by kind.
SIZES = {"sphere": 1, "capsule": 2, "cylinder": 2, "box": 3, "ellipsoid": 3, "mesh": 0, "hull": 0}
FLAT = 1e-7  # part of a hull's length below which it has no thickness


@dataclass(frozen=True, eq=False, repr=False)
class Hull:
    """Vertices (n, 3), m, of a convex body, n >= 4, not all in one plane; points inside change nothing.

    Constant: a model is hashed and compared at every call, so a hull is hashed once, and one that is the same object is
    equal without a look at its numbers.
    """

    vertices: np.ndarray

    def __post_init__(self) -> None:
        points = np.array(self.vertices, float) + 0.0  # without negative zeros
        if points.ndim != 2 or points.shape[1] != 3 or len(points) < 4:
            raise ValueError(f"a hull has at least 4 vertices (n, 3), got {points.shape}")
        if not np.isfinite(points).all():
            raise ValueError(f"vertices of a hull are finite, got {checks.entries(points, ~np.isfinite(points))}")
        spread = np.linalg.svd(points - points.mean(0), compute_uv=False)
        if not spread[2] > FLAT * spread[0]:
            raise ValueError(f"vertices of a hull do not lie in one plane, got {checks.entries(points)}")
        points.setflags(write=False)
        object.__setattr__(self, "vertices", points)

    @cached_property
    def _hash(self) -> int:
        return hash(self.vertices.tobytes())

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Hull):
            return NotImplemented
        return self._hash == other._hash and np.array_equal(self.vertices, other.vertices)

    def __reduce__(self) -> tuple:
        return Hull, (self.vertices,)  # hashes differ between processes

    def __repr__(self) -> str:
        return f"<Hull of {len(self.vertices)} vertices>"


@dataclass(frozen=True)
class Geometry:
    """A shape fixed to a link.

    link: name of a body or frame of the model. kind and size (m): sphere (radius), capsule and cylinder (radius, half
    length along z), box and ellipsoid (half extents), hull (none: its vertices are in `hull`), mesh (none: it is known
    that one is there, its file is not read).
    position (3,) and rotation (nine numbers, row by row): the shape's pose in the frame of the link.
    friction: Coulomb's coefficient on the ground, None where nothing is said. Of two geometries the larger counts, as
    in MuJoCo.
    group, mask: sets of bits. Two geometries can touch if the group of one shares a bit with the mask of the other, see
    `meets`; one without any bit touches nothing. They are MuJoCo's contype and conaffinity.
    """

    link: str
    kind: str
    size: tuple[float, ...] = ()
    position: tuple[float, ...] = (0.0, 0.0, 0.0)
    rotation: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    hull: Hull | None = None
    friction: float | None = None
    group: int = 1
    mask: int = 1

    def __post_init__(self) -> None:
        where = f"geometry of {self.link!r}"
        if self.kind not in SIZES:
            raise ValueError(f"{where}: unknown kind {self.kind!r}; known: {', '.join(SIZES)}")
        if len(self.size) != SIZES[self.kind]:
            raise ValueError(f"{where}: a {self.kind} has {SIZES[self.kind]} sizes, got {self.size}")
        if self.size and not (np.isfinite(self.size).all() and np.min(self.size) > 0):
            raise ValueError(f"{where}: sizes of a {self.kind} are positive, got {self.size}")
        if not isinstance(self.hull, Hull if self.kind == "hull" else type(None)):
            needs = "a hull has vertices, hull=Hull(vertices)" if self.kind == "hull" else f"a {self.kind} has no hull"
            raise ValueError(f"{where}: {needs}")
        if self.friction is not None and not 0 <= self.friction < np.inf:
            raise ValueError(f"{where}: friction is a number of at least 0, got {self.friction}")
        for name in ("group", "mask"):
            if not isinstance(getattr(self, name), int):
                raise TypeError(f"{where}: {name} is a Python integer, got {checks.shown(getattr(self, name))}")

    def meets(self, other: "Geometry") -> bool:
        """Whether the two can touch, as far as their groups and masks say."""
        return bool(self.group & other.mask or other.group & self.mask)

    def shape(self, dtype: Any) -> Shape:
        """The shape in the frame of the link; ValueError for a mesh, whose file was not read."""
        if self.kind == "mesh":
            raise ValueError(f"link {self.link!r} has a mesh, which is not read: give it a shape of lgjax.shapes")
        array = lambda x: jnp.asarray(x, dtype)
        if self.hull is not None:
            made = Polyhedron(array(self.hull.vertices))  # checked in float64, thin ones as well
        elif self.kind in ("box", "ellipsoid"):
            made = {"box": box, "ellipsoid": ellipsoid}[self.kind](array(self.size))
        elif self.kind == "sphere":
            return sphere(array(self.size[0]), array(self.position))
        else:
            made = {"capsule": capsule, "cylinder": cylinder}[self.kind](*map(array, self.size))
        turn = np.reshape(self.rotation, (3, 3))
        if np.array_equal(turn, np.eye(3)) and not any(self.position):
            return made
        return placed(made, Pose(array(turn), array(self.position)))


def geometry(link: str, kind: str, size: Any, position: Any = (0, 0, 0), rotation: Any = None, **more: Any) -> Geometry:
    """A `Geometry` from arrays. more: friction, group, mask and hull."""
    numbers = lambda x: tuple(float(n) for n in np.ravel(x))
    turn = np.eye(3) if rotation is None else rotation
    return Geometry(link, kind, numbers(size), numbers(position), numbers(turn), **more)


def hull(link: str, vertices: Any, **more: Any) -> Geometry:
    """A convex hull of vertices (n, 3), m, in the frame of a link. more: friction, group and mask."""
    try:
        found = Hull(vertices)
    except ValueError as error:
        raise ValueError(f"geometry of {link!r}: {error}") from error
    return Geometry(link, "hull", hull=found, **more)
