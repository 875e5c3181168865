"""Plugs: mechanisms in the conventions of other JAX programs, none of which is imported.

An environment for reinforcement learning, a vector field for diffrax, dynamics for OpenSCvx. Read first:
`environment.py`; `flat.py` has the flat coordinates of the other two.
"""

from lgjax.plugs.environment import Environment, EnvironmentState, EnvironmentStatus
from lgjax.plugs.flat import flat_field, flat_state, from_flat_state
from lgjax.plugs.openscvx import openscvx_dynamics

__all__ = [
    "Environment",
    "EnvironmentState",
    "EnvironmentStatus",
    "flat_field",
    "flat_state",
    "from_flat_state",
    "openscvx_dynamics",
]
