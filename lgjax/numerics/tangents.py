"""Values with other derivatives than those of how they were computed."""

from typing import Any

import jax
import jax.numpy as jnp

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
