"""Controllers with memory in `rollout` and `ensemble`: the closed loop step by step, with held controls."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import control
from lgjax.simulate.control import ControlSystem, OptimizeStatus, PredictiveController

MODEL, DT = lgjax.models.chain(1), 0.05
START = lgjax.configuration(MODEL, joints=[2.6]), jnp.zeros(1)


def predictive(every=1, substeps=1):
    return PredictiveController(
        system=ControlSystem.of_model(MODEL, DT, substeps=substeps), steps=8, iterations=1, every=every,
        running=lambda t, state, u: 0.05 * jnp.sum(u**2) + 1 + jnp.cos(state[0].joints[0]),
        terminal=lambda state: 10 * (1 + jnp.cos(state[0].joints[0])) + jnp.sum(state[1] ** 2), bounds=(-3.0, 3.0),
    )  # fmt: skip


def test_a_rollout_is_the_closed_loop():
    """Every two steps of the rollout one of the controller, whose system takes them as substeps; controls are held."""
    controller = predictive(2, 2)
    (q, v), controls, status = jax.jit(lambda s: controller.closed_loop(s, controller.init(s), 6))(START)
    path = lgjax.rollout(MODEL, *START, controller, DT / 2, 12)
    np.testing.assert_allclose(path.q.joints[2::2], q.joints, atol=1e-12)
    np.testing.assert_allclose(path.v[2::2], v, atol=1e-11)
    np.testing.assert_allclose(path.control.controls[1:], np.repeat(controls, 2, 0), atol=1e-10)
    np.testing.assert_array_equal(path.control.status[1:], np.repeat(status, 2))
    assert path.success
    assert np.ptp(controls) > 0.1
    with pytest.raises(ValueError, match=r"dt is 0.05 s, the controller's system has steps of 0.05 s for 2"):
        lgjax.rollout(MODEL, *START, controller, DT, 12)
    with pytest.raises(ValueError, match="Taylor for a passive motion alone"):
        lgjax.rollout(MODEL, *START, controller, DT / 2, 12, lgjax.Taylor(4))


class Integral(NamedTuple):
    """tau = -gain (angle + the sum of the angles seen before), which wrenches of its own add to."""

    gain: float = 0.5
    every: int = 1

    def init(self, state):
        return jnp.zeros(1)

    def step(self, state, memory):
        total = memory + state[0].joints
        return -self.gain * (state[0].joints + total), total

    def forces(self, control):
        return control, jnp.zeros((1, 6)).at[0, 1].set(0.1 * control[0])


def test_any_controller_with_memory_drives_an_ensemble_under_wrenches():
    """Each copy has its mass; a gust, whose size is drawn, and the controller's own wrench turn the rod about y."""

    def sample(key):
        mass, gust = jax.random.uniform(key, (2,), minval=0.5, maxval=2.0)
        copy = MODEL.replace(inertias=MODEL.inertias.scaled(mass * jnp.ones(1)))
        return lgjax.ensembles.Draw(copy, *START, gust)

    wind = lambda t, q, v, gust: jnp.zeros((1, 6)).at[0, 1].set(gust * jnp.cos(t))
    found = lgjax.ensemble(
        MODEL, Integral(), batch=3, steps=4, dt=DT, key=jax.random.key(0), sample=sample, wrenches=wind, save_every=1,
        progress=False,
    )  # fmt: skip
    assert found.success.all()
    for i in range(3):
        draw, state, total = sample(jax.random.fold_in(jax.random.key(0), i)), START, jnp.zeros(1)
        for k in range(4):
            tau, total = Integral().step(state, total)
            push = lambda t, q, v, tau=tau, k=k, draw=draw: 1.1 * tau + draw.parameters * jnp.cos(t + k * DT)
            path = lgjax.rollout(draw.model, *state, push, DT, 1, save_every=None)
            state = jax.tree.map(lambda x: x[0], (path.q, path.v))
            np.testing.assert_allclose(found.q.joints[i, k + 1], state[0].joints, atol=1e-10)
    assert np.ptp(found.q.joints[:, -1]) > 1e-3


def test_a_run_whose_searches_all_fail_is_no_success():
    """The root of a distance has no derivative where its weight is 0; each run of a batch for itself."""

    def run(weight):
        controller = PredictiveController(
            system=ControlSystem.of_model(MODEL, DT), steps=8,
            running=lambda t, state, u: jnp.sqrt(weight * (state[0].joints[0] - 3.0) ** 2) + u @ u,
        )  # fmt: skip
        return lgjax.rollout(MODEL, *START, controller, DT, 6, save_every=None)

    paths = jax.jit(jax.vmap(run))(jnp.array([0.0, 1.0]))
    np.testing.assert_array_equal(paths.status, [OptimizeStatus.UNCHANGED, 0])
    np.testing.assert_array_equal(paths.success, [False, True])
    assert np.all(np.isfinite(paths.q.joints))


class Told(NamedTuple):
    """No force, and the statuses that are given."""

    statuses: jax.Array
    every: int = 1

    def init(self, state):
        return Memory(jnp.int32(0), jnp.int32(0))

    def step(self, state, memory):
        return jnp.zeros(1), Memory(self.statuses[memory.count], memory.count + 1)

    def forces(self, control):
        return control, None


class Memory(NamedTuple):
    status: jax.Array
    count: jax.Array


def test_one_good_search_is_enough_for_a_success_if_few_are_not_finite():
    """What the record says of single searches is not the status of the run, whichever states are saved."""
    statuses = jnp.array([[2048, 1, 2048], [2048, 4, 2048], [0, 2048, 2048], [1, 1, 1], [4, 0, 1]], jnp.int32)
    for every, save_every in ((1, 1), (2, 2), (2, None)):
        run = lambda told, e=every, s=save_every: lgjax.rollout(MODEL, *START, Told(told, e), DT, 3 * e, save_every=s)
        paths = jax.vmap(run)(statuses)
        np.testing.assert_array_equal(paths.status, [2048, 0, 0, 2048, 2048])
    np.testing.assert_array_equal(jax.vmap(lambda told: run(told, 1, 1))(statuses).control.status[:, 1:], statuses)
    found = lgjax.ensemble(
        MODEL, Told(statuses[0]), batch=2, steps=3, dt=DT, key=jax.random.key(0), progress=False,
        sample=lambda key: lgjax.ensembles.Draw(MODEL, *START),
    )  # fmt: skip
    np.testing.assert_array_equal(found.status, 2048)
    assert not found.success.any()


@pytest.mark.parametrize(("lost", "status"), [(0, 0), (2, 0), (3, 2048), (20, 2048)])
def test_more_than_a_tenth_of_searches_that_are_not_finite_is_no_success(lost, status):
    statuses = jnp.where(jnp.arange(20) < lost, 1, 4).astype(jnp.int32)
    for order in (1, -1):
        assert int(lgjax.rollout(MODEL, *START, Told(statuses[::order]), DT, 20).status) == status


# ---- programs
def driven(goal, every=1):
    return PredictiveController(
        system=ControlSystem.of_model(MODEL, DT), steps=4, iterations=1, every=every,
        running=control.costs.state(MODEL, (lgjax.configuration(MODEL, joints=[goal]), jnp.zeros(1))),
    )  # fmt: skip


def following(amplitude):
    return PredictiveController(
        system=ControlSystem.of_model(MODEL, DT), steps=4, iterations=1, reference=lambda t: amplitude * jnp.sin(t),
        running=lambda t, state, u, angle: (state[0].joints[0] - angle) ** 2 + 0.1 * u @ u, bounds=(-3.0, 3.0),
    )  # fmt: skip


@pytest.mark.parametrize("controller", [driven, following])
def test_rollouts_under_controllers_that_differ_in_numbers_take_one_program(controller):
    count = [0]
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: count.__setitem__(0, count[0] + event.endswith("backend_compile_duration"))
    )
    first = lgjax.rollout(MODEL, *START, controller(0.5), DT, 3).control.controls
    made = controller(1.5)
    before = count[0]
    second = lgjax.rollout(MODEL, *START, made, DT, 3).control.controls
    assert count[0] == before
    inside = jax.jit(lambda q, v: lgjax.rollout(MODEL, q, v, made, DT, 3).control.controls)(*START)
    np.testing.assert_allclose(second, inside, rtol=1e-9, atol=1e-12)
    assert np.abs(np.asarray(second) - first).max() > 1e-3


GAIN = [1.0]


class Proportional(NamedTuple):
    """A law that reads what can change in place."""

    every: int = 1

    def init(self, state):
        return jnp.zeros(())

    def step(self, state, memory):
        return -GAIN[0] * state[0].joints, memory

    def forces(self, control):
        return control, None


def test_a_controller_that_reads_what_changes_is_read_again():
    gains = []
    for gain in (1.0, 3.0):
        GAIN[0] = gain
        gains.append(float(lgjax.rollout(MODEL, *START, Proportional(), DT, 1).control.controls[-1, 0] / -2.6))
    np.testing.assert_allclose(gains, [1.0, 3.0], rtol=1e-12)
