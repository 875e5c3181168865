"""Visuals of a robot's file: visual geometry of a URDF or MJCF as parts of its model's bodies.

Meshes that cannot be read are named in a warning; bodies without any geometry get that of `skeleton.py`.
Read first: `visual_parts`.
"""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lgjax.groups import se3
from lgjax.multibody.importers.meshes import resolve, unit_of
from lgjax.multibody.importers.source import require
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.view import geometry, skeleton, solids
from lgjax.view.geometry import Mesh
from lgjax.view.scene import DARK, STEEL, Part
from lgjax.view.solids import Solid

FACES = 30_000  # of a whole robot; finer meshes are made coarser
FEW = 1_000  # that any single mesh may have
SEEN_THROUGH = 0.35  # opacity of what touches, over visual geometry


class Visual(NamedTuple):
    """A mesh in the frame of a link, by the link's name."""

    link: str
    mesh: Mesh
    color: tuple[float, ...]


def visual_parts(model: Model, visuals: Any = None, shapes: Sequence[Solid] | None = None) -> list[Part]:
    """Parts for the bodies of a model: those of the file it was loaded from, or of the file `visuals`.

    shapes: what touches, seen through on bodies with visual geometry. None: without visual geometry, the shapes that
    came with the model. visuals=False shows shapes, inertias and joints instead, as for a model that came from no file.
    Raises ValueError for a file that cannot be read, if it was named.
    """
    plain = lambda: skeleton.of_model(model, solids.of_model(model) if shapes is None else shapes)
    if isinstance(visuals, bool | np.bool_):
        visuals = None if visuals else False
    elif visuals is not None:
        visuals = checks.path("visuals", visuals)
    source = model.tree.source if visuals is None else visuals
    if source is None or source is False:
        return plain()
    try:
        found = _read(Path(source))
    except (OSError, ValueError, ImportError) as error:
        if visuals is not None:
            raise
        warnings.warn(f"no visual geometry from {source}: {error}", stacklevel=5)
        return plain()
    frames, parts = _frames(model), []
    fine = sum(len(visual.mesh.faces) for visual in found)
    for visual in found:
        if visual.link in frames:
            body, rotation, shift = frames[visual.link]
            limit = max(FEW, int(FACES * len(visual.mesh.faces) / fine))
            parts.append(Part(body, geometry.coarser(visual.mesh, limit).moved(rotation, shift), visual.color))
    covered = {part.body for part in parts}
    if not covered - {-1}:
        return plain()
    turns, shifts = (np.asarray(x, float) for x in se3.inverse(model.links))
    for body, mesh in shapes or ():
        opacity = SEEN_THROUGH if body in covered else None
        parts.append(Part(body, mesh.moved(turns[body], shifts[body]), DARK, opacity))
    return merged_parts(parts)


def merged_parts(parts: list[Part]) -> list[Part]:
    """One part for all meshes of a body that have one color."""
    groups: dict[Any, list[Mesh]] = {}
    for part in parts:
        groups.setdefault((part.body, tuple(np.round(part.color, 2)), part.opacity), []).append(part.mesh)
    return [Part(body, geometry.merged(meshes), color, opacity) for (body, color, opacity), meshes in groups.items()]


def _frames(model: Model) -> dict[str, tuple[int, np.ndarray, np.ndarray]]:
    """{link: (body that carries it, rotation and position in the body's frame)}."""
    turn, shift = (np.asarray(x, float) for x in model.links)
    known: dict[str, tuple[int, np.ndarray, np.ndarray]] = {}
    for (name, body), r, p in zip(model.tree.frames, *(np.asarray(x, float) for x in model.frames), strict=True):
        known[name] = (body, turn[body].T @ r, turn[body].T @ (p - shift[body])) if body >= 0 else (body, r, p)
    known |= {name: (i, np.eye(3), np.zeros(3)) for i, name in enumerate(model.body_names)}
    return known


def _read(path: Path) -> list[Visual]:
    if path.suffix.lower() == ".urdf":
        return _urdf(path)
    if path.suffix.lower() in (".xml", ".mjcf"):
        return _mjcf(path)
    raise ValueError(f"{path}: visual geometry is read from .urdf, .xml and .mjcf")


def _urdf(path: Path) -> list[Visual]:
    etree = require("lxml.etree", "urdf", "visual geometry of a URDF")
    root = etree.fromstring(path.read_bytes(), etree.XMLParser(recover=True, resolve_entities=False, no_network=True))
    if root is None:
        raise ValueError("not well-formed XML")
    colors = {m.get("name"): _rgba(m) for m in root.findall("material")}
    found, unread = [], []
    for link in root.findall("link"):
        for visual in link.findall("visual"):
            rotation, shift = _origin(visual.find("origin"))
            material = visual.find("material")
            color = None if material is None else _rgba(material) or colors.get(material.get("name"))
            try:
                meshes = _urdf_geometry(visual.find("geometry"), path)
            except Exception as error:  # a mesh can be broken in as many ways as there are readers
                unread.append(f"{link.get('name')} ({error})")
                continue
            found += [Visual(link.get("name"), m.moved(rotation, shift), color or own or STEEL) for m, own in meshes]
    if unread:
        warnings.warn(f"{path.name}: no visual geometry for {', '.join(unread)}", stacklevel=7)
    return found


def _numbers(element: Any, name: str, default: Any) -> np.ndarray:
    text = None if element is None else element.get(name)
    return np.array(default if text is None else [float(x) for x in text.split()], float)


def _rgba(material: Any) -> tuple[float, ...] | None:
    color = material.find("color")
    return None if color is None else tuple(_numbers(color, "rgba", STEEL)[:3])


def _origin(element: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rotation by fixed axes x, y, z in this order, and shift."""
    roll, pitch, yaw = _numbers(element, "rpy", [0, 0, 0])
    turns = []
    for axis, angle in ((2, yaw), (1, pitch), (0, roll)):
        c, s = np.cos(angle), np.sin(angle)
        i, j = (axis + 1) % 3, (axis + 2) % 3
        turn = np.eye(3)
        turn[[i, i, j, j], [i, j, i, j]] = c, -s, s, c
        turns.append(turn)
    return turns[0] @ turns[1] @ turns[2], _numbers(element, "xyz", [0, 0, 0])


def _urdf_geometry(element: Any, path: Path) -> list[tuple[Mesh, tuple[float, ...] | None]]:
    shape = element[0]
    if shape.tag == "mesh":
        scale = _numbers(shape, "scale", [1, 1, 1])
        return [(mesh.scaled(scale), color) for mesh, color in load_meshes(resolve(shape.get("filename"), path.parent))]
    sizes: dict[str, Callable[[], Mesh]] = {
        "box": lambda: geometry.box(_numbers(shape, "size", None) / 2),
        "sphere": lambda: geometry.ellipsoid(np.full(3, float(shape.get("radius")))),
        "cylinder": lambda: geometry.cylinder(float(shape.get("radius")), float(shape.get("length")) / 2),
        "capsule": lambda: geometry.capsule(float(shape.get("radius")), float(shape.get("length")) / 2),
    }
    if shape.tag not in sizes:
        raise ValueError(f"unknown geometry <{shape.tag}>")
    return [(sizes[shape.tag](), None)]


def load_meshes(path: Path) -> list[tuple[Mesh, tuple[float, ...] | None]]:
    """The meshes of a file with their colors, placed as the file says; needs trimesh, which the extra `view` brings."""
    trimesh = require("trimesh", "view", "reading meshes")
    scene = trimesh.load_scene(path, process=False)
    unit = unit_of(path.read_bytes()) if path.suffix.lower() == ".dae" else 1.0
    found = []
    for node in scene.graph.nodes_geometry:
        place, name = scene.graph[node]
        solid = scene.geometry[name]
        if len(getattr(solid, "faces", ())):
            mesh = Mesh(np.asarray(solid.vertices, float), np.asarray(solid.faces, np.int64))
            found.append((mesh.moved(place[:3, :3], place[:3, 3]).scaled(unit), _color_of(solid)))
    if not found:
        raise ValueError(f"{path.name} holds no triangles")
    return found


def _color_of(solid: Any) -> tuple[float, ...] | None:
    try:
        visual = solid.visual
        rgba = visual.material.main_color if visual.kind == "texture" else visual.main_color
        return tuple(np.asarray(rgba, float)[:3] / 255) if visual.defined else None
    except Exception:  # textures that are missing or of an unknown kind: the mesh is drawn without its color
        return None


def _mjcf(path: Path) -> list[Visual]:
    """Geoms as MuJoCo's compiler places them: of a body those that collide with nothing, or all if there are none."""
    mujoco = require("mujoco", "mjcf", "visual geometry of an MJCF")
    m = mujoco.MjSpec.from_file(str(path)).compile()
    free = (m.geom_contype == 0) & (m.geom_conaffinity == 0)
    dressed = {int(body) for body in m.geom_bodyid[free]}
    found = []
    for i in range(m.ngeom):
        body = int(m.geom_bodyid[i])
        mesh = _geom(mujoco, m, i)
        if mesh is None or (body in dressed and not free[i]) or m.geom_rgba[i, 3] == 0:
            continue
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, m.geom_quat[i])
        material = m.geom_matid[i]
        color = m.mat_rgba[material] if material >= 0 else m.geom_rgba[i]
        name = mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_BODY, body) or f"body_{body}"
        found.append(Visual(name, mesh.moved(rotation.reshape(3, 3), m.geom_pos[i]), tuple(color[:3].astype(float))))
    return found


def _geom(mujoco: Any, m: Any, i: int) -> Mesh | None:
    """Mesh of a geom in its own frame; None for planes, height fields and fields of distance."""
    kind, size, data = mujoco.mjtGeom(m.geom_type[i]), m.geom_size[i], m.geom_dataid[i]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        first, count = m.mesh_vertadr[data], m.mesh_vertnum[data]
        start, faces = m.mesh_faceadr[data], m.mesh_facenum[data]
        corners = m.mesh_face[start : start + faces].astype(np.int64)
        return Mesh(m.mesh_vert[first : first + count].astype(float), corners)
    made = {
        mujoco.mjtGeom.mjGEOM_SPHERE: lambda: geometry.ellipsoid(np.full(3, size[0])),
        mujoco.mjtGeom.mjGEOM_ELLIPSOID: lambda: geometry.ellipsoid(size),
        mujoco.mjtGeom.mjGEOM_BOX: lambda: geometry.box(size),
        mujoco.mjtGeom.mjGEOM_CAPSULE: lambda: geometry.capsule(size[0], size[1]),
        mujoco.mjtGeom.mjGEOM_CYLINDER: lambda: geometry.cylinder(size[0], size[1]),
    }.get(kind)
    return None if made is None else made()
