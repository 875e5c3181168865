"""Shapes of bodies and their distance from planes."""

from lgjax.shapes.combined import complement, intersection, union
from lgjax.shapes.contact import Contact, Gap, Plane, Shape, gap, gap_derivatives
from lgjax.shapes.convex import box, capsule, ellipsoid, placed, polyhedron, rounded, sphere
from lgjax.shapes.implicit import implicit, support

__all__ = [
    "Contact",
    "Gap",
    "Plane",
    "Shape",
    "box",
    "capsule",
    "complement",
    "ellipsoid",
    "gap",
    "gap_derivatives",
    "implicit",
    "intersection",
    "placed",
    "polyhedron",
    "rounded",
    "sphere",
    "support",
    "union",
]
