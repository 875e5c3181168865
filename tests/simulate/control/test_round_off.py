"""A search ends CONVERGED at a minimum that round-off hides, and nowhere else, against Riccati's equation and SciPy."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import lgjax
from lgjax.simulate.control import FDDP, ILQR, OptimizeStatus, Shooting
from lgjax.simulate.control.bounds import bounded, unflattened

pytestmark = pytest.mark.usefixtures("kept_programs")
METHODS = pytest.mark.parametrize("method", [ILQR(), ILQR(line_search="first"), FDDP()], ids=["best", "first", "fddp"])


def regulator(seed, nx, nu, radius):
    """A, B and a start of an LQR with weights of 1; radius: the largest modulus of an eigenvalue of A."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(nx, nx))
    return A * radius / np.max(np.abs(np.linalg.eigvals(A))), rng.normal(size=(nx, nu)), rng.normal(size=nx)


def solve(A, B, start, guesses, dtype=float, offset=0.0, **options):
    a, b = jnp.asarray(A, dtype), jnp.asarray(B, dtype)
    system = lgjax.control.ControlSystem.on_space(
        lgjax.groups.vector_space(len(A)), lambda x, u: a @ x + b @ u, B.shape[1]
    )
    return lgjax.optimize_controls(
        system, jnp.asarray(start, dtype), jnp.asarray(guesses, dtype), steps=guesses.shape[1], progress=False,
        running=lambda t, x, u: (x @ x + u @ u) / 2, terminal=lambda x: x @ x / 2 + offset, **options,
    )  # fmt: skip


def by_riccati(A, B, start, steps, cost=None):
    """The start, scaled so that the least cost is `cost`, the optimal controls and their cost."""
    P, gains = np.eye(len(A)), []
    for _ in range(steps):
        gains.append(np.linalg.solve(np.eye(B.shape[1]) + B.T @ P @ B, B.T @ P @ A))
        P = np.eye(len(A)) + A.T @ P @ (A - B @ gains[-1])
    x = start = start if cost is None else start * np.sqrt(2 * cost / (start @ P @ start))
    controls = []
    for gain in gains[::-1]:
        controls.append(-gain @ x)
        x = A @ x + B @ controls[-1]
    return start, np.array(controls), start @ P @ start / 2


@METHODS
def test_an_unstable_motion_whose_gradient_is_round_off_at_the_minimum(method):
    """The gradient with respect to the controls is of 1e-4 there: round-off of adjoints grows by 1.98 at each step."""
    A, B, x = regulator(1, 4, 1, 1.98)
    x, controls, cost = by_riccati(A, B, x, 40, 2500.0)
    found = solve(A, B, x, np.zeros((1, 40, 1)), method=method)
    np.testing.assert_allclose(found.controls[0], controls, atol=1e-11)
    np.testing.assert_allclose(found.cost, cost, rtol=1e-13)
    assert found.status[0] == OptimizeStatus.CONVERGED
    assert found.iterations[0] < 15


@METHODS
def test_single_precision_cannot_meet_the_tolerance_and_converges(method):
    A, B, x = regulator(0, 4, 2, 1.2)
    x, controls, _ = by_riccati(A, B, x, 20, 2500.0)
    guesses = np.random.default_rng(1).normal(size=(2, 20, 2))
    found = solve(A, B, x, guesses, jnp.float32, method=method)
    assert found.controls.dtype == jnp.float32
    np.testing.assert_allclose(
        found.controls, np.broadcast_to(controls, guesses.shape), atol=1e-4 * np.abs(controls).max()
    )
    assert np.all(found.gradient_norm > method.tolerance)
    assert np.all(found.status == OptimizeStatus.CONVERGED)


@METHODS
@pytest.mark.parametrize("offset", [-2500.0, 1e7])
def test_a_constant_cost_changes_nothing(method, offset):
    """Terms that cancel in the whole cost, and a constant beside which the decrease is round-off."""
    A, B, x = regulator(0, 4, 2, 1.2)
    x, controls, _ = by_riccati(A, B, x, 20, 2500.0)
    guesses = np.random.default_rng(1).normal(size=(2, 20, 2))
    found = solve(A, B, x, guesses, offset=offset, method=method)
    np.testing.assert_allclose(found.controls, np.broadcast_to(controls, guesses.shape), atol=1e-9)
    assert np.all(found.status == OptimizeStatus.CONVERGED)


@METHODS
@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_a_search_that_stalls_away_from_the_minimum_is_not_converged(method, offset):
    """The derivative of the cost has the wrong sign, so that no step lowers it."""

    @jax.custom_jvp
    def misled(u):
        return jnp.sum((u - 3.0) ** 2)

    misled.defjvp(lambda primals, tangents: (misled(*primals), 2 * jnp.sum((primals[0] + 3.0) * tangents[0])))
    system = lgjax.control.ControlSystem.on_space(lgjax.groups.vector_space(1), lambda x, u: x + u, 1)
    found = lgjax.optimize_controls(
        system, jnp.zeros(1), jnp.ones((1, 4, 1)), steps=4, method=method, progress=False,
        running=lambda t, x, u: misled(u), terminal=lambda x: 0 * x[0] + offset,
    )  # fmt: skip
    assert found.status[0] == OptimizeStatus.STALLED
    assert found.gradient_norm[0] > 1


def least_squares(A, B, start, steps, width):
    """The optimal controls within +-width by SciPy, from simulation of unit controls with NumPy."""
    nu = B.shape[1]

    def path(u, x):
        states = [x]
        for control in u.reshape(steps, nu):
            states.append(A @ states[-1] + B @ control)
        return np.concatenate([*states, u])

    F = np.stack([path(unit, 0 * start) for unit in np.eye(steps * nu)], 1)
    g = -path(np.zeros(steps * nu), start)
    return scipy.optimize.lsq_linear(F, g, (-width, width), method="bvls", tol=1e-14)


@pytest.mark.parametrize("seed", [0, 1])
def test_shooting_between_two_bounds_is_a_bounded_least_squares_solver(seed):
    """Long before the end an iteration gains less than a billionth of the cost, but the gradient goes on to shrink."""
    A, B, x = regulator(seed, 6, 2, 1.08)
    best = least_squares(A, B, x, 30, 0.3)
    guesses = np.concatenate([np.random.default_rng(1).normal(size=(2, 30, 2)), np.zeros((1, 30, 2))])
    found = solve(A, B, x, guesses, bounds=(-0.3, 0.3), method=Shooting(tolerance=1e-8))
    np.testing.assert_allclose(found.controls.reshape(3, -1), np.broadcast_to(best.x, (3, 60)), atol=2e-6)
    np.testing.assert_allclose(found.cost, best.cost, rtol=1e-11)
    assert np.sum(np.abs(best.x) > 0.3 - 1e-9) > 5
    assert np.all(found.status == OptimizeStatus.CONVERGED)
    assert np.all(found.gradient_norm <= 1e-8 * found.cost)


def test_a_control_at_the_wrong_bound_is_not_converged():
    """The map to the bounds is flat there: the slope of (u - 1/2)^2 at -0.99 is -2.98, by the free variable -0.42."""
    system = lgjax.control.ControlSystem.on_space(lgjax.groups.vector_space(1), lambda x, u: x + u, 1)
    found = lgjax.optimize_controls(
        system, jnp.zeros(1), -jnp.ones((1, 1, 1)), steps=1, bounds=(-1, 1), progress=False,
        running=lambda t, x, u: jnp.sum((u - 0.5) ** 2), method=Shooting(tolerance=0.5),
    )  # fmt: skip
    np.testing.assert_allclose(found.controls, 0.5, atol=0.25)
    lower, upper = jnp.array([-1.0, 0.0, -jnp.inf, -jnp.inf]), jnp.array([3.0, jnp.inf, 2.0, jnp.inf])
    for near in (1e-9, 1e-3):
        at = np.array([[np.pi / 2 - near, near, near, 1.0], [-np.pi / 2 + near, -near, -near, -1.0]])
        by_free = jax.vmap(jax.grad(lambda z, by: jnp.sum(by * bounded(z, lower, upper))))
        inwards = np.array([[3.0, -3.0, 3.0, 3.0], [-3.0, -3.0, 3.0, 3.0]])
        for sign, steepest in ((1, np.array([6.0, 3.0, 3.0, 3.0])), (-1, None)):
            slope = by_free(jnp.asarray(at), jnp.asarray(sign * inwards))
            norms = np.abs(unflattened(jnp.asarray(at), slope, lower, upper))
            np.testing.assert_allclose(norms, np.abs(slope) if steepest is None else np.broadcast_to(steepest, (2, 4)))


@pytest.mark.slow
@pytest.mark.parametrize("method", [ILQR(), FDDP()], ids=["ilqr", "fddp"])
def test_cart_poles_converge_whatever_the_unit_of_their_cost(method):
    """1 + cos(angle) cancels at the top: the cost has an error of 1e-12 of itself, the decrease drowns before."""
    path = Path(__file__).parents[3] / "examples" / "17_cart_pole.py"
    spec = importlib.util.spec_from_file_location("cart_pole", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    model = example.cart_pole()
    system = lgjax.control.ControlSystem.of_model(
        model, example.DT, controls=1, actuation=lambda u: jnp.stack([u[0], jnp.zeros_like(u[0])]),
        method=lgjax.control.SemiImplicitEuler(),
    )  # fmt: skip
    guesses = 5.0 * jax.random.normal(jax.random.key(0), (8, example.STEPS, 1))
    found = lgjax.optimize_controls(
        system, (lgjax.neutral(model), jnp.zeros(2)), guesses, steps=example.STEPS, method=method, progress=False,
        running=lambda *args: 1e5 * example.running(*args), terminal=lambda y: 1e5 * example.terminal(y),
    )  # fmt: skip
    assert np.all(found.status == OptimizeStatus.CONVERGED)
    whole = lambda u: (
        1e5
        * example.terminal(
            jax.lax.scan(lambda y, u: (system.step(y, u), None), (lgjax.neutral(model), jnp.zeros(2)), u)[0]
        )
        + 1e5 * example.DT * jnp.sum(jax.vmap(lambda u: example.running(0.0, None, u))(u))
    )
    gradient = jax.jit(jax.vmap(jax.grad(whole)))(jnp.asarray(found.controls))
    np.testing.assert_allclose(gradient, 0, atol=1e-3)  # of 1e5 at the guesses
