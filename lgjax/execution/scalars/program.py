"""A whole function of small arrays as one straight line of operations on scalars, with loops where it has any.

It does for everything that is computed for one system what `step.py` does for a body step: levels and bodies are
unrolled, and known numbers are folded. Kernels are written from such programs (`kernels/translation.py`).

Read first: `interpreter.py`, `unrolling.py`. Next: `sums.py`, `ordering.py`, `kernels/translation.py`.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from lgjax.execution._jax import is_traced, jaxprs_in
from lgjax.execution.scalars.entries import map_objects, objects
from lgjax.execution.scalars.graph import Graph
from lgjax.execution.scalars.regions import Region
from lgjax.execution.scalars.unrolling import Unrolling
from lgjax.execution.scan import loop_p
from lgjax.execution.step import step_p


class ScalarProgram(Region):
    """A jaxpr of one system on scalars.

    inputs: one object array of nodes per argument. outputs: one object array of nodes and numbers per result.
    Raises NotImplementedError, naming it, for an operation that cannot be done scalar by scalar.
    """

    def __init__(self, jaxpr: Any, constants: Sequence = (), memory: bool = False):
        """memory: whether large arrays stay arrays, see `arrays.py`."""
        graph = Graph()
        enter = lambda aval: map_objects(lambda _: graph.input(), np.empty(aval.shape, object))
        self.dtypes, self.out_dtypes = (list(map(dtype_of, x)) for x in (jaxpr.invars, jaxpr.outvars))
        self.inputs = [enter(x.aval) for x in jaxpr.invars]
        run = Unrolling(graph, memory)
        with np.errstate(all="ignore"):  # of known numbers, 0 / 0 is no number, as in the kernel
            found = run.evaluate(jaxpr, list(map(objects, constants)), self.inputs)
        self.outputs = list(map(run.arrays.scalars, found))
        super().__init__(graph, [x for out in self.outputs for x in out.flat])
        graph.close()

    @cached_property
    def used(self) -> set[int]:
        """The nodes of inputs that are read."""
        return {index for index in self.orders[0] if self.ops[index][0] == "input"}


def dtype_of(variable: Any) -> np.dtype:
    """Of a variable of a jaxpr; NotImplementedError if NumPy has no such numbers."""
    if jax.dtypes.issubdtype(variable.aval.dtype, jax.dtypes.extended):
        raise NotImplementedError(f"arrays of {variable.aval.dtype} in a kernel")
    return np.dtype(variable.aval.dtype)


def program_of(function: Callable, *specs: Any, memory: bool = False) -> ScalarProgram:
    """The program of `function(*args)`, traced on pytrees of anything with a shape and a dtype.

    memory: as of a `ScalarProgram`.

    Traced arrays that the function closes over are refused with ValueError: pass them as arguments.
    """
    closed = jax.make_jaxpr(function)(*specs)
    if any(map(is_traced, closed.consts)):
        raise ValueError("the function closes over traced arrays; pass them as arguments")
    return ScalarProgram(closed.jaxpr, closed.consts, memory)


def size_of(jaxpr: Any) -> int:
    """An estimate, about three times the number of operations of its program; bodies of scans count once."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive is step_p:
            total += _work(eqn) * len(eqn.params["traced"].graph.ops)
        elif eqn.primitive is loop_p:
            total += eqn.params["loop"].length * size_of(eqn.params["loop"].level)
        else:
            total += sum(map(size_of, jaxprs_in(eqn))) or _work(eqn)
    return total


def _work(eqn: Any) -> int:
    """Entries that an equation makes; products, for a product of matrices."""
    entries = max((int(np.prod(x.aval.shape)) for x in eqn.outvars), default=1)
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        entries *= int(np.prod([eqn.invars[0].aval.shape[axis] for axis in contracted]))
    return entries


def heaviest(jaxpr: Any) -> int:
    """The work of the largest operation."""
    own = [_work(eqn) for eqn in jaxpr.eqns if not jaxprs_in(eqn)]
    return max([*own, *(heaviest(inner) for eqn in jaxpr.eqns for inner in jaxprs_in(eqn))], default=0)


def repeats(jaxpr: Any) -> bool:
    """Whether it has a loop that ends by what it computes."""
    return any(eqn.primitive.name == "while" or any(map(repeats, jaxprs_in(eqn))) for eqn in jaxpr.eqns)


def longest(jaxpr: Any) -> int:
    """The levels of the longest recursion, which are written out one after the other."""
    own = [eqn.params["loop"].length for eqn in jaxpr.eqns if eqn.primitive is loop_p]
    return max([*own, *(longest(inner) for eqn in jaxpr.eqns for inner in jaxprs_in(eqn))], default=0)
