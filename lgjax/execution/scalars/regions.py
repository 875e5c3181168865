"""Parts of scalar programs: graphs with results, some of them loops.

Read first: `graph.py`. Next: `sums.py`, `ordering.py`; `loops.py`, which makes loops, and `program.py`.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lgjax.execution.scalars.graph import Graph, Operations, Ref, Scalar
from lgjax.execution.scalars.ordering import asked_for, frugal, orders_of, waiting
from lgjax.execution.scalars.sums import with_sums

TURNS = 10  # of a loop that ends by what it computes, in estimates of time
NOT_COUNTED = ("input", "loop", "while", "fill", "result", "saved", "table", "space", "argument")
INSIDE = ("loop", "while", "fill")  # nodes with a region of their own


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
        """Order in which the fewest values wait to be used."""
        return min(self.orders, key=lambda order: waiting(self.ops, order, self.wanted))

    @property
    def waiting(self) -> int:
        """The largest number of values that wait at one time: registers wanted. Loops inside are not looked into."""
        return waiting(self.ops, self.order, self.wanted)

    @cached_property
    def needed(self) -> Operations:
        """The operations that the results need, as the graph has them."""
        return [self.graph.ops[k] for k in asked_for(self.graph.ops, self.wanted)]

    @cached_property
    def lines(self) -> int:
        """Number of operations as they are written; those of a loop count once."""
        return sum(what.lines if name in INSIDE else name not in NOT_COUNTED for name, what, _ in self.needed)

    @cached_property
    def operations(self) -> dict[str, int]:
        """Number of operations of each name; those of a loop count once per iteration."""
        counts: dict[str, int] = {}
        for name, what, _ in self.needed:
            inside = {k: n * what.count for k, n in what.operations.items()} if name in INSIDE else {name: 1}
            for k, n in inside.items():
                counts[k] = counts.get(k, 0) + n
        return {k: n for k, n in counts.items() if k not in NOT_COUNTED}


@dataclass(eq=False)
class Loop(Region):
    """A region that runs `count` times; the next turn begins with the first of its results, the others are saved.

    carry: its input nodes that carry numbers, of these `dtypes`, which are also those of what is saved. captured: input
    nodes for values from outside. turn: the input node that counts turns. reads: of an input node, which of the loops
    that it reads, which of the values that loop saved, and whether from the last turn to the first. arrays: input nodes
    that carry arrays; what they carry next stands last among the results.

    Outside, the loop is a node "loop". Its arguments are the start, the captured values, the loops that it reads and
    the arrays that it starts with. It is followed by nodes "result", and nodes "saved" for (which value, turn). An
    array is a result ("array", which).
    """

    count: int
    dtypes: list
    carry: list[int]
    captured: list[int]
    turn: int
    reads: dict[int, tuple[int, int, bool]]
    arrays: list[int]


@dataclass(eq=False)
class While(Region):
    """A region that runs while a truth value says so.

    Its results are the next truth value, then what the next turn begins with: numbers and arrays. carry, captured,
    arrays: as in `Loop`. dtypes: of the numbers that it carries. count: turns, in estimates of time.

    Outside, the loop is a node "while". Its arguments are the first truth value, the start, the captured values and the
    arrays that it starts with. It is followed by nodes "result", as a loop is.
    """

    dtypes: list
    carry: list[int]
    captured: list[int]
    arrays: list[int]
    count: int = TURNS


@dataclass(eq=False)
class Fill(Region):
    """A region that computes the entries of an array in memory, one after the other, each by one turn of nested loops.

    Its results are neighboring entries, `places` where they go, as of a node "load". sizes: turns of the loops, the
    `outer` ones over entries, inside them those that compute an entry. turns: their input nodes. captured: as in
    `Loop`. totals: none, or the input nodes of what the inner turns have found so far, with which `start` begins.
    length, dtype: of the array. into: whether the last argument of its node is the array that is filled; else it is a
    new one.

    Nodes that have to do with arrays, whose values are addresses: "argument", (number, length, dtype) of one that the
    program is given; "space", memory for (length, dtype); "store", numbers
    that become an array; "table", a known one; "load", an entry: (first, steps) and arguments (array, turns) say that
    it is number first + sum steps turns, where steps may also be tables by turn. "pick", the same with arguments
    (array, number, turns), adds a number of each system. "entry" chooses among known
    numbers by turn.
    """

    sizes: list[int]
    outer: int
    turns: list[int]
    captured: list[int]
    totals: list[int]
    start: Scalar
    places: list[tuple]
    length: int
    dtype: np.dtype
    into: bool

    @cached_property
    def copies(self) -> bool:
        """Whether it is a new array with the numbers of another one, as they are."""
        loads = [self.graph.ops[x.index] for x in self.results if isinstance(x, Ref)]
        same = [(*what, tuple(a.index for a in args[1:])) for name, what, args in loads if name == "load"]
        return not self.into and not self.totals and len(self.captured) == 1 and same == list(self.places)

    def in_place_of(self, node: int) -> bool:
        """Whether an array, an input node, is read nowhere but where an entry is written."""
        loads = [(what, args[1:]) for name, what, args in self.graph.ops if name == "load" and args[0].index == node]
        others = any(
            name != "load" and any(isinstance(a, Ref) and a.index == node for a in args)
            for name, _, args in self.graph.ops
        )
        places = [(first, steps, turns) for first, steps, turns in self.places]
        return not others and all((*what, tuple(t.index for t in turns)) in places for what, turns in loads)

    @property
    def count(self) -> int:
        return math.prod(self.sizes)
