"""The regulator about a trajectory: expansions of all steps and Riccati's recursion, in the order that suits the batch.

For one system all steps are expanded side by side, then comes the recursion. For many, some steps of a group of systems
are expanded side by side when the recursion comes to them: their matrices then stay in the caches of a core.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from lgjax.simulate.control.couplings import independent_parts
from lgjax.simulate.control.expansion import expand, expansion_of_end, expansion_of_step
from lgjax.simulate.control.linear_quadratic import riccati
from lgjax.simulate.control.problem import Problem
from lgjax.simulate.control.stagewise import Prices

Array = jax.Array

FEW = 8  # systems for which steps are expanded side by side
GROUP = 16  # systems whose matrices of a step fit into the caches of a core
LANES = 512  # systems times steps for which the calls of an expansion do not count
NUMBERS = 2**18  # in the Hessians of steps that are expanded side by side, as many as fit into the caches


class Directions(NamedTuple):
    """A regulator, the gaps (steps, dim) that it closes, and `motion`: A and B of all steps, as in `riccati.Expansion`.

    Where no linear motion is asked for, `motion` may be None.
    """

    regulator: riccati.Regulator
    gap: Array
    motion: Any


def directions(
    problem: Problem, gapped: bool, states: Any, controls: Array, prices: Prices | None, regularization: Array
) -> Directions:
    """Of one system, all steps side by side. gapped: False takes gaps, which are round-off then, for none."""
    e, last = expand(problem, states, controls, prices)
    e = e if gapped else e._replace(gap=jnp.zeros_like(e.gap))
    return Directions(backward(problem, e, last, controls, regularization), e.gap, (e.A, e.B))


def in_groups(
    one: Callable[[Any], Any], together: Callable[[Any], Any], going: Callable[[Any], Array]
) -> Callable[[Any], Any]:
    """`one`, a function of the pytree of one system, which takes large batches under `jax.vmap` in groups.

    together: the same function of a group, with the systems behind all other axes. going: whether a system goes on; a
    group of which none does stays as it is. None of them may close over traced arrays.
    """

    def group(tree: Any) -> Any:
        behind, front = (lambda x: jnp.moveaxis(x, 0, -1)), (lambda x: jnp.moveaxis(x, -1, 0))
        run = lambda tree: jax.tree.map(front, together(jax.tree.map(behind, tree)))
        return jax.lax.cond(jnp.any(jax.vmap(going)(tree)), run, lambda tree: tree, tree)

    run = custom_vmap(one)

    def rule(size: int, batched: Any, tree: Any) -> tuple[Any, Any]:
        whole = jax.tree.map(lambda x, b: x if b else jnp.broadcast_to(x, (size, *x.shape)), tree, batched[0])
        found = jax.vmap(one)(whole) if size < FEW else _one_group_after_the_other(group, size, whole)
        return found, jax.tree.map(lambda _: True, found)

    run.def_vmap(rule)
    return run


def backward(problem: Problem, e: riccati.Expansion, last: Any, controls: Array, regularization: Array) -> Any:
    """The regulator for expansions about a trajectory, within the bounds of the problem."""
    below, above = problem.lower - controls, problem.upper - controls
    parts = independent_parts(problem)
    return riccati.backward(e, last, below, above, regularization, problem.bounded, parts)


def _one_group_after_the_other(run: Callable[[Any], Any], size: int, tree: Any) -> Any:
    """Of arrays (size, ...); the last group is filled up."""
    count = -(-size // GROUP)
    width = -(-size // count)
    fill = lambda x: jnp.concatenate([x, jnp.broadcast_to(x[-1:], (count * width - size, *x.shape[1:]))])
    found = jax.lax.map(run, jax.tree.map(lambda x: fill(x).reshape(count, width, *x.shape[1:]), tree))
    return jax.tree.map(lambda x: x.reshape(count * width, *x.shape[2:])[:size], found)


def _span(steps: int, most: int) -> int:
    """Steps of a part: at most so many, and no fewer than half of that if they divide all evenly."""
    even = [n for n in range(1, most + 1) if steps % n == 0]
    return even[-1] if 2 * even[-1] >= min(most, steps) else -(-steps // -(-steps // most))


def directions_together(
    problem: Problem,
    gapped: bool,
    states: Any,
    controls: Array,
    prices: Prices | None,
    regularization: Array,
    linear: bool = False,
) -> Directions:
    """Of a group of systems, which are the last axis of all arrays. linear: whether `motion` is asked for.

    Expansions are of several steps side by side, the recursion takes one after the other. The first part is filled up
    with steps that it leaves out. Each step writes its results to their places among those of all steps: as results of
    a scan they would be written once more for each part.
    """
    size = controls.shape[-1]
    lanes = min(LANES, NUMBERS // (problem.dim + problem.system.controls) ** 2)
    span = _span(problem.steps, max(1, lanes // size))
    count = -(-problem.steps // span)
    filling = count * span - problem.steps
    one, by_step = expansion_of_step(problem, prices)
    expanded = jax.vmap(one, -1, -1)
    solved = partial(_one_step, problem, gapped, linear, regularization)
    end = jax.vmap(lambda prices, last: expansion_of_end(problem, prices, last), -1, -1)
    last = end(prices, jax.tree.map(lambda x: x[-1], states))

    def some_steps(carry: Any, inputs: Any) -> tuple[Any, None]:
        number, given = inputs
        side_by_side = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], span * size), given)
        apart = jax.tree.map(lambda x: x.reshape(*x.shape[:-1], span, size), expanded(*side_by_side))

        def step(carry: Any, k: Array) -> tuple[Any, None]:
            values, kept = carry
            e = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, k, x.ndim - 2, False), apart)
            new, found = solved(values, e, given[3][k])
            place = number * span + k
            if filling:
                new = jax.tree.map(lambda a, b: jnp.where(place >= filling, a, b), new, values)
            return (new, jax.tree.map(lambda x, y: x.at[place].set(y), kept, found)), None

        return jax.lax.scan(step, carry, jnp.arange(span, dtype=jnp.int32), reverse=True)

    before, after = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)
    times = jnp.broadcast_to(problem.times()[:, None], (problem.steps, size))
    whole = lambda x: jnp.concatenate([jnp.repeat(x[:1], filling, 0), x])
    inputs = jax.tree.map(
        lambda x: whole(x).reshape(count, span, *x.shape[1:]), (times, before, after, controls, *by_step)
    )
    values = riccati.first_values(last, independent_parts(problem))
    of_first = lambda values, *given: solved(values, expanded(*given), given[3])[1]
    shapes = jax.eval_shape(of_first, values, *jax.tree.map(lambda x: x[0, 0], inputs))
    kept = jax.tree.map(lambda x: jnp.zeros((count * span, *x.shape), x.dtype), shapes)
    numbers = jnp.arange(count, dtype=jnp.int32)
    (values, kept), _ = jax.lax.scan(some_steps, (values, kept), (numbers, inputs), reverse=True)
    found, gap, motion = jax.tree.map(lambda x: x[filling:], kept)
    return Directions(riccati.regulator(values, found), gap, motion)


def _one_step(
    problem: Problem, gapped: bool, linear: bool, regularization: Array, values: Any, e: riccati.Expansion, control: Any
) -> tuple[Any, Any]:
    """The values before a step, and what the step gives to `Directions`; systems last."""
    e = e if gapped else e._replace(gap=jnp.zeros_like(e.gap))
    below, above = problem.lower[:, None] - control, problem.upper[:, None] - control
    parts = independent_parts(problem)
    new, regulator = riccati.one_step(values, e, below, above, regularization, problem.bounded, parts)
    return new, (regulator, e.gap, (e.A, e.B) if linear else None)
