"""Outcome of a run: the `Flags` of a driver in an int32 array, 0 for success.

Every driver has flags of its own; those that drivers share have the same value everywhere.
"""

import enum

import jax
import jax.numpy as jnp

NOT_FINITE = 1  # something is infinite or NaN: the value of the flag NOT_FINITE of every status
UNCHANGED = 2048  # the searches of a predictive controller fail: in `OptimizeStatus` and in the status of `rollout`


class Flags(enum.IntFlag):
    """Base of every status: an integer that is printed by the names of its flags."""

    def __str__(self) -> str:
        return enum.Flag.__str__(self)  # that of IntFlag is the number, from Python 3.11 on

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)


def flag(status: int, condition: jax.Array | bool) -> jax.Array:
    """The flags `status` where the condition holds, 0 elsewhere, int32."""
    return jnp.where(condition, jnp.int32(int(status)), jnp.int32(0))
