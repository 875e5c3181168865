"""Control: linearization of a step; optimization of controls over a rollout by shooting and iLQR.

Read first: `problem.py` states the problem, `regulator/search.py` and `shooting.py` are the methods, `optimize.py`
drives.
"""

from typing import TYPE_CHECKING

from lgjax.numerics.renamed import members
from lgjax.simulate.control import costs
from lgjax.simulate.control.fddp import FDDP
from lgjax.simulate.control.ilqr import ILQR
from lgjax.simulate.control.linearization import Linearization, linearize
from lgjax.simulate.control.optimize import OptimizedControls, SearchRecord, optimize_controls
from lgjax.simulate.control.predictive import PredictiveController, PredictiveMemory
from lgjax.simulate.control.problem import ControlSystem, OptimizeStatus
from lgjax.simulate.control.semi_implicit import SemiImplicitEuler
from lgjax.simulate.control.shooting import MultipleShooting, Shooting
from lgjax.simulate.control.stagewise import Stagewise
from lgjax.simulate.drives import ControllerWithMemory, ControlRecord
from lgjax.simulate.memory import rollout_memory

__all__ = [
    "FDDP",
    "ILQR",
    "ControlRecord",
    "ControlSystem",
    "ControllerWithMemory",
    "Linearization",
    "MultipleShooting",
    "OptimizeStatus",
    "OptimizedControls",
    "PredictiveController",
    "PredictiveMemory",
    "SearchRecord",
    "SemiImplicitEuler",
    "Shooting",
    "Stagewise",
    "costs",
    "linearize",
    "optimize_controls",
    "rollout_memory",
]

if not TYPE_CHECKING:  # which reports unknown names by itself
    __getattr__ = members("lgjax.control", History="lgjax.control.SearchRecord")
