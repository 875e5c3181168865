"""State of a search by iLQR or FDDP, between iterations and within one."""

from typing import Any, NamedTuple

import jax

from lgjax.simulate.control.stagewise import Prices

Array = jax.Array


class RegulatorIterate(NamedTuple):
    """One guess in progress. states (steps + 1), controls (steps, controls), regularization and its factor.

    size: of the cost, the sum of the absolute values of its terms. least_norm: of the gradient until now.
    unit: the size of the cost of the guess, in which regularization and penalty are measured.
    near: whether the iterate before this one was near a minimum.
    prices: of the constraints. gap_weight: of the gaps in the merit. last_violation: when the prices changed last.
    """

    states: Any
    controls: Array
    cost: Array
    size: Array
    gradient_norm: Array
    least_norm: Array
    violation: Array
    prices: Prices
    gap_weight: Array
    last_violation: Array
    regularization: Array
    factor: Array
    unit: Array
    near: Array
    waited: Array
    iteration: Array
    status: Array

    @property
    def best(self) -> "RegulatorIterate":
        return self  # its merit never rises


class Candidate(NamedTuple):
    """A trajectory with what it costs: cost and its size, what the prices add, sum of gaps, largest gap, violation.

    unpaid: the same, and the largest slack of an inequality that still has a price.
    """

    states: Any
    controls: Array
    cost: Array
    size: Array
    charge: Array
    gaps: Array
    widest: Array
    violation: Array
    unpaid: Array


class Move(NamedTuple):
    """A step: pushes and gains, slope, curve and closing of gaps, tangents x and u of the linear model, gaps."""

    push: Array
    feedback: Array
    slope: Array
    curve: Array
    closing: Array
    x: Any
    u: Any
    gap: Array
