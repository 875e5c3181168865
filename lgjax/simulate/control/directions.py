"""The regulator about a trajectory: expansions of all steps and Riccati's recursion, in the order that suits the batch.

For one system all steps are expanded side by side, then comes the recursion. For many, each step is expanded when the
recursion comes to it, for a group of systems side by side: their matrices then stay in the caches of a core.
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
        return Directions(found, e.gap, *((e.A, e.B) if keep else ()))

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
    module = parallel_riccati if how == "parallel" else riccati
    below, above = problem.lower - controls, problem.upper - controls
    return module.backward(e, last, below, above, regularization, problem.bounded)


def _in_groups(problem: Problem, gapped: bool, keep: bool, size: int, *args: Any) -> Directions:
    """Arrays (size, ...), one group after the other; the last one is filled up."""
    run = lambda args: _step_by_step(problem, gapped, keep, *args)
    count = -(-size // GROUP)
    width = -(-size // count)
    fill = lambda x: jnp.concatenate([x, jnp.broadcast_to(x[-1:], (count * width - size, *x.shape[1:]))])
    grouped = jax.tree.map(lambda x: fill(x).reshape(count, width, *x.shape[1:]), args)
    found = jax.lax.map(run, grouped)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:size], found)


def _step_by_step(problem: Problem, gapped: bool, keep: bool, states, controls, prices, regularization) -> Directions:
    """Arrays (size, ...) of systems that are taken together; inside, they are the last axis."""
    behind = lambda tree: jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), tree)
    states, controls, prices = behind((states, controls, prices))
    one, by_step = expansion_of_step(problem, prices)
    end = jax.vmap(lambda prices, last: expansion_of_end(problem, prices, last), -1, -1)
    value = riccati.first_value(end(prices, jax.tree.map(lambda x: x[-1], states)))
    lower, upper = problem.lower[:, None], problem.upper[:, None]

    def step(value: Any, inputs: Any) -> tuple[Any, Any]:
        t, before, after, control, by = inputs
        e = jax.vmap(one, (None, -1, -1, -1, *[-1] * len(by)), -1)(t, before, after, control, *by)
        e = e if gapped else e._replace(gap=jnp.zeros_like(e.gap))
        value, found = riccati.one_step(
            value, e, lower - control, upper - control, regularization, problem.bounded
        )  # fmt: skip
        return value, (*found, e.gap, *((e.A, e.B) if keep else ()))

    before, after = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)
    inputs = (problem.times(), before, after, controls, by_step)
    value, (push, feedback, gradient, gap, *kept) = jax.lax.scan(step, value, inputs, reverse=True)
    front = lambda tree: jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), tree)
    found = riccati.Regulator(push, feedback, value.slope, value.curve, value.closing, gradient)
    return Directions(*front((found, gap, *kept)))
