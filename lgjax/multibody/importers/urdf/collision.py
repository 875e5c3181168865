"""Collision geometry of a URDF: boxes, spheres, cylinders and capsules; of meshes only that they are there."""

import math
from typing import Any

import numpy as np

from lgjax.multibody.geometry import Geometry, geometry
from lgjax.multibody.importers.source import numbers
from lgjax.multibody.importers.urdf.names import SHAPES, check_parts, check_values


def collision_geometry(robot: Any) -> list[Geometry]:
    """The shapes of all <collision> elements of a <robot>; ValueError for bad sizes and for what would be lost."""
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
                if shape.tag == "mesh":
                    found.append(Geometry(name, "mesh"))
                elif shape.tag in SHAPES:
                    found.append(_shape(name, shape, collision.find("origin"), where))
    return found


def _shape(link: str, shape: Any, origin: Any, where: str) -> Geometry:
    for element in (shape, origin):
        if element is not None:
            check_values(element, where)
    values = {a: _numbers(shape, a, count, where) for a, count in SHAPES[shape.tag].items()}
    for attribute, value in values.items():
        if not np.min(value) > 0:
            raise ValueError(f"{where} <{shape.tag} {attribute}={shape.get(attribute)!r}> is not positive")
    if shape.tag == "box":
        size = values["size"] / 2
    else:
        size = np.r_[values["radius"], values["length"] / 2] if "length" in values else values["radius"]
    position, (roll, pitch, yaw) = (
        np.zeros(3) if origin is None or origin.get(a) is None else _numbers(origin, a, 3, where)
        for a in ("xyz", "rpy")
    )
    return geometry(link, shape.tag, size, position, _turn(2, yaw) @ _turn(1, pitch) @ _turn(0, roll))


def _turn(axis: int, angle: float) -> np.ndarray:
    """Rotation about one of the axes of a frame."""
    c, s = math.cos(angle), math.sin(angle)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    turn = np.eye(3)
    turn[[i, i, j, j], [i, j, i, j]] = c, -s, s, c
    return turn


def _numbers(element: Any, attribute: str, count: int, where: str) -> np.ndarray:
    text = element.get(attribute)
    values = np.array(numbers(text or "") or [])
    if len(values) != count or not np.isfinite(values).all():
        expected = "a finite number" if count == 1 else f"{count} finite numbers"
        raise ValueError(f"{where} <{element.tag} {attribute}={text!r}> is not {expected}")
    return values
