"""Symmetric positive definite systems, row by row and by a library, are those of NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.execution import batched
from lgjax.numerics import definite

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
