"""Convex bodies: support points, distance from planes, Boolean operations, mass properties.

Read first: `contact.py` says what a shape is, `convex.py` has the shapes, `solver.py` finds support points.
"""

from lgjax.shapes.combined import complement, intersection, union
from lgjax.shapes.contact import Contact, Gap, Plane, Shape, gap, gap_derivatives
from lgjax.shapes.convex import box, capsule, cylinder, ellipsoid, placed, polyhedron, rounded, sphere
from lgjax.shapes.distance import Distance, DistanceStatus, distance
from lgjax.shapes.implicit import implicit, support
from lgjax.shapes.mass_properties import mass_properties, recentered

__all__ = [
    "Contact",
    "Distance",
    "DistanceStatus",
    "Gap",
    "Plane",
    "Shape",
    "box",
    "capsule",
    "complement",
    "cylinder",
    "distance",
    "ellipsoid",
    "gap",
    "gap_derivatives",
    "implicit",
    "intersection",
    "mass_properties",
    "placed",
    "polyhedron",
    "recentered",
    "rounded",
    "sphere",
    "support",
    "union",
]
