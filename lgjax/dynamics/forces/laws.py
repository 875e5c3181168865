"""Laws of one number each, a displacement or a speed: what forces at joints and along lengths share.

All arguments are arrays that broadcast; coefficients that are None are left out of the program.
"""

from typing import Any

import jax
import jax.numpy as jnp


def power_sum(r, first, second: Any, third: Any):
    """first + second r + third r^2, without what is None."""
    total = first if second is None else first + second * r
    return total if third is None else total + third * (r * r)


def scaled(coefficients: tuple, *factors: float) -> tuple:
    """Coefficients times factors, None as it is."""
    return tuple(c if c is None else f * c for c, f in zip(coefficients, factors, strict=True))


# ---- springs: pull = (a + b r + c r^2) x, where r is x, or the length of a vector x
def spring_pull(x, r, coefficients: tuple):
    return power_sum(r, *coefficients) * x


def spring_energy(x, r, coefficients: tuple):
    """Its integral; of a vector the sum over the entries."""
    return power_sum(r, *scaled(coefficients, 1 / 2, 1 / 3, 1 / 4)) * (x * x)


def spring_slope(x, direction, coefficients: tuple):
    """Part of the change of r in the diagonal derivative a + b r + c r^2; direction: dr/dx."""
    _, second, third = coefficients
    found = jnp.zeros_like(x) if second is None else second * x * direction
    return found if third is None else found + 2 * third * x * x


# ---- dampers: drag = (a + b |v| + c v^2) v
def drag(v, coefficients: tuple):
    return power_sum(jnp.abs(v), *coefficients) * v


def drag_slope(v, coefficients: tuple):
    return power_sum(jnp.abs(v), *scaled(coefficients, 1, 2, 3))


# ---- dry friction, smoothed
def dry_friction(v, coulomb, smoothing):
    return coulomb * jnp.tanh(v / smoothing)


def dry_friction_slope(v, coulomb, smoothing):
    share = jnp.tanh(v / smoothing)
    return coulomb / smoothing * (1 - share * share)


# ---- soft stops: nothing in front of them, a parabola of length `width`, then a line
def stop_push(depth, stiffness, width):
    inside = jnp.clip(depth, 0, width)  # where the parabola is, and one with it beyond
    return stiffness * (inside * inside / (2 * width) + jnp.maximum(depth - width, 0))


def stop_share(depth, width):
    """Part of the stiffness and of the damping that acts, from 0 to 1."""
    return jnp.clip(depth, 0, width) / width


def stop_energy(depth, stiffness, width):
    inside, beyond = jnp.clip(depth, 0, width), jnp.maximum(depth - width, 0)
    return stiffness * (inside**3 / (6 * width) + beyond * (beyond + width) / 2)


def stop_slopes(sides: Any, speed, stiffness, damping, width) -> tuple[jax.Array, jax.Array]:
    """Derivatives by the position and by the speed of stops at (sign, depth) of several sides; see `stops`."""
    of_position, of_speed = jnp.zeros_like(speed), jnp.zeros_like(speed)
    for side, depth in sides:
        share = stop_share(depth, width)
        bent = jnp.where((depth > 0) & (depth < width), side * damping * speed / width, 0)
        of_position, of_speed = of_position + stiffness * share + bent, of_speed + damping * share
    return of_position, of_speed


def stops(sides: Any, speed, stiffness, damping, width) -> jax.Array:
    """Push towards negative positions of stops at (sign, depth) of several sides, with dampers behind them."""
    total = jnp.zeros_like(speed)
    for side, depth in sides:
        total = total + side * stop_push(depth, stiffness, width) + damping * stop_share(depth, width) * speed
    return total
