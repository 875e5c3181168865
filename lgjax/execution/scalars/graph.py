"""Expressions on scalars: folded and shared while they are built."""

from typing import Any

import numpy as np

Scalar = Any  # a Ref, or a Python number known at trace time
Operations = list  # of (name, parameters, arguments), as a Graph has them


class Ref:
    """A node of a graph."""

    __slots__ = ("index",)

    def __init__(self, index: int):
        self.index = index


def is_number(x: Scalar) -> bool:
    return not isinstance(x, Ref)


class Graph:
    """A growing list of scalar operations; equal operations are one node, and known numbers fold."""

    def __init__(self) -> None:
        self.ops: list[tuple[str, Any, tuple[Scalar, ...]]] = []  # name, parameters, arguments
        self._known: dict[Any, Ref] = {}
        self.lengths: dict[int, int] = {}  # lengths of loops, by the nodes of the turns that load something

    def input(self) -> Ref:
        self.ops.append(("input", None, ()))
        return Ref(len(self.ops) - 1)

    def node(self, name: str, what: Any, *args: Scalar, key: Any = None) -> Ref:
        # Equal numbers of other types, and zeros of other signs, are others: 1 and 1.0 and True, 0.0 and -0.0.
        ids = tuple(a.index if isinstance(a, Ref) else ("#", type(a), a or repr(a)) for a in args)
        if name in ("add", "mul"):
            ids = tuple(sorted(ids, key=str))
        found = self._known.get((name, key, ids))
        if found is None:
            self.ops.append((name, what, args))
            found = self._known[(name, key, ids)] = Ref(len(self.ops) - 1)
        return found

    def close(self) -> None:
        """Nothing will be added: what finds equal operations is forgotten, most of the memory of a graph."""
        self._known.clear()

    # -- arithmetic that folds
    def add(self, a: Scalar, b: Scalar) -> Scalar:
        if is_number(a) and is_number(b):
            return a + b
        if is_number(a):
            a, b = b, a
        if is_number(b):
            return a if b == 0 else self.node("add", None, a, b)
        if (negated := self._negated(b)) is not None:
            return self.sub(a, negated)
        if (negated := self._negated(a)) is not None:
            return self.sub(b, negated)
        return self.node("add", None, a, b)

    def sub(self, a: Scalar, b: Scalar) -> Scalar:
        if is_number(a) and is_number(b):
            return a - b
        if is_number(b):
            return a if b == 0 else self.node("sub", None, a, b)
        if is_number(a):
            return self.neg(b) if a == 0 else self.node("sub", None, a, b)
        if (negated := self._negated(b)) is not None:
            return self.add(a, negated)
        return self.node("sub", None, a, b)

    def mul(self, a: Scalar, b: Scalar) -> Scalar:
        if is_number(a) and is_number(b):
            return a * b
        if is_number(a):
            a, b = b, a
        if is_number(b):
            if b == 0:
                return 0 if type(b) is int else 0.0
            if abs(b) == 1:
                return a if b == 1 else self.neg(a)
            return self.node("mul", None, a, b)
        for x, y in ((a, b), (b, a)):
            if (negated := self._negated(x)) is not None:
                return self.neg(self.mul(negated, y))
        return self.node("mul", None, a, b)

    def div(self, a: Scalar, b: Scalar) -> Scalar:
        if is_number(a) and (a == 0 or is_number(b)):
            return _quotient(a, b) if is_number(b) else 0.0
        if is_number(b) and b == 1:
            return a
        return self.node("div", None, a, b)

    def neg(self, a: Scalar) -> Scalar:
        if is_number(a):
            return -a
        if (negated := self._negated(a)) is not None:
            return negated
        name, _, args = self.ops[a.index]
        if name == "sub" and not any(map(is_number, args)):
            return self.sub(args[1], args[0])
        return self.node("neg", None, a)

    def _negated(self, a: Ref) -> Ref | None:
        """x if a is -x."""
        name, _, args = self.ops[a.index]
        return args[0] if name == "neg" else None


def _quotient(a: float, b: float) -> float:
    """As of floating arrays: a division by zero is infinite, or no number."""
    with np.errstate(all="ignore"):
        return float(np.divide(np.float64(a), np.float64(b)))
