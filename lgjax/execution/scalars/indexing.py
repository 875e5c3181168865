"""Entries that are chosen by a number which is not known: slices, gathers and scatters, as choices between scalars.

All entries that a number may mean are looked at, so a loop with few turns that counts them is better written out
(`loops.py`). Read first: `interpreter.py`, which does the same for known numbers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import nan
from typing import Any

import numpy as np

from lgjax.execution.scalars.entries import boxed, map_objects
from lgjax.execution.scalars.graph import Graph, Scalar, is_number

LOOKED_UP = 64  # entries of an array: with as many or more it stays in memory (`lookups.py`)
CHOICES = 40_000  # between entries, in one operation


def is_known(name: str, inputs: Sequence[np.ndarray]) -> bool:
    """Whether all numbers are known that say which entries an operation of `MOVES` moves."""
    numbers = [inputs[n] for n in _NUMBERS[name](len(inputs))]  # what is in memory is not known
    return all(isinstance(x, np.ndarray) and all(map(is_number, x.flat)) for x in numbers)


# ---- scalars
def selected(graph: Graph, test: Scalar, no: Scalar, yes: Scalar) -> Scalar:
    if is_number(test):
        return yes if test else no
    if is_number(no) and is_number(yes):
        same = repr(no) == repr(yes)  # NaN, and the sign of zero
    else:
        same = not is_number(no) and not is_number(yes) and no.index == yes.index
    return no if same else graph.node("select_n", None, test, no, yes, key="select_n")


def both(graph: Graph, a: Scalar, b: Scalar) -> Scalar:
    for x, y in ((a, b), (b, a)):
        if is_number(x):
            return y if x else False
    return graph.node("and", None, a, b, key="and")


def compared(graph: Graph, name: str, a: Scalar, b: Scalar) -> Scalar:
    if is_number(a) and is_number(b):
        return bool({"eq": a == b, "le": a <= b, "ge": a >= b}[name])
    return graph.node(name, None, a, b, key=name)


def within(graph: Graph, index: Scalar, most: int) -> Scalar:
    """The number between 0 and `most` that is nearest to an index."""
    if most == 0:
        return 0
    if is_number(index):
        return min(max(int(index), 0), most)
    return graph.node("min", None, graph.node("max", None, index, 0, key="max"), most, key="min")


def entry(graph: Graph, entries: Sequence[Scalar], index: Scalar) -> Scalar:
    """One of the entries; each bit of the index decides between neighbors that the lower ones have left."""
    if is_number(index):
        return entries[int(index)]
    bit = 1
    while len(entries) > 1:
        odd = graph.node("ne", None, graph.node("and", None, index, bit, key="and"), 0, key="ne")
        pairs = [entries[k : k + 2] for k in range(0, len(entries), 2)]
        entries = [selected(graph, odd, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
        bit *= 2
    return entries[0]


# ---- arrays
def box(graph: Graph, x: np.ndarray, starts: Sequence[Scalar], sizes: Sequence[int]) -> np.ndarray:
    """The part of an array that begins at `starts`, moved inside where it is partly outside."""
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        most = x.shape[axis] - size
        start, rows = within(graph, start, most), np.moveaxis(x, axis, 0)
        if is_number(start):
            x = np.moveaxis(rows[start : start + size], 0, axis)
            continue
        found = np.empty((size, *rows.shape[1:]), object)
        if found.size * (most + 1) > CHOICES:
            raise NotImplementedError(f"{found.size} entries at a number that is not known, each among {most + 1}")
        for k, *place in np.ndindex(*found.shape):
            found[(k, *place)] = entry(graph, rows[(slice(k, k + most + 1), *place)].tolist(), start)
        x = np.moveaxis(found, 0, axis)
    return x


def placed(
    graph: Graph, x: np.ndarray, update: np.ndarray, starts: Sequence[Scalar], combine: Callable | None = None
) -> np.ndarray:
    """The array with `update` from `starts` on; as it was, if that is partly outside. combine(old, new) -> entry."""
    out = x.copy()
    for offset in np.ndindex(*update.shape):
        ways = [
            [(k, compared(graph, "eq", start, k - o)) for k in range(o, all_of - n + o + 1)]
            for o, n, all_of, start in zip(offset, update.shape, x.shape, starts, strict=True)
        ]
        for way in product(*([(k, test) for k, test in axis if test is not False] for axis in ways)):
            here: Scalar = True
            for _, test in way:
                here = both(graph, here, test)
            place, new = tuple(k for k, _ in way), update[offset]
            out[place] = selected(graph, here, out[place], combine(out[place], new) if combine else new)
    return out


# ---- operations of JAX
def _dynamic_slice(graph: Graph, eqn: Any, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    return box(graph, x, [start[()] for start in starts], eqn.params["slice_sizes"])


def _dynamic_update_slice(graph: Graph, eqn: Any, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    most = np.subtract(x.shape, update.shape).tolist()
    return placed(graph, x, update, [within(graph, s[()], n) for s, n in zip(starts, most, strict=True)])


def _gather(graph: Graph, eqn: Any, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return gathered(graph, eqn, x.shape, indices, lambda starts, sizes: box(graph, x, starts, sizes))


def gathered(graph: Graph, eqn: Any, of: Sequence[int], indices: np.ndarray, part: Callable) -> np.ndarray:
    """The slices of an array of shape `of` that part(starts, sizes) finds."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    if numbers.operand_batching_dims:
        raise NotImplementedError("a gather with a batch of its own, at numbers that are not known")
    kept = [axis for axis in range(len(of)) if axis not in numbers.collapsed_slice_dims]
    shape = [sizes[axis] for axis in kept]
    out = np.empty((*indices.shape[:-1], *shape), object)
    for index in np.ndindex(*indices.shape[:-1]):
        starts: list[Scalar] = [0] * len(of)
        for axis, start in zip(numbers.start_index_map, indices[index], strict=True):
            starts[axis] = start
        found = part(starts, sizes).reshape(shape)
        if drops(eqn):
            inside: Scalar = True
            for axis in numbers.start_index_map:
                inside = both(graph, inside, compared(graph, "ge", starts[axis], 0))
                inside = both(graph, inside, compared(graph, "le", starts[axis], of[axis] - sizes[axis]))
            found = map_objects(partial(selected, graph, inside, _fill(eqn)), found)
        out[index] = found if shape else found[()]
    batch = indices.ndim - 1
    return np.moveaxis(out, range(batch, batch + len(kept)), numbers.offset_dims)


def _scatter(graph: Graph, eqn: Any, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    numbers = eqn.params["dimension_numbers"]
    if numbers.operand_batching_dims:
        raise NotImplementedError("a scatter with a batch of its own, at numbers that are not known")
    combine = graph.add if eqn.primitive.name in ADDING else None
    window = list(numbers.update_window_dims)
    rows = updates.transpose([axis for axis in range(updates.ndim) if axis not in window] + window)
    for index in np.ndindex(*indices.shape[:-1]):
        lengths = iter(np.shape(rows[index]))
        shape = [1 if axis in numbers.inserted_window_dims else next(lengths) for axis in range(x.ndim)]
        update = boxed(rows[index]).reshape(shape)
        starts: list[Scalar] = [0] * x.ndim
        for axis, start in zip(numbers.scatter_dims_to_operand_dims, indices[index], strict=True):
            starts[axis] = start if drops(eqn) else within(graph, start, x.shape[axis] - shape[axis])
        x = placed(graph, x, update, starts, combine)
    return x


def drops(eqn: Any) -> bool:
    """Whether what is outside is left out; else it is moved inside, or is promised to be there."""
    return "FILL" in str(eqn.params["mode"])


def _fill(eqn: Any) -> Scalar:
    """Number that a gather gives for entries that are outside."""
    dtype, value = eqn.outvars[0].aval.dtype, eqn.params["fill_value"]
    if value is not None:
        return np.asarray(value, dtype).item()
    if np.issubdtype(dtype, np.bool_):
        return True
    return nan if np.issubdtype(dtype, np.floating) else int(np.iinfo(dtype).min)


ADDING = ("scatter-add", "scatter_add")
MOVES: dict[str, Callable[..., np.ndarray]] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
} | dict.fromkeys(ADDING, _scatter)
_NUMBERS: dict[str, Callable[[int], range]] = {
    "dynamic_slice": lambda count: range(1, count),
    "dynamic_update_slice": lambda count: range(2, count),
} | dict.fromkeys(("gather", "scatter", *ADDING), lambda count: range(1, 2))
