"""Coefficient functions against exact rational series; small matrices against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.numerics import small_angle
from tests import optimized
from tests.groups.cases import DTYPES, close, eps
from tests.oracles import matrix_groups as oracle

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)


def arguments(k, dtype):
    """Zero, subnormal and tiny squares, both sides of the switch, and squares of angles up to 8."""
    switch = small_angle.cutoff(k, dtype)
    sides = [switch * (1 - 4 * eps(dtype)), switch, switch * (1 + 4 * eps(dtype))]
    return jnp.asarray([0.0, 1e-30, 1e-18, 1e-8, 1e-3, 0.5, 1.0, 3.0, 6.0, 9.8, 20.0, 60.0, *sides], dtype)


@each_dtype
@pytest.mark.parametrize("k", range(7))
def test_stumpff_and_its_derivatives_are_the_series(k, dtype):
    """Value and two derivatives within 3, 10 and 20 eps of their size at zero, for θ up to 8."""
    s = arguments(k, dtype)
    f = lambda x: small_angle.stumpff(k, x)
    derivatives = (f, jax.grad(f), jax.jacfwd(jax.jacrev(f)))
    results = jax.jit(jax.vmap(lambda x: tuple(derivative(x) for derivative in derivatives)))(s)
    for order, (values, bound) in enumerate(zip(results, (3, 10, 20))):
        exact = np.array([oracle.stumpff(k, float(x), order) for x in s])
        error = np.max(np.abs(np.asarray(values, np.float64) - exact)) / abs(oracle.stumpff(k, 0.0, order))
        assert error <= bound * eps(dtype), (order, error / eps(dtype))
        assert values.dtype == dtype


@each_dtype
def test_cotangent_coefficient_and_its_rate_are_their_series(dtype):
    s = jnp.asarray([0.0, 1e-18, 1e-6, 0.9, 1.99, 2.01, 3.99, 4.01, 7.0, 9.8697], dtype)
    value, rate, gradient = optimized.jit(
        lambda x: (small_angle.cotc(x), small_angle.cotc_rate(x), jax.vmap(jax.grad(small_angle.cotc))(x))
    )(s)
    exact = [np.array([oracle.cotc(float(x), order) for x in s]) for order in (0, 1)]
    np.testing.assert_allclose(value, exact[0], rtol=8 * eps(dtype))
    np.testing.assert_allclose(rate, 2 * exact[1], rtol=40 * eps(dtype))
    np.testing.assert_allclose(gradient, exact[1], rtol=40 * eps(dtype))


@each_dtype
def test_arctan_ratio_is_the_arctangent(dtype):
    t = jnp.asarray(np.linspace(1e-6, 3 - 2 * np.sqrt(2), 50), dtype)
    root = np.sqrt(np.asarray(t, np.float64))
    np.testing.assert_allclose(small_angle.arctan_ratio(t), np.arctan(root) / root, rtol=4 * eps(dtype))
    derivative = (1 / (1 + root**2) - np.arctan(root) / root) / (2 * root**2)
    np.testing.assert_allclose(
        jax.vmap(jax.grad(small_angle.arctan_ratio))(t), derivative, rtol=max(8 * eps(dtype), 1e-9)
    )


@each_dtype
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-13, 1.0, 1e18])
def test_length_and_direction_have_finite_derivatives_of_both_orders(size, dtype):
    """Those at a unit vector over the size and its square; zero where these would overflow."""
    at = np.array([0.6, 0.0, 0.8])
    x = jnp.asarray(size * at, dtype)
    length, direction = small_angle.length_and_direction(x)
    both = lambda x: jnp.append(small_angle.length_and_direction(x)[1], small_angle.length_and_direction(x)[0])
    first, second = jax.jit(jax.jacrev(both))(x), jax.jit(jax.jacfwd(jax.jacrev(both)))(x)
    assert np.all(np.isfinite(first))
    assert np.all(np.isfinite(second))
    seen = size > (1e-15 if dtype == jnp.float32 else 0.0)
    close(length, np.asarray(size * seen), 2 * eps(dtype) * size)
    close(direction, at * seen, 2 * eps(dtype))
    across = np.eye(3) - np.outer(at, at)
    scale = np.append(np.full(3, size), 1.0)[:, None]  # so that all derivatives have the size of one
    close(scale * np.asarray(first, float), np.vstack([across, at]) * seen, 8 * eps(dtype))
    bent = np.einsum("ij,k->ijk", across, at)
    bent = -(bent + bent.transpose(0, 2, 1) + bent.transpose(2, 1, 0))
    found = size * scale[..., None] * np.asarray(second, float)
    close(found, np.concatenate([bent, across[None]]) * seen, 32 * eps(dtype))


@each_dtype
def test_norm_has_zero_gradient_at_zero(dtype):
    x = jnp.asarray([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]], dtype)
    close(small_angle.norm(x), np.array([0.0, 5.0]), 0.0)
    close(jax.vmap(jax.grad(small_angle.norm))(x), np.array([[0, 0, 0], [0.6, 0, 0.8]]), 2 * eps(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tanh_ratio_is_the_quotient_and_smooth_at_zero(dtype):
    """At a square of 1e-36 the derivative of the quotient is its round-off over 1e-36."""
    s = np.concatenate([np.linspace(0.01, 0.5, 50), [1.0, 4.0, 400.0]])
    found = jax.vmap(small_angle.tanh_ratio)(jnp.asarray(s, dtype))
    np.testing.assert_allclose(found, np.tanh(np.sqrt(s)) / np.sqrt(s), rtol=8 * float(jnp.finfo(dtype).eps))
    slope = jax.grad(small_angle.tanh_ratio)
    tolerance = 1e3 * float(jnp.finfo(dtype).eps)
    for at in (0.0, 1e-36):
        np.testing.assert_allclose(slope(jnp.asarray(at, dtype)), -1 / 3, rtol=tolerance)
        np.testing.assert_allclose(jax.grad(slope)(jnp.asarray(at, dtype)), 4 / 15, rtol=tolerance)
    exact = lambda s: (1 / np.cosh(np.sqrt(s)) ** 2 - np.tanh(np.sqrt(s)) / np.sqrt(s)) / (2 * s)
    np.testing.assert_allclose(jax.vmap(slope)(jnp.asarray(s, dtype)), exact(s), rtol=4 * tolerance)
