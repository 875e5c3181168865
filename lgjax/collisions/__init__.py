"""Bodies that fly and hit planes: a variational integrator, impacts with friction and restitution, rest and sliding.

`bounce` drives `flight.py`, which cuts steps at impacts.  Read first: `variational.py`, then `impact.py`.
"""

from lgjax.collisions.bounce import BounceSolution, bounce
from lgjax.collisions.impact import BounceStatus, lagrangian_impact
from lgjax.collisions.lagrangian_bounce import LagrangianSolution, lagrangian_bounce
from lgjax.collisions.variational import (
    RigidBody,
    RigidState,
    kinetic_energy,
    lagrangian_step,
    potential_energy,
    rigid_body,
    rigid_state,
    total_energy,
    variational_step,
)

__all__ = [
    "BounceSolution",
    "BounceStatus",
    "LagrangianSolution",
    "RigidBody",
    "RigidState",
    "bounce",
    "kinetic_energy",
    "lagrangian_bounce",
    "lagrangian_impact",
    "lagrangian_step",
    "potential_energy",
    "rigid_body",
    "rigid_state",
    "total_energy",
    "variational_step",
]
