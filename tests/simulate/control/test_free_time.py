"""Free final time and the rate of controls: closed forms of a mass on a rail."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.simulate.control import (
    ILQR,
    ControlSystem,
    OptimizeStatus,
    PredictiveController,
    SemiImplicitEuler,
    Shooting,
    costs,
)

RAIL = lgjax.build(
    [lgjax.Body("cart", None, lgjax.Joint("rail", "prismatic", (1.0, 0.0, 0.0)), mass=2.0, inertia=0.1 * jnp.eye(3))]
)
START, GOAL, MASS = (lgjax.neutral(RAIL), jnp.zeros(1)), 1.0, 2.0
at_goal = lambda state: jnp.concatenate([state[0].joints - GOAL, state[1]])


def test_the_best_duration_of_a_rest_to_rest_motion_is_found():
    """Cost T + ∫ (u/m)² of N equal steps with held forces: T⁴ = 36 d² / (1 - 1/N²), and forces linear in time."""
    n, dt = 4, 0.5
    system = ControlSystem.of_model(RAIL, dt, free_time=True)
    assert system.controls == 2
    found = lgjax.optimize_controls(
        system, START, jnp.broadcast_to(jnp.asarray([0.1, 1.0]), (1, n, 2)), steps=n, progress=False,
        running=lambda t, state, u: 1 + (u[0] / MASS) ** 2, bounds=((-np.inf, 0.2), (np.inf, 3.0)),
        equality=lambda states, u: jnp.concatenate([at_goal(jax.tree.map(lambda x: x[-1], states)), jnp.diff(u[:, 1])]),
        method=Shooting(tolerance=1e-6, iterations=300),
    )  # fmt: skip
    assert found.status[0] == OptimizeStatus.CONVERGED
    duration = dt * np.sum(found.controls[0, :, 1])
    expected = (36 * GOAL**2 / (1 - 1 / n**2)) ** 0.25
    np.testing.assert_allclose(duration, expected, rtol=1e-4)
    np.testing.assert_allclose(found.cost, 4 / 3 * expected, rtol=1e-5)
    middles = (np.arange(n) + 0.5) / n
    slope = 12 * GOAL * MASS / expected**2 / (1 - 1 / n**2)
    np.testing.assert_allclose(found.controls[0, :, 0], slope * (0.5 - middles), atol=1e-3)


def test_least_rates_of_a_force_are_the_solution_of_linear_equations():
    """iLQR in one step, by the matrices of a step and by forward mode: ½ Σ dt rate² + ½ w |miss of rest there|²."""
    n, dt, w = 6, 0.2, 100.0
    # the last state is linear in the rates: semi-implicit steps of the mass
    A = np.array([[1, dt, dt**2 / MASS], [0, 1, dt / MASS], [0, 0, 1.0]])
    B = np.array([dt**3 / 2 / MASS, dt**2 / 2 / MASS, dt])
    reach = np.stack([np.linalg.matrix_power(A, n - 1 - k) @ B for k in range(n)], 1)
    expected = np.linalg.solve(dt * np.eye(n) + w * reach.T @ reach, w * reach.T @ np.array([GOAL, 0, 0]))
    whole = ControlSystem.of_model(RAIL, dt, method=SemiImplicitEuler()).with_rates()
    miss = costs.LeastSquares(lambda state: jnp.concatenate([at_goal(state[0]), state[1]]))
    for system in (whole, replace(whole, jacobians=None)):
        found = lgjax.optimize_controls(
            system, (START, jnp.zeros(1)), np.random.default_rng(0).normal(size=(1, n, 1)), steps=n, progress=False,
            running=costs.control(), terminal=w * miss, method=ILQR(line_search="first"),
        )  # fmt: skip
        assert found.status[0] == OptimizeStatus.CONVERGED
        assert found.iterations[0] <= 3
        np.testing.assert_allclose(found.controls[0, :, 0], expected, rtol=1e-7)


def test_what_has_no_sense_with_free_time_is_refused():
    system = ControlSystem.of_model(RAIL, 0.1, free_time=True)
    ask = lambda bounds: lgjax.optimize_controls(
        system, START, jnp.ones((1, 2, 2)), steps=2, running=costs.control(), bounds=bounds
    )
    with pytest.raises(ValueError, match="its lower bound must be positive, got -inf"):
        ask(None)
    with pytest.raises(ValueError, match="must not have free_time"):
        PredictiveController(system=system, steps=3, running=costs.control())
    with pytest.raises(ValueError, match="its last control is no force"):
        system.with_rates()
