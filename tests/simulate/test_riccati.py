"""The small dense algebra of Riccati's recursion, written out and by a library, is that of NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are
from scipy.optimize import lsq_linear

from lgjax.simulate.control.linear_quadratic import algebra, riccati

SIZES = 1, 7, algebra.WRITTEN_OUT, algebra.WRITTEN_OUT + 1, 40
BATCHES = (), (3,), (2, 3)


def arrays(dtype, *shapes):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("m", SIZES)
def test_a_definite_matrix_is_solved_with_and_another_one_gives_nan_alone(m, batch, dtype):
    root, right = arrays(dtype, (m, m, *batch), (m, 4, *batch))
    matrix = jnp.einsum("ik...,jk...->ij...", root, root, precision="highest") + m * jnp.eye(m, dtype=dtype).reshape(
        m, m, *[1] * len(batch)
    )
    (found, halves), (alone, _) = jax.jit(algebra.solved)(matrix, right, right[:, :1])
    half = np.concatenate(halves)
    front = lambda x: np.moveaxis(np.asarray(x, np.float64), (0, 1), (-2, -1))
    tolerance = 2000 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(front(found), np.linalg.solve(front(matrix), front(right)), rtol=0, atol=tolerance)
    lower = np.linalg.cholesky(front(matrix))
    np.testing.assert_allclose(front(half), np.linalg.solve(lower, front(right)), rtol=0, atol=tolerance)
    np.testing.assert_allclose(alone, found[:, :1], rtol=0, atol=tolerance)
    if batch:
        first = (0,) * len(batch)
        spoilt = jax.jit(algebra.solved)(matrix.at[(m - 1, m - 1, *first)].set(-1.0), right)[0].x
        assert np.all(np.isnan(spoilt[(..., *first)]))
        others = np.ones(batch, bool)
        others[first] = False
        np.testing.assert_array_equal(spoilt[..., others], found[..., others])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("k", SIZES)
def test_products_are_those_of_matrices_side_by_side(k, batch):
    a, b, x = arrays(jnp.float64, (3, k, *batch), (k, 5, *batch), (k, *batch))
    np.testing.assert_allclose(algebra.times(a, b), np.einsum("ik...,kj...->ij...", a, b), atol=1e-12)
    np.testing.assert_allclose(algebra.times(a, x), np.einsum("ik...,k...->i...", a, x), atol=1e-12)


@pytest.mark.parametrize("spread", [1e2, 1e4, 1e8])
@pytest.mark.parametrize("m", [1, 3, 8])
def test_controls_within_a_box_are_the_best_ones(m, spread):
    """Against SciPy's bounded-variable least squares, for Hessians of eigenvalues 1 to `spread`."""
    rng, count = np.random.default_rng(m), 40
    turns = np.linalg.qr(rng.normal(size=(count, m, m)))[0]
    H = np.einsum("nij,nj,nkj->nik", turns, spread ** rng.uniform(size=(count, m)), turns)
    H, g = (H + np.swapaxes(H, 1, 2)) / 2, 3 * np.sqrt(spread) * rng.normal(size=(count, m))
    lower, upper = -rng.uniform(0, 2, (count, m)), rng.uniform(0, 2, (count, m))
    behind = [jnp.moveaxis(jnp.asarray(x), 0, -1) for x in (H, g, 0 * H, lower, upper)]
    found = np.asarray(jax.jit(riccati._boxed)(*behind)[0]).T
    value = lambda n, k: k @ H[n] @ k / 2 + g[n] @ k
    for n in range(count):
        root = np.linalg.cholesky(H[n])
        best = lsq_linear(root.T, -np.linalg.solve(root, g[n]), (lower[n], upper[n]), "bvls", tol=1e-14).x
        assert np.all((found[n] >= lower[n]) & (found[n] <= upper[n]))
        assert value(n, found[n]) - value(n, best) <= 1e-12 * abs(value(n, best))
    if spread == 1e2:  # in float32 they are as close as round-off in the Hessian allows
        single = np.asarray(jax.jit(riccati._boxed)(*(x.astype(jnp.float32) for x in behind))[0]).T
        np.testing.assert_allclose(single, found, atol=1e-4)
    spoilt = riccati._boxed(behind[0].at[0, 0, 0].set(-1.0), *behind[1:])[0]
    assert np.all(np.isnan(spoilt[:, 0]))
    np.testing.assert_array_equal(np.isnan(spoilt[:, 1:]), False)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize("n", [3, 30])
def test_the_cost_to_go_stays_symmetric_and_ends_at_the_algebraic_equation(n, boxed, dtype):
    """300 steps of systems that would grow by up to 1.2 a step, three of them side by side; against SciPy."""
    rng, m, count = np.random.default_rng(n), 2 * n // 3, 3
    A = rng.normal(size=(count, n, n))
    A *= 1.2 / np.abs(np.linalg.eigvals(A)).max(1)[:, None, None]
    B = rng.normal(size=(count, n, m)) / np.sqrt(n)
    behind = lambda x: jnp.moveaxis(jnp.asarray(x, dtype), 0, -1)
    still, free = (jnp.full((k, count), x, dtype) for k, x in ((n, 0), (m, jnp.inf)))
    Q, R = (jnp.broadcast_to(jnp.eye(k, dtype=dtype)[..., None], (k, k, count)) for k in (n, m))
    cost = jnp.zeros((m, n, count), dtype)
    e = riccati.Expansion(behind(A), behind(B), still, jnp.zeros_like(free), Q, cost, R, still)

    @jax.jit
    def value(e):
        step = lambda values, _: (riccati.one_step(values, e, -free, free, jnp.zeros(count, dtype), boxed)[0], None)
        return jax.lax.scan(step, riccati.first_values((still, Q), ()), None, length=300)[0][0].xx

    found = np.moveaxis(np.asarray(value(e)), -1, 0)
    eps = float(jnp.finfo(dtype).eps)
    for P, a, b in zip(found, A, B, strict=True):
        np.testing.assert_allclose(P, P.T, rtol=0, atol=4 * eps * np.abs(P).max())
        exact = solve_discrete_are(a, b, np.eye(n), np.eye(m))
        np.testing.assert_allclose(P, exact, rtol=0, atol=2000 * eps * np.abs(exact).max())
