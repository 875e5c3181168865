"""A whole function of small arrays as one straight line of operations on scalars, with loops where it has any.

It does for everything that is computed for one system what `step.py` does for a body step: levels and bodies are
unrolled, and known numbers are folded. Kernels are written from such programs (`kernels/translation.py`).

Read first: `interpreter.py`, whose rules this adds to. Next: `sums.py`, `ordering.py`, `kernels/translation.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from typing import Any

import jax
import numpy as np

from lgjax.execution._jax import is_traced, jaxprs_in, scan_arguments
from lgjax.execution.graph import Graph, Operations, Ref, Scalar, is_number
from lgjax.execution.interpreter import Interpreter, map_objects, objects
from lgjax.execution.ordering import asked_for, frugal, orders_of, waiting
from lgjax.execution.scan import loop_p
from lgjax.execution.step import emission, step_p
from lgjax.execution.sums import with_sums

UNROLLED = 8  # turns of a loop that saves or reads something in every turn, which are written out
WRITTEN_OUT = 4000  # operations, of which more stay a loop
SAVED = 8192  # numbers that a loop may save: the memory of a thread ends at 512 kB
REDUCTIONS = {"reduce_and": "and", "reduce_or": "or", "reduce_max": "max", "reduce_min": "min"}
NOT_COUNTED = ("input", "loop", "result", "saved")


@dataclass(eq=False)
class Region:
    """A graph and what is asked of it."""

    graph: Graph
    results: list[Scalar]

    @cached_property
    def wanted(self) -> list[int]:
        """The nodes of the results."""
        return [x.index for x in self.results if isinstance(x, Ref)]

    @cached_property
    def ops(self) -> Operations:
        """The operations, with sums whose terms may be added in any order."""
        return with_sums(self.graph.ops, self.wanted)

    @cached_property
    def orders(self) -> tuple[list[int], ...]:
        """Orders of the nodes that the results need."""
        return orders_of(self.ops, self.wanted)

    @cached_property
    def frugal(self) -> list[int]:
        """The first of them."""
        return frugal(self.ops, self.wanted, asked_for(self.ops, self.wanted))

    @cached_property
    def order(self) -> list[int]:
        """That in which the fewest values wait to be used."""
        return min(self.orders, key=lambda order: waiting(self.ops, order, self.wanted))

    @property
    def waiting(self) -> int:
        """The largest number of values that wait at one time: registers wanted. Loops inside are not looked into."""
        return waiting(self.ops, self.order, self.wanted)

    @property
    def operations(self) -> dict[str, int]:
        """Number of operations of each name; those of a loop count once per iteration."""
        counts: dict[str, int] = {}
        for index in asked_for(self.graph.ops, self.wanted):
            name, what, _ = self.graph.ops[index]
            inside = {k: n * what.count for k, n in what.operations.items()} if name == "loop" else {name: 1}
            for k, n in inside.items():
                counts[k] = counts.get(k, 0) + n
        return {k: n for k, n in counts.items() if k not in NOT_COUNTED}


@dataclass(eq=False)
class Loop(Region):
    """A region that runs `count` times; the next turn begins with the first of its results, the others are saved.

    carry: its input nodes that carry. captured: input nodes for values from outside. tables: numbers of an input node,
    one for each turn. reads: of an input node, which of the loops that it reads, which of the values that loop saved,
    and whether from the last turn to the first.

    Outside, the loop is a node "loop". Its arguments are the start, the captured values and the loops that it reads. It
    is followed by nodes "result", and nodes "saved" for (which value, turn).
    """

    count: int
    dtypes: list
    carry: list[int]
    captured: list[int]
    tables: dict[int, tuple]
    reads: dict[int, tuple[int, int, bool]]


class ScalarProgram(Region):
    """A jaxpr of one system on scalars.

    inputs: one object array of nodes per argument. outputs: one object array of nodes and numbers per result.
    Raises NotImplementedError, naming it, for an operation that cannot be done scalar by scalar.
    """

    def __init__(self, jaxpr: Any, constants: Sequence = ()):
        graph = Graph()
        enter = lambda aval: map_objects(lambda _: graph.input(), np.empty(aval.shape, object))
        self.inputs = [enter(x.aval) for x in jaxpr.invars]
        self.outputs = Unrolling(graph).evaluate(jaxpr, list(map(objects, constants)), self.inputs)
        self.dtypes = [np.dtype(x.aval.dtype) for x in jaxpr.invars]
        self.out_dtypes = [np.dtype(x.aval.dtype) for x in jaxpr.outvars]
        super().__init__(graph, [x for out in self.outputs for x in out.flat])
        graph.close()

    @cached_property
    def used(self) -> set[int]:
        """The nodes of inputs that are read."""
        return {index for index in self.orders[0] if self.ops[index][0] == "input"}


def program_of(function: Callable, *specs: Any) -> ScalarProgram:
    """The program of `function(*args)`, traced on pytrees of anything with a shape and a dtype.

    Traced arrays that the function closes over are refused with ValueError: pass them as arguments.
    """
    closed = jax.make_jaxpr(function)(*specs)
    if any(map(is_traced, closed.consts)):
        raise ValueError("the function closes over traced arrays; pass them as arguments")
    return ScalarProgram(closed.jaxpr, closed.consts)


class Unrolling(Interpreter):
    """Evaluates jaxprs of whole algorithms: recursions are unrolled, other loops stay loops if they can."""

    def _apply(self, eqn, inputs: list[np.ndarray]) -> list[np.ndarray]:
        name, params = eqn.primitive.name, eqn.params
        if eqn.primitive is loop_p:
            return self._levels(params["loop"], inputs)
        if eqn.primitive is step_p:
            closed = jax.make_jaxpr(emission(**params))(*(x.aval for x in eqn.invars))
            return self.evaluate(closed.jaxpr, list(map(objects, closed.consts)), inputs)
        if name == "lane_call" and params["size"] is not None:
            run = lambda values: self.evaluate(params["jaxpr"], [], values)
            return _each(run, inputs, params["batched"], params["size"])
        if name == "custom_linear_solve":
            return self._solved(eqn, inputs)
        if name == "scan":
            return self._scan(eqn, inputs)
        if name == "cond":
            return self._cond(eqn, inputs)
        if name in REDUCTIONS:
            return [self._reduced(REDUCTIONS[name], params["axes"], inputs[0])]
        return super()._apply(eqn, inputs)

    def _refusal(self, name: str) -> Exception:
        return NotImplementedError(f"{name!r} cannot be done scalar by scalar")

    def _reduced(self, name: str, axes: tuple[int, ...], x: np.ndarray) -> np.ndarray:
        """Pair by pair, of numbers at once."""
        on_numbers, empty = {"and": (min, True), "or": (max, False), "max": (max, -inf), "min": (min, inf)}[name]

        def pair(a: Scalar, b: Scalar) -> Scalar:
            return on_numbers(a, b) if is_number(a) and is_number(b) else self.graph.node(name, None, a, b, key=name)

        for axis in sorted(axes, reverse=True):
            x = np.frompyfunc(pair, 2, 1, identity=empty).reduce(x, axis=axis)
        return map_objects(lambda y: y, np.asarray(x, object))

    def _levels(self, loop, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """All levels of a recursion, one after the other."""
        if loop.size is not None:
            single = lambda values: self._unrolled(loop, values)
            return _each(single, inputs, loop.batched, loop.size)
        return self._unrolled(loop, inputs)

    def _unrolled(self, loop, inputs: list[np.ndarray]) -> list[np.ndarray]:
        constants, carry, xs = loop.parts(inputs)
        step = lambda carry, now: self.evaluate(loop.level, [], [*constants, *carry, *now])
        return _turns(step, carry, xs, loop.length, loop.reverse, len(loop.level.outvars) - len(carry))

    def _scan(self, eqn, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """A loop if it can be one, but few turns that save or read something are written out unless they are long."""
        params, body = eqn.params, eqn.params["jaxpr"]
        constants, carry = scan_arguments(eqn)
        constants, carry, xs = inputs[:constants], inputs[constants : constants + carry], inputs[constants + carry :]
        plain = len(body.jaxpr.outvars) == len(carry) and all(is_number(x) for array in xs for x in array.flat)
        length, loop, args = params["length"], None, []
        try:
            if length > 1:
                loop, args = self._loop(eqn, constants, carry, xs)
        except NotImplementedError:
            if length > UNROLLED:
                raise
        if loop is not None and (plain or length > UNROLLED or length * sum(loop.operations.values()) > WRITTEN_OUT):
            return self._outside(eqn, loop, args)
        step = lambda carry, now: self.evaluate(body.jaxpr, list(map(objects, body.consts)), [*constants, *carry, *now])
        kept = len(body.jaxpr.outvars) - len(carry)
        if not length:  # nothing is saved
            return [*carry, *(np.empty((0, *x.aval.shape), object) for x in body.jaxpr.outvars[len(carry) :])]
        return _turns(step, carry, xs, length, params["reverse"], kept)

    def _loop(self, eqn, constants, carry, xs) -> tuple[Loop, list[Scalar]]:
        """The body of a scan once, as a graph of its own, and the arguments of the loop's node."""
        params, body = eqn.params, eqn.params["jaxpr"]
        graph, outside = Graph(), {}

        def capture(x: Scalar) -> Scalar:
            if is_number(x):
                return x
            if x.index not in outside:
                outside[x.index] = graph.input()
            return outside[x.index]

        known = [map_objects(capture, x) for x in constants]
        start = [map_objects(lambda _: graph.input(), x) for x in carry]
        tables: dict[int, tuple] = {}
        loops: list[int] = []
        reads: dict[int, tuple[int, int, bool]] = {}

        def entry(column: np.ndarray) -> Scalar:
            column = column[::-1] if params["reverse"] else column
            if len({x.index if isinstance(x, Ref) else ("#", x) for x in column}) == 1:
                return capture(column[0])
            node = graph.input()
            if all(map(is_number, column)):
                tables[node.index] = tuple(column)
            else:
                read, value, backwards = self._saved_by_one_loop(list(column))
                if read not in loops:
                    loops.append(read)
                reads[node.index] = loops.index(read), value, backwards
            return node

        now = [_columns(entry, x) for x in xs]
        inside = type(self)(graph)
        outs = inside.evaluate(body.jaxpr, list(map(objects, body.consts)), [*known, *start, *now])
        flat = lambda arrays: [x for array in arrays for x in array.flat]
        loop = Loop(
            graph,
            flat(outs),
            count=params["length"],
            dtypes=[np.dtype(x.aval.dtype) for x in body.jaxpr.outvars for _ in range(int(np.prod(x.aval.shape)))],
            carry=[x.index for x in flat(start)],
            captured=[x.index for x in outside.values()],
            tables=tables,
            reads=reads,
        )
        if loop.count * (len(loop.results) - len(loop.carry)) > SAVED:
            raise NotImplementedError(f"a scan that saves more than {SAVED} numbers")
        return loop, [*flat(carry), *map(Ref, outside), *map(Ref, loops)]

    def _saved_by_one_loop(self, column: Sequence[Scalar]) -> tuple[int, int, bool]:
        """The loop that saved the numbers, one in each turn, which of its values they are, and if the last is first."""
        ops = [self.graph.ops[x.index] for x in column if isinstance(x, Ref)]
        saved: list[tuple] = [(args[0].index, *what) for name, what, args in ops if name == "saved"]
        if len(saved) == len(column) and len({(loop, value) for loop, value, _ in saved}) == 1:
            loop, value, first = saved[0]
            turns, all_turns = [turn for *_, turn in saved], list(range(self.graph.ops[loop][1].count))
            if turns in (all_turns, all_turns[::-1]):
                return loop, value, first > 0
        raise NotImplementedError("a scan that reads arrays turn by turn")

    def _outside(self, eqn, loop: Loop, args: list[Scalar]) -> list[np.ndarray]:
        """The results of a loop, which becomes a node."""
        node, first = self.graph.node("loop", loop, *args, key=id(loop)), len(loop.carry)
        turns = range(loop.count)[::-1] if eqn.params["reverse"] else range(loop.count)
        carried = lambda k: self.graph.node("result", k, node, key=k)
        saved = lambda k, turn: self.graph.node("saved", (k - first, turn), node, key=(k - first, turn))
        numbers = iter(range(len(loop.results)))
        places = [
            map_objects(lambda _: next(numbers), np.empty(x.aval.shape, object))
            for x in eqn.params["jaxpr"].jaxpr.outvars
        ]
        count = scan_arguments(eqn)[1]
        stacks = [np.stack([map_objects(partial(saved, turn=n), x) for n in turns]) for x in places[count:]]
        return [*(map_objects(carried, x) for x in places[:count]), *stacks]

    def _solved(self, eqn, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """What the given solver finds."""
        lengths, solve = eqn.params["const_lengths"], eqn.params["jaxprs"].solve
        first = lengths.matvec + lengths.vecmat
        constants, right = inputs[first : first + lengths.solve], inputs[sum(lengths) :]
        return self.evaluate(solve.jaxpr, list(map(objects, solve.consts)), [*constants, *right])

    def _cond(self, eqn, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """Every branch, and the results of the one that is asked for."""
        (index, *values), branches = inputs, eqn.params["branches"]
        which: Scalar = index[()]
        run = lambda branch: self.evaluate(branch.jaxpr, list(map(objects, branch.consts)), values)
        if is_number(which):
            return run(branches[min(max(int(which), 0), len(branches) - 1)])
        if len(branches) != 2:
            raise NotImplementedError("a switch between more than two branches")
        no, yes = map(run, branches)
        boolean = eqn.invars[0].aval.dtype == bool
        test = which if boolean else self._different(which)
        select = np.frompyfunc(lambda a, b: self._selected(test, a, b), 2, 1)
        return [map_objects(lambda x: x, np.asarray(select(a, b), object)) for a, b in zip(no, yes, strict=True)]

    def _different(self, x: Ref) -> Scalar:
        return self.graph.node("ne", None, x, 0, key="ne")

    def _selected(self, test: Scalar, a: Scalar, b: Scalar) -> Scalar:
        if (a.index if isinstance(a, Ref) else a) == (b.index if isinstance(b, Ref) else b) and type(a) is type(b):
            return a
        return self.graph.node("select_n", None, test, a, b, key="select_n")


def size_of(jaxpr: Any) -> int:
    """An estimate, about three times the number of operations of its program; bodies of scans count once."""
    total = 0
    for eqn in jaxpr.eqns:
        entries = max((int(np.prod(x.aval.shape)) for x in eqn.outvars), default=1)
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            entries *= int(np.prod([eqn.invars[0].aval.shape[axis] for axis in contracted]))
        if eqn.primitive is step_p:
            total += entries * len(eqn.params["traced"].graph.ops)
        elif eqn.primitive is loop_p:
            total += eqn.params["loop"].length * size_of(eqn.params["loop"].level)
        else:
            total += sum(map(size_of, jaxprs_in(eqn))) or entries
    return total


def longest(jaxpr: Any) -> int:
    """The levels of the longest recursion, which are written out one after the other."""
    own = [eqn.params["loop"].length for eqn in jaxpr.eqns if eqn.primitive is loop_p]
    return max([*own, *(longest(inner) for eqn in jaxpr.eqns for inner in jaxprs_in(eqn))], default=0)


def _columns(f: Callable, stack: np.ndarray) -> np.ndarray:
    """f of each entry over the first axis."""
    out = np.empty(stack.shape[1:], object)
    for index in np.ndindex(*out.shape):
        out[index] = f(stack[(slice(None), *index)])
    return out


def _turns(step: Callable, carry: list, xs: list, length: int, reverse: bool, kept: int) -> list[np.ndarray]:
    """A scan with all its turns written out."""
    saved: list[list] = [[None] * length for _ in range(kept)]
    for turn in reversed(range(length)) if reverse else range(length):
        out = step(carry, [_at(x, turn) for x in xs])
        carry = out[: len(carry)]
        for place, value in zip(saved, out[len(carry) :], strict=True):
            place[turn] = value
    return [*carry, *(np.stack(place) for place in saved)]


def _at(x: np.ndarray, k: int) -> np.ndarray:
    return map_objects(lambda y: y, x[k : k + 1].reshape(x.shape[1:]))


def _each(run: Callable, inputs: list[np.ndarray], batched: Sequence[bool], size: int) -> list[np.ndarray]:
    """For each system of a batch that lies behind."""
    one: Iterator = ([x[..., k] if b else x for x, b in zip(inputs, batched, strict=True)] for k in range(size))
    boxed = lambda values: [map_objects(lambda y: y, np.asarray(x, object)) for x in values]
    return [np.stack(outs, -1) for outs in zip(*(run(boxed(values)) for values in one), strict=True)]
