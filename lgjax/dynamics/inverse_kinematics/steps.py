"""The step of a damped least-squares problem between bounds, from the normal equations of its rows."""

import jax
import jax.numpy as jnp

from lgjax.numerics import small_matrix as sm
from lgjax.numerics.rank import product, regular_inverse

Array = jax.Array


def bounded_step(error: Array, jacobian: Array, pull: Array, damping: Array, low: Array, high: Array, passes: int):
    """d (n,) between low and high with small |error + jacobian d|^2 + damping |d - pull|^2, and its multipliers (m,).

    Entries at a bound, at which the cost falls beyond it, stay; so do, in the next pass, those that go beyond one. With
    that set of entries d is the least. The m equations of the rows are solved, which are fewer than entries of d for
    one arm and one frame. Source: projected Levenberg-Marquardt; elimination by the Woodbury identity.
    """
    slope = product(error, jacobian) - damping * pull
    held = ((low >= 0) & (slope > 0)) | ((high <= 0) & (slope < 0))
    given = jnp.zeros_like(pull)
    identity = jnp.eye(len(error), dtype=error.dtype)

    def least(held, given):
        kept = jnp.where(held, 0.0, jacobian)
        target = error + product(jacobian, jnp.where(held, given, pull))
        multipliers = _solved(product(kept, kept.T) + damping * identity, target)
        return jnp.where(held, given, pull - product(multipliers, kept)), multipliers

    for _ in range(passes - 1):
        d, _ = least(held, given)
        given = jnp.where(held, given, jnp.clip(d, low, high))
        held = held | (d < low) | (d > high)
    d, multipliers = least(held, given)
    return jnp.clip(d, low, high), multipliers


def _solved(matrix: Array, y: Array) -> Array:
    return sm.ldl_solve(sm.ldl(matrix), y) if len(y) <= 6 else product(regular_inverse(matrix), y)
