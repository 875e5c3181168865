"""Shapes of a compiled MJCF that collide, with their filters and friction, and planes of the world."""

from typing import Any

import numpy as np

from lgjax.multibody.geometry import SIZES, Geometry, geometry, hull
from lgjax.multibody.importers.description import Ground, Surface, Touching
from lgjax.multibody.importers.meshes import simplified
from lgjax.multibody.importers.mjcf.compiled import Compiled, floats

WORLD = "world"
# Geoms whose shape needs no file.
PRIMITIVES = tuple(f"mjGEOM_{name}" for name in ("SPHERE", "CAPSULE", "CYLINDER", "BOX", "ELLIPSOID"))


def touching(
    file: Compiled, hulls: int | None = 0, left_out: list[str] | None = None
) -> tuple[tuple[Geometry, ...], Touching]:
    """Shapes on moving bodies, and what else there is to touching.

    hulls: at most that many vertices of the hull of a mesh; None for all, 0 to take note of meshes only. A mesh without
    a hull is named in `left_out`, as are shapes that are fixed to the world, which hold nothing up.
    """
    m = file.m
    shapes: list[tuple[int, Geometry]] = []
    fixed: list[tuple[int, Geometry]] = []
    grounds = []
    for i in range(m.ngeom):
        if not (m.geom_contype[i] or m.geom_conaffinity[i] or _paired(file, i)):
            continue
        body, kind = m.geom_bodyid[i], file.mujoco.mjtGeom(m.geom_type[i]).name
        if kind == "mjGEOM_PLANE" and not m.body_weldid[body]:
            grounds.append(_ground(file, i))
        elif kind in (*PRIMITIVES, "mjGEOM_MESH"):
            (shapes if m.body_weldid[body] else fixed).append((i, _shape(file, i, kind, hulls, left_out)))
    if left_out is not None:
        left_out.extend(_holding_nothing(file, fixed, shapes))
    place = {i: k for k, (i, _) in enumerate(shapes)} | {i: -1 - k for k, (i, _) in enumerate(fixed)}
    pairs = ((int(m.pair_geom1[i]), int(m.pair_geom2[i]), floats(m.pair_friction[i])) for i in range(m.npair))
    return tuple(shape for _, shape in shapes), Touching(
        tuple(_surface(file, i) for i, _ in shapes),
        tuple((_body(file, s >> 16), _body(file, s & 0xFFFF)) for s in map(int, m.exclude_signature)),
        tuple((place[a], place[b], friction) for a, b, friction in pairs if a in place and b in place),
        tuple(grounds),
        tuple((shape, _surface(file, i)) for i, shape in fixed),
        file.disabled("FILTERPARENT"),
    )


def _holding_nothing(
    file: Compiled, fixed: list[tuple[int, Geometry]], shapes: list[tuple[int, Geometry]]
) -> list[str]:
    """Shapes fixed to the world that moving ones may touch: contacts of a file are with its planes."""
    meets = lambda one, other: one.group & other.mask or one.mask & other.group
    found = [(i, one) for i, one in fixed if any(meets(one, moving) for _, moving in shapes)]
    return [
        f"geom {file.where('geoms', i)} ({one.kind}, fixed to the world): only planes hold bodies up"
        for i, one in found
    ]


def _paired(file: Compiled, i: int) -> bool:
    return i in file.m.pair_geom1 or i in file.m.pair_geom2


def _body(file: Compiled, index: int) -> str:
    return file.body(index) if index else WORLD


def _shape(file: Compiled, i: int, kind: str, hulls: int | None, left_out: list[str] | None) -> Geometry:
    m, name, what = file.m, _body(file, file.m.geom_bodyid[i]), kind.removeprefix("mjGEOM_").lower()
    if what == "mesh":
        if hulls != 0 and left_out is not None:
            try:
                return hull(name, simplified(_points(file, i), hulls)[0], **_touch(file, i))
            except ValueError as error:
                left_out.append(f"geom {file.where('geoms', i)}: its mesh has no hull: {error}")
        return Geometry(name, what, **_touch(file, i))
    size, turn = m.geom_size[i][: SIZES[what]], file.rotation(m.geom_quat[i])
    return geometry(name, what, size, m.geom_pos[i], turn, **_touch(file, i))


def _points(file: Compiled, i: int) -> np.ndarray:
    """Vertices of the mesh of a geom in the frame of its body."""
    m, mesh = file.m, file.m.geom_dataid[i]
    vertices = m.mesh_vert[m.mesh_vertadr[mesh] : m.mesh_vertadr[mesh] + m.mesh_vertnum[mesh]]
    return vertices @ file.rotation(m.geom_quat[i]).T + m.geom_pos[i]


def _touch(file: Compiled, i: int) -> dict[str, Any]:
    """Friction and filters, as a `Geometry` has them."""
    m = file.m
    friction = float(m.geom_friction[i, 0]) if m.geom_condim[i] > 1 else 0.0
    return {"friction": friction, "group": int(m.geom_contype[i]), "mask": int(m.geom_conaffinity[i])}


def _surface(file: Compiled, i: int) -> Surface:
    m, name = file.m, file.mujoco.mj_id2name(file.m, file.mujoco.mjtObj.mjOBJ_GEOM, i) or ""
    return Surface(name, floats(m.geom_friction[i]), int(m.geom_condim[i]), int(m.geom_priority[i]))


def _ground(file: Compiled, i: int) -> Ground:
    """The plane in the world; the bodies that carry it do not move."""
    m, body = file.m, file.m.geom_bodyid[i]
    rotation, position = file.rotation(m.geom_quat[i]), m.geom_pos[i].copy()
    while body:
        turn = file.rotation(m.body_quat[body])
        rotation, position = turn @ rotation, turn @ position + m.body_pos[body]
        body = m.body_parentid[body]
    normal = rotation[:, 2]
    return Ground(floats(normal), float(-np.dot(normal, position)), **_touch(file, i), surface=_surface(file, i))
