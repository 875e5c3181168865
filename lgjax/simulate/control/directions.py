"""The regulator about a trajectory: all steps are expanded side by side, then comes Riccati's recursion."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.simulate.control.couplings import independent_parts
from lgjax.simulate.control.expansion import expand
from lgjax.simulate.control.linear_quadratic import riccati
from lgjax.simulate.control.problem import Problem
from lgjax.simulate.control.stagewise import Prices

Array = jax.Array


class Directions(NamedTuple):
    """A regulator, the gaps (steps, dim) that it closes, and `motion`: A and B as in `riccati.Expansion`."""

    regulator: riccati.Regulator
    gap: Array
    motion: Any


def directions(
    problem: Problem, gapped: bool, states: Any, controls: Array, prices: Prices | None, regularization: Array
) -> Directions:
    """gapped: False ignores gaps, which are then only round-off."""
    e, last = expand(problem, states, controls, prices)
    e = e if gapped else e._replace(gap=jnp.zeros_like(e.gap))
    return Directions(backward(problem, e, last, controls, regularization), e.gap, (e.A, e.B))


def backward(problem: Problem, e: riccati.Expansion, last: Any, controls: Array, regularization: Array) -> Any:
    """The regulator for expansions about a trajectory, within the bounds of the problem."""
    below, above = problem.lower - controls, problem.upper - controls
    parts = independent_parts(problem)
    return riccati.backward(e, last, below, above, regularization, problem.bounded, parts)
