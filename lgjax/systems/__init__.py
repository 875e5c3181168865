"""Ready problems from the literature, each with its parameters, space, field, initial state and invariants."""

from lgjax.systems.aerial_manipulator import AerialManipulator, aerial_manipulator
from lgjax.systems.free_rigid_body import free_rigid_body
from lgjax.systems.heavy_top import heavy_top
from lgjax.systems.quadrotors_with_load import quadrotors_with_load
from lgjax.systems.spherical_pendulum import spherical_pendulum
from lgjax.systems.system import System, in_coordinates

__all__ = [
    "AerialManipulator",
    "System",
    "aerial_manipulator",
    "free_rigid_body",
    "heavy_top",
    "in_coordinates",
    "quadrotors_with_load",
    "spherical_pendulum",
]
