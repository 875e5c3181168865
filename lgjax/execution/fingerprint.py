"""A fingerprint of a jaxpr: the same in every process for the same operations on the same numbers.

Kernels are found by it: a function that is traced again, here or in another process, has its machine code without a
program of it being built. Read first: `_jax.py`, `jaxprs.py`. Next: `kernels/native.py`.
"""

import hashlib
from collections.abc import Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lgjax.execution._jax import ClosedJaxpr, Jaxpr, Literal, is_traced
from lgjax.execution.jaxprs import remembered

# Parameters of calls that say how, not what; rules for derivatives and batches; where arrays lie.
UNREAD = {
    "name", "inline", "keep_unused", "donated_invars", "compiler_options_kvs", "ctx_mesh", "layout", "parts", "state",
    "in_layouts", "out_layouts", "in_shardings", "out_shardings", "sharding", "out_sharding", "symbolic_zeros",
    "linear", "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd", "out_trees", "rule",
}  # fmt: skip
SHOWN = {"GatherDimensionNumbers", "ScatterDimensionNumbers", "ShapeDtypeStruct", "FTTuple", "FTPyTree"}  # FT: JAX 0.12
PLAIN = (type(None), bool, int, str, bytes, range, np.integer)


class _UnknownError(TypeError):
    """A parameter that has no fingerprint."""


@remembered
def fingerprint(jaxpr: Jaxpr) -> str | None:
    """The fingerprint of a jaxpr; None if it has a parameter of which equal ones cannot be told from others."""
    try:
        return _digest(jaxpr)
    except _UnknownError:
        return None


@cache
def of_sources() -> str:
    """A hash of the code that writes kernels: another code writes others for the same jaxpr."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


@remembered
def _digest(jaxpr: Jaxpr) -> str:
    numbers: dict[Any, int] = {}

    def made(variables: Sequence) -> list:
        return [(numbers.setdefault(x, len(numbers)), x.aval.dtype.name, x.aval.shape) for x in variables]

    def read(atoms: Sequence) -> list:
        return [_of_array(x.val, x.aval) if isinstance(x, Literal) else numbers[x] for x in atoms]

    told: list = [made(jaxpr.constvars), made(jaxpr.invars)]
    for eqn in jaxpr.eqns:
        parameters = [(name, _token(x)) for name, x in sorted(eqn.params.items()) if name not in UNREAD]
        told.append((eqn.primitive.name, parameters, read(eqn.invars), made(eqn.outvars)))
    told.append(read(jaxpr.outvars))
    return hashlib.sha256(repr(told).encode()).hexdigest()


def _token(x: Any) -> Any:
    """Token that tells a parameter from others: something whose `repr` is the same in every process."""
    if isinstance(x, PLAIN):
        return x
    if isinstance(x, tuple | list):
        return [type(x).__name__, *map(_token, x)]
    if isinstance(x, Jaxpr):
        return _digest(x)
    if isinstance(x, ClosedJaxpr):
        return [_digest(x.jaxpr), *(_of_array(value, None) for value in x.consts)]
    if isinstance(x, Enum | np.dtype):
        return str(x)
    if isinstance(x, float | complex | np.generic | np.ndarray):
        return _of_array(x, None)
    if type(x).__name__ in SHOWN:
        return str(x)
    raise _UnknownError(f"{type(x).__name__} {x}")


def _of_array(x: Any, aval: Any) -> tuple:
    if is_traced(x):
        raise _UnknownError("a traced array")
    x = np.asarray(x)
    dtype = x.dtype if aval is None else aval.dtype
    return dtype.name, x.shape, x.tobytes() if x.size < 100 else hashlib.sha256(x.tobytes()).hexdigest()
