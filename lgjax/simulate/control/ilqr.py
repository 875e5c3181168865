"""Iterative linear-quadratic regulator on a manifold: errors of states live in tangent spaces along the trajectory.

Read first: `regulator.py`, which is the search.
Source: [mayne1966], [tassa2014] for boxes on the controls; errors as in [sola2018].
"""

from dataclasses import dataclass

from lgjax.simulate.control.problem import Problem
from lgjax.simulate.control.regulator import RegulatorMethod, RegulatorSearch


@dataclass(frozen=True, kw_only=True)
class ILQR(RegulatorMethod):
    """Iterative linear-quadratic regulator: a control per step, states always those to which the controls lead.

    Every iteration expands dynamics and cost about the trajectory, solves Riccati's recursion backwards and follows the
    resulting feedback forwards, with steps of several lengths. The cost never rises. Bounds hold at every iteration;
    other constraints are `Stagewise` and go by an augmented Lagrangian.

    line_search, riccati, feasibility, penalty, growth: see `control.RegulatorMethod`.
    iterations, tolerance, patience, improvement, every: see `control.ControlMethod`.
    Source: [mayne1966], [tassa2014] for boxes on the controls; [howell2019] for constraints.
    """

    def search(self, problem: Problem, knots: int) -> RegulatorSearch:
        self.check(problem, knots)
        return RegulatorSearch(problem, self)
