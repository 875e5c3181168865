"""Numbers that are differentiated once: the first derivative is as it was, a second one is refused in every mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.execution.first_order import first_order


@jax.custom_jvp
def cube(x):
    """By a loop that cannot be differentiated backwards."""
    return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (0, jnp.ones_like(x)))[1]


@cube.defjvp
def _(primals, tangents):
    primals = first_order(primals, "a cube")
    return cube(*primals), jax.jvp(lambda x: x**3, primals, tangents)[1]


def plain(x):
    return jax.lax.scan(lambda y, _: (y**3 * x, None), x, None, length=3)[0]


def ours(x):
    return jax.lax.scan(lambda y, _: (cube(y) * x, None), x, None, length=3)[0]


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
def test_first_derivatives_are_those_of_the_rule(derivative):
    x = jnp.linspace(0.5, 1.1, 4)
    got = jax.jit(jax.vmap(derivative(ours)))(x)
    np.testing.assert_allclose(got, jax.vmap(jax.grad(plain))(x), rtol=1e-12)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint])
@pytest.mark.parametrize("outer", [jax.grad, jax.jacfwd])
@pytest.mark.parametrize("inner", [jax.grad, jax.jacfwd])
def test_a_second_derivative_is_refused(inner, outer, wrap):
    with pytest.raises(TypeError, match="a cube has no second derivatives"):
        outer(inner(wrap(ours)))(1.1)


def test_what_is_not_differentiated_again_may_pass():
    """A second derivative with respect to something else."""
    f = lambda x, y: jax.grad(ours)(x) * y**2
    np.testing.assert_allclose(jax.grad(f, 1)(1.1, 2.0), 4 * jax.grad(plain)(1.1), rtol=1e-12)
