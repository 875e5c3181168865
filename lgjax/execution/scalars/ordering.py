"""The order in which the operations of a graph are computed: one in which few values wait in registers.

Read first: `orders_of`.
"""

import heapq
from collections.abc import Sequence

import numpy as np

from lgjax.execution.scalars.graph import Operations, Ref


def orders_of(ops: Operations, wanted: Sequence[int]) -> tuple[list[int], ...]:
    """Three orders of the nodes that `wanted` need.

    Of those that can be computed, always the one that leaves the fewest values waiting; few sums begin with a product.
    As they were written, sweep by sweep, the terms of sums where their products stood. Each when it is first asked for,
    so that a branch is finished before the next begins.

    Which is best depends on what registers cannot hold. In the second the fewest values go to memory where a sweep uses
    all of what an earlier one has found, as in derivatives.
    """
    asked = asked_for(ops, wanted)
    at = lambda index: (ops[index][1][2], 0, index) if ops[index][0] == "term" else (index, 1, index)
    return frugal(ops, wanted, asked), _arrays_late(ops, sorted(asked, key=at)), asked


def waiting(ops: Operations, order: Sequence[int], wanted: Sequence[int]) -> int:
    """The largest number of values that wait to be used at any one time, in this order."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, index in enumerate(order):
        value = _value(ops, index)
        first.setdefault(value, place)
        last[value] = place
        for a in _before(ops, index):
            last[_value(ops, a)] = place
    last |= dict.fromkeys(wanted, len(order))
    count = lambda places: np.cumsum(np.bincount(list(places.values()), minlength=len(order) + 1))[:-1]
    return int(np.max(count(first) - count(last), initial=0))


def _value(ops: Operations, index: int) -> int:
    """The node whose value is held once this one is done: terms are added to what there is of their sum."""
    name, what, _ = ops[index]
    return what[0] if name == "term" else index


def _before(ops: Operations, index: int) -> list[int]:
    """The nodes that a node uses, each once."""
    found = [a.index for a in ops[index][2] if type(a) is Ref]
    return found if len(found) < 2 or (len(found) == 2 and found[0] != found[1]) else list(dict.fromkeys(found))


def asked_for(ops: Operations, wanted: Sequence[int]) -> list[int]:
    """The nodes that `wanted` need, each when it is first asked for."""
    order: dict[int, None] = {}
    stack = [(index, False) for index in reversed(wanted)]
    while stack:
        index, ready = stack.pop()
        if index in order:
            continue
        if not ready:
            stack.append((index, True))
            stack += [(a.index, False) for a in reversed(ops[index][2]) if type(a) is Ref and a.index not in order]
        else:
            order[index] = None
    return list(order)


def frugal(ops: Operations, wanted: Sequence[int], preferred: list[int]) -> list[int]:
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
    late = _late(ops, preferred)
    begun: set[int] = set()  # values that are held, sums from their first term on
    heap: list[tuple[float, int, int]] = []
    latest: dict[int, float] = {}

    def offer(i: int) -> None:
        more = 0 if _value(ops, i) in begun else 2.5 if i in late else 1
        more += sum((a in inputs and a not in done) - (uses[a] == 1) for a in before[i])
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
        value = _value(ops, i)
        if value not in begun and value != i:
            again |= dict.fromkeys(u for u in before[value] if u in latest)
        begun.add(value)
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
    return _arrays_late(ops, list(done | dict.fromkeys(inputs)))


def _arrays_late(ops: Operations, order: list[int]) -> list[int]:
    """The order with arrays that need nothing, without numbers or all of known ones, and copies, just before their use.

    Then nothing else may need what is copied, and the copy takes its place.
    """
    plain = lambda i: not any(type(a) is Ref for a in ops[i][2]) or (ops[i][0] == "fill" and ops[i][1].copies)
    waits = {i for i in order if ops[i][0] in ("space", "fill") and plain(i)}
    if not waits:
        return order
    found: dict[int, None] = {}

    def place(i: int) -> None:
        for a in _before(ops, i):
            if a in waits and a not in found:
                place(a)
        found[i] = None

    for i in order:
        if i not in waits:
            place(i)
    return list(found | dict.fromkeys(order))


def _late(ops: Operations, nodes: Sequence[int]) -> set[int]:
    """Products in sums that have other terms: a sum that begins with a product takes an operation more."""
    sums = [[a.index for a in ops[i][2]] for i in nodes if ops[i][0] == "sum"]
    product = lambda term: len(ops[term][2]) == 2
    return {x for terms in sums if not all(map(product, terms)) for x in terms if product(x)}
