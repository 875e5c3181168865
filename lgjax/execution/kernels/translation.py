"""Walks through a scalar program and writes it, instruction by instruction, for a GPU or a CPU.

`Translation` visits its nodes in order and asks a writer for each instruction;
subclasses for the two machines load and store numbers, and write loops. A product and its addition are one operation,
with one rounding; sine and cosine of one angle are computed together, without a branch. Loops stay loops.

Read first: `programs.py`, `writer.py`, `memory.py`. Next: `ptx.py` and `llvm.py`: where numbers are in memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from lgjax.execution.kernels.elementary import sine_and_cosine
from lgjax.execution.kernels.functions import added, write
from lgjax.execution.kernels.memory import Arena, Holding, Memory, Ran, Repeated, Turns, late_fills, written_over
from lgjax.execution.kernels.writer import BOOL, Writer, kind_of, kind_of_dtype
from lgjax.execution.scalars.graph import Ref, is_number
from lgjax.execution.scalars.program import ScalarProgram
from lgjax.execution.scalars.regions import Fill, Loop, Region, While

NOTHING: Mapping[int, int] = MappingProxyType({})


class Translation(ABC):
    """Writes the operations of a program. Values of nodes are registers, or functions that load these when needed.

    LOCAL, GLOBAL: what the names of memory begin with, of a thread's own and of tables.
    """

    LOCAL = GLOBAL = ""

    def __init__(self, out: Writer, program: ScalarProgram, in_place: bool, which: int | None):
        """in_place: results may overwrite arguments. which: the index in each region's `orders`; None: `frugal`."""
        self.out, self.program, self.in_place, self.which = out, program, in_place, which
        self.tables: dict[str, int] = {}  # known numbers, by their text
        self.numbers: list[tuple] = []  # of each table
        self.arena = Arena()
        self.places: list[dict[Any, str]] = [{}]  # known addresses, of each loop that is written now
        self.ran: list[Ran] = []
        self.repeated: list[Repeated] = []

    def write(self) -> None:
        """Write the lines of the whole program: loads, operations and stores."""
        program = self.program
        values: dict[int, Any] = {
            node.index: partial(self._load, leaf, k)
            for leaf, nodes in enumerate(program.inputs)
            for k, node in enumerate(nodes.flat)
        }
        goals: dict[Any, list[tuple]] = {}
        for n, out in enumerate(program.outputs):
            for k, x in enumerate(out.flat):
                goals.setdefault(None if is_number(x) else x.index, []).append((n, k, x))
        written = lambda index: [self._store(n, k, self._value(values, x)) for n, k, x in goals.get(index, ())]
        self._region(program, values, None if self.in_place else written)
        late = [index for index in goals if self.in_place or index is None or program.graph.ops[index][0] == "input"]
        if self.in_place:  # everything is read before anything is written
            for index in late:
                values |= {} if index is None else {index: self._value(values, goals[index][0][2])}
        for index in late:
            written(index)

    # -- what each machine has its own way for
    @abstractmethod
    def _load(self, leaf: int, k: int) -> str:
        """Number k of an argument."""

    @abstractmethod
    def _store(self, n: int, k: int, value: Any) -> None:
        """Number k of a result."""

    @abstractmethod
    def _open(self, loop: While, number: int, going: Any, start: list[Any]) -> Repeated:
        """Begin a loop that runs while `going`, a truth value or its register."""

    @abstractmethod
    def _close(self, repeated: Repeated, again: Any, following: list[Any], read: set[int]) -> None:
        """End it. again: whether to go on; following: as in `_again`; read: which of them are needed after the loop."""

    @abstractmethod
    def _turns(self, count: int, start: list[Any], dtypes: list[np.dtype]) -> Turns:
        """Begin a loop of a known number of turns."""

    @abstractmethod
    def _again(self, turns: Turns, following: list[Any]) -> None:
        """End it. following: what the next turn begins with; after the last, it is `turns.carried`."""

    @abstractmethod
    def _place_at(self, memory: Memory, steps: tuple, turns: list[str]) -> str:
        """The address of number sum(steps turns) of an array; steps are numbers, or tables by turn."""

    @abstractmethod
    def _read(self, memory: Memory, address: str, first: int) -> str:
        """The number `first` numbers behind an address."""

    @abstractmethod
    def _pick(self, memory: Memory, address: str, first: int, number: str) -> str:
        """The same, further by a number of entries that each system computes."""

    @abstractmethod
    def _write(self, memory: Memory, address: str, first: int, value: Any, waits: bool = False) -> None: ...

    @abstractmethod
    def _waiting(self, new: Any, old: Callable[[], Any], kind: str) -> Any:
        """`old` for systems that are done, `new` for all others."""

    @property
    @abstractmethod
    def _width(self) -> int:
        """Bytes of a number in memory."""

    @property
    def array_bytes(self) -> int:
        return self.arena.size * self._width

    def _table_of(self, numbers: tuple, dtype: np.dtype) -> Memory:
        """Known numbers as an array."""
        if (text := repr(numbers)) not in self.tables:
            self.tables[text] = len(self.numbers)
            self.numbers.append(numbers)
        return Memory(f"{self.GLOBAL}table{self.tables[text]}", len(numbers), dtype, True)

    def _entry(self, numbers: tuple, turn: str) -> str:
        """One of known numbers, by turn."""
        memory = self._table_of(numbers, self._own_of(kind_of(*numbers)))
        return self._read(memory, self._address_of(memory, (1,), [turn]), 0)

    @abstractmethod
    def _at_turn(self, ran: Ran, turn: str, backwards: bool) -> str:
        """The address of what a loop saved in a turn; backwards: turns are counted from the last one."""

    @abstractmethod
    def _save(self, ran: Ran, k: int, address: str, value: Any) -> None: ...

    @abstractmethod
    def _load_saved(self, ran: Ran, k: int, address: str, turn: int = 0) -> str: ...

    # -- values
    def _value(self, values: dict[int, Any], x: Any) -> Any:
        """The register of a node, or a number."""
        if is_number(x):
            return x
        value = values[x.index]
        if callable(value):
            values[x.index] = value()
        return values[x.index]

    def _register(self, x: Any, dtype: np.dtype) -> str:
        """A number in a register of its own."""
        return self.out.constant(x, kind_of_dtype(dtype))

    def _region(
        self, region: Region, values: dict, written: Any = None, late: Sequence[int] = (), next_: Mapping = NOTHING
    ) -> None:
        """Write what a region's results need, but for the `late` nodes; its inputs are among the values.

        written(node) is called after each. next_: nodes that may be written over what the region carries, an input.
        """
        ops, pairs, sums = region.ops, {}, {}
        order = region.frugal if self.which is None else region.orders[self.which]
        holding = Holding(
            self.arena, ops, order, [*region.wanted, *(a.index for k in late for a in ops[k][2] if isinstance(a, Ref))]
        )
        for place, index in enumerate(order):
            name, what, args = ops[index]
            if name == "input" or index in late:
                continue
            if name in ("loop", "while"):
                spare = holding.spare(place, args) | holding.passed_on(place, index, next_)
                write_loop = self._loop if name == "loop" else self._while
                write_loop(what, index, values, args, spare, holding.read_of(index))
            elif name == "fill":
                spare = holding.spare(place, args) | holding.last_of(place, args, next_.get(index))
                over = None if what.into else written_over(what, values, args, spare)
                values[index] = self._fill(what, values, args, over)
            elif name == "result":
                source = values[args[0].index]
                values[index] = source.arrays[what[1]] if isinstance(what, tuple) else source.carried[what]
            elif name == "saved":
                ran, (k, turn) = values[args[0].index], what
                values[index] = partial(self._load_saved, ran, k, ran.stack, turn)
            elif name == "term":
                root, sign, _ = what
                sums[root] = added(self.out, sums.get(root), sign, [self._value(values, a) for a in args])
            elif name == "sum":
                values[index] = sums.pop(index)[0]
            elif name in ("sin", "cos"):
                angle = args[0].index
                if angle not in pairs:
                    pairs[angle] = sine_and_cosine(self.out, self._value(values, args[0]))
                values[index] = pairs[angle][name == "cos"]
            elif name == "argument":
                values[index] = self._argument(*what)
            elif name in ("space", "store", "table"):
                values[index] = self._array(name, what, [self._value(values, a) for a in args])
            elif name == "entry":
                values[index] = self._entry(what, values[args[0].index])
            elif name == "load":
                memory, *turns = (self._value(values, a) for a in args)
                values[index] = self._read(memory, self._address_of(memory, what[1], turns), what[0])
            elif name == "pick":
                memory, number, *turns = (self._value(values, a) for a in args)
                values[index] = self._pick(memory, self._address_of(memory, what[1], turns), what[0], number)
            else:
                values[index] = write(self.out, name, what, [self._value(values, a) for a in args])
            holding.done(place, index, values)
            if written is not None and name not in ("loop", "while", "fill"):
                written(index)
            self._divide()
        holding.end()

    def _divide(self) -> None:  # noqa: B027
        """Begin the next piece, on machines that want their instructions in pieces."""

    # -- loops
    def _loop(
        self, loop: Loop, index: int, values: dict[int, Any], args: tuple, spare: set[int], read: set[Any]
    ) -> None:
        """A loop; its value is a `Ran`. spare: arrays that nothing else needs. read: which results are needed."""
        count, others = len(loop.carry), len(args) - len(loop.arrays)
        start = [self._value(values, a) for a in args[:count]]
        arrays = [values[a.index] if a.index in spare else self._begun(values[a.index]) for a in args[others:]]
        turns = self._turns(loop.count, start, loop.dtypes[:count])
        values[index] = ran = Ran(loop, turns, f"{self.LOCAL}stack{len(self.ran)}", self._width, arrays)
        self.ran.append(ran)
        captured = zip(loop.captured, args[count:], strict=False)
        inside: dict[int, Any] = dict(zip(loop.carry, ran.carried, strict=True))
        inside |= {k: values[a.index] for k, a in captured} | {loop.turn: turns.turn}
        inside |= dict(zip(loop.arrays, arrays, strict=True))
        saved = [values[a.index] for a in args[count + len(loop.captured) : others]]
        inside |= self._reads(loop, saved, turns.turn)
        carried = loop.results[len(loop.dtypes) :]
        late = late_fills(loop, carried)
        self._inside(loop, inside, carried, late, set(range(len(arrays))), self._saving(ran, inside))
        following = [self._value(inside, x) for x in loop.results[:count]]
        self._follow_arrays(loop, arrays, carried, inside, late)
        self._again(turns, following)

    def _inside(
        self, loop: Loop | While, values: dict, carried: list, late: dict, freely: set[int], written: Any = None
    ) -> None:
        """Write a loop's region. freely: of the arrays that it carries, those over which the next may be written."""
        arrays = [values[k] for k in loop.arrays]
        for x in arrays:
            x.owners += 1  # the loop itself
        next_ = {x.index: loop.arrays[k] for k, x in enumerate(carried) if k in freely}
        self._region(loop, values, written, [k for nodes in late.values() for k in nodes], next_)
        for x in arrays:
            x.owners -= 1

    def _while(
        self, loop: While, index: int, values: dict[int, Any], args: tuple, spare: set[int], read: set[Any]
    ) -> None:
        """A loop that ends by what it computes; its value is a `Repeated`. spare, read: as in `_loop`.

        Systems that are done keep what is read after the loop.
        """
        count, last = 1 + len(loop.carry), len(args) - len(loop.arrays)
        # What is loaded when it is first used is loaded now: inside, every turn would load it.
        going, *others = [self._value(values, a) for a in args[:last]]
        arrays = [values[a.index] if a.index in spare else self._begun(values[a.index]) for a in args[last:]]
        values[index] = repeated = self._open(loop, len(self.repeated), going, others[: count - 1])
        repeated.arrays = arrays
        self.repeated.append(repeated)
        inside: dict[int, Any] = dict(zip(loop.carry, repeated.carried, strict=True))
        inside |= dict(zip(loop.captured, others[count - 1 :], strict=True))
        inside |= dict(zip(loop.arrays, arrays, strict=True))
        late = late_fills(loop, loop.results[count:])
        waits = {k for k in range(len(arrays)) if ("array", k) in read}
        keeps = lambda k: Holding.kept_inside(loop.ops, loop.results[count + k].index, loop.arrays[k])
        freely = {k for k in range(len(arrays)) if k not in waits or keeps(k)}
        self._inside(loop, inside, loop.results[count:], late, freely)
        again, *following = [self._value(inside, x) for x in loop.results[:count]]
        self._follow_arrays(loop, arrays, loop.results[count:], inside, late, waits)
        self._close(repeated, again, following, {k for k in range(count - 1) if k in read})

    def _fill(self, fill: Fill, values: dict[int, Any], args: tuple, over: Memory | None = None, waits: bool = False):
        """An array whose entries are computed one after the other. over: the memory; waits: as in `_copied`."""
        outside = [self._value(values, a) for a in args]
        memory = outside.pop() if fill.into and over is None else over or self._new(fill.length, fill.dtype)
        inside: dict[int, Any] = dict(zip(fill.captured, outside, strict=False))
        loops, carried = [], [fill.start for _ in fill.totals]
        for k, size in enumerate(fill.sizes):
            own = [] if k < fill.outer else carried
            found = self._turns(size, own, [fill.dtype for _ in own])
            inside[fill.turns[k]], carried = found.turn, carried if k < fill.outer else found.carried
            loops.append(found)
        inside |= dict(zip(fill.totals, carried, strict=True))
        self._region(fill, inside)
        found = [self._value(inside, x) for x in fill.results]
        for turns in reversed(loops[fill.outer :]):
            self._again(turns, found)
            found = turns.carried
        for (first, steps, turns), value in zip(fill.places, found, strict=True):
            address = self._address_of(memory, steps, [inside[k] for k in turns])
            if waits:
                value = self._waiting(value, partial(self._read, memory, address, first), kind_of_dtype(fill.dtype))
            self._write(memory, address, first, value, waits)
        for turns in reversed(loops[: fill.outer]):
            self._again(turns, [])
        return memory

    # -- arrays in memory
    def _array(self, name: str, what: Any, numbers: list[Any]) -> Memory:
        if name == "table":
            dtype, known = what
            return self._table_of(known, self._own(dtype))
        length, dtype = what if name == "space" else (len(numbers), what)
        memory = self._new(length, dtype)
        address = self._address_of(memory, (), []) if numbers else ""
        for k, x in enumerate(numbers):
            self._write(memory, address, k, x)
        return memory

    def _argument(self, leaf: int, length: int, dtype: np.dtype) -> Memory:
        """An argument as an array in memory of the thread."""
        return self._array("store", dtype, [self._load(leaf, k) for k in range(length)])

    def _new(self, length: int, dtype: np.dtype) -> Memory:
        """Memory for an array."""
        return Memory(f"{self.LOCAL}arrays", length, self._own(dtype), first=self.arena.take(length))

    def _own(self, dtype: np.dtype) -> np.dtype:
        """The dtype that the program stores numbers of this dtype in."""
        return self._own_of(kind_of_dtype(dtype))

    def _own_of(self, kind: str) -> np.dtype:
        return {"f": np.dtype("float64" if self.out.double else "float32"), "i": np.dtype("int32"), "p": BOOL}[kind]

    def _address_of(self, memory: Memory, steps: tuple, turns: list[str]) -> str:
        key = memory.place, steps, tuple(turns)
        for known in self.places:
            if key in known:
                return known[key]
        found = self.places[-1][key] = self._place_at(memory, steps, turns)
        return found

    def _begun(self, start: Memory) -> Memory:
        """A copy with which a loop begins."""
        memory = self._new(start.length, start.dtype)
        self._copied(memory, start)
        return memory

    def _follow_arrays(
        self, loop: Region, arrays: list[Memory], results: list, values: dict, late: dict, waits: Container[int] = ()
    ) -> None:
        """Write the arrays that a loop carries next to their places.

        waits: the arrays of which systems that are done keep theirs.
        """
        for k, (x, to) in enumerate(zip(results, arrays, strict=True)):
            if x.index not in late and values[x.index] is not to:
                self._copied(to, values[x.index], k in waits)
        for k, (x, to) in enumerate(zip(results, arrays, strict=True)):
            nodes = late.get(x.index, [])
            for index in reversed(nodes[:-1] if len(nodes) > 1 else nodes):  # the copy is left out
                _, what, args = loop.ops[index]
                self._fill(what, values, args[:-1] if what.into else args, to, k in waits)

    def _copied(self, to: Memory, source: Memory, waits: bool = False) -> None:
        """Copy an array. waits: systems that are done keep what they have."""
        together = next(n for n in (4, 3, 2, 1) if to.length % n == 0)
        turns = self._turns(to.length // together, [], [])
        here, there = (self._address_of(x, (together,), [turns.turn]) for x in (to, source))
        for k in range(together):
            value = self._read(source, there, k)
            old = partial(self._read, to, here, k)
            self._write(to, here, k, self._waiting(value, old, kind_of_dtype(to.dtype)) if waits else value, waits)
        self._again(turns, [])

    def _saving(self, ran: Ran, inside: dict[int, Any]) -> Callable[[int], None] | None:
        """Save inputs and known numbers now; return a function that saves a node once it is computed."""
        if not ran.saved:
            return None
        here, count, nodes = self._at_turn(ran, ran.turns.turn, False), len(ran.loop.carry), {}
        for k, x in enumerate(ran.loop.results[count : len(ran.loop.dtypes)]):
            if is_number(x) or ran.loop.graph.ops[x.index][0] == "input":
                self._save(ran, k, here, self._value(inside, x))
            else:
                nodes.setdefault(x.index, []).append(k)

        def save(index: int) -> None:
            for k in nodes.get(index, ()):
                self._save(ran, k, here, self._value(inside, Ref(index)))

        return save

    def _reads(self, loop: Loop, ran: list[Ran], turn: str) -> dict[int, Callable[[], str]]:
        """Functions that load the values that a loop reads from others."""
        ways = sorted({(n, backwards) for n, _, backwards in loop.reads.values()})
        here = {(n, backwards): self._at_turn(ran[n], turn, backwards) for n, backwards in ways}
        return {
            node: partial(self._load_saved, ran[n], k, here[n, backwards])
            for node, (n, k, backwards) in loop.reads.items()
        }
