"""Iterative linear-quadratic regulator on a manifold: errors of states live in tangent spaces along the trajectory.

Read first: `regulator/search.py`, which is the search.
Source: [mayne1966], [tassa2014] for boxes on the controls; errors as in [sola2018].
"""

from dataclasses import dataclass

from lgjax.simulate.control.problem import Problem
from lgjax.simulate.control.regulator.search import RegulatorMethod, RegulatorSearch


@dataclass(frozen=True, kw_only=True)
class ILQR(RegulatorMethod):
    """Iterative linear-quadratic regulator: a control per step; the states always follow from the controls.

    Every iteration expands dynamics and cost about the trajectory, solves Riccati's recursion backward and follows the
    resulting feedback forward, with steps of several lengths. Without constraints the cost never rises, but for
    round-off. Bounds hold at every iteration; other constraints must be `Stagewise` and are enforced by an augmented
    Lagrangian.

    Args:
        line_search: "best" tries steps of ten lengths side by side and takes the best, as suits a GPU; "first" tries
            them sequentially and takes the first that gains enough, as suits a CPU.
        feasibility: largest violation of a constraint with which a guess may converge.
        penalty: weight of the squared violations at first, relative to the cost of the guess.
        growth: factor by which this weight grows where the violation does not shrink fast enough.
        iterations: largest number of iterations from a guess.
        tolerance: a guess has converged when the square root of twice the decrease that Newton's step would bring is at
            most this, relative to the square root of the cost.
        patience: number of iterations in a row before a guess is STALLED that each gain less than `improvement` and do
            not shrink the gradient.
        improvement: gain of one iteration, as a fraction of the cost, below which it counts as none.
        every: iterations in a round. Between rounds the checkpoint is written and the progress bar moves.

    Source: [mayne1966], [tassa2014] for boxes on the controls; [howell2019] for constraints.
    """

    def search(self, problem: Problem, knots: int) -> RegulatorSearch:
        self.check(problem, knots)
        return RegulatorSearch(problem, self)
