"""Optimal controls agree with Riccati's equation, dense solvers and SciPy, and keep to their manifold and bounds."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.linalg
import scipy.optimize
from jax import jit

import lgjax
from lgjax.simulate.control import ILQR, MultipleShooting, OptimizeStatus, Shooting, optimize
from lgjax.simulate.control.bounds import bounded, unbounded
from lgjax.simulate.control.check_problem import check_problem
from lgjax.simulate.control.regulator.expansion import expand
from lgjax.simulate.control.regulator.search import regulator_of
from tests.simulate.control.problems import LinearQuadratic, solve

pytestmark = pytest.mark.usefixtures("kept_programs")
N, NX, NU = 12, 4, 2
RNG = np.random.default_rng(0)
A, B = np.eye(NX) + 0.2 * RNG.normal(size=(NX, NX)), RNG.normal(size=(NX, NU))
Q, R = np.diag([1.0, 2.0, 0.5, 1.0]), np.array([[0.3, 0.1], [0.1, 0.2]])
X0 = RNG.normal(size=NX)
GUESSES = RNG.normal(size=(3, N, NU))
PROBLEM = LinearQuadratic(A, B, Q, R)
linear, quadratic = PROBLEM.system, PROBLEM.costs


@cache
def dense(P):
    """The cost as |F u - g|² / 2 of all controls u, by simulation of unit controls with NumPy."""

    def path(u, x):
        states = [x]
        for control in u.reshape(N, NU):
            states.append(A @ states[-1] + B @ control)
        half, last = np.linalg.cholesky(Q).T, np.linalg.cholesky(np.reshape(P, (NX, NX))).T
        rows = [half @ x for x in states[:-1]] + [last @ states[-1]]
        return np.concatenate([*rows, (u.reshape(N, NU) @ np.linalg.cholesky(R)).ravel()])

    F = np.stack([path(unit, 0 * X0) for unit in np.eye(N * NU)], 1)
    return F, -path(np.zeros(N * NU), X0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 1e-9), (jnp.float32, 1e-4)])
def test_ilqr_solves_the_regulator_in_one_step(dtype, tolerance):
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    found = solve(
        linear(dtype), jnp.asarray(X0, dtype), jnp.asarray(GUESSES, dtype), steps=N,
        method=ILQR(tolerance=float(1e4 * jnp.finfo(dtype).eps)), **quadratic(P, dtype),
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


@pytest.mark.parametrize(
    ("method", "tolerance"),
    [(Shooting(tolerance=1e-7), 1e-6), (MultipleShooting(segments=3, iterations=900, tolerance=1e-7), 1e-4)],
    ids=["shooting", "multiple_shooting"],
)
def test_shooting_finds_the_controls_of_the_dense_normal_equations(method, tolerance):
    P = 4 * np.eye(NX)
    F, g = dense(tuple(P.ravel()))
    expected = np.linalg.lstsq(F, g)[0].reshape(N, NU)
    found = solve(linear(), jnp.asarray(X0), GUESSES, steps=N, method=method, **quadratic(P))
    np.testing.assert_allclose(found.controls, np.broadcast_to(expected, GUESSES.shape), atol=tolerance)
    assert np.all(found.violation < 1e-5)


@pytest.mark.parametrize(("method", "tolerance"), [(ILQR(), 1e-8), (Shooting(), 1e-5)], ids=["ilqr", "shooting"])
def test_bounds_hold_and_are_those_of_a_bounded_least_squares_solver(method, tolerance):
    P, lower, upper = 4 * np.eye(NX), (-0.3, -np.inf), (0.4, 0.1)
    F, g = dense(tuple(P.ravel()))
    box = (np.tile(lower, N), np.tile(upper, N))
    expected = scipy.optimize.lsq_linear(F, g, box, method="bvls", tol=1e-14).x.reshape(N, NU)
    assert np.any(expected[:, 0] > 0.4 - 1e-9)
    found = solve(linear(), jnp.asarray(X0), GUESSES, steps=N, method=method, bounds=(lower, upper), **quadratic(P))
    np.testing.assert_allclose(found.controls, np.broadcast_to(expected, GUESSES.shape), atol=tolerance)
    assert np.all((found.controls >= lower) & (found.controls <= upper))


def test_least_effort_to_a_state_is_the_pseudoinverse_and_an_inequality_is_that_of_slsqp():
    dt, n = 0.1, 10
    a, b = np.array([[1, dt], [0, 1]]), np.array([[dt**2 / 2], [dt]])
    system = lgjax.control.ControlSystem.on_space(
        lgjax.groups.vector_space(2), lambda x, u: jnp.asarray(a) @ x + jnp.asarray(b) @ u, 1, dt
    )
    options = {
        "steps": n,
        "running": lambda t, x, u: jnp.sum(u**2),
        "terminal": None,
        "method": Shooting(iterations=400),
    }
    goal, fastest = np.array([1.0, 0.0]), 1.2
    reach = np.hstack([np.linalg.matrix_power(a, n - 1 - k) @ b for k in range(n)])
    free = solve(system, jnp.zeros(2), np.zeros((1, n, 1)), equality=lambda x, u: x[-1] - goal, **options)
    np.testing.assert_allclose(free.controls[0, :, 0], np.linalg.pinv(reach) @ goal, atol=1e-5)
    slow = solve(
        system, jnp.zeros(2), np.ones((1, n, 1)), equality=lambda x, u: x[-1] - goal,
        inequality=lambda x, u: x[:, 1] - fastest, **options,
    )  # fmt: skip
    speeds = dt * np.tril(np.ones((n, n)))
    constraints = [
        {"type": "eq", "fun": lambda u: reach @ u - goal},
        {"type": "ineq", "fun": lambda u: fastest - speeds @ u},
    ]
    other = scipy.optimize.minimize(lambda u: dt * u @ u, np.zeros(n), constraints=constraints, tol=1e-14)
    assert np.max(free.states[0, :, 1]) > fastest + 0.1
    np.testing.assert_allclose(slow.controls[0, :, 0], other.x, atol=1e-4)
    assert slow.violation[0] < 1e-6
    assert slow.status[0] == OptimizeStatus.CONVERGED


# ---- on manifolds
SATELLITE = lgjax.groups.product_space(lgjax.right_translation(lgjax.SO3), lgjax.groups.vector_space(3))
INERTIA = np.array([1.0, 2.0, 3.0])


def satellite(dt=0.2):
    """A rigid body with three torques, an explicit step on SO(3) x R³."""

    def step(y, torque):
        attitude, w = y
        inertia = jnp.asarray(INERTIA)
        w = w + dt * (torque - jnp.cross(w, inertia * w)) / inertia
        return SATELLITE.move((dt * w, jnp.zeros(3)), (attitude, w))

    return lgjax.control.ControlSystem.on_space(SATELLITE, step, 3, dt)


TARGET = lgjax.so3.exp(jnp.array([0.5, -1.0, 2.0]))
TURN = {
    "steps": 12,
    "running": lambda t, y, u: jnp.sum(u**2),
    "terminal": lambda y: 20 * (3 - jnp.trace(TARGET.T @ y[0])) + 20 * jnp.sum(y[1] ** 2),
}
REST = (jnp.eye(3), jnp.zeros(3))


@pytest.mark.slow
def test_three_methods_turn_a_satellite_the_same_way_and_stay_on_the_group():
    guesses = 0.1 * RNG.normal(size=(2, 12, 3))
    found = {
        "ilqr": solve(satellite(), REST, guesses, method=ILQR(), **TURN),
        "shooting": solve(satellite(), REST, guesses, **TURN),
        "multiple_shooting": solve(
            satellite(),
            REST,
            guesses,
            method=MultipleShooting(segments=4, iterations=1000, feasibility=1e-7, tolerance=1e-7),
            **TURN,
        ),
    }
    best = found["ilqr"]
    assert np.all(best.status == OptimizeStatus.CONVERGED)
    assert np.all(np.diff(best.history.cost, axis=1) <= 0)
    for result in found.values():
        np.testing.assert_allclose(result.cost, best.cost, rtol=1e-5)
        np.testing.assert_allclose(result.controls, best.controls, atol=1e-3)
        turn = result.states[0]
        np.testing.assert_allclose(np.swapaxes(turn, -1, -2) @ turn, np.broadcast_to(np.eye(3), turn.shape), atol=1e-13)
    assert np.all(found["multiple_shooting"].violation < 1e-6)


def test_the_gradient_of_the_regulator_is_that_of_the_whole_cost():
    """On a floating base, far from any solution: adjoints in tangent spaces against reverse mode through the motion."""
    model = lgjax.models.chain(2, floating_base=True)
    system = lgjax.control.ControlSystem.of_model(model, 0.1, method=lgjax.MuntheKaas(lgjax.integrators.LIE_EULER))
    assert system.controls == 1
    q = lgjax.random_configuration(jax.random.key(0), model)
    start = (q, jnp.asarray(RNG.normal(size=model.nv)))
    tip = lambda q: q.free_poses.translation[0] + q.free_poses.rotation[0] @ jnp.array([0.1, 0.2, -0.3])
    problem = check_problem(
        system, start, 3, lambda t, y, u: t * jnp.sum(u**2) + tip(y[0])[0], lambda y: jnp.sum(tip(y[0]) ** 2) + y[1][6],
        None, None, None,
    )  # fmt: skip
    controls = jnp.asarray(RNG.normal(size=(3, 1)))

    def whole(controls):
        """Through `rollout`, whose derivatives are those of the recursion itself."""

        def step(state, u):
            force = lambda t, q, v: jnp.zeros(model.nv).at[6].set(u[0])
            path = lgjax.rollout(model, *state, force, 0.1, 1, lgjax.MuntheKaas(lgjax.integrators.LIE_EULER), None)
            state = jax.tree.map(lambda x: x[0], (path.q, path.v))
            return state, state

        _, states = jax.lax.scan(step, start, controls)
        states = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states)
        return problem.cost_and_size(states, controls)[0]

    def by_adjoints(controls):
        expansion, last = expand(problem, problem.simulate(start, controls), controls)
        return regulator_of(problem, expansion, last, controls, jnp.asarray(1e3))[-1]

    np.testing.assert_allclose(jit(by_adjoints)(controls), jit(jax.grad(whole))(controls), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_a_pendulum_swings_up_with_a_torque_that_cannot_lift_it_at_once():
    model = lgjax.models.chain(1)
    system = lgjax.control.ControlSystem.of_model(model, 0.05, method=lgjax.MuntheKaas(lgjax.integrators.HEUN2))
    start, steps = (lgjax.neutral(model), jnp.zeros(1)), 50
    costs = {
        "running": lambda t, y, u: 0.01 * jnp.sum(u**2),
        "terminal": lambda y: 10 * (1 + jnp.cos(y[0].joints[0])) + jnp.sum(y[1] ** 2),
    }
    lift = 9.81 * 0.15  # N m, horizontal
    guesses = RNG.normal(size=(6, steps, 1))
    found = solve(system, start, guesses, steps=steps, method=ILQR(), bounds=(-lift / 2, lift / 2), **costs)
    assert np.all(np.cos(found.states[0].joints[:, -1, 0]) < -0.99)
    assert np.all(np.diff(found.history.cost, axis=1) <= 1e-10 * found.history.cost[:, 1:])
    assert np.all(found.status == OptimizeStatus.CONVERGED)
    inside = np.abs(found.controls) < lift / 2

    def whole(controls):
        problem = check_problem(system, start, steps, costs["running"], costs["terminal"], None, None, None)
        return problem.cost_and_size(problem.simulate(start, controls), controls)[0]

    gradient = np.asarray(jit(jax.vmap(jax.grad(whole)))(jnp.asarray(found.controls)))
    np.testing.assert_allclose(gradient[inside], 0, atol=2e-6)


# ---- parametrizations
def test_bounds_are_a_map_onto_the_box_with_an_inverse():
    lower, upper = jnp.array([-1.0, 0.0, -jnp.inf, -jnp.inf]), jnp.array([3.0, jnp.inf, 2.0, jnp.inf])
    free = jnp.asarray(10 * RNG.normal(size=(1000, 4)))
    u = bounded(free, lower, upper)
    assert np.all((u >= lower) & (u <= upper))
    assert np.all(np.isfinite(jax.vmap(jax.jacfwd(lambda z: bounded(z, lower, upper)))(free)))
    inside = jnp.array([[0.3, 2.0, -1.0, 7.0], [2.9, 0.5, 1.5, -7.0]])
    np.testing.assert_allclose(bounded(unbounded(inside, lower, upper), lower, upper), inside, rtol=1e-14)
    assert np.all(np.isfinite(unbounded(jnp.array([-1.0, -5.0, 9.0, 0.0]), lower, upper)))


def test_knots_hold_controls_or_join_them_by_lines():
    problem = check_problem(linear(), jnp.asarray(X0), N, None, lambda x: jnp.sum(x), None, None, None)

    def controls(knots, hold):
        free = jnp.asarray(knots)
        search = Shooting(optimizer=optax.sgd(0.1), hold=hold).search(problem, len(knots))
        return np.asarray(search.controls(free))

    knots = RNG.normal(size=(3, NU))
    np.testing.assert_array_equal(controls(knots, "constant"), np.repeat(knots, N // 3, 0))
    line = lambda t: np.stack([1 + 2 * t, 3 - t], -1)
    middles = (np.arange(N) + 0.5) / N
    np.testing.assert_allclose(controls(line(np.linspace(0, 1, 4)), "linear"), line(middles), rtol=1e-14)


@pytest.mark.parametrize("optimizer", [optax.adam(0.05), optax.sgd(1e-2, momentum=0.9)], ids=["adam", "sgd"])
def test_any_optimiser_of_optax_descends_in_float32(optimizer):
    found = solve(
        linear(jnp.float32), jnp.asarray(X0, jnp.float32), 0.1 * GUESSES, steps=N,
        method=Shooting(optimizer=optimizer, iterations=200), **quadratic(4 * np.eye(NX), jnp.float32),
    )  # fmt: skip
    assert found.controls.dtype == jnp.float32
    assert np.all(found.cost < 0.2 * found.history.cost[:, 0])


def test_shooting_in_float32_where_jax_has_float64():
    """The line search of its usual optimizer tries steps in float64, at which a step of the system left float32."""
    space = lgjax.groups.vector_space(2)
    system = lgjax.control.ControlSystem.on_space(space, lambda x, u: x + jnp.asarray(0.1, x.dtype) * u, 2)
    found = solve(system, jnp.zeros(2, jnp.float32), jnp.zeros((1, 3, 2)), steps=3, method=Shooting(iterations=20),
                  terminal=lambda x: jnp.sum((x - 1) ** 2))  # fmt: skip
    assert found.controls.dtype == found.states.dtype == jnp.float32
    np.testing.assert_allclose(found.states[0, -1], 1, atol=1e-4)


# ---- how a search ends, and goes on
SEGMENTS = MultipleShooting(segments=3, iterations=60, every=10)


def search(tmp_path=None, method=SEGMENTS, **options):
    file = None if tmp_path is None else tmp_path / "search.npz"
    return solve(
        linear(), jnp.asarray(X0), GUESSES, steps=N, method=method, checkpoint=file, **quadratic(4 * np.eye(NX)),
        **options,
    )  # fmt: skip


def same(a, b):
    for x, y in zip(jax.tree.leaves(a._replace(seconds=0, compile_seconds=0)),
                    jax.tree.leaves(b._replace(seconds=0, compile_seconds=0)), strict=True):  # fmt: skip
        np.testing.assert_array_equal(x, y)


def test_an_interrupted_search_returns_what_it_has_and_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    whole = search()
    assert np.all(whole.status == OptimizeStatus.MAX_ITERATIONS)
    shown = []

    def interrupt(*state):
        shown.append(state)
        if len(shown) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(optimize, "_show", interrupt)
    part = search(tmp_path)
    assert np.all(part.status == OptimizeStatus.RUNNING)
    assert np.all(np.isfinite(part.cost))
    assert part.history.cost.shape == (3, 20)
    same(search(tmp_path), whole)


def test_more_iterations_continue_a_search_that_had_too_few(tmp_path):
    few, more = (ILQR(iterations=n, tolerance=0.0, every=10) for n in (2, 4))
    search(tmp_path, few)
    same(search(tmp_path, more), search(None, more))


def test_segments_of_mechanisms():
    """Some kinds of coordinates are not there: their arrays are empty."""
    model = lgjax.models.chain(1)
    system = lgjax.control.ControlSystem.of_model(model, 0.05)
    start = lgjax.neutral(model), jnp.zeros(1)
    found = solve(
        system, start, np.zeros((1, 4, 1)), steps=4, method=MultipleShooting(segments=2, iterations=900),
        running=lambda t, x, u: 1e-3 * jnp.sum(u * u), terminal=lambda s: jnp.sum((s[0].joints - 0.1) ** 2),
    )  # fmt: skip
    exact = solve(
        system, start, np.zeros((1, 4, 1)), steps=4, method=ILQR(),
        running=lambda t, x, u: 1e-3 * jnp.sum(u * u), terminal=lambda s: jnp.sum((s[0].joints - 0.1) ** 2),
    )  # fmt: skip
    np.testing.assert_allclose(found.cost, exact.cost, rtol=1e-3)
    np.testing.assert_allclose(found.states[0].joints[0, :, 0], exact.states[0].joints[0, :, 0], atol=1e-3)


def test_a_checkpoint_that_is_broken_or_of_another_problem_is_refused(tmp_path):
    file = tmp_path / "search.npz"
    for content in (b"", b"nonsense", b"PK\x03\x04 cut"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"search\.npz' cannot be read"):
            search(tmp_path, ILQR(iterations=10))
    file.unlink()
    search(tmp_path, ILQR(iterations=1))
    with pytest.raises(ValueError, match="of another problem"):
        search(tmp_path, ILQR(iterations=1), bounds=(-0.1, 0.1))
    with pytest.raises(ValueError, match="of another problem"):
        search(tmp_path, Shooting(iterations=1))
    file.unlink()
    for method in (Shooting(iterations=1), ILQR(iterations=1)):  # costs and bounds that the first guess does not feel
        price = lambda weight, method=method: solve(
            linear(), jnp.zeros(NX), np.zeros((1, N, NU)), steps=N, method=method, checkpoint=file,
            running=lambda t, x, u: weight * u @ u, terminal=lambda x: jnp.sum((x - 1) ** 2),
        )  # fmt: skip
        price(0.1)
        with pytest.raises(ValueError, match="of another problem, other guesses or other options"):
            price(10.0)
        price(0.1)
        file.unlink()
    with pytest.raises(ValueError, match="folder does not exist"):
        search(tmp_path / "nowhere", ILQR(iterations=1))


@pytest.mark.parametrize("method", [ILQR(), Shooting()], ids=["ilqr", "shooting"])
def test_a_guess_that_leaves_the_numbers_is_reported_and_harms_no_other(method):
    def terminal(x):
        return jnp.sum(x**2) + jnp.where(jnp.abs(x[0]) > 1e3, jnp.nan, 0.0)

    options = {"steps": N, "method": method, "terminal": terminal, "running": lambda t, x, u: jnp.sum(u**2)}
    bad = GUESSES.copy()
    bad[1] *= 1e6
    good, mixed = (solve(linear(), jnp.asarray(X0), g, **options) for g in (GUESSES, bad))
    assert list(mixed.status == OptimizeStatus.NOT_FINITE) == [False, True, False]
    np.testing.assert_allclose(mixed.cost[[0, 2]], good.cost[[0, 2]], rtol=1e-12)
    assert mixed.best in (0, 2)


BAD = [
    ({"steps": 0}, "steps must be a positive integer, got 0"),
    ({"running": lambda t, x, u: x}, r"the running cost must return one number, got shape \(4,\)"),
    ({"terminal": lambda x: (x, x)}, "the terminal cost must return one number"),
    ({"running": None, "terminal": None}, "nothing to optimize"),
    ({"bounds": (1.0, (2.0, 0.5))}, "bounds of control 1 cross: lower 1, upper 0.5"),
    ({"bounds": ((-1.0, 0.0), (1.0, 0.0))}, "both bounds of control 1 are 0: leave a joint without a motor out"),
    ({"bounds": ((0.0, 0.0, 0.0), 1.0)}, "bounds are"),
    ({"state": jnp.array([1.0, jnp.nan, 0.0, 0.0])}, "the initial state is not finite"),
    ({"guesses": np.full((1, N, NU), np.inf)}, "guesses is not finite"),
    ({"guesses": np.zeros((1, N, 3))}, r"guesses have shape \(guesses, knots, 2\)"),
    ({"guesses": np.zeros((1, 3, NU)), "method": ILQR()}, "ILQR takes a knot per step, 12, got 3 knots"),
    ({"method": ILQR(), "equality": lambda x, u: x[-1]}, "ILQR takes no equality constraint"),
    ({"method": MultipleShooting(segments=5)}, "segments must divide steps, got segments=5 and steps=12"),
    ({"nodes": np.zeros((3, 2, NX))}, "nodes are for MultipleShooting and FDDP, the method is Shooting"),
    ({"guesses": np.zeros((1, 1, NU)), "method": Shooting(hold="linear")}, "linear controls need two knots or more"),
    ({"equality": lambda x, u: x}, r"equality must return one vector, got \(13, 4\)"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[m[:30] for _, m in BAD])
def test_bad_input_is_named(change, message):
    options = {"steps": N, **quadratic(np.eye(NX))} | change
    state, guesses = options.pop("state", jnp.asarray(X0)), options.pop("guesses", GUESSES)
    with pytest.raises(ValueError, match=message):
        solve(linear(), state, guesses, **options)


BAD_OPTIONS = [
    (ILQR, {"iterations": -1}, ValueError, "iterations must be a positive integer, got -1"),
    (ILQR, {"every": 1.5}, TypeError, "every must be a Python integer, .* got 1.5"),
    (ILQR, {"tolerance": -1.0}, ValueError, "tolerance must be a finite number of at least 0, got -1.0"),
    (ILQR, {"segments": 3}, TypeError, "unexpected keyword argument 'segments'"),
    (Shooting, {"hold": "cubic"}, ValueError, "hold must be one of constant, linear, got 'cubic'"),
    (Shooting, {"growth": 0.5}, ValueError, "growth must be a finite number of at least 1, got 0.5"),
    (Shooting, {"optimizer": "adam"}, TypeError, r"optimizer must be one of optax, .* got 'adam'"),
    (MultipleShooting, {"segments": 0}, ValueError, "segments must be a positive integer, got 0"),
]


@pytest.mark.parametrize(("method", "options", "error", "message"), BAD_OPTIONS, ids=[m[:30] for *_, m in BAD_OPTIONS])
def test_bad_options_of_a_method_are_named_when_it_is_made(method, options, error, message):
    with pytest.raises(error, match=message):
        method(**options)


def test_methods_are_hashable_values():
    assert ILQR(iterations=3) == ILQR(iterations=3) != ILQR(iterations=4)
    adam = optax.adam(0.1)
    assert len({ILQR(), ILQR(), Shooting(optimizer=adam), Shooting(optimizer=adam), MultipleShooting()}) == 3
    assert [MultipleShooting().parts(steps) for steps in (1, 7, 12, 20, 64)] == [1, 7, 6, 5, 8]
    with pytest.raises(TypeError, match=r"method must be Shooting\(...\), .* got 'newton'"):
        solve(linear(), jnp.asarray(X0), GUESSES, steps=N, method="newton", terminal=jnp.sum)


def test_the_state_of_a_mechanism_is_a_pair():
    model = lgjax.models.chain(1)
    system = lgjax.control.ControlSystem.of_model(model, dt=0.1)
    q, options = lgjax.neutral(model), {"steps": N, "running": lambda t, state, control: control @ control}
    for state, found in ((q, "of type Configuration"), ((q,), "of type tuple"), (jnp.zeros(2), "an array of shape")):
        with pytest.raises(TypeError, match=rf"^the initial state of a mechanism is \(q, v\), got {found}"):
            solve(system, state, np.zeros((1, N, 1)), **options)


def test_bad_systems_are_named():
    space = lgjax.groups.vector_space(NX)
    cut = lgjax.control.ControlSystem.on_space(space, lambda x, u: x[:3], NU)
    with pytest.raises(ValueError, match="step must return a state like its own"):
        solve(cut, jnp.asarray(X0), GUESSES, steps=N, terminal=jnp.sum)
    backwards = lgjax.control.ControlSystem.on_space(space, lambda x, u: x, NU, -0.1)
    with pytest.raises(ValueError, match="dt of the system must be positive"):
        solve(backwards, jnp.asarray(X0), GUESSES, steps=N, terminal=jnp.sum)
    with pytest.raises(ValueError, match="no translated group"):
        lgjax.control.ControlSystem.on_space(lgjax.groups.TS2, lambda x, u: x, 1)
    with pytest.raises(ValueError, match="needs the number of controls"):
        lgjax.control.ControlSystem.of_model(lgjax.models.chain(1), 0.1, actuation=lambda u: u)


def test_controls_that_would_be_ignored_and_weights_that_are_no_numbers_are_refused():
    with pytest.raises(ValueError, match="3 joints can be driven; other controls need actuation= or wrenches="):
        lgjax.control.ControlSystem.of_model(lgjax.models.chain(3), 0.05, controls=1)
    assert lgjax.control.ControlSystem.of_model(lgjax.models.chain(3), 0.05, controls=3).controls == 3
    with pytest.raises(ValueError, match="weights is not finite"):
        lgjax.control.costs.control(weights=float("nan"))


def test_constraints_that_contradict_each_other_leave_finite_numbers():
    control = lgjax.control
    system = control.ControlSystem(lambda x, u: x + 0.1 * u, lambda x, d: x + d, lambda a, b: b - a, 1, 0.1)
    both = control.Stagewise(running=lambda t, x, u: jnp.concatenate([u + 1, 1 - u]))  # u <= -1 and u >= 1
    found = lgjax.optimize_controls(
        system, jnp.zeros(1), jnp.zeros((1, 5, 1)), steps=5, terminal=lambda x: x @ x, inequality=both,
        running=lambda t, x, u: u @ u / 2, method=control.Shooting(), progress=False,
    )  # fmt: skip
    assert found.status[0] not in (control.OptimizeStatus.CONVERGED, control.OptimizeStatus.NOT_FINITE)
    assert np.all(np.isfinite(found.controls))
