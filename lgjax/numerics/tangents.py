"""Values with other derivatives than those of how they were computed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

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
        return found, jax.tree.map(gate, linear(*(gate(changes[i]) for i in moving)))

    run.defjvp(rule, symbolic_zeros=True)
    return run(*args, *numbers)
