"""Large algorithms are one native function: XLA compiles them for minutes, and runs them a hundred times as long."""

import jax
import jax.numpy as jnp
import pytest

import lgjax
from lgjax.dynamics import partials
from lgjax.execution.kernels import native

BATCH = 20
ALGORITHMS = {
    "partials of 38 velocities": ((4, 8), lambda m, q, v: partials.forward_dynamics_partials(m, q, v[0], v[1])),
    "hybrid partials": ((4, 8), lambda m, q, v: partials.hybrid_dynamics_partials(m, q, v[0], v[1], v[1], [1, 8])),
    "order 4 of 101 bodies": ((5, 20), lambda m, q, v: lgjax.inverse_dynamics_time_derivatives(m, q, v, 4)),
    "order 3, forward": ((5, 20), lambda m, q, v: lgjax.forward_dynamics_time_derivatives(m, q, v[0], v[:4])),
}


@pytest.mark.skipif(not native.usable(), reason="no native functions on this processor")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_native_function(monkeypatch, name):
    """Lowered, and not compiled."""
    found = []
    monkeypatch.setattr(native, "compiled", lambda name, text: found.append(text) or b"")
    monkeypatch.setattr(native, "registered", lambda name, code: "lgjax_not_compiled")
    size, function = ALGORITHMS[name]
    model = lgjax.models.branched_tree(*size)
    states = lgjax.neutral(model), jnp.ones((6, model.nv))
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (BATCH, *x.shape)), states)
    native.forget()
    text = jax.jit(jax.vmap(lambda q, v: function(model, q, v))).lower(*states).as_text()
    native.forget()
    assert text.count("@lgjax_not_compiled(") == len(found) == 1
    assert "while" not in text
