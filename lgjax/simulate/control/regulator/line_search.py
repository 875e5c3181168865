"""Steps of a search by iLQR or FDDP: trajectories under a regulator, their merit, and Armijo's condition on it.

Source: [nocedal2006] sections 3.1 and 18.3; [mastalli2020] for trajectories with gaps.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.execution import batched
from lgjax.execution.operation import batched_or_parts
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.rank import product
from lgjax.simulate.control.augmented_lagrangian import Multipliers, augmentation, complementarity, violation
from lgjax.simulate.control.problem import OptimizeStatus, Problem, within
from lgjax.simulate.control.regulator.state import Direction, Prediction, RegulatorIterate, Trajectory

Array = jax.Array

STEP_SIZES = tuple(2.0 ** -(i * (i + 1) / 4) for i in range(10))  # that are tried, 1 to 2^-22.5
ARMIJO_FIRST, ARMIJO_BEST = 0.1, 1e-4  # share of the expected decrease that the first good step, and the best one, need
NEAR = 1e-3  # relative change of the controls next to a minimum


class LineSearch(NamedTuple):
    """A method applied to a problem. gapped: whether there may be gaps. linear: states follow the linear model."""

    problem: Problem
    method: Any
    gapped: bool = False
    linear: bool = False

    @property
    def constrained(self) -> bool:
        return self.problem.equality is not None or self.problem.inequality is not None

    def unfinished(self, iterate: RegulatorIterate) -> Array:
        return iterate.status == OptimizeStatus.RUNNING

    # ---- trajectories
    def rollout(self, iterate: RegulatorIterate, direction: Direction, size: Array) -> tuple[Any, Array]:
        """States and controls under the regulator for a step of this size; of every gap 1 - size is left."""
        problem, system = self.problem, self.problem.system

        @batched
        def corrected(state: Any, size: Array, lower: Array, upper: Array, inputs: Any) -> Array:
            nominal, control, feedforward, gain, _ = inputs
            error = system.difference(nominal, state)
            return within(control + size * feedforward + product(gain, error), lower, upper)

        @batched
        def moved(state: Any, control: Array, gap: Array) -> Any:
            after = system.step(state, control)
            return system.retract(after, gap) if self.gapped else after

        def step(state: Any, inputs: Any) -> tuple[Any, tuple[Any, Array]]:
            control = corrected(state, size, problem.lower, problem.upper, inputs)
            after = moved(state, control, (size - 1) * inputs[-1])
            return after, (after, control)

        before = jax.tree.map(lambda x: x[:-1], iterate.states)
        inputs = before, iterate.controls, direction.feedforward, direction.feedback, direction.gap
        _, (states, controls) = jax.lax.scan(step, problem.start, inputs)
        return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), problem.start, states), controls

    def linear_rollout(self, iterate: RegulatorIterate, direction: Direction, size: Array) -> tuple[Any, Array]:
        """States and controls of the linear model for a step of this size."""
        retract = batched(lambda state, x, size: self.problem.system.retract(state, size * x))
        states = jax.vmap(retract, (0, 0, None))(iterate.states, direction.x, size)
        return states, within(iterate.controls + size * direction.u, self.problem.lower, self.problem.upper)

    def constraints(self, states: Any, controls: Array) -> tuple[Any, Any]:
        """(steps, end) of equalities and of inequalities."""
        none = jnp.zeros((len(controls), 0), controls.dtype), jnp.zeros(0, controls.dtype)
        of = lambda constraint: none if constraint is None else constraint.split(self.problem.times(), states, controls)
        return of(self.problem.equality), of(self.problem.inequality)

    def measured(self, states: Any, controls: Array, by: Multipliers, gaps: Any) -> Trajectory:
        """gaps: (steps, dim), True to compute them, False for none."""
        cost, size = self.problem.cost_and_size(states, controls)
        zero = jnp.zeros_like(cost)
        if gaps is True:
            before, after = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)
            gaps = jax.vmap(batched(self._gap))(before, controls, after)
        total, largest = (zero, zero) if gaps is False else (jnp.sum(jnp.abs(gaps)), jnp.max(jnp.abs(gaps)))
        if not self.constrained:
            return Trajectory(states, controls, cost, size, zero, total, largest, zero, zero)
        (equal, equal_end), (unequal, unequal_end) = self.constraints(states, controls)
        added = augmentation(equal, unequal, by.equal, by.unequal, by.penalty)
        added = added + augmentation(equal_end, unequal_end, by.equal_end, by.unequal_end, by.penalty)
        worst = jnp.maximum(violation(equal, unequal), violation(equal_end, unequal_end))
        slack = complementarity(unequal, by.unequal, by.penalty)
        slack = jnp.maximum(slack, complementarity(unequal_end, by.unequal_end, by.penalty))
        return Trajectory(states, controls, cost, size, added, total, largest, worst, jnp.maximum(worst, slack))

    def _gap(self, state: Any, control: Array, after: Any) -> Array:
        return self.problem.system.difference(after, self.problem.system.step(state, control))

    def trial(self, iterate: RegulatorIterate, direction: Direction, size: Array) -> Trajectory:
        """The trajectory for a step of this size."""
        rollout = self.linear_rollout if self.linear else batched_or_parts(self.rollout)
        states, controls = rollout(iterate, direction, size)
        gaps = (1 - size) * direction.gap if self.gapped else False
        return self.measured(states, controls, iterate.multipliers, True if self.linear else gaps)

    # ---- merit
    def merit(self, found: Trajectory, weight: Array) -> Array:
        return found.cost + found.augmentation + (weight * found.gaps if self.gapped else 0)

    def gap_weight(self, iterate: RegulatorIterate, here: Trajectory, expected: Prediction) -> Array:
        """So large that the step lowers the merit by half of what it gains in gaps. Source: [nocedal2006] (18.36)."""
        if not self.gapped:
            return iterate.gap_weight
        model = expected.slope + expected.curvature / 2 + expected.gap_cost
        needed = jnp.where(here.gaps > 0, 2 * model / jnp.where(here.gaps > 0, here.gaps, 1), 0)
        return jnp.where(jnp.isfinite(needed), jnp.maximum(iterate.gap_weight, needed), iterate.gap_weight)

    def round_off(self, here: Trajectory, expected: Prediction, weight: Array) -> Array:
        """The change of the merit that may be round-off.

        A few last digits of its terms, and what a sum of as many loses at random. Next to the minimum, where the step
        changes few digits of the controls, more: terms may cancel within, as 1 + cos(angle) does.
        """
        terms = here.size + jnp.abs(here.augmentation) + (weight * here.gaps if self.gapped else 0)
        eps = float(jnp.finfo(terms.dtype).eps)
        near = expected.square <= NEAR**2 * expected.controls_square
        few = (8 + self.problem.steps**0.5) * eps
        return terms * jnp.where(near, max(few, eps ** (2 / 3)), few)

    # ---- the search
    def search(self, iterate: RegulatorIterate, here: Trajectory, direction: Direction) -> tuple[Trajectory, Array]:
        """A trial and whether it is good enough."""
        sizes, known = jnp.asarray(STEP_SIZES, iterate.cost.dtype), (iterate.numbers, here.numbers, direction.expected)
        if self.method.line_search == "best":
            found = jax.vmap(lambda size: self.trial(iterate, direction, size))(sizes)
            pick, numbers, accepted = batched(self._best)(*known, found.numbers, sizes)
            states, controls = jax.tree.map(lambda x: x[pick], (found.states, found.controls))
            return numbers._replace(states=states, controls=controls), accepted

        solved = jnp.isfinite(direction.expected.slope) & jnp.isfinite(direction.expected.curvature)
        going = solved & self.unfinished(iterate)  # others of a batch may have ended

        good = batched(partial(self._accepts, ARMIJO_FIRST))

        def attempt(carry: Any) -> Any:
            i, _, _ = carry
            found = self.trial(iterate, direction, sizes[i])
            return i + 1, good(*known, found.numbers, sizes[i]), found

        first = (jnp.zeros((), jnp.int32), jnp.zeros((), bool), here)
        more = lambda carry: ~carry[1] & (carry[0] < len(STEP_SIZES)) & going
        _, accepted, found = iterate_while(more, attempt, first)
        return found, accepted

    def _accepts(
        self, share: float, iterate: RegulatorIterate, here: Trajectory, expected: Prediction, found: Trajectory, size
    ) -> Array:
        """Armijo's condition for a step: its decrease of the merit is at least a share of the expected one."""
        weight = self.gap_weight(iterate, here, expected)
        before, after, slack = (
            self.merit(here, weight),
            self.merit(found, weight),
            self.round_off(here, expected, weight),
        )
        # beside larger terms no digit of the present cost is left, and motions so far away have none either
        most = jnp.maximum(here.size, iterate.unit) / float(jnp.finfo(before.dtype).eps)
        change = size * (expected.slope + expected.gap_cost) + size * size / 2 * expected.curvature
        decrease = size * weight * here.gaps - change
        # near the end the decrease drowns in round-off, and the model tells more than the cost
        enough = (before - after > share * jnp.maximum(decrease, 0)) | (
            (size == 1) & (jnp.abs(before - after) <= slack) & (decrease <= slack)
        )
        solved = jnp.isfinite(expected.slope) & jnp.isfinite(expected.curvature)
        return solved & enough & (found.size <= most) & jnp.isfinite(after) & jnp.isfinite(found.violation)

    def _best(
        self, iterate: RegulatorIterate, here: Trajectory, expected: Prediction, found: Trajectory, sizes: Array
    ) -> tuple[Array, Trajectory, Array]:
        """Which trial has the least merit, or the whole step where that is as good; its numbers; whether it is good."""
        weight = self.gap_weight(iterate, here, expected)
        accepts = lambda found, size: self._accepts(ARMIJO_BEST, iterate, here, expected, found, size)
        fine = jax.vmap(accepts)(found, sizes)
        merits = jnp.where(fine, jax.vmap(self.merit, (0, None))(found, weight), jnp.inf)
        whole = merits[0] <= jnp.min(merits) + self.round_off(here, expected, weight)
        pick = jnp.where(whole, 0, jax.lax.argmin(merits, 0, jnp.int32))
        return pick, jax.tree.map(lambda x: x[pick], found), jnp.any(fine)
