"""Feasibility-driven differential dynamic programming: states and controls of every step from any guess.

Read first: `regulator.py`, which is the search.
"""

from dataclasses import dataclass

from lgjax.numerics import checks
from lgjax.simulate.control.problem import Problem
from lgjax.simulate.control.regulator import RegulatorMethod, RegulatorSearch


@dataclass(frozen=True, kw_only=True)
class FDDP(RegulatorMethod):
    """Multiple shooting with a state and a control per step, solved by Riccati's recursion.

    A guess may have any states: where a step does not end at the next state there is a gap. A step of size s leaves
    1 - s of every gap, so that a whole one closes all. Steps must lower the cost plus a multiple of the sum of the
    gaps, which is as large as it has to be.

    forward       "nonlinear": states follow the dynamics from the start on, but for what is left of the gaps;
                  "linear": states follow the linear model, all steps side by side, and new gaps are what it missed.
    line_search, riccati, feasibility, penalty, growth: see `control.RegulatorMethod`.
    iterations, tolerance, patience, improvement, every: see `control.ControlMethod`.
    Source: [mastalli2020]; [giftthaler2018] for "linear"; [nocedal2006] section 18.3 for the merit.
    """

    line_search: str = "first"
    forward: str = "nonlinear"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("forward", self.forward, ("nonlinear", "linear"))

    def search(self, problem: Problem, knots: int) -> RegulatorSearch:
        self.check(problem, knots)
        return RegulatorSearch(problem, self, gapped=True, linear=self.forward == "linear")
