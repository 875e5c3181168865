"""How programs of scalars, kernels and series translate each JAX primitive: one table.

A function with a primitive that has no row gets no kernel, unless all that the primitive takes is known: JAX computes
that. The rules are in the files that the ways name. Next: `scalars/interpreter.py`.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np


class Way(Enum):
    """Form of a primitive in a program of scalars, and which file of `scalars` has the rule."""

    FOLDED = "an operation on each entry, simplified: graph.py"
    ENTRY = "an operation on each entry, as it is: interpreter.py"
    REPLACED = "other operations on each entry: interpreter.py"
    CONVERTED = "entries of another dtype: interpreter.py"
    GIVEN = "its operands: interpreter.py"
    MOVED = "an array of the same entries: interpreter.py"
    JOINED = "an array of the entries of several: interpreter.py"
    PARTED = "several arrays: interpreter.py"
    READ = "entries at numbers that may be unknown: indexing.py, lookups.py"
    WRITTEN = "an array with new entries at numbers that may be unknown: indexing.py"
    SUMMED = "sums of entries or of products: interpreter.py"
    REDUCED = "an entry from all along axes: reductions.py"
    ACCUMULATED = "an entry from all before it: reductions.py"
    PLACED = "the place of the first best entry: reductions.py"
    INSIDE = "what the functions in it become: unrolling.py, loops.py"
    ABSENT = "zeros: interpreter.py"
    MADE = "known numbers: interpreter.py"


class Primitive(NamedTuple):
    """A row.

    numbers: NumPy's function, with which known entries are folded; without one JAX computes them. pair: the operation
    on two entries of which a reduction consists. linear: in its floating operands, see `path_series.py`. written:
    whether there are instructions in `kernels/functions.py`.
    """

    way: Way
    numbers: Callable | None = None
    pair: str = ""
    linear: bool = False
    written: bool = True


def _rows(way: Way, names: str, linear: bool = False, written: bool = True) -> dict[str, Primitive]:
    return {name: Primitive(way, linear=linear, written=written) for name in names.split()}


def _folded(way: Way, linear: bool = False, **numbers: Callable) -> dict[str, Primitive]:
    """The names of Python's own words end with an underscore."""
    return {name.rstrip("_"): Primitive(way, function, linear=linear) for name, function in numbers.items()}


def _pairs(way: Way, linear: bool = False, **pairs: str) -> dict[str, Primitive]:
    return {name: Primitive(way, pair=pair, linear=linear) for name, pair in pairs.items()}


TABLE: dict[str, Primitive] = {
    # -- on each entry
    **_folded(Way.FOLDED, linear=True, add=np.add, sub=np.subtract, neg=np.negative),
    **_folded(Way.FOLDED, mul=np.multiply, abs=np.abs, sin=np.sin, cos=np.cos, sqrt=np.sqrt),
    **_folded(Way.FOLDED, rsqrt=lambda x: 1 / np.sqrt(x)),
    **_rows(Way.FOLDED, "div"),
    **_folded(Way.ENTRY, eq=np.equal, ne=np.not_equal, lt=np.less, le=np.less_equal),
    **_folded(Way.ENTRY, gt=np.greater, ge=np.greater_equal, is_finite=np.isfinite),
    **_folded(Way.ENTRY, and_=np.bitwise_and, or_=np.bitwise_or, xor=np.bitwise_xor, not_=np.invert),
    **_folded(Way.ENTRY, max=np.maximum, min=np.minimum, sign=np.sign, floor=np.floor, ceil=np.ceil),
    **_folded(Way.ENTRY, clamp=lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    **_folded(Way.ENTRY, linear=True, select_n=lambda which, *cases: np.choose(which, cases)),
    **_rows(Way.ENTRY, "round rem integer_pow pow cbrt exp exp2 expm1 log log1p logistic tan asin acos atan atan2"),
    **_rows(Way.ENTRY, "sinh cosh tanh asinh acosh atanh"),
    **_rows(Way.ENTRY, "erf", written=False),
    **_rows(Way.REPLACED, "add_any", linear=True),
    **_rows(Way.REPLACED, "square one_minus_square"),
    **_rows(Way.CONVERTED, "convert_element_type", linear=True),
    # What these say, they say of arrays, to derivatives, to the compiler or about the devices where arrays are.
    **_rows(Way.GIVEN, "keep known first_order optimization_barrier reshard sharding_constraint stop_gradient"),
    **_rows(Way.GIVEN, "copy", linear=True),
    # -- of entries at other places
    **_rows(Way.MOVED, "broadcast_in_dim expand_dims reshape rev slice squeeze tile transpose", linear=True),
    **_rows(Way.JOINED, "concatenate pad stack", linear=True),
    **_rows(Way.PARTED, "split unstack", linear=True),
    **_rows(Way.READ, "dynamic_slice gather", linear=True),
    **_rows(Way.WRITTEN, "dynamic_update_slice scatter-add scatter_add", linear=True),
    **_rows(Way.WRITTEN, "scatter"),
    # -- of many entries
    **_rows(Way.SUMMED, "reduce_sum", linear=True),
    **_rows(Way.SUMMED, "dot_general"),
    **_pairs(Way.REDUCED, reduce_max="max", reduce_min="min", reduce_and="and", reduce_or="or", reduce_prod="mul"),
    **_pairs(Way.ACCUMULATED, linear=True, cumsum="add"),
    **_pairs(Way.ACCUMULATED, cumprod="mul", cummax="max", cummin="min"),
    **_pairs(Way.PLACED, argmax="gt", argmin="lt"),
    # -- of functions
    **_rows(Way.INSIDE, "jit pjit closed_call core_call remat checkpoint custom_jvp_call custom_vjp_call custom_lin"),
    **_rows(Way.INSIDE, "custom_vmap_call custom_linear_solve batched scan while cond"),
    # -- of nothing
    **_rows(Way.ABSENT, "unseen"),
    **_rows(Way.MADE, "iota"),
}


def named(*ways: Way) -> frozenset[str]:
    """The primitives that become this."""
    return frozenset(name for name, row in TABLE.items() if row.way in ways)
