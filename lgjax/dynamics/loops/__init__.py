"""Mechanisms with closed loops: a tree whose joints are cut open, and the constraints that close them."""

from lgjax.dynamics.loops.constraint import Constraint, loop_constraint, loop_residual
from lgjax.dynamics.loops.couple import couple_joints, couple_lengths
from lgjax.dynamics.loops.forward import (
    ConstrainedDynamics,
    constrained_forward_dynamics,
    constrained_hybrid_dynamics,
)
from lgjax.dynamics.loops.inverse import constrained_inverse_dynamics
from lgjax.dynamics.loops.loop import Loop
from lgjax.dynamics.loops.project import Projection, project_positions, project_velocity
from lgjax.dynamics.loops.status import LoopStatus

__all__ = [
    "ConstrainedDynamics",
    "Constraint",
    "Loop",
    "LoopStatus",
    "Projection",
    "constrained_forward_dynamics",
    "constrained_hybrid_dynamics",
    "constrained_inverse_dynamics",
    "couple_joints",
    "couple_lengths",
    "loop_constraint",
    "loop_residual",
    "project_positions",
    "project_velocity",
]
