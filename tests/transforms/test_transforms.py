"""One program serves new states, models and step sizes; vmap is a loop; dtypes come out as they went in."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from tests.dynamics import trees
from tests.oracles import floating_robot

# Each takes (model, q, v, force, wrenches).
FUNCTIONS = {
    "forward_dynamics": lgjax.forward_dynamics,
    "inverse_dynamics": lgjax.inverse_dynamics,
    "bias_forces": lambda m, q, v, x, w: lgjax.bias_forces(m, q, v, w),
    "gravity_forces": lambda m, q, v, x, w: lgjax.gravity_forces(m, q),
    "mass_matrix": lambda m, q, v, x, w: lgjax.mass_matrix(m, q),
    "coriolis_matrix": lambda m, q, v, x, w: lgjax.coriolis_matrix(m, q, v),
    "forward_kinematics": lambda m, q, v, x, w: lgjax.forward_kinematics(m, q),
    "body_twists": lambda m, q, v, x, w: lgjax.body_twists(m, q, v),
    "jacobian": lambda m, q, v, x, w: lgjax.jacobian(m, q, 1),
    "kinetic_energy": lambda m, q, v, x, w: lgjax.kinetic_energy(m, q, v),
    "potential_energy": lambda m, q, v, x, w: lgjax.potential_energy(m, q),
    "total_energy": lambda m, q, v, x, w: lgjax.total_energy(m, q, v),
    "momentum": lambda m, q, v, x, w: lgjax.momentum(m, q, v),
    "center_of_mass": lambda m, q, v, x, w: lgjax.center_of_mass(m, q),
    "retract": lambda m, q, v, x, w: lgjax.retract(m, q, v),
    "difference": lambda m, q, v, x, w: lgjax.difference(m, q, lgjax.retract(m, q, v)),
    "rollout": lambda m, q, v, x, w: lgjax.rollout(m, q, v, lambda t, q, v: x, 0.01, 4, save_every=2),
}


@cache
def model():
    return lgjax.load_urdf(floating_robot.URDF)


@cache
def states(n=6):
    q, v, _, tau, wrenches = trees.random_states(model(), n)
    return q, v, tau, wrenches


def everything(*arguments):
    """All functions but those that only call another."""
    return {
        name: f(*arguments) for name, f in FUNCTIONS.items() if name not in ("bias_forces", "total_energy", "retract")
    }


def cast(tree, dtype):
    return jax.tree.map(lambda x: x.astype(dtype), tree)


@pytest.mark.parametrize("method", [lgjax.RK4, lgjax.integrators.LIE_EULER], ids=lambda method: method.name)
def test_a_step_is_compiled_once(method):
    """For new states, new models of equal topology (also when read anew) and new step sizes, Python numbers or not."""

    @jit
    def step(model, q, v, tau, dt):
        path = lgjax.rollout(model, q, v, lambda t, q, v: tau, dt, 1, lgjax.MuntheKaas(method), save_every=None)
        return jax.tree.map(lambda x: x[0], (path.q, path.v))

    q, v, tau, _ = jax.tree.map(lambda x: x[0], states())
    heavier = model().replace(inertias=model().inertias.scaled(2.0), gravity=jnp.zeros(3))
    again = lgjax.load_urdf(floating_robot.URDF.replace("0.025", "0.026"))
    first = step(model(), q, v, tau, 0.01)
    second = step(heavier, *first, tau, 0.02)  # what a step returns can be stepped on
    step(again, *second, 0 * tau, 0.005)
    assert step._cache_size() == 1
    assert not np.allclose(first[1], second[1])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_dtypes_come_out_as_they_went_in(name, dtype):
    arguments = cast((model(), *jax.tree.map(lambda x: x[0], states())), dtype)
    for x in jax.tree.leaves(jax.eval_shape(FUNCTIONS[name], *arguments)):
        assert not x.weak_type
        assert x.dtype in (dtype, jnp.bool_) or (name, x.dtype) == ("rollout", jnp.int32)  # its status


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_states_and_models_are_strongly_typed(dtype):
    m = model().astype(dtype)
    made = [lgjax.neutral(m), lgjax.random_configuration(jax.random.key(0), m), lgjax.configuration(m, joints=[0, 1])]
    for x in jax.tree.leaves((m, made)):
        assert x.dtype == dtype
        assert not x.weak_type


@cache
def looped():
    """All functions, one state at a time."""
    one = jit(everything)
    rows = [one(model(), *jax.tree.map(lambda x, i=i: x[i], states())) for i in range(6)]
    return jax.tree.map(lambda *x: np.stack(x), *rows)


def assert_round_off(got, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * max(1.0, np.abs(b).max(initial=0))),
        got,
        expected,
    )


@cache
def mapped():
    return jit(jax.vmap(everything, (None, 0, 0, 0, 0)))


def test_vmap_is_a_loop():
    assert_round_off(mapped()(model(), *states()), looped())


def test_results_do_not_depend_on_the_place_in_the_batch():
    order = np.array([4, 0, 5, 1, 3, 2])
    shuffled = mapped()(model(), *jax.tree.map(lambda x: x[order], states()))
    assert_round_off(shuffled, jax.tree.map(lambda x: x[order], looped()))


def test_results_do_not_depend_on_the_size_of_the_batch():
    """Of the most involved function; test_batches.py says so of the dynamics."""
    small = jit(jax.vmap(FUNCTIONS["rollout"], (None, 0, 0, 0, 0)))(model(), *jax.tree.map(lambda x: x[1:3], states()))
    assert_round_off(small, jax.tree.map(lambda x: x[1:3], looped()["rollout"]))


def test_models_are_mapped_as_well():
    """Randomized copies of a robot in one batch, every leaf of the model batched."""
    factors = jnp.asarray([0.5, 1.0, 3.0])
    copies = jax.vmap(lambda k: jax.tree.map(lambda x: x * 1.0, model().replace(inertias=model().inertias.scaled(k))))(
        factors
    )
    q, v, tau, w = jax.tree.map(lambda x: x[:3], states())
    both = lambda m, q, v, x, w: (lgjax.forward_dynamics(m, q, v, x, w), lgjax.mass_matrix(m, q))
    got = jit(jax.vmap(both))(copies, q, v, tau, w)
    one = jit(both)
    rows = [
        one(model().replace(inertias=model().inertias.scaled(k)), *jax.tree.map(lambda x, i=i: x[i], (q, v, tau, w)))
        for i, k in enumerate(factors)
    ]
    assert_round_off(got, jax.tree.map(lambda *x: np.stack(x), *rows))
