"""Outcome of a run: the flags of an `enum.IntFlag` in an int32 array, 0 for success.

Every driver has flags of its own; the one that all share, NOT_FINITE, has the same value everywhere.
"""

import enum

import jax
import jax.numpy as jnp

NOT_FINITE = 1  # something is infinite or NaN: the value of the flag NOT_FINITE of every status


def flag(status: enum.IntFlag, condition: jax.Array | bool) -> jax.Array:
    """The flags `status` where the condition holds, 0 elsewhere, int32."""
    return jnp.where(condition, jnp.int32(int(status)), jnp.int32(0))
