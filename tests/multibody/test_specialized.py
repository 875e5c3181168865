"""A specialised model is the same model: same numbers, fewer operations, nothing to batch or differentiate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import models, specialize
from lgjax.execution.program import program_of
from tests.dynamics import trees

FUNCTIONS = {
    "forward dynamics": lambda m, q, v, tau: lgjax.forward_dynamics(m, q, v, tau),
    "energy": lambda m, q, v, tau: lgjax.total_energy(m, q, v),
    "inverse dynamics, plain": lambda m, q, v, tau: lgjax.inverse_dynamics(m, q, v, tau, execution="plain"),
    "gradient": jax.grad(lambda m, q, v, tau: jnp.sum(lgjax.inverse_dynamics(m, q, v, tau)), (1, 2, 3)),
}


def state(model):
    q, v, _, tau, _ = jax.tree.map(lambda x: x[0], trees.random_states(model, 1))
    return jax.tree.map(lambda x: x.astype(model.dtype), (q, v, tau))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_numbers_are_those_of_the_general_model(name):
    dtype = "float64" if name == "forward dynamics" else "float32"
    model = trees.model("shoulder" if name == "forward dynamics" else "pendulum").astype(dtype)
    function = jit(FUNCTIONS[name])
    expected = function(model, *state(model))
    got = function(specialize(model), *state(model))
    eps = np.finfo(dtype).eps

    def same(a, e):
        assert a.dtype == e.dtype
        np.testing.assert_allclose(a, e, rtol=0, atol=100 * eps * (1 + np.abs(e).max(initial=0)))

    jax.tree.map(same, got, expected)


def operations(function, model, *parameters) -> int:
    """Scalar operations of one evaluation for a model, whose arrays are inputs where it is given in `parameters`."""
    run = lambda *args: function(*(args if parameters else (model, *args)))
    return sum(program_of(run, *parameters, *state(model)).operations.values())


@pytest.mark.parametrize("name", ["quadruped", "chain of one"])
@pytest.mark.parametrize("function", [lgjax.forward_dynamics, lgjax.inverse_dynamics])
def test_constants_fold(function, name):
    """Half of a quadruped's operations have a factor that is zero or one; of a rod on a hinge a dozen are left."""
    model = models.quadruped() if name == "quadruped" else models.chain(1)
    left, general = operations(function, specialize(model)), operations(function, model, model)
    assert left < 0.52 * general
    if name == "chain of one":
        assert left <= 12


def test_equal_models_are_one_value_and_one_program():
    traces = []

    @jit
    def weight(model):
        traces.append(model)
        return jnp.sum(model.inertias.mass) * model.gravity

    one, same, other = (specialize(m) for m in (models.chain(2), models.chain(2), models.chain(2).astype(np.float32)))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert len({one, same, other}) == 2
    for model in (one, same, other, one.replace(gravity=np.zeros(3)), same):
        weight(model)
    assert len(traces) == 3
    assert not jax.tree.leaves(one)


def test_changes_keep_it_specialised_where_they_are_known():
    model = specialize(models.chain(2))
    assert specialize(model) is model
    still = model.replace(gravity=jnp.zeros(3))
    assert type(still) is type(model)
    np.testing.assert_array_equal(still.gravity, 0)
    assert model.astype(np.float32).dtype == np.float32
    jax.tree.map(np.testing.assert_array_equal, model.general, models.chain(2))

    def weight(g):
        changed = model.replace(gravity=g)
        assert type(changed) is lgjax.Model
        return jnp.sum(lgjax.gravity_forces(changed, lgjax.configuration(changed, joints=jnp.ones(2))))

    g = jnp.asarray([0.0, 0, -9.81])
    force, slope = jit(jax.value_and_grad(weight))(g)
    np.testing.assert_allclose(slope @ g, force, rtol=1e-12)


def test_bad_input_is_named():
    model = models.chain(2)
    with pytest.raises(ValueError, match=r"specialize takes one model, inertias.mass has shape"):
        specialize(jax.tree.map(lambda x: jnp.stack([x, x]), model))
    with pytest.raises(ValueError, match=r"whose parameters are known, placements.rotation is traced"):
        jax.jit(lambda m: specialize(m).gravity)(model)
