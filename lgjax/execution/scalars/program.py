"""A function of one system as a list of operations on scalars, with nodes for loops and for large arrays.

Levels of recursions are written out if they are at most 48, and known numbers are folded. Kernels are written from such
programs (`kernels/translation.py`).

Read first: `interpreter.py`, `unrolling.py`. Next: `sums.py`, `ordering.py`, `kernels/translation.py`.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from lgjax.execution._jax import is_traced, is_written_out, jaxprs_in
from lgjax.execution.jaxprs import remembered
from lgjax.execution.scalars.arrays import KEPT
from lgjax.execution.scalars.entries import map_objects, objects
from lgjax.execution.scalars.graph import Graph
from lgjax.execution.scalars.lookups import looked_up
from lgjax.execution.scalars.regions import Region
from lgjax.execution.scalars.unrolling import Unrolling

# Of operations on small arrays, such as rotations and placements of bodies, this part is left when zeros are folded.
SMALL, FOLDED = 128, 0.4
LONG = 48  # turns of a loop


class ScalarProgram(Region):
    """A jaxpr of one system on scalars.

    inputs: one object array of nodes per argument. outputs: one object array of nodes and numbers per result.
    Raises NotImplementedError, naming it, for an operation that cannot be done scalar by scalar.
    """

    def __init__(self, jaxpr: Any, constants: Sequence = (), memory: bool = False):
        """memory: whether all large arrays stay arrays, see `arrays.py`, not only those that are looked up."""
        graph = Graph()
        self.dtypes, self.out_dtypes = (list(map(dtype_of, x)) for x in (jaxpr.invars, jaxpr.outvars))
        read, some = looked_up(jaxpr)
        run, whole = Unrolling(graph, memory or some, memory), memory and has_long_loops(jaxpr)
        enter = lambda aval: map_objects(lambda _: graph.input(), np.empty(aval.shape, object))
        # Entries of an array that is looked up are never scalars: one node stands for all.
        self.inputs = [
            np.full(x.aval.shape, graph.input(), object) if n in read else enter(x.aval)
            for n, x in enumerate(jaxpr.invars)
        ]
        given = [
            run.arrays.argument(n, x.aval) if n in read or (whole and x.aval.size >= KEPT) else nodes
            for n, (x, nodes) in enumerate(zip(jaxpr.invars, self.inputs, strict=True))
        ]
        with np.errstate(all="ignore"):  # of known numbers, 0 / 0 is no number, as in the kernel
            found = run.evaluate(jaxpr, list(map(objects, constants)), given)
        self.outputs = list(map(run.arrays.scalars, found))
        super().__init__(graph, [x for out in self.outputs for x in out.flat])
        graph.close()

    @cached_property
    def used(self) -> set[int]:
        """The nodes of inputs that are read."""
        return {index for index in self.orders[0] if self.ops[index][0] == "input"}


def dtype_of(variable: Any) -> np.dtype:
    """Dtype of a variable of a jaxpr; NotImplementedError if NumPy has no such numbers."""
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


@remembered
def size_of(jaxpr: Any) -> float:
    """An estimate, about three times the number of operations of its program; turns of loops count once."""
    own = lambda eqn: _work(eqn) * (FOLDED if max((x.aval.size for x in eqn.outvars), default=0) < SMALL else 1)
    return sum(turns(eqn) * sum(map(size_of, jaxprs_in(eqn))) or own(eqn) for eqn in jaxpr.eqns)


def turns(eqn: Any) -> int:
    """How often a program repeats what an equation holds: the turns of a scan that is written out, else once."""
    return eqn.params["length"] if is_written_out(eqn) else 1


def _work(eqn: Any) -> int:
    """Entries that an equation makes; products, for a product of matrices."""
    entries = max((x.aval.size for x in eqn.outvars), default=1)
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        entries *= math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
    return entries


@remembered
def heaviest(jaxpr: Any) -> int:
    """The work of the largest operation."""
    own = [_work(eqn) for eqn in jaxpr.eqns if not jaxprs_in(eqn)]
    return max([*own, *(heaviest(inner) for eqn in jaxpr.eqns for inner in jaxprs_in(eqn))], default=0)


def repeats(jaxpr: Any) -> bool:
    """Whether it has a loop that ends by what it computes, or a long one."""
    return _has_while(jaxpr) or has_long_loops(jaxpr)


@remembered
def _has_while(jaxpr: Any) -> bool:
    return any(eqn.primitive.name == "while" or any(map(_has_while, jaxprs_in(eqn))) for eqn in jaxpr.eqns)


@remembered
def has_long_loops(jaxpr: Any) -> bool:
    """Whether it has a long loop, such as over the levels of a rope: what it reads turn by turn stays in memory."""
    long = lambda eqn: eqn.primitive.name == "scan" and not is_written_out(eqn) and eqn.params["length"] > LONG
    return any(long(eqn) or any(map(has_long_loops, jaxprs_in(eqn))) for eqn in jaxpr.eqns)
