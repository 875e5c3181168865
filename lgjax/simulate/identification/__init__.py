"""Identification: parameters of a mechanism from what was measured.

Read first: `dynamics/regressor.py` for what is linear, then `base_parameters.py`.
"""

from lgjax.dynamics.inertial_parameters import (
    from_log_cholesky,
    inertial_parameters,
    log_cholesky,
    with_inertial_parameters,
)
from lgjax.dynamics.regressor import regressor
from lgjax.simulate.identification.base_parameters import BaseParameters, base_parameters

__all__ = [
    "BaseParameters",
    "base_parameters",
    "from_log_cholesky",
    "inertial_parameters",
    "log_cholesky",
    "regressor",
    "with_inertial_parameters",
]
