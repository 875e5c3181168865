"""Optimisation of controls over a rollout: shooting and iLQR.

Read first: `problem.py` states the problem, `optimize.py` drives the method.
"""

from lgjax.simulate.control.optimize import OptimizedControls, optimize_controls
from lgjax.simulate.control.problem import ControlSystem, OptimizeStatus
from lgjax.simulate.memory import rollout_memory

__all__ = ["ControlSystem", "OptimizeStatus", "OptimizedControls", "optimize_controls", "rollout_memory"]
