"""Predictive control is the linear-quadratic regulator where that is exact, and swings a pendulum up within bounds."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import lgjax
from lgjax.simulate.control import FDDP, ILQR, ControlSystem, OptimizeStatus, PredictiveController, Stagewise

A, B = np.array([[1.0, 0.1], [0.2, 1.05]]), np.array([[0.0], [0.1]])
Q, R = np.diag([1.0, 0.5]), np.array([[0.1]])
P = scipy.linalg.solve_discrete_are(A, B, Q, R)
K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)


def regulator(dtype=jnp.float64, **options):
    a, b, q, r, p = (jnp.asarray(x, dtype) for x in (A, B, Q, R, P))
    system = ControlSystem.on_space(lgjax.groups.vector_space(2), lambda x, u: a @ x + b @ u, 1)
    costs = {"running": lambda t, x, u: (x @ q @ x + u @ r @ u) / 2, "terminal": lambda x: x @ p @ x / 2}
    return PredictiveController(system=system, steps=5, **costs, **options)


@pytest.mark.parametrize(
    ("dtype", "tolerance", "method"),
    [
        (jnp.float64, 1e-11, ILQR()), (jnp.float32, 1e-4, ILQR()), (jnp.float64, 1e-11, FDDP()),
        (jnp.float64, 1e-11, FDDP(forward="linear")),
    ],
)  # fmt: skip
def test_with_riccatis_terminal_cost_it_is_the_regulator(dtype, tolerance, method):
    """For a batch of states, at every step, whatever the plan was before."""
    controller = regulator(dtype, iterations=1, method=method)
    starts = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), dtype)
    run = jax.jit(jax.vmap(lambda x: controller.closed_loop(x, controller.init(x, 0.3), 6)))
    states, controls, _ = run(starts)
    before = np.concatenate([starts[:, None], states[:, :-1]], 1)
    assert controls.dtype == dtype
    np.testing.assert_allclose(controls, -before @ K.T, rtol=0, atol=tolerance)


def test_planned_states_are_a_guess_that_need_not_be_followed():
    """FDDP closes the gaps of any planned states in one step of a linear system, and remembers where its plan leads."""
    controller = regulator(iterations=1, method=FDDP())
    x, wrong = jnp.asarray([1.0, -2.0]), jnp.asarray(np.random.default_rng(1).normal(size=(5, 2)))
    control, memory = jax.jit(controller.step)(x, controller.init(x)._replace(nodes=wrong))
    np.testing.assert_allclose(control, -K @ x, atol=1e-12)
    expected = [A @ x + B @ control]
    for u in np.asarray(memory.plan):
        expected.append(A @ expected[-1] + B @ u)
    np.testing.assert_allclose(memory.nodes, expected[1:], atol=1e-12)
    # a state that is not finite keeps plan and states, both one step later
    control, after = jax.jit(controller.step)(jnp.nan * x, memory)
    assert int(after.status) == OptimizeStatus.NOT_FINITE
    np.testing.assert_array_equal(control, memory.plan[0])
    np.testing.assert_array_equal(after.plan[:-1], memory.plan[1:])
    np.testing.assert_array_equal(after.nodes[:-1], memory.nodes[1:])


def test_bounds_hold_and_what_is_not_finite_keeps_the_plan():
    controller = regulator(bounds=(-0.2, 0.2))
    x = jnp.asarray([3.0, -1.0])
    control, memory = jax.jit(controller.step)(x, controller.init(x))
    assert abs(control[0]) <= 0.2
    assert np.abs(memory.plan).max() <= 0.2
    control, memory = jax.jit(controller.step)(jnp.nan * x, controller.init(x, 0.1))
    assert int(memory.status) == OptimizeStatus.NOT_FINITE
    np.testing.assert_array_equal(control, [0.1])
    np.testing.assert_array_equal(memory.plan, 0.1)


@pytest.mark.parametrize("method", [ILQR(), FDDP()], ids=["ilqr", "fddp"])
def test_a_plan_that_leads_nowhere_is_replaced_by_the_first_one(method):
    """x' = x³ + u leaves the finite numbers within the horizon under the plan, and not under the first one."""
    system = ControlSystem.on_space(lgjax.groups.vector_space(1), lambda x, u: x + 0.5 * x**3 + u, 1)
    controller = PredictiveController(
        system=system, steps=12, method=method, running=lambda t, x, u: jnp.sum(x**2) + 0.1 * jnp.sum(u**2)
    )
    x, fresh = jnp.asarray([0.2]), controller.init(jnp.asarray([0.2]))
    nodes = None if fresh.nodes is None else jnp.full_like(fresh.nodes, jnp.nan)
    spoilt = fresh._replace(plan=jnp.full((12, 1), 3.0), nodes=nodes)
    pairs = jax.tree.map(lambda *both: jnp.stack(both), (x, fresh), (x, spoilt))
    controls, memory = jax.jit(jax.vmap(controller.step))(*pairs)
    np.testing.assert_array_equal(controls[0], controls[1])
    assert np.all(np.isfinite(memory.cost))
    assert memory.status[1] == OptimizeStatus.MAX_ITERATIONS


def test_a_pendulum_is_held_upright():
    """From a disturbed upright position, with half of the torque that would hold it sideways, two iterations a step."""
    model = lgjax.models.chain(1)
    weight = float(jnp.max(jnp.abs(lgjax.gravity_forces(model, lgjax.configuration(model, joints=[np.pi / 2])))))
    controller = PredictiveController(
        system=ControlSystem.of_model(model, 0.05),
        steps=15,
        running=lambda t, state, u: jnp.sum(u**2) / weight**2 * 0.1 + 1 + jnp.cos(state[0].joints[0]),
        terminal=lambda state: 10 * (1 + jnp.cos(state[0].joints[0])) + jnp.sum(state[1] ** 2),
        bounds=(-weight / 2, weight / 2),
    )
    start = lgjax.configuration(model, joints=[np.pi - 0.3]), jnp.zeros(1)
    (q, v), controls, _ = jax.jit(lambda s: controller.closed_loop(s, controller.init(s), 60))(start)
    assert abs(np.cos(q.joints[-1, 0]) + 1) < 1e-4
    assert np.abs(v[-1]).max() < 1e-2
    assert np.abs(controls).max() <= weight / 2


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="iterations must be a positive integer"):
        regulator(iterations=0)
    with pytest.raises(TypeError, match=r"method must be ILQR\(...\) or FDDP"):
        regulator(method=lgjax.control.Shooting())
    with pytest.raises(ValueError, match=r"plan has shape \(4, 1\)"):
        regulator().init(jnp.zeros(2), jnp.zeros((4, 1)))


@pytest.mark.parametrize("method", [ILQR(), FDDP()])
def test_it_is_not_differentiated(method):
    controller = regulator(iterations=1, method=method)
    memory, x = controller.init(jnp.zeros(2)), jnp.ones(2)
    for derivative in (jax.jacfwd, jax.jacrev):
        with pytest.raises(TypeError, match=r"^PredictiveController.step cannot be differentiated"):
            derivative(lambda x: controller.step(x, memory)[0])(x)
        held = lambda x: controller.step(*jax.lax.stop_gradient((x, memory)))[0] + jnp.sum(x)
        np.testing.assert_array_equal(derivative(held)(x), np.ones((1, 2)))


def test_memories_on_the_host_are_memories():
    controller = regulator(iterations=1)
    x = jnp.ones((3, 2))
    memories = jax.vmap(controller.init)(x)
    expected, _ = jax.jit(jax.vmap(controller.step))(x, memories)
    on_host = lambda k: jax.tree.map(lambda a: a[k], jax.device_get(memories))
    for k in range(3):
        memory = on_host(k)
        np.testing.assert_allclose(controller.step(x[k], memory)[0], expected[k], rtol=1e-12)
    with pytest.raises(TypeError, match=r"memory.status must be an array of shape \(\) and dtype int32"):
        controller.step(x[0], memory._replace(status=np.zeros((), np.int64)))


# ---- time, references and constraints
def follower(method, **options):
    """A point whose control is its speed, which is to be where the reference is; the time decides nothing else."""
    space = lgjax.groups.vector_space(1)
    system = ControlSystem.on_space(space, lambda x, u: x + 0.1 * u, 1, 0.1)
    return PredictiveController(system=system, steps=6, iterations=3, method=method, **options)


@pytest.mark.parametrize("method", [ILQR(), FDDP()], ids=["ilqr", "fddp"])
@pytest.mark.parametrize("form", ["absolute time", "reference", "least squares"])
def test_a_motion_is_followed_at_the_time_that_it_is_now(method, form):
    """x' = x + u / 10 with next to no price of u can be at the sine at every step; the plan must look ahead by one."""
    path = lambda t: jnp.sin(2 * t)[None]
    if form == "absolute time":
        costs = {"running": lambda t, x, u: 10 * jnp.sum((x - path(t)) ** 2) + 1e-8 * u @ u}
    elif form == "reference":
        costs = {
            "reference": path, "running": lambda t, x, u, goal: 10 * jnp.sum((x - goal) ** 2) + 1e-8 * u @ u,
            "terminal": lambda x, goal: jnp.sum((x - goal) ** 2),
        }  # fmt: skip
    else:
        miss = lgjax.control.costs.LeastSquares(lambda t, x, u, goal: 3 * (x - goal))
        costs = {
            "reference": path, "running": miss + 1e-8 * lgjax.control.costs.control(),
            "terminal": lgjax.control.costs.LeastSquares(lambda x, goal: x - goal),
        }  # fmt: skip
    controller = follower(method, **costs)
    t0 = 0.7
    memory = controller.init(jnp.sin(jnp.array([2 * t0])), t=t0)
    states, _, _ = controller.closed_loop(jnp.sin(jnp.array([2 * t0])), memory, 20)
    times = t0 + 0.1 * np.arange(1, 21)
    np.testing.assert_allclose(states[:, 0], np.sin(2 * times), atol=1e-5)


@pytest.mark.parametrize("method", [ILQR(penalty=100.0), FDDP(penalty=100.0)], ids=["ilqr", "fddp"])
def test_constraints_are_those_of_the_whole_search(method):
    """Of a motion that comes to rest where a limit holds it, short of where the cost is least, with a fixed end."""
    space = lgjax.groups.vector_space(1)
    system = ControlSystem.on_space(space, lambda x, u: x + 0.2 * (u - x), 1, 0.2)
    problem = {
        "running": lambda t, x, u: jnp.sum((x - 3) ** 2) + u @ u / 2, "equality": Stagewise(terminal=lambda x: x - 1.0),
        "inequality": Stagewise(running=lambda t, x, u: u - 1.0),
    }  # fmt: skip
    controller = PredictiveController(system=system, steps=6, iterations=3, method=method, **problem)
    x, memory = jnp.array([0.9]), controller.init(jnp.array([0.9]), 1.0)
    for _ in range(60):
        control, memory = controller.step(x, memory)
        x = system.step(x, control)
    np.testing.assert_allclose(x, 1.0, atol=1e-4)
    whole = lgjax.optimize_controls(
        system, x, np.ones((1, 6, 1)), steps=6, method=method, progress=False, **problem
    )  # fmt: skip
    assert whole.success.all()
    np.testing.assert_allclose(memory.plan, whole.controls[0], atol=1e-4)
    free = replace(controller, inequality=None, equality=None)
    assert free.step(x, free.init(x, 1.0))[0] > 1.1
    with pytest.raises(ValueError, match="takes no equality constraint that may couple steps"):
        follower(method, running=problem["running"], equality=lambda x, u: x[-1]).init(x)


def test_controllers_that_differ_in_numbers_take_one_program():
    count = [0]
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: count.__setitem__(0, count[0] + event.endswith("backend_compile_duration"))
    )

    def drive(goal, bound, x):
        controller = follower(ILQR(), running=lambda t, x, u: jnp.sum((x - goal) ** 2) + 1e-3 * u @ u,
                              bounds=(-bound, bound))  # fmt: skip
        memory = controller.init(x)
        for _ in range(3):
            control, memory = controller.step(x, memory)
        states, _, _ = controller.closed_loop(x, memory, 4)
        return control, states

    drive(1.0, 5.0, jnp.zeros(1))
    before = count[0]
    control, states = drive(-2.0, 3.0, jnp.ones(1))
    assert count[0] == before
    np.testing.assert_allclose(control, -3.0, atol=1e-9)
    np.testing.assert_allclose(states[0], 0.7, atol=1e-9)


COSTS = [
    ({"running": lambda t, x: x[0]}, r"running cost must take \(t, state, control\): too many positional .*reference="),
    ({"running": lambda t, x, u, goal: x[0]}, r"running cost must take \(t, state, control\): missing .* 'goal'"),
    (
        {"running": lambda t, x, u: x[0], "reference": jnp.sin},
        r"running cost must take \(t, state, control, reference\)",
    ),
    (
        {"running": lgjax.control.costs.LeastSquares(lambda t, x, u: x), "reference": jnp.sin},
        r"running cost must take \(t, state, control, reference\): too many",
    ),
    (
        {"running": 2.0 * lgjax.control.costs.control() + lgjax.control.costs.control(), "reference": jnp.sin},
        r"no cost takes the reference: write one as control.costs.LeastSquares",
    ),
    ({"terminal": lambda x: x[0], "reference": jnp.sin}, r"terminal cost must take \(state, reference\): too many"),
    (
        {"terminal": lambda x: x[0], "inequality": Stagewise(running=lambda x, u: u)},
        r"inequality.running must take \(t, state, control\): too many",
    ),
]


@pytest.mark.parametrize(
    ("options", "message"), COSTS, ids=[message[:12] + str(n) for n, (_, message) in enumerate(COSTS)]
)
def test_costs_that_take_other_arguments_are_told_what_they_get(options, message):
    controller = follower(ILQR(), **options)
    with pytest.raises(TypeError, match=message):
        controller.init(jnp.zeros(1))


# ---- searches that fail
@jax.custom_jvp
def misleading(x):
    """x², whose derivatives have the wrong sign where x is positive: no step that they propose lowers it."""
    return jnp.sum(x * x)


misleading.defjvp(lambda x, dx: (misleading(*x), jnp.sum(-2 * jnp.abs(x[0]) * dx[0])))


def point(running, method=None, **options):
    """A point whose control is its speed; where it starts decides whether plans improve."""
    return PredictiveController(
        system=ControlSystem.on_space(lgjax.groups.vector_space(1), lambda x, u: x + 0.1 * u, 1, 0.1), steps=5,
        running=running, method=method or ILQR(), **options,
    )  # fmt: skip


@pytest.mark.parametrize("method", [ILQR(), FDDP(), ILQR(line_search="first")], ids=["ilqr", "fddp", "first"])
def test_a_search_that_finds_no_better_plan_says_so(method):
    """Each of a batch for itself: derivatives lie at 1 and are right at -1; at 0 there is nothing to improve."""
    controller = point(lambda t, x, u: misleading(x) + 0.01 * u @ u, method)
    starts = jnp.array([[1.0], [-1.0], [0.0]])
    run = jax.jit(jax.vmap(lambda x: controller.closed_loop(x, controller.init(x), 4)))
    states, controls, status = run(starts)
    assert np.all(status[0] == OptimizeStatus.UNCHANGED)
    np.testing.assert_array_equal(controls[0], 0)
    np.testing.assert_array_equal(states[0], 1.0)
    assert not np.any(status[1:] == OptimizeStatus.UNCHANGED)
    assert np.all(np.diff(np.abs(states[1]), axis=0) < 0)
    assert np.all(status[2] == OptimizeStatus.CONVERGED)


@pytest.mark.parametrize("iterations", [1, 2, 40])
def test_a_plan_that_needs_no_change_is_no_failure(iterations):
    """At the target, by few iterations or many, and where bounds hold every control."""
    quadratic = lambda t, x, u: jnp.sum((x - 1) ** 2) + 0.01 * u @ u
    for start, bounds in ((1.0, None), (2.0, (0.0, 1.0))):
        controller, x = point(quadratic, iterations=iterations, bounds=bounds), jnp.array([start])
        _, controls, status = controller.closed_loop(x, controller.init(x), 4)
        np.testing.assert_array_equal(controls, 0)
        assert not np.any(status == OptimizeStatus.UNCHANGED)
    # and with multipliers that go on to change where no plan can meet the constraint
    controller = point(quadratic, iterations=iterations, equality=Stagewise(running=lambda t, x, u: x - 2))
    status = controller.closed_loop(jnp.ones(1), controller.init(jnp.ones(1)), 4)[2]
    assert not np.any(status == OptimizeStatus.UNCHANGED)


@pytest.mark.parametrize("plan", [0.3, np.array([0.3]), jnp.linspace(0.1, 0.3, 5)[:, None]], ids=["one", "row", "all"])
def test_the_first_plan_of_a_controller_is_that_of_init(plan):
    bare = point(lambda t, x, u: jnp.sum((x - 1) ** 2) + 0.01 * u @ u, iterations=1)
    given, x = replace(bare, plan=plan), jnp.zeros(1)
    memory = given.init(x)
    np.testing.assert_array_equal(memory.plan, jnp.broadcast_to(plan, (5, 1)))
    for one, other in zip(given.step(x, memory), bare.step(x, bare.init(x, plan)), strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)
    np.testing.assert_array_equal(given.init(x, 0.0).plan, 0)
    with pytest.raises(ValueError, match=r"plan has shape \(4, 1\), expected \(5, 1\)"):
        replace(bare, plan=jnp.zeros((4, 1)))
    with pytest.raises(TypeError, match="plan must be numbers"):
        replace(bare, plan="hover")


def test_a_rollout_begins_with_the_plan_of_its_controller():
    rod = lgjax.models.chain(1)
    q, v = lgjax.configuration(rod, joints=[1.0]), jnp.zeros(1)
    system = ControlSystem.of_model(rod, 0.05)
    hold = lgjax.gravity_forces(rod, q)
    controller = PredictiveController(
        system=system, steps=4, running=lambda t, state, u: jnp.sqrt(0.0 * jnp.sum(u)) + 0 * state[1][0], plan=hold
    )  # whose searches all fail, so that the plan stays
    path = lgjax.rollout(rod, q, v, controller, 0.05, 3)
    np.testing.assert_array_equal(path.control.controls[1:], jnp.broadcast_to(hold, (3, 1)))
    assert abs(float(path.q.joints[-1, 0] - 1.0)) < 1e-9
    assert not path.success


@pytest.mark.parametrize("method", [ILQR(), FDDP()], ids=["ilqr", "fddp"])
def test_regularization_is_remembered_where_a_cost_is_concave(method):
    """Searches of one iteration, each too weakly regularized to gain, are one search over the steps."""
    controller = point(lambda t, x, u: -100 * jnp.exp(-jnp.sum(x**2)) + 1e-4 * u @ u, method, iterations=1)
    x = jnp.array([1.5])
    states, _, status = controller.closed_loop(x, controller.init(x), 40)
    first = np.argmax(status != OptimizeStatus.UNCHANGED)
    assert 0 < first < 12
    assert np.abs(states[-1]).max() < 1e-3
