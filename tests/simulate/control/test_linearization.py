"""Linearized steps are those of nested forward mode, of differences, and, for Euler's explicit step, Pinocchio's."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest

import lgjax
from lgjax import integrators
from lgjax.execution import plain
from lgjax.multibody.configuration import mechanical_space
from tests.dynamics import trees
from tests.oracles.pinocchio_trees import pinocchio_tree

DT = 0.02
EULER, RK4 = lgjax.MuntheKaas(integrators.LIE_EULER), lgjax.MuntheKaas(lgjax.RK4)
METHODS = {"euler": EULER, "rk4": RK4, "cf4": lgjax.CommutatorFree(lgjax.CF4)}
CASES = [("shoulder", "rk4"), pytest.param("universal", "cf4", marks=pytest.mark.slow)]


@cache
def model_of(name):
    if name == "shoulder":
        return trees.model(name)
    bodies = [trees.body("reach", None, "universal", 2, damping=0.2), trees.body("ball", "reach", "spherical", 3)]
    return lgjax.build(bodies, name)


@cache
def states(name, at_rest=False):
    q, v, _, tau, wrenches = trees.random_states(model_of(name), 2)
    return (q, 0 * v, 0 * tau, 0 * wrenches) if at_rest else (q, v, tau, wrenches)


def step(model, method, q, v, tau, wrenches):
    """By the recursions as one reads them, which have no derivative rules of the step."""
    dynamics = plain()(lgjax.forward_dynamics)
    field = lambda t, y: (y[1], dynamics(model, *y, tau, wrenches))
    space, method = mechanical_space(model.tree), method.with_scanned_stages()
    return method.step(space, field, jnp.zeros(()), (q, v), jnp.asarray(DT), ())[0]


def deviation(model, method, x, after, q, v, tau, wrenches):
    """From the state `after`, that of x = 0."""
    n = model.nv
    moved = step(model, method, lgjax.retract(model, q, x[:n]), v + x[n : 2 * n], tau + x[2 * n :], wrenches)
    return jnp.concatenate([lgjax.difference(model, after[0], moved[0]), moved[1] - after[1]])


@cache
def stepped(name, method):
    return jax.jit(jax.vmap(partial(step, model_of(name), METHODS[method])))


@cache
def differentiated(name, method):
    zero = jnp.zeros(3 * model_of(name).nv)
    slopes = lambda *s: jax.jacfwd(lambda x: deviation(model_of(name), METHODS[method], x, *s))(zero)
    return jax.jit(jax.vmap(slopes))


@cache
def linearized(name, method):
    found = lambda model, *state: jnp.concatenate(lgjax.linearize(model, *state[:3], DT, METHODS[method], state[3]), 1)
    return jax.jit(jax.vmap(found, (None, 0, 0, 0, 0)))


@pytest.mark.parametrize("at_rest", [False, True], ids=["moving", "at rest"])
@pytest.mark.parametrize(("name", "method"), CASES)
def test_it_is_forward_mode_of_the_step(name, method, at_rest):
    """With damping, armature, wrenches and gravity."""
    state = states(name, at_rest)
    expected = differentiated(name, method)(stepped(name, method)(*state), *state)
    found = linearized(name, method)(model_of(name), *state)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


def test_it_is_what_differences_say():
    """Of steps with other initial states and forces, all side by side."""
    model, h = model_of("shoulder"), 1e-5
    q, v, tau, wrenches = jax.tree.map(lambda x: x[0], states("shoulder"))
    x = jnp.asarray(np.concatenate([h * np.eye(33), -h * np.eye(33)]))
    moved = jax.vmap(lambda x: (lgjax.retract(model, q, x[:11]), v + x[11:22], tau + x[22:], wrenches))(x)
    q1, v1 = stepped("shoulder", "rk4")(*moved)
    half = lambda tree, n: jax.tree.map(lambda a: a[33 * n : 33 * (n + 1)], tree)
    turned = jax.vmap(lambda a, b: lgjax.difference(model, a, b))(half(q1, 1), half(q1, 0))
    expected = np.concatenate([turned, half(v1, 0) - half(v1, 1)], 1).T / (2 * h)
    found = linearized("shoulder", "rk4")(model, *states("shoulder"))[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


def test_eulers_explicit_step_is_pinocchios():
    """q' = q exp(dt v), v' = v + dt vdot with the derivatives of its articulated-body algorithm."""
    model = model_of("shoulder").replace(damping=jnp.zeros(11), armature=jnp.zeros(11))
    q, v, tau, _ = jax.tree.map(lambda x: x[0], states("shoulder"))
    theirs = pinocchio_tree(model)
    data = theirs.createData()
    flat = lgjax.conventions.to_pinocchio(model, q, v, None, tau)
    at = [np.asarray(x) for x in (flat.q, flat.v, flat.tau)]
    by_q, by_v, by_tau = (np.array(x) for x in pin.computeABADerivatives(theirs, data, *at))
    moved, pushed = (pin.dIntegrate(theirs, at[0], DT * at[1], arg) for arg in (pin.ARG0, pin.ARG1))
    zero, one = np.zeros((11, 11)), np.eye(11)
    expected = np.block([[moved, DT * pushed, zero], [DT * by_q, one + DT * by_v, DT * by_tau]])
    order = np.r_[3:6, 0:3, 6:11]  # angular first
    rows, columns = (np.concatenate([order + 11 * k for k in range(n)]) for n in (2, 3))
    found = np.concatenate(lgjax.linearize(model, q, v, tau, DT, EULER), 1)
    np.testing.assert_allclose(found, expected[np.ix_(rows, columns)], rtol=0, atol=1e-11)


def test_float32_keeps_its_precision():
    model, state = model_of("shoulder"), states("shoulder")
    exact = linearized("shoulder", "rk4")(model, *state)
    narrow = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (model, *state))
    found = linearized("shoulder", "rk4")(*narrow)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, exact, rtol=0, atol=2e-5 * np.abs(exact).max())


def test_models_are_batched():
    """The step of a pendulum twice as heavy is half as much moved by a force."""
    model, x = lgjax.models.chain(1), jnp.ones(1)
    heavier = jax.vmap(lambda f: model.replace(inertias=model.inertias.scaled(f * jnp.ones(1))))(jnp.asarray([1.0, 2]))
    found = jax.vmap(lambda m: lgjax.linearize(m, lgjax.neutral(m), x, x, DT, EULER).B)(heavier)
    np.testing.assert_allclose(found[0], 2 * found[1], rtol=1e-12)


def test_derivatives_with_respect_to_the_model_and_the_state():
    """A pendulum of mass m and length l with Euler's step: dB/dm, and dA/dq from the step's second derivative."""
    model, q, x = lgjax.models.chain(1), lgjax.neutral(lgjax.models.chain(1)), jnp.ones(1)

    def B(factor, q0):
        heavy = model.replace(inertias=model.inertias.scaled(factor * jnp.ones(1)), armature=jnp.ones(1))
        here = q._replace(joints=q0)
        return lgjax.linearize(heavy, here, x, x, DT, EULER)

    inertia = float(lgjax.mass_matrix(model, q)[0, 0])
    slope = jax.grad(lambda f: B(f, x).B[1, 0])(1.0)
    np.testing.assert_allclose(slope, -DT * inertia / (1 + inertia) ** 2, rtol=1e-12)
    torque = jax.grad(lambda q0: lgjax.gravity_forces(model, q._replace(joints=q0[None]))[0])
    slope = jax.grad(lambda q0: B(1.0, q0[None]).A[1, 0])(1.0)
    np.testing.assert_allclose(slope, -DT * jax.grad(torque)(1.0) / (1 + inertia), rtol=1e-11)


def test_methods_that_do_not_fit_are_refused():
    model, x = lgjax.models.chain(1), jnp.ones(1)
    with pytest.raises(ValueError, match="evaluates a field, got Taylor"):
        lgjax.linearize(model, lgjax.neutral(model), x, x, DT, lgjax.Taylor(3))
    with pytest.raises(TypeError, match="did you mean MuntheKaas"):
        lgjax.linearize(model, lgjax.neutral(model), x, x, DT, lgjax.RK4)
    with pytest.raises(ValueError, match=r"tau has shape \(2,\), expected \(1,\)"):
        lgjax.linearize(model, lgjax.neutral(model), x, jnp.ones(2), DT)
