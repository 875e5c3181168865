"""The table of primitives agrees with the rules for programs and kernels, and with JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lgjax.execution.kernels.functions import FUNCTIONS
from lgjax.execution.primitives import TABLE, Way, named
from lgjax.execution.scalars import indexing, interpreter, reductions
from lgjax.execution.scalars.graph import Graph

WRITTEN_ELSEWHERE = {"sin", "cos", "integer_pow", "round"}  # by the walk through a program, or with parameters
X, Y = np.array([0.5, -2.0, 3.25]), np.array([1.5, -2.0, -0.25])
BITS = {"and", "or", "xor", "not"}
KNOWN = {
    "select_n": (X > 0, X, Y),
    "clamp": (np.float64(-1), X, np.float64(1)),
    "sqrt": (X**2,),
    "rsqrt": (X**2,),
    **dict.fromkeys(("abs", "neg", "sin", "cos", "sign", "floor", "ceil", "is_finite"), (X,)),
    "not": (X.astype(int),),
}
GRID, K = np.arange(6.0).reshape(2, 3), np.array([2, 0])
LINEAR = {
    "add": lambda x: x + x[::-1],
    "sub": lambda x: x - x[::-1],
    "neg": lambda x: -x,
    "select_n": lambda x: jnp.where(X > 0, x, 2 * x),
    "copy": jnp.copy,
    "convert_element_type": lambda x: x.astype(jnp.float32).astype(jnp.float64),
    "broadcast_in_dim": lambda x: jnp.broadcast_to(x, (2, 3)),
    "expand_dims": lambda x: lax.expand_dims(x, (0,)),
    "reshape": lambda x: jnp.reshape(x, (3, 1)),
    "rev": lambda x: x[::-1],
    "slice": lambda x: lax.slice(x, (1,), (3,)),
    "squeeze": lambda x: jnp.squeeze(x[:1]),
    "tile": lambda x: lax.tile(x, (2,)) if hasattr(lax, "tile") else x,
    "transpose": lambda x: (x * GRID).T,
    "concatenate": lambda x: jnp.concatenate([x, x]),
    "pad": lambda x: lax.pad(x, np.float64(0), ((1, 1, 0),)),
    "stack": lambda x: jnp.stack([x, x]),
    "split": lambda x: jnp.split(x, 3)[1],
    "unstack": lambda x: jnp.unstack(x)[1],
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (jnp.int32(1),), (2,)),
    "gather": lambda x: x[K],
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(2 * x, x[:2], (jnp.int32(1),)),
    "scatter-add": lambda x: x.at[K].add(x[:2]),
    "reduce_sum": lambda x: jnp.sum(x),
    "cumsum": lambda x: jnp.cumsum(x),
}
OTHERS = {"add_any", "scatter_add"}  # made by derivatives; the name of "scatter-add" in another JAX


def test_every_row_has_its_rule_and_every_rule_its_row():
    assert set(interpreter.Interpreter(Graph()).elementwise) == named(Way.FOLDED, Way.REPLACED)
    assert set(interpreter.REARRANGEMENTS) == named(Way.MOVED, Way.JOINED, Way.CONVERTED)
    assert set(indexing.MOVES) == named(Way.READ, Way.WRITTEN)
    assert set(reductions.RULES) == named(Way.REDUCED, Way.ACCUMULATED, Way.PLACED)
    nodes = {name for name in named(Way.FOLDED, Way.ENTRY) if TABLE[name].written}
    assert set(FUNCTIONS) | WRITTEN_ELSEWHERE == nodes
    assert set(LINEAR) | OTHERS == {name for name, row in TABLE.items() if row.linear}


@pytest.mark.parametrize(("name", "numbers"), [(name, row.numbers) for name, row in TABLE.items() if row.numbers])
def test_known_numbers_are_folded_as_jax_computes_them(name, numbers):
    args = KNOWN.get(name, (X, Y))
    args = tuple(x.astype(int) for x in args) if name in BITS else args
    function = getattr(lax, f"bitwise_{name}" if name in BITS else name)
    expected = function(*map(jnp.asarray, args))
    found = numbers(*args)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize("name", LINEAR)
def test_what_is_called_linear_is(name):
    function = LINEAR[name]
    jaxpr = jax.make_jaxpr(function)(X)
    if hasattr(lax, f"{name.replace('-', '_')}_p"):
        assert f" {name}" in str(jaxpr).replace("scatter_add", "scatter-add")
    combined = function(jnp.asarray(2 * X - 3 * Y))
    np.testing.assert_allclose(combined, 2 * function(jnp.asarray(X)) - 3 * function(jnp.asarray(Y)), rtol=1e-6)
