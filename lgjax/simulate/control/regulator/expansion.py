"""Second-order models of a problem along a trajectory, in tangents of its states."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.execution import batched
from lgjax.numerics import small_matrix as sm
from lgjax.simulate.control.augmented_lagrangian import Multipliers, multiplier_estimates
from lgjax.simulate.control.cost import Cost, QuadraticModel
from lgjax.simulate.control.costs import value_and_jacobian
from lgjax.simulate.control.linear_quadratic.parts import Part, connected
from lgjax.simulate.control.linear_quadratic.riccati import Expansion
from lgjax.simulate.control.linear_quadratic.sparse import Sparse, dense, of_other
from lgjax.simulate.control.problem import ControlSystem, Problem

Array = jax.Array


def expand(
    problem: Problem, states: Any, controls: Array, multipliers: Multipliers | None = None
) -> tuple[Expansion, Any]:
    """Expansions of all steps, side by side, each a kernel, and gradient and Hessian of what the last state costs.

    Hessians are exact, but of a `Cost` and of constraints those of Gauss and Newton; dynamics are linear.
    multipliers: of the constraints of the problem, if it has any.
    """
    before, after = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)
    last = jax.tree.map(lambda x: x[-1], states)
    by_step: tuple = ()
    if multipliers is not None:
        by_step = multipliers.equal, multipliers.unequal, jnp.broadcast_to(multipliers.penalty, problem.steps)
    steps = jax.vmap(batched(partial(_one, problem)))(problem.moments(), before, after, controls, *by_step)
    return steps, batched(partial(_end, problem))(multipliers, last)


def _one(problem: Problem, moment: Any, state: Any, after: Any, control: Array, *by: Array) -> Expansion:
    system, nx = problem.system, problem.dim
    zero = jnp.zeros(nx + problem.system.controls, control.dtype)
    move = lambda z: (system.retract(state, z[:nx]), control + z[nx:])
    if system.jacobians is None:
        gap, jacobian = value_and_jacobian(lambda z: system.difference(after, system.step(*move(z))), zero)
        A, B = jacobian[:, :nx], jacobian[:, nx:]
    else:
        A, B, gap = _about(system, after, *system.jacobians(state, control))
    model, factors = _stage(problem, moment, state, control, zero)
    if by:
        values = lambda z: _values(problem, "stage", problem.running_at(moment)[0], *move(z))
        first, second = _augmented(values, zero, *by)
        model = model + QuadraticModel(first[:nx], first[nx:], second[:nx, :nx], second[nx:, :nx], second[nx:, nx:])
    lx, lu = (jnp.zeros(n, control.dtype) if x is None else x for x, n in ((model.x, nx), (model.u, len(zero) - nx)))
    return Expansion(A, B, lx, lu, model.xx, model.ux, model.uu, gap, factors)


def _about(system: ControlSystem, after: Any, end: Any, A: Any, B: Any) -> tuple[Any, Any, Array]:
    """Derivatives in the tangent space of the next state, from those in that of the end of the step, and the gap."""
    gap = system.difference(after, end)
    if system.flat:
        return A, B, gap
    if system.relative is not None:
        turn = partial(system.relative, gap)
        if isinstance(A, Sparse):
            return A.with_rows(turn), B.with_rows(turn) if isinstance(B, Sparse) else B, gap
        both = turn(jnp.concatenate([A, B], 1))
        return both[:, : len(gap)], both[:, len(gap) :], gap
    A, B = dense(A), of_other(dense(A), B)
    by = jax.jacfwd(lambda x: system.difference(after, system.retract(end, x)))(jnp.zeros_like(gap))
    return jnp.matmul(by, A, precision="highest"), jnp.matmul(by, B, precision="highest"), gap


def _stage(problem: Problem, moment: Any, state: Any, control: Array, zero: Array) -> tuple[QuadraticModel, tuple]:
    """The quadratic model of the cost of one step, and `Expansion.factors`."""
    system, nx = problem.system, problem.dim
    t, running = problem.running_at(moment)
    if running is None:
        return QuadraticModel(), ()
    if isinstance(running, Cost) and not system.free_time:
        return running.factored(system, t, state, control, float(system.dt), True)
    cost = lambda z: problem.stage(moment, system.retract(state, z[:nx]), control + z[nx:])
    first, second = _gradient_and_hessian(cost, zero)
    return QuadraticModel(first[:nx], first[nx:], second[:nx, :nx], second[nx:, :nx], second[nx:, nx:]), ()


def _end(problem: Problem, multipliers: Multipliers | None, last: Any) -> tuple[Array, Array]:
    """Gradient and Hessian of what the last state costs."""
    system = problem.system
    zero = jnp.zeros(problem.dim, problem.dtype)
    terminal = problem.terminal_cost()
    if terminal is None:
        first, second = zero, sm.diagonal(zero)
    elif isinstance(terminal, Cost):
        model = terminal.expand(system, None, last, None)
        assert model.x is not None
        assert model.xx is not None
        first, second = model.x, dense(model.xx)
    else:
        cost = lambda x: problem.end(system.retract(last, x))
        first, second = _gradient_and_hessian(cost, zero)
    if multipliers is not None:
        values = lambda x: _values(problem, "end", system.retract(last, x))
        more = _augmented(values, zero, multipliers.equal_end, multipliers.unequal_end, multipliers.penalty)
        first, second = first + more[0], second + more[1]
    return first, second


def _values(problem: Problem, where: str, *args: Any) -> tuple[Array, Array]:
    """Equalities and inequalities of one step or of the end."""
    none = jnp.zeros(0, problem.dtype)
    of = lambda constraint: none if constraint is None else getattr(constraint, where)(*args)
    return of(problem.equality), of(problem.inequality)


def _gradient_and_hessian(cost: Callable, zero: Array) -> tuple[Array, Array]:
    return value_and_jacobian(jax.grad(cost), zero)


def _augmented(
    values: Callable, zero: Array, equal_by: Array, unequal_by: Array, penalty: Array
) -> tuple[Array, Array]:
    """Gradient and Hessian, of Gauss and Newton, of what the augmented Lagrangian adds."""
    both, jacobian = value_and_jacobian(lambda z: jnp.concatenate(values(z)), zero)
    if not len(both):
        return jnp.zeros_like(zero), jnp.zeros((len(zero), len(zero)), zero.dtype)
    split = len(equal_by)
    equal, unequal = multiplier_estimates(both[:split], both[split:], equal_by, unequal_by, penalty)
    active = jnp.concatenate([jnp.ones_like(equal), (unequal > 0).astype(unequal.dtype)])
    first = sm.tmatvec(jacobian, jnp.concatenate([equal, unequal]))
    return first, sm.tmatmul(jacobian, (penalty * active)[:, None] * jacobian)


def independent_parts(problem: Problem) -> tuple[Part, ...]:
    """Parts whose motions neither steps nor costs couple; () where there is one, or where it is not known.

    A search from accelerations, with costs of this library, falls into the trees that stand on the ground, unless a
    cost couples these. Directions of search are then those of each part, found with matrices of its own size.
    """
    system, costs = problem.system, [x for x in (problem.running, problem.terminal) if x is not None]
    if not system.joints or system.jacobians is None or problem.equality is not None or problem.inequality is not None:
        return ()
    groups = list(system.joints)
    for cost in costs:
        coupled = cost.couples() if isinstance(cost, Cost) else None
        if coupled is None:
            return ()
        groups += coupled
    n = problem.dim // 2
    sets = connected(n, groups)
    return tuple(Part((*x, *(n + k for k in x)), tuple(x)) for x in sets) if len(sets) > 1 else ()
