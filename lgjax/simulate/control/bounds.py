"""Bounds on controls as a smooth map from free variables, for methods that know none."""

import jax
import jax.numpy as jnp

Array = jax.Array


def bounded(free: Array, lower: Array, upper: Array) -> Array:
    """Controls within their bounds from free variables: a sine between two bounds, a hyperbola above one.

    The bounds are reached at finite values, where a cost whose multiplier has the right sign is convex again, unlike
    with a logistic curve; where there is no bound the map is the identity.
    """
    both, below, above = jnp.isfinite(lower) & jnp.isfinite(upper), jnp.isfinite(lower), jnp.isfinite(upper)
    low, high = jnp.where(below, lower, 0), jnp.where(above, upper, 0)
    rise = jnp.sqrt(free * free + 1) - 1
    between = (low + high) / 2 + (high - low) / 2 * jnp.sin(free)
    return jnp.where(both, between, jnp.where(below, low + rise, jnp.where(above, high - rise, free)))


def unbounded(controls: Array, lower: Array, upper: Array, margin: float = 0.01) -> Array:
    """The inverse; controls outside, or closer to a bound than the margin, where the map is flat, are moved inside."""
    both, below, above = jnp.isfinite(lower) & jnp.isfinite(upper), jnp.isfinite(lower), jnp.isfinite(upper)
    low, high = jnp.where(below, lower, 0), jnp.where(above, upper, 0)
    half = jnp.where(both, (high - low) / 2, 1)
    ratio = jnp.clip((controls - (low + high) / 2) / half, -1 + margin, 1 - margin)
    away = jnp.maximum(jnp.where(below, controls - low, high - controls), margin)
    hyperbola = jnp.sqrt((away + 1) ** 2 - 1)
    return jnp.where(both, jnp.arcsin(ratio), jnp.where(below | above, hyperbola, controls))


def unflattened(free: Array, gradient: Array, lower: Array, upper: Array) -> Array:
    """The gradient by the free variables, without the flatness of the map where a control is to leave its bound.

    At a bound the map is flat, so that the gradient vanishes there even where the cost falls from the bound inwards.
    Such a control is no minimum: its gradient is that which it had at the same slope of the cost where the map is
    steepest.
    """
    both, below, above = jnp.isfinite(lower) & jnp.isfinite(upper), jnp.isfinite(lower), jnp.isfinite(upper)
    steep = jnp.where(both, jnp.cos(free), jnp.where(below | above, free / jnp.sqrt(free * free + 1), 1))
    # the free variable for which this one stands, from the middle between two bounds, or from the only bound
    away = jnp.where(both, jnp.sin(free) * steep, -free)
    inwards = gradient * away > 0
    return jnp.where(inwards, gradient / jnp.where(inwards, jnp.abs(steep), 1), gradient)
