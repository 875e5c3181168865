"""Which functions of one system become kernels, and the programs of these.

Read first: `../scalars/program.py`. Next: `translation.py`.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lgjax.execution._jax import Literal, jaxprs_in
from lgjax.execution.jaxprs import remembered
from lgjax.execution.primitives import TABLE
from lgjax.execution.scalars.lookups import looked_up
from lgjax.execution.scalars.program import ScalarProgram, dtype_of, heaviest, repeats, size_of
from lgjax.execution.unseen import without_unseen

# `size_of` a program, of which larger ones have arrays in memory, and so have those with loops that end by what they
# compute: what these carry would take a register each, and systems that are done keep them by a choice each.
SCALARS = 150_000
MAX_OPERATIONS = 1_000_000  # on a CPU: 0.1 ms of compiling each; what has no kernel compiles longer, and is far slower
BYTES = {"float32": 4, "float64": 8, "int32": 4, "bool": 1}  # of a number in the arrays of a kernel


class Limits(NamedTuple):
    """Largest sizes of a kernel on a platform.

    entries: of its arguments and results, each a load or a store. heaviest: products of a product of matrices: XLA has
    better ways for more. size: `size_of` its program, an estimate that may be ten times too large.
    """

    entries: float
    heaviest: float = 200_000
    size: float = 3_000_000


CPU = Limits(20_000)
GPU = Limits(float("inf"))  # derivatives; what is no derivative has no limits there


@lru_cache(maxsize=4)  # a large one takes tens of megabytes
def program_of_jaxpr(jaxpr: Any) -> ScalarProgram:
    """The program of a jaxpr for a CPU; NotImplementedError if it has none, or one that takes long to compile."""
    if entries_of(jaxpr) > CPU.entries:
        raise NotImplementedError("so many numbers that go in or come out of a kernel")
    if size_of(jaxpr) > CPU.size:
        raise NotImplementedError("so many operations in one kernel")
    if heaviest(jaxpr) > CPU.heaviest:
        raise NotImplementedError("an operation on so many numbers in a kernel")
    jaxpr = without_unseen(jaxpr)
    program = ScalarProgram(jaxpr, memory=size_of(jaxpr) > SCALARS or repeats(jaxpr))
    if program.lines > MAX_OPERATIONS:
        raise NotImplementedError(f"{program.lines} operations in one kernel")
    return program


def entries_of(jaxpr: Any) -> int:
    """Number of entries of the results and of the arguments, without arguments that are looked up."""
    read, _ = looked_up(jaxpr)
    return sum(x.aval.size for n, x in enumerate((*jaxpr.invars, *jaxpr.outvars)) if n not in read)


@remembered
def is_program(jaxpr: Any, limits: Limits) -> bool:
    """Whether a jaxpr can be a kernel, as far as its operations and its arrays tell, which is cheaper than to try."""
    try:
        of_arrays(map(dtype_of, (*jaxpr.invars, *jaxpr.outvars)))
    except NotImplementedError:
        return False
    small = entries_of(jaxpr) <= limits.entries and size_of(jaxpr) <= limits.size and heaviest(jaxpr) <= limits.heaviest
    return small and _writable(jaxpr)


def _writable(jaxpr: Any) -> bool:
    """Whether there are instructions for all operations on what is not known."""
    known = set(jaxpr.constvars)
    for eqn in jaxpr.eqns:
        name, inner = eqn.primitive.name, jaxprs_in(eqn)
        if all(isinstance(x, Literal) or x in known for x in eqn.invars):
            known.update(eqn.outvars)
        elif not (all(map(_writable, inner)) if inner else name in TABLE and TABLE[name].written):
            return False
    return True


def floating_dtype(program: ScalarProgram) -> str:
    """The dtype of a writer for a program; NotImplementedError, naming it, for arrays that no kernel takes."""
    return of_arrays((*program.dtypes, *program.out_dtypes))


def of_arrays(dtypes: Iterable[np.dtype]) -> str:
    """`floating_dtype` of a program whose arguments and results have these dtypes."""
    arrays = set(dtypes)
    if unknown := {x.name for x in arrays} - set(BYTES):
        raise NotImplementedError(f"arrays of {', '.join(sorted(unknown))} in a kernel")
    if {np.dtype("float32"), np.dtype("float64")} <= arrays:
        raise NotImplementedError("float32 and float64 in one kernel")
    return "f64" if np.dtype("float64") in arrays else "f32"
