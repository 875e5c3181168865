"""Searches whose system, costs and method do the same are compiled once."""

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax.execution import lasting
from lgjax.simulate.control import FDDP, ILQR, ControlSystem, SemiImplicitEuler, costs

METHOD = FDDP()


def test_another_start_and_other_guesses_take_the_programs_that_are_there():
    """As long as system and costs do the same; with another target, or another method, a search is another one."""
    events = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.append(event))
    compiled = lambda: sum(event.endswith("backend_compile_duration") for event in events)
    arm = lgjax.models.chain(2)
    system = ControlSystem.of_model(arm, 0.05, method=SemiImplicitEuler())
    effort = costs.control(0.0, 0.1)

    def found(angle, target, guess, method=METHOD):
        end = lambda state: 50.0 * jnp.sum((state[0].joints - target) ** 2) + jnp.sum(state[1] ** 2)
        start = lgjax.configuration(arm, joints=[angle, 0.2]), jnp.zeros(2)
        return lgjax.optimize_controls(
            system, start, np.full((2, 8, 2), guess), steps=8, running=effort, terminal=end, method=method,
            progress=False,
        )  # fmt: skip

    def fresh(*given, **options):
        lasting._kept.clear()
        return found(*given, **options)

    first = found(0.1, 0.3, 0.0)
    before = compiled()
    second = found(0.4, 0.3, 1.0)
    assert compiled() == before
    assert second.compile_seconds < 1
    third = found(0.4, 0.5, 1.0)
    assert compiled() > before
    other = found(0.4, 0.5, 1.0, method=ILQR())
    for got, expected in (
        (first, fresh(0.1, 0.3, 0.0)), (second, fresh(0.4, 0.3, 1.0)), (third, fresh(0.4, 0.5, 1.0)),
        (other, fresh(0.4, 0.5, 1.0, method=ILQR())),
    ):  # fmt: skip
        np.testing.assert_array_equal(got.controls, expected.controls)
        np.testing.assert_array_equal(got.iterations, expected.iterations)


def test_searches_that_are_kept_are_few_and_read_nothing_that_can_change(monkeypatch):
    monkeypatch.setattr(lasting, "KEPT", 3)
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
    for bound in (1, 2, 3, 4):
        lgjax.optimize_controls(
            system, jnp.zeros(1), guesses, terminal=lambda x: x @ x, bounds=(-bound, bound),
            **{**fixed, "method": ILQR(iterations=1)},
        )  # fmt: skip
        assert len(lasting._kept) == min(bound, 3)
