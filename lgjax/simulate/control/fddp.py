"""Feasibility-driven differential dynamic programming: states and controls of every step from any guess.

Read first: `regulator/search.py`, which is the search.
"""

from dataclasses import dataclass

from lgjax.numerics import checks
from lgjax.simulate.control.problem import Problem
from lgjax.simulate.control.regulator.search import RegulatorMethod, RegulatorSearch


@dataclass(frozen=True, kw_only=True)
class FDDP(RegulatorMethod):
    """Multiple shooting with a state and a control per step, solved by Riccati's recursion.

    A guess may have any states (`nodes` of `optimize_controls`). Where a step of the system does not end at the next
    state, there is a gap. An iteration of step size s, at most 1, leaves 1 - s of every gap, so that a step of size 1
    closes all gaps. It must lower the merit: the cost plus a multiple of the sum of all gaps, chosen as large as
    necessary. Bounds and constraints are those of `ILQR`.

    Args:
        forward: "nonlinear": states follow the dynamics from the start, apart from what is left of the gaps; "linear":
            states follow the linear model, all steps side by side, and its errors are the new gaps.
        line_search: as in `ILQR`, "first" by default; so are the other options.
        feasibility: largest violation with which a guess may converge; gaps are violations.

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
