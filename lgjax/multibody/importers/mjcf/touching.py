"""Shapes of a compiled MJCF that collide, with their filters and friction, and planes of the world."""

import numpy as np

from lgjax.multibody.geometry import SIZES, Geometry, geometry
from lgjax.multibody.importers.description import Ground, Surface, Touching
from lgjax.multibody.importers.mjcf.compiled import Compiled, floats

WORLD = "world"
# Geoms whose shape needs no file.
PRIMITIVES = tuple(f"mjGEOM_{name}" for name in ("SPHERE", "CAPSULE", "CYLINDER", "BOX", "ELLIPSOID"))


def touching(file: Compiled) -> tuple[tuple[Geometry, ...], Touching]:
    """Shapes on moving bodies, and what else there is to touching."""
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
            (shapes if m.body_weldid[body] else fixed).append((i, _shape(file, i, kind)))
    place = {i: k for k, (i, _) in enumerate(shapes)} | {i: -1 - k for k, (i, _) in enumerate(fixed)}
    pairs = ((int(m.pair_geom1[i]), int(m.pair_geom2[i]), floats(m.pair_friction[i])) for i in range(m.npair))
    return tuple(shape for _, shape in shapes), Touching(
        tuple(_surface(file, i) for i, _ in shapes),
        tuple((_body(file, s >> 16), _body(file, s & 0xFFFF)) for s in map(int, m.exclude_signature)),
        tuple((place[a], place[b], friction) for a, b, friction in pairs if a in place and b in place),
        tuple(grounds),
        tuple((shape, _surface(file, i)) for i, shape in fixed),
    )


def _paired(file: Compiled, i: int) -> bool:
    return i in file.m.pair_geom1 or i in file.m.pair_geom2


def _body(file: Compiled, index: int) -> str:
    return file.body(index) if index else WORLD


def _shape(file: Compiled, i: int, kind: str) -> Geometry:
    m, name, what = file.m, _body(file, file.m.geom_bodyid[i]), kind.removeprefix("mjGEOM_").lower()
    if what == "mesh":
        return Geometry(name, what)
    return geometry(name, what, m.geom_size[i][: SIZES[what]], m.geom_pos[i], file.rotation(m.geom_quat[i]))


def _surface(file: Compiled, i: int) -> Surface:
    m = file.m
    return Surface(
        file.mujoco.mj_id2name(m, file.mujoco.mjtObj.mjOBJ_GEOM, i) or "",
        int(m.geom_contype[i]),
        int(m.geom_conaffinity[i]),
        floats(m.geom_friction[i]),
        int(m.geom_condim[i]),
        int(m.geom_priority[i]),
        float(m.geom_margin[i]),
    )


def _ground(file: Compiled, i: int) -> Ground:
    """The plane in the world; the bodies that carry it do not move."""
    m, body = file.m, file.m.geom_bodyid[i]
    rotation, position = file.rotation(m.geom_quat[i]), m.geom_pos[i].copy()
    while body:
        turn = file.rotation(m.body_quat[body])
        rotation, position = turn @ rotation, turn @ position + m.body_pos[body]
        body = m.body_parentid[body]
    normal = rotation[:, 2]
    return Ground(floats(normal), float(-np.dot(normal, position)), _surface(file, i))
