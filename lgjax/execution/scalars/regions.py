"""What scalar programs consist of: graphs with results, some of which run again and again.

Read first: `graph.py`. Next: `sums.py`, `ordering.py`; `unrolling.py`, which makes loops, and `program.py`.
"""

from dataclasses import dataclass
from functools import cached_property

from lgjax.execution.scalars.graph import Graph, Operations, Ref, Scalar
from lgjax.execution.scalars.ordering import asked_for, frugal, orders_of, waiting
from lgjax.execution.scalars.sums import with_sums

TURNS = 10  # of a loop that ends by what it computes, in estimates of time
NOT_COUNTED = ("input", "loop", "while", "result", "saved")


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

    @cached_property
    def lines(self) -> int:
        """Number of operations as they are written; those of a loop count once."""
        asked = [self.graph.ops[k] for k in asked_for(self.graph.ops, self.wanted)]
        return sum(what.lines if name in ("loop", "while") else name not in NOT_COUNTED for name, what, _ in asked)

    @cached_property
    def operations(self) -> dict[str, int]:
        """Number of operations of each name; those of a loop count once per iteration."""
        counts: dict[str, int] = {}
        for index in asked_for(self.graph.ops, self.wanted):
            name, what, _ = self.graph.ops[index]
            loops = name in ("loop", "while")
            inside = {k: n * what.count for k, n in what.operations.items()} if loops else {name: 1}
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


@dataclass(eq=False)
class While(Region):
    """A region that runs while a truth value says so.

    Its results are the next truth value, then what the next turn begins with. carry, captured: as in `Loop`. dtypes: of
    what it carries. count: turns, in estimates of time.

    Outside, the loop is a node "while". Its arguments are the first truth value, the start and the captured values. It
    is followed by nodes "result".
    """

    dtypes: list
    carry: list[int]
    captured: list[int]
    count: int = TURNS
