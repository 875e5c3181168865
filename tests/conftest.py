"""Strict settings for every test: float64 is available and nothing is promoted between dtypes silently."""

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
