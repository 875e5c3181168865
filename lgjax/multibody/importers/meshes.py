"""Collision meshes as convex bodies: where a mesh lies, its points, and their convex hull with few vertices.

A mesh touches the ground, and other bodies, through its hull alone. Files are read through trimesh and hulls are found
by SciPy's qhull; the library itself needs neither. Read first: `read_hull`. Next: `collision.py`.
"""

import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from lgjax.multibody.importers.source import one_line, require
from lgjax.numerics import checks
from lgjax.numerics.messages import why

Array = np.ndarray

EXTRA = "urdf"  # the extra that brings the reader and qhull
SAME = 1e-6  # part of a mesh's size below which points are the same: digits of float32 and of files in plain text
FLAT = 1e-5  # part of its length below which a mesh has no thickness
CHUNK = 24  # points whose distance from a hull is computed at once
KEPT = 256  # hulls that are kept: robots name a file many times
_found: dict[tuple, Array] = {}


# ---- hulls
def read_hull(
    path_or_bytes: str | os.PathLike | bytes, scale: Any = (1.0, 1.0, 1.0), vertices: int | None = 64
) -> Array:
    """Vertices (n, 3), m, of a convex hull of at most `vertices` vertices of a mesh in a file, or in its content.

    Formats: STL (binary and text), OBJ, DAE, PLY, GLB, told by their content. scale (3,): factors along the axes, which
    may mirror. Lengths are those of the file, in m; a DAE has its own unit, which counts, as in RViz, while its up-axis
    does not, as in RViz and Pinocchio. Nodes of a scene are where the file puts them. No other file is opened.

    The vertices are points of the mesh, so the hull never sticks out of that of the mesh; `simplified` tells by how
    much it may fall short. None keeps every vertex. The result depends on nothing but the arguments; it is computed
    once for equal ones, and cannot be written to.

    Raises ImportError without the extra `urdf`; ValueError in one line, naming the file, for a file that cannot be read
    and for a mesh without triangles, with vertices that are not finite, or flat.
    """
    label = "mesh" if isinstance(path_or_bytes, bytes) else str(path_or_bytes)
    try:
        factors = np.array(scale, float)
        if factors.shape != (3,) or not np.isfinite(factors).all():
            raise ValueError(f"scale must be three finite numbers, got {checks.shown(scale)}")
        content, kind = _content(path_or_bytes)
        key = hashlib.sha256(content).digest(), kind, factors.tobytes(), vertices
        if key not in _found:
            hull = simplified(_points(content, kind) * factors, vertices)[0]
            hull.setflags(write=False)
            _found[key] = hull
            while len(_found) > KEPT:
                _found.pop(next(iter(_found)))
        return _found[key]
    except ValueError as error:
        raise ValueError(one_line(f"{label}: {error}")) from error


def read_points(path_or_bytes: str | os.PathLike | bytes) -> Array:
    """Vertices (k, 3) of all triangles of a mesh, m, as `read_hull` reads it; ValueError where there are none."""
    return _points(*_content(path_or_bytes))


def simplified(points: Any, vertices: int | None = 64) -> tuple[Array, float]:
    """At most `vertices` of some points (k, 3), m, whose hull is close to that of all, and the gap between both, m.

    The smaller hull lies in the larger one. The gap is the distance of the farthest point of the larger one from it.
    Points are taken one after the other, each the farthest from the hull of those before, until there are enough or
    none is farther than a millionth of the size. None takes all vertices of the hull, and the gap is 0.

    Raises ValueError for fewer than four points, for points that are not finite and for points in one plane.
    """
    most = None if vertices is None else checks.integer("vertices", vertices, 4)
    points = np.asarray(points, float)
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"points have shape {points.shape}, not (k, 3)")
    if not np.isfinite(points).all():
        bad = int(np.argmin(np.isfinite(points).all(1)))
        raise ValueError(f"vertex {bad} is not finite: {points[bad]}")
    if len(points) < 4:
        raise ValueError(f"a body needs at least 4 vertices, got {len(points)}")
    middle = (points.max(0) + points.min(0)) / 2
    size = float(np.ptp(points, axis=0).max())
    if not size > 0:
        raise ValueError("all vertices are in one place")
    unit = (points - middle) / size
    first = _simplex(unit)
    if first is None:
        raise ValueError("the mesh is flat, so it has no convex body: give the link a box")
    corners = _corners(unit)
    if most is None:
        return points[corners], 0.0
    # The simplex is made of corners, or of points that lie with them to round-off.
    near = lambda point: int(np.argmin(np.sum((unit[corners] - point) ** 2, 1)))
    taken, gap = _greedy(unit[corners], list(dict.fromkeys(map(near, unit[first]))), most)
    return points[corners[np.sort(taken)]], gap * size


def _corners(points: Array) -> Array:
    """Indices of the points that are corners of the hull, in order."""
    spatial = require("scipy.spatial", EXTRA, "read_hull")
    try:
        return np.sort(spatial.ConvexHull(points).vertices)
    except spatial.QhullError as error:
        raise ValueError(f"no convex hull: {str(error).strip().splitlines()[0]}") from error


def _simplex(points: Array) -> list[int] | None:
    """Four points that are far apart; None where all lie in one plane, to a part of their extent."""
    a = int(np.argmax(np.sum((points - points.mean(0)) ** 2, 1)))
    b = int(np.argmax(np.sum((points - points[a]) ** 2, 1)))
    along = points[b] - points[a]
    across = np.cross(points - points[a], along / np.linalg.norm(along))
    c = int(np.argmax(np.sum(across**2, 1)))
    normal = np.cross(along, points[c] - points[a])
    length = np.linalg.norm(normal)
    if length <= FLAT:
        return None
    heights = np.abs((points - points[a]) @ (normal / length))
    d = int(np.argmax(heights))
    return None if heights[d] <= FLAT else [a, b, c, d]


def _greedy(points: Array, taken: list[int], most: int) -> tuple[list[int], float]:
    """Corners that are taken, beginning with some, and the largest distance of any other from their hull.

    A distance only shrinks while the hull grows, so that those found before bound it, and few are computed anew.
    """
    bounds = np.full(len(points), np.inf)
    while True:
        bounds[taken] = 0
        hull = _Hull(points[taken])
        farthest, distance = -1, 0.0
        order = np.argsort(-bounds, kind="stable")
        for start in range(0, len(order), CHUNK):
            some = order[start : start + CHUNK]
            if bounds[some[0]] <= distance:
                break
            bounds[some] = hull.distances(points[some])
            best = int(some[np.argmax(bounds[some])])
            if bounds[best] > distance:
                farthest, distance = best, float(bounds[best])
        if distance <= SAME or len(taken) >= most:
            return taken, distance
        taken.append(farthest)


class _Hull:
    """Triangles of a convex hull."""

    def __init__(self, points: Array):
        spatial = require("scipy.spatial", EXTRA, "read_hull")
        hull = spatial.ConvexHull(points)
        self.normals, self.offsets = hull.equations[:, :3], hull.equations[:, 3]
        self.corners = points[hull.simplices]  # (F, 3, 3), each three corners
        self.edges = np.roll(self.corners, -1, 1) - self.corners
        self.squares = np.maximum(np.sum(self.edges**2, 2), 1e-300)
        across = np.cross(self.edges, self.normals[:, None])
        side = np.sum(across * (self.corners - np.roll(self.corners, 1, 1)), 2, keepdims=True)
        self.outward = across * np.sign(side)

    def distances(self, points: Array) -> Array:
        """Distances (k,) of points (k, 3) from the hull; 0 in it. The nearest point is on a triangle that they see."""
        heights = points @ self.normals.T + self.offsets
        seen, face = np.nonzero(heights > 0)
        away = points[seen, None] - self.corners[face]
        along = np.clip(np.sum(away * self.edges[face], 2) / self.squares[face], 0, 1)
        beside = away - along[..., None] * self.edges[face]
        above = np.all(np.sum(away * self.outward[face], 2) <= 0, 1)
        square = np.where(above, heights[seen, face] ** 2, np.sum(beside**2, 2).min(1))
        nearest = np.full(len(points), np.inf)
        np.minimum.at(nearest, seen, square)
        return np.sqrt(np.where(np.isfinite(nearest), nearest, 0))


# ---- files
def _points(content: bytes, kind: str) -> Array:
    trimesh = require("trimesh", EXTRA, "read_hull")
    more = {"skip_materials": True} if kind == "obj" else {}
    try:
        scene = trimesh.load_scene(io.BytesIO(content), file_type=kind, process=False, **more)
        found = list(_placed(scene))
    except Exception as error:  # a mesh can be broken in as many ways as there are readers
        raise ValueError(f"not a readable {kind.upper()} mesh: {why(error)}") from error
    if not found:
        raise ValueError("the mesh has no triangles")
    points = np.concatenate(found)
    return points * unit_of(content) if kind == "dae" else points


def _content(path_or_bytes: str | os.PathLike | bytes) -> tuple[bytes, str]:
    """The content of a file, and its format."""
    if isinstance(path_or_bytes, bytes):
        content, suffix = path_or_bytes, ""
    else:
        path = checks.path("mesh", path_or_bytes)
        suffix = path.suffix.lower().removeprefix(".")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ValueError(f"cannot read the mesh: {why(error)}") from error
    kind = _kind(content, suffix)
    if kind == "stl" and not (content.lstrip().lower().startswith(b"solid") and b"facet" in content):
        triangles = int.from_bytes(content[80:84], "little")
        if len(content) < 84 + 50 * triangles:
            raise ValueError(
                f"not a readable STL mesh: of {triangles} triangles it has {max(len(content) - 84, 0) // 50}"
            )
        content = content[: 84 + 50 * triangles]  # some programs write more
    return content, kind


def _kind(content: bytes, suffix: str) -> str:
    """The format of a mesh, as trimesh calls it: by its content, which endings of names do not always tell."""
    head = content[:4096].replace(b"\0", b"")  # of texts in UTF-16 the half that matters
    if not content:
        raise ValueError("the file is empty")
    if content.startswith(b"ply"):
        return "ply"
    if content.startswith(b"glTF"):
        return "glb"
    if b"<COLLADA" in head:
        if b"<!ENTITY" in content.replace(b"\0", b""):
            raise ValueError("the file declares entities, which are not supported")
        return "dae"
    triangles = int.from_bytes(content[80:84], "little")
    if len(content) == 84 + 50 * triangles or suffix == "stl" or head.lstrip().lower().startswith(b"solid"):
        return "stl"
    if suffix == "obj" or re.search(rb"^\s*v\s+[-+.\d]", content, re.MULTILINE):
        return "obj"
    raise ValueError(f"unknown kind of mesh {suffix!r}; known: STL, OBJ, DAE, PLY, GLB")


def _placed(scene: Any) -> Iterator[Array]:
    """Vertices of the triangles of a scene, where its nodes put them."""
    for node in scene.graph.nodes_geometry:
        place, name = scene.graph[node]
        solid = scene.geometry[name]
        if len(getattr(solid, "faces", ())):
            used = np.zeros(len(solid.vertices), bool)
            used[np.asarray(solid.faces)] = True
            yield np.asarray(solid.vertices, float)[used] @ place[:3, :3].T + place[:3, 3]


def unit_of(content: bytes) -> float:
    """The unit of lengths of a DAE, m."""
    text = content.replace(b"\0", b"")
    found = re.search(rb"""<(?:\w+:)?unit\b[^>]*?\bmeter\s*=\s*["']([^"']*)["']""", text.split(b"</asset>")[0])
    value = 1.0 if found is None else float(found[1])
    if not 0 < value < np.inf:
        raise ValueError(f"the unit of the file is {value} m")
    return value


# ---- places
def resolve(uri: str, folder: str | os.PathLike, packages: Mapping[str, str | os.PathLike] | None = None) -> Path:
    """The file that a robot's file in `folder` calls `uri`.

    uri: package://name/rest or model://name/rest, file:///path, a path, or one relative to the folder. packages gives
    the folders of packages by name. Others are looked for in the folder and in every folder above it: one of the
    package's name, or one that has it; then in the folders of ROS_PACKAGE_PATH, and in share/ of those of
    AMENT_PREFIX_PATH. The first place that has the file counts.

    Raises ValueError in one line that lists where it looked, and says how to give the folder of a package.
    """
    name = uri.strip().replace("\\", "/")
    if "$(" in name or "${" in name:
        raise ValueError(f"{uri!r} is an expression of xacro: expand the file with xacro first")
    scheme, mark, rest = name.partition("://")
    folder = Path(folder)
    if not mark or scheme == "file":
        rest = name if not mark else rest
        places = [folder / x for x in dict.fromkeys((rest, unquote(rest) if mark else rest))]
        where = f"looked in {folder}"
    elif scheme in ("package", "model"):
        package, _, rest = rest.partition("/")
        given = {} if packages is None else packages
        roots = [Path(given[package])] if package in given else _roots(package, folder)
        places = [root / x for root in roots for x in dict.fromkeys((rest, unquote(rest)))]
        listed = ", ".join(map(str, roots)) or f"no folder {package!r} in {folder} or above"
        where = f"looked in {listed}; give the folder by packages={{{package!r}: folder}} or in ROS_PACKAGE_PATH"
    else:
        raise ValueError(f"{uri!r} is not at a place that is read: package://, file:// or a path")
    for place in places:
        if place.is_file():
            return place
    raise ValueError(f"{uri} is not there: {where}")


def _roots(package: str, folder: Path) -> list[Path]:
    """Folders that may be those of a package."""
    starts = folder.absolute(), folder.resolve()
    above = list(dict.fromkeys(place for start in starts for place in (start, *start.parents)))
    of = lambda name: [Path(x) for x in os.environ.get(name, "").split(os.pathsep) if x]
    beside = [*above, *of("ROS_PACKAGE_PATH"), *(x / "share" for x in of("AMENT_PREFIX_PATH"))]
    found = [place for place in above if place.name == package] + [place / package for place in beside]
    found += [place for place in of("ROS_PACKAGE_PATH") if place.name == package]
    return [place for place in dict.fromkeys(found) if place.is_dir()]
