"""Generalized forces to be added up: springs, dampers, joint limits, friction, springs between points, motors.

A force is a value whose parameters are leaves: batched, differentiated, optimized like those of a Model. Call it as
tau = force(t, q, v), (nv,), pass it to `rollout` as a controller, or add it to forces and to controllers:
`forces.spring(model, 20.0) + forces.friction(model, 0.1) + controller`. force.energy(q) is the potential energy of its
conservative part. Makers take the model for its topology, its dtype and what is not given, and raise ValueError naming
what is out of range; a force with a traced number out of range is NaN. force.for_model(other) is the same force on
another model of the same tree; force.slopes(t, q, v) says how stiff it is, for implicit steps. Parameters are numbers
or arrays with an entry for each coordinate of the joints named, by default of all but free ones, in body order; N/m,
N s/m, N for sliding coordinates and N m/rad, N m s/rad, N m for turning ones.

Read first: `force.py`; then one file for each kind.
"""

from lgjax.dynamics.forces.fluid import FluidBoxes, Medium, fluid_boxes, inertia_box
from lgjax.dynamics.forces.fluid_ellipsoids import FluidEllipsoids, fluid_ellipsoids
from lgjax.dynamics.forces.force import Force, Sum
from lgjax.dynamics.forces.free_armature import FreeArmature, free_armature
from lgjax.dynamics.forces.friction import Damper, Friction, damper, friction
from lgjax.dynamics.forces.gravity_compensation import GravityCompensation, gravity_compensation
from lgjax.dynamics.forces.limits import Limits, limits
from lgjax.dynamics.forces.motors import Motors, motors
from lgjax.dynamics.forces.point_springs import PointSpring, point_spring
from lgjax.dynamics.forces.springs import JointSpring, spring
from lgjax.dynamics.forces.tendons import (
    TendonFriction,
    TendonLimits,
    TendonSpring,
    tendon_friction,
    tendon_limits,
    tendon_spring,
)

__all__ = [
    "Damper",
    "FluidBoxes",
    "FluidEllipsoids",
    "Force",
    "FreeArmature",
    "Friction",
    "GravityCompensation",
    "JointSpring",
    "Limits",
    "Medium",
    "Motors",
    "PointSpring",
    "Sum",
    "TendonFriction",
    "TendonLimits",
    "TendonSpring",
    "damper",
    "fluid_boxes",
    "fluid_ellipsoids",
    "free_armature",
    "friction",
    "gravity_compensation",
    "inertia_box",
    "limits",
    "motors",
    "point_spring",
    "spring",
    "tendon_friction",
    "tendon_limits",
    "tendon_spring",
]
