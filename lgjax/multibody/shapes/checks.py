"""Arrays from what a user gave: concrete values are checked, traced ones can only have their shapes checked."""

import jax
import jax.core
import jax.numpy as jnp
import numpy as np


def concrete(value) -> bool:
    """Whether every number in a pytree is known now, so that it can be judged."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def float_dtype(value):
    """The floating dtype of an array; JAX's default one for numbers, tuples and integers."""
    dtype = jnp.result_type(value) if hasattr(value, "dtype") else None
    return dtype if dtype is not None and jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)


def array(name: str, value, shape: tuple, dtype) -> jax.Array:
    """`value` broadcast to `shape`, where None is any length; ValueError names what does not fit or is not finite."""
    if not hasattr(value, "dtype"):
        value = jnp.asarray(value, dtype) if concrete(value) else jnp.stack([jnp.asarray(x, dtype) for x in value])
    value = jnp.asarray(value).astype(dtype)
    want = tuple(known if known is not None else (value.shape[i : i + 1] or (0,))[0] for i, known in enumerate(shape))
    if value.shape != () and (value.ndim != len(want) or value.shape != want):
        raise ValueError(f"{name} has shape {value.shape}, not {shape}")
    if value.shape == () and None in shape:
        raise ValueError(f"{name} is a number, not an array of shape {shape}")
    if concrete(value) and not np.all(np.isfinite(np.asarray(value))):
        raise ValueError(f"{name} is not finite: {np.asarray(value).tolist()}")
    return jnp.broadcast_to(value, want)


def positive(name: str, value: jax.Array, allow_zero: bool = False) -> jax.Array:
    """`value`, or ValueError if a known entry is not positive (or negative, with allow_zero)."""
    if concrete(value) and not np.all(np.asarray(value) >= 0 if allow_zero else np.asarray(value) > 0):
        kind = "negative" if allow_zero else "not positive"
        raise ValueError(f"{name} is {kind}: {np.asarray(value).tolist()}")
    return value
