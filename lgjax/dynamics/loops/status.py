"""Status of a constrained mechanism, as flags that add up."""

import jax.numpy as jnp

from lgjax.numerics.status import NOT_FINITE, Flags, flag


class LoopStatus(Flags):
    """Flags of constrained dynamics; 0 means success. Arrays of them are int32.

    NOT_FINITE     1: a result is infinite or NaN
    REDUNDANT      2: constraints depend on one another: motion and joint forces are unique, multipliers are not
    INCONSISTENT   4: no acceleration meets all constraints: contradictory ones, or prescribed accelerations
    UNDERACTUATED  8: no forces of the actuators give this motion; what is returned comes closest
    OVERACTUATED   16: the actuators can work against one another: one of many solutions was chosen
    OPEN           32: the loops are not closed: the residual of the positions is not zero
    SLIPPING       64: the velocities do not keep the loops closed: their rate is not zero
    """

    OK = 0
    NOT_FINITE = NOT_FINITE
    REDUNDANT = 2
    INCONSISTENT = 4
    UNDERACTUATED = 8
    OVERACTUATED = 16
    OPEN = 32
    SLIPPING = 64


def flags(**conditions):
    """Status () int32 from the conditions () bool of its flags, by name."""
    return sum((flag(LoopStatus[name], condition) for name, condition in conditions.items()), start=jnp.int32(0))
