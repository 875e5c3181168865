"""Batched, differentiable rigid-body dynamics on Lie groups in pure JAX."""

from lgjax.dynamics.energy import center_of_mass, kinetic_energy, momentum, potential_energy, total_energy
from lgjax.dynamics.forward import forward_dynamics
from lgjax.dynamics.inverse import bias_forces, gravity_forces, inverse_dynamics
from lgjax.dynamics.kinematics import body_twists, forward_kinematics, frame_pose, jacobian
from lgjax.dynamics.mass_matrix import coriolis_matrix, mass_matrix
from lgjax.groups import (
    S3,
    SE3,
    SO3,
    HomogeneousSpace,
    LieGroup,
    Pose,
    R3xSO3,
    Rn,
    left_translation,
    product,
    product_space,
    r3_so3,
    right_translation,
    s3,
    se3,
    so3,
    vector_space,
)
from lgjax.integrators import (
    BOGACKI_SHAMPINE32,
    DORMAND_PRINCE54,
    HEUN2,
    LIE_EULER,
    RK3,
    RK4,
    RK4_TWO_COMMUTATORS,
    RK6,
    MuntheKaas,
    Solution,
    Tableau,
    integrate,
)
from lgjax.multibody import models
from lgjax.multibody.build import Body, Joint, build
from lgjax.multibody.importers import load_mjcf, load_urdf
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration, configuration, difference, neutral, random_configuration, retract
from lgjax.multibody.tree import Tree
from lgjax.simulate.ensemble import Ensemble, ensemble
from lgjax.simulate.rollout import Trajectory, rollout

__version__ = "0.1.0"

__all__ = [
    "BOGACKI_SHAMPINE32",
    "DORMAND_PRINCE54",
    "HEUN2",
    "LIE_EULER",
    "RK3",
    "RK4",
    "RK4_TWO_COMMUTATORS",
    "RK6",
    "S3",
    "SE3",
    "SO3",
    "Body",
    "Configuration",
    "Ensemble",
    "HomogeneousSpace",
    "Inertia",
    "Joint",
    "LieGroup",
    "Model",
    "MuntheKaas",
    "Pose",
    "R3xSO3",
    "Rn",
    "Solution",
    "Tableau",
    "Trajectory",
    "Tree",
    "bias_forces",
    "body_twists",
    "build",
    "center_of_mass",
    "configuration",
    "coriolis_matrix",
    "difference",
    "ensemble",
    "forward_dynamics",
    "forward_kinematics",
    "frame_pose",
    "gravity_forces",
    "integrate",
    "inverse_dynamics",
    "jacobian",
    "kinetic_energy",
    "left_translation",
    "load_mjcf",
    "load_urdf",
    "mass_matrix",
    "models",
    "momentum",
    "neutral",
    "potential_energy",
    "product",
    "product_space",
    "r3_so3",
    "random_configuration",
    "retract",
    "right_translation",
    "rollout",
    "s3",
    "se3",
    "so3",
    "total_energy",
    "vector_space",
]
