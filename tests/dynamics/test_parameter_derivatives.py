"""Solutions with the mass matrix have derivatives by every parameter, also those that they do not depend on."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax

MODEL = lgjax.models.chain(2)
Q, V = lgjax.configuration(MODEL, joints=[0.3, 0.2]), jnp.asarray([0.5, 0.4])
FUNCTIONS = {
    "solve": lambda m: lgjax.solve_mass_matrix(m, Q, V),
    "forward": lambda m: lgjax.forward_dynamics(m, Q, V, V),
    "hybrid": lambda m: jnp.concatenate(lgjax.hybrid_dynamics(m, Q, V, V, V, [0])),
}


@pytest.mark.parametrize("leaf", ["damping", "gravity"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_first_and_second_order(name, leaf):
    """Accelerations are linear in damping and gravity; what M^-1 gives does not depend on them."""
    of = lambda x: FUNCTIONS[name](MODEL.replace(**{leaf: x}))
    x = getattr(MODEL, leaf)
    slope = jax.jit(jax.jacrev(of))(x)
    np.testing.assert_allclose(slope @ (x + 1), jax.jvp(of, (x,), (x + 1,))[1], atol=1e-12)
    np.testing.assert_allclose(of(x + 0.7) - of(x), 0.7 * slope.sum(1), atol=1e-10)
    assert np.any(slope) == (name != "solve")
    for second in (jax.jacfwd(jax.jacrev(of)), jax.jacrev(jax.jacrev(of))):
        assert not np.any(jax.jit(second)(x))


def test_trees_outlive_a_change_of_precision():
    """A tree that was used in single precision is used in double, and back."""
    script = """
import jax, jax.numpy as jnp, lgjax
def used():
    m = lgjax.models.chain(2, floating_base=True)
    q, v = lgjax.neutral(m), jnp.ones(m.nv, m.dtype)
    lgjax.forward_kinematics(m, q), lgjax.jacobian(m, q, m.body_names[-1])
    return lgjax.mass_matrix(m, q).dtype, lgjax.forward_dynamics(m, q, v, v).dtype
print(used()); jax.config.update("jax_enable_x64", True); print(used())
jax.config.update("jax_enable_x64", False); print(used())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert [line.count("float64") for line in done.stdout.splitlines()] == [0, 2, 0]
