"""Searches whose system, costs and method differ in numbers alone are compiled once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax.execution import lasting
from lgjax.simulate.control import (
    FDDP,
    ILQR,
    ControlSystem,
    PredictiveController,
    SemiImplicitEuler,
    Shooting,
    Stagewise,
    costs,
)

METHOD = FDDP()


class Programs:
    """How many programs XLA has compiled."""

    def __init__(self):
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._note)

    def _note(self, event, *_, **__):
        self.count += event.endswith("backend_compile_duration")

    def of(self, function, *args, **options):
        before = self.count
        found = jax.block_until_ready(function(*args, **options))
        return self.count - before, found


@pytest.fixture(scope="module")
def programs():
    return Programs()


def arm_search(angle, target, guess, method=METHOD, length=1.0, weight=0.1, bound=30.0):
    """A search whose every number is another: start, target, weights, bounds, guess and the model's gravity."""
    arm = lgjax.models.chain(2)
    arm = arm.replace(gravity=length * arm.gravity)
    system = ControlSystem.of_model(arm, 0.05, method=SemiImplicitEuler())
    end = lambda state: 50.0 * jnp.sum((state[0].joints - target) ** 2) + jnp.sum(state[1] ** 2)
    start = lgjax.configuration(arm, joints=jnp.stack([angle, 0.2])), jnp.zeros(2)
    return lgjax.optimize_controls(
        system, start, jnp.full((2, 8, 2), guess), steps=8, running=weight * costs.control(target, 1.0), terminal=end,
        method=method, bounds=(-bound, bound),
    )  # fmt: skip


def alone(*given, **options):
    lasting._kept.clear()
    return arm_search(*given, **options)


def test_a_search_with_other_numbers_takes_the_programs_that_are_there(programs):
    arm_search(0.1, 0.3, 0.0)
    cases = [
        ((0.4, 0.3, 1.0), {}), ((0.4, 0.5, 1.0), {}),
        ((0.4, 0.5, 0.0), {"length": 0.5, "weight": 0.2, "bound": 20.0}),
    ]  # fmt: skip
    for given, options in cases:
        count, found = programs.of(arm_search, *given, **options)
        assert count == 0
        assert np.all(found.success)
    expected = alone(*given, **options)
    np.testing.assert_array_equal(found.controls, expected.controls)
    np.testing.assert_array_equal(found.iterations, expected.iterations)
    assert programs.of(arm_search, 0.4, 0.5, 1.0, method=ILQR())[0] > 0


HANGING = lgjax.models.chain(1)
TOUCHING = lgjax.Contacts(
    HANGING,
    lgjax.shapes.Plane((0.0, 0.0, 1.0), 0.9),
    {HANGING.body_names[0]: lgjax.shapes.sphere(0.1, (0.0, 0.0, -1.0))},
)
STEPS = {
    "default": {},
    "substeps": {"substeps": 2},
    "semi-implicit": {"method": SemiImplicitEuler()},
    "contact": {"method": lgjax.contact.TimeStepping(), "contacts": TOUCHING},
    "time": {"free_time": True},
}


@pytest.mark.parametrize("options", STEPS.values(), ids=STEPS)
def test_another_model_takes_the_program_that_is_there(programs, options):
    """The numbers of a model are arguments with every step, also those that are held by functions made from it."""

    def search(factor):
        model = HANGING.replace(inertias=HANGING.inertias.scaled(factor))
        system = ControlSystem.of_model(model, 0.05, **options)
        start = lgjax.configuration(model, joints=[0.5]), jnp.zeros(1)
        bounds = (jnp.array([-9.0, 0.5][: system.controls]), jnp.array([9.0, 2.0][: system.controls]))
        return lgjax.optimize_controls(
            system, start, jnp.ones((1, 5, system.controls)), steps=5, bounds=bounds, method=ILQR(iterations=3),
            running=lambda t, state, u: jnp.sum(state[0].joints ** 2) + 0.1 * jnp.sum(u**2),
        )  # fmt: skip

    search(1.0)
    count, found = programs.of(search, 1.5)
    assert count == 0
    lasting._kept.clear()
    np.testing.assert_array_equal(found.controls, search(1.5).controls)


def test_a_predictive_controller_of_another_model_compiles_nothing(programs):
    def control(factor):
        model = HANGING.replace(inertias=HANGING.inertias.scaled(factor))
        system = ControlSystem.of_model(model, 0.05)
        state = lgjax.configuration(model, joints=[0.5]), jnp.zeros(1)
        cost = lambda state: jnp.sum(state[0].joints ** 2)
        controller = PredictiveController(system=system, steps=4, terminal=cost, running=costs.control(weights=0.1))
        return controller.step(state, controller.init(state))[0]

    first = control(1.0)
    count, second = programs.of(control, 1.5)
    assert count == 0
    assert abs(float(first[0] - second[0])) > 1e-3


@pytest.mark.parametrize(
    "member",
    [
        lambda x: {"bounds": (np.array([-x]), np.array([x]))}, lambda x: {"bounds": (-x, x)},
        lambda x: {"bounds": [[-x], [x]]}, lambda x: {"plan": np.array([x])}, lambda x: {"plan": x},
        lambda x: {"plan": [x]},
    ],
    ids=["arrays", "floats", "lists", "plan", "number", "list"],
)  # fmt: skip
def test_in_rollout_other_bounds_and_plans_of_a_controller_take_the_program_that_is_there(programs, member):
    """NumPy arrays, floats and lists are arguments as JAX arrays are."""
    system = ControlSystem.of_model(HANGING, 0.05)
    cost = lambda state: jnp.sum((state[0].joints - 2.0) ** 2)
    start = lgjax.configuration(HANGING, joints=[0.5]), jnp.zeros(1)

    def run(x):
        options = {"steps": 4, "terminal": cost, "running": costs.control(weights=0.1), **member(x)}
        controller = PredictiveController(system=system, iterations=1, **options)
        return lgjax.rollout(HANGING, *start, controller, dt=0.05, steps=2).q.joints

    first = run(0.5)
    count, found = programs.of(run, 0.25)
    assert count == 0
    assert np.abs(found - first).max() > 1e-5
    controller = PredictiveController(
        system=system, iterations=1, steps=4, terminal=cost, running=costs.control(weights=0.1), **member(0.25)
    )
    (state, memory), joints = (start, controller.init(start)), [0.5]
    for _ in range(2):
        control, memory = controller.step(state, memory)
        state = system.step(state, control)
        joints.append(float(state[0].joints[0]))
    np.testing.assert_allclose(found[:, 0], joints, rtol=1e-5)


def test_inside_jit_and_vmap_a_search_is_the_same_and_compiles_once(programs):
    first, second = (jnp.array([[0.1, 0.3], [0.4, 0.5]]) + 0.1 * k for k in range(2))
    search = lambda x: arm_search(x[0], x[1], 0.0)
    for function in (jax.vmap(search), jax.jit(jax.vmap(search))):
        programs.of(function, first)
        count, found = programs.of(function, second)
        assert count == 0
        for k, x in enumerate(second):
            expected = search(x)
            np.testing.assert_allclose(found.controls[k], expected.controls, rtol=1e-9, atol=1e-9)
            np.testing.assert_array_equal(found.status[k], expected.status)
            np.testing.assert_array_equal(found.iterations[k], expected.iterations)
    with pytest.raises(TypeError, match="optimize_controls cannot be differentiated"):
        jax.grad(lambda x: search(x).cost[0])(first[0])


def test_a_cost_that_tests_its_numbers_compiles_for_each_of_them(programs):
    space = lgjax.groups.vector_space(1)
    system = ControlSystem.on_space(space, lambda x, u: x + 0.1 * u, 1)

    def search(weight, goal):
        end = lambda x: jnp.sum((x - goal) ** 2) if weight > 1 else jnp.sum((x + goal) ** 2)
        return lgjax.optimize_controls(
            system, jnp.zeros(1), np.zeros((1, 3, 1)), steps=3, terminal=end, running=lambda t, x, u: 1e-3 * u @ u,
            method=ILQR(), progress=False,
        ).states[0, -1, 0]  # fmt: skip

    first = search(2.0, 1.0)
    np.testing.assert_allclose(search(0.5, 1.0), -first, rtol=1e-9)
    assert programs.of(search, 2.0, 1.0)[0] == 0
    assert programs.of(search, 2.0, 3.0)[0] > 0


UNITS = {
    f"{held}-{type(method).__name__.lower()}": (method, held) for held in (False, True)
    for method in (ILQR(), FDDP(), Shooting()) if not (held and method == Shooting())
}  # fmt: skip


@pytest.mark.parametrize(("method", "held"), UNITS.values(), ids=UNITS)
def test_the_unit_of_the_cost_changes_neither_iterations_nor_status(method, held):
    """A cost in other units has the same minimum; powers of two change no digit of it.

    Of shooting with constraints the penalty is in the unit of the cost, so that it is left out.
    """
    arm = lgjax.models.chain(2)
    system = ControlSystem.of_model(arm, 0.05, method=SemiImplicitEuler())
    start = lgjax.configuration(arm, joints=[0.1, 0.2]), jnp.zeros(2)
    rest = Stagewise(terminal=lambda state: state[1]) if held else None

    def found(unit):
        return lgjax.optimize_controls(
            system, start, np.zeros((1, 8, 2)), steps=8, method=method, progress=False, equality=rest,
            running=lambda t, x, u: unit * 1e-2 * jnp.sum(u**2),
            terminal=lambda x: unit * (50.0 * jnp.sum((x[0].joints - 0.5) ** 2) + jnp.sum(x[1] ** 2)),
        )  # fmt: skip

    plain = found(1.0)
    assert plain.success.all()
    for unit in (2.0**-20, 2.0**20):
        other = found(unit)
        np.testing.assert_array_equal(other.status, plain.status)
        np.testing.assert_array_equal(other.iterations, plain.iterations)
        np.testing.assert_allclose(other.cost, unit * plain.cost, rtol=1e-9)
        np.testing.assert_allclose(other.controls, plain.controls, rtol=1e-6, atol=1e-6)
    for unit in (1e-6, 1e6):
        other = found(unit)
        np.testing.assert_array_equal(other.status, plain.status)
        if method != Shooting():  # which round-off leads on other ways
            assert abs(int(other.iterations[0]) - int(plain.iterations[0])) <= 1


def test_searches_that_are_kept_are_few_and_read_nothing_that_can_change(monkeypatch):
    monkeypatch.setattr(lasting, "KEPT", 2)
    lasting._kept.clear()
    space = lgjax.groups.vector_space(1)
    system = ControlSystem.on_space(space, lambda x, u: x + 0.1 * u, 1)
    goal = np.array([2.0])
    fixed = {"steps": 3, "running": lambda t, x, u: u @ u, "method": ILQR(iterations=20), "progress": False}
    end = lambda x: jnp.sum((x - goal) ** 2)  # an array that can be written to
    guesses = np.zeros((1, 3, 1))
    reached = lambda: lgjax.optimize_controls(system, jnp.zeros(1), guesses, terminal=end, **fixed).states[0, -1, 0]
    first = reached()
    goal[0] = -2.0
    np.testing.assert_allclose(reached(), -first, rtol=1e-6)
    lasting._kept.clear()
    for count in (1, 2, 3):
        lgjax.optimize_controls(
            system, jnp.zeros(1), np.zeros((1, count, 1)), terminal=lambda x: x @ x,
            **{**fixed, "method": ILQR(iterations=1), "steps": count},
        )  # fmt: skip
        assert len(lasting._kept) == min(count, 2)
