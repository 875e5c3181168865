"""Accelerations as controls give the motions that forces give; expansions in parts are those side by side."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.execution import lasting
from lgjax.simulate.control import FDDP, ILQR, ControlSystem, OptimizeStatus, SemiImplicitEuler, costs
from lgjax.simulate.control.linear_quadratic.riccati import Regulator, _whole, linear_motion
from lgjax.simulate.control.linear_quadratic.sparse import dense, of_other
from lgjax.simulate.control.regulator.expansion import _about
from lgjax.simulate.control.semi_implicit import force_jacobians
from tests.dynamics import trees

pytestmark = pytest.mark.usefixtures("kept_programs")
RNG = np.random.default_rng(5)


def test_a_reach_by_accelerations_is_the_one_by_forces():
    """Same cost, and inverse dynamics of its controls are the forces; nine guesses go in groups."""
    arm, dt, steps = lgjax.models.chain(2), 0.1, 6
    start, goal = (lgjax.neutral(arm), jnp.zeros(2)), (lgjax.configuration(arm, joints=[0.3, 0.4]), jnp.zeros(2))
    hold, options = np.array([0.5, -0.2]), {"steps": steps, "terminal": 100.0 * costs.state(arm, goal)}
    options |= {"method": FDDP(tolerance=1e-9), "progress": False}  # the error of the cost is its square
    by_forces = lgjax.optimize_controls(
        ControlSystem.of_model(arm, dt, method=SemiImplicitEuler()), start, np.zeros((1, steps, 2)),
        running=costs.control(hold, 0.3), **options,
    )  # fmt: skip
    found = lgjax.optimize_controls(
        ControlSystem.of_accelerations(arm, dt), start, RNG.normal(size=(9, steps, 2)),
        running=costs.forces(arm, hold, 0.3), **options,
    )  # fmt: skip
    assert np.all(found.status == OptimizeStatus.CONVERGED)
    np.testing.assert_allclose(found.cost, by_forces.cost[0], rtol=1e-12)
    before = jax.tree.map(lambda x: x[0, :-1], found.states)
    forces = jax.vmap(lambda q, v, a: lgjax.inverse_dynamics(arm, q, v, a))(*before, jnp.asarray(found.controls[0]))
    np.testing.assert_allclose(forces, by_forces.controls[0], atol=1e-7)


def test_where_no_rule_relates_the_states_forward_mode_does():
    model = lgjax.models.chain(2, floating_base=True)
    system = ControlSystem.of_accelerations(model, 0.1)
    q, (v, a) = lgjax.random_configuration(jax.random.key(1), model), jnp.asarray(RNG.normal(size=(2, model.nv)))
    after = system.retract(system.step((q, v), a), jnp.asarray(0.3 * RNG.normal(size=2 * model.nv)))

    def found(system):
        A, B, gap = _about(system, after, *system.jacobians((q, v), a))
        return dense(A), of_other(dense(A), B), gap

    for one, other in zip(found(system), jax.jit(lambda: found(replace(system, relative=None)))(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_a_batch_goes_on_until_its_last_guess_has_ended(monkeypatch):
    """Guesses end after different numbers of iterations, each where it ends alone; also in groups, the last filled up.

    The tolerance is met while steps still gain more than round-off, which would decide which of them are taken.
    """
    A, B = np.eye(2) + 0.1 * RNG.normal(size=(2, 2)), RNG.normal(size=(2, 1))
    system = ControlSystem.on_space(lgjax.groups.vector_space(2), lambda x, u: A @ x + B @ u + 0.1 * jnp.sin(x), 1)
    guesses = np.geomspace(1e-3, 30, 9)[:, None, None] * RNG.normal(size=(9, 6, 1))
    monkeypatch.setattr(lasting.os, "cpu_count", lambda: 1)

    def solve(guesses, group=9):
        monkeypatch.setattr(lasting, "GROUP", group)
        return lgjax.optimize_controls(
            system, jnp.ones(2), guesses, steps=6, method=ILQR(iterations=50, tolerance=1e-4),
            running=lambda t, x, u: jnp.sum(x**4) + u @ u, terminal=lambda x: 3 * x @ x, progress=False,
        )  # fmt: skip

    together, grouped = solve(guesses), solve(guesses, 4)
    assert np.all(together.status == OptimizeStatus.CONVERGED)
    assert len(set(together.iterations)) > 1
    np.testing.assert_array_equal(grouped.iterations, together.iterations)
    np.testing.assert_allclose(grouped.controls, together.controls, rtol=1e-9, atol=1e-9)
    for x, y in zip(grouped.history, together.history, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-9)
    for k in (np.argmin(together.iterations), np.argmax(together.iterations)):
        alone = solve(guesses[k : k + 1])
        assert alone.iterations[0] == together.iterations[k]
        np.testing.assert_allclose(alone.controls[0], together.controls[k], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["floating tree", "fixed tree", "shoulder", "forest", "every joint"])
def test_forces_and_their_slopes_come_from_one_pass(name):
    model = trees.model(name)
    q, (v, vdot) = lgjax.random_configuration(jax.random.key(4), model), jnp.asarray(RNG.normal(size=(2, model.nv)))
    forces, slopes = jax.jit(force_jacobians)(model, q, v, vdot)
    np.testing.assert_allclose(forces, lgjax.inverse_dynamics(model, q, v, vdot), atol=1e-11)
    expected = lgjax.inverse_dynamics_partials(model, q, v, vdot)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), slopes, expected)


@pytest.mark.parametrize("floating", [False, True])
def test_single_precision(floating):
    """Step and slopes keep dtype and precision."""

    def found(dtype):
        model = lgjax.models.chain(2, floating_base=floating).astype(dtype)
        state = lgjax.neutral(model), jnp.linspace(-1.0, 1.0, model.nv, dtype=dtype)
        system = ControlSystem.of_accelerations(model, 0.1)
        return jax.jit(system.jacobians)(state, jnp.linspace(0.5, -2.0, model.nv, dtype=dtype))

    for x, y in zip(*map(jax.tree.leaves, (found(jnp.float32), found(jnp.float64))), strict=True):
        assert x.dtype == jnp.float32
        np.testing.assert_allclose(x, y, atol=3e-6)


@pytest.mark.parametrize("floating", [False, True])
def test_jacobians_of_the_step_and_of_the_forces_are_derivatives(floating):
    model = lgjax.models.chain(2, floating_base=floating)
    n, system = model.nv, ControlSystem.of_accelerations(model, 0.1)
    q, (v, vdot) = lgjax.random_configuration(jax.random.key(0), model), jnp.asarray(RNG.normal(size=(2, n)))
    target, terms = RNG.normal(size=n), (RNG.uniform(0.5, 2.0, n), RNG.normal(size=(3, n)))
    residual = lambda weights, state, a: (
        (weights if weights.ndim == 2 else jnp.diag(weights)) @ (lgjax.inverse_dynamics(model, *state, a) - target)
    )
    other = lambda weights: costs.LeastSquares(lambda t, s, a: residual(jnp.asarray(weights), s, a))
    pairs = [(costs.forces(model, target, weights), other(weights)) for weights in terms]

    @jax.jit
    def found(state, a):
        time, after = jnp.zeros(()), system.step(state, a)
        moved = lambda z: system.difference(after, system.step(system.retract(state, z[: 2 * n]), a + z[2 * n :]))
        models = [[cost.expand(system, time, state, a) for cost in pair] for pair in pairs]
        values = [[cost(time, state, a) for cost in pair] for pair in pairs]
        return models, values, system.jacobians(state, a)[1:], jax.jacfwd(moved)(jnp.zeros(3 * n))

    models, values, slopes, expected = found((q, v), vdot)
    np.testing.assert_allclose(
        np.hstack([dense(slopes[0]), of_other(dense(slopes[0]), slopes[1])]), expected, atol=1e-12
    )
    assert bool(slopes[0].boxes) == floating
    for (ours, theirs), (one, two) in zip(models, values, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)
        for x, y in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-9)


@pytest.mark.parametrize("weights", [(2.0, 0.5), (-2.0, 0.5), (0.0, -1.0)])
def test_factored_costs_are_their_quadratic_models(weights):
    """Multiplied out; parts with a negative weight have no factors."""
    model = lgjax.models.chain(2, floating_base=True)
    n, system = model.nv, ControlSystem.of_accelerations(model, 0.1)
    state, a = (lgjax.random_configuration(jax.random.key(0), model), jnp.asarray(RNG.normal(size=n))), jnp.ones(n)
    cost = weights[0] * costs.forces(model, 1.0) + weights[1] * costs.forces(model, 0.0, RNG.normal(size=(3, n)))
    cost = cost + costs.state(model, (lgjax.neutral(model), jnp.zeros(n)))
    found, factors = cost.factored(system, jnp.zeros(()), state, a, 0.3, True)
    whole = cost.expand(system, jnp.zeros(()), state, a).scaled(0.3)
    assert len(factors) == sum(weight >= 0 for weight in weights)
    x, u = slice(2 * n), slice(2 * n, None)
    hessian = [
        _whole(*given) for given in ((found.xx, factors, x, x), (found.ux, factors, u, x), (found.uu, factors, u, u))
    ]
    for one, other in zip((found.x, found.u, *hessian), whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11)


def test_factors_of_costs_keep_the_precision_of_the_controls():
    model = lgjax.models.chain(2)
    system, state = ControlSystem.of_accelerations(model, 0.1), (lgjax.neutral(model), jnp.ones(2))
    cost, factor = costs.forces(model, 1.0), jnp.float32(0.7)
    found, _ = (factor * cost + costs.control(1.0)).factored(system, jnp.zeros(()), state, jnp.zeros(2), 0.1)
    expected = factor.astype(float) * jax.grad(lambda a: cost(0.0, state, a))(jnp.zeros(2)) - 1
    np.testing.assert_allclose(found.u, 0.1 * expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_jacobians_of_a_step_are_those_of_forward_mode(dtype):
    """At rest, at the identity, and in motion; B is known as columns of A."""
    model = lgjax.build([trees.body("base", None, "free", 1), trees.body("ball", "base", "spherical", 2)], dtype=dtype)
    n, system = model.nv, ControlSystem.of_accelerations(model, 0.1)
    zero = jnp.zeros(n, dtype)

    @jax.jit
    @jax.vmap
    def both(state, a):
        end, A, B = system.jacobians(state, a)
        moved = lambda x, u: system.difference(end, system.step(system.retract(state, x), a + u))
        return (dense(A), of_other(dense(A), B)), jax.jacfwd(moved, (0, 1))(jnp.zeros(2 * n, dtype), zero)

    moving = lgjax.random_configuration(jax.random.key(0), model), jnp.asarray(RNG.normal(size=n), dtype)
    states = jax.tree.map(lambda *x: jnp.stack(x), (lgjax.neutral(model), zero), moving)
    for found, expected in zip(*both(states, jnp.stack([zero, zero + 2])), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=20 * float(jnp.finfo(dtype).eps))


def test_linear_motions_by_known_numbers_are_those_by_arrays():
    model = lgjax.models.chain(2, floating_base=True)
    n, system = model.nv, ControlSystem.of_accelerations(model, 0.1)
    draw = lambda key: (lgjax.random_configuration(jax.random.key(key), model), jnp.asarray(RNG.normal(size=n)))
    jacobians = [system.jacobians(draw(key), jnp.ones(n))[1:] for key in range(3)]
    A, B = (jax.tree.map(lambda *x: jnp.stack(x), *some) for some in zip(*jacobians, strict=True))
    gap, feedforward, feedback = (jnp.asarray(RNG.normal(size=(3, *s))) for s in [(2 * n,), (n,), (n, 2 * n)])
    regulator = Regulator(feedforward, feedback, *4 * [jnp.zeros(())])
    whole = jax.vmap(dense)(A)
    for one, other in zip(
        linear_motion(A, B, gap, regulator),
        linear_motion(whole, jax.vmap(lambda A: of_other(A, B))(whole), gap, regulator),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_costs_of_forces_name_what_is_wrong():
    arm = lgjax.models.chain(2)
    with pytest.raises(ValueError, match=r"weights are one number, \(2,\) or \(k, 2\), got shape \(3, 3\)"):
        costs.forces(arm, weights=np.eye(3))
    with pytest.raises(ValueError, match=r"target has shape \(3,\)"):
        costs.forces(arm, np.zeros(3))
    with pytest.raises(ValueError, match="cannot be terminal"):
        costs.forces(arm)((lgjax.neutral(arm), jnp.zeros(2)))


@pytest.mark.parametrize("joint", ["free", "spherical"])
def test_gaps_and_distances_on_manifolds_have_the_derivatives_of_forward_mode(joint):
    """With rates as controls too; far from the target and at it."""
    solid = {"mass": 1.0, "inertia": np.eye(3)}
    base = lgjax.Body("b", None, lgjax.Joint("b", joint), **solid)
    model = lgjax.build([base, lgjax.Body("c", "b", lgjax.Joint("c", "revolute"), **solid)])
    n = model.nv
    system = ControlSystem.of_accelerations(model, 0.1).with_rates()
    draw = lambda key: (lgjax.random_configuration(jax.random.key(key), model), jnp.asarray(RNG.normal(size=n)))
    target, changes, weights = draw(0), RNG.normal(size=(3 * n, 4)), np.linspace(0.5, 2.0, 2 * n)
    known, residual = costs.state(model, target, weights), plain_distance(model, target, weights)

    @jax.jit
    def both(state, later):
        ends, after = (state, jnp.ones(n)), (later, jnp.zeros(n))
        along = jax.jacfwd(lambda x: system.difference(after, system.retract(ends, x)))(jnp.zeros(3 * n))
        mechanism = ControlSystem.of_accelerations(model, 0.1)
        models = [cost.expand(mechanism, None, state, None) for cost in (known, costs.LeastSquares(residual))]
        return system.relative(system.difference(after, ends), changes), along @ changes, models

    for state, later in ((draw(1), draw(2)), (target, target)):
        relative, along, (found, plain) = both(state, later)
        np.testing.assert_allclose(relative, along, atol=1e-12)
        np.testing.assert_allclose(found.x, plain.x, atol=1e-12)
        np.testing.assert_allclose(dense(found.xx), plain.xx, atol=1e-12)


def plain_distance(model, target, weights):
    def residual(state):
        away = lgjax.difference(model, target[0], state[0])
        return weights * jnp.concatenate([away, state[1] - target[1]])

    return residual
