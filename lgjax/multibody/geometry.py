"""Collision geometry of a model as a description: numbers, not arrays, so that it is static and costs programs nothing.

`lgjax.Contacts` makes shapes of `lgjax.shapes` from it, whose arrays can be batched and differentiated.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from lgjax.groups.se3 import Pose
from lgjax.shapes import Shape, box, capsule, cylinder, ellipsoid, placed, sphere

# The numbers in `size`, m, by kind.
SIZES = {"sphere": 1, "capsule": 2, "cylinder": 2, "box": 3, "ellipsoid": 3, "mesh": 0}


@dataclass(frozen=True)
class Geometry:
    """A shape fixed to a link.

    link: name of a body or frame of the model. kind and size (m): sphere (radius), capsule and cylinder (radius, half
    length along z), box and ellipsoid (half extents), mesh (none: it is known that one is there, its file is not read).
    position (3,) and rotation (nine numbers, row by row): the shape's pose in the frame of the link.
    """

    link: str
    kind: str
    size: tuple[float, ...] = ()
    position: tuple[float, ...] = (0.0, 0.0, 0.0)
    rotation: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)

    def __post_init__(self) -> None:
        if self.kind not in SIZES:
            raise ValueError(f"geometry of {self.link!r}: unknown kind {self.kind!r}; known: {', '.join(SIZES)}")
        if len(self.size) != SIZES[self.kind]:
            raise ValueError(f"geometry of {self.link!r}: a {self.kind} has {SIZES[self.kind]} sizes, got {self.size}")
        if self.kind != "mesh" and not (np.isfinite(self.size).all() and np.min(self.size) > 0):
            raise ValueError(f"geometry of {self.link!r}: sizes of a {self.kind} are positive, got {self.size}")

    def shape(self, dtype: Any) -> Shape:
        """The shape in the frame of the link; ValueError for a mesh, whose file nobody has read."""
        if self.kind == "mesh":
            raise ValueError(f"link {self.link!r} has a mesh, which is not read: give it a shape of lgjax.shapes")
        array = lambda x: jnp.asarray(x, dtype)
        if self.kind in ("box", "ellipsoid"):
            made = {"box": box, "ellipsoid": ellipsoid}[self.kind](array(self.size))
        elif self.kind == "sphere":
            return sphere(array(self.size[0]), array(self.position))
        else:
            made = {"capsule": capsule, "cylinder": cylinder}[self.kind](*map(array, self.size))
        turn = np.reshape(self.rotation, (3, 3))
        if np.array_equal(turn, np.eye(3)) and not any(self.position):
            return made
        return placed(made, Pose(array(turn), array(self.position)))


def geometry(link: str, kind: str, size: Any, position: Any = (0, 0, 0), rotation: Any = None) -> Geometry:
    """A `Geometry` from arrays."""
    numbers = lambda x: tuple(float(n) for n in np.ravel(x))
    turn = np.eye(3) if rotation is None else rotation
    return Geometry(link, kind, numbers(size), numbers(position), numbers(turn))
