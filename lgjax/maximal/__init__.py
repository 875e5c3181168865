"""Rigid bodies in absolute coordinates with joints as constraints, and their implicit integration.

`System` says what a system is, `integrate` moves it by the generalized-alpha method of `generalized_alpha.py`.  Read
first: `parts.py`, then `system.py`.
"""

from lgjax.maximal.generalized_alpha import ConstrainedProblem, GeneralizedAlpha
from lgjax.maximal.integrate import (
    ConstrainedSolution,
    ConstrainedStatus,
    integrate_constrained,
    unconstrained_problem,
)
from lgjax.maximal.parts import (
    Bushing,
    Gravity,
    JointConstraint,
    Load,
    RigidBody,
    Spring,
    TorsionSpring,
    UserConstraint,
    UserForce,
    VectorNode,
)
from lgjax.maximal.system import AbsoluteConfiguration, MaximalSystem, compose_rotation_vectors

__all__ = [
    "AbsoluteConfiguration",
    "Bushing",
    "ConstrainedProblem",
    "ConstrainedSolution",
    "ConstrainedStatus",
    "GeneralizedAlpha",
    "Gravity",
    "JointConstraint",
    "Load",
    "MaximalSystem",
    "RigidBody",
    "Spring",
    "TorsionSpring",
    "UserConstraint",
    "UserForce",
    "VectorNode",
    "compose_rotation_vectors",
    "integrate_constrained",
    "unconstrained_problem",
]
