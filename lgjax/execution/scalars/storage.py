"""Arrays of a program of scalars in memory: how they get there, and how their entries become scalars again.

Read first: `pulls.py`, `regions.py` (`Fill`). Next: `arrays.py`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lgjax.execution.scalars.entries import boxed
from lgjax.execution.scalars.graph import Ref, Scalar, is_number
from lgjax.execution.scalars.pulls import Here, Index, Pull, View, in_rows, loaded, viewed
from lgjax.execution.scalars.regions import Fill

TOGETHER = 4, 3, 2, 1  # neighboring entries that one turn computes, and terms of a sum that it adds
TERMS = 12  # of all sums of a turn, which is so much longer
MAX_SCALARS = 20_000  # scalars that one array may become


class Storage:
    """Arrays of an `Unrolling`. run: the interpreter, whose graph gets the nodes."""

    def __init__(self, run: Any):
        self.run, self.graph, self.here = run, run.graph, Here(run)

    # -- to memory and back
    def argument(self, n: int, aval: Any) -> Pull:
        """Argument n of the program, where the caller has it."""
        dtype = np.dtype(aval.dtype)
        memory = self.graph.node("argument", (n, aval.size, dtype), key=n)
        return viewed(View(memory, 0, in_rows(aval.shape)), dtype)

    def filled(
        self,
        shape: Sequence[int],
        dtype: np.dtype,
        entry: Callable,
        inside: Sequence[int] | None = None,
        start: Scalar = 0,
        into: tuple[View, int] | None = None,
        sums: bool = False,
    ) -> View:
        """In memory, the array of entry(body, index); with turns `inside`, of entry(body, total, index, index inside).

        into: of an array in memory, of so many entries, the view that is filled. sums: whether entries are sums, of
        which a turn may add several terms.
        """
        body, turns, sizes = self.run.inner(), [], []
        long = [k for k, n in enumerate(shape) if n > 1]
        together = next(n for n in TOGETHER if shape[long[-1]] % n == 0) if long else 1

        def index(n: int, step: int = 1) -> Index:
            if n == 1:
                return 0
            node = body.graph.input()
            turns.append(node.index)
            sizes.append(n // step)
            return node, range(0, n, step)

        outside = [index(n, together if long and k == long[-1] else 1) for k, n in enumerate(shape)]
        outer = len(turns)
        inner = list(inside or ())
        fits = lambda n: inner[-1] % n == 0 and n * together <= TERMS
        terms = next(filter(fits, TOGETHER)) if sums and inner else 1
        within = [*map(index, inner[:-1]), *(0 if n == terms else index(n, terms) for n in inner[-1:])]
        view, length = into or (View(Ref(-1), 0, in_rows(shape)), math.prod(shape))
        places, totals, values = [], [], []
        for k in range(together):
            at = list(outside)
            if k:
                node, numbers = outside[long[-1]]
                at[long[-1]] = node, range(k, numbers.stop, together)
            if inside is None:
                values.append(entry(body, at))
            else:
                total = start
                if len(turns) > outer:
                    total = body.graph.input()
                    totals.append(total.index)
                one = lambda total, within, at=at: entry(body, total, at, within)
                values.append(self._sum(body, one, total, within, terms))
            first, steps, of = view.place(body, at)
            places.append((first, steps, tuple(x.index for x in of)))
        loops = {"sizes": sizes, "outer": outer, "turns": turns, "captured": body.captured}
        found = {"totals": totals, "start": start, "places": places}
        fill = Fill(body.graph, values, **loops, **found, length=length, dtype=dtype, into=into is not None)
        args = [*body.outside, *([view.memory] if into else [])]
        node = self.graph.node("fill", fill, *args, key=id(fill))
        return View(node, 0, in_rows(shape))

    def written(self, numbers: np.ndarray, dtype: np.dtype, into: tuple[View, int]) -> Ref:
        """An array in memory in which the view of a few entries has new numbers, written one by one."""
        body, (view, length) = self.run.inner(), into
        places, values = [], []
        for index in np.ndindex(*numbers.shape):
            first, steps, of = view.place(body, index)
            places.append((first, steps, tuple(x.index for x in of)))
            values.append(body.capture(numbers[index]))
        loops = {"sizes": [], "outer": 0, "turns": [], "captured": body.captured, "totals": [], "start": 0}
        fill = Fill(body.graph, values, **loops, places=places, length=length, dtype=dtype, into=True)
        return self.graph.node("fill", fill, *body.outside, view.memory, key=id(fill))

    @staticmethod
    def _sum(body: Any, entry: Callable, total: Scalar, within: list, terms: int) -> Scalar:
        """The total with so many terms more, which are added first: none of them waits for the turn before."""
        if terms == 1:
            return entry(total, within)
        last, found = within[-1], 0
        for k in range(terms):
            here = (last[0], range(k, last[1].stop, terms)) if isinstance(last, tuple) else k
            found = entry(found, [*within[:-1], here])
        return body.graph.add(found, total)

    def stored(self, x: Any, dtype: np.dtype) -> Pull:
        """An array in memory whose entries lie in the order of their indices, from the first number on."""
        x = self.pulled(x, dtype)
        view = x.view
        if view is not None and not view.terms and not view.first and self._rows(view) and not self._known(view):
            return x
        return self.settled(x) if view is None else viewed(self.filled(x.shape, dtype, x.at), dtype)

    @staticmethod
    def _rows(view: View) -> bool:
        return view.axes == in_rows(tuple(map(len, view.axes)))

    def _known(self, view: View) -> bool:
        """Whether nothing may be written to an array: it is a table, or an argument."""
        return self.graph.ops[view.memory.index][0] in ("table", "argument")

    def settled(self, x: Any) -> Any:
        """In memory, if it is an array."""
        if isinstance(x, Pull) and x.view is None:
            x.view = self.filled(x.shape, x.dtype, x.entry)
        return x

    def in_memory(self, x: Pull) -> View:
        """Where an array is; if it is nowhere yet, it is written."""
        view = self.settled(x).view
        assert view is not None
        return view

    def pulled(self, x: Any, dtype: np.dtype) -> Pull:
        """An array of scalars, in memory unless all are the same; entries repeated along an axis are stored once."""
        if isinstance(x, Pull):
            return x
        fixed = _repeats(x)
        core = boxed(x[tuple(slice(0, 1) if f else slice(None) for f in fixed)])
        flat = list(core.flat)
        if len(flat) == 1:
            return Pull(x.shape, dtype, lambda body, _: body.capture(flat[0]))
        view = loaded(self.graph, core)
        if view is None:
            if all(map(is_number, flat)):
                numbers = tuple(np.asarray(flat, dtype).tolist())
                memory = self.graph.node("table", (dtype, numbers), key=(str(dtype), repr(numbers)))
            else:
                memory = self.graph.node("store", dtype, *flat, key=str(dtype))
            view = View(memory, 0, in_rows(core.shape))
        axes = [(0,) * n if f else axis for n, f, axis in zip(x.shape, fixed, view.axes, strict=True)]
        return viewed(View(view.memory, view.first, tuple(axes), view.terms), dtype)

    def scalars(self, x: Any) -> np.ndarray:
        """The entries of an array as scalars."""
        if not isinstance(x, Pull):
            return x
        if x.size > MAX_SCALARS:
            raise NotImplementedError(f"{x.size} scalars of one array")
        out = np.empty(x.shape, object)
        for index in np.ndindex(*x.shape):
            out[index] = x.at(self.here, index)
        return out

    def entered(self, x: Pull, body: Any) -> Pull:
        """An array in memory, inside a loop."""
        view = self.in_memory(x)
        terms = tuple((body.capture(turn), numbers) for turn, numbers in view.terms)
        return viewed(View(body.capture(view.memory), view.first, view.axes, terms), x.dtype)

    def at_turn(self, x: Pull, turn: Ref, numbers: Sequence[int]) -> Pull:
        """Part of an array in memory at an index of its first axis, by turn."""
        view = self.in_memory(x)
        terms = *view.terms, (turn, tuple(view.axes[0][n] for n in numbers))
        return viewed(View(view.memory, view.first, view.axes[1:], terms), x.dtype)

    def space(self, length: int, dtype: np.dtype) -> Ref:
        """An array without numbers."""
        self.run.spaces += 1
        return self.graph.node("space", (length, dtype), key=("space", self.run.spaces))


def _repeats(x: np.ndarray) -> list[bool]:
    """For each axis, whether all entries along it are the same."""
    known: dict[Any, int] = {}
    number = lambda a: a.index if isinstance(a, Ref) else known.setdefault((type(a), repr(a)), -1 - len(known))
    keys = np.array([number(a) for a in x.flat], int).reshape(x.shape)
    return [bool((keys == keys.take([0], axis)).all()) if n else False for axis, n in enumerate(x.shape)]
