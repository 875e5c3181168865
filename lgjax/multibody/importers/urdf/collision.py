"""Collision geometry of a URDF: boxes, spheres, cylinders and capsules; of meshes hulls, or that they are there."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lgjax.multibody.geometry import Geometry, geometry, hull
from lgjax.multibody.importers.meshes import read_hull, resolve
from lgjax.multibody.importers.source import numbers
from lgjax.multibody.importers.urdf.elements import at, rotation
from lgjax.multibody.importers.urdf.names import SHAPES, check_parts, check_values


class Meshes(NamedTuple):
    """How collision meshes are read: folder of the file, folders of packages by name, vertices of a hull at most."""

    folder: Path
    packages: Mapping[str, str | os.PathLike]
    vertices: int | None


def collision_geometry(robot: Any, meshes: Meshes | None = None, left_out: list[str] | None = None) -> list[Geometry]:
    """The shapes of all <collision> elements of a <robot>; ValueError for bad sizes and for what would be lost.

    meshes: None to take note of meshes only. left_out: where shapes without size, and meshes that cannot be read, are
    named; without it the former are an error.
    """
    found = []
    for link in robot.findall("link"):
        name = link.get("name")
        for collision in link.findall("collision"):
            where = f"link {name!r}: <collision>"
            check_parts(collision, "collision", where)
            inside = collision.find("geometry")
            if inside is None:
                continue
            check_parts(inside, "geometry", f"{where} <geometry>")
            for shape in inside:
                try:
                    if shape.tag == "mesh":
                        place = _place(collision.find("origin"), where)
                        found.append(Geometry(name, "mesh") if meshes is None else _hull(name, shape, place, meshes))
                    elif shape.tag in SHAPES:
                        found.append(_shape(name, shape, collision.find("origin"), where))
                except LeftOutError as error:
                    if left_out is None:
                        raise
                    left_out.append(str(error))
                    found += [Geometry(name, "mesh")] if shape.tag == "mesh" else []
    return found


class LeftOutError(ValueError):
    """A shape that a robot can do without."""


def _hull(link: str, mesh: Any, place: tuple[np.ndarray, np.ndarray], meshes: Meshes) -> Geometry:
    where = f"link {link!r}: <collision> <mesh> in line {mesh.sourceline}"
    name, scale = mesh.get("filename"), numbers(mesh.get("scale") or "1 1 1")
    if not name:
        raise LeftOutError(f"{where} has no attribute 'filename'")
    if not scale or len(scale) not in (1, 3) or not np.isfinite(scale).all():
        raise LeftOutError(f"{where}: scale={mesh.get('scale')!r} is not three finite numbers")
    turn, position = place
    try:
        points = read_hull(resolve(name, meshes.folder, meshes.packages), np.resize(scale, 3), meshes.vertices)
        return hull(link, points @ turn.T + position)
    except ValueError as error:
        raise LeftOutError(f"{where}: {error}") from error


def _place(element: Any, where: str) -> tuple[np.ndarray, np.ndarray]:
    """(rotation, position) of an <origin>."""
    if element is not None:
        check_values(element, where)
    position, angles = (
        np.zeros(3) if element is None or element.get(a) is None else _numbers(element, a, 3, where)
        for a in ("xyz", "rpy")
    )
    return rotation(*angles), position


def _shape(link: str, shape: Any, origin: Any, where: str) -> Geometry:
    check_values(shape, where)
    turn, position = _place(origin, where)
    values = {a: _numbers(shape, a, count, where) for a, count in SHAPES[shape.tag].items()}
    for attribute, value in values.items():
        if not np.min(value) > 0:
            raise LeftOutError(f"{where} <{shape.tag} {attribute}={shape.get(attribute)!r}> is not positive{at(shape)}")
    if shape.tag == "box":
        size = values["size"] / 2
    else:
        size = np.r_[values["radius"], values["length"] / 2] if "length" in values else values["radius"]
    return geometry(link, shape.tag, size, position, turn)


def _numbers(element: Any, attribute: str, count: int, where: str) -> np.ndarray:
    text = element.get(attribute)
    values = np.array(numbers(text or "") or [])
    if len(values) != count or not np.isfinite(values).all():
        expected = "a finite number" if count == 1 else f"{count} finite numbers"
        raise ValueError(f"{where} <{element.tag} {attribute}={text!r}> is not {expected}{at(element)}")
    return values
