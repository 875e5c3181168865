"""Time derivatives of the dynamics to any order, as recursions of Taylor coefficients.

Read first: `derivatives.py` has the public functions, `series.py` the sweeps, `body_frame.py` the body steps.
"""

from lgjax.dynamics.time_derivatives.closed_form import ClosedForm, closed_form
from lgjax.dynamics.time_derivatives.derivatives import (
    forward_dynamics_time_derivatives,
    hybrid_dynamics_time_derivatives,
    inverse_dynamics_time_derivatives,
)
from lgjax.dynamics.time_derivatives.partials import (
    ForwardTimeDerivativePartials,
    InverseTimeDerivativePartials,
    forward_dynamics_time_derivative_partials,
    inverse_dynamics_time_derivative_partials,
)
from lgjax.dynamics.time_derivatives.poses import pose_derivatives, twist_derivatives
from lgjax.dynamics.time_derivatives.taylor_series import motion_series

__all__ = [
    "ClosedForm",
    "ForwardTimeDerivativePartials",
    "InverseTimeDerivativePartials",
    "closed_form",
    "forward_dynamics_time_derivative_partials",
    "forward_dynamics_time_derivatives",
    "hybrid_dynamics_time_derivatives",
    "inverse_dynamics_time_derivative_partials",
    "inverse_dynamics_time_derivatives",
    "motion_series",
    "pose_derivatives",
    "twist_derivatives",
]
