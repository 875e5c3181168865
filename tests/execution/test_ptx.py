"""Functions of one number in kernels: right to round-off over their range, also where they switch, and for NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.execution.test_kernel import launched

WIDE = np.concatenate([-np.logspace(-12, 1.5, 300), [0.0], np.logspace(-12, 1.5, 300), np.pi / 4 * np.arange(-9, 10)])
ANGLES = np.concatenate([WIDE, np.random.default_rng(0).uniform(-1e4, 1e4, 500)])
POSITIVE = np.logspace(-30, 30, 400)
# name -> function, arguments, errors allowed in units of round-off, relative to the value plus `scale`
FUNCTIONS = {
    "sin": (jnp.sin, ANGLES, 2, 1.0),
    "sin near zero": (jnp.sin, np.logspace(-30, -1, 200), 2, 0.0),
    "cos": (jnp.cos, ANGLES, 2, 1.0),
    "tan": (jnp.tan, np.linspace(-1.5, 1.5, 200), 4, 0.0),
    "exp": (jnp.exp, np.linspace(-80, 80, 400), 3, 0.0),
    "expm1": (jnp.expm1, WIDE, 4, 0.0),
    "tanh": (jnp.tanh, WIDE, 6, 0.0),
    "logistic": (jax.nn.sigmoid, WIDE, 4, 0.0),
    "sqrt": (jnp.sqrt, POSITIVE, 2, 0.0),
    "rsqrt": (jax.lax.rsqrt, POSITIVE, 3, 0.0),
    "quotient": (lambda x: 1 / x, POSITIVE, 2, 0.0),
    "a number by another": (lambda x: 2 / x, POSITIVE, 2, 0.0),
    "a negative number by another": (lambda x: -1 / x, POSITIVE, 2, 0.0),
    "the reciprocal of large numbers": (lambda x: 1 / x, np.logspace(30, 37.9, 100), 2, 0.0),
    "abs": (jnp.abs, WIDE, 0, 0.0),
    "sign": (jnp.sign, WIDE, 0, 0.0),
    "floor": (jnp.floor, WIDE, 0, 0.0),
    "ceil": (jnp.ceil, WIDE, 0, 0.0),
    "clip": (lambda x: jnp.clip(x, -1, 2), WIDE, 0, 0.0),
    "larger": (lambda x: jnp.maximum(x, 0.5 - x), WIDE, 1, 0.0),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, dtype):
    function, x, allowed, scale = FUNCTIONS[name]
    x = jnp.asarray(x, dtype)
    got = np.asarray(launched(function, x), np.float64)
    exact = np.asarray(jax.jit(function)(x.astype(jnp.float64)))
    unit = np.finfo(dtype).eps * (np.abs(exact) + scale)
    assert np.all(np.abs(got - exact) <= (allowed + (dtype == "float64")) * unit + np.finfo(dtype).tiny)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_no_number_stays_none(dtype):
    x = jnp.asarray([np.nan, np.inf, -np.inf, 1.0], dtype)
    functions = {"sin", "cos", "exp", "tanh", "expm1", "logistic", "sqrt", "abs", "clip", "larger", "quotient"}
    for name in sorted(functions):
        function = FUNCTIONS[name][0]
        got, expected = np.asarray(launched(function, x)), np.asarray(jax.jit(function)(x))
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), err_msg=name)
    got = launched(lambda x: (jnp.isfinite(x), jnp.maximum(x, 0), jnp.minimum(0, x)), x)
    expected = (jnp.isfinite(x), jnp.maximum(x, 0), jnp.minimum(0, x))
    jax.tree.map(np.testing.assert_array_equal, got, tuple(map(np.asarray, expected)))
