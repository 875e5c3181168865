"""FDDP and iLQR with constraints agree with Riccati's equation, closed forms and SciPy, from guesses with gaps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

import lgjax
from lgjax.simulate.control import FDDP, ILQR, OptimizeStatus, Stagewise, costs, optimize
from lgjax.simulate.control.linear_quadratic.sparse import dense
from tests.simulate.control.problems import LinearQuadratic, solve

pytestmark = pytest.mark.usefixtures("kept_programs")
N, NX, NU = 8, 3, 2
RNG = np.random.default_rng(1)
A, B = np.eye(NX) + 0.2 * RNG.normal(size=(NX, NX)), RNG.normal(size=(NX, NU))
Q, R = np.diag([1.0, 2.0, 0.5]), np.array([[0.3, 0.1], [0.1, 0.2]])
X0 = RNG.normal(size=NX)
GUESSES, NODES = RNG.normal(size=(3, N, NU)), RNG.normal(size=(3, N, NX))
PROBLEM = LinearQuadratic(A, B, Q, R)
linear, quadratic = PROBLEM.system, PROBLEM.costs


# ---- linear and quadratic: closed forms
@pytest.mark.parametrize("forward", ["nonlinear", "linear"])
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_gaps_close_in_one_step_at_the_solution_of_riccatis_equation(forward, dtype):
    tolerance = float(1e4 * jnp.finfo(dtype).eps)
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    found = solve(
        linear(dtype), jnp.asarray(X0, dtype), jnp.asarray(GUESSES, dtype), nodes=jnp.asarray(NODES, dtype), steps=N,
        method=FDDP(tolerance=tolerance, feasibility=tolerance, forward=forward), **quadratic(P, dtype),
    )  # fmt: skip
    x, expected = X0, []
    for _ in range(N):
        expected.append(-K @ x)
        x = A @ x + B @ expected[-1]
    np.testing.assert_allclose(found.controls, np.broadcast_to(expected, GUESSES.shape), atol=tolerance)
    np.testing.assert_allclose(found.cost, X0 @ P @ X0 / 2, rtol=tolerance)
    assert found.controls.dtype == found.cost.dtype == found.states.dtype == dtype
    assert np.all(found.status == OptimizeStatus.CONVERGED)
    assert np.all(found.iterations <= 3)


def test_two_knots_are_a_small_linear_system():
    """x1 = x0 + u0, x2 = x1 + u1, cost (u0² + u1²) / 2 + w (x2 - goal)² / 2: both controls are w d / (1 + 2 w)."""
    w, goal, x0 = 3.0, 2.0, -1.0
    system = lgjax.control.ControlSystem.on_space(lgjax.groups.vector_space(1), lambda x, u: x + u, 1)
    found = solve(
        system, jnp.array([x0]), np.array([[[5.0], [-3.0]]]), nodes=np.array([[[7.0], [0.5]]]), steps=2, method=FDDP(),
        running=costs.control(), terminal=costs.LeastSquares(lambda x: jnp.sqrt(w) * (x - goal)),
    )  # fmt: skip
    np.testing.assert_allclose(found.controls[0, :, 0], w * (goal - x0) / (1 + 2 * w), atol=1e-12)
    assert found.violation[0] < 1e-12


# ---- constraints
def test_constraints_active_at_the_solution_are_those_of_slsqp():
    """A mass is to move 0.6 m in one second, no faster than a speed, to rest, with controls in a box."""
    dt, n, fastest, strongest = 0.1, 10, 0.8, 3.5
    a, b = jnp.array([[1, dt], [0, 1]]), jnp.array([[dt**2 / 2], [dt]])
    system = lgjax.control.ControlSystem.on_space(lgjax.groups.vector_space(2), lambda x, u: a @ x + b @ u, 1, dt)
    goal = np.array([0.6, 0.0])
    speeds = dt * np.tril(np.ones((n, n)))
    reach = np.stack([dt * (dt * (n - 1 - np.arange(n)) + dt / 2), dt * np.ones(n)])
    other = scipy.optimize.minimize(
        lambda u: dt * u @ u, np.zeros(n), bounds=[(-strongest, strongest)] * n, tol=1e-14,
        constraints=[
            {"type": "eq", "fun": lambda u: reach @ u - goal},
            {"type": "ineq", "fun": lambda u: fastest - speeds @ u},
        ],
    )  # fmt: skip
    options = {
        "steps": n, "running": lambda t, x, u: jnp.sum(u**2), "bounds": (-strongest, strongest),
        "equality": Stagewise(terminal=lambda x: x - goal),
        "inequality": Stagewise(running=lambda t, x, u: x[1:] - fastest, terminal=lambda x: x[1:] - fastest),
    }  # fmt: skip
    for method, nodes in ((ILQR(), None), (FDDP(), np.ones((1, n, 2)))):
        found = solve(system, jnp.zeros(2), np.ones((1, n, 1)), method=method, nodes=nodes, **options)
        np.testing.assert_allclose(found.controls[0, :, 0], other.x, atol=1e-4)
        np.testing.assert_allclose(found.cost[0], other.fun, rtol=1e-5)
        assert found.violation[0] <= 1e-6
        assert found.status[0] == OptimizeStatus.CONVERGED
    assert np.sum(np.abs(found.states[0, :, 1] - fastest) < 1e-5) >= 2
    assert np.any(np.abs(found.controls) > strongest - 1e-6)


@pytest.mark.parametrize("method", [ILQR(), FDDP()], ids=["ilqr", "fddp"])
def test_what_cannot_be_met_ends_with_a_status_and_the_nearest(method):
    """One control within ±1 for two steps from 0 cannot reach 5; what is nearest is 2."""
    system = lgjax.control.ControlSystem.on_space(lgjax.groups.vector_space(1), lambda x, u: x + u, 1)
    found = solve(
        system, jnp.zeros(1), np.zeros((2, 2, 1)), steps=2, method=method, bounds=(-1.0, 1.0),
        running=costs.control(), equality=Stagewise(terminal=lambda x: x - 5.0),
    )  # fmt: skip
    assert np.all(found.status == OptimizeStatus.INFEASIBLE)
    np.testing.assert_allclose(found.violation, 3.0, atol=1e-6)
    np.testing.assert_allclose(found.controls, 1.0, atol=1e-6)


# ---- mechanisms
@pytest.mark.slow
def test_methods_agree_on_a_reach_from_states_that_no_control_leads_through():
    arm = lgjax.models.chain(2)
    system = lgjax.control.ControlSystem.of_model(arm, 0.05, method=lgjax.control.SemiImplicitEuler())
    start, steps = (lgjax.neutral(arm), jnp.zeros(2)), 12
    name = arm.body_names[-1]
    goal = lgjax.frame_pose(arm, lgjax.configuration(arm, joints=[0.3, 0.4]), name)
    rest = (lgjax.configuration(arm, joints=[0.3, 0.4]), jnp.zeros(2))
    options = {
        "steps": steps, "running": costs.control(weights=0.3),
        "terminal": costs.frame(arm, name, goal, 10.0) + 4.0 * costs.state(arm, rest),
    }  # fmt: skip
    guesses = 0.1 * RNG.normal(size=(2, steps, 2))
    line = lambda a, b: np.linspace(a, b, steps + 1)[1:]
    nodes = (
        jax.vmap(jax.vmap(lambda x: lgjax.configuration(arm, joints=x)))(
            jnp.asarray(np.stack([line([0, 0], [0.3, 0.4]), RNG.normal(size=(steps, 2))]))
        ),
        jnp.zeros((2, steps, 2)),
    )
    close = {"tolerance": 1e-7}  # of the gradient: costs are flat at the optimum, controls are not
    by_ilqr = solve(system, start, guesses, method=ILQR(**close), **options)
    by_fddp = [
        solve(system, start, guesses, method=FDDP(forward=forward, feasibility=1e-9, **close), nodes=nodes, **options)
        for forward in ("nonlinear", "linear")
    ]
    assert np.all(by_ilqr.status == OptimizeStatus.CONVERGED)
    for found in by_fddp:
        assert np.all(found.status == OptimizeStatus.CONVERGED)
        np.testing.assert_allclose(found.cost, by_ilqr.cost[0], rtol=1e-7)
        np.testing.assert_allclose(found.controls, by_ilqr.controls, atol=1e-5)
        assert np.all(found.violation < 1e-6)


# ---- how a search ends, and goes on
def search(tmp_path=None, method=FDDP(iterations=40, tolerance=0.0, every=2), **options):  # noqa: B008
    """A pull towards the origin through a bent step, from states with gaps."""
    file = None if tmp_path is None else tmp_path / "search.npz"
    a, b = jnp.asarray(A), jnp.asarray(B)
    step = lambda x, u: a @ x + b @ u + 0.3 * jnp.sin(x)
    system = lgjax.control.ControlSystem.on_space(lgjax.groups.vector_space(NX), step, NU)
    return solve(
        system, jnp.asarray(X0), GUESSES, nodes=NODES, steps=N, method=method, checkpoint=file,
        **{"inequality": Stagewise(running=lambda t, x, u: u - 0.1), **quadratic(4 * np.eye(NX)), **options},
    )  # fmt: skip


def test_an_interrupted_search_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    whole = search()
    shown = []

    def interrupt(*state):
        shown.append(state)
        if len(shown) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(optimize, "_show", interrupt)
        part = search(tmp_path)
    assert np.all(part.status == OptimizeStatus.RUNNING)
    assert np.all(np.isfinite(part.cost))
    assert part.history.cost.shape == (3, 4)
    again = search(tmp_path)
    for x, y in zip(jax.tree.leaves(whole._replace(seconds=0, compile_seconds=0)),
                    jax.tree.leaves(again._replace(seconds=0, compile_seconds=0)), strict=True):  # fmt: skip
        np.testing.assert_array_equal(x, y)
    assert np.all(whole.violation < 1e-6)


BAD = [
    ({"nodes": np.zeros((3, N - 1, NX))}, r"nodes\S* .* \(3, 8, 3\), got \(3, 7, 3\)"),
    ({"nodes": np.full((3, N, NX), np.nan)}, "nodes is not finite"),
    ({"inequality": lambda x, u: u[:, 0]}, "FDDP takes no inequality constraint that may couple steps"),
    (
        {"method": FDDP(), "inequality": Stagewise(running=lambda t, x, u: u[0])},
        "inequality.running must return one vector",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[m[:30] for _, m in BAD])
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        search(**change) if "nodes" not in change else solve(
            linear(), jnp.asarray(X0), GUESSES, steps=N, method=FDDP(), **quadratic(np.eye(NX)), **change
        )
    with pytest.raises(ValueError, match="needs running, terminal or both"):
        Stagewise()
    with pytest.raises(ValueError, match="forward must be one of nonlinear, linear, got 'both'"):
        FDDP(forward="both")


@pytest.mark.slow
@pytest.mark.parametrize("floating", [False, True])
def test_the_matrices_of_a_semi_implicit_step_are_its_derivatives(floating):
    model = lgjax.models.chain(2, floating_base=floating)
    system = lgjax.control.ControlSystem.of_model(model, 0.1, method=lgjax.control.SemiImplicitEuler())
    q, v = lgjax.random_configuration(jax.random.key(0), model), jnp.asarray(RNG.normal(size=model.nv))
    u, n = jnp.asarray(RNG.normal(size=system.controls)), 2 * model.nv

    @jax.jit
    def both(state, u):
        after = system.step(state, u)
        moved = lambda z: system.difference(after, system.step(system.retract(state, z[:n]), u + z[n:]))
        return after, jax.jacfwd(moved)(jnp.zeros(n + len(u))), system.jacobians(state, u)

    after, expected, (end, A, B) = both((q, v), u)
    np.testing.assert_allclose(np.hstack([dense(A), dense(B)]), expected, atol=1e-11)
    for x, y in zip(jax.tree.leaves(after), jax.tree.leaves(end), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-14)


@pytest.mark.parametrize("forward", ["nonlinear", "linear"])
def test_constrained_guesses_are_searched_for_as_each_alone(forward):
    """Nine guesses, each with multipliers and a penalty of its own."""
    options = {
        "steps": 7, "method": FDDP(forward=forward, iterations=6, every=6, growth=10.0, penalty=0.1),
        **quadratic(np.eye(NX)),
        "equality": Stagewise(running=lambda t, x, u: u[:1] - 0.1 * x[:1]),
        "inequality": Stagewise(running=lambda t, x, u: x[1:] - 0.2, terminal=lambda x: x[:1] - 0.1),
    }  # fmt: skip
    random = np.random.default_rng(3)
    guesses, nodes = random.normal(size=(9, 7, NU)), random.normal(size=(9, 7, NX))
    found = solve(linear(), jnp.asarray(X0), guesses, nodes=nodes, **options)
    for k in (0, 5):
        alone = solve(linear(), jnp.asarray(X0), guesses[k : k + 1], nodes=nodes[k : k + 1], **options)
        np.testing.assert_allclose(alone.controls[0], found.controls[k], rtol=1e-7, atol=1e-7)
        assert alone.status[0] == found.status[k]
    assert np.ptp(found.violation) > 0


@pytest.mark.parametrize("goal", [0.9, 0.8, 0.5])
@pytest.mark.parametrize("kind", ["equality", "inequality"])
def test_constraints_are_met_in_single_precision(goal, kind):
    """The last step of a search gains less than round-off."""
    system = lgjax.control.ControlSystem.on_space(
        lgjax.groups.vector_space(1), lambda x, u: x + jnp.asarray(0.1, x.dtype) * u, 1, 0.1
    )
    found = solve(
        system, jnp.ones(1, "float32"), np.zeros((1, 5, 1)), steps=5, method=ILQR(),
        running=lambda t, x, u: jnp.sum(x * x + u * u) / 2, **{kind: Stagewise(terminal=lambda x: x - goal)},
    )  # fmt: skip
    assert found.status[0] == OptimizeStatus.CONVERGED
    assert found.states[0, -1, 0] <= goal + 1e-6
    assert found.iterations[0] < 40


@pytest.mark.parametrize("line_search", ["first", "best"])
def test_steps_of_the_linear_model_pay_for_gaps_after_prices_change(line_search):
    """A pendulum with bounds and an equality at its end; SciPy's SLSQP finds the same cost, 5.8538."""
    slope = lambda y, u: jnp.stack([y[1], -9.81 * 0.3 * jnp.sin(y[0]) + u[0]])

    def step(y, u):
        h = 0.1
        k1 = slope(y, u)
        k2 = slope(y + h / 2 * k1, u)
        k3 = slope(y + h / 2 * k2, u)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + h * k3, u))

    system = lgjax.control.ControlSystem(step, lambda y, x: y + x, lambda a, b: b - a, 1, 0.1)
    guesses = np.concatenate([np.zeros((1, 8, 1)), np.random.default_rng(0).normal(size=(7, 8, 1))])
    found = lgjax.optimize_controls(
        system, jnp.zeros(2), guesses, steps=8, running=lambda t, y, u: 0.1 * u[0] ** 2 + 0.3 * t * y[1] ** 2,
        terminal=lambda y: 20 * (y[0] - 1) ** 2 + 5 * y[1] ** 2, bounds=(-1.2, 4.0),
        equality=lgjax.control.Stagewise(terminal=lambda s: s[:1] - 0.9), progress=False,
        method=lgjax.control.FDDP(forward="linear", line_search=line_search),
    )  # fmt: skip
    assert not found.status.any()
    np.testing.assert_allclose(found.cost, 5.8538, atol=1e-4)
