"""Loops with the axis of a batch behind all others: `scan` and `while` of a program that `evaluation.py` evaluates.

`jax.vmap` would put that axis first in what a loop carries and second in what it goes through, and transpose each large
array of a loop within a loop at every turn.  Here a value is a pair, an array and whether it has the axis, and a mark
says whether a carried value has it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.execution._jax import scan_arguments, while_parts

Values = Sequence[tuple[Any, bool]]
Run = Callable[[Any, Values], Values]  # the results of a closed jaxpr, from its arguments
Wide = Callable[[Any, bool], jax.Array]  # a value with the axis


def scanned(eqn: Any, inputs: Values, run: Run, wide: Wide) -> Values:
    """The results of a scan."""
    first, carried = scan_arguments(eqn)
    constants, start, rows = inputs[:first], inputs[first : first + carried], inputs[first + carried :]
    of_rows = [batched for _, batched in rows]
    stacks = _as_marked(rows, of_rows, wide)

    def results(marks: Sequence[bool], carry: Sequence, row: Sequence) -> Values:
        return run(eqn.params["jaxpr"], [*constants, *_pairs(carry, marks), *_pairs(row, of_rows)])

    def marked(marks: list[bool]) -> list[bool]:
        row = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in stacks]
        return _marks(lambda *args: results(marks, *args), _as_marked(start, marks, wide), row)

    marks, found = _settled(start, marked)
    of_outs = found[carried:]

    def step(carry: Sequence, row: Sequence) -> tuple[list, list]:
        outs = results(marks, carry, row)
        return _as_marked(outs[:carried], marks, wide), _as_marked(outs[carried:], of_outs, wide)

    begin = _as_marked(start, marks, wide)
    end, outs = jax.lax.scan(step, begin, stacks, eqn.params["length"], eqn.params["reverse"])
    return [*_pairs(end, marks), *_pairs(outs, of_outs)]


def repeated(eqn: Any, inputs: Values, run: Run, wide: Wide) -> Values:
    """The results of a while loop. Systems that have ended keep what they carry while others go on."""
    (first, of_condition), (more, of_body) = while_parts(eqn)
    asked, turned, start = inputs[:first], inputs[first : first + more], inputs[first + more :]
    condition = lambda marks, carry: run(of_condition, [*asked, *_pairs(carry, marks)])
    results = lambda marks, carry: run(of_body, [*turned, *_pairs(carry, marks)])

    def marked(marks: list[bool]) -> list[bool]:
        begin = _as_marked(start, marks, wide)
        (each,) = _marks(lambda carry: condition(marks, carry), begin)
        return [True] * len(marks) if each else _marks(lambda carry: results(marks, carry), begin)

    marks, _ = _settled(start, marked)

    def turn(carry: Sequence) -> list:
        ((going, each),) = condition(marks, carry)
        new = _as_marked(results(marks, carry), marks, wide)
        return [jnp.where(going, x, old) for x, old in zip(new, carry, strict=True)] if each else new

    more = lambda carry: jnp.any(condition(marks, carry)[0][0])
    return _pairs(jax.lax.while_loop(more, turn, _as_marked(start, marks, wide)), marks)


def _pairs(arrays: Sequence, marks: Sequence[bool]) -> list[tuple[Any, bool]]:
    return list(zip(arrays, marks, strict=True))


def _as_marked(values: Values, marks: Sequence[bool], wide: Wide) -> list[jax.Array]:
    """The arrays, with the axis where the mark says so."""
    return [jnp.asarray(wide(x, batched or not mark)) for (x, batched), mark in zip(values, marks, strict=True)]


def _marks(results: Callable[..., Values], *args: Any) -> list[bool]:
    """Which results have the axis."""
    kept: list[bool] = []

    def trace(*args: Any) -> None:
        kept.extend(batched for _, batched in results(*args))

    jax.eval_shape(trace, *args)
    return kept


def _settled(start: Values, marked: Callable[[list[bool]], list[bool]]) -> tuple[list[bool], list[bool]]:
    """Which carried values have the axis, at the start or after turns, and which results of a turn have it then.

    marked: which results have it, from those before.
    """
    marks = [batched for _, batched in start]
    while True:
        found = marked(marks)
        new = [a or b for a, b in zip(marks, found, strict=False)]
        if new == marks:
            return marks, found
        marks = new
