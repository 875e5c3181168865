"""The order in which the operations of a graph are computed: one in which few values wait in registers.

Read first: `order_of`.
"""

import heapq
from collections.abc import Sequence

import numpy as np

from lgjax.execution.graph import Ref

Operations = list  # of (name, how to emit it, arguments), as a Graph has them


def order_of(ops: Operations, wanted: Sequence[int]) -> list[int]:
    """The nodes that `wanted` need, in whichever of three orders has the fewest values waiting to be used.

    The orders are: as they were made, sweep by sweep; each when it is first asked for, so that a branch is finished
    before the next begins; or, of those that can be computed, always the one that leaves the fewest values waiting.
    """
    asked = _asked_for(ops, wanted)
    return min(sorted(asked), asked, _frugal(ops, wanted, asked), key=lambda order: waiting(ops, order, wanted))


def waiting(ops: Operations, order: Sequence[int], wanted: Sequence[int]) -> int:
    """The largest number of values that wait to be used at any one time, in this order."""
    last: dict[int, int] = {}
    for place, index in enumerate(order):
        last[index] = place
        last |= dict.fromkeys(_before(ops, index), place)
    last |= dict.fromkeys(wanted, len(order))
    ends = np.bincount(list(last.values()), minlength=len(order) + 1)
    return int(np.max(np.arange(1, len(order) + 1) - np.cumsum(ends[:-1]), initial=0))


def _before(ops: Operations, index: int) -> tuple[int, ...]:
    """The nodes that a node uses."""
    return tuple(dict.fromkeys(a.index for a in ops[index][2] if isinstance(a, Ref)))


def _asked_for(ops: Operations, wanted: Sequence[int]) -> list[int]:
    order: dict[int, None] = {}
    stack = list(reversed(wanted))
    while stack:
        index = stack[-1]
        missing = [a for a in _before(ops, index) if a not in order]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        order[index] = None
    return list(order)


def _frugal(ops: Operations, wanted: Sequence[int], preferred: list[int]) -> list[int]:
    """Greedily the node that adds fewest waiting values; among equals the first in the order `preferred`."""
    place = {index: k for k, index in enumerate(preferred)}
    before = {i: _before(ops, i) for i in preferred}
    users: dict[int, list[int]] = {i: [] for i in preferred}
    for i in preferred:
        for a in before[i]:
            users[a].append(i)
    uses = {i: len(users[i]) for i in preferred}
    for i in set(wanted):
        uses[i] += 1
    inputs = {i for i in preferred if ops[i][0] == "input"}
    missing = {i: sum(a not in inputs for a in before[i]) for i in preferred}
    done: dict[int, None] = {}
    heap: list[tuple[int, int, int]] = []
    latest: dict[int, int] = {}

    def offer(i: int) -> None:
        more = 1 + sum((a in inputs and a not in done) - (uses[a] == 1) for a in before[i])
        latest[i] = more
        heapq.heappush(heap, (more, place[i], i))

    for i in preferred:
        if i not in inputs and not missing[i]:
            offer(i)
    while heap:
        more, _, i = heapq.heappop(heap)
        if i in done or latest[i] != more:
            continue
        again: dict[int, None] = {}
        for a in before[i]:
            uses[a] -= 1
            if uses[a] == 1 or (a in inputs and a not in done):
                again |= dict.fromkeys(u for u in users[a] if u in latest)
            done[a] = None
        done[i] = None
        for u in users[i]:
            missing[u] -= 1
            if not missing[u]:
                again[u] = None
        for u in again:
            if u not in done:
                offer(u)
    return list(done | dict.fromkeys(inputs))
