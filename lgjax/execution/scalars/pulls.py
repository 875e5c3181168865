"""Arrays in a program of scalars that stay arrays: functions of an index, and views of what is in memory.

An index is a number, or the number of a turn: (node, numbers by turn).

Read first: `graph.py`, `regions.py`. Next: `storage.py`, `arrays.py`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lgjax.execution.scalars.graph import Ref, Scalar

Index = Any  # int | tuple[Ref, Sequence[int]]


@dataclass(frozen=True, eq=False)
class View:
    """Entries of an array in memory: number first + sum of axes[k][index k] + sum of numbers by turn (`terms`)."""

    memory: Ref
    first: int
    axes: tuple[tuple[int, ...], ...]
    terms: tuple[tuple[Ref, tuple[int, ...]], ...] = ()

    def at(self, body: Any, index: Sequence[Index]) -> Scalar:
        first, steps, turns = self.place(body, index)
        return body.graph.node("load", (first, steps), body.capture(self.memory), *turns, key=(first, steps))

    def place(self, body: Any, index: Sequence[Index]) -> tuple[int, tuple, tuple[Ref, ...]]:
        """first, steps and turns as of a node "load"."""
        first, terms = self.first, [(body.capture(turn), numbers) for turn, numbers in self.terms]
        for axis, k in zip(self.axes, index, strict=True):
            if isinstance(k, tuple):
                terms.append((k[0], tuple(axis[n] for n in k[1])))
            else:
                first += axis[k]
        body.graph.lengths.update((turn.index, len(numbers)) for turn, numbers in terms)
        return place(first, terms)


def place(first: int, terms: Sequence[tuple[Ref, Sequence[int]]]) -> tuple[int, tuple, tuple[Ref, ...]]:
    """first, steps and turns as of a node "load"."""
    sums: dict[int, tuple[Ref, Sequence[int]]] = {}
    for turn, numbers in terms:
        _, old = sums.get(turn.index, (turn, [0] * len(numbers)))
        sums[turn.index] = turn, [a + b for a, b in zip(old, numbers, strict=True)]
    steps, turns = [], []
    for turn, numbers in sums.values():
        step = numbers[1] - numbers[0] if len(numbers) > 1 else 0
        if all(n == numbers[0] + k * step for k, n in enumerate(numbers)):
            first += numbers[0]
            if not step:
                continue
            steps.append(step)
        else:
            steps.append(tuple(numbers))
        turns.append(turn)
    return first, tuple(steps), tuple(turns)


@dataclass(eq=False)
class Pull:
    """An array (shape) of a dtype. entry(body, index) is an entry, in the graph of `body`.

    view: where it is in memory, once it is.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    entry: Callable[[Any, Sequence[Index]], Scalar]
    view: View | None = None

    def at(self, body: Any, index: Sequence[Index]) -> Scalar:
        return (self.entry if self.view is None else self.view.at)(body, index)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)


def viewed(view: View, dtype: np.dtype) -> Pull:
    return Pull(tuple(map(len, view.axes)), dtype, view.at, view)


def separable(offsets: np.ndarray) -> list[tuple[int, ...]] | None:
    """Axes of a view of these offsets, without their first; None if it has no axes."""
    first, axes, total = offsets[(0,) * offsets.ndim], [], np.zeros((), int)
    for k in range(offsets.ndim):
        column = np.moveaxis(offsets, k, 0)[(slice(None), *[0] * (offsets.ndim - 1))] - first
        axes.append(tuple(column.tolist()))
        total = total + column.reshape([-1 if n == k else 1 for n in range(offsets.ndim)])
    return axes if np.array_equal(total + first, offsets) else None


def loaded(graph: Any, x: np.ndarray) -> View | None:
    """The view of an array in memory whose entries these scalars are; None if they are not from one array."""
    ops = [graph.ops[a.index] for a in x.flat if isinstance(a, Ref)]
    if len(ops) < x.size or any(name != "load" for name, _, _ in ops):
        return None
    (_, steps), (memory, *turns) = ops[0][1:]
    sources = {(what[1], tuple(a.index for a in args)) for _, what, args in ops}
    axes = separable(np.array([what[0] for _, what, _ in ops], int).reshape(x.shape))
    if len(sources) > 1 or axes is None:
        return None
    by_turn = [
        step if isinstance(step, tuple) else tuple(step * k for k in range(graph.lengths[turn.index]))
        for step, turn in zip(steps, turns, strict=True)
    ]
    return View(memory, ops[0][1][0], tuple(axes), tuple(zip(turns, by_turn, strict=True)))


def in_rows(shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Axes of an array whose entries lie in the order of their indices."""
    steps = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    return tuple(tuple(range(0, n * step, step)) if step else (0,) * n for n, step in zip(shape, steps, strict=True))


class Here:
    """Where nothing has to be captured: the graph that is being built. As a loop's body is, elsewhere."""

    def __init__(self, run: Any):
        self.run, self.graph = run, run.graph

    @staticmethod
    def capture(x: Scalar) -> Scalar:
        return x


def even(numbers: Sequence[int]) -> bool:
    """Whether neighbors are equally far apart."""
    return len(numbers) < 3 or all(n - numbers[0] == k * (numbers[1] - numbers[0]) for k, n in enumerate(numbers))
