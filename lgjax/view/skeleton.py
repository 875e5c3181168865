"""Mechanisms without visual geometry: shapes that touch, solids of inertias, rods between joints, marks on joints.

Read first: `of_model`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lgjax import maximal
from lgjax.dynamics.loops.loop import carrier
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.model import Model
from lgjax.view import geometry
from lgjax.view.geometry import Mesh
from lgjax.view.scene import ACCENT, DARK, STEEL, Part
from lgjax.view.solids import Solid

LIMBS = ((0.34, 0.55, 0.72), (0.85, 0.62, 0.27), (0.33, 0.64, 0.5), (0.77, 0.5, 0.62), (0.56, 0.56, 0.72))
TURNING = ("revolute", "continuous", "helical", "cylindrical")


def of_model(model: Model, shapes: Sequence[Solid] = ()) -> list[Part]:
    """Parts for the bodies of a tree, in their body frames.

    shapes: of the bodies. One that holds the center of mass stands for the whole body. The inertias of other bodies are
    made smaller until they reach no farther from the center of mass than the shapes, so that a leg ends where its foot
    is.
    """
    tree = model.tree
    to_body = se3.inverse(model.links)
    rotation, shift = np.asarray(to_body.rotation, float), np.asarray(to_body.translation, float)
    joints, frames = (np.asarray(p.translation, float) for p in (model.placements, model.frames))
    ends: list[list[np.ndarray]] = [[] for _ in tree.parents]
    for body, parent in enumerate(tree.parents):
        if parent >= 0:
            ends[parent].append(joints[body])
    for (_, body), point in zip(tree.frames, frames, strict=True):
        if body >= 0:
            ends[body].append(point)
    inertias = model.inertias
    mass, com, about = (np.asarray(x, float) for x in (inertias.mass, inertias.com, inertias.rotational))
    solids = [geometry.inertia_solid(m, c, j) for m, c, j in zip(mass, com, about, strict=True)]
    own = [[shape for shape in shapes if shape.body == i] for i in range(tree.nbodies)]
    solids = [solid and _within(solid, com[i], own[i]) for i, solid in enumerate(solids)]
    thick = _thickness([end for points in ends for end in points], solids)
    parts = []
    for body in range(tree.nbodies):
        place = lambda mesh, body=body: mesh.moved(rotation[body], shift[body])
        whole = any(shape.holds(com[body]) for shape in own[body])
        if own[body]:
            shown = geometry.merged([shape.mesh for shape in own[body]])
            parts.append(Part(body, place(shown), _color(model, body) if whole else DARK))
        if not whole and (found := solids[body]) is not None:
            parts.append(Part(body, place(found), _color(model, body)))
        rods = [geometry.rod(np.zeros(3), end, thick) for end in ends[body] if np.linalg.norm(end) > 2 * thick]
        if tree.kinds[body].coordinates != "free_poses":
            pin, ball = geometry.cylinder(1.8 * thick, 2.2 * thick), geometry.ellipsoid(np.full(3, 1.8 * thick))
            rods.append(pin if tree.kinds[body].name in TURNING else ball)
        if rods:
            parts.append(Part(body, place(geometry.merged(rods)), DARK))
    return parts


def _within(solid: Mesh, com: np.ndarray, shapes: list[Solid]) -> Mesh:
    """The solid, not larger than the shapes of its body."""
    if not shapes:
        return solid
    ends = np.concatenate([shape.mesh.vertices for shape in shapes])
    far = float(np.linalg.norm(ends - com, axis=1).max())
    reach = float(np.linalg.norm(solid.vertices - com, axis=1).max())
    return solid._replace(vertices=com + min(1.0, far / reach) * (solid.vertices - com))


def _thickness(ends: list[np.ndarray], solids: list[Mesh | None]) -> float:
    """Radius of rods: a part of the typical distance between joints, or of the typical size of a body."""
    lengths = [float(np.linalg.norm(end)) for end in ends]
    lengths = [length for length in lengths if length > 1e-6]
    sizes = [float(np.ptp(solid.vertices, axis=0).max()) for solid in solids if solid is not None]
    return 0.035 * float(np.median(lengths or sizes or [0.5]))


def _color(model: Model, body: int) -> tuple[float, ...]:
    """Steel for a body next to the world, unless it is one of several single ones; for each limb its own color."""
    path, parents = model.tree.ancestors[body], model.tree.parents
    if len(path) == 1 and (parents.count(-1) == 1 or body in parents):
        return STEEL
    top = path[min(1, len(path) - 1)]
    limbs = [i for i, parent in enumerate(parents) if parent == parents[top]]
    return LIMBS[limbs.index(top) % len(LIMBS)]


def of_loops(model: Model, loops: Any) -> list[Part]:
    """Rods from the bodies' origins to the points where loops join them, and a ball at each."""
    parts = []
    for loop in loops:
        if not isinstance(loop.kind, str) and callable(loop.kind):
            continue  # a function of the configuration is at no place
        for name, frame in ((loop.body_a, loop.frame_a), (loop.body_b, loop.frame_b)):
            body, at = carrier(model, loop, name, frame)
            to_body = se3.inverse(Pose(*(x[body] for x in model.links))) if body >= 0 else None
            start = np.zeros(3) if to_body is None else np.asarray(to_body.translation, float)
            end = np.asarray((at if to_body is None else se3.compose(to_body, at)).translation, float)
            length = float(np.linalg.norm(end - start))
            ball = geometry.ellipsoid(np.full(3, 0.05 * length + 1e-3)).moved(np.eye(3), end)
            parts.append(Part(body, ball, ACCENT))
            if body >= 0 and length > 1e-6:
                parts.append(Part(body, geometry.rod(start, end, 0.025 * length), DARK))
    return parts


def of_system(system: maximal.System, rotation: np.ndarray, position: np.ndarray) -> tuple[tuple[Part, ...], Any]:
    """Parts of a system in absolute coordinates, and lines (T, N, k, 2, 3), its springs and distance joints."""
    rows, joints = system.structure.joints, system.joints
    names = system.structure.body_names
    mass, inertia = np.asarray(system.mass, float), np.asarray(system.inertia, float)
    solids = [geometry.inertia_solid(m, np.zeros(3), j) for m, j in zip(mass, inertia, strict=True)]
    sides = [(rows.a, np.asarray(joints.origin_a, float)), (rows.b, np.asarray(joints.origin_b, float))]
    ends = [point for bodies, points in sides for body, point in zip(bodies, points, strict=True) if body < len(names)]
    thick, parts = _thickness(ends, solids), []
    for body in range(len(names)):
        if (found := solids[body]) is not None:
            parts.append(Part(body, found, LIMBS[body % len(LIMBS)], 0.6))
    for bodies, points in sides:
        for kind, body, point in zip(rows.kinds, bodies, points, strict=True):
            if body == len(names):
                parts.append(Part(-1, geometry.ellipsoid(np.full(3, 2 * thick)).moved(np.eye(3), point), DARK))
            elif kind != "distance" and np.linalg.norm(point) > 1e-6:
                ball = geometry.ellipsoid(np.full(3, 1.5 * thick)).moved(np.eye(3), point)
                parts.append(Part(body, geometry.merged([geometry.rod(np.zeros(3), point, 0.6 * thick), ball]), DARK))
    ties = [
        (a, b, sides[0][1][i], sides[1][1][i])
        for i, (a, b, kind) in enumerate(zip(rows.a, rows.b, rows.kinds, strict=True))
        if kind == "distance"
    ]
    springs = system.forces.springs
    at_a, at_b = np.asarray(springs.point_a, float), np.asarray(springs.point_b, float)
    ties += [(a, b, at_a[i], at_b[i]) for i, (a, b) in enumerate(system.structure.forces.springs)]
    if not ties:
        return tuple(parts), None

    def place(body: int, at: np.ndarray) -> np.ndarray:
        if body == len(names):  # the world
            return np.broadcast_to(at, position[:, :, 0].shape)
        return position[:, :, body] + rotation[:, :, body] @ at

    return tuple(parts), np.stack([np.stack([place(a, x), place(b, y)], axis=2) for a, b, x, y in ties], axis=2)
