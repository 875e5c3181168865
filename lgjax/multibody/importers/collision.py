"""Collision geometry of a URDF: boxes, spheres, cylinders and capsules; of meshes only that they are there."""

import math
from typing import Any

import numpy as np

from lgjax.multibody.geometry import Geometry, geometry
from lgjax.multibody.importers.source import numbers

# Attributes of each element of <geometry>, and how many numbers each holds.
SHAPES = {
    "sphere": {"radius": 1},
    "cylinder": {"radius": 1, "length": 1},
    "capsule": {"radius": 1, "length": 1},
    "box": {"size": 3},
}


def collision_geometry(robot: Any) -> list[Geometry]:
    """The shapes of all <collision> elements of a <robot>; ValueError for sizes that are no positive numbers."""
    found = []
    for link in robot.findall("link"):
        name = link.get("name")
        for collision in link.findall("collision"):
            inside = collision.find("geometry")
            for shape in () if inside is None else inside:
                if shape.tag == "mesh":
                    found.append(Geometry(name, "mesh"))
                elif shape.tag in SHAPES:
                    found.append(_shape(name, shape, collision.find("origin")))
    return found


def _shape(link: str, shape: Any, origin: Any) -> Geometry:
    where = f"link {link!r}: <collision>"
    values = {a: _numbers(shape, a, count, where) for a, count in SHAPES[shape.tag].items()}
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
