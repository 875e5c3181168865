"""Common search of iLQR and FDDP: expand, solve Riccati's recursion, search along a line, and update multipliers.

Both are one search. An iterate has states and controls; gaps between a step's end and the next state are zero for iLQR.
The merit of a trajectory is its augmented Lagrangian and a multiple of the sum of its gaps, which no iteration raises.
Read first: `line_search.py`.
Source: [mayne1966]; [mastalli2020] for gaps; [howell2019] for constraints; [nocedal2006] section 18.3 for the merit.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.execution import batched
from lgjax.execution.operation import batched_or_parts
from lgjax.numerics import checks
from lgjax.simulate.control.augmented_lagrangian import Multipliers, multiplier_estimates
from lgjax.simulate.control.linear_quadratic import riccati
from lgjax.simulate.control.method import SHRUNK, ControlMethod
from lgjax.simulate.control.problem import OptimizeStatus, Problem, within
from lgjax.simulate.control.regulator.expansion import expand, independent_parts
from lgjax.simulate.control.regulator.line_search import LineSearch
from lgjax.simulate.control.regulator.state import Direction, Prediction, RegulatorIterate, Trajectory
from lgjax.simulate.control.stagewise import Stagewise

Array = jax.Array

REGULARIZATION_LEAST, REGULARIZATION_MOST = 1e-8, 1e12  # what is more than none, and what ends the search
FEW = 3  # iterations without gain, after which the digits of the cost are spent


@dataclass(frozen=True, kw_only=True)
class RegulatorMethod(ControlMethod):
    """Options of `ILQR` and `FDDP`.

    line_search   "best": steps of ten lengths side by side, and the best is taken, as suits a GPU; "first": one after
                  the other, and the first that gains enough is taken, as suits a CPU.
    feasibility   the largest violation with which a guess may converge; gaps are violations.
    penalty       weight of the squared violations of constraints at first, relative to the cost of the guess.
    growth        factor by which the weight rises where the violation does not shrink fast enough.
    """

    line_search: str = "best"
    feasibility: float = 1e-6
    penalty: float = 1.0
    growth: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("line_search", self.line_search, ("best", "first"))
        checks.number("feasibility", self.feasibility, 0.0)
        checks.number("penalty", self.penalty, 0.0, inside=True)
        checks.number("growth", self.growth, 1.0)

    def check(self, problem: Problem, knots: int) -> None:
        """ValueError where the method cannot be applied."""
        name = type(self).__name__
        for kind in ("equality", "inequality"):
            if not isinstance(getattr(problem, kind), Stagewise | None):
                raise ValueError(
                    f"{name} takes no {kind} constraint that may couple steps: give a control.Stagewise one; "
                    "Shooting and MultipleShooting take any"
                )
        if knots != problem.steps:
            raise ValueError(f"{name} takes a knot per step, {problem.steps}, got {knots} knots")


class RegulatorSearch(LineSearch):
    """A method applied to a problem: what is carried from iteration to iteration, and when it ends."""

    __slots__ = ()

    def progressed(self, new: RegulatorIterate) -> Array:
        """Whether the last iteration took a step, updated multipliers, or began near a minimum."""
        return (new.factor <= 1) | new.near | (new.status == OptimizeStatus.CONVERGED)

    # ---- beginning and end
    def init(self, guess: Array, nodes: Any = None) -> RegulatorIterate:
        """nodes: states (steps,) after each step, or None for those that the guessed controls lead to."""
        problem = self.problem
        controls = within(guess, problem.lower, problem.upper)
        if nodes is None:
            states = batched_or_parts(problem.simulate)(problem.start, controls)
        else:
            states = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), problem.start, nodes)
        number = lambda value: jnp.asarray(value, controls.dtype)
        equal, unequal = self.constraints(states, controls)
        zeros = 0 * equal[0], 0 * unequal[0], 0 * equal[1], 0 * unequal[1]
        multipliers = Multipliers(*zeros, number(self.method.penalty))
        found = self.measured(states, controls, multipliers, nodes is not None)
        unit = jnp.where(jnp.isfinite(found.size) & (found.size > 0), found.size, 1)
        multipliers = multipliers._replace(penalty=multipliers.penalty * unit)
        count = jnp.zeros((), jnp.int32)
        finite = jnp.isfinite(found.cost) & jnp.isfinite(found.gaps) & jnp.isfinite(found.violation)
        status = jnp.where(finite, OptimizeStatus.RUNNING, OptimizeStatus.NOT_FINITE).astype(jnp.int32)
        return RegulatorIterate(
            states, controls, multipliers, found.cost, found.size, number(jnp.inf), number(jnp.inf),
            jnp.maximum(found.violation, found.largest_gap),
            number(0), number(jnp.inf), number(0), number(1), unit, jnp.zeros((), bool), count, count, status,
        )  # fmt: skip

    def begin(self, iterate: RegulatorIterate) -> RegulatorIterate:
        return iterate

    def settle(self, iterate: RegulatorIterate, iterations: Array) -> RegulatorIterate:
        over = (iterate.status == OptimizeStatus.RUNNING) & (iterate.iteration >= iterations)
        return iterate._replace(status=jnp.where(over, OptimizeStatus.MAX_ITERATIONS, iterate.status).astype(jnp.int32))

    # ---- one iteration
    def advance(self, iterate: RegulatorIterate) -> RegulatorIterate:
        """Expand, solve backwards, search along a line, and take a step or regularize more; or update multipliers."""
        multipliers = iterate.multipliers if self.constrained else None
        with jax.default_matmul_precision("highest"):
            expansion, last = expand(self.problem, iterate.states, iterate.controls, multipliers)
            direction = batched_or_parts(self._direction)(expansion, last, iterate.controls, iterate.regularization)
            here = self._here(iterate, direction.gap)
            trial, accepted = self.search(iterate, here, direction)
            numbers = iterate.numbers, here.numbers, direction.expected, trial.numbers, accepted
            new, step, update, minimized = batched(self._decided)(*numbers)
            take = lambda new, old: jnp.where(step, new, old)
            states, controls = jax.tree.map(take, (trial.states, trial.controls), (iterate.states, iterate.controls))
            new = new._replace(states=states, controls=controls, multipliers=iterate.multipliers)
            return self._with_multipliers(new, update, minimized) if self.constrained else new

    def _direction(self, e: riccati.Expansion, last: Any, controls: Array, regularization: Array) -> Direction:
        """Where the regulator leads from here, and what it is expected to gain."""
        problem, x, u = self.problem, None, None
        if not self.gapped:  # gaps are round-off
            e = e._replace(gap=jnp.zeros_like(e.gap))
        found = regulator_of(problem, e, last, controls, regularization)
        if self.linear:
            x, u = riccati.linear_motion(e.A, e.B, e.gap, found)
        square = lambda x: jnp.sum(x * x)
        norm = jnp.sqrt(square(found.gradient))
        expected = Prediction(
            found.slope, found.curvature, found.gap_cost, norm, square(found.feedforward), square(controls)
        )
        return Direction(found.feedforward, found.feedback, e.gap, x, u, expected)

    def _here(self, iterate: RegulatorIterate, gaps: Array) -> Trajectory:
        if self.constrained:
            return self.measured(iterate.states, iterate.controls, iterate.multipliers, gaps if self.gapped else False)
        zero = jnp.zeros_like(iterate.cost)
        total, largest = (jnp.sum(jnp.abs(gaps)), jnp.max(jnp.abs(gaps))) if self.gapped else (zero, zero)
        cost, size = iterate.cost, iterate.size
        return Trajectory(iterate.states, iterate.controls, cost, size, zero, total, largest, zero, zero)

    def _decided(
        self, old: RegulatorIterate, here: Trajectory, expected: Prediction, trial: Trajectory, accepted: Array
    ) -> tuple[RegulatorIterate, Array, Array, Array]:
        """The numbers of the next iterate; whether it takes the trial, and updates multipliers; whether the one before
        was minimized.
        """
        weight, norm = self.gap_weight(old, here, expected), expected.gradient_norm
        finite = jnp.isfinite(norm)
        infeasibility = jnp.maximum(old.violation, here.infeasibility)
        near, minimal = self._minimal(old, here, expected, weight)
        converged = minimal & (infeasibility <= self.method.feasibility)
        minimized = minimal | (norm <= infeasibility * old.unit)
        update = self._updates(old, minimized, infeasibility, accepted) & ~converged & finite
        step = accepted & finite & ~converged & ~update
        stepped = self._stepped(old, here, expected, trial, weight, step)
        shrunk = norm < SHRUNK * old.least_norm
        new = stepped._replace(
            waited=jnp.where(shrunk, 0, stepped.waited),
            least_norm=jnp.where(shrunk, norm, old.least_norm),
            gradient_norm=jnp.where(finite, norm, old.gradient_norm),
            iteration=old.iteration + 1,
            near=near,
        )
        return new._replace(status=self._status(new, finite, converged, update)), step, update, minimized

    def _stepped(
        self, old: RegulatorIterate, here: Trajectory, expected: Prediction, trial: Trajectory, weight, step
    ) -> RegulatorIterate:
        """The iterate after the step, if there is one, and the regularization for the next one.

        A gain within round-off counts as none: gaps that are round-off seem to shrink in each step.
        """
        take = lambda new, old: jnp.where(step, new, old)
        gain = self.merit(here, weight) - self.merit(trial, weight)
        much = gain > jnp.maximum(self.method.improvement * jnp.abs(old.cost), self.round_off(here, expected, weight))
        factor = jnp.where(step, jnp.minimum(old.factor / 2, 0.5), jnp.maximum(old.factor * 2, 2.0))
        least = REGULARIZATION_LEAST * old.unit
        regularization = jnp.maximum(old.regularization, least) * factor
        regularization = jnp.where(step & (regularization < least), 0, regularization)
        return old._replace(
            cost=take(trial.cost, old.cost), size=take(trial.size, old.size),
            gap_weight=weight, regularization=regularization, factor=factor,
            violation=take(jnp.maximum(trial.violation, trial.largest_gap), old.violation),
            waited=jnp.where(step & much, 0, old.waited + 1),
        )  # fmt: skip

    def _status(self, new: RegulatorIterate, finite: Array, converged: Array, update: Array) -> Array:
        stuck = (new.regularization > REGULARIZATION_MOST * new.unit) | (new.waited >= self.method.patience)
        ended = jnp.where(stuck & ~update, OptimizeStatus.STALLED, new.status)
        ended = jnp.where(converged, OptimizeStatus.CONVERGED, ended)
        return jnp.where(finite, ended, OptimizeStatus.NOT_FINITE).astype(jnp.int32)

    def _minimal(self, iterate: RegulatorIterate, here: Trajectory, expected: Prediction, weight: Array) -> Any:
        """Whether the trajectory is near a minimum, and whether it is one by the tolerance or the digits of the cost.

        What Newton's step would gain, -slope - curvature / 2, is the distance to the minimum in units of the cost:
        unlike the norm of the gradient it depends on no scale of the controls, and where a motion is unstable the
        gradient is of round-off alone at the minimum. It counts where regularization is less than half of the
        curvature. The tolerance bounds its root, as a share of the cost; a trajectory is near if it keeps to it, and a
        minimum if the one before was near too, so that the last step of Newton's is taken. Where the gain is less than
        the digits of the cost can tell, the gradient must have ceased to shrink, to reach the accuracy that the dtype
        allows. Source: [boyd2004] section 9.5 for Newton's decrement.
        """
        square, norm = float(self.method.tolerance) ** 2, expected.gradient_norm
        firm = 2 * iterate.regularization * expected.square <= expected.curvature
        gain = -(expected.slope + expected.curvature / 2)
        eps = float(jnp.finfo(norm.dtype).eps)
        # a cost that falls to zero has no share to compare with but that of the guess
        near = (2 * gain <= square * jnp.maximum(iterate.size, eps * iterate.unit)) & firm
        spent = firm & (gain <= self.round_off(here, expected, weight))
        spent = spent & (iterate.waited >= FEW) & (norm >= SHRUNK * iterate.least_norm)
        return near, (near & iterate.near) | (norm <= square * iterate.size) | spent

    # ---- multipliers
    def _updates(self, iterate: RegulatorIterate, minimized: Array, infeasibility: Array, accepted: Array) -> Array:
        """Whether multipliers change: at a minimum, where the gradient is no larger than the infeasibility, or where no
        step helps.
        """
        if not self.constrained:
            return jnp.zeros((), bool)
        stuck = (~accepted & (iterate.regularization > REGULARIZATION_MOST * iterate.unit / 4)) | (
            iterate.waited >= self.method.patience - 1
        )
        return minimized | (stuck & (infeasibility > self.method.feasibility))

    def updated(self, states: Any, controls: Array, old: Multipliers) -> Multipliers:
        """New multipliers for the constraints at a trajectory, of the same penalty."""
        (equal, equal_end), (unequal, unequal_end) = self.constraints(states, controls)
        steps = multiplier_estimates(equal, unequal, old.equal, old.unequal, old.penalty)
        end = multiplier_estimates(equal_end, unequal_end, old.equal_end, old.unequal_end, old.penalty)
        return Multipliers(*steps, *end, old.penalty)

    def _with_multipliers(self, iterate: RegulatorIterate, update: Array, minimized: Array) -> RegulatorIterate:
        """New multipliers; the penalty grows where the violation did not shrink by four. INFEASIBLE where it cannot."""
        multipliers = self.updated(iterate.states, iterate.controls, iterate.multipliers)
        penalty = multipliers.penalty
        better = iterate.violation <= jnp.maximum(iterate.last_violation / 4, self.method.feasibility)
        better = better | ~minimized  # a stiffer problem would be solved no better
        most = iterate.unit * float(self.method.penalty / jnp.finfo(penalty.dtype).eps ** 0.5)
        grown = jnp.where(better, penalty, self.method.growth * penalty)
        hopeless = (grown > most) & minimized & (iterate.violation > 0.9 * iterate.last_violation)
        status = jnp.where(hopeless, OptimizeStatus.INFEASIBLE, iterate.status).astype(jnp.int32)
        changed = iterate._replace(
            multipliers=multipliers._replace(penalty=jnp.minimum(grown, most)),
            last_violation=iterate.violation, status=status, waited=jnp.zeros_like(iterate.waited),
            regularization=jnp.zeros_like(penalty), factor=jnp.ones_like(penalty),
            # steps of the linear model open gaps again, which must go on to count
            gap_weight=iterate.gap_weight if self.linear else jnp.zeros_like(penalty),
        )  # fmt: skip
        return jax.tree.map(lambda a, b: jnp.where(update, a, b), changed, iterate)


def regulator_of(problem: Problem, e: riccati.Expansion, last: Any, controls: Array, regularization: Array) -> Any:
    """The regulator for expansions about a trajectory, within the bounds of the problem."""
    below, above = problem.lower - controls, problem.upper - controls
    return riccati.backward(e, last, below, above, regularization, problem.bounded, independent_parts(problem))
