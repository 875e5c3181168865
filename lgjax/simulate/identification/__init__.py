"""Identification: parameters of a mechanism from what was measured.

Read first: `unknowns.py`, `records.py` and `identify.py`; `dynamics/regressor.py` and `base_parameters.py` for what is
linear.
"""

from lgjax.dynamics.inertial_parameters import (
    from_log_cholesky,
    inertial_parameters,
    log_cholesky,
    with_inertial_parameters,
)
from lgjax.dynamics.regressor import regressor
from lgjax.simulate.identification.base_parameters import BaseParameters, base_parameters
from lgjax.simulate.identification.identify import Identified, IdentifyStatus, identify, log_likelihood
from lgjax.simulate.identification.records import BatchedRecord, MotionRecord, PoseRecord, Record, TorqueRecord
from lgjax.simulate.identification.unknowns import (
    Plant,
    Unknowns,
    armature,
    control_gains,
    coulomb,
    delays,
    frames,
    gear,
    inertias,
    masses,
    placements,
    plant_of,
    time_constants,
    velocity_gains,
    viscous,
)

__all__ = [
    "BaseParameters",
    "BatchedRecord",
    "Identified",
    "IdentifyStatus",
    "MotionRecord",
    "Plant",
    "PoseRecord",
    "Record",
    "TorqueRecord",
    "Unknowns",
    "armature",
    "base_parameters",
    "control_gains",
    "coulomb",
    "delays",
    "frames",
    "from_log_cholesky",
    "gear",
    "identify",
    "inertial_parameters",
    "inertias",
    "log_cholesky",
    "log_likelihood",
    "masses",
    "placements",
    "plant_of",
    "regressor",
    "time_constants",
    "velocity_gains",
    "viscous",
    "with_inertial_parameters",
]
