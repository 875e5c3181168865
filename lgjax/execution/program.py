"""A whole function of small arrays as one straight line of operations on scalars.

What `scalarize` does for a body step, done for everything that is computed for one system: the function is traced once
and evaluated on a graph of scalars, where arrays that it closes over are numbers that fold. The operations can then be
run on arrays of any one shape, one entry per system, as the kernels of `simulate/kernels` do.
"""

import heapq
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import lax

from lgjax.execution._jax import is_traced
from lgjax.execution.graph import Graph, Ref, is_number
from lgjax.execution.interpreter import Interpreter, map_objects, objects

_FOLDING = {"add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div}  # one of their arguments may be a number


class ScalarProgram:
    """`function(*args)`, traced on `specs`, pytrees of anything with a shape and a dtype.

    inputs: one object array of nodes per leaf of the arguments, then one per captured array. captured: the traced
    arrays that the function closes over. outputs: one object array of nodes and numbers per leaf of the result.
    Raises NotImplementedError, naming it, for an operation that cannot be done scalar by scalar.
    """

    def __init__(self, function: Callable, *specs: Any):
        leaves = jax.tree.leaves(specs)
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*specs)
        self.captured = [c for c in closed.consts if is_traced(c)]
        self.graph = Graph()
        self.inputs = [self._entering(x.shape) for x in [*leaves, *self.captured]]
        captured = iter(self.inputs[len(leaves) :])
        consts = [next(captured) if is_traced(c) else objects(c) for c in closed.consts]
        self.outputs = Interpreter(self.graph).evaluate(closed.jaxpr, consts, self.inputs[: len(leaves)])
        self.shapes, self.out_tree = jax.tree.flatten(shapes)

    def _entering(self, shape) -> np.ndarray:
        return map_objects(lambda _: self.graph.input(), np.empty(shape, object))

    @cached_property
    def order(self) -> list[int]:
        """The nodes that the outputs need, in that of three orders in which fewest values wait to be used.

        As they were made, sweep by sweep; each when it is first asked for, so that a branch is finished before the next
        begins; or, of those that can be computed, always the one that leaves fewest values waiting.
        """
        asked = self._asked_for()
        return min(sorted(asked), asked, self._frugal(asked), key=self.waiting)

    def _asked_for(self) -> list[int]:
        order: list[int] = []
        done: set[int] = set()
        stack = [x.index for out in reversed(self.outputs) for x in reversed(out.ravel()) if isinstance(x, Ref)]
        while stack:
            index = stack[-1]
            waiting = [a.index for a in self.graph.ops[index][2] if isinstance(a, Ref) and a.index not in done]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            if index not in done:
                done.add(index)
                order.append(index)
        return order

    def _frugal(self, preferred: list[int]) -> list[int]:
        """Greedily the node that adds fewest waiting values; among equals the first in the order `preferred`."""
        ops, place = self.graph.ops, {index: k for k, index in enumerate(preferred)}
        before = {i: tuple({a.index for a in ops[i][2] if isinstance(a, Ref)}) for i in preferred}
        users: dict[int, list[int]] = {i: [] for i in preferred}
        for i in preferred:
            for a in before[i]:
                users[a].append(i)
        uses = {i: len(users[i]) for i in preferred}
        for x in (x for out in self.outputs for x in out.flat if isinstance(x, Ref)):
            uses[x.index] += 1
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

    def waiting(self, order: Sequence[int]) -> int:
        """The largest number of values that are still to be used at one time, in this order: registers wanted."""
        ops, last = self.graph.ops, {}
        for place, index in enumerate(order):
            last[index] = place
            for a in ops[index][2]:
                if isinstance(a, Ref):
                    last[a.index] = place
        last |= {x.index: len(order) for out in self.outputs for x in out.flat if isinstance(x, Ref)}
        ends = np.bincount(list(last.values()), minlength=len(order) + 1)
        return int(np.max(np.arange(1, len(order) + 1) - np.cumsum(ends[:-1]), initial=0))

    @property
    def operations(self) -> dict[str, int]:
        """Number of operations of each name in the program."""
        counts: dict[str, int] = {}
        for index in self.order:
            name = self.graph.ops[index][0]
            counts[name] = counts.get(name, 0) + 1
        counts.pop("input", None)
        return counts

    @property
    def used(self) -> set[int]:
        """The nodes of inputs that are read."""
        return {index for index in self.order if self.graph.ops[index][0] == "input"}

    def run(self, load: Callable[[int], jax.Array]) -> list[np.ndarray]:
        """The outputs as object arrays of arrays and numbers; load(node) gives an input when it is first needed."""
        values: dict[int, Any] = {}
        for index in self.order:
            name, emit, args = self.graph.ops[index]
            if name == "input":
                values[index] = load(index)
            else:
                operands = [values[a.index] if isinstance(a, Ref) else a for a in args]
                values[index] = _typed(_FOLDING[name], *operands) if name in _FOLDING else emit(*operands)
        return [map_objects(lambda x: x if is_number(x) else values[x.index], out) for out in self.outputs]


def _typed(operation: Callable, a, b):
    """An operation of arrays, where a number takes the dtype of the other."""
    if isinstance(a, int | float):
        a = np.dtype(b.dtype).type(a)
    if isinstance(b, int | float):
        b = np.dtype(a.dtype).type(b)
    return operation(a, b)
