"""Options that all methods of `optimize_controls` share: when a search ends and how it is divided into rounds."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from lgjax.numerics import checks
from lgjax.simulate.control.problem import Problem

SHRUNK = 0.9  # share of the least gradient until now below which an iteration counts that gains nothing


@dataclass(frozen=True, kw_only=True)
class ControlMethod:
    """Options of every method.

    iterations    largest number of iterations from a guess.
    tolerance     relative to the cost, at which a guess has converged; see each method for what it compares.
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


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def not_differentiated(name: str, found: Any) -> Any:
    """`found`; derivatives of a search that stops before its end are not those of what it looks for."""
    return found


@not_differentiated.defjvp
def _refuse(name: str, primals: Any, tangents: Any) -> Any:
    raise TypeError(f"{name} cannot be differentiated; to hold its result fixed, give it jax.lax.stop_gradient of its "
                    "arguments")  # fmt: skip
