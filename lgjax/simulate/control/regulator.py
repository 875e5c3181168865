"""Common search of iLQR and FDDP: expand, solve Riccati's recursion, look for a step, and price constraints.

Both are one search. An iterate has states and controls; gaps between a step's end and the next state are zero for iLQR.
The merit of a trajectory is its augmented Lagrangian and a multiple of the sum of its gaps, which no iteration raises.
Source: [mayne1966]; [mastalli2020] for gaps; [howell2019] for constraints; [nocedal2006] section 18.3 for the merit.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.execution import batched
from lgjax.numerics import checks
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.rank import product
from lgjax.simulate.control.directions import Directions, directions
from lgjax.simulate.control.linear_quadratic import riccati
from lgjax.simulate.control.method import SHRUNK, ControlMethod
from lgjax.simulate.control.problem import OptimizeStatus, Problem, within
from lgjax.simulate.control.regulator_state import Candidate, Move, RegulatorIterate
from lgjax.simulate.control.stagewise import Prices, Stagewise, charge, violation

Array = jax.Array

SHRINK = tuple(2.0 ** -(i * (i + 1) / 4) for i in range(10))  # steps that are tried, 1 to 2^-22.5
LEAST, LARGEST = 1e-8, 1e12  # regularization that is more than none, and that ends the search
FEW, NEAR = 3, 1e-3  # such iterations at the end of a search, and relative change of the controls next to it
BOLD, MEEK = 0.1, 1e-4  # share of the expected decrease that is asked for: of the first good step, of the best one


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


class RegulatorSearch(NamedTuple):
    """A method applied to a problem. gapped: whether there may be gaps. linear: states follow the linear model."""

    problem: Problem
    method: RegulatorMethod
    gapped: bool = False
    linear: bool = False

    @property
    def constrained(self) -> bool:
        return self.problem.equality is not None or self.problem.inequality is not None

    # ---- beginning and end
    def init(self, guess: Array, nodes: Any = None) -> RegulatorIterate:
        """nodes: states (steps,) after each step, or None for those that the guessed controls lead to."""
        problem = self.problem
        controls = within(guess, problem.lower, problem.upper)
        if nodes is None:
            states = problem.simulate(problem.start, controls)
        else:
            states = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), problem.start, nodes)
        number = lambda value: jnp.asarray(value, controls.dtype)
        equal, unequal = self._constraints(states, controls)
        prices = Prices(0 * equal[0], 0 * unequal[0], 0 * equal[1], 0 * unequal[1], number(self.method.penalty))
        found = self._measured(states, controls, prices, nodes is not None)
        unit = jnp.where(jnp.isfinite(found.size) & (found.size > 0), found.size, 1)
        prices = prices._replace(penalty=prices.penalty * unit)
        count = jnp.zeros((), jnp.int32)
        finite = jnp.isfinite(found.cost) & jnp.isfinite(found.gaps) & jnp.isfinite(found.violation)
        status = jnp.where(finite, OptimizeStatus.RUNNING, OptimizeStatus.NOT_FINITE).astype(jnp.int32)
        return RegulatorIterate(
            states, controls, found.cost, found.size, number(jnp.inf), number(jnp.inf),
            jnp.maximum(found.violation, found.widest), prices,
            number(0), number(jnp.inf), number(0), number(1), unit, jnp.zeros((), bool), count, count, status,
        )  # fmt: skip

    def begin(self, iterate: RegulatorIterate) -> RegulatorIterate:
        return iterate

    def unfinished(self, iterate: RegulatorIterate) -> Array:
        return iterate.status == OptimizeStatus.RUNNING

    def settle(self, iterate: RegulatorIterate, iterations: Array) -> RegulatorIterate:
        over = (iterate.status == OptimizeStatus.RUNNING) & (iterate.iteration >= iterations)
        return iterate._replace(status=jnp.where(over, OptimizeStatus.MAX_ITERATIONS, iterate.status).astype(jnp.int32))

    # ---- one iteration
    def advance(self, iterate: RegulatorIterate) -> RegulatorIterate:
        """Expand, solve backwards, try steps, and take one or regularize more; or change the prices."""
        prices = iterate.prices if self.constrained else None
        with jax.default_matmul_precision("highest"):
            towards = directions(
                self.problem, self.gapped, iterate.states, iterate.controls, prices, iterate.regularization
            )
            return self._along(iterate, towards)

    def _along(self, iterate: RegulatorIterate, towards: Directions) -> RegulatorIterate:
        """The iterate after looking for a step in these directions."""
        found, here = towards.regulator, self._here(iterate, towards.gap)
        move = self._move(towards)
        weight = self._gap_weight(iterate, here, move)
        best, taken = self._looked(iterate, here, move, weight)
        norm = jnp.sqrt(jnp.sum(found.gradient * found.gradient))
        finite = jnp.isfinite(norm)
        unmet = jnp.maximum(iterate.violation, here.unpaid)
        near, minimal = self._minimal(iterate, here, move, weight, norm)
        good = minimal & (unmet <= self.method.feasibility)
        reprice = self._settled(iterate, minimal | (norm <= unmet * iterate.unit), unmet, taken) & ~good & finite
        step = taken & finite & ~good & ~reprice
        stepped = self._stepped(iterate, best, here, weight, step, self._slack(iterate, here, move, weight))
        shrunk = norm < SHRUNK * iterate.least_norm
        new = stepped._replace(
            waited=jnp.where(shrunk, 0, stepped.waited),
            least_norm=jnp.where(shrunk, norm, iterate.least_norm),
            gradient_norm=jnp.where(finite, norm, iterate.gradient_norm),
            iteration=iterate.iteration + 1,
            near=near,
        )
        new = new._replace(status=self._verdict(new, finite, good, reprice))
        return self._repriced(new, reprice, minimal | (norm <= unmet * iterate.unit)) if self.constrained else new

    def _stepped(self, old: RegulatorIterate, best: Candidate, here: Candidate, weight, step, slack) -> Any:
        """The iterate with the step, and the regularization for the next one.

        A gain within `slack` counts as none: gaps that are round-off seem to shrink in each step.
        """
        take = lambda new, old: jnp.where(step, new, old)
        gain = self._merit(here, weight) - self._merit(best, weight)
        much = gain > jnp.maximum(self.method.improvement * jnp.abs(old.cost), slack)
        factor = jnp.where(step, jnp.minimum(old.factor / 2, 0.5), jnp.maximum(old.factor * 2, 2.0))
        least = LEAST * old.unit
        regularization = jnp.maximum(old.regularization, least) * factor
        regularization = jnp.where(step & (regularization < least), 0, regularization)
        return old._replace(
            states=jax.tree.map(take, best.states, old.states), controls=take(best.controls, old.controls),
            cost=take(best.cost, old.cost), size=take(best.size, old.size),
            gap_weight=weight, regularization=regularization, factor=factor,
            violation=take(jnp.maximum(best.violation, best.widest), old.violation),
            waited=jnp.where(step & much, 0, old.waited + 1),
        )  # fmt: skip

    def _verdict(self, new: RegulatorIterate, finite: Array, good: Array, reprice: Array) -> Array:
        stuck = (new.regularization > LARGEST * new.unit) | (new.waited >= self.method.patience)
        ended = jnp.where(stuck & ~reprice, OptimizeStatus.STALLED, new.status)
        return jnp.where(~finite, OptimizeStatus.NOT_FINITE, jnp.where(good, OptimizeStatus.CONVERGED, ended)).astype(
            jnp.int32
        )

    # ---- trajectories
    def _constraints(self, states: Any, controls: Array) -> tuple[Any, Any]:
        """(steps, end) of equalities and of inequalities."""
        none = jnp.zeros((len(controls), 0), controls.dtype), jnp.zeros(0, controls.dtype)
        of = lambda constraint: none if constraint is None else constraint.split(self.problem.times(), states, controls)
        return of(self.problem.equality), of(self.problem.inequality)

    def _measured(self, states: Any, controls: Array, prices: Prices, gaps: Any) -> Candidate:
        """gaps: (steps, dim), True to compute them, False for none."""
        cost, size = self.problem.cost_and_size(states, controls)
        zero = jnp.zeros_like(cost)
        if gaps is True:
            before, after = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)
            ends = jax.vmap(self.problem.system.step)(before, controls)
            gaps = jax.vmap(self.problem.system.difference)(after, ends)
        total, widest = (zero, zero) if gaps is False else (jnp.sum(jnp.abs(gaps)), jnp.max(jnp.abs(gaps)))
        if not self.constrained:
            return Candidate(states, controls, cost, size, zero, total, widest, zero, zero)
        (equal, equal_end), (unequal, unequal_end) = self._constraints(states, controls)
        added = charge(equal, unequal, prices.equal, prices.unequal, prices.penalty)
        added = added + charge(equal_end, unequal_end, prices.equal_end, prices.unequal_end, prices.penalty)
        most = jnp.maximum(violation(equal, unequal), violation(equal_end, unequal_end))
        held = lambda value, by: jnp.maximum(value, -by / prices.penalty)
        slack = [held(unequal, prices.unequal), held(unequal_end, prices.unequal_end)]
        unpaid = jnp.max(jnp.abs(jnp.concatenate([x.reshape(-1) for x in slack])), initial=0)
        return Candidate(states, controls, cost, size, added, total, widest, most, jnp.maximum(most, unpaid))

    def _here(self, iterate: RegulatorIterate, gaps: Any) -> Candidate:
        gaps = gaps if self.gapped else False
        if self.constrained:
            return self._measured(iterate.states, iterate.controls, iterate.prices, gaps)
        zero = jnp.zeros_like(iterate.cost)
        total, widest = (jnp.sum(jnp.abs(gaps)), jnp.max(jnp.abs(gaps))) if self.gapped else (zero, zero)
        cost, size = iterate.cost, iterate.size
        return Candidate(iterate.states, iterate.controls, cost, size, zero, total, widest, zero, zero)

    def _move(self, towards: Directions) -> Move:
        """Where the regulator leads, and what it is expected to gain."""
        found, x, u = towards.regulator, None, None
        if self.linear:
            A, B = towards.motion
            x, u = riccati.linear_motion(A, B, towards.gap, found)
        return Move(found.push, found.feedback, found.slope, found.curve, found.closing, x, u, towards.gap)

    def _tried(self, iterate: RegulatorIterate, move: Move, size: Array) -> Candidate:
        """The trajectory for a step of this size."""
        problem, system = self.problem, self.problem.system
        if self.linear:
            states = jax.vmap(lambda state, x: system.retract(state, size * x))(iterate.states, move.x)
            controls = within(iterate.controls + size * move.u, problem.lower, problem.upper)
            return self._measured(states, controls, iterate.prices, True)
        before = jax.tree.map(lambda x: x[:-1], iterate.states)

        def moved(state: Any, control: Array, gap: Array) -> Any:
            state = system.step(state, control)
            return system.retract(state, gap) if self.gapped else state

        def step(state: Any, inputs: Any) -> tuple[Any, Any]:
            nominal, control, k, gain, gap = inputs
            error = batched(system.difference)(nominal, state)
            control = within(control + size * k + product(gain, error), problem.lower, problem.upper)
            state = batched(moved)(state, control, (size - 1) * gap)
            return state, (state, control)

        inputs = (before, iterate.controls, move.push, move.feedback, move.gap)
        _, (states, controls) = jax.lax.scan(step, problem.start, inputs)
        states = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), problem.start, states)
        return self._measured(states, controls, iterate.prices, (1 - size) * move.gap if self.gapped else False)

    # ---- steps
    def _slack(self, iterate: RegulatorIterate, here: Candidate, move: Move, weight: Array) -> Array:
        """The change of the merit that may be round-off.

        A few last digits of its terms, and what a sum of as many loses at random. Next to the minimum, where the step
        changes few digits of the controls, more: terms may cancel within, as 1 + cos(angle) does.
        """
        terms = here.size + jnp.abs(here.charge) + (weight * here.gaps if self.gapped else 0)
        eps = float(jnp.finfo(terms.dtype).eps)
        square = lambda x: jnp.sum(x * x)
        near = square(move.push) <= NEAR**2 * square(iterate.controls)
        few = (8 + self.problem.steps**0.5) * eps
        return terms * jnp.where(near, max(few, eps ** (2 / 3)), few)

    def _minimal(self, iterate: RegulatorIterate, here: Candidate, move: Move, weight: Array, norm: Array) -> Any:
        """Whether the trajectory is near a minimum, and whether it is one by the tolerance or the digits of the cost.

        What Newton's step would gain, -slope - curve / 2, is the distance to the minimum in units of the cost: unlike
        the norm of the gradient it depends on no scale of the controls, and where a motion is unstable the gradient is
        of round-off alone at the minimum. It counts where regularization is less than half of the curve. The tolerance
        bounds its root, as a share of the cost; a trajectory is near if it keeps to it, and a minimum if the one before
        was near too, so that the last step of Newton's is taken. Where the gain is less than the digits of the cost
        can tell, the gradient must have ceased to shrink, to reach the accuracy that the dtype allows.
        Source: [boyd2004] section 9.5 for Newton's decrement.
        """
        square = float(self.method.tolerance) ** 2
        firm = 2 * iterate.regularization * jnp.sum(move.push * move.push) <= move.curve
        gain = -(move.slope + move.curve / 2)
        eps = float(jnp.finfo(norm.dtype).eps)
        # a cost that falls to zero has no share to compare with but that of the guess
        near = (2 * gain <= square * jnp.maximum(iterate.size, eps * iterate.unit)) & firm
        drowned = firm & (gain <= self._slack(iterate, here, move, weight))
        drowned = drowned & (iterate.waited >= FEW) & (norm >= SHRUNK * iterate.least_norm)
        return near, (near & iterate.near) | (norm <= square * iterate.size) | drowned

    def _merit(self, found: Candidate, weight: Array) -> Array:
        return found.cost + found.charge + (weight * found.gaps if self.gapped else 0)

    def _gap_weight(self, iterate: RegulatorIterate, here: Candidate, move: Move) -> Array:
        """So large that the step lowers the merit by half of what it gains in gaps. Source: [nocedal2006] (18.36)."""
        if not self.gapped:
            return iterate.gap_weight
        model = move.slope + move.curve / 2 + move.closing
        needed = jnp.where(here.gaps > 0, 2 * model / jnp.where(here.gaps > 0, here.gaps, 1), 0)
        return jnp.where(jnp.isfinite(needed), jnp.maximum(iterate.gap_weight, needed), iterate.gap_weight)

    def _looked(self, iterate, here: Candidate, move: Move, weight: Array) -> tuple[Candidate, Array]:
        """A step and whether it is good enough."""
        sizes = jnp.asarray(SHRINK, iterate.cost.dtype)
        merit = self._merit(here, weight)
        solved = jnp.isfinite(move.slope) & jnp.isfinite(move.curve)
        share = BOLD if self.method.line_search == "first" else MEEK
        slack = self._slack(iterate, here, move, weight)

        # beside larger terms no digit of the present cost is left, and motions so far away have none either
        most = jnp.maximum(here.size, iterate.unit) / float(jnp.finfo(merit.dtype).eps)
        sound = lambda found: found.size <= most

        def good(found: Candidate, size: Array) -> Array:
            expected = -(size * (move.slope + move.closing) + size * size / 2 * move.curve) + size * weight * here.gaps
            after = self._merit(found, weight)
            # near the end the decrease drowns in round-off, and the model tells more than the cost
            enough = (merit - after > share * jnp.maximum(expected, 0)) | (
                (size == 1) & (jnp.abs(merit - after) <= slack) & (expected <= slack)
            )
            return solved & enough & sound(found) & jnp.isfinite(after) & jnp.isfinite(found.violation)

        if self.method.line_search == "best":
            found = jax.vmap(lambda size: self._tried(iterate, move, size))(sizes)
            fine = jax.vmap(good)(found, sizes)
            merits = jnp.where(fine, jax.vmap(self._merit, (0, None))(found, weight), jnp.inf)
            pick = jnp.where(merits[0] <= jnp.min(merits) + slack, 0, jnp.argmin(merits))
            return jax.tree.map(lambda x: x[pick], found), jnp.any(fine)

        def attempt(carry: Any) -> Any:
            i, _, _ = carry
            found = self._tried(iterate, move, sizes[i])
            return i + 1, good(found, sizes[i]), found

        first = (jnp.zeros((), jnp.int32), jnp.zeros((), bool), here)
        going = solved & self.unfinished(iterate)  # others of a batch may have ended
        more = lambda carry: ~carry[1] & (carry[0] < len(SHRINK)) & going
        _, fine, found = iterate_while(more, attempt, first)
        return found, fine

    # ---- prices
    def _settled(self, iterate: RegulatorIterate, due: Array, unmet: Array, taken: Array) -> Array:
        """Whether the prices are due: a minimum, or the gradient is no larger than what they mend, or no step helps."""
        if not self.constrained:
            return jnp.zeros((), bool)
        stuck = (~taken & (iterate.regularization > LARGEST * iterate.unit / 4)) | (
            iterate.waited >= self.method.patience - 1
        )
        return due | (stuck & (unmet > self.method.feasibility))

    def raised(self, states: Any, controls: Array, prices: Prices) -> Prices:
        """New multipliers for the constraints at a trajectory, of the same penalty."""
        (equal, equal_end), (unequal, unequal_end) = self._constraints(states, controls)
        weight = prices.penalty
        pushed = lambda by, value: jnp.maximum(by + weight * value, 0)
        return Prices(
            prices.equal + weight * equal, pushed(prices.unequal, unequal), prices.equal_end + weight * equal_end,
            pushed(prices.unequal_end, unequal_end), weight,
        )  # fmt: skip

    def _repriced(self, iterate: RegulatorIterate, reprice: Array, minimized: Array) -> RegulatorIterate:
        """New multipliers; the penalty grows where the violation did not shrink by four. INFEASIBLE where it cannot."""
        old, weight = self.raised(iterate.states, iterate.controls, iterate.prices), iterate.prices.penalty
        better = iterate.violation <= jnp.maximum(iterate.last_violation / 4, self.method.feasibility)
        better = better | ~minimized  # a stiffer problem would be solved no better
        most = iterate.unit * float(self.method.penalty / jnp.finfo(weight.dtype).eps ** 0.5)
        grown = jnp.where(better, weight, self.method.growth * weight)
        new = old._replace(penalty=jnp.minimum(grown, most))
        hopeless = (grown > most) & minimized & (iterate.violation > 0.9 * iterate.last_violation)
        status = jnp.where(hopeless, OptimizeStatus.INFEASIBLE, iterate.status).astype(jnp.int32)
        changed = iterate._replace(
            prices=new, last_violation=iterate.violation, status=status, waited=jnp.zeros_like(iterate.waited),
            regularization=jnp.zeros_like(weight), factor=jnp.ones_like(weight),
            # steps of the linear model open gaps anew, which must go on to count
            gap_weight=iterate.gap_weight if self.linear else jnp.zeros_like(weight),
        )  # fmt: skip
        return jax.tree.map(lambda a, b: jnp.where(reprice, a, b), changed, iterate)
