"""Adapters: mechanisms in the conventions of other programs, none of which is imported before it is needed.

An environment for reinforcement learning, a quadruped that is to walk, vector environments of gymnasium, a vector field
for diffrax, dynamics for OpenSCvx. Read first: `environment.py`; `flat.py` has the flat coordinates of the last two.
"""

from lgjax.adapters.environment import Environment, EnvironmentParams, EnvironmentState, EnvironmentStatus
from lgjax.adapters.flat import flat_field, flat_state, from_flat_state
from lgjax.adapters.gymnasium_vector import gymnasium_vector
from lgjax.adapters.legged import Walk, random_params, walking_quadruped
from lgjax.adapters.openscvx import openscvx_dynamics
from lgjax.adapters.space import Space

__all__ = [
    "Environment",
    "EnvironmentParams",
    "EnvironmentState",
    "EnvironmentStatus",
    "Space",
    "Walk",
    "flat_field",
    "flat_state",
    "from_flat_state",
    "gymnasium_vector",
    "openscvx_dynamics",
    "random_params",
    "walking_quadruped",
]
