"""Arrays in a program of scalars of which some entries are replaced: at known numbers, by turn, or at unknown ones.

Read first: `storage.py`. Next: `arrays.py`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lgjax.execution.scalars import indexing
from lgjax.execution.scalars.entries import objects
from lgjax.execution.scalars.graph import Ref, Scalar, is_number
from lgjax.execution.scalars.pulls import Index, Pull, View, even, in_rows, separable, viewed
from lgjax.execution.scalars.storage import Storage

FEW = 64  # scalars that are written to an array one by one


class Updates(Storage):
    """Part of `Arrays` that writes over entries.

    spare: an array that only the present operation reads, which may write over it.
    """

    spare: Any = None

    def _part(self, view: View, axis: int, where: Scalar, size: int) -> View | None:
        """Entries of an axis from a number on that is known, or known by the turns of loops."""
        numbers = view.axes[axis]
        with_axis = lambda new: (*view.axes[:axis], tuple(new), *view.axes[axis + 1 :])
        if is_number(where):
            part, more = numbers[where : where + size], ()
        elif (by_turns := self._by_turns(where)) is not None and even(numbers):
            step = numbers[1] - numbers[0] if len(numbers) > 1 else 0
            part, more = numbers[:size], tuple((turn, tuple(step * n for n in own)) for turn, own in by_turns)
        else:
            return None
        first = part[0] if part else 0
        return View(view.memory, view.first + first, with_axis(n - first for n in part), (*view.terms, *more))

    def _by_turn(self, x: Scalar) -> tuple[Ref, tuple] | None:
        return self.graph.by_turn(x) if hasattr(self.graph, "by_turn") else None

    def _by_turns(self, x: Scalar) -> list[tuple[Ref, tuple]] | None:
        found = self.graph.by_turns(x) if hasattr(self.graph, "by_turns") else None
        return None if found is None else list(found.values())

    def _updated(self, eqn: Any, x: Any, update: Any, *starts: np.ndarray) -> Pull | None:
        dtype = np.dtype(eqn.outvars[0].aval.dtype)
        shape, sizes = eqn.invars[0].aval.shape, eqn.invars[1].aval.shape
        most = [n - size for n, size in zip(shape, sizes, strict=True)]
        places = [indexing.within(self.graph, s[()], n) for s, n in zip(starts, most, strict=True)]
        old = self.pulled(x, dtype)
        if all(is_number(p) or self._by_turns(p) is not None for p in places):
            view = old.view if old is self.spare and old.view else self.filled(shape, dtype, old.at)
            for axis, (where, size) in enumerate(zip(places, sizes, strict=True)):
                part = self._part(view, axis, where, size)
                assert part is not None  # its entries lie in rows
                view = part
            whole, few = (view, math.prod(shape)), isinstance(update, np.ndarray) and update.size <= FEW
            fill = lambda: self.filled(sizes, dtype, self.pulled(update, dtype).at, into=whole).memory
            memory = self.written(update, dtype, whole) if few else fill()
            return viewed(View(memory, 0, in_rows(shape)), dtype)
        return self._where(old, self.pulled(update, dtype), sizes, places)

    def _where(self, old: Pull, new: Pull, sizes: Sequence[int], places: Sequence[Scalar]) -> Pull | None:
        """`old` with entries of `new` (sizes) from unknown numbers on, one for each axis; all are visited."""
        most = [n - size for n, size in zip(old.shape, sizes, strict=True)]
        if any(not is_number(p) and size != 1 for p, size in zip(places, sizes, strict=True)):
            return None
        if any(is_number(p) and (n or p) for p, n in zip(places, most, strict=True)):
            return None

        def at(body: Any, index: Sequence[Index]) -> Scalar:
            here: Scalar = True
            own = [0 if size == 1 else k for k, size in zip(index, sizes, strict=True)]
            for k, where in zip(index, places, strict=True):
                if not is_number(where):
                    here = indexing.both(body.graph, here, equal(body, k, where))
            return indexing.selected(body.graph, here, old.at(body, index), new.at(body, own))

        return Pull(old.shape, old.dtype, at)

    def _window(self, eqn: Any, x: Any, indices: Any, updates: Any) -> Pull | None:
        """One window that replaces entries at numbers that are not known."""
        shape, dtype = eqn.outvars[0].aval.shape, np.dtype(eqn.outvars[0].aval.dtype)
        numbers = eqn.params["dimension_numbers"]
        if eqn.primitive.name in indexing.ADDING or len(eqn.invars[1].aval.shape) != 1 or numbers.operand_batching_dims:
            return None
        lengths = iter(eqn.invars[2].aval.shape)
        sizes = [1 if axis in numbers.inserted_window_dims else next(lengths) for axis in range(len(shape))]
        places: list[Scalar] = [0] * len(shape)
        for axis, start in zip(numbers.scatter_dims_to_operand_dims, self.scalars(indices), strict=True):
            inside = start if indexing.drops(eqn) else indexing.within(self.graph, start, shape[axis] - sizes[axis])
            places[axis] = inside
        new = self.pulled(updates, dtype)
        kept = [axis for axis in range(len(shape)) if axis not in numbers.inserted_window_dims]
        whole = lambda body, index: new.at(body, [index[axis] for axis in kept])
        return self._where(self.pulled(x, dtype), Pull(tuple(sizes), dtype, whole), sizes, places)

    def _scattered(self, eqn: Any, x: Any, indices: np.ndarray, updates: Any) -> Pull | None:
        """Entries that are replaced, or added to."""
        name, shape, dtype = eqn.primitive.name, eqn.outvars[0].aval.shape, np.dtype(eqn.outvars[0].aval.dtype)
        if not indexing.is_known(name, [x, indices, updates]):
            return self._window(eqn, x, indices, updates)
        if not eqn.invars[2].aval.size:
            return None
        count = math.prod(eqn.invars[2].aval.shape)
        numbers = np.arange(1, count + 1).reshape(eqn.invars[2].aval.shape)
        found = indexing.MOVES[name](self.graph, eqn, objects(np.zeros(shape, int)), indices, objects(numbers))
        found = np.asarray(found, int).ravel()
        places = np.flatnonzero(found)
        if len(places) != count or not np.array_equal(np.sort(found[places]), numbers.ravel()):
            return None  # some are left out, or meet
        where = np.empty(count, int)
        where[found[places] - 1] = places
        axes = separable(where.reshape(numbers.shape))
        if axes is None:
            return None
        old, new = self.pulled(x, dtype), self.pulled(updates, dtype)
        memory = old.view.memory if old is self.spare and old.view else self.filled(shape, dtype, old.at).memory
        view = View(memory, int(where[0]), tuple(axes))

        def added(body: Any, index: Sequence[Index]) -> Scalar:
            return body.graph.add(view.at(body, index), new.at(body, index))

        entry = added if name in indexing.ADDING else new.at
        memory = self.filled(numbers.shape, dtype, entry, into=(view, math.prod(shape))).memory
        return viewed(View(memory, 0, in_rows(shape)), dtype)


def equal(body: Any, index: Index, where: Scalar) -> Scalar:
    """Whether an index is a number that is not known."""
    own = body.graph.entry(*index) if isinstance(index, tuple) else index
    return indexing.compared(body.graph, "eq", own, body.capture(where))
