"""Batched, differentiable rigid-body dynamics on Lie groups in pure JAX.

The names that most work needs are here; the rest is in the namespaces below.
"""

import inspect
import sys
import types

# Namespaces.  They are not in __all__, which lists functions and types of mechanics; nor is the setting cache_programs.
from lgjax import collisions as collisions
from lgjax import contact as contact
from lgjax import forces as forces
from lgjax import groups as groups
from lgjax import integrators as integrators
from lgjax import maximal as maximal
from lgjax import multibody as multibody
from lgjax import plot as plot
from lgjax import plugs as plugs
from lgjax import saving as saving
from lgjax import shapes as shapes
from lgjax import systems as systems
from lgjax import view as view

# The flat names.
from lgjax.contact.contacts import Contacts
from lgjax.dynamics import centroidal as centroidal
from lgjax.dynamics import loops as loops
from lgjax.dynamics import time_derivatives as time_derivatives
from lgjax.dynamics.centroidal import centroidal_momentum_matrix
from lgjax.dynamics.energy import center_of_mass, kinetic_energy, momentum, potential_energy, total_energy
from lgjax.dynamics.forward import forward_dynamics
from lgjax.dynamics.hybrid import hybrid_dynamics
from lgjax.dynamics.inverse import bias_forces, gravity_forces, inverse_dynamics
from lgjax.dynamics.inverse_kinematics import IKStatus, InverseKinematics, inverse_kinematics
from lgjax.dynamics.jacobians import jacobian, jacobian_derivative
from lgjax.dynamics.kinematics import body_twists, forward_kinematics, frame_pose
from lgjax.dynamics.loops import (
    Loop,
    constrained_forward_dynamics,
    constrained_hybrid_dynamics,
    constrained_inverse_dynamics,
    project_positions,
    project_velocity,
)
from lgjax.dynamics.mass_matrix import coriolis_matrix, mass_matrix
from lgjax.dynamics.mass_solve import solve_mass_matrix
from lgjax.dynamics.partials import forward_dynamics_partials, hybrid_dynamics_partials, inverse_dynamics_partials
from lgjax.dynamics.time_derivatives.derivatives import (
    forward_dynamics_time_derivatives,
    hybrid_dynamics_time_derivatives,
    inverse_dynamics_time_derivatives,
)
from lgjax.execution.cache import cache_programs as cache_programs
from lgjax.groups import (
    S3,
    SE3,
    SO3,
    Pose,
    R3xSO3,
    Rn,
    left_translation,
    product,
    r3_so3,
    right_translation,
    s3,
    se3,
    so3,
    ts2,
)
from lgjax.integrators import (
    CF4,
    CROUCH_GROSSMAN3,
    DORMAND_PRINCE54,
    RK4,
    CommutatorFree,
    MuntheKaas,
    Solution,
    SymplecticLie,
    Taylor,
    integrate,
    integrate_adaptive,
)
from lgjax.maximal.generalized_alpha import GeneralizedAlpha
from lgjax.multibody import conventions as conventions
from lgjax.multibody import models as models
from lgjax.multibody.build import Body, Joint, build
from lgjax.multibody.configuration import configuration, difference, neutral, random_configuration, retract
from lgjax.multibody.importers import load_mjcf, load_urdf
from lgjax.multibody.joints import joint_kind
from lgjax.multibody.model import Configuration, Model
from lgjax.multibody.specialized import specialize
from lgjax.multibody.tree import Tree
from lgjax.robots import actuators as actuators
from lgjax.robots import sensors as sensors
from lgjax.robots.load import load_robot
from lgjax.robots.robot import Robot
from lgjax.simulate import control as control
from lgjax.simulate import ensemble as ensembles
from lgjax.simulate import identification as identification
from lgjax.simulate.control.linearization import linearize
from lgjax.simulate.control.optimize import optimize_controls
from lgjax.simulate.ensemble.ensemble import Spread, ensemble, load_ensemble
from lgjax.simulate.ensemble.monte_carlo import monte_carlo
from lgjax.simulate.rollout import rollout

# Namespaces that are kept elsewhere can be imported by their public names too, as in `from lgjax.control import FDDP`.
# They are no packages there, or Python would load a second copy of what they consist of.
for _name, _space in list(vars().items()):
    if inspect.ismodule(_space) and _space.__name__.startswith("lgjax.") and _space.__name__ != f"lgjax.{_name}":
        _shown = types.ModuleType(f"lgjax.{_name}", _space.__doc__)
        vars(_shown).update((key, value) for key, value in vars(_space).items() if not key.startswith("__"))
        sys.modules[_shown.__name__] = _shown

__version__ = "0.2.0"

__all__ = [
    "CF4",
    "CROUCH_GROSSMAN3",
    "DORMAND_PRINCE54",
    "RK4",
    "S3",
    "SE3",
    "SO3",
    "Body",
    "CommutatorFree",
    "Configuration",
    "Contacts",
    "GeneralizedAlpha",
    "IKStatus",
    "InverseKinematics",
    "Joint",
    "Loop",
    "Model",
    "MuntheKaas",
    "Pose",
    "R3xSO3",
    "Rn",
    "Robot",
    "Solution",
    "Spread",
    "SymplecticLie",
    "Taylor",
    "Tree",
    "bias_forces",
    "body_twists",
    "build",
    "center_of_mass",
    "centroidal_momentum_matrix",
    "configuration",
    "constrained_forward_dynamics",
    "constrained_hybrid_dynamics",
    "constrained_inverse_dynamics",
    "coriolis_matrix",
    "difference",
    "ensemble",
    "forward_dynamics",
    "forward_dynamics_partials",
    "forward_dynamics_time_derivatives",
    "forward_kinematics",
    "frame_pose",
    "gravity_forces",
    "hybrid_dynamics",
    "hybrid_dynamics_partials",
    "hybrid_dynamics_time_derivatives",
    "integrate",
    "integrate_adaptive",
    "inverse_dynamics",
    "inverse_dynamics_partials",
    "inverse_dynamics_time_derivatives",
    "inverse_kinematics",
    "jacobian",
    "jacobian_derivative",
    "joint_kind",
    "kinetic_energy",
    "left_translation",
    "linearize",
    "load_ensemble",
    "load_mjcf",
    "load_robot",
    "load_urdf",
    "mass_matrix",
    "momentum",
    "monte_carlo",
    "neutral",
    "optimize_controls",
    "potential_energy",
    "product",
    "project_positions",
    "project_velocity",
    "r3_so3",
    "random_configuration",
    "retract",
    "right_translation",
    "rollout",
    "s3",
    "se3",
    "so3",
    "solve_mass_matrix",
    "specialize",
    "total_energy",
    "ts2",
]
