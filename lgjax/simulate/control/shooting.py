"""Direct shooting, single and multiple, by any optimizer of optax; constraints by augmented Lagrangians."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lgjax.numerics import checks
from lgjax.simulate.control.augmented_lagrangian import augmentation, multiplier_estimates, violation
from lgjax.simulate.control.bounds import bounded, unbounded, unflattened
from lgjax.simulate.control.method import SHRUNK, ControlMethod
from lgjax.simulate.control.problem import OptimizeStatus, Problem

Array = jax.Array

FLOOR = 1e-4  # share of the size of the guess's cost below which tolerances shrink no further


@dataclass(frozen=True, kw_only=True)
class Shooting(ControlMethod):
    """Single shooting: an optimizer of optax moves the controls at the knots, and the states follow from them.

    Controls are a smooth function of free variables whose values lie within the bounds. Constraints, of any kind, are
    enforced by an augmented Lagrangian, whose multipliers change after each round of at most `every` iterations. A
    control that a round leaves at a bound may stay there though later multipliers push it away, and the search ends
    with MAX_ITERATIONS; `ILQR` and `FDDP` free such a control.

    Args:
        optimizer: an optimizer of optax, such as `optax.adam(0.05)`; None takes L-BFGS.
        hold: controls between the knots: "constant", or "linear", interpolated at the middle of each step.
        feasibility: largest violation of a constraint with which a guess may converge.
        penalty: weight of the squared violations at first, in the unit of the cost.
        growth: factor by which this weight grows where the violation does not shrink fast enough.
        iterations: largest number of iterations from a guess.
        tolerance: norm of the gradient with respect to the free variables, relative to the cost, at which a guess has
            converged.
        patience: number of iterations in a row before a guess is STALLED that each gain less than `improvement` and do
            not shrink the gradient.
        improvement: gain of one iteration, as a fraction of the cost, below which it counts as none.
        every: iterations in a round. Between rounds the checkpoint is written and the progress bar moves.

    Source: [nocedal2006] sections 17.3 and 17.4 for augmented Lagrangians.
    """

    optimizer: Any = None
    hold: str = "constant"
    feasibility: float = 1e-6
    penalty: float = 1.0
    growth: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("hold", self.hold, ("constant", "linear"))
        checks.number("feasibility", self.feasibility, 0.0)
        checks.number("penalty", self.penalty, 0.0, inside=True)
        checks.number("growth", self.growth, 1.0)
        if self.optimizer is not None and not isinstance(self.optimizer, optax.GradientTransformation):
            raise TypeError(
                f"optimizer must be one of optax, such as optax.adam(0.05), got {checks.shown(self.optimizer)}"
            )

    def search(self, problem: Problem, knots: int) -> "ShootingSearch":
        if self.hold == "linear" and knots < 2:
            raise ValueError(f"linear controls need two knots or more, got {knots}")
        optimizer = optax.lbfgs() if self.optimizer is None else self.optimizer
        return ShootingSearch(problem, self, optax.with_extra_args_support(optimizer), self.parts(problem.steps), knots)

    def parts(self, steps: int) -> int:
        """Number of segments that are integrated side by side."""
        return 1


@dataclass(frozen=True, kw_only=True)
class MultipleShooting(Shooting):
    """Shooting in segments, side by side, whose first states are variables too, moved on the manifold by tangents.

    The gaps between the segments are equality constraints of the augmented Lagrangian.

    Args:
        segments: number of segments, a divisor of the steps. None takes the largest divisor that is at most 8. The
            other options are those of `Shooting`.
    """

    segments: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.segments is not None:
            checks.integer("segments", self.segments)

    def parts(self, steps: int) -> int:
        if self.segments is None:
            return max(n for n in range(1, 9) if steps % n == 0)
        if steps % self.segments:
            raise ValueError(f"segments must divide steps, got segments={self.segments} and steps={steps}")
        return self.segments


class Best(NamedTuple):
    """The iterate of least cost; where there are constraints, the last one."""

    controls: Array
    states: Any
    cost: Array
    gradient_norm: Array
    violation: Array


class ShootingIterate(NamedTuple):
    """One guess in progress. What is minimized is measured in units of the size of the cost of the guess, `unit`.

    free (knots, controls): controls before their bounds. nodes: the states where segments begin, the first left out,
    and tangents (segments - 1, dim) by which they are moved, the decision variables of multiple shooting.
    multipliers: of equalities (gaps first) and inequalities.
    """

    variables: tuple[Array, Array]  # free, tangents
    nodes: Any
    memory: Any  # of the optimizer
    multipliers: tuple[Array, Array]
    penalty: Array
    unit: Array
    size: Array  # of the cost, the sum of the absolute values of its terms
    value: Array  # of the augmented Lagrangian, over the unit
    gradient: tuple[Array, Array]
    gradient_norm: Array
    least_norm: Array  # of the gradient until now
    cost: Array
    violation: Array
    last_violation: Array
    best: Best
    waited: Array
    iteration: Array
    status: Array


class ShootingSearch(NamedTuple):
    """The method applied to a problem. segments 1: single shooting. knots: of every guess."""

    problem: Problem
    method: Shooting
    optimizer: optax.GradientTransformationExtraArgs
    segments: int
    knots: int

    @property
    def constrained(self) -> bool:
        return self.segments > 1 or self.problem.equality is not None or self.problem.inequality is not None

    # ---- from decision variables to trajectories
    def controls(self, free: Array) -> Array:
        """Controls of every step (steps, controls) from those of the knots."""
        problem = self.problem
        knots = bounded(free, problem.lower, problem.upper)
        step = np.arange(problem.steps)
        if self.method.hold == "constant":
            return knots[step * self.knots // problem.steps]
        # The middle of a step stands for the whole of it.
        place = (step + 0.5) / problem.steps * (self.knots - 1)
        left = np.minimum(place.astype(int), self.knots - 2)
        share = jnp.asarray(place - left, knots.dtype)[:, None]
        return (1 - share) * knots[left] + share * knots[left + 1]

    def trajectory(self, variables: tuple[Array, Array], nodes: Any) -> tuple[Any, Array, Array]:
        """States (steps + 1), controls (steps), and the gaps between the segments, flat."""
        problem, system = self.problem, self.problem.system
        controls = self.controls(variables[0])
        if self.segments == 1:
            return problem.simulate(problem.start, controls), controls, jnp.zeros(0, controls.dtype)
        moved = jax.vmap(system.retract)(nodes, variables[1])
        starts = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), problem.start, moved)
        parts = jax.vmap(problem.simulate)(starts, controls.reshape(self.segments, -1, controls.shape[-1]))
        ends = jax.tree.map(lambda x: x[:, -1], parts)
        gaps = jax.vmap(system.difference)(moved, jax.tree.map(lambda x: x[:-1], ends))
        # not -1: leaves may be empty
        flat = lambda x: x[:, :-1].reshape(x.shape[0] * (x.shape[1] - 1), *x.shape[2:])
        states = jax.tree.map(lambda x, end: jnp.concatenate([flat(x), end[-1:]]), parts, ends)
        return states, controls, gaps.reshape(-1)

    def evaluate(self, variables: Any, nodes: Any) -> tuple[Any, Array, Array, Any, Array]:
        """Cost and its size, equalities (gaps first), inequalities, states, controls."""
        states, controls, gaps = self.trajectory(variables, nodes)
        problem, none = self.problem, jnp.zeros(0, controls.dtype)
        equal = none if problem.equality is None else problem.equality(states, controls)
        unequal = none if problem.inequality is None else problem.inequality(states, controls)
        return problem.cost_and_size(states, controls), jnp.concatenate([gaps, equal]), unequal, states, controls

    def merit(self, variables: Any, iterate: ShootingIterate) -> tuple[Array, Any]:
        """The augmented Lagrangian over the unit, and (cost, its size, violation, states, controls)."""
        (cost, size), equal, unequal, states, controls = self.evaluate(variables, iterate.nodes)
        value = cost / iterate.unit + augmentation(equal, unequal, *iterate.multipliers, iterate.penalty)
        return value, (cost, size, violation(equal, unequal), states, controls)

    # ---- the search
    def init(self, guess: Array, nodes: Any) -> ShootingIterate:
        """nodes: states (segments - 1), or None for those that the guessed controls lead through."""
        problem, dtype = self.problem, guess.dtype
        free = unbounded(guess, problem.lower, problem.upper)
        variables = (free, jnp.zeros((self.segments - 1, problem.dim), dtype))
        states = problem.simulate(problem.start, self.controls(free))
        if nodes is None:
            every = problem.steps // self.segments
            nodes = jax.tree.map(lambda x: x[every:-1:every], states)
        (_, size), equal, unequal, _, controls = self.evaluate(variables, nodes)
        # with constraints the penalty is in units of the cost: that of a guess, which may be far off, is too stiff
        unit = jnp.where(jnp.isfinite(size) & (size > 0) & (not self.constrained), size, 1)
        number = lambda value: jnp.asarray(value, dtype)
        infinite, count = number(jnp.inf), jnp.zeros((), jnp.int32)
        return ShootingIterate(
            variables, nodes, self.optimizer.init(variables), (0 * equal, 0 * unequal), number(self.method.penalty),
            unit, size, infinite, jax.tree.map(jnp.zeros_like, variables), infinite, infinite, infinite, infinite,
            infinite,
            Best(controls, states, infinite, infinite, infinite), count, count,
            jnp.asarray(OptimizeStatus.RUNNING, jnp.int32),
        )  # fmt: skip

    def begin(self, iterate: ShootingIterate) -> ShootingIterate:
        """Value and gradient at the variables of an iterate whose multipliers or chart are new."""
        (value, found), gradient = jax.value_and_grad(self.merit, has_aux=True)(iterate.variables, iterate)
        fresh = self._arrive(iterate, iterate.variables, iterate.memory, value, gradient, found)
        return fresh._replace(iteration=iterate.iteration, waited=iterate.waited)

    def advance(self, iterate: ShootingIterate) -> ShootingIterate:
        """One step of the optimizer."""
        # optax's lengths of steps are float64 wherever JAX has it
        alike = partial(jax.tree.map, lambda x, like: x.astype(like.dtype))
        value_at = lambda variables: self.merit(alike(variables, iterate.variables), iterate)[0]
        with jax.numpy_dtype_promotion("standard"):  # optax mixes 32 and 64 bit counters
            updates, memory = self.optimizer.update(
                iterate.gradient, iterate.memory, iterate.variables,
                value=iterate.value, grad=iterate.gradient, value_fn=value_at,
            )  # fmt: skip
        variables = jax.tree.map(lambda x, dx: x + dx.astype(x.dtype), iterate.variables, updates)
        memory = alike(memory, iterate.memory)
        value, gradient = _searched(memory)
        if gradient is None:
            (value, found), gradient = jax.value_and_grad(self.merit, has_aux=True)(variables, iterate)
        else:
            found = self.merit(variables, iterate)[1]
        return self._arrive(iterate, variables, memory, value, gradient, found)

    def unfinished(self, iterate: ShootingIterate) -> Array:
        """Whether the optimizer has more to do before the multipliers change."""
        return (iterate.status == OptimizeStatus.RUNNING) & (iterate.gradient_norm > self._tolerance(iterate))

    def _tolerance(self, iterate: ShootingIterate) -> Array:
        """Tolerance of the gradient: in proportion to the cost, but at least to a share of the first guess's cost."""
        return self.method.tolerance * jnp.maximum(iterate.size, FLOOR * iterate.unit)

    def settle(self, iterate: ShootingIterate, iterations: Array) -> ShootingIterate:
        """Work at the end of a round: new multipliers, new charts at the nodes, and the verdict."""
        running = iterate.status == OptimizeStatus.RUNNING
        good = (iterate.gradient_norm <= self._tolerance(iterate)) & (iterate.violation <= self.method.feasibility)
        stalled = iterate.waited >= self.method.patience
        verdict = jnp.where(
            good,
            OptimizeStatus.CONVERGED,
            jnp.where(
                stalled,
                OptimizeStatus.STALLED,
                jnp.where(iterate.iteration >= iterations, OptimizeStatus.MAX_ITERATIONS, OptimizeStatus.RUNNING),
            ),
        ).astype(jnp.int32)
        status = jnp.where(running, verdict, iterate.status)
        if not self.constrained:
            return iterate._replace(status=status)
        moved = self._charted(self._with_multipliers(iterate))._replace(status=status, iteration=iterate.iteration + 1)
        # An interrupted search goes on from here, a finished one keeps what it ended with.
        going = running & (verdict == OptimizeStatus.RUNNING)
        kept = iterate._replace(status=status)
        return jax.tree.map(lambda a, b: jnp.where(going, a, b), moved, kept)

    def _with_multipliers(self, iterate: ShootingIterate) -> ShootingIterate:
        """New multipliers; the penalty grows where the violation did not shrink by four."""
        _, equal, unequal, _, _ = self.evaluate(iterate.variables, iterate.nodes)
        weight = iterate.penalty
        multipliers = multiplier_estimates(equal, unequal, *iterate.multipliers, weight)
        better = iterate.violation <= jnp.maximum(iterate.last_violation / 4, self.method.feasibility)
        # a stiffer problem would be solved no better
        better = better | (iterate.gradient_norm > iterate.violation)
        most = self.method.penalty / jnp.sqrt(jnp.asarray(jnp.finfo(weight.dtype).eps, weight.dtype))
        grown = jnp.where(better, weight, jnp.minimum(self.method.growth * weight, most))
        return iterate._replace(multipliers=multipliers, penalty=grown, last_violation=iterate.violation)

    def _charted(self, iterate: ShootingIterate) -> ShootingIterate:
        """The nodes where they have moved to, as the new origins of their tangents."""
        free, tangents = iterate.variables
        nodes = iterate.nodes
        if self.segments > 1:
            nodes = jax.vmap(self.problem.system.retract)(nodes, tangents)
        variables, memory = (free, jnp.zeros_like(tangents)), iterate.memory
        if _searched(memory)[1] is not None:
            memory = self.optimizer.init(variables)  # it remembers gradients of what is no longer minimized
        return iterate._replace(variables=variables, nodes=nodes, memory=memory)

    def _arrive(self, old: ShootingIterate, variables, memory, value, gradient, found) -> ShootingIterate:
        cost, size, violation, states, controls = found
        free, lower, upper = variables[0], self.problem.lower, self.problem.upper
        norm = old.unit * optax.tree.norm((unflattened(free, gradient[0], lower, upper), gradient[1]))
        finite = jnp.isfinite(value) & jnp.isfinite(norm) & jnp.isfinite(cost)
        best = Best(controls, states, cost, norm, violation)
        least = self.method.improvement * jnp.abs(cost)
        if self.constrained:
            better, much = finite, (jnp.abs(old.cost - cost) > least) | (violation > self.method.feasibility)
        else:
            same = jnp.abs(cost - old.best.cost) <= 8 * jnp.finfo(cost.dtype).eps * jnp.abs(cost)
            better = jnp.where(same, norm < old.best.gradient_norm, cost < old.best.cost)
            much = ~(old.best.cost - cost <= least)
        best = jax.tree.map(lambda a, b: jnp.where(better & finite, a, b), best, old.best)
        shrunk = norm < SHRUNK * old.least_norm
        new = old._replace(
            variables=variables, memory=memory, value=value, gradient=gradient, gradient_norm=norm, size=size,
            least_norm=jnp.where(shrunk, norm, old.least_norm), cost=cost, violation=violation, best=best,
            waited=jnp.where(much | shrunk, 0, old.waited + 1), iteration=old.iteration + 1,
        )  # fmt: skip
        lost = old._replace(status=jnp.asarray(OptimizeStatus.NOT_FINITE, jnp.int32), iteration=old.iteration + 1)
        return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, lost)


def _searched(memory: Any) -> tuple[Any, Any]:
    """Value and gradient where a line search of optax ended, or (None, None) for an optimizer without one."""
    get: Callable[..., Any] = optax.tree.get
    return get(memory, "value", None), get(memory, "grad", None)
