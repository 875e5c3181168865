"""Loops and branches of programs of scalars: as nodes with a region of their own, or written out.

Read first: `interpreter.py`, `regions.py`, `arrays.py`. Next: `unrolling.py`, whose rules these are.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from lgjax.execution._jax import Literal, is_written_out, jaxprs_in, scan_arguments, while_parts
from lgjax.execution.scalars import indexing, reductions
from lgjax.execution.scalars.arrays import KEPT, Arrays
from lgjax.execution.scalars.entries import boxed, map_objects, objects
from lgjax.execution.scalars.graph import Graph, Ref, Scalar, is_number
from lgjax.execution.scalars.interpreter import Interpreter
from lgjax.execution.scalars.pulls import Pull, View, in_rows, viewed
from lgjax.execution.scalars.regions import Loop, While
from lgjax.execution.scalars.turns import Inner, place

UNROLLED = 8  # turns of a loop that saves or reads something in every turn, which are written out
WRITTEN_OUT = 4000  # operations, of which more stay a loop
# The same where most of a turn is to choose entries by its number: written out, no turn looks at entries of others.
INDEXED, CHOOSING = 20_000, 0.75
JUMPED = 300  # equations of a branch, of which larger ones are jumped over where nothing asks for them
READ = 12  # entries of an array that a loop reads, of which larger ones are in memory
SAVED = 8192  # numbers that a loop may save: the memory of a thread ends at 512 kB


class Loops(Interpreter):
    """Evaluates loops and branches. choices: nodes that choose entries by numbers not yet known.

    memory: whether there are arrays in memory; `spaces` counts those put together from parts. large: whether all large
    ones are there, not only those that are looked up.
    """

    def __init__(self, graph: Graph, memory: bool = False, large: bool = True):
        super().__init__(graph)
        self.choices = self.spaces = 0
        self.memory, self.large, self.arrays = memory, large, Arrays(self)

    def inner(self) -> "Inner":
        """A graph inside a loop."""
        return Inner(self)

    def closed(self, jaxpr: Any, inputs: Sequence) -> list:
        """`evaluate` for a jaxpr with its constants."""
        return self.evaluate(jaxpr.jaxpr, list(map(objects, jaxpr.consts)), list(inputs))

    # -- loops of a known number of turns
    def _scan(self, eqn, inputs: list) -> list:
        """A loop if it can be one, but few turns that save or read something are written out unless they are long."""
        if is_written_out(eqn):
            return self._written_out(eqn, inputs)
        params, body = eqn.params, eqn.params["jaxpr"]
        first, count = scan_arguments(eqn)
        if self.memory:
            inputs = [
                self._for_loop(x, v, KEPT if first <= k < first + count else READ, first <= k < first + count)
                for k, (x, v) in enumerate(zip(inputs, eqn.invars, strict=True))
            ]
        constants, carry, xs = inputs[:first], inputs[first : first + count], inputs[first + count :]
        plain = len(body.jaxpr.outvars) == len(carry) and all(map(_is_known, xs))
        length, loop, args, choices = params["length"], None, [], 0
        counted = _counted(eqn, carry)
        try:
            if length > 1:
                loop, args, choices = self._loop(eqn, constants, carry, xs, counted)
        except NotImplementedError:
            if length > UNROLLED:
                raise
        if loop is not None:
            size = sum(loop.operations.values())
            most = INDEXED if choices > CHOOSING * size else WRITTEN_OUT
            few = choices > 0 or (not plain and length <= UNROLLED)
            if not few or loop.arrays or length * (size - choices) > most:
                return self._outside(eqn, loop, args, counted)
        step = lambda carry, now: self.closed(body, [*constants, *carry, *now])
        kept = len(body.jaxpr.outvars) - len(carry)
        if not length:  # nothing is saved
            return [*carry, *(np.empty((0, *x.aval.shape), object) for x in body.jaxpr.outvars[len(carry) :])]
        scalars = lambda k, out: out if k < len(carry) else self.arrays.scalars(out)
        saving = lambda carry, now: [scalars(k, x) for k, x in enumerate(step(carry, now))]
        return turn_by_turn(saving, carry, xs, length, params["reverse"], kept)

    def _written_out(self, eqn, inputs: list) -> list:
        """The levels of a recursion, on scalars: arrays of a level have zeros that fold."""
        params, body, (first, count) = eqn.params, eqn.params["jaxpr"], scan_arguments(eqn)
        inputs, memory = list(map(self.arrays.scalars, inputs)), self.memory
        constants, carry, xs = inputs[:first], inputs[first : first + count], inputs[first + count :]
        self.memory = False
        step = lambda carry, now: self.closed(body, [*constants, *carry, *now])
        kept = len(body.jaxpr.outvars) - count
        outs = turn_by_turn(step, carry, xs, params["length"], params["reverse"], kept)
        self.memory = memory
        return outs

    def _for_loop(self, x: Any, atom: Any, least: int, carried: bool = False) -> Any:
        """Arguments of a loop: arrays of `least` entries in memory, but for known ones that it does not carry."""
        if x.size < least or (carried and not self.large):
            return self.arrays.scalars(x)
        if not isinstance(x, Pull) and (not self.large or (not carried and _is_known(x))):
            return x
        dtype = np.dtype(atom.aval.dtype)
        return self.arrays.stored(x, dtype) if carried else self.arrays.settled(self.arrays.pulled(x, dtype))

    def _loop(self, eqn, constants, carry, xs, counted: dict[int, range]) -> tuple[Loop, list[Scalar], int]:
        """The body of a scan once, as a graph of its own, the arguments of the loop's node, and the nodes that choose.

        counted: the numbers that are carried, by the index of what carries them; they are known.
        """
        params, body = eqn.params, eqn.params["jaxpr"]
        inner = self.inner()
        graph, turn = inner.graph, inner.graph.input()
        reads = _Reads(self, inner, turn, params["length"], params["reverse"])

        def enter(k: int, x: Any) -> Any:
            if k in counted:
                return boxed(graph.entry(turn, counted[k]))
            return inner.carried(x) if isinstance(x, Pull) else map_objects(lambda _: graph.input(), x)

        def now(x: Any) -> Any:
            if not isinstance(x, Pull):
                return _columns(reads.entry, x)
            found = inner.run.arrays.at_turn(self.arrays.entered(x, inner), turn, reads.order)
            return inner.run.arrays.scalars(found) if found.size < KEPT else found

        known = [inner.of(x) for x in constants]
        start = [enter(k, x) for k, x in enumerate(carry)]
        outs = inner.run.closed(body, [*known, *start, *map(now, xs)])
        arrays = [k for k, x in enumerate(carry) if isinstance(x, Pull)]
        following = [inner.following(outs[k], start, k) for k in arrays]
        others = lambda values: [x for k, x in enumerate(values) if k not in counted and k not in arrays]
        results = _flat(map(inner.run.arrays.scalars, others(outs)))
        loop = Loop(
            graph,
            [*results, *following],
            count=params["length"],
            dtypes=_dtypes(others(body.jaxpr.outvars)),
            carry=[x.index for x in _flat(others(start))],
            captured=inner.captured,
            turn=turn.index,
            reads=reads.of,
            arrays=[place(start[k]).index for k in arrays],
        )
        if loop.count * (len(results) - len(loop.carry)) > SAVED:
            raise NotImplementedError(f"a scan that saves more than {SAVED} numbers")
        begun = [place(carry[k]) for k in arrays]
        return loop, [*_flat(others(carry)), *inner.outside, *map(Ref, reads.loops), *begun], inner.run.choices

    def _saved_by_one_loop(self, column: Sequence[Scalar]) -> tuple[int, int, bool] | None:
        """The loop that saved the numbers, one in each turn, which of its values they are, and if the last is first.

        None if no loop did.
        """
        ops = [self.graph.ops[x.index] for x in column if isinstance(x, Ref)]
        saved: list[tuple] = [(args[0].index, *what) for name, what, args in ops if name == "saved"]
        if len(saved) == len(column) and len({(loop, value) for loop, value, _ in saved}) == 1:
            loop, value, first = saved[0]
            turns, all_turns = [turn for *_, turn in saved], list(range(self.graph.ops[loop][1].count))
            if turns in (all_turns, all_turns[::-1]):
                return loop, value, first > 0
        return None

    def _outside(self, eqn, loop: Loop, args: list[Scalar], counted: dict[int, range]) -> list:
        """The results of a loop, which becomes a node."""
        node, first = self.graph.node("loop", loop, *args, key=id(loop)), len(loop.carry)
        turns = range(loop.count)[::-1] if eqn.params["reverse"] else range(loop.count)
        carried = lambda k: self.graph.node("result", k, node, key=k)
        saved = lambda k, turn: self.graph.node("saved", (k - first, turn), node, key=(k - first, turn))
        count, body = scan_arguments(eqn)[1], eqn.params["jaxpr"].jaxpr
        numbers, arrays = iter(range(len(loop.results))), iter(range(len(loop.arrays)))
        found: list = []
        for k, x in enumerate(body.outvars):
            if k in counted:
                found.append(boxed(counted[k].stop))
            elif k < count and loop.arrays and int(np.prod(x.aval.shape)) >= KEPT:
                found.append(self._array(node, next(arrays), x.aval))
            else:
                places = map_objects(lambda _: next(numbers), np.empty(x.aval.shape, object))
                one = lambda turn, places=places: map_objects(partial(saved, turn=turn), places)
                found.append(map_objects(carried, places) if k < count else np.stack([one(n) for n in turns]))
        return found

    def _array(self, node: Ref, k: int, aval: Any) -> Pull:
        """An array that a loop has carried."""
        memory = self.graph.node("result", ("array", k), node, key=("array", k))
        return viewed(View(memory, 0, in_rows(aval.shape)), np.dtype(aval.dtype))

    # -- loops that end by what they compute, and branches
    def _while(self, eqn, inputs: list) -> list:
        (first, condition), (second, body) = while_parts(eqn)
        if self.memory:
            count = first + second
            inputs = [
                self._for_loop(x, v, KEPT, k >= count) for k, (x, v) in enumerate(zip(inputs, eqn.invars, strict=True))
            ]
        tested, used, start = inputs[:first], inputs[first : first + second], inputs[first + second :]
        single = not condition.jaxpr.outvars[0].aval.shape
        going = reductions.some(self.graph, self.arrays.scalars(self.closed(condition, [*tested, *start])[0]))
        if is_number(going) and not going:
            return start

        def turn(inner: Inner, carry: list) -> tuple[Scalar, list]:
            inside = lambda arrays: list(map(inner.of, arrays))
            outs = inner.run.closed(body, [*inside(used), *carry])
            if not single:  # one condition for each of several: what is done stays
                on = inner.run.arrays.scalars(inner.run.closed(condition, [*inside(tested), *carry])[0])
                outs, old = (list(map(inner.run.arrays.scalars, x)) for x in (outs, carry))
                outs = [_chosen(inner.graph, on, a, b) for a, b in zip(old, outs, strict=True)]
            again = inner.run.closed(condition, [*inside(tested), *outs])[0]
            return reductions.some(inner.graph, inner.run.arrays.scalars(again)), outs

        return self._repeated(going, start, turn, body.jaxpr.outvars)

    def _repeated(self, going: Scalar, start: list, turn: Callable, variables: Sequence, **count: int) -> list:
        """The results of turn(inner, carry) -> (whether to go on, carry), done from the start on, while `going`."""
        inner = self.inner()
        arrays = [k for k, x in enumerate(start) if isinstance(x, Pull)]
        carry = [
            inner.carried(x) if k in arrays else map_objects(lambda _: inner.graph.input(), x)
            for k, x in enumerate(start)
        ]
        again, outs = turn(inner, carry)
        own = [place(carry[k]) for k in arrays]
        following = [inner.following(outs[k], carry, k) for k in arrays]
        others = lambda values: [x for k, x in enumerate(values) if k not in arrays]
        first, before = _flat(others(start)), _flat(others(carry))
        after, dtypes = _flat(map(inner.run.arrays.scalars, others(outs))), _dtypes(others(variables))
        # What no turn changes is not carried.
        moves = [
            is_number(x) or is_number(old) or x.index != new.index
            for new, x, old in zip(before, after, first, strict=True)
        ]
        fixed = [k for k, m in enumerate(moves) if not m]
        moving = [k for k, m in enumerate(moves) if m]
        still = [n for n, (x, y) in enumerate(zip(own, following, strict=True)) if x.index == y.index]
        moved = [n for n in range(len(arrays)) if n not in still]
        memory = [place(start[k]) for k in arrays]
        loop = While(
            inner.graph,
            [again, *(after[k] for k in moving), *(following[n] for n in moved)],
            dtypes=[dtypes[k] for k in moving],
            carry=[before[k].index for k in moving],
            captured=[*inner.captured, *(before[k].index for k in fixed), *(own[n].index for n in still)],
            arrays=[own[n].index for n in moved],
            **count,
        )
        args = [going, *(first[k] for k in moving), *inner.outside, *(first[k] for k in fixed)]
        args += [*(memory[n] for n in still), *(memory[n] for n in moved)]
        node = self.graph.node("while", loop, *args, key=id(loop))
        found = dict(zip(fixed, (first[k] for k in fixed), strict=True))
        found |= {k: self.graph.node("result", n, node, key=n) for n, k in enumerate(moving)}
        entries = iter(found[k] for k in range(len(first)))
        result = lambda n, k: start[k] if n in still else self._array(node, moved.index(n), variables[k].aval)
        whole = {k: result(n, k) for n, k in enumerate(arrays)}
        return [whole[k] if k in arrays else map_objects(lambda _: next(entries), x) for k, x in enumerate(start)]

    def _cond(self, eqn, inputs: list) -> list:
        """The results of the branch that is asked for. All short branches are computed, of the long ones only that."""
        (index, *values), branches = inputs, eqn.params["branches"]
        which: Scalar = index[()]
        if is_number(which):
            return self.closed(branches[min(max(int(which), 0), len(branches) - 1)], values)
        if self.memory:
            values = [self._for_loop(x, v, KEPT) for x, v in zip(values, eqn.invars[1:], strict=True)]
        found: list = [objects(np.zeros(x.aval.shape, x.aval.dtype)) for x in eqn.outvars]
        for k, branch in enumerate(branches):
            test = self._asks_for(which, k, len(branches), eqn.invars[0].aval.dtype == bool)
            if _count(branch.jaxpr) > JUMPED:

                def once(inner: Inner, _: list, branch=branch) -> tuple[Scalar, list]:
                    return False, inner.run.closed(branch, list(map(inner.of, values)))

                if self.memory:
                    found = [self._for_loop(x, v, KEPT, True) for x, v in zip(found, eqn.outvars, strict=True)]
                found = self._repeated(test, found, once, eqn.outvars, count=1)
                continue
            outs = self.closed(branch, values)
            found = (
                [self._one_of(test, a, b, v) for a, b, v in zip(found, outs, eqn.outvars, strict=True)] if k else outs
            )
        return found

    def _one_of(self, test: Ref, no: Any, yes: Any, atom: Any) -> Any:
        """`yes` where a truth value is true."""
        if isinstance(no, Pull) or isinstance(yes, Pull):
            a, b = (self.arrays.pulled(x, np.dtype(atom.aval.dtype)) for x in (no, yes))
            at = lambda body, index: indexing.selected(
                body.graph, body.capture(test), a.at(body, index), b.at(body, index)
            )
            return self.arrays.settled(Pull(a.shape, a.dtype, at))
        select = np.frompyfunc(lambda a, b: indexing.selected(self.graph, test, a, b), 2, 1)
        return boxed(select(no, yes))

    def _asks_for(self, which: Ref, k: int, count: int, boolean: bool) -> Scalar:
        """Whether a switch takes branch k of `count`."""
        if boolean:
            return which if k else self.graph.node("not", None, which, key="not")
        name = "le" if k == 0 else "ge" if k == count - 1 else "eq"
        return self.graph.node(name, None, which, k, key=name)


def _is_known(x: Any) -> bool:
    """Whether all entries are numbers."""
    return not isinstance(x, Pull) and all(map(is_number, x.flat))


def _chosen(graph: Graph, on: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """`new` where truth values, of the first axes, are true."""
    select = np.frompyfunc(lambda test, a, b: indexing.selected(graph, test, a, b), 3, 1)
    return boxed(select(on.reshape(*on.shape, *[1] * (old.ndim - on.ndim)), old, new))


def _counted(eqn: Any, carry: Sequence[np.ndarray]) -> dict[int, range]:
    """The numbers that a scan carries if it adds a known one in each turn, by their place; and where they end."""
    body, first, found = eqn.params["jaxpr"].jaxpr, scan_arguments(eqn)[0], {}
    made = {out: x for x in body.eqns for out in x.outvars}
    for k, start in enumerate(carry):
        own, out = body.invars[first + k], body.outvars[k]
        rule = None if isinstance(out, Literal) else made.get(out)
        if rule is None or rule.primitive.name != "add" or own.aval.shape or own.aval.dtype.kind != "i":
            continue
        steps = [int(x.val) for x in rule.invars if isinstance(x, Literal)]
        if len(steps) == 1 and steps[0] and any(x is own for x in rule.invars) and is_number(start[()]):
            at = int(start[()])
            found[k] = range(at, at + eqn.params["length"] * steps[0], steps[0])
    return found


def _count(jaxpr: Any) -> int:
    """Entries of the results of all equations."""
    inner = lambda eqn: sum(map(_count, jaxprs_in(eqn)))
    return sum(inner(x) or sum(int(np.prod(y.aval.shape)) for y in x.outvars) for x in jaxpr.eqns)


def _flat(arrays: Iterable[np.ndarray]) -> list[Scalar]:
    return [x for array in arrays for x in array.flat]


def _dtypes(variables: Sequence) -> list[np.dtype]:
    """Dtypes of the numbers of these."""
    return [np.dtype(x.aval.dtype) for x in variables for _ in range(int(np.prod(x.aval.shape)))]


class _Reads:
    """Scalars outside that a loop reads, turn by turn. of, loops: as `Loop.reads`, and the loops that it reads."""

    def __init__(self, run: Loops, inner: Inner, turn: Ref, length: int, reverse: bool):
        self.run, self.inner, self.turn, self.reverse = run, inner, turn, reverse
        self.order = range(length)[::-1] if reverse else range(length)
        self.loops: list[int] = []
        self.of: dict[int, tuple[int, int, bool]] = {}

    def entry(self, column: np.ndarray) -> Scalar:
        """One of the scalars of a column, by turn."""
        column, graph, capture = column[::-1] if self.reverse else column, self.inner.graph, self.inner.capture
        if len({x.index if isinstance(x, Ref) else ("#", x) for x in column}) == 1:
            return capture(column[0])
        if all(map(is_number, column)):
            return graph.entry(self.turn, column.tolist())
        if (saved := self.run._saved_by_one_loop(list(column))) is None:
            before, number = len(graph.ops), graph.entry(self.turn, range(len(self.order)))
            found = indexing.entry(graph, list(map(capture, column)), number)
            self.inner.run.choices += len(graph.ops) - before
            return found
        node, (read, value, backwards) = graph.input(), saved
        if read not in self.loops:
            self.loops.append(read)
        self.of[node.index] = self.loops.index(read), value, backwards
        return node


def _columns(f: Callable, stack: np.ndarray) -> np.ndarray:
    """f of each entry over the first axis."""
    out = np.empty(stack.shape[1:], object)
    for index in np.ndindex(*out.shape):
        out[index] = f(stack[(slice(None), *index)])
    return out


def turn_by_turn(step: Callable, carry: list, xs: list, length: int, reverse: bool, kept: int) -> list[np.ndarray]:
    """A scan with all its turns written out."""
    saved: list[list] = [[None] * length for _ in range(kept)]
    for turn in reversed(range(length)) if reverse else range(length):
        out = step(carry, [_at(x, turn) for x in xs])
        carry = out[: len(carry)]
        for stack, value in zip(saved, out[len(carry) :], strict=True):
            stack[turn] = value
    return [*carry, *map(np.stack, saved)]


def _at(x: Any, k: int) -> Any:
    if isinstance(x, Pull):
        view = x.view
        assert view is not None
        return viewed(View(view.memory, view.first + view.axes[0][k], view.axes[1:], view.terms), x.dtype)
    return map_objects(lambda y: y, x[k : k + 1].reshape(x.shape[1:]))
