"""All that `lgjax` shows: its namespaces and its flat names.

`lgjax/__init__.py` imports this file when the first of them is used, so that `import lgjax` takes no time and the
command line shows its help at once.
"""

# ruff: noqa: F401

# Namespaces.
from lgjax import adapters as adapters
from lgjax import collisions as collisions
from lgjax import contact as contact
from lgjax import execution as execution
from lgjax import forces as forces
from lgjax import groups as groups
from lgjax import integrators as integrators
from lgjax import maximal as maximal
from lgjax import multibody as multibody
from lgjax import plot as plot
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
