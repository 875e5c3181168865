"""Fixed points by Anderson's acceleration: against repetition, linear algebra, and derivatives of both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.numerics.fixed_point import fixed_point

N = 8


def contraction(dtype, rate=0.9):
    A = np.random.default_rng(0).normal(size=(N, N))
    A = jnp.asarray(rate * A / np.linalg.norm(A, 2), dtype)
    return lambda x, b: jnp.matmul(A, x, precision="highest") + b * jnp.cos(0.1 * x)


def accelerated(b, turns=100):
    f = contraction(b.dtype)
    close = jnp.full((N,), 16 * jnp.finfo(b.dtype).eps, b.dtype)
    return fixed_point(lambda x: f(x, b), jnp.zeros_like(b), close, turns)


def repeated(b):
    f = contraction(b.dtype)
    return jax.lax.fori_loop(0, 500, lambda _, x: f(x, b), jnp.zeros_like(b))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_it_is_what_repetition_ends_at(dtype):
    b = jnp.arange(float(N), dtype=dtype)
    np.testing.assert_allclose(accelerated(b), repeated(b), rtol=0, atol=500 * float(jnp.finfo(dtype).eps))


def test_derivatives_are_those_of_repetition_in_every_mode():
    """As exact as the damping of the linear equations lets them be; float32 against float64."""
    b = jnp.arange(float(N))
    fast, slow = (lambda b, f=f: jnp.sum(jnp.sin(f(b))) for f in (accelerated, repeated))
    first, second = jax.grad(slow)(b), jax.hessian(slow)(b)
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(derivative(fast)(b), first, rtol=1e-8, atol=1e-9)
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(outer(inner(fast))(b), second, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(jax.vmap(jax.grad(fast))(jnp.stack([b, 0 * b]))[0], first, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(jax.grad(fast)(b.astype(jnp.float32)), first, atol=2e-3 * np.abs(first).max())


def test_a_map_of_rank_two_is_solved_in_a_few_turns():
    """Repetition at a rate of 0.999 needs ten thousand; elements of a batch do not hold each other up or change."""
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(2, N, 2))
    A = left @ np.linalg.solve(right.T @ left, np.diag([0.999, -0.5]) @ right.T)
    solve = lambda b, turns: fixed_point(lambda x: jnp.asarray(A) @ x + b, jnp.zeros(N), jnp.zeros(N), turns)
    b = rng.normal(size=(3, N))
    together = jax.vmap(lambda b: solve(b, 8))(jnp.asarray(b))
    np.testing.assert_allclose(together, np.linalg.solve(np.eye(N) - A, b.T).T, rtol=1e-8)
    np.testing.assert_allclose(solve(jnp.asarray(b[1]), 8), together[1], rtol=1e-8)
    assert np.abs(np.asarray(solve(jnp.asarray(b[0]), 3)) - together[0]).max() > 1e-6


def test_nothing_is_done_for_those_that_are_not_active():
    start = jnp.arange(float(N))
    assert jnp.all(fixed_point(lambda x: 0.5 * x, start, jnp.zeros(N), 50, jnp.asarray(False)) == start)
