"""Ready problems from the literature, each with its parameters, space, field, initial state and invariants."""

from typing import TYPE_CHECKING

from lgjax.numerics.renamed import members
from lgjax.systems.aerial_manipulator import AerialManipulator, aerial_manipulator
from lgjax.systems.bouncing_body import BouncingBody, bouncing_body
from lgjax.systems.closed_loops import LoopProblem, five_bar, four_bar, stewart_platform
from lgjax.systems.free_rigid_body import free_rigid_body
from lgjax.systems.heavy_top import heavy_top
from lgjax.systems.heavy_top_maximal import heavy_top_maximal
from lgjax.systems.maximal_problem import MaximalProblem
from lgjax.systems.problem import Problem, in_coordinates
from lgjax.systems.puma560 import puma560, puma560_minimal
from lgjax.systems.quadrotors_with_load import quadrotors_with_load
from lgjax.systems.rotor import rotor
from lgjax.systems.slider_crank import slider_crank, slider_position
from lgjax.systems.spherical_pendulum import spherical_pendulum

__all__ = [
    "AerialManipulator",
    "BouncingBody",
    "LoopProblem",
    "MaximalProblem",
    "Problem",
    "aerial_manipulator",
    "bouncing_body",
    "five_bar",
    "four_bar",
    "free_rigid_body",
    "heavy_top",
    "heavy_top_maximal",
    "in_coordinates",
    "puma560",
    "puma560_minimal",
    "quadrotors_with_load",
    "rotor",
    "slider_crank",
    "slider_position",
    "spherical_pendulum",
    "stewart_platform",
]

if not TYPE_CHECKING:  # which reports unknown names by itself
    __getattr__ = members(
        "lgjax.systems",
        System="lgjax.systems.Problem",
        ConstrainedSystem="lgjax.systems.MaximalProblem",
        ClosedLoopSystem="lgjax.systems.LoopProblem",
    )
