"""Convex shapes of a model's links as meshes: what can touch, or the geometry that came with the model.

Read first: `Solid`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lgjax.contact.contacts import Contacts
from lgjax.contact.geometry.candidates import Patch
from lgjax.dynamics.jacobians import carrier
from lgjax.multibody.model import Model
from lgjax.shapes.convex import faces_of
from lgjax.shapes.implicit import directions
from lgjax.view import geometry
from lgjax.view.geometry import Mesh

ROUNDING = 100  # points of a rounded corner


class Solid(NamedTuple):
    """A convex mesh on a body, in the frame of the body's joint."""

    body: int
    mesh: Mesh

    def holds(self, point: np.ndarray) -> bool:
        """Whether a point (3,) of the same frame lies in the mesh."""
        a, b, c = (self.mesh.vertices[self.mesh.faces[:, k]] for k in range(3))
        return bool(np.all(np.sum(np.cross(b - a, c - a) * (point - a), axis=1) <= 0))


def of_contacts(model: Model, contacts: Contacts) -> list[Solid]:
    """The shapes that touch grounds: balls and capsules, boxes and polyhedra, rounded or not, and all others."""
    found = []
    if contacts.corners is not None:
        centers, radii = (np.asarray(x, float) for x in contacts.corners)
        ends = np.cumsum(contacts.corner_counts)
        for start, end in zip(ends - contacts.corner_counts, ends, strict=True):
            found.append((contacts.corner_links[start], _of_corners(centers[start:end], radii[start:end])))
    for link, shape in zip(contacts.solid_links, contacts.solids, strict=True):
        patch = isinstance(shape, Patch)
        rounded = np.full(len(shape.vertices), float(shape.radius)) if patch else None
        found.append(
            (link, _of_corners(np.asarray(shape.vertices, float), rounded) if patch else geometry.of_shape(shape))
        )
    return _on_bodies(model, found)


def of_model(model: Model) -> list[Solid]:
    """The convex shapes that came with the model and move, also those that touch nothing."""
    shapes = [(one.link, one.shape(model.dtype)) for one in model.geometry if one.kind != "mesh"]
    moving = [(link, shape) for link, shape in shapes if carrier(model, link)[0] >= 0]
    return _on_bodies(model, [(link, geometry.of_shape(shape)) for link, shape in moving])


def _on_bodies(model: Model, meshes: Sequence[tuple[str, Mesh | None]]) -> list[Solid]:
    """Meshes in the frames of links as solids; None is nothing."""
    found = []
    for link, mesh in meshes:
        if mesh is not None:
            body, offset = carrier(model, link)
            found.append(Solid(body, mesh.moved(*(np.asarray(x, float) for x in offset))))
    return found


def _of_corners(centers: np.ndarray, radii: Any) -> Mesh | None:
    """The hull of balls: centers (k, 3), radii (k,). None for what has no volume."""
    if len(centers) == 1 and radii[0] > 0:
        return geometry.ellipsoid(radii[0]).moved(np.eye(3), centers[0])
    if len(centers) == 2 and radii[0] > 0:
        between = centers[1] - centers[0]
        capsule = geometry.capsule(radii[0], float(np.linalg.norm(between)) / 2)
        return capsule.moved(geometry.along(between), centers.mean(0))
    if len(centers) < 4:
        return None
    points = centers
    if np.any(radii > 0):
        points = (centers[:, None] + radii[:, None, None] * directions(ROUNDING)).reshape(-1, 3)
    faces = faces_of(points)
    corners, numbers = np.unique(faces, return_inverse=True)
    return Mesh(points[corners], numbers.reshape(faces.shape))
