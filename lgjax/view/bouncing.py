"""Scene of bodies that bounce on planes: their own shapes, the planes, and the impulses of impacts as arrows."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from lgjax.collisions.bounce import BounceSolution
from lgjax.collisions.lagrangian_bounce import LagrangianSolution
from lgjax.collisions.variational import RigidState
from lgjax.numerics import checks
from lgjax.shapes import Plane, Shape
from lgjax.view import geometry
from lgjax.view.geometry import Mesh
from lgjax.view.motion import as_motion, good_systems, leading_axes
from lgjax.view.scene import ACCENT, FORCE, STEEL, Chart, Part, Scene

SHOWN = 0.05  # part of the duration for which the arrow of an impact is seen


def bouncing_scene(shape: Shape, motion: Any, planes: Any, highlight: int, limits: dict[str, int]) -> Scene:
    """Scene of bodies of one shape from the result of `bounce`, or from a RigidState, above planes."""
    states = getattr(motion, "states", motion)
    if not isinstance(motion, BounceSolution | LagrangianSolution | RigidState) or not isinstance(states, RigidState):
        raise TypeError(f"a Shape moves by the result of bounce, not by a {type(motion).__name__}")
    parts = {
        "pose.rotation": (states.pose.rotation, (3, 3)), "pose.translation": (states.pose.translation, (3,)),
        "linear": (states.linear, (3,)), "angular": (states.angular, (3,)),
    }  # fmt: skip
    m = as_motion(getattr(motion, "ts", None), states, leading_axes(parts), **limits)
    rotation, position = (np.moveaxis(np.asarray(x), 0, 1) for x in m.q.pose)
    mesh, normals, offsets = geometry.of_shape(shape), *_normals(planes)

    def charts(i: int) -> list[Chart]:
        if len(m.ts) < 2:
            return []
        linear, angular = (np.linalg.norm(x[i], axis=-1)[:, None] for x in (m.q.linear, m.q.angular))
        place = Chart("position (m)", ("x", "y", "z"), position[:, i])
        return [place, Chart("momentum (N s, N m s)", ("linear", "angular"), np.c_[linear, angular])]

    events, i = getattr(motion, "events", None), highlight % m.systems
    arrows = None
    if events is not None and len(normals) and len(m.ts) > 1:
        arrows = _impulses(events, i, m.ts, (rotation[:, i], position[:, i]), mesh, normals)
    return Scene(
        name="body", ts=m.ts, body_names=("body",), rotation=rotation[:, :, None], position=position[:, :, None],
        reference=position, parts=(Part(0, mesh, ACCENT),), traced=0, good=good_systems(motion, m), charts=charts,
        scenery=slabs(normals, offsets, position), arrows=arrows,
        arrow_colors=None if arrows is None else np.broadcast_to(FORCE, (len(normals), 3)),
    )  # fmt: skip


def _normals(planes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Normals (k, 3) and offsets (k,) of one or several planes."""
    if not isinstance(planes, Iterable | Plane):
        raise TypeError(f"planes must be a Plane or several, got {checks.shown(planes)}")
    several = (planes,) if isinstance(planes, Plane) else tuple(planes)
    for plane in several:
        if not isinstance(plane, Plane):
            raise TypeError(f"planes must be Plane, got {type(plane).__name__}")
    normals = [checks.real("normal of planes", plane.normal) for plane in several]
    offsets = [checks.real("offset of planes", plane.offset) for plane in several]
    for normal, offset in zip(normals, offsets, strict=True):
        if normal.shape[-1:] != (3,) or normal.ndim > 2 or offset.shape != normal.shape[:-1]:
            raise ValueError(f"planes have normals {normal.shape} and offsets {offset.shape}, expected (3,) and ()")
    normals, offsets = [x.reshape(-1, 3) for x in normals], [x.ravel() for x in offsets]
    return np.concatenate([np.zeros((0, 3)), *normals]), np.concatenate([np.zeros(0), *offsets])


def slabs(normals: np.ndarray, offsets: np.ndarray, position: np.ndarray) -> tuple[Part, ...]:
    """Thin translucent slabs under the motion, one for each plane."""
    finite = position[np.isfinite(position).all(-1)]
    middle = (finite.min(0) + finite.max(0)) / 2
    size = float(np.linalg.norm(np.ptp(finite, axis=0))) + 1.0
    slab = geometry.box([size, size, 0.005 * size])
    return tuple(
        Part(-1, slab.moved(geometry.along(n), middle - (n @ middle + offset + 0.005 * size) * n), STEEL, 0.5)
        for n, offset in zip(normals, offsets, strict=True)
    )


def _impulses(events: Any, system: int, ts: np.ndarray, path: Any, mesh: Mesh, normals: np.ndarray) -> np.ndarray:
    """Arrows (T, planes, 2, 3) from the lowest point of one body along the normal of each plane, after each impact.

    The longest is as long as the body is wide; without an impact they have no length.
    """
    times, planes, impulses = (
        np.asarray(x)[system] if np.ndim(x) == 2 else np.asarray(x) for x in (events.ts, events.planes, events.impulses)
    )
    rotation, position = path
    size = np.ptp(mesh.vertices, axis=0).max() / max(float(np.max(impulses, initial=0.0)), 1e-12)
    arrows = np.repeat(position[:, None, None], len(normals), axis=1).repeat(2, axis=2).astype(float)
    for t, plane, impulse in zip(times, planes, impulses, strict=True):
        seen = (ts >= t) & (ts <= t + SHOWN * (ts[-1] - ts[0])) if plane >= 0 else np.zeros(len(ts), bool)
        if not seen.any():
            continue
        first = int(np.argmax(seen))
        corners = mesh.vertices @ rotation[first].T + position[first]
        lowest = corners[np.argmin(corners @ normals[plane])]
        arrows[seen, plane] = np.stack([lowest, lowest + size * impulse * normals[plane]])
    return arrows
