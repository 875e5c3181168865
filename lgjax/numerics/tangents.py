"""Values with other derivatives than those of how they were computed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from lgjax.execution._jax import jaxprs_in

Array = jax.Array


@jax.custom_jvp
def value_of_first(first: Any, second: Any) -> Any:
    """`first`, with the derivative of `second`, which is computed only where that derivative is needed."""
    del second
    return first


@value_of_first.defjvp
def _(primals: Any, tangents: Any) -> Any:
    """The value plus a zero with the derivatives of `second`, for derivatives of higher order: see `implicit`."""
    change = lambda x: jnp.where(jnp.isfinite(x), x - jax.lax.stop_gradient(x), 0)
    return jax.tree.map(lambda x, y: x + change(y), *primals), tangents[1]


@jax.custom_jvp
def moves_where(condition: Array, x: Array) -> Array:
    """x, whose derivative is zero where the condition does not hold, also if it is NaN."""
    del condition
    return x


@moves_where.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return moves_where(*primals), jnp.where(primals[0], tangents[1], 0)


def moves_if_kept(function: Callable[..., tuple[Array, Any]], *args: Any) -> tuple[Array, Any]:
    """function(*args) -> (kept, value), with derivatives zero where `kept`, a bool (), is False, even if they are NaN.

    For results that are not finite and that a selection leaves out: in reverse mode the selection sends back zeros, and
    zero times an infinite derivative is NaN. Here it does not leave the function, which may close over traced arrays.
    """
    converted, numbers = jax.closure_convert(function, *args)

    @jax.custom_jvp
    def run(*given: Any) -> tuple[Array, Any]:
        return converted(*given)

    def rule(primals: Any, tangents: Any) -> Any:
        leaves, structure = jax.tree.flatten(primals)
        changes = jax.tree.leaves(tangents, is_leaf=lambda x: isinstance(x, SymbolicZero))
        moving = [i for i, change in enumerate(changes) if not isinstance(change, SymbolicZero)]

        def of_moving(*some: Array) -> Any:
            whole = list(leaves)
            for i, leaf in zip(moving, some, strict=True):
                whole[i] = leaf
            return converted(*jax.tree.unflatten(structure, whole))

        found, linear = jax.linearize(of_moving, *(leaves[i] for i in moving))
        gate = lambda x: x if x.dtype == jax.dtypes.float0 else jnp.where(found[0], x, 0)
        some = [gate(changes[i]) for i in moving]
        changed = pushed(linear, *some) if branches(linear, *some) else linear(*some)
        return found, jax.tree.map(gate, changed)

    run.defjvp(rule, symbolic_zeros=True)
    return run(*args, *numbers)


def along_moving(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Values and tangents of function(*primals), for rules with symbolic zeros: what has none is not differentiated."""
    leaves, treedef = jax.tree.flatten(primals)
    moving = jax.tree.leaves(tangents, is_leaf=lambda x: isinstance(x, SymbolicZero))
    live = [i for i, x in enumerate(moving) if not isinstance(x, SymbolicZero)]

    def of_live(*values):
        changed = dict(zip(live, values, strict=True))
        return function(*treedef.unflatten([changed.get(i, x) for i, x in enumerate(leaves)]))

    return jax.jvp(of_live, [leaves[i] for i in live], [moving[i] for i in live])


def pushed(linear: Callable[..., Any], *changes: Array) -> Any:
    """linear(*changes), for rules of `jax.custom_jvp` with a linear map that holds a `lax.cond`.

    With a condition for each system, vmap makes a selection of it, between operands and `stop_gradient` of them. In a
    rule these are tangents, of which reverse mode cannot transpose that. So y = L x is computed as the solution of
    (x, y - L x) = (changes, 0), an operation with its transpose beside it.
    """
    shape = jax.eval_shape(linear, *changes)
    moves = lambda x: x.dtype != jax.dtypes.float0
    run = lambda x: [y for y in jax.tree.leaves(linear(*x)) if moves(y)]
    back = lambda y: jax.linear_transpose(run, changes)(y)[0]
    add = lambda a, b: jax.tree.map(jnp.add, a, b)
    # Reverse mode wants all of the right-hand side to be tangents, also what is zero.
    zero = jnp.where(jnp.zeros((), bool), sum(jnp.sum(x) for x in jax.tree.leaves(changes)), 0)
    of_zero = lambda x: jnp.broadcast_to(zero, x.shape).astype(x.dtype)
    _, found = jax.lax.custom_linear_solve(
        lambda x: (x[0], jax.tree.map(jnp.subtract, x[1], run(x[0]))),
        (add(changes, jax.tree.map(of_zero, changes)), [of_zero(y) for y in jax.tree.leaves(shape) if moves(y)]),
        lambda _, b: (b[0], add(b[1], run(b[0]))),
        lambda _, b: (add(b[0], back(b[1])), b[1]),
    )
    leaves = iter(found)
    return jax.tree.map(lambda y: next(leaves) if moves(y) else np.zeros(y.shape, y.dtype), shape)


def branches(function: Callable[..., Any], *args: Any) -> bool:
    """Whether a function holds a `lax.cond`."""
    held = lambda jaxpr: any(eqn.primitive.name == "cond" or any(map(held, jaxprs_in(eqn))) for eqn in jaxpr.eqns)
    return held(jax.make_jaxpr(function)(*args).jaxpr)
