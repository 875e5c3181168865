"""Jaxprs of whole algorithms on scalars: recursions are written out, other loops stay loops if they can.

Read first: `interpreter.py`, `loops.py`, whose rules this adds to. Next: `program.py`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from lgjax.execution._jax import Literal
from lgjax.execution.scalars import indexing, reductions
from lgjax.execution.scalars.entries import boxed, map_objects, objects
from lgjax.execution.scalars.graph import Ref, Scalar
from lgjax.execution.scalars.interpreter import Interpreter
from lgjax.execution.scalars.loops import Loops, turn_by_turn
from lgjax.execution.scan import loop_p
from lgjax.execution.step import step_p

# Operations with a rule in this file, besides those of `indexing.MOVES` and of the interpreter.
RULES = {
    "lane_scan", "scalar_step", "lane_call", "custom_vmap_call", "custom_linear_solve", "optimization_barrier", "scan",
    "while", "cond", *reductions.RULES,
}  # fmt: skip

# Operations with functions inside, to which arrays are passed on.
WHOLE = {
    "scan", "while", "cond", "custom_linear_solve", "custom_vmap_call", "jit", "pjit", "closed_call", "remat",
    "checkpoint", "custom_jvp_call", "custom_vjp_call", "custom_lin", "core_call", "lane_call", "system_call",
}  # fmt: skip


class Unrolling(Loops):
    """Evaluates jaxprs on the scalars of one graph."""

    def evaluate(self, jaxpr, consts, args) -> list:
        if not self.memory:
            return super().evaluate(jaxpr, consts, args)
        uses = Counter(x for eqn in jaxpr.eqns for x in eqn.invars if not isinstance(x, Literal))
        uses.update(x for x in jaxpr.outvars if not isinstance(x, Literal))
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
        read = lambda atom: objects(atom.val) if isinstance(atom, Literal) else env[atom]
        for eqn in jaxpr.eqns:
            outs = self._apply(eqn, [read(atom) for atom in eqn.invars])
            for x, out in zip(eqn.outvars, outs, strict=True):
                env[x] = self.arrays.settled(out) if uses[x] > 1 else out
        return [read(atom) for atom in jaxpr.outvars]

    def one(self, eqn, values: list[np.ndarray]) -> Scalar:
        """An elementwise operation on scalars."""
        return Interpreter._apply(self, eqn, values)[0][()]

    def _apply(self, eqn, inputs: list) -> list:
        name, params = eqn.primitive.name, eqn.params
        if self.memory:
            if (found := self.arrays.apply(eqn, inputs)) is not None:
                return found
            if name in ("keep", "first_order", "optimization_barrier"):
                return inputs
            if name not in WHOLE or eqn.primitive in (loop_p, step_p):
                inputs = list(map(self.arrays.scalars, inputs))
        if eqn.primitive is loop_p:
            return self._levels(params["loop"], inputs)
        if eqn.primitive is step_p:
            return self._step(inputs, **params)
        if name in ("lane_call", "system_call") and params["size"] is not None:
            inputs = list(map(self.arrays.scalars, inputs))
            run = lambda values: self.evaluate(params["jaxpr"], [], values)
            return _each(run, inputs, params["batched"], params["size"])
        if name == "custom_vmap_call":
            return self.closed(params["call"], inputs)
        if name == "custom_linear_solve":
            return self._solved(eqn, inputs)
        if name == "optimization_barrier":
            return inputs
        if name == "scan":
            return self._scan(eqn, inputs)
        if name == "while":
            return self._while(eqn, inputs)
        if name == "cond":
            return self._cond(eqn, inputs)
        if name in reductions.RULES:
            return [reductions.RULES[name](self.graph, params, inputs[0])]
        if name in indexing.MOVES and not indexing.is_known(name, inputs):
            before = len(self.graph.ops)
            found = indexing.MOVES[name](self.graph, eqn, *inputs)
            self.choices += len(self.graph.ops) - before
            return [boxed(found)]
        return super()._apply(eqn, inputs)

    def _refusal(self, name: str) -> Exception:
        return NotImplementedError(f"{name!r} cannot be done scalar by scalar")

    def _step(self, inputs: list[np.ndarray], traced: Any, refs: Any, used: Any, batch: Any) -> list[np.ndarray]:
        """A body step of several lanes: its graph, for each of them."""
        arrays, levels, ops = dict(zip(used, inputs, strict=True)), batch[::-1], traced.graph.ops

        def spread(place: Any) -> np.ndarray:
            x = arrays[place.array] if place.row is None else arrays[place.array][..., place.row]
            return x[(*(slice(None) if place.array in mapped else None for _, mapped in levels), ...)]

        entered = {k: spread(place) for k, place in traced.place.items() if place.array in arrays}
        lanes = np.broadcast_shapes(*(x.shape for x in entered.values()))[len(levels) :]
        shape = (*(size for size, _ in levels), *lanes)
        entered = {k: np.broadcast_to(x, shape) for k, x in entered.items()}
        outs = [np.empty(shape, object) for _ in refs]
        order = [k for k in traced.order(refs) if k not in entered]
        for lane in np.ndindex(*shape):
            values = {k: x[lane] for k, x in entered.items()}
            for k in order:
                name, emit, args = ops[k]
                values[k] = self.scalar(name, emit, [values[a.index] if type(a) is Ref else a for a in args])
            for out, ref in zip(outs, refs, strict=True):
                out[lane] = values[ref]
        return outs

    def _levels(self, loop, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """All levels of a recursion, one after the other."""
        if loop.size is not None:
            single = lambda values: self._unrolled(loop, values)
            return _each(single, inputs, loop.batched, loop.size)
        return self._unrolled(loop, inputs)

    def _unrolled(self, loop, inputs: list[np.ndarray]) -> list[np.ndarray]:
        constants, carry, xs = loop.parts(inputs)
        step = lambda carry, now: self.evaluate(loop.level, [], [*constants, *carry, *now])
        return turn_by_turn(step, carry, xs, loop.length, loop.reverse, len(loop.level.outvars) - len(carry))

    def _solved(self, eqn, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """What the given solver finds."""
        lengths, solve = eqn.params["const_lengths"], eqn.params["jaxprs"].solve
        first = lengths.matvec + lengths.vecmat
        constants, right = inputs[first : first + lengths.solve], inputs[sum(lengths) :]
        return self.evaluate(solve.jaxpr, list(map(objects, solve.consts)), [*constants, *right])


def _each(run: Callable, inputs: list[np.ndarray], batched: Sequence[bool], size: int) -> list[np.ndarray]:
    """For each system of a batch that lies behind."""
    one: Iterator = ([x[..., k] if b else x for x, b in zip(inputs, batched, strict=True)] for k in range(size))
    boxed = lambda values: [map_objects(lambda y: y, np.asarray(x, object)) for x in values]
    return [np.stack(outs, -1) for outs in zip(*(run(boxed(values)) for values in one), strict=True)]
