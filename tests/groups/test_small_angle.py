"""Coefficient functions against exact rational series; small matrices against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.groups import small_angle, small_matrix
from tests import optimised
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
    value, rate, gradient = optimised.jit(
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
def test_norm_has_zero_gradient_at_zero(dtype):
    x = jnp.asarray([[0.0, 0.0, 0.0], [3.0, 0.0, 4.0]], dtype)
    close(small_angle.norm(x), np.array([0.0, 5.0]), 0.0)
    close(jax.vmap(jax.grad(small_angle.norm))(x), np.array([[0, 0, 0], [0.6, 0, 0.8]]), 2 * eps(dtype))


@each_dtype
def test_small_matrix_products_are_numpy(dtype):
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.normal(size=(4, 3, 3)), dtype) for _ in range(2))
    x, y = (jnp.asarray(rng.normal(size=(4, 3)), dtype) for _ in range(2))
    A, B, X, Y = (np.asarray(z, np.float64) for z in (a, b, x, y))
    results = {
        "matmul": (small_matrix.matmul(a, b), A @ B),
        "tmatmul": (small_matrix.tmatmul(a, b), np.swapaxes(A, 1, 2) @ B),
        "matmult": (small_matrix.matmult(a, b), A @ np.swapaxes(B, 1, 2)),
        "matvec": (small_matrix.matvec(a, x), np.einsum("nij,nj->ni", A, X)),
        "tmatvec": (small_matrix.tmatvec(a, x), np.einsum("nji,nj->ni", A, X)),
        "cross": (small_matrix.cross(x, y), np.cross(X, Y)),
        "dot": (small_matrix.dot(x, y), np.sum(X * Y, axis=-1)),
        "outer": (small_matrix.outer(x, y), X[:, :, None] * Y[:, None, :]),
        "hat": (small_matrix.matvec(small_matrix.hat(x), y), np.cross(X, Y)),
        "trace": (small_matrix.trace(a), np.trace(A, axis1=1, axis2=2)),
        "det": (small_matrix.det3(a), np.linalg.det(A)),
    }
    for name, (actual, expected) in results.items():
        assert actual.dtype == dtype, name
        close(actual, expected, 8 * eps(dtype))
    condition = np.max(np.linalg.cond(A))
    close(small_matrix.inv3(a), np.linalg.inv(A), 4 * condition * eps(dtype))
    close(small_matrix.solve3(a, x), np.linalg.solve(A, X[..., None])[..., 0], 4 * condition * eps(dtype))


@each_dtype
@pytest.mark.parametrize("n", range(1, 7))
def test_ldl_solves_symmetric_systems(n, dtype):
    rng = np.random.default_rng(n)
    root = rng.normal(size=(5, n, n))
    m = jnp.asarray(root @ np.swapaxes(root, 1, 2) + np.eye(n), dtype)
    x = jnp.asarray(rng.normal(size=(5, n)), dtype)
    exact = np.linalg.solve(np.asarray(m, np.float64), np.asarray(x, np.float64)[..., None])[..., 0]
    actual = small_matrix.ldl_solve(small_matrix.ldl(m), x)
    assert actual.dtype == dtype
    close(actual, exact, 4 * np.max(np.linalg.cond(np.asarray(m, np.float64))) * eps(dtype))
