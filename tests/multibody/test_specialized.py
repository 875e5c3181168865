"""A specialized model is the same model: same numbers, fewer operations, derivatives by its inputs alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import models, specialize
from lgjax.execution import plain
from lgjax.execution.scalars.program import program_of
from tests.dynamics import trees

FUNCTIONS = {
    "forward dynamics": lambda m, q, v, tau: lgjax.forward_dynamics(m, q, v, tau),
    "energy": lambda m, q, v, tau: lgjax.total_energy(m, q, v),
    "inverse dynamics, plain": lambda m, q, v, tau: plain()(lgjax.inverse_dynamics)(m, q, v, tau),
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


@pytest.fixture
def weight():
    """A compiled function of a model; `weight.traces` has the models for which it was traced."""

    def function(model):
        compiled.traces.append(model)
        return jnp.sum(model.inertias.mass) * model.gravity

    run = jit(function)
    compiled = lambda model: run(model)
    compiled.traces = []
    return compiled


def test_equal_models_are_one_value_and_one_program(weight):
    one, same, other = (specialize(m) for m in (models.chain(2), models.chain(2), models.chain(2).astype(np.float32)))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert len({one, same, other}) == 2
    for model in (one, same, other, one.replace(gravity=np.zeros(3)), same):
        weight(model)
    assert len(weight.traces) == 3
    assert not jax.tree.leaves(one)


def test_changes_keep_it_specialized_where_they_are_known():
    model = specialize(models.chain(2))
    assert specialize(model) is model
    still = model.replace(gravity=jnp.zeros(3))
    assert type(still) is type(model)
    np.testing.assert_array_equal(still.gravity, 0)
    assert model.astype(np.float32).dtype == np.float32
    jax.tree.map(np.testing.assert_array_equal, model.general, models.chain(2))

    def weight(g):
        changed = model.replace(gravity=g)
        assert changed.inputs == ("gravity",)
        return jnp.sum(lgjax.gravity_forces(changed, lgjax.configuration(changed, joints=jnp.ones(2))))

    g = jnp.asarray([0.0, 0, -9.81])
    force, slope = jit(jax.value_and_grad(weight))(g)
    np.testing.assert_allclose(slope @ g, force, rtol=1e-12)


# ---- parameters that stay inputs
# What a study of random robots draws: all that matters but the rotations between joints.
DRAWN = ("inertias", "damping", "armature", "gravity", "placements.translation")
INPUTS = [("inertias.mass",), ("inertias",), ("placements",), ("damping", "gravity"), ("screws", "links"), DRAWN]


@pytest.mark.parametrize(
    ("name", "inputs"),
    [*(("energy", x) for x in INPUTS), ("forward dynamics", INPUTS[0]), ("forward dynamics", DRAWN)],
    ids=lambda x: x if isinstance(x, str) else " ".join(x),
)
def test_inputs_change_neither_numbers_nor_derivatives(name, inputs):
    """Values, and derivatives by the inputs, are those of the general model."""
    model = trees.model("pendulum")
    special, function = specialize(model, inputs), jit(FUNCTIONS[name])
    assert all(any(given.startswith(x) for x in inputs) for given in special.inputs)
    assert len(jax.tree.leaves(special)) == len(special.inputs)
    close = lambda a, e: np.testing.assert_allclose(a, e, rtol=0, atol=1e-12 * (1 + np.abs(e).max(initial=0)))
    jax.tree.map(close, function(special, *state(model)), function(model, *state(model)))
    total = lambda model: sum(jnp.sum(x**2) for x in jax.tree.leaves(FUNCTIONS[name](model, *state(model))))
    slopes, expected = jit(jax.grad(total))(special), jit(jax.grad(total))(model)
    named = {jax.tree_util.keystr(p).lstrip("."): x for p, x in jax.tree_util.tree_leaves_with_path(expected)}
    for given, slope in zip(special.inputs, jax.tree.leaves(slopes), strict=True):
        close(slope, named[given])


def test_inputs_are_batched_and_the_rest_is_shared():
    model = models.quadruped()
    special, (q, v, tau) = specialize(model), state(model)
    factors = jnp.asarray([0.5, 1.0, 2.0])
    denser = lambda model: jax.vmap(lambda f: model.replace(inertias=model.inertias.scaled(f)))(factors)
    batch, expected = denser(special), denser(model)
    assert batch.inputs == ("inertias.mass", "inertias.moment", "inertias.rotational")
    assert batch.inertias.mass.shape == (3, model.nbodies)
    assert batch.placements.translation.shape == (model.nbodies, 3)
    run = jit(jax.vmap(lgjax.forward_dynamics, (0, None, None, None)))
    np.testing.assert_allclose(run(batch, q, v, tau), run(expected, q, v, tau), rtol=1e-11, atol=1e-11)
    again = jax.tree.map(np.asarray, batch)
    assert jax.tree.structure(again) == jax.tree.structure(batch)


def test_models_that_differ_in_inputs_share_a_program(weight):
    one, other = specialize(models.chain(2), ("inertias",)), specialize(models.chain(3), ("inertias",))
    for model in (one, one.replace(inertias=one.inertias.scaled(2.0)), one.replace(gravity=jnp.ones(3)), other):
        assert model.inputs == ("inertias.mass", "inertias.moment", "inertias.rotational")
        weight(model)
    assert len(weight.traces) == 3
    assert one.astype(np.float32).inputs == one.inputs
    assert specialize(one, ("damping",)).inputs == ("damping",)
    assert one != specialize(models.chain(2), ("inertias",))  # arrays are not compared


@pytest.mark.parametrize("function", [lgjax.forward_dynamics, lgjax.inverse_dynamics])
def test_constant_rotations_save_most(function):
    """With all but rotations as inputs, there are at most half as many operations again as with all constant."""
    model = models.quadruped()
    some = specialize(model, DRAWN)
    left, known = operations(function, some, some), operations(function, specialize(model))
    assert left <= 1.55 * known
    assert left <= 0.77 * operations(function, model, model)


def test_bad_input_is_named():
    model = models.chain(2)
    with pytest.raises(ValueError, match=r"inputs names 'inertia', the parameters are placements.rotation, "):
        specialize(model, ("inertia",))
    with pytest.raises(TypeError, match=r"inputs must be a list of names, got 'inertias'"):
        specialize(model, "inertias")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="model is None, expected a Model"):
        specialize(None, ("inertias",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"specialize takes one model, inertias.mass has shape"):
        specialize(jax.tree.map(lambda x: jnp.stack([x, x]), model))
    with pytest.raises(ValueError, match=r"whose parameters are known, placements.rotation is traced"):
        jax.jit(lambda m: specialize(m).gravity)(model)


def test_a_copy_with_other_constants_is_made_by_replace():
    model = specialize(models.chain(2))
    with pytest.raises(TypeError, match="change a specialized model by its method `replace`"):
        dataclasses.replace(model, gravity=np.zeros(3))
    np.testing.assert_array_equal(dataclasses.replace(specialize(model, ("gravity",)), gravity=np.zeros(3)).gravity, 0)
    np.testing.assert_array_equal(model.replace(gravity=np.zeros(3)).gravity, 0)


def test_inputs_of_a_specialized_model_become_constants():
    model = specialize(trees.model("pendulum"), inputs=("damping",))
    assert len(jax.tree.leaves(model)) == 1
    assert jax.tree.leaves(specialize(model)) == []
    q, v, tau = state(model)
    found = [jit(lgjax.forward_dynamics)(specialize(m), q, v, tau) for m in (model, trees.model("pendulum"))]
    np.testing.assert_array_equal(*found)
