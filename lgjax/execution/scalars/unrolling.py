"""Jaxprs of whole algorithms on scalars: recursions are written out, other loops stay loops if they can.

Read first: `interpreter.py`, `loops.py`, whose rules this adds to. Next: `program.py`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from lgjax.execution._jax import Literal, as_function, jaxprs_in
from lgjax.execution.jaxprs import remembered, traced
from lgjax.execution.primitives import Way, named
from lgjax.execution.scalars import indexing, reductions
from lgjax.execution.scalars.entries import boxed, map_objects, objects
from lgjax.execution.scalars.graph import Scalar
from lgjax.execution.scalars.interpreter import Interpreter
from lgjax.execution.scalars.loops import Loops

FREQUENT = {"jit"} | named(Way.FOLDED, Way.CONVERTED, Way.MOVED, Way.JOINED)  # none has a rule in this file
INSIDE, GIVEN = named(Way.INSIDE), named(Way.GIVEN)
SCATTERS = named(Way.WRITTEN)


class Unrolling(Loops):
    """Evaluates jaxprs on the scalars of one graph."""

    def evaluate(self, jaxpr, consts, args) -> list:
        if not self.memory:
            return super().evaluate(jaxpr, consts, args)
        uses = Counter(x for eqn in jaxpr.eqns for x in eqn.invars if not isinstance(x, Literal))
        uses.update(x for x in jaxpr.outvars if not isinstance(x, Literal))
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
        read = lambda atom: objects(atom.val) if isinstance(atom, Literal) else env[atom]
        own = set()  # arrays that were written here and that only one operation reads
        for eqn in jaxpr.eqns:
            scatters = eqn.primitive.name in SCATTERS
            inputs = [read(atom) for atom in eqn.invars]
            own_operand = scatters and not isinstance(eqn.invars[0], Literal) and eqn.invars[0] in own
            self.arrays.spare = inputs[0] if own_operand else None
            outs = self._apply(eqn, inputs)
            for x, out in zip(eqn.outvars, outs, strict=True):
                env[x] = self.arrays.settled(out) if uses[x] > 1 else out
                if scatters and uses[x] == 1:
                    own.add(x)
        return [read(atom) for atom in jaxpr.outvars]

    def one(self, eqn, values: list[np.ndarray]) -> Scalar:
        """An elementwise operation on scalars."""
        return Interpreter._apply(self, eqn, values)[0][()]

    def _apply(self, eqn, inputs: list) -> list:
        name, params = eqn.primitive.name, eqn.params
        if self.memory:
            if (found := self.arrays.apply(eqn, inputs)) is not None:
                return found
            if name in GIVEN:
                return inputs
            if name not in INSIDE and name != "unseen":
                inputs = list(map(self.arrays.scalars, inputs))
        if name in FREQUENT:
            return super()._apply(eqn, inputs)
        if name == "batched" and params["size"] is not None:
            return self._batched(params, list(map(self.arrays.scalars, inputs)))
        if name == "custom_vmap_call":
            return self.closed(params["call"], inputs)
        if name == "custom_linear_solve":
            return self._solved(eqn, inputs)
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

    def _batched(self, params: dict, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """For a batch that lies behind, side by side, or if that makes operations without a rule one by one."""
        if (together := _side_by_side(params["jaxpr"], params["mapped"], params["size"])) is not None:
            with suppress(NotImplementedError):
                return self.evaluate(together, [], inputs)
        run = lambda values: list(map(self.arrays.scalars, self.evaluate(params["jaxpr"], [], values)))
        return _each(run, inputs, params["mapped"], params["size"])

    def _solved(self, eqn, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """Solution that the given solver finds."""
        lengths, solve = eqn.params["const_lengths"], eqn.params["jaxprs"].solve
        first = lengths.matvec + lengths.vecmat
        constants, right = inputs[first : first + lengths.solve], inputs[sum(lengths) :]
        return self.evaluate(solve.jaxpr, list(map(objects, solve.consts)), [*constants, *right])


@remembered
def _side_by_side(jaxpr: Any, mapped: tuple[bool, ...], size: int) -> Any:
    """The jaxpr for a batch that lies behind, in which what is the same for all systems is computed once.

    None if it has loops or branches that depend on numbers: each system goes its own way through them.
    """
    if _decides(jaxpr):
        return None
    run = jax.vmap(as_function(jaxpr), [-1 if b else None for b in mapped], -1, axis_size=size)
    shapes = [(*x.aval.shape, size) if b else x.aval.shape for x, b in zip(jaxpr.invars, mapped, strict=True)]
    dtypes = [x.aval.dtype for x in jaxpr.invars]
    return traced(run, *map(jax.ShapeDtypeStruct, shapes, dtypes))[0]


@remembered
def _decides(jaxpr: Any) -> bool:
    return any(eqn.primitive.name in ("while", "cond") or any(map(_decides, jaxprs_in(eqn))) for eqn in jaxpr.eqns)


def _each(run: Callable, inputs: list[np.ndarray], mapped: Sequence[bool], size: int) -> list[np.ndarray]:
    """For each system of a batch that lies behind."""
    one: Iterator = ([x[..., k] if b else x for x, b in zip(inputs, mapped, strict=True)] for k in range(size))
    boxed = lambda values: [map_objects(lambda y: y, np.asarray(x, object)) for x in values]
    return [np.stack(outs, -1) for outs in zip(*(run(boxed(values)) for values in one), strict=True)]
