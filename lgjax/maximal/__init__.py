"""Rigid bodies in absolute coordinates with joints as constraints, and their implicit integration.

`System` says what a system is; `integrate` moves it by the generalized-alpha method of `generalized_alpha.py`.  Read
first: `parts.py`, then `system.py`.
"""

from typing import TYPE_CHECKING

from lgjax.maximal.classical import compose_tait_bryan_angles
from lgjax.maximal.generalized_alpha import ConstrainedProblem, GeneralizedAlpha
from lgjax.maximal.integrate import Solution, Status, integrate, unconstrained_problem
from lgjax.maximal.parts import (
    Body,
    Bushing,
    Gravity,
    Joint,
    Load,
    Spring,
    TorsionSpring,
    UserConstraint,
    UserForce,
    VectorNode,
)
from lgjax.maximal.system import AbsoluteConfiguration, System, compose_rotation_vectors
from lgjax.numerics.newton import EXUDYN_RULE, NewtonRule
from lgjax.numerics.renamed import members

__all__ = [
    "EXUDYN_RULE",
    "AbsoluteConfiguration",
    "Body",
    "Bushing",
    "ConstrainedProblem",
    "GeneralizedAlpha",
    "Gravity",
    "Joint",
    "Load",
    "NewtonRule",
    "Solution",
    "Spring",
    "Status",
    "System",
    "TorsionSpring",
    "UserConstraint",
    "UserForce",
    "VectorNode",
    "compose_rotation_vectors",
    "compose_tait_bryan_angles",
    "integrate",
    "unconstrained_problem",
]

if not TYPE_CHECKING:  # which reports unknown names by itself
    __getattr__ = members("lgjax.maximal", RigidBody="lgjax.maximal.Body", JointConstraint="lgjax.maximal.Joint")
