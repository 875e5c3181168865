"""Triangle meshes for drawing: solids of revolution, boxes, rods, hulls of shapes, and coarser copies of fine meshes.

NumPy alone; lengths in meters. Read first: `Mesh`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lgjax.shapes import Shape
from lgjax.shapes.combined import Union
from lgjax.shapes.convex import Placed, faces_of
from lgjax.shapes.implicit import directions

ROUND = 20  # segments of a circle
HULL_POINTS = 600  # support points from which the surface of a shape is made


class Mesh(NamedTuple):
    """Triangles: vertices (V, 3), and faces (F, 3) of their indices, counterclockwise seen from outside."""

    vertices: np.ndarray
    faces: np.ndarray

    def moved(self, rotation: np.ndarray, translation: np.ndarray) -> "Mesh":
        """The same mesh turned, then shifted."""
        return Mesh(self.vertices @ np.asarray(rotation).T + np.asarray(translation), self.faces)

    def scaled(self, factors: Any) -> "Mesh":
        """The same mesh stretched along its axes; a mirrored one is turned inside out, so that it faces outwards."""
        mirrored = np.prod(np.broadcast_to(factors, 3)) < 0
        return Mesh(self.vertices * np.asarray(factors), self.faces[:, ::-1] if mirrored else self.faces)


def merged(meshes: Sequence[Mesh]) -> Mesh:
    """Several meshes as one."""
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    faces = [mesh.faces + start for mesh, start in zip(meshes, starts)]
    return Mesh(np.concatenate([mesh.vertices for mesh in meshes]), np.concatenate(faces))


def box(half: Any) -> Mesh:
    """Box with half edge lengths (3,) about the origin."""
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    sides = np.array([[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]])
    return Mesh(corners * np.asarray(half), np.concatenate([sides[:, [0, 1, 2]], sides[:, [0, 2, 3]]]))


def revolved(profile: Any) -> Mesh:
    """Solid of revolution about z of a profile (k, 2) of radius and height, from bottom to top, closed at its ends."""
    profile = np.asarray(profile, float)
    angles = 2 * np.pi * np.arange(ROUND) / ROUND
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rings = [np.concatenate([r * ring, np.full((ROUND, 1), z)], axis=1) for r, z in profile]
    ends = [[0, 0, profile[0, 1]], [0, 0, profile[-1, 1]]]
    here = np.arange(ROUND)
    after, faces = np.roll(here, -1), []
    for k in range(len(profile) - 1):
        a, b = k * ROUND, (k + 1) * ROUND
        faces += [np.stack([a + here, a + after, b + after], 1), np.stack([a + here, b + after, b + here], 1)]
    bottom, top = len(profile) * ROUND, len(profile) * ROUND + 1
    last = (len(profile) - 1) * ROUND
    faces.append(np.stack([np.full(ROUND, bottom), after, here], 1))
    faces.append(np.stack([np.full(ROUND, top), last + here, last + after], 1))
    return Mesh(np.concatenate([*rings, ends]), np.concatenate(faces))


def cylinder(radius: float, half_length: float) -> Mesh:
    """Cylinder about z."""
    return revolved([(radius, -half_length), (radius, half_length)])


def capsule(radius: float, half_length: float) -> Mesh:
    """Capsule about z; a sphere where `half_length` is 0."""
    angles = np.linspace(-np.pi / 2, np.pi / 2, 12)[1:-1]
    heights = radius * np.sin(angles) + np.where(angles > 0, half_length, -half_length)
    ends = [(0.0, -radius - half_length)], [(0.0, radius + half_length)]
    return revolved([*ends[0], *zip(radius * np.cos(angles), heights, strict=True), *ends[1]])


def ellipsoid(semi_axes: Any) -> Mesh:
    """Ellipsoid with semi-axes (3,) about the origin; a sphere for a number."""
    return capsule(1.0, 0.0).scaled(semi_axes)


def rod(start: Any, end: Any, radius: float) -> Mesh:
    """Cylinder between two points (3,)."""
    start, end = np.asarray(start, float), np.asarray(end, float)
    return cylinder(radius, float(np.linalg.norm(end - start)) / 2).moved(along(end - start), (start + end) / 2)


def along(direction: Any) -> np.ndarray:
    """Rotations (..., 3, 3) whose z axes have the given directions (..., 3); the x axes are horizontal if possible."""
    direction = np.asarray(direction, float)
    length = np.linalg.norm(direction, axis=-1, keepdims=True)
    z = np.where(length > 0, direction / np.where(length > 0, length, 1), [0.0, 0.0, 1.0])
    away = np.where(np.abs(z[..., 2:]) < 0.9, [0.0, 0.0, 1.0], [0.0, 1.0, 0.0])
    x = np.cross(away, z)
    x = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return np.stack([x, np.cross(z, x), z], axis=-1)


def of_shape(shape: Shape) -> Mesh:
    """Surface of a shape of `lgjax.shapes` in its own frame, through SciPy; of a hollow one its convex hull."""
    if isinstance(shape, Union):
        return merged([of_shape(part) for part in shape.parts])
    if isinstance(shape, Placed):
        return of_shape(shape.shape).moved(np.asarray(shape.pose.rotation), np.asarray(shape.pose.translation))
    dtype = shape.middle().dtype
    # A direction along an edge's normal gives the middle of the edge; turned a little, none of these does.
    turn = along([0.3, 0.2, 0.9]) @ along([0.5, -0.4, 0.2]).T
    points = jax.jit(jax.vmap(lambda d: shape.support(d).point))((directions(HULL_POINTS) @ turn.T).astype(dtype))
    points = np.unique(np.round(np.asarray(points, float), 9), axis=0)
    return Mesh(points, faces_of(points))


def inertia_solid(mass: float, com: np.ndarray, rotational: np.ndarray) -> Mesh | None:
    """The uniform solid with a body's mass, center of mass (3,) and inertia (3, 3) about its frame's origin.

    A cylinder where two principal moments are equal, to a hundredth, else a box; a cube along the frame's axes where
    all three are. None for a massless body and for one
    without any extent. Edges are at least a fiftieth of the longest one.
    """
    if not mass > 0:
        return None
    central = rotational - mass * (com @ com * np.eye(3) - np.outer(com, com))
    moments, axes = np.linalg.eigh((central + central.T) / 2)
    moments = moments / mass
    if not np.max(moments) > 0:
        return None
    axes = axes * np.sign(np.linalg.det(axes))
    low, middle, high = moments
    if high - low < 0.01 * high:  # any axes are principal ones
        axes = np.eye(3)
    elif min(middle - low, high - middle) < 0.01 * high:
        axis = 0 if high - middle < middle - low else 2
        own, across = moments[axis], (middle + moments[2 - axis]) / 2
        # I_own = m r²/2 and I_across = m (r²/4 + h²/3), h half the length.
        radius, half = np.sqrt([2 * own, max(3 * (across - own / 2), 0.0)])
        least = 0.02 * max(radius, half)
        return cylinder(max(radius, least), max(half, least)).moved(axes[:, np.roll([0, 1, 2], 2 - axis)], com)
    # Edge a of a box: I_y + I_z - I_x = m a²/6.
    half = np.sqrt(np.clip(1.5 * (moments.sum() - 2 * moments), 0, None))
    return box(np.maximum(half, 0.02 * np.max(half))).moved(axes, com)


def coarser(mesh: Mesh, limit: int) -> Mesh:
    """The mesh with at most `limit` faces: vertices in one cell of a grid become one, as fine a grid as possible."""
    if len(mesh.faces) <= limit:
        return mesh
    low = mesh.vertices.min(0)
    size = max(np.max(mesh.vertices.max(0) - low), 1e-12)
    best, fine, coarse = None, 512, 2
    while fine - coarse > 1:
        cells = (fine + coarse) // 2
        made = _clustered(mesh, low, size / cells)
        if len(made.faces) <= limit:
            best, coarse = made, cells
        else:
            fine = cells
    return best if best is not None else _clustered(mesh, low, size / 2)


def _clustered(mesh: Mesh, low: np.ndarray, cell: float) -> Mesh:
    x, y, z = np.floor((mesh.vertices - low) / cell).astype(np.int64).T
    _, where, counts = np.unique((x * 1024 + y) * 1024 + z, return_inverse=True, return_counts=True)
    centers = np.stack([np.bincount(where, mesh.vertices[:, k], len(counts)) for k in range(3)], 1) / counts[:, None]
    faces = where[mesh.faces]
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (c != a)]
    # Each triangle once, whichever corner it begins with.
    first = np.argmin(faces, axis=1)[:, None] if len(faces) else np.zeros((0, 1), int)
    a, b, c = np.take_along_axis(faces, (first + np.arange(3)) % 3, axis=1).T
    _, kept = np.unique((a * len(counts) + b) * len(counts) + c, return_index=True)
    return Mesh(centers, np.stack([a, b, c], axis=1)[kept])
