"""Operations on arrays that are large enough to stay arrays in a program of scalars.

A `Pull` is a function from indices to the scalar there. Elementwise operations compose such functions, so that what is
computed on the way is never stored; operations that move entries change the indices; sums and products are loops inside
the loop that fills their result. Where a Pull is used more than once, it is written to memory, and is then a `View`.

Read first: `storage.py`, `interpreter.py`. Next: `loops.py`, which decides what a loop gets as an array.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lgjax.execution.primitives import TABLE, Way, named
from lgjax.execution.scalars import indexing
from lgjax.execution.scalars.entries import boxed
from lgjax.execution.scalars.graph import Scalar, is_number
from lgjax.execution.scalars.interpreter import REARRANGEMENTS
from lgjax.execution.scalars.lookups import is_looked_up
from lgjax.execution.scalars.pulls import Index, Pull, View, even, in_rows, separable, viewed
from lgjax.execution.scalars.updates import Updates, equal

LARGE = 128  # entries of a result from which on it is computed by loops
WORK = 512  # products in a product of matrices, from which on it is
KEPT = 24  # entries of a result of arrays, of which smaller ones become scalars
ALONE = named(Way.FOLDED, Way.ENTRY, Way.REPLACED, Way.CONVERTED)
REDUCED = {"reduce_sum": "add"} | {name: TABLE[name].pair for name in named(Way.REDUCED) - {"reduce_prod"}}
READ = named(Way.READ)
MOVED = READ | named(Way.CONVERTED, Way.MOVED, Way.PARTED)


class Arrays(Updates):
    """Part of an `Unrolling` that treats arrays."""

    def apply(self, eqn: Any, inputs: list) -> list | None:
        """The results of an equation on arrays; None if it is better done on scalars."""
        name, outs = eqn.primitive.name, eqn.outvars
        if (name in MOVED or name in _RULES) and not any(x.aval.size for x in outs):
            return [np.empty(x.aval.shape, object) for x in outs]
        if name in READ and is_looked_up(name, inputs, self._by_turn):
            inputs = [self.pulled(inputs[0], eqn.invars[0].aval.dtype), *inputs[1:]]
        some = any(isinstance(x, Pull) for x in inputs)
        if not some and (
            not (self.run.large and self._large(eqn, inputs)) or all(is_number(a) for x in inputs for a in x.flat)
        ):
            return None
        if name in ALONE:
            if math.prod(outs[0].aval.shape) < KEPT:
                return None
            found = [self._alone(eqn, inputs)]
        elif name in MOVED:
            found = self._moved(eqn, inputs) if some else None
        elif name in REDUCED:
            found = [self._reduced(eqn, REDUCED[name], *inputs)]
        elif name in _RULES:
            found = _RULES[name](self, eqn, *inputs)
            found = None if found is None else [found]
        else:
            return None
        if found is None:
            return None
        return [self.scalars(x) if isinstance(x, Pull) and x.size < KEPT else x for x in found]

    @staticmethod
    def _large(eqn: Any, inputs: list) -> bool:
        """Whether an equation on scalars is one for arrays."""
        name = eqn.primitive.name
        sizes = [math.prod(x.aval.shape) for x in (*eqn.invars, *eqn.outvars)]
        if name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            count = sizes[-1] * math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
            return count >= WORK and max(sizes) >= LARGE
        return (name in ALONE and sizes[-1] >= LARGE) or (name in REDUCED and sizes[0] >= LARGE)

    def _alone(self, eqn: Any, inputs: list) -> Pull:
        """An operation on every entry alone."""
        xs = [self.pulled(x, atom.aval.dtype) for x, atom in zip(inputs, eqn.invars, strict=True)]

        def at(body: Any, index: Sequence[Index]) -> Scalar:
            own = [[0 if n == 1 else k for k, n in zip(index, x.shape, strict=False)] for x in xs]
            return body.run.one(eqn, [boxed(x.at(body, k)) for x, k in zip(xs, own, strict=True)])

        return Pull(eqn.outvars[0].aval.shape, np.dtype(eqn.outvars[0].aval.dtype), at)

    def _moved(self, eqn: Any, inputs: list) -> list | None:
        name, x, others = eqn.primitive.name, inputs[0], inputs[1:]
        if not isinstance(x, Pull):
            return None
        if name in READ and not indexing.is_known(name, inputs):
            return self._looked_up(eqn, x, others)
        if name == "convert_element_type":
            return None
        if x.view is None and len(eqn.outvars) == 1 and (found := self._renamed(eqn, x)) is not None:
            return [found]
        view = self.in_memory(x)
        if name == "reshape" and not separable(REARRANGEMENTS[name](eqn.params, self._offsets(view))):
            view = self.filled(x.shape, x.dtype, x.at)
        offsets = self._offsets(view)
        if name == "split":
            moved = np.split(offsets, np.cumsum(eqn.params["sizes"])[:-1], eqn.params["axis"])
        elif name == "unstack":
            moved = list(np.moveaxis(offsets, eqn.params["axis"], 0))
        elif name in REARRANGEMENTS:
            moved = [REARRANGEMENTS[name](eqn.params, offsets)]
        else:
            moved = [boxed(indexing.MOVES[name](self.graph, eqn, offsets, *others))]
            if any(not isinstance(n, int | np.integer) for n in moved[0].flat):
                return None  # entries from outside are NaN
        return [self._at_offsets(view, np.asarray(m, int), x.dtype) for m in moved]

    @staticmethod
    def _offsets(view: View) -> np.ndarray:
        total = np.zeros((), int)
        for k, axis in enumerate(view.axes):
            total = total + np.asarray(axis).reshape([-1 if n == k else 1 for n in range(len(view.axes))])
        return np.broadcast_to(total, tuple(map(len, view.axes)))

    def _at_offsets(self, view: View, offsets: np.ndarray, dtype: np.dtype) -> Any:
        if not offsets.size:
            return np.empty(offsets.shape, object)
        if (axes := separable(offsets)) is not None:
            first = view.first + int(offsets[(0,) * offsets.ndim])
            return viewed(View(view.memory, first, tuple(axes), view.terms), dtype)
        flat = viewed(View(view.memory, view.first, (tuple(offsets.ravel().tolist()),), view.terms), dtype)
        found = self.filled(flat.shape, dtype, flat.at)
        return viewed(View(found.memory, 0, in_rows(offsets.shape)), dtype)

    @staticmethod
    def _renamed(eqn: Any, x: Pull) -> Pull | None:
        """The same numbers, with axes of length one that come or go."""
        shape = eqn.outvars[0].aval.shape
        long = lambda shape: [k for k, n in enumerate(shape) if n != 1]
        before, after = long(x.shape), long(shape)
        named = eqn.primitive.name in ("broadcast_in_dim", "squeeze", "expand_dims", "reshape")
        turned = eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None
        if not named or turned or [x.shape[k] for k in before] != [shape[k] for k in after]:
            return None

        def at(body: Any, index: Sequence[Index]) -> Scalar:
            old: list[Index] = [0] * x.ndim
            for k, n in zip(before, after, strict=True):
                old[k] = index[n]
            return x.at(body, old)

        return Pull(shape, x.dtype, at)

    def _looked_up(self, eqn: Any, x: Pull, others: Sequence) -> list | None:
        """A slice, or slices, that begin at a turn of a loop or at numbers that are not known."""
        if eqn.primitive.name == "dynamic_slice":
            found = self._slice(x, [start[()] for start in others], eqn.params["slice_sizes"])
            return None if found is None else [found]
        indices = self.scalars(others[0])

        def box(starts: Sequence[Scalar], sizes: Sequence[int]) -> np.ndarray:
            found = self._slice(x, starts, sizes)
            if found is None:
                raise NotImplementedError("a gather of uneven entries at numbers that are not known")
            return self.scalars(found)

        return [indexing.gathered(self.graph, eqn, x.shape, indices, box)]

    def _slice(self, x: Pull, starts: Sequence[Scalar], sizes: Sequence[int]) -> Pull | None:
        view, later = self.in_memory(x), []
        for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            where = indexing.within(self.graph, start, len(view.axes[axis]) - size)
            found = self._part(view, axis, where, size)
            if found is None:
                later.append((axis, where, size))
            view = found or view
        if not later:
            return viewed(view, x.dtype)
        if all(even(view.axes[axis]) for axis, *_ in later):
            return self._picked(view, x.dtype, later)
        for axis, where, size in later:
            if size != 1:
                return None
            view = self.in_memory(self._searched(viewed(view, x.dtype), axis, where))
        return viewed(view, x.dtype)

    def _picked(self, view: View, dtype: np.dtype, places: Sequence[tuple[int, Scalar, int]]) -> Pull:
        """Slices of some axes that begin at numbers that are not known: places (axis, number, size)."""
        axes, number = list(view.axes), 0
        for axis, where, size in places:
            row = axes[axis]
            number = self.graph.add(number, self.graph.mul(where, row[1] - row[0]))
            axes[axis] = row[:size]
        own = View(view.memory, view.first, tuple(axes), view.terms)

        def entry(body: Any, index: Sequence[Index]) -> Scalar:
            *what, turns = own.place(body, index)
            args = body.capture(view.memory), body.capture(number), *turns
            return body.graph.node("pick", tuple(what), *args, key=tuple(what))

        return Pull(tuple(map(len, axes)), dtype, entry)

    def _searched(self, x: Pull, axis: int, where: Scalar) -> Pull:
        """One entry of an axis, at a number that is not known; all entries are looked at."""
        shape = tuple(1 if k == axis else n for k, n in enumerate(x.shape))

        def entry(body: Any, total: Scalar, index: Sequence[Index], inside: Sequence[Index]) -> Scalar:
            own = list(index)
            own[axis] = inside[0]
            here = equal(body, inside[0], where)
            return indexing.selected(body.graph, here, total, x.at(body, own))

        zero = np.zeros((), x.dtype).item()
        return viewed(self.filled(shape, x.dtype, entry, (x.shape[axis],), zero), x.dtype)

    def _reduced(self, eqn: Any, name: str, x: Any) -> Pull:
        aval = eqn.invars[0].aval
        x, axes = self.pulled(x, aval.dtype), list(eqn.params["axes"])
        kept = [k for k in range(x.ndim) if k not in axes]

        def entry(body: Any, total: Scalar, index: Sequence[Index], inside: Sequence[Index]) -> Scalar:
            value = x.at(body, _arranged([*kept, *axes], [*index, *inside]))
            if name == "add":
                return body.graph.add(value, total)
            return body.graph.node(name, None, total, value, key=name)

        shape, dtype = [x.shape[k] for k in kept], np.dtype(eqn.outvars[0].aval.dtype)
        start, sums = _first(name, dtype), name == "add"
        return viewed(self.filled(shape, dtype, entry, [x.shape[k] for k in axes], start, sums=sums), dtype)

    def _product(self, eqn: Any, a: Any, b: Any) -> Pull:
        (ca, cb), (ba, bb) = eqn.params["dimension_numbers"]
        a, b = (self.settled(self.pulled(x, atom.aval.dtype)) for x, atom in zip((a, b), eqn.invars, strict=True))
        free_a = [k for k in range(a.ndim) if k not in (*ca, *ba)]
        free_b = [k for k in range(b.ndim) if k not in (*cb, *bb)]
        count = len(ba)

        def entry(body: Any, total: Scalar, index: Sequence[Index], inside: Sequence[Index]) -> Scalar:
            batch, rows, columns = index[:count], index[count : count + len(free_a)], index[count + len(free_a) :]
            left = a.at(body, _arranged([*ba, *free_a, *ca], [*batch, *rows, *inside]))
            right = b.at(body, _arranged([*bb, *free_b, *cb], [*batch, *columns, *inside]))
            return body.graph.add(body.graph.mul(left, right), total)

        shape = [*(a.shape[k] for k in ba), *(a.shape[k] for k in free_a), *(b.shape[k] for k in free_b)]
        dtype = np.dtype(eqn.outvars[0].aval.dtype)
        start = _first("add", dtype)
        return viewed(self.filled(shape, dtype, entry, [a.shape[k] for k in ca], start, sums=True), dtype)

    def _joined(self, eqn: Any, *parts: Any, axis: int) -> Pull:
        """Arrays one after the other."""
        dtype, shape = np.dtype(eqn.outvars[0].aval.dtype), eqn.outvars[0].aval.shape
        rows, memory, first = in_rows(shape), self.space(math.prod(shape), dtype), 0
        for x, atom in zip(parts, eqn.invars, strict=True):
            if not x.size:
                continue
            x = self.pulled(x, atom.aval.dtype)
            axes = tuple(r[:n] for r, n in zip(rows, x.shape, strict=True))
            view = View(memory, first * rows[axis][1] if first else 0, axes)
            memory = self.filled(x.shape, dtype, x.at, into=(view, math.prod(shape))).memory
            first += x.shape[axis]
        return viewed(View(memory, 0, rows), dtype)

    def _concatenated(self, eqn: Any, *parts: Any) -> Pull:
        return self._joined(eqn, *parts, axis=eqn.params["dimension"])

    def _stacked(self, eqn: Any, *parts: Any) -> Pull:
        axis = eqn.params["axis"]
        dtype, shape = np.dtype(eqn.outvars[0].aval.dtype), eqn.outvars[0].aval.shape
        rows, memory = in_rows(shape), self.space(math.prod(shape), dtype)
        for k, x in enumerate(parts):
            axes = tuple(r for n, r in enumerate(rows) if n != axis)
            x = self.pulled(x, dtype)
            view = View(memory, rows[axis][k], axes)
            memory = self.filled(x.shape, dtype, x.at, into=(view, math.prod(shape))).memory
        return viewed(View(memory, 0, rows), dtype)

    def _padded(self, eqn: Any, x: Any, value: np.ndarray) -> Pull | None:
        config = eqn.params["padding_config"]
        dtype, shape = np.dtype(eqn.outvars[0].aval.dtype), eqn.outvars[0].aval.shape
        if any(low < 0 or high < 0 for low, high, _ in config):
            return None
        x, filler = self.pulled(x, dtype), value.item()
        memory = self.filled(shape, dtype, lambda body, _: body.capture(filler)).memory
        rows, first = in_rows(shape), 0
        axes = []
        for row, n, (low, _, gap) in zip(rows, x.shape, config, strict=True):
            first += row[low] if n else 0
            axes.append(tuple(row[low + k * (gap + 1)] - row[low] for k in range(n)))
        memory = self.filled(x.shape, dtype, x.at, into=(View(memory, first, tuple(axes)), math.prod(shape))).memory
        return viewed(View(memory, 0, rows), dtype)


def _arranged(axes: Sequence[int], index: Sequence[Index]) -> list[Index]:
    """The index of an array, from that of each of its axes."""
    return [n for _, n in sorted(zip(axes, index, strict=True), key=lambda pair: pair[0])]


def _first(name: str, dtype: np.dtype) -> Scalar:
    """Numbers with which reductions begin."""
    if name == "add":
        return np.zeros((), dtype).item()
    if name in ("and", "or"):
        return name == "and"
    if np.issubdtype(dtype, np.floating):
        return -np.inf if name == "max" else np.inf
    limits = np.iinfo(np.int32)  # as kernels have integers
    return int(limits.min if name == "max" else limits.max)


_RULES: dict[str, Callable] = {
    "dot_general": Arrays._product,
    "concatenate": Arrays._concatenated,
    "stack": Arrays._stacked,
    "pad": Arrays._padded,
    "dynamic_update_slice": Arrays._updated,
    **dict.fromkeys(("scatter", *indexing.ADDING), Arrays._scattered),
}
