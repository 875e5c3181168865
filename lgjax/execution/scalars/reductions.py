"""Sums, bounds and places of the largest along axes, on scalars: pair by pair, of known numbers at once.

Read first: `graph.py`. `interpreter.py` has sums of its own, which products fold into.
"""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import numpy as np

from lgjax.execution.primitives import TABLE, Way, named
from lgjax.execution.scalars import indexing
from lgjax.execution.scalars.entries import boxed
from lgjax.execution.scalars.graph import Graph, Scalar, is_number

EMPTY = {"and": True, "or": False, "max": -inf, "min": inf, "mul": 1.0}  # of nothing
ON_NUMBERS: dict[str, Callable] = {"and": min, "or": max, "max": np.maximum, "min": np.minimum}


def _pair(graph: Graph, name: str) -> Callable[[Scalar, Scalar], Scalar]:
    """An operation on two scalars."""
    if name in ("add", "mul"):
        return getattr(graph, name)

    def pair(a: Scalar, b: Scalar) -> Scalar:
        if is_number(a) and is_number(b):
            return np.asarray(ON_NUMBERS[name](a, b)).item()
        return graph.node(name, None, a, b, key=name)

    return pair


def _reduced(name: str, graph: Graph, params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    for axis in sorted(params["axes"], reverse=True):
        x = np.frompyfunc(_pair(graph, name), 2, 1, identity=EMPTY[name]).reduce(x, axis=axis)
    return boxed(x)


def some(graph: Graph, x: np.ndarray) -> Scalar:
    """Whether any of some truth values is true; one alone is itself."""
    return _reduced("or", graph, {"axes": range(x.ndim)}, x)[()] if x.ndim else x[()]


def _accumulated(name: str, graph: Graph, params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    turned = (lambda a: np.flip(a, params["axis"])) if params["reverse"] else (lambda a: a)
    return turned(np.frompyfunc(_pair(graph, name), 2, 1).accumulate(turned(x), axis=params["axis"]))


def _place(name: str, graph: Graph, params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    """The index of the first largest ("gt") or least ("lt") entry along an axis, or of the first NaN."""
    is_nan = lambda y: y != y if is_number(y) else graph.node("ne", None, y, y, key="ne")
    is_no_nan = lambda y: y == y if is_number(y) else graph.node("eq", None, y, y, key="eq")

    def beyond(y: Scalar, best: Scalar) -> Scalar:
        first = indexing.both(graph, is_nan(y), is_no_nan(best))
        if is_number(y) and is_number(best):
            return bool(first or (y > best if name == "gt" else y < best))
        further = graph.node(name, None, y, best, key=name)
        if is_number(first):
            return True if first else further
        return graph.node("or", None, further, first, key="or")

    def one(column: np.ndarray) -> Scalar:
        place: Scalar = 0
        best = column[0]
        for k, y in enumerate(column[1:], 1):
            better = beyond(y, best)
            place, best = (indexing.selected(graph, better, *pair) for pair in ((place, k), (best, y)))
        return place

    rows = np.moveaxis(x, params["axes"][0], 0)
    out = np.empty(rows.shape[1:], object)
    for index in np.ndindex(*out.shape):
        out[index] = one(rows[(slice(None), *index)])
    return out


_WAYS = {Way.REDUCED: _reduced, Way.ACCUMULATED: _accumulated, Way.PLACED: _place}
RULES: dict[str, Callable[[Graph, dict[str, Any], np.ndarray], np.ndarray]] = {
    name: partial(rule, TABLE[name].pair) for way, rule in _WAYS.items() for name in named(way)
}
