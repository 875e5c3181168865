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
