"""Loops and arrays of a program while a kernel is written: what is in memory, and how long.

Read first: `../scalars/regions.py`. Next: `translation.py`, which writes with them.
"""

from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lgjax.execution.kernels.writer import kind_of_dtype
from lgjax.execution.scalars.graph import Ref
from lgjax.execution.scalars.regions import Fill, Loop, While


@dataclass(eq=False)
class Memory:
    """An array in memory. place: an address, behind which it begins with number `first`. known: whether its numbers are
    the same for all systems. owners: how many nodes that are still to be used have it as their value.
    """

    place: str
    length: int
    dtype: np.dtype
    known: bool = False
    owners: int = 0
    first: int = 0
    # Layout of an argument: its numbers lie in "columns" of one vector each, or one "batch" apart, or are for "all".
    given: str = ""

    @property
    def kept(self) -> bool:
        """Whether nothing may be written to it."""
        return self.known or bool(self.given)


class Arena:
    """Memory for all arrays of a system, some of it free. size: numbers; free: first and length of what is."""

    def __init__(self) -> None:
        self.size, self.free = 0, list[tuple[int, int]]()

    def take(self, length: int) -> int:
        """The first of so many numbers that become taken: the shortest free ones that are enough, else new ones."""
        if fits := [(own, first) for first, own in self.free if own >= length]:
            own, first = min(fits)
            self.free.remove((first, own))
            if own > length:
                insort(self.free, (first + length, own - length))
            return first
        first = self.size
        if self.free and sum(self.free[-1]) == self.size:
            first, _ = self.free.pop()
        self.size = first + length
        return first

    def give(self, first: int, length: int) -> None:
        """Numbers become free, together with free ones beside them."""
        for neighbor in [x for x in self.free if sum(x) == first or x[0] == first + length]:
            self.free.remove(neighbor)
            first, length = min(first, neighbor[0]), length + neighbor[1]
        insort(self.free, (first, length))


@dataclass
class Turns:
    """A loop of a known number of turns, while it is written and after: its turn, and what it carries."""

    count: int
    turn: str
    carried: list[Any]
    dtypes: list[np.dtype]
    number: int


@dataclass
class Repeated:
    """A `While`, while it is written and after: what it carries, and the register that says which systems go on."""

    loop: While
    number: int
    carried: list[Any]
    going: Any = None
    arrays: list[Memory] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        return [kind_of_dtype(x) for x in self.loop.dtypes]


@dataclass
class Ran:
    """A loop of the program, while it is written and after.

    stack: the name of the memory in which it saves values, `width` bytes each. arrays: that it carries.
    """

    loop: Loop
    turns: Turns
    stack: str
    width: int
    arrays: list[Memory]

    @property
    def carried(self) -> list[Any]:
        return self.turns.carried

    @property
    def saved(self) -> list[np.dtype]:
        """The dtypes of the values that it saves in an iteration."""
        return self.loop.dtypes[len(self.loop.carry) :]

    @property
    def bytes(self) -> int:
        """Bytes of a turn."""
        return self.width * len(self.saved)


def late_fills(loop: Loop | While, results: Sequence[Ref]) -> dict[int, list[int]]:
    """Nodes that fill what a loop carries next, which may write it over what it carries now, when all else is done.

    By the node of the result: it, and before it a copy of what is carried, of which it changes a part, or several parts
    by one node after the other. It reads what is carried only where it writes, and none of the other arrays that are
    written so.
    """
    found: dict[int, list[int]] = {}
    ops = loop.ops
    users = Counter(a.index for _, _, args in ops for a in args if isinstance(a, Ref))
    users.update(x.index for x in loop.results if isinstance(x, Ref))
    for carried, x in zip(loop.arrays, results, strict=True):
        nodes = _chain(ops, users, x.index, carried)
        if not nodes or any(_reads_others(ops, k, carried, set(loop.arrays)) for k in nodes):
            continue
        found[x.index] = nodes
    return found


def _chain(ops: list, users: Counter, index: int, carried: int) -> list[int]:
    """The node of a fill, and if it changes parts of an array the nodes before it, back to a copy of what is carried.

    No nodes where something else reads one of them.
    """
    nodes = []
    while ops[index][0] == "fill" and users[index] == 1:
        nodes.append(index)
        _, fill, args = ops[index]
        if not fill.into:
            copies = fill.copies and args[0].index == carried
            return nodes if copies or len(nodes) == 1 else []
        index = args[-1].index
    return []


def _reads_others(ops: list, index: int, carried: int, arrays: set[int]) -> bool:
    """Whether a fill reads arrays that a loop carries, or of its own what it does not write."""
    _, fill, args = ops[index]
    args = args[:-1] if fill.into else args
    own = [node for node, a in zip(fill.captured, args, strict=True) if a.index == carried]
    others = {a.index for a in args if isinstance(a, Ref)} & (arrays - {carried})
    return bool(others) or any(fill.into or not fill.in_place_of(node) for node in own)


def written_over(fill: Fill, values: dict[int, Any], args: Sequence[Ref], spare: set[int]) -> Memory | None:
    """One of the `spare` arrays that a fill reads, if it reads each entry only where it writes it."""
    for node, a in zip(fill.captured, args, strict=False):
        memory = values[a.index] if a.index in spare else None
        if memory is None or (memory.length, memory.dtype) != (fill.length, fill.dtype):
            continue
        if fill.in_place_of(node):
            return memory
    return None


class Holding:
    """Which nodes of a region hold arrays in memory; what no node holds is free."""

    def __init__(self, arena: Arena, ops: Any, order: list[int], wanted: list[int]):
        self.arena, self.ops, self.of = arena, ops, {}
        self.last = {a.index: n for n, index in enumerate(order) for a in ops[index][2] if isinstance(a, Ref)}
        self.last |= dict.fromkeys(wanted, len(order))
        self.read: dict[int, set[Any]] = {}  # of loops, which results are read
        for index in order:
            if ops[index][0] == "result":
                self.read.setdefault(ops[index][2][0].index, set()).add(ops[index][1])

    def read_of(self, index: int) -> set[Any]:
        """The results of a loop that are read: numbers by their places, arrays as ("array", place)."""
        return self.read.get(index, set())

    def last_of(self, place: int, args: Sequence[Any], index: int | None) -> set[int]:
        """An input, if a node is the last to read it, and reads it once."""
        if index is None or self.last.get(index) != place:
            return set()
        return {index} if sum(isinstance(a, Ref) and a.index == index for a in args) == 1 else set()

    @staticmethod
    def kept_inside(ops: list, result: int, carried: int) -> bool:
        """Whether a result of a region is an array that it carries, over which only loops inside write that end by
        what they compute: there, systems that are done keep theirs.
        """
        name, what, args = ops[result]
        if name != "result" or not isinstance(what, tuple):
            return False
        kind, loop, starts = ops[args[0].index]
        k = what[1]
        if starts[len(starts) - len(loop.arrays) + k].index != carried:
            return False
        last = loop.results[len(loop.results) - len(loop.arrays) + k]
        return kind == "while" or Holding.kept_inside(loop.ops, last.index, loop.arrays[k])

    def passed_on(self, place: int, index: int, next_: Mapping[int, int]) -> set[int]:
        """Inputs with which a loop, the node at a place, begins, and whose next are what it makes of them."""
        _, loop, args = self.ops[index]
        starts = [a.index for a in args[len(args) - len(loop.arrays) :]]
        own = {self.ops[k][1]: k for k in next_ if self.ops[k][0] == "result" and self.ops[k][2][0].index == index}
        found = {a for k, a in enumerate(starts) if ("array", k) in own and next_[own["array", k]] == a}
        return {a for a in found if self.last_of(place, args, a)}

    def done(self, place: int, index: int, values: dict[int, Any]) -> None:
        """A node is written: it holds its arrays, and what it was the last to use is held no more."""
        value = values.get(index)
        arrays = value.arrays if isinstance(value, Ran | Repeated) else [value] if isinstance(value, Memory) else []
        if arrays := [x for x in arrays if not x.kept]:
            self.of[index] = arrays
            for x in arrays:
                x.owners += 1
        for a in {a.index for a in self.ops[index][2] if isinstance(a, Ref)} & self.of.keys():
            if self.last[a] == place:
                self._let_go(a)

    def spare(self, place: int, args: Sequence[Any]) -> set[int]:
        """The arrays among the arguments of a node that nothing else needs."""
        counts = Counter(a.index for a in args if isinstance(a, Ref))
        alone = lambda a: (
            counts[a] == 1 and self.last[a] == place and len(self.of[a]) == 1 and self.of[a][0].owners == 1
        )
        return {a for a in counts if a in self.of and alone(a)}

    def _let_go(self, index: int) -> None:
        for x in self.of.pop(index):
            x.owners -= 1
            if not x.owners:
                self.arena.give(x.first, x.length)

    def end(self) -> None:
        """The region is written. What a loop carries on is copied before anything else is written there."""
        for index in list(self.of):
            self._let_go(index)
