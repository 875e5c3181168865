"""Generalized forces that add up: those of `lgjax.dynamics.forces`, and compliant contact."""

from lgjax.contact.compliant import CompliantContact, contact
from lgjax.dynamics.forces import (
    Damper,
    Force,
    Friction,
    JointSpring,
    Limits,
    Motors,
    PointSpring,
    Sum,
    damper,
    friction,
    limits,
    motors,
    point_spring,
    spring,
)

__all__ = [
    "CompliantContact",
    "Damper",
    "Force",
    "Friction",
    "JointSpring",
    "Limits",
    "Motors",
    "PointSpring",
    "Sum",
    "contact",
    "damper",
    "friction",
    "limits",
    "motors",
    "point_spring",
    "spring",
]
