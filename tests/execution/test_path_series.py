"""Series of functions along paths against nested forward-mode differentiation."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax import se3, so3
from lgjax.execution.path_series import path_series

ORDER = 4


@jax.custom_jvp
def softened(x):
    """The length of x, with the derivative of the square root of 1 + x.x: only its rule knows that."""
    return jnp.sqrt(jnp.sum(x * x))


@softened.defjvp
def _softened_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return softened(x), jnp.sum(x * dx) / jnp.sqrt(1 + jnp.sum(x * x))


ANYWHERE = {
    "rotation": so3.exp,
    "jit": jax.jit(lambda x: se3.exp(jnp.concatenate([x, 2 * x])).translation),
    "its own rule": jax.jit(softened),
    "quotient": lambda x: jnp.sin(x) / (2 + jnp.cos(x)) + jnp.exp(-x) * jnp.tanh(x),
    "branches": lambda x: jnp.where(x > 0, x * x, jnp.expm1(x)) + jax.lax.cond(x[0] > 1, jnp.sin, jnp.cos, x),
    "loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) * x, x),
    "constant": lambda x: jnp.ones(3) + jnp.round(0 * x),
}
AWAY_FROM_ZERO = {
    "norm": lambda x: jnp.linalg.norm(x) * jax.jit(jnp.sqrt)(x),
    "powers": lambda x: x**3 + x**2.5 + jnp.log(x) + jnp.arctan2(x, x[::-1]),
    "linear system": lambda x: jnp.linalg.solve(so3.hat(x) + jnp.eye(3, dtype=x.dtype), x),
}
CASES = [(name, f, start) for name, f in ANYWHERE.items() for start in ((0.0, 0.0, 0.0), (0.3, 0.5, 0.7))]
CASES += [(name, f, (0.3, 0.5, 0.7)) for name, f in AWAY_FROM_ZERO.items()]


def nested(f, path):
    """Coefficients by one forward mode inside the other."""
    along = [lambda t: f(sum(c * t**k for k, c in enumerate(path)))]
    for _ in path[1:]:
        along.append(lambda t, g=along[-1]: jax.jvp(g, (t,), (jnp.ones_like(t),))[1])
    return [g(jnp.zeros((), path[0].dtype)) / float(math.factorial(k)) for k, g in enumerate(along)]


@pytest.mark.parametrize(("name", "f", "start"), CASES, ids=[f"{name} at {start[0]}" for name, _, start in CASES])
def test_series_are_those_of_nested_jvp(name, f, start):
    order = {"rotation": 3, "jit": 2}.get(name, ORDER)
    path = [jnp.asarray(start), *jnp.asarray(np.random.default_rng(0).normal(size=(order, 3)))]
    found, expected = jax.jit(lambda path: (path_series(f, path), nested(f, path)))(path)
    np.testing.assert_allclose(np.stack(found), np.stack(expected), atol=1e-13 * (1 + np.abs(np.stack(expected)).max()))


def test_series_keep_the_dtype_and_the_structure_of_the_result():
    path = [jnp.ones(3, jnp.float32)] * 3
    found = path_series(lambda x: {"sine": jnp.sin(x), "one": jnp.ones(2, jnp.float32)}, path)
    assert [jax.tree.map(lambda x: (x.shape, x.dtype.name), y) for y in found] == [
        {"sine": ((3,), "float32"), "one": ((2,), "float32")}
    ] * 3
