"""A program of one system or batch as one function of the processor.

XLA for CPUs makes a kernel of each fused operation, and a function of the processor of each kernel: a recursion over a
tree has some hundreds.  Each takes it about 20 ms to compile and 50 ns to call.  A call that is marked is compiled as
one function instead, loops and all: forward dynamics of a quadruped compiles 2.8 times and runs 1.8 times faster (one
system, jax 0.10.2).  It is for one system and for up to eight small ones: of large arrays XLA computes parts side by
side, which one function cannot (`LARGEST`), and the last bits of the numbers would depend on the size of a batch.

`in_one_function` serves the operations of `call.py` that have no native function (`kernels/native.py`).

Read first: `_jax.py`, `compiled_as_one`.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.execution._jax import (
    compiled_as_one,
    is_high,
    jaxprs_in,
)
from lgjax.execution.batch_last.evaluation import LARGEST, evaluate, traced
from lgjax.execution.kernels import native
from lgjax.execution.scalars.interpreter import ELEMENTWISE

FEW = 8  # systems, for which a whole vector each would take longer
# Operations that one function can hold. It calls no library, to which XLA may leave sums and products of matrices, and
# cannot scatter or sort.
_LISTED = """add_any broadcast_in_dim concatenate cond copy custom_jvp_call custom_vjp_call
    custom_vmap_call dynamic_slice dynamic_update_slice expand_dims gather integer_pow iota jit lane_call lane_scan
    layer one_minus_square optimization_barrier pad reduce_and reduce_or reshape rev scalar_step scan slice split
    square squeeze stack stop_gradient system_call transpose unstack while"""
_FITTING = frozenset(_LISTED.split()) | ELEMENTWISE
OF_ONE_SYSTEM = ("lane_call", "system_call")  # their jaxprs have no axis for the batch


def is_known(size: int | None) -> bool:
    """Whether a batch has a size, or there is none; that of a program of `jax.export` may stay open."""
    return isinstance(size, int | None)


def few(size: int | None) -> bool:
    """Whether so many systems may be in one function."""
    return size is None or (is_known(size) and size <= FEW)


def in_one_function(function: Callable[..., list]) -> Callable[..., list]:
    """`function` of arrays, compiled as one function if it fits, else as it is."""

    def call(*args: jax.Array) -> list:
        # XLA ends the process where a parameter of such a function has no entries or is read nowhere, also where it
        # finds that out itself: all are read, and it must not see that one is constant.
        passed = [n for n, x in enumerate(args) if x.size]

        @jax.jit
        def inner(*some: jax.Array) -> tuple[list, list]:
            values = dict(zip(passed, some, strict=True))
            outs = function(*(values.get(n, jnp.zeros(x.shape, x.dtype)) for n, x in enumerate(args)))
            return outs, [x[(0,) * x.ndim] for x in some]

        some = jax.lax.optimization_barrier([args[n] for n in passed])
        found = compiled_as_one(inner, some, fits) if passed else None
        return function(*args) if found is None else found[0]

    return call


def fits(jaxpr: Any, systems: int = 1) -> bool:
    """Whether all operations of a jaxpr, and of those within, can be in one function, for so many systems at once."""
    large = lambda variables: any(systems * getattr(x.aval, "size", 0) > LARGEST for x in variables)
    if large(jaxpr.invars):
        return False
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in OF_ONE_SYSTEM and native.usable():
            return False  # a function of its own already, which XLA's cannot call
        within = systems * (eqn.params.get("size") or 1) if eqn.primitive.name in OF_ONE_SYSTEM else systems
        if eqn.primitive.name not in _FITTING or not is_known(within):
            return False
        if not all(fits(inner, within) for inner in jaxprs_in(eqn)):
            return False
        if large(eqn.outvars):
            return False
    return True


def as_operation(function: Callable, bind: Callable[[Any, list, int], list]) -> Callable:
    """`function` of pytrees of arrays as an operation on arrays.

    bind(jaxpr, arrays, how many of them come before those of the arguments) -> the arrays of the result.
    """

    @wraps(function)
    def call(*args):
        trees: list = []

        def flat(*leaves):
            out, tree = jax.tree.flatten(function(*jax.tree.unflatten(jax.tree.structure(args), leaves)))
            trees.append(tree)
            return out

        leaves = jax.tree.leaves(args)
        jaxpr, constants = traced(flat, *leaves)
        values = [*constants, *leaves]
        whole = jaxpr.effects or is_high(jaxpr)
        outs = evaluate(jaxpr, values) if whole else bind(jaxpr, values, len(constants))
        return jax.tree.unflatten(trees[0], outs)

    return call
