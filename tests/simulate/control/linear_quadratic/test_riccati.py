"""Riccati's recursion is that of SciPy, and its controls within a box are the best ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are
from scipy.optimize import lsq_linear

from lgjax.execution import batched
from lgjax.simulate.control.linear_quadratic import riccati


@pytest.mark.parametrize("spread", [1e2, 1e4, 1e8])
@pytest.mark.parametrize("m", [1, 3, 8])
def test_controls_within_a_box_are_the_best_ones(m, spread):
    """Against SciPy's bounded-variable least squares, for Hessians of eigenvalues 1 to `spread`."""
    rng, count = np.random.default_rng(m), 40
    turns = np.linalg.qr(rng.normal(size=(count, m, m)))[0]
    H = np.einsum("nij,nj,nkj->nik", turns, spread ** rng.uniform(size=(count, m)), turns)
    H, g = (H + np.swapaxes(H, 1, 2)) / 2, 3 * np.sqrt(spread) * rng.normal(size=(count, m))
    lower, upper = -rng.uniform(0, 2, (count, m)), rng.uniform(0, 2, (count, m))
    given = [jnp.asarray(x) for x in (H, g, 0 * H, lower, upper)]
    best_within = jax.jit(jax.vmap(batched(riccati._boxed)))
    found = np.asarray(best_within(*given)[0])
    value = lambda n, k: k @ H[n] @ k / 2 + g[n] @ k
    for n in range(count):
        root = np.linalg.cholesky(H[n])
        best = lsq_linear(root.T, -np.linalg.solve(root, g[n]), (lower[n], upper[n]), "bvls", tol=1e-14).x
        assert np.all((found[n] >= lower[n]) & (found[n] <= upper[n]))
        assert value(n, found[n]) - value(n, best) <= 1e-12 * abs(value(n, best))
    if spread == 1e2:  # in float32 they are as close as round-off in the Hessian allows
        single = np.asarray(best_within(*(x.astype(jnp.float32) for x in given))[0])
        np.testing.assert_allclose(single, found, atol=1e-4)
    spoilt = best_within(given[0].at[0, 0, 0].set(-1.0), *given[1:])[0]
    assert np.all(np.isnan(spoilt[0]))
    np.testing.assert_array_equal(np.isnan(spoilt[1:]), False)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("n", [3, 30])
def test_the_cost_to_go_stays_symmetric_and_ends_at_the_algebraic_equation(n, boxed, dtype):
    """300 steps of systems that would grow by up to 1.2 a step, three of them side by side; against SciPy."""
    rng, m, count = np.random.default_rng(n), 2 * n // 3, 3
    A = rng.normal(size=(count, n, n))
    A *= 1.2 / np.abs(np.linalg.eigvals(A)).max(1)[:, None, None]
    B = rng.normal(size=(count, n, m)) / np.sqrt(n)
    still, free = (jnp.full(k, x, dtype) for k, x in ((n, 0), (m, jnp.inf)))
    Q, R = (jnp.eye(k, dtype=dtype) for k in (n, m))
    cost = jnp.zeros((m, n), dtype)

    @jax.jit
    @jax.vmap
    def value(A, B):
        e = riccati.Expansion(A, B, still, jnp.zeros_like(free), Q, cost, R, still)
        before = batched(lambda values: riccati._step(values, e, -free, free, jnp.zeros((), dtype), boxed)[0])
        start = riccati._first_values((still, Q), ())
        return jax.lax.fori_loop(0, 300, lambda _, values: before(values), start)[0].xx

    found = np.asarray(value(jnp.asarray(A, dtype), jnp.asarray(B, dtype)))
    eps = float(jnp.finfo(dtype).eps)
    for P, a, b in zip(found, A, B, strict=True):
        np.testing.assert_allclose(P, P.T, rtol=0, atol=4 * eps * np.abs(P).max())
        exact = solve_discrete_are(a, b, np.eye(n), np.eye(m))
        np.testing.assert_allclose(P, exact, rtol=0, atol=2000 * eps * np.abs(exact).max())
