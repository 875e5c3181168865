"""How a program is built: each function is traced once, and what directions of a derivative share is computed once."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lgjax.execution import batched, plain
from lgjax.execution.collection import uncollected
from lgjax.execution.kernels import programs
from lgjax.execution.scalars import interpreter


def test_a_jitted_function_is_traced_once_for_a_kernel_and_its_derivatives():
    """Also where a rule for its derivative calls it, which JAX evaluates as a part of another jaxpr."""
    traced = []

    @jax.jit
    def cube(x):
        traced.append(x)
        return x**3

    @jax.custom_jvp
    def ruled(x):
        return cube(x)

    ruled.defjvp(lambda primals, tangents: (cube(primals[0]), 3 * cube(primals[0]) / primals[0] * tangents[0]))
    f = batched(lambda x: ruled(x) + 1)
    both = batched(lambda x: (f(x), jax.jacfwd(f)(x)))
    value, slope = jax.jit(jax.vmap(both))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(value, [2, 9], rtol=1e-6)
    np.testing.assert_allclose(slope, [3, 12], rtol=1e-6)
    assert len(traced) == 1


@pytest.mark.parametrize("decides", [False, True], ids=["a product", "a loop that ends by its numbers"])
def test_what_directions_share_is_computed_once(decides, monkeypatch):
    """Sines of a Jacobian with 12 columns; where a loop runs for each column, every column has its own."""
    rows = jnp.arange(144.0).reshape(12, 12) / 144

    def bent(x):
        y = jnp.sin(jnp.sin(rows @ x))
        return jax.lax.while_loop(lambda y: jnp.sum(y) > 1, lambda y: y / 2, y) if decides else y

    f = batched(lambda x: jax.jacfwd(batched(bent))(x))
    x = jnp.linspace(-1.0, 1.0, 12)
    with plain():
        expected = jax.jacfwd(bent)(x)
    count = []
    apply = interpreter.Interpreter._apply
    counted = lambda self, eqn, inputs: (count.append(eqn.primitive.name), apply(self, eqn, inputs))[1]
    monkeypatch.setattr(interpreter.Interpreter, "_apply", counted)
    programs.program_of_jaxpr.cache_clear()
    np.testing.assert_allclose(jax.jit(f)(x), expected, rtol=1e-5, atol=1e-7)
    assert (count.count("sin") >= 12) == decides


@pytest.mark.parametrize("on", [True, False])
def test_garbage_is_collected_afterwards_if_it_was_before(on):
    """Also after an error, and when one pause is within another."""

    @uncollected()
    def fails():
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise ValueError("within")

    try:
        (gc.enable if on else gc.disable)()
        with pytest.raises(ValueError, match="within"):
            fails()
        assert gc.isenabled() == on
    finally:
        gc.enable()
