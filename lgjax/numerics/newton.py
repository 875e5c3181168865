"""Newton's method in a bounded loop, with a status; `implicit.py` gives its roots their derivatives.

Source: [holzinger2024] sections 3.3 and 3.4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.numerics import checks
from lgjax.numerics.loops import iterate_while

Array = jax.Array

MODES = ("full", "modified")
COUNTS = ("matrix", "call")


class Evaluation(NamedTuple):
    """A residual (n,), its size in units of the tolerance, and whatever the iteration matrix needs of the point."""

    residual: Array
    error: Array
    point: Any


class Root(NamedTuple):
    """Result of `newton`: the point x, int32 iterations (linear solves), whether the error is 1 or less, factor.

    finite: whether the error was a number to the end.
    """

    x: Array
    iterations: Array
    converged: Array
    finite: Array
    factor: Any


class _State(NamedTuple):
    x: Array
    now: Evaluation
    before: Array
    factor: Any
    age: Array
    iterations: Array


@dataclass(frozen=True)
class NewtonRule:
    """Limits of an iteration and the rule for recomputing its matrix; a hashable value.

    mode: "full" computes it in every iteration; "modified" keeps the last one, from one call to the next, until it has
    served `max_age` iterations within a call or one of them left more than `contractivity` of the error.
    patience: the iteration of a call from which on contractivity is judged.
    count: what `max_age` counts, iterations with one "matrix" or those of a "call"; with the latter all further ones
    compute the matrix.
    `EXUDYN_RULE` is the rule of the code that the source's authors published, but for its restarts.
    Source: [holzinger2024] section 3.4.
    """

    mode: str = "full"
    max_iterations: int = 30
    max_age: int = 8
    contractivity: float = 0.5
    patience: int = 1
    count: str = "matrix"

    def __post_init__(self) -> None:
        # Stored as Python numbers, so that equal settings are equal rules.
        store = partial(object.__setattr__, self)
        checks.choice("newton", self.mode, MODES)
        checks.choice("count", self.count, COUNTS)
        for name in ("max_iterations", "max_age", "patience"):
            store(name, checks.integer(name, getattr(self, name)))
        store("contractivity", checks.number("contractivity", self.contractivity, 0.0, 1.0, inside=True))


EXUDYN_RULE = NewtonRule("modified", patience=3, count="call")


def only_if(wanted: Array, make: Callable[[], Any], otherwise: Any) -> Any:
    """make() where wanted, else `otherwise`; under vmap nothing is computed unless one of the lanes wants it.

    A `lax.cond` becomes a select under vmap and computes both sides always; a loop of at most one turn does not.
    """
    once = lambda state: (jnp.zeros_like(state[0]), make())
    return iterate_while(lambda state: state[0], once, (wanted, otherwise))[1]


def newton(
    evaluate: Callable[[Array], Evaluation],
    factorize: Callable[[Array, Any], Any],
    solve: Callable[[Any, Array], Array],
    guess: Array,
    factor: Any,
    rule: NewtonRule,
) -> Root:
    """The zero of evaluate(x).residual near `guess` (n,).

    factorize(x, point) returns the factored iteration matrix and solve(factor, residual) the correction to subtract.
    `factor` is what a modified iteration starts with, of the same structure; a full one leaves it as it is, also None.
    The loop ends when the error is at most 1, is not finite, or after rule.max_iterations: it always ends, and
    `converged` says how.
    Not differentiable itself: see `implicit.py`.
    """
    zero = jnp.zeros((), jnp.int32)

    def unfinished(s: _State) -> Array:
        return (s.now.error > 1.0) & jnp.isfinite(s.now.error) & (s.iterations < rule.max_iterations)

    def iterate(s: _State) -> _State:
        make = lambda: factorize(s.x, s.now.point)
        if rule.mode == "full":
            fresh, kept, age = make(), s.factor, zero
        else:
            # Error of the last iteration against the one before: infinite at first, when nothing is known.
            slow = (s.now.error > rule.contractivity * s.before) & (s.iterations >= rule.patience)
            stale = slow | (s.age >= rule.max_age if rule.count == "matrix" else s.iterations > rule.max_age)
            fresh, age = only_if(stale, make, s.factor), jnp.where(stale, zero, s.age) + 1
            kept = fresh
        x = s.x - solve(fresh, s.now.residual)
        return _State(x, evaluate(x), s.now.error, kept, age, s.iterations + 1)

    first = evaluate(guess)
    start = _State(guess, first, jnp.full_like(first.error, jnp.inf), factor, zero, zero)
    end = iterate_while(unfinished, iterate, start)
    return Root(end.x, end.iterations, end.now.error <= 1.0, jnp.isfinite(end.now.error), end.factor)
