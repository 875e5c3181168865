"""Stacks of time derivatives x[k] = d^k x / dt^k: checks, and Taylor coefficients of them."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics.messages import shown

Frame = Literal["body", "spatial"]


def check_frame(frame: str) -> None:
    """Raise ValueError for anything but a frame."""
    if frame not in get_args(Frame):
        raise ValueError(f"frame is 'body' or 'spatial', not {shown(frame)}")


def checked_order(order) -> int:
    """`order` as an int; raises ValueError if it is not a non-negative one."""
    if isinstance(order, bool) or not isinstance(order, (int, np.integer)) or order < 0:
        raise ValueError(f"order is a non-negative integer, got {shown(order)}")
    return int(order)


def coefficients(stack) -> list[jax.Array]:
    """Taylor coefficients from derivatives."""
    return [x / float(math.factorial(k)) for k, x in enumerate(stack)]  # an int32 ends at 12!


def derivatives(series: Sequence) -> jax.Array:
    """Derivatives from Taylor coefficients."""
    return jnp.stack([x * float(math.factorial(k)) for k, x in enumerate(series)])
