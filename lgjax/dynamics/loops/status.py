"""What can be said of a constrained mechanism, as flags that add up."""

import enum

import jax.numpy as jnp


class LoopStatus(enum.IntFlag):
    """Flags of constrained dynamics; 0 where nothing is to be said. Arrays of them are int32."""

    OK = 0
    REDUNDANT = 1  # constraints depend on one another: motion and joint forces are unique, multipliers are not
    INCONSISTENT = 2  # no acceleration meets all constraints: contradictory ones, or prescribed accelerations
    NOT_FINITE = 4  # a result is infinite or NaN
    UNDERACTUATED = 8  # no forces of the actuators give this motion; what is returned comes closest
    OVERACTUATED = 16  # the actuators can work against one another: one of many solutions was chosen
    OPEN = 32  # the loops are not closed: the residual of the positions is not zero
    SLIPPING = 64  # the velocities do not keep the loops closed: their rate is not zero


def flags(**conditions):
    """Status () int32 from the conditions () bool of its flags, by name."""
    return sum(
        (jnp.where(condition, jnp.int32(LoopStatus[name]), jnp.int32(0)) for name, condition in conditions.items()),
        start=jnp.int32(0),
    )
