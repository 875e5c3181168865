"""State of a search by iLQR or FDDP, between iterations and within one."""

from typing import Any, NamedTuple

import jax

Array = jax.Array


class RegulatorIterate(NamedTuple):
    """One guess in progress. states (steps + 1), controls (steps, controls), multipliers of the constraints; the rest
    are numbers.

    size: of the cost, the sum of the absolute values of its terms. least_norm: of the gradient until now.
    gap_weight: of the gaps in the merit. last_violation: when the multipliers changed last. regularization and its
    factor. unit: the size of the cost of the guess, in which regularization and penalty are measured. near: whether the
    iterate before this one was near a minimum.
    """

    states: Any
    controls: Any
    multipliers: Any
    cost: Array
    size: Array
    gradient_norm: Array
    least_norm: Array
    violation: Array
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

    @property
    def numbers(self) -> "RegulatorIterate":
        """Without its arrays."""
        return self._replace(states=None, controls=None, multipliers=None)


class Trajectory(NamedTuple):
    """A trajectory with what it costs: the cost and its size, what the augmented Lagrangian adds, the sum of all gaps
    and the largest one, the largest violation of a constraint, and the larger of this and of the complementarity.
    """

    states: Any
    controls: Any
    cost: Array
    size: Array
    augmentation: Array
    gaps: Array
    largest_gap: Array
    violation: Array
    infeasibility: Array

    @property
    def numbers(self) -> "Trajectory":
        """Without its arrays."""
        return self._replace(states=None, controls=None)


class Prediction(NamedTuple):
    """Change of the cost by a step of size s, by the quadratic model: s (slope + gap_cost) + s² curvature / 2.

    gap_cost: what closing the gaps adds. gradient_norm: of the cost with respect to the controls. square: of the
    changes of the controls, summed.
    """

    slope: Array
    curvature: Array
    gap_cost: Array
    gradient_norm: Array
    square: Array
    controls_square: Array


class Direction(NamedTuple):
    """Direction of search: changes and gains of the controls, gaps (steps, dim), for "linear" tangents x of the states
    and changes u of the controls, and what to expect.
    """

    feedforward: Array
    feedback: Array
    gap: Array
    x: Any
    u: Any
    expected: Prediction
