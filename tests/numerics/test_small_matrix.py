"""Products of small vectors and matrices are those of NumPy, and so are their derivatives, whatever the sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.numerics import small_matrix as sm
from tests.groups.cases import DTYPES, close, eps

BATCHES = [((), ()), ((4,), (4,)), ((), (4,)), ((2, 1), (3,))]
SIZES = [(3, 3), (1, 3), (2, 6), (0, 3), (6, 1)]
PRODUCTS = {  # name -> ours, NumPy's and the shapes of their arguments for sizes (m, n)
    "dot": (sm.dot, lambda a, b: np.einsum("...i,...i", a, b), lambda m, n: ((n,), (n,))),
    "scale": (sm.scale, lambda s, x: s[..., None] * x, lambda m, n: ((), (n,))),
    "outer": (sm.outer, lambda a, b: a[..., :, None] * b[..., None, :], lambda m, n: ((m,), (n,))),
    "matvec": (sm.matvec, lambda a, x: np.einsum("...ij,...j->...i", a, x), lambda m, n: ((m, n), (n,))),
    "tmatvec": (sm.tmatvec, lambda a, x: np.einsum("...ji,...j->...i", a, x), lambda m, n: ((n, m), (n,))),
    "matmul": (sm.matmul, np.matmul, lambda m, n: ((m, n), (n, 2))),
    "tmatmul": (sm.tmatmul, lambda a, b: np.swapaxes(a, -1, -2) @ b, lambda m, n: ((n, m), (n, 2))),
    "matmult": (sm.matmult, lambda a, b: a @ np.swapaxes(b, -1, -2), lambda m, n: ((m, n), (2, n))),
    "cross": (sm.cross, np.cross, lambda m, n: ((3,), (3,))),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, size, dtype):
    ours, theirs, shapes = PRODUCTS[name]
    random = np.random.default_rng(0)
    normal = lambda shape: jnp.asarray(random.normal(size=shape), dtype)
    pairs = [[normal((*lead, *s)) for lead, s in zip(batch, shapes(*size), strict=True)] for batch in BATCHES]
    expected = [theirs(*_exact(*pair)) for pair in pairs]
    weights = [normal(x.shape) for x in expected]
    loss = lambda pair, w: jnp.sum(w * ours(*pair))
    program = jax.jit(lambda pairs: [(ours(*x), jax.grad(loss)(x, w)) for x, w in zip(pairs, weights, strict=True)])
    for x, right, w, (got, gradients) in zip(pairs, expected, weights, program(pairs), strict=True):
        assert (got.shape, got.dtype) == (right.shape, dtype)
        close(got, right, 16 * eps(dtype))
        a, b = _exact(*x)
        for k, gradient in enumerate(gradients):
            # bilinear: the gradient in one argument does not depend on it
            step = random.normal(size=(a, b)[k].shape)
            moved = theirs(step, b) if k == 0 else theirs(a, step)
            close(np.sum(np.asarray(gradient) * step), np.sum(np.asarray(w) * moved), 200 * eps(dtype))


def _exact(*arrays):
    return [np.asarray(x, np.float64) for x in arrays]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_entry(dtype):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 7)), dtype)
    cases = [x[:, :n] for n in (1, 2, 3, 5, 6, 7)]
    for case, found in zip(cases, jax.jit(lambda cases: [sm.largest(y) for y in cases])(cases), strict=True):
        np.testing.assert_array_equal(found, np.max(case, -1))
    np.testing.assert_array_equal(sm.largest(x[:, :0]), np.zeros(3))
    assert np.isnan(sm.largest(x.at[1, 4].set(jnp.nan)))[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_made_of_products(dtype):
    random = np.random.default_rng(0)
    a, x, y = (jnp.asarray(random.normal(size=(4, *shape)), dtype) for shape in ((3, 3), (3,), (3,)))
    A, X, Y = (np.asarray(z, np.float64) for z in (a, x, y))
    results = {
        "hat": (sm.matvec(sm.hat(x), y), np.cross(X, Y)),
        "trace": (sm.trace(a), np.trace(A, axis1=1, axis2=2)),
        "det": (sm.det3(a), np.linalg.det(A)),
    }
    for name, (actual, expected) in results.items():
        assert actual.dtype == dtype, name
        close(actual, expected, 8 * eps(dtype))
    condition = np.max(np.linalg.cond(A))
    close(sm.inv3(a), np.linalg.inv(A), 4 * condition * eps(dtype))
    close(sm.solve3(a, x), np.linalg.solve(A, X[..., None])[..., 0], 4 * condition * eps(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", range(1, 7))
def test_ldl_solves_symmetric_systems(n, dtype):
    rng = np.random.default_rng(n)
    root = rng.normal(size=(5, n, n))
    m = jnp.asarray(root @ np.swapaxes(root, 1, 2) + np.eye(n), dtype)
    x = jnp.asarray(rng.normal(size=(5, n)), dtype)
    exact = np.linalg.solve(np.asarray(m, np.float64), np.asarray(x, np.float64)[..., None])[..., 0]
    actual = sm.ldl_solve(sm.ldl(m), x)
    assert actual.dtype == dtype
    close(actual, exact, 4 * np.max(np.linalg.cond(np.asarray(m, np.float64))) * eps(dtype))
