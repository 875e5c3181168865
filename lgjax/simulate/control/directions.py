"""The regulator about a trajectory: expansions of all steps and Riccati's recursion, in the order that suits the batch.

For one system all steps are expanded side by side, then comes the recursion. For many, some steps of a group of systems
are expanded side by side when the recursion comes to them: their matrices then stay in the caches of a core.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from lgjax.simulate.control import parallel_riccati, riccati
from lgjax.simulate.control.expansion import expand, expansion_of_end, expansion_of_step
from lgjax.simulate.control.problem import Problem
from lgjax.simulate.control.stagewise import Prices

Array = jax.Array

FEW = 8  # systems for which steps are expanded side by side
GROUP = 32  # systems whose matrices of a step fit into the caches of a core
LANES = 512  # systems times steps for which the calls of an expansion do not count and its results fit


class Directions(NamedTuple):
    """A regulator, the gaps (steps, dim) that it closes, and A and B of all steps where they were asked for."""

    regulator: riccati.Regulator
    gap: Array
    A: Any = None
    B: Any = None


def directions(problem: Problem, how: str, gapped: bool, keep: bool, grouped: bool) -> Callable[..., Directions]:
    """The function (states, controls, prices or None, regularization) -> Directions.

    how: "sequential" or "parallel". gapped: False takes gaps, which are round-off then, for none. keep: A and B.
    grouped: see `RegulatorSearch`.
    """

    def side_by_side(states: Any, controls: Array, prices: Prices | None, regularization: Array) -> Directions:
        e, last = expand(problem, states, controls, prices)
        e = e if gapped else e._replace(gap=jnp.zeros_like(e.gap))
        found = backward(problem, e, last, controls, regularization, how)
        return Directions(found, e.gap, *(_matrices(problem, e)[:2] if keep else ()))

    if how == "parallel" or not grouped:
        return side_by_side
    run = custom_vmap(side_by_side)

    def rule(size: int, batched: Any, *args: Any) -> tuple[Any, Any]:
        if size < FEW:
            axes = jax.tree.map(lambda b: 0 if b else None, tuple(batched))
            found = jax.vmap(side_by_side, axes)(*args)
        else:
            whole = lambda x, b: x if b else jnp.broadcast_to(x, (size, *x.shape))
            found = _in_groups(problem, gapped, keep, size, *jax.tree.map(whole, args, tuple(batched)))
        return found, jax.tree.map(lambda _: True, found)

    run.def_vmap(rule)
    return run


def backward(
    problem: Problem, e: riccati.Expansion, last: Any, controls: Array, regularization: Array, how: str
) -> Any:
    """The regulator for expansions about a trajectory, within the bounds of the problem."""
    below, above = problem.lower - controls, problem.upper - controls
    if how == "parallel":
        e = _matrices(problem, e)
        return parallel_riccati.backward(e, last, below, above, regularization, problem.bounded)
    constant = problem.system.matrices
    return riccati.backward(e, last, below, above, regularization, problem.bounded, constant)


def _matrices(problem: Problem, e: riccati.Expansion) -> riccati.Expansion:
    """With A and B of every step, also where they are constant."""
    if problem.system.matrices is None:
        return e
    A, B = (jnp.broadcast_to(jnp.asarray(x, e.lx.dtype), (len(e.lx), *x.shape)) for x in problem.system.matrices)
    return e._replace(A=A, B=B)


def _in_groups(problem: Problem, gapped: bool, keep: bool, size: int, *args: Any) -> Directions:
    """Arrays (size, ...), one group after the other; the last one is filled up."""
    run = lambda args: _some_steps_at_a_time(problem, gapped, keep, *args)
    count = -(-size // GROUP)
    width = -(-size // count)
    fill = lambda x: jnp.concatenate([x, jnp.broadcast_to(x[-1:], (count * width - size, *x.shape[1:]))])
    grouped = jax.tree.map(lambda x: fill(x).reshape(count, width, *x.shape[1:]), args)
    found = jax.lax.map(run, grouped)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:size], found)


def _span(steps: int, most: int) -> int:
    """Steps of a part: at most so many, and no fewer than half of that if they divide all evenly."""
    even = [n for n in range(1, most + 1) if steps % n == 0]
    return even[-1] if 2 * even[-1] >= min(most, steps) else -(-steps // -(-steps // most))


def _some_steps_at_a_time(
    problem: Problem, gapped: bool, keep: bool, states, controls, prices, regularization
) -> Directions:
    """Arrays (size, ...) of systems that are taken together; inside, they are the last axis.

    Expansions are of several steps side by side, the recursion takes one after the other. The first part is filled up
    with steps that it leaves out.
    """
    behind = lambda tree: jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), tree)
    states, controls, prices = behind((states, controls, prices))
    size = controls.shape[-1]
    span = _span(problem.steps, max(1, LANES // size))
    count = -(-problem.steps // span)
    one, by_step = expansion_of_step(problem, prices)
    end = jax.vmap(lambda prices, last: expansion_of_end(problem, prices, last), -1, -1)
    value = riccati.first_value(end(prices, jax.tree.map(lambda x: x[-1], states)))
    lower, upper = problem.lower[:, None], problem.upper[:, None]

    def part(value: Any, inputs: Any) -> tuple[Any, Any]:
        number, given = inputs
        side_by_side = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], span * size), given)
        found = jax.vmap(one, -1, -1)(*side_by_side)
        apart = jax.tree.map(lambda x: x.reshape(*x.shape[:-1], span, size), found)

        def step(value: Any, k: Array) -> tuple[Any, Any]:
            e = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, k, x.ndim - 2, False), apart)
            e = e if gapped else e._replace(gap=jnp.zeros_like(e.gap))
            control = given[3][k]
            new, regulator = riccati.one_step(
                value, e, lower - control, upper - control, regularization, problem.bounded, problem.system.matrices
            )  # fmt: skip
            if count * span > problem.steps:
                real = number * span + k >= count * span - problem.steps
                new = jax.tree.map(lambda a, b: jnp.where(real, a, b), new, value)
            return new, (*regulator, e.gap, *((e.A, e.B) if keep and e.A is not None else ()))

        return jax.lax.scan(step, value, jnp.arange(span, dtype=jnp.int32), reverse=True)

    before, after = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)
    times = jnp.broadcast_to(problem.times()[:, None], (problem.steps, size))
    whole = lambda x: jnp.concatenate([jnp.repeat(x[:1], count * span - len(x), 0), x])
    inputs = jax.tree.map(
        lambda x: whole(x).reshape(count, span, *x.shape[1:]), (times, before, after, controls, *by_step)
    )
    value, outs = jax.lax.scan(part, value, (jnp.arange(count, dtype=jnp.int32), inputs), reverse=True)
    outs = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[-problem.steps :], outs)
    push, feedback, gradient, gap, *kept = outs
    front = lambda tree: jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), tree)
    found = riccati.Regulator(push, feedback, value.slope, value.curve, value.closing, gradient)
    result = Directions(*front((found, gap, *kept)))
    if keep and problem.system.matrices is not None:
        A, B = (jnp.broadcast_to(x, (size, problem.steps, *x.shape)) for x in problem.system.matrices)
        result = result._replace(A=A, B=B)
    return result
