"""Configurations that put frames where they are wanted.

`solve.py` is the entry and gives the derivatives; `search.py` descends from guesses, `rest.py` moves on to the solution
nearest to a rest pose, both by the step of `steps.py` on the rows of `targets.py`.
Read first: `targets.py`.
"""

from lgjax.dynamics.inverse_kinematics.solve import IKStatus, InverseKinematics, inverse_kinematics

__all__ = ["IKStatus", "InverseKinematics", "inverse_kinematics"]
