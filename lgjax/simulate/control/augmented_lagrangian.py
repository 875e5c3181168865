"""The augmented Lagrangian of equalities c = 0 and inequalities d <= 0, its multipliers and its derivatives.

    L = cost + λ c + ρ/2 |c|² + (|max(μ + ρ d, 0)|² - |μ|²) / (2 ρ)

Source: [nocedal2006] sections 17.3 and 17.4; [howell2019] for trajectories. Next: `stagewise.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


class Multipliers(NamedTuple):
    """λ of equalities and μ of inequalities, (steps, k) of the steps and (k,) of the end, and the penalty ρ ()."""

    equal: Array
    unequal: Array
    equal_end: Array
    unequal_end: Array
    penalty: Array


def augmentation(equal: Array, unequal: Array, equal_by: Array, unequal_by: Array, penalty: Array) -> Array:
    """Terms of L besides the cost. equal, unequal: values c and d of constraints; equal_by, unequal_by: λ and μ."""
    _, estimates = multiplier_estimates(equal, unequal, equal_by, unequal_by, penalty)
    of_equal = jnp.sum(equal_by * equal) + penalty / 2 * jnp.sum(equal * equal)
    return of_equal + jnp.sum(estimates * estimates - unequal_by * unequal_by) / (2 * penalty)


def multiplier_estimates(
    equal: Array, unequal: Array, equal_by: Array, unequal_by: Array, penalty: Array
) -> tuple[Array, Array]:
    """λ + ρ c and max(μ + ρ d, 0): the derivatives of L with respect to c and d, and the multipliers to come."""
    return equal_by + penalty * equal, jnp.maximum(unequal_by + penalty * unequal, 0)


def violation(equal: Array, unequal: Array) -> Array:
    """The largest, 0 without constraints."""
    both = jnp.concatenate([jnp.abs(equal).reshape(-1), jnp.maximum(unequal, 0).reshape(-1)])
    return jnp.max(both, initial=0)


def complementarity(unequal: Array, unequal_by: Array, penalty: Array) -> Array:
    """The largest |max(d, -μ / ρ)|: 0 where every inequality holds, and is active or has no multiplier."""
    return jnp.max(jnp.abs(jnp.maximum(unequal, -unequal_by / penalty)).reshape(-1), initial=0)
