"""Graphs inside loops, in which what depends on nothing but the number of the turn is known, as a table by turn.

A sum of whole numbers by the turns of several loops stays such a sum, and comparisons that all turns agree about are
known. Indices of arrays are computed from such numbers (`arrays.py`). Read first: `graph.py`, `pulls.py`. Next:
`loops.py`.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lgjax.execution.scalars.entries import map_objects
from lgjax.execution.scalars.graph import Graph, Ref, Scalar, is_number
from lgjax.execution.scalars.pulls import Pull, View, in_rows, viewed

_RULES: dict[str, Callable] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "abs": abs,
    "max": max, "min": min, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "and": operator.and_, "or": operator.or_,
    "not": lambda x: not x if type(x) is bool else ~x,
    "select_n": lambda which, *cases: cases[int(which)],
    "rem": lambda a, b: int(np.fmod(a, b)) if b else a,
    "div": lambda a, b: int(np.trunc(a / b)) if b else -1,
}  # fmt: skip
_COMPARED: dict[str, Callable] = {  # of the least and the largest of both sides: whether it is known to be true
    "lt": lambda a, b: a[1] < b[0], "le": lambda a, b: a[1] <= b[0], "gt": lambda a, b: a[0] > b[1],
    "ge": lambda a, b: a[0] >= b[1], "ne": lambda a, b: a[1] < b[0] or a[0] > b[1], "eq": lambda a, b: False,
}  # fmt: skip
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "ne": "eq", "eq": "ne"}


class TurnGraph(Graph):
    """A graph in which operations on tables of whole numbers by the turn of one loop are tables."""

    def entry(self, turn: Ref, numbers: Sequence) -> Scalar:
        """One of known numbers, by turn; the number, if all are one."""
        numbers = tuple(numbers)
        if len({(type(x), repr(x)) for x in numbers}) == 1:
            return numbers[0]
        return super().node("entry", numbers, turn, key=repr(numbers))

    def by_turn(self, x: Scalar) -> tuple[Ref, tuple] | None:
        """The turn and the numbers of an entry of a table."""
        if is_number(x) or self.ops[x.index][0] != "entry":
            return None
        return self.ops[x.index][2][0], self.ops[x.index][1]

    def by_turns(self, x: Scalar) -> dict[int, tuple[Ref, tuple]] | None:
        """The turns and the whole numbers of a sum of entries of tables, by the turn's node."""
        if is_number(x):
            return None
        if (own := self.by_turn(x)) is not None:
            return {own[0].index: own} if all(type(n) is int for n in own[1]) else None
        name, _, args = self.ops[x.index]
        parts = [self.by_turns(a) for a in args] if name == "add" else [None]
        if any(p is None for p in parts):
            return None
        return {turn: entry for p in parts if p for turn, entry in p.items()}

    def node(self, name: str, what: Any, *args: Scalar, key: Any = None) -> Ref:
        found = self._folded(name, args, key)
        found = self._folded_sum(name, args, key) if found is None else found
        return super().node(name, what, *args, key=key) if found is None else found

    def _folded(self, name: str, args: Sequence[Scalar], key: Any) -> Any:
        tables = [self.by_turn(a) for a in args]
        turns = {t[0].index: t[0] for t in tables if t is not None}
        rule = (lambda x: np.dtype(key).type(x).item()) if name == "convert" else _RULES.get(name)
        if rule is None or not args or len(turns) > 1:
            return None
        if any(t is None and type(a) is not int and type(a) is not bool for a, t in zip(args, tables, strict=True)):
            return None
        if not turns:  # of a table that is one number
            return rule(*args)
        (turn,) = turns.values()
        length = next(len(t[1]) for t in tables if t is not None)
        columns = [[a] * length if t is None else t[1] for a, t in zip(args, tables, strict=True)]
        if any(type(x) is float for column in columns for x in column):
            return None
        return self.entry(turn, [rule(*row) for row in zip(*columns, strict=True)])

    def _folded_sum(self, name: str, args: Sequence[Scalar], key: Any) -> Any:
        """The same for sums of numbers by the turns of several loops."""
        if name == "select_n" and type(args[0]) is bool:
            return args[1 + args[0]]
        known = [{} if type(a) is int else self.by_turns(a) for a in args]
        parts = [p for p in known if p is not None]
        if len(parts) < len(args) or len({turn for p in parts for turn in p}) < 2:
            return None
        if name == "convert":
            return args[0] if np.dtype(key).kind == "i" else None
        if name in ("add", "sub", "neg") or (name == "mul" and not all(parts)):
            factor = next((a for a in args if type(a) is int), 1) if name == "mul" else 1
            signs = [-1 if name == "neg" or (name == "sub" and k) else factor for k in range(len(args))]
            number = 0 if name == "mul" else sum(s * a for s, a in zip(signs, args, strict=True) if type(a) is int)
            return self._sum(number, list(zip(signs, parts, strict=True)))
        bounds = [
            (a, a) if type(a) is int else tuple(sum(f(n) for _, n in p.values()) for f in (min, max))
            for a, p in zip(args, parts, strict=True)
        ]
        if name in ("max", "min"):
            first = _COMPARED["ge" if name == "max" else "le"]
            return args[0] if first(*bounds) else args[1] if first(*bounds[::-1]) else None
        if name in _COMPARED:
            return True if _COMPARED[name](*bounds) else False if _COMPARED[_OPPOSITE[name]](*bounds) else None
        return None

    def _sum(self, number: int, parts: Sequence[tuple[int, dict]]) -> Scalar | None:
        """A number and sums by turns, each times a factor; None where it is no other than the sum of two entries."""
        total: dict[int, tuple[Ref, tuple]] = {}
        for factor, p in parts:
            for k, (turn, numbers) in p.items():
                old = total.get(k, (turn, (0,) * len(numbers)))[1]
                total[k] = turn, tuple(a + factor * n for a, n in zip(old, numbers, strict=True))
        entries = [self.entry(*total[k]) for k in sorted(total)]
        number += sum(x for x in entries if is_number(x))
        entries = [x for x in entries if not is_number(x)]
        if number and entries:
            turn, numbers = self.by_turn(entries[0])  # type: ignore[misc]
            entries[0] = self.entry(turn, [n + number for n in numbers])
        found: Scalar = entries[0] if entries else number
        for x in entries[1:]:
            found = super().node("add", None, found, x)
        return found


class Inner:
    """A graph inside a loop, and what it takes from outside: by its input nodes, `captured`, what is `outside`."""

    def __init__(self, run: Any):
        self.outer = run
        self.graph = TurnGraph()
        self.run = type(run)(self.graph, run.memory, run.large)
        self.inputs: dict[int, Ref] = {}

    def capture(self, x: Scalar) -> Scalar:
        if is_number(x):
            return x
        name, what, args = self.outer.graph.ops[x.index]
        if name == "entry":  # what is known by the turn of a loop outside stays so
            return self.graph.entry(self.capture(args[0]), what)
        if isinstance(self.outer.graph, TurnGraph) and self.outer.graph.by_turns(x) is not None:
            return self.graph.add(*map(self.capture, args))
        if name == "table":
            return self.graph.node("table", what, key=(str(what[0]), repr(what[1])))
        if x.index not in self.inputs:
            self.inputs[x.index] = self.graph.input()
        return self.inputs[x.index]

    def of(self, x: Any) -> Any:
        """An array from outside."""
        return self.outer.arrays.entered(x, self) if isinstance(x, Pull) else map_objects(self.capture, x)

    def carried(self, x: Pull) -> Pull:
        """An array that the loop carries."""
        return viewed(View(self.graph.input(), 0, in_rows(x.shape)), x.dtype)

    def following(self, x: Any, carry: Sequence, k: int) -> Ref:
        """Array of this loop that follows carry[k]."""
        own = carry[k]
        found = self.run.arrays.stored(x, own.dtype)
        others = [place(y).index for n, y in enumerate(carry) if n != k and isinstance(y, Pull)]
        if place(found).index in others:  # which may be written before it is read
            return self.run.arrays.filled(found.shape, found.dtype, found.at).memory
        return place(found)

    @property
    def captured(self) -> list[int]:
        return [x.index for x in self.inputs.values()]

    @property
    def outside(self) -> list[Ref]:
        return list(map(Ref, self.inputs))


def place(x: Any) -> Ref:
    """The memory of an array."""
    return x.view.memory
