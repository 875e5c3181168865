"""The law of actuators: rates of activations, forces within their limits, and their slopes. Read `record.py` first.

`a` is an `Actuators` everywhere; inputs (n,) are what the gains multiply.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import World
from lgjax.numerics import checks

FILTERS = ("filter", "filterexact")


def rates(a, control, activation):
    filters = np.asarray([a.dynamics[i] in FILTERS for i in a.active], bool)
    control = control[a.active]
    if not filters.any():
        return control
    constant = jnp.where(filters, a.time_constant[a.active], jnp.ones_like(control))
    return (control - jnp.where(filters, activation, jnp.zeros_like(control))) / constant


def read(a, q, v, world: World | None):
    """Lengths and their rates (n,), each None where no force depends on it."""
    found = []
    for rows, of in (
        (np.flatnonzero(a.reads_length), lambda some: some.lengths(q, world)),
        (np.flatnonzero(a.reads_velocity), lambda some: some.rates(q, v, world)),
    ):
        if rows.size in (0, len(a)):
            found.append(of(a.transmission) if rows.size else None)
        else:
            found.append(jnp.zeros(len(a), a.dtype).at[rows].set(of(a.transmission.take(rows))))
    return found


def line(a):
    """Where limits fall with speed (n,), and there the speed and the force_range; 1 and 0 elsewhere.

    What does not fall may be infinite, and must be in no product, not even one that is not chosen.
    """
    falls = jnp.isfinite(a.no_load_speed)
    speed = jnp.where(falls, a.no_load_speed, jnp.ones_like(a.no_load_speed))
    return falls, speed, jnp.where(falls[:, None], a.force_range, jnp.zeros_like(a.force_range))


def limits(a, velocity):
    """Least and greatest forces (n,); velocity: None where none of them depends on it."""
    low, high = a.force_range[:, 0], a.force_range[:, 1]
    if velocity is None:
        return low, high
    falls, speed, ends = line(a)
    share = velocity / speed
    return (
        jnp.where(falls, ends[:, 0] * jnp.clip(1 + share, 0, 1), low),
        jnp.where(falls, ends[:, 1] * jnp.clip(1 - share, 0, 1), high),
    )


def free_forces(a, inputs, length, velocity):
    """Forces before their limits, and their derivatives by length and velocity, 0 where none depends on them."""
    total, gain, slopes = a.bias[:, 0], a.gain[:, 0], [0, 0]
    for k, x in ((1, length), (2, velocity)):
        if x is not None:
            total, gain = total + a.bias[:, k] * x, gain + a.gain[:, k] * x
            slopes[k - 1] = a.gain[:, k] * inputs + a.bias[:, k]
    if any(a.wraps):
        periods, wraps = a.transmission.periods(), np.asarray(a.wraps)
        turns = jnp.round((inputs - length) / periods)
        total = total - gain * jnp.where(wraps, turns * periods, jnp.zeros_like(turns))
    return gain * inputs + total, slopes


def forces(a, q, v, inputs, world):
    length, velocity = read(a, q, v, world)
    found, _ = free_forces(a, inputs, length, velocity)
    low, high = limits(a, velocity)
    return jnp.clip(found, low, high)


def slopes(a, q, v, inputs, world):
    length, velocity = read(a, q, v, world)
    found, (by_length, by_velocity) = free_forces(a, inputs, length, velocity)
    low, high = limits(a, velocity)
    zero = jnp.zeros_like(found)
    inside = (found > low) & (found < high)
    at_line = zero
    if velocity is not None:
        # At a limit that falls with speed the force follows the line.
        falls, speed, ends = line(a)
        share = velocity / speed
        up, down = (found >= high) & (share > 0) & (share < 1), (found <= low) & (share < 0) & (share > -1)
        at_line = jnp.where(falls & up, -ends[:, 1] / speed, jnp.where(falls & down, ends[:, 0] / speed, zero))
    return jnp.where(inside, by_length, zero), jnp.where(inside, by_velocity, at_line)


# ---- ranges
def ranged(what: str, value: Any, names: Sequence[str], dtype: Any) -> jax.Array:
    """Ranges (n, 2) from (low, high) or (n, 2), infinite for None; a traced one of low > high is NaN."""
    shape = (len(names), 2)
    value = (-np.inf, np.inf) if value is None else value
    found = np.asarray(checks.real(what, value)) if checks.known(value) else checks.floats(what, value, shape, dtype)
    if found.shape not in ((2,), shape):
        raise ValueError(f"{what} has shape {found.shape}, expected (low, high) or {shape}")
    if isinstance(found, jax.Array):
        ordered = found[..., :1] <= found[..., 1:]
        return jnp.broadcast_to(jnp.where(ordered, found, jnp.nan), shape)
    found = np.broadcast_to(found, shape)
    for name, (low, high) in zip(names, found.tolist(), strict=True):
        if not low <= high:
            raise ValueError(f"{what} of {name!r} is from {low:g} to {high:g}")
    return jnp.asarray(found, dtype)


def clipped(x, ranges):
    return jnp.clip(x, ranges[:, 0], ranges[:, 1])
