"""The small dense algebra of Riccati's recursion, row by row and by a library, is that of NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are
from scipy.optimize import lsq_linear

from lgjax.execution import batched
from lgjax.numerics import definite
from lgjax.simulate.control.linear_quadratic import riccati

SIZES = 1, 7, definite.SMALL, definite.SMALL + 1


def arrays(dtype, *shapes):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("wrap", [lambda f: f, batched], ids=["plain", "kernel"])
@pytest.mark.parametrize("m", SIZES)
def test_a_definite_matrix_is_solved_with_and_another_one_gives_nan_alone(m, wrap, dtype):
    root, right = arrays(dtype, (3, m, m), (3, m, 4))
    matrix = jnp.matmul(root, jnp.swapaxes(root, 1, 2), precision="highest") + m * jnp.eye(m, dtype=dtype)
    run = lambda f: jax.jit(jax.vmap(wrap(f)))
    (found, half), (alone, _) = run(definite.solved)(matrix, right, right[..., :1])
    exact = lambda x: np.asarray(x, np.float64)
    tolerance = 2000 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(found, np.linalg.solve(exact(matrix), exact(right)), rtol=0, atol=tolerance)
    lower = np.linalg.cholesky(exact(matrix))
    np.testing.assert_allclose(half, np.linalg.solve(lower, exact(right)), rtol=0, atol=tolerance)
    np.testing.assert_allclose(alone, found[..., :1], rtol=0, atol=tolerance)
    spoilt = matrix.at[0, m - 1, m - 1].set(-1.0)
    x = run(definite.solved)(spoilt, right, right[..., :1])[0].x
    assert np.all(np.isnan(x[0]))
    np.testing.assert_array_equal(x[1:], found[1:])
    np.testing.assert_array_equal(run(definite.definite)(spoilt), [False, True, True])


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
