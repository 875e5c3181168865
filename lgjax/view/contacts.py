"""Contacts of a tree, drawn: the ground, forces as arrows, and patches of pairs; `solids.py` has the shapes."""

from typing import Any

import jax
import numpy as np

from lgjax.contact import HeightField, contact_points
from lgjax.contact.contacts import Contacts
from lgjax.multibody.model import Model
from lgjax.view.bouncing import slabs
from lgjax.view.geometry import Mesh
from lgjax.view.motion import Motion, over_states
from lgjax.view.scene import Part

EARTH = (0.8, 0.76, 0.68)
CELLS = 150  # of a height field along each axis; finer ones are thinned out
NORMAL = 0.1  # length of a normal of a pair, in widths of the robot
LONGEST = 2.0  # of an arrow, in widths of the robot; the robot's weight is one width


def checked_contacts(contacts: Any) -> Contacts:
    """The contacts, or TypeError."""
    if not isinstance(contacts, Contacts):
        raise TypeError(f"contacts must be Contacts, got a {type(contacts).__name__}")
    return contacts


def grounds(contacts: Contacts, position: np.ndarray) -> tuple[tuple[Part, ...], float | None]:
    """Scenery for the grounds under positions (..., 3), and the height of the horizontal plane if there is one.

    That plane is drawn as the viewer's grid; other planes are slabs, height fields surfaces.
    """
    scenery, heights = [], []
    for ground in contacts.grounds:
        if isinstance(ground, HeightField):
            scenery.append(Part(-1, surface(ground), EARTH))
            continue
        normal, offset = np.asarray(ground.normal, float), float(ground.offset)
        if normal[2] > 1 - 1e-9:
            heights.append(-offset / normal[2])
        else:
            scenery += slabs(normal[None], np.array([offset]), position)
    return tuple(scenery), max(heights) if heights else None


def surface(field: HeightField) -> Mesh:
    """Triangles of a height field, two for each cell, seen from above."""
    heights = np.asarray(field.heights, float)
    rows, columns = (np.unique(np.linspace(0, n - 1, min(n, CELLS)).round().astype(int)) for n in heights.shape)
    spacing, corner = np.asarray(field.spacing, float), np.asarray(field.corner, float)
    x, y = np.meshgrid(corner[0] + spacing[0] * rows, corner[1] + spacing[1] * columns, indexing="ij")
    number = np.arange(x.size).reshape(x.shape)
    a, b, c, d = (n.ravel() for n in (number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]))
    faces = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    return Mesh(np.stack([x, y, heights[np.ix_(rows, columns)]], axis=-1).reshape(-1, 3), faces)


def patch_lines(model: Model, contacts: Contacts, m: Motion, i: int, width: float) -> np.ndarray | None:
    """Lines (T, N, k, 2, 3) of system i: around the points at which a pair touches, and its normal, away from the
    second link. None without pairs; what does not touch, and the other systems, have lines without length."""
    groups, n = [], len(contacts.links)
    start = n - sum(len(couples.links) * couples.count for couples in contacts.couples)
    groups += [range(k, k + 1) for k in range(start) if contacts.links[k][1] is not None]
    for couples in contacts.couples:
        groups += [range(start + k * couples.count, start + (k + 1) * couples.count) for k in range(len(couples.links))]
        start += len(couples.links) * couples.count
    if not groups or m.forces is None:
        return None
    points = over_states(lambda q: contact_points(model, contacts, q), jax.tree.map(lambda x: x[i : i + 1], m.q))
    point, frame = (np.asarray(x)[:, 0] for x in (points.point, points.frame))
    acts = np.asarray(m.forces)[i, :, :, 0] > 0
    lines = np.zeros((len(point), m.systems, sum(len(group) + 1 for group in groups), 2, 3))
    for t in range(len(point)):
        drawn = []
        for group in groups:
            drawn += outlined(point[t, group], frame[t, group[0]], acts[t, group], NORMAL * width)
        lines[t, i] = drawn
    return lines


def outlined(points: np.ndarray, frame: np.ndarray, acts: np.ndarray, length: float) -> list[np.ndarray]:
    """The outline of those of points (k, 3) that act, and the normal on it, as k + 1 lines (2, 3)."""
    taken = points[acts]
    if not len(taken):
        return [np.zeros((2, 3))] * (len(points) + 1)
    middle = taken.mean(0)
    x, y = (taken - middle) @ frame[1], (taken - middle) @ frame[2]
    around = taken[np.argsort(np.arctan2(y, x))]
    edges = list(np.stack([around, np.roll(around, -1, 0)], 1))
    edges += [np.stack([middle, middle])] * (len(points) - len(taken))
    return [*edges, np.stack([middle, middle + length * frame[0]])]


def force_arrows(model: Model, contacts: Contacts, m: Motion, i: int, width: float) -> np.ndarray:
    """Arrows (T, n, 2, 3) of the contact forces on system i, from the points of contact.

    They act on the first link of a pair. The robot's weight is `width` long, the longest arrow twice that; without
    gravity the largest force is `width` long.
    """
    forces = np.asarray(m.forces)[i]
    if forces.shape[1:] != (len(contacts), 3):
        raise ValueError(f"the motion has {forces.shape[1]} contacts, contacts= has {len(contacts)}")
    q = jax.tree.map(lambda x: x[i : i + 1], m.q)
    points = over_states(lambda q: contact_points(model, contacts, q), q)
    point, frame = (np.asarray(x)[:, 0] for x in (points.point, points.frame))
    vectors = np.einsum("tnk,tnkx->tnx", forces, frame)  # rows of a frame are its axes
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    weight = float(np.sum(model.inertias.mass) * np.linalg.norm(model.gravity))
    unit = weight if weight > 0 else max(float(lengths.max(initial=0.0)), 1e-12)
    shown = np.minimum(lengths / unit, LONGEST) * width
    return np.stack([point, point + vectors / np.where(lengths > 0, lengths, 1) * shown], axis=2)
