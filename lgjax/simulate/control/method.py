"""Options that all methods of `optimize_controls` share: when a search ends and how it is divided into rounds."""

from dataclasses import dataclass
from typing import Any

from lgjax.numerics import checks
from lgjax.simulate.control.problem import Problem

SHRUNK = 0.9  # share of the least gradient until now below which an iteration counts that gains nothing


@dataclass(frozen=True, kw_only=True)
class ControlMethod:
    """Options of every method.

    iterations    largest number of iterations from a guess.
    tolerance     norm of the gradient with respect to the decision variables at which a guess has converged.
    patience      number of iterations in a row before a guess is STALLED that each gain less than `improvement` and do
                  not shrink the gradient.
    improvement   gain of one iteration, as a fraction of the cost, below which it counts as none.
    every         iterations in a round. Between rounds the checkpoint is written and the progress bar moves.

    Raises TypeError or ValueError naming an option out of range.
    """

    iterations: int = 500
    tolerance: float = 1e-6
    patience: int = 50
    improvement: float = 1e-9
    every: int = 20

    def __post_init__(self) -> None:
        for name in ("iterations", "patience", "every"):
            checks.integer(name, getattr(self, name))
        for name in ("tolerance", "improvement"):
            checks.number(name, getattr(self, name), 0.0)

    def search(self, problem: Problem, knots: int) -> Any:
        """The method applied to a problem, for guesses with `knots` controls each; ValueError where it cannot be."""
        raise NotImplementedError
