"""The regulator about a trajectory: all steps are expanded side by side, then comes Riccati's recursion."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.simulate.control.cost import Cost
from lgjax.simulate.control.expansion import expand
from lgjax.simulate.control.linear_quadratic import riccati
from lgjax.simulate.control.linear_quadratic.parts import Part, connected
from lgjax.simulate.control.problem import Problem
from lgjax.simulate.control.stagewise import Prices

Array = jax.Array


class Directions(NamedTuple):
    """A regulator, the gaps (steps, dim) that it closes, and `motion`: A and B as in `riccati.Expansion`."""

    regulator: riccati.Regulator
    gap: Array
    motion: Any


def directions(
    problem: Problem, gapped: bool, states: Any, controls: Array, prices: Prices | None, regularization: Array
) -> Directions:
    """gapped: False ignores gaps, which are then only round-off."""
    e, last = expand(problem, states, controls, prices)
    e = e if gapped else e._replace(gap=jnp.zeros_like(e.gap))
    return Directions(backward(problem, e, last, controls, regularization), e.gap, (e.A, e.B))


def backward(problem: Problem, e: riccati.Expansion, last: Any, controls: Array, regularization: Array) -> Any:
    """The regulator for expansions about a trajectory, within the bounds of the problem."""
    below, above = problem.lower - controls, problem.upper - controls
    parts = independent_parts(problem)
    return riccati.backward(e, last, below, above, regularization, problem.bounded, parts)


def independent_parts(problem: Problem) -> tuple[Part, ...]:
    """Parts whose motions neither steps nor costs couple; () where there is one, or where it is not known.

    A search from accelerations, with costs of this library, falls into the trees that stand on the ground, unless a
    cost couples these. Directions of search are then those of each part, found with matrices of its own size.
    """
    system, costs = problem.system, [x for x in (problem.running, problem.terminal) if x is not None]
    if not system.joints or system.slopes is None or problem.equality is not None or problem.inequality is not None:
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
