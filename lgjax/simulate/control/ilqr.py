"""Iterative linear-quadratic regulator on a manifold: errors of states live in tangent spaces along the trajectory.

Source: [mayne1966], [tassa2014] for boxes on the controls; errors as in [sola2018].
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.simulate.control.method import ControlMethod
from lgjax.simulate.control.problem import OptimizeStatus, Problem

Array = jax.Array

SHRINK = tuple(2.0 ** -(i * (i + 1) / 4) for i in range(10))  # steps that are tried, 1 to 2^-22.5
LEAST, LARGEST = 1e-8, 1e12  # regularisation that is more than none, and that ends the search
BOX_SWEEPS = 8
ACCEPT = 1e-4  # of the decrease that the quadratic model expects


@dataclass(frozen=True, kw_only=True)
class ILQR(ControlMethod):
    """Iterative linear-quadratic regulator: a control per step, no constraints but the bounds.

    Every iteration expands dynamics and cost about the trajectory, solves Riccati's recursion backwards and follows the
    resulting feedback forwards, with steps of ten lengths side by side. The cost never rises.

    iterations, tolerance, patience, improvement, every: see `ControlMethod`.
    Source: [mayne1966], [tassa2014] for boxes on the controls.
    """

    def search(self, problem: Problem, knots: int) -> "ILQRSearch":
        for name in ("equality", "inequality"):
            if getattr(problem, name) is not None:
                raise ValueError(f"ILQR takes no {name} constraint; Shooting and MultipleShooting do")
        if knots != problem.steps:
            raise ValueError(f"ILQR takes a knot per step, {problem.steps}, got {knots} knots")
        return ILQRSearch(problem, self)


class ILQRIterate(NamedTuple):
    """One guess in progress. states (steps + 1), controls (steps, controls), regularisation and its factor."""

    states: Any
    controls: Array
    cost: Array
    gradient_norm: Array
    regularisation: Array
    factor: Array
    waited: Array
    iteration: Array
    status: Array

    @property
    def violation(self) -> Array:
        return jnp.zeros_like(self.cost)

    @property
    def best(self) -> "ILQRIterate":
        return self  # costs never rise


class Expansion(NamedTuple):
    """Dynamics x' = A x + B u to first and cost to second order in tangents x and changes u of the controls."""

    A: Array
    B: Array
    lx: Array
    lu: Array
    lxx: Array
    lux: Array
    luu: Array


class ILQRSearch(NamedTuple):
    """The method applied to a problem."""

    problem: Problem
    method: ILQR

    def init(self, guess: Array, nodes: Any = None) -> ILQRIterate:
        problem = self.problem
        controls = jnp.clip(guess, problem.lower, problem.upper)
        states = problem.simulate(problem.start, controls)
        cost = problem.cost(states, controls)
        number, count = lambda value: jnp.asarray(value, cost.dtype), jnp.zeros((), jnp.int32)
        status = jnp.where(jnp.isfinite(cost), OptimizeStatus.RUNNING, OptimizeStatus.NOT_FINITE).astype(jnp.int32)
        return ILQRIterate(states, controls, cost, number(jnp.inf), number(0), number(1), count, count, status)

    def begin(self, iterate: ILQRIterate) -> ILQRIterate:
        return iterate

    def unfinished(self, iterate: ILQRIterate) -> Array:
        return iterate.status == OptimizeStatus.RUNNING

    def settle(self, iterate: ILQRIterate, iterations: Array) -> ILQRIterate:
        over = (iterate.status == OptimizeStatus.RUNNING) & (iterate.iteration >= iterations)
        return iterate._replace(status=jnp.where(over, OptimizeStatus.MAX_ITERATIONS, iterate.status).astype(jnp.int32))

    def advance(self, iterate: ILQRIterate) -> ILQRIterate:
        """Expand, solve backwards, try steps of ten lengths side by side, and take the best or regularise more."""
        with jax.default_matmul_precision("highest"):
            expansion, last = expand(self.problem, iterate.states, iterate.controls)
            push, feedback, slope, curve, gradient = backward(
                self.problem, expansion, last, iterate.controls, iterate.regularisation
            )
            norm = jnp.sqrt(jnp.sum(gradient * gradient))
            sizes = jnp.asarray(SHRINK, iterate.cost.dtype)
            states, controls, costs = jax.vmap(lambda size: self._forward(iterate, push, feedback, size))(sizes)
        expected = -(sizes * slope + sizes * sizes / 2 * curve)
        solved = jnp.isfinite(slope) & jnp.isfinite(curve)
        good = solved & (iterate.cost - costs > ACCEPT * jnp.maximum(expected, 0)) & jnp.isfinite(costs)
        pick = jnp.argmin(jnp.where(good, costs, jnp.inf))
        moved, finite, done = jnp.any(good), jnp.isfinite(norm), norm <= self.method.tolerance
        step = moved & finite & ~done
        take = lambda new, old: jnp.where(step, new[pick], old)
        cost = take(costs, iterate.cost)
        much = iterate.cost - cost > self.method.improvement * jnp.abs(iterate.cost)
        factor = jnp.where(step, jnp.minimum(iterate.factor / 2, 0.5), jnp.maximum(iterate.factor * 2, 2.0))
        regularisation = jnp.maximum(iterate.regularisation, LEAST) * factor
        regularisation = jnp.where(step & (regularisation < LEAST), 0, regularisation)
        waited = jnp.where(much | ~step, 0, iterate.waited + 1)
        stuck = (regularisation > LARGEST) | (waited >= self.method.patience)
        status = jnp.where(
            ~finite,
            OptimizeStatus.NOT_FINITE,
            jnp.where(done, OptimizeStatus.CONVERGED, jnp.where(stuck, OptimizeStatus.STALLED, iterate.status)),
        ).astype(jnp.int32)
        return ILQRIterate(
            jax.tree.map(take, states, iterate.states), take(controls, iterate.controls), cost,
            jnp.where(finite, norm, iterate.gradient_norm), regularisation, factor, waited,
            iterate.iteration + 1, status,
        )  # fmt: skip

    def _forward(self, iterate: ILQRIterate, push: Array, feedback: Array, size: Array) -> tuple[Any, Array, Array]:
        """The trajectory of the regulator for a step of this size, and its cost."""
        problem, system = self.problem, self.problem.system
        before = jax.tree.map(lambda x: x[:-1], iterate.states)

        def step(state: Any, inputs: Any) -> tuple[Any, Any]:
            nominal, control, k, gain = inputs
            error = system.difference(nominal, state)
            control = jnp.clip(control + size * k + gain @ error, problem.lower, problem.upper)
            state = system.step(state, control)
            return state, (state, control)

        _, (states, controls) = jax.lax.scan(step, problem.start, (before, iterate.controls, push, feedback))
        states = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), problem.start, states)
        return states, controls, problem.cost(states, controls)


def expand(problem: Problem, states: Any, controls: Array) -> tuple[Expansion, tuple[Array, Array]]:
    """Expansions of all steps, side by side, and gradient and Hessian of the terminal cost."""
    system, nx, nu = problem.system, problem.dim, problem.system.controls
    zero = jnp.zeros(nx + nu, controls.dtype)

    def one(t: Array, state: Any, after: Any, control: Array) -> Expansion:
        move = lambda z: (system.retract(state, z[:nx]), control + z[nx:])
        slopes = jax.jacfwd(lambda z: system.difference(after, system.step(*move(z))))(zero)
        cost = lambda z: problem.stage(t, *move(z))
        first, second = jax.grad(cost)(zero), jax.hessian(cost)(zero)
        return Expansion(
            slopes[:, :nx], slopes[:, nx:], first[:nx], first[nx:], second[:nx, :nx], second[nx:, :nx], second[nx:, nx:]
        )

    before, after = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)
    last = jax.tree.map(lambda x: x[-1], states)
    end = lambda z: problem.end(system.retract(last, z))
    terminal = jax.grad(end)(zero[:nx]), jax.hessian(end)(zero[:nx])
    return jax.vmap(one)(problem.times(), before, after, controls), terminal


def backward(problem: Problem, expansion: Expansion, last: Any, controls: Array, regularisation: Array) -> Any:
    """Riccati's recursion: changes and gains of the controls, slope and curvature of the expected cost, gradient.

    The gradient (steps, controls) is that of the whole cost, projected: zero where a bound holds its control.
    """
    identity = jnp.eye(controls.shape[-1], dtype=controls.dtype)

    def step(carry: Any, inputs: tuple[Expansion, Array]) -> tuple[Any, Any]:
        vx, vxx, px, slope, curve = carry
        e, control = inputs
        qx, qu = e.lx + e.A.T @ vx, e.lu + e.B.T @ vx
        qxx, qux, quu = e.lxx + e.A.T @ vxx @ e.A, e.lux + e.B.T @ vxx @ e.A, e.luu + e.B.T @ vxx @ e.B
        below, above = problem.lower - control, problem.upper - control
        k, gain = _boxed(quu + regularisation * identity, qu, qux, below, above)
        slope, curve = slope + k @ qu, curve + k @ quu @ k
        vx = qx + gain.T @ quu @ k + gain.T @ qu + qux.T @ k
        vxx = qxx + gain.T @ quu @ gain + gain.T @ qux + qux.T @ gain
        gradient = e.lu + e.B.T @ px
        held = ((below >= 0) & (gradient > 0)) | ((above <= 0) & (gradient < 0))
        carry = (vx, (vxx + vxx.T) / 2, e.lx + e.A.T @ px, slope, curve)
        return carry, (k, gain, jnp.where(held, 0, gradient))

    zero = jnp.zeros((), controls.dtype)
    start = (*last, last[0], zero, zero)
    (_, _, _, slope, curve), (k, gain, gradient) = jax.lax.scan(step, start, (expansion, controls), reverse=True)
    return k, gain, slope, curve, gradient


def _boxed(quu: Array, qu: Array, qux: Array, below: Array, above: Array) -> tuple[Array, Array]:
    """The change of controls within its box that minimises the quadratic, and the gains of those that are free.

    Projected Newton sweeps; NaN where quu is not positive definite. Source: [tassa2014] section III.
    """
    factor = jnp.linalg.cholesky(quu)
    definite = jnp.all(jnp.isfinite(factor))
    identity = jnp.eye(quu.shape[0], dtype=quu.dtype)

    def held(k: Array) -> Array:
        slope = qu + quu @ k
        return ((k <= below) & (slope > 0)) | ((k >= above) & (slope < 0))

    def solve(fixed: Array, right: Array) -> Array:
        free = ~fixed
        inner = jnp.where(free[:, None] & free[None, :], quu, identity)
        rows = free.reshape(-1, *[1] * (right.ndim - 1))
        return jnp.linalg.solve(inner, jnp.where(rows, right, 0))

    def sweep(_: Any, k: Array) -> Array:
        fixed = held(k)
        right = -qu - quu @ jnp.where(fixed, k, 0)
        return jnp.clip(jnp.where(fixed, k, solve(fixed, right)), below, above)

    k = jax.lax.fori_loop(0, BOX_SWEEPS, sweep, jnp.clip(jnp.zeros_like(qu), below, above))
    gain = solve(held(k), -qux)
    nan = jnp.asarray(jnp.nan, quu.dtype)
    return jnp.where(definite, k, nan), jnp.where(definite, gain, nan)
