"""Zeros with derivatives of their own: the value is not computed, the derivatives are those of what is unseen."""

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution import batched
from lgjax.execution.cost import kernel_cost
from lgjax.execution.unseen import unseen


def shifted(x):
    return 2 * x + unseen(jnp.sin(x))


def test_the_value_is_zero_and_is_not_computed():
    assert unseen(jnp.float32(0.3)) == 0
    assert unseen(jnp.float32(0.3)).dtype == jnp.float32
    assert kernel_cost(shifted, 0.3)["operations"] == {"mul": 1}
    assert "sine" not in jax.jit(shifted).lower(0.3).compile().as_text()


def test_derivatives_of_all_orders_are_those_of_what_is_unseen():
    """Alone, in a batch, in a kernel, and in a scan, where JAX keeps no rules after the first derivative."""
    x = jnp.linspace(-1.0, 1.0, 4)
    for f in (shifted, batched(shifted), lambda x: jax.lax.scan(lambda y, _: (shifted(y), None), x, None, length=1)[0]):
        for derivative, expected in ((jax.grad(f), 2 + jnp.cos(x)), (jax.jacfwd(f), 2 + jnp.cos(x))):
            np.testing.assert_allclose(jax.jit(jax.vmap(derivative))(x), expected, rtol=1e-14)
        np.testing.assert_allclose(jax.jit(jax.vmap(jax.jacfwd(jax.grad(f))))(x), -jnp.sin(x), rtol=1e-14)
