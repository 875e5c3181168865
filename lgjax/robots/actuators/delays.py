"""Controls that act later: the last samples of a control, and what of them acts now."""

import jax
import jax.numpy as jnp
import numpy as np

MARGIN = 1e-4  # of a step, by which rounding may put a delay beyond the last sample


def filled(control: jax.Array, samples: int) -> jax.Array:
    """History (samples, n) of a control (n,) that never changed."""
    return jnp.stack([control] * samples)


def pushed(history: jax.Array, control: jax.Array) -> jax.Array:
    """The history one step later: the newest sample comes first, the oldest is forgotten."""
    return jnp.concatenate([control[None], history[:-1]])


def delayed(history: jax.Array, delay: jax.Array, dt: jax.Array) -> jax.Array:
    """Controls (n,) that act during a step dt which begins with the newest sample, each `delay` (n,) later.

    Each sample holds for a step, so that two of them act within this one: this is the mean, linear in delay. It has
    the derivative to longer delays at whole numbers of steps. NaN for a delay below 0 or beyond (samples - 1) dt.
    """
    samples = len(history)
    age = delay / dt
    inside = (age >= 0) & (age <= samples - 1 + MARGIN)
    total = history[0]
    if samples > 1:
        first = jax.lax.stop_gradient(jnp.clip(jnp.floor(age), 0, samples - 2))
        share = age - first
        ages = np.arange(samples, dtype=history.dtype)[:, None]
        weights = jnp.where(ages == first, 1 - share, jnp.where(ages == first + 1, share, jnp.zeros_like(share)))
        total = jnp.sum(weights * history, 0)
    return jnp.where(inside, total, jnp.nan)
