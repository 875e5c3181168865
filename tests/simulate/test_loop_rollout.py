"""Motions of closed loops: as reduced equations have them, closed at every step, with their energy."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax.dynamics.loops import LoopStatus
from lgjax.execution.kernels import native
from lgjax.systems.closed_loops import five_bar, four_bar, stewart_platform
from tests import optimized
from tests.oracles import linkages

# free angles, their rates at the start, and springs on them, which keep the five-bar away from its singularities
CASES = {
    "four_bar": (four_bar, linkages.FourBar(), [0], [3.0], 0.0),
    "five_bar": (five_bar, linkages.FiveBar(), [0, 2], [1.0, -0.5], 20.0),
}


@cache
def case(name):
    """System, oracle, free angles, rates, a consistent start, stiffness."""
    make, oracle, free, rate, stiffness = CASES[name]
    s = make()
    v = linkages.jacobian(oracle.joints, np.asarray(s.q0.joints)[free]) @ np.asarray(rate)
    return s, oracle, free, np.asarray(rate), jnp.asarray(v), stiffness


@cache
def energy(name):
    s, _, free, *_, stiffness = case(name)
    stretch = lambda q: (q.joints - s.q0.joints)[jnp.asarray(free)]
    return jit(lambda q, v: s.invariants["energy"](q, v) + stiffness / 2 * jnp.sum(stretch(q) ** 2))


@cache
def stepper(name, project="mass"):
    """(q, v) after n steps of dt, n traced: one program for all step sizes; and the worst residuals on the way."""
    s, _, free, *_, stiffness = case(name)
    pull = jnp.zeros(s.model.nv).at[jnp.asarray(free)].set(stiffness)

    def run(loops, v, dt, n, alpha):
        def step(_, state):
            q, v, worst, status = state
            path = lgjax.rollout(
                s.model, q, v, lambda t, q, v: pull * (s.q0.joints - q.joints), dt, 1,
                save_every=None, loops=loops, project=project, alpha=alpha, beta=alpha,
            )  # fmt: skip
            worst = jnp.maximum(worst, jnp.stack([path.residual[-1], path.rate[-1]]))
            return jax.tree.map(lambda x: x[0], path.q), path.v[0], worst, status | path.status

        return jax.lax.fori_loop(0, n, step, (s.q0, v, jnp.zeros(2), jnp.int32(0)))

    return jit(run)


def wrapped(angle):
    return np.angle(np.exp(1j * np.asarray(angle)))


@pytest.mark.parametrize("name", list(CASES))
def test_motion_is_that_of_the_reduced_equations_to_the_order_of_the_method(name):
    s, oracle, free, rate, v, stiffness = case(name)
    joints, rates = linkages.solve(oracle, np.asarray(s.q0.joints)[free], rate, np.array([0.0, 0.5]), stiffness)
    before, errors, drifts = float(energy(name)(s.q0, v)), [], []
    for n in (25, 50, 100):
        q, speed, worst, status = stepper(name)(s.loops, v, 0.5 / n, n, 0.0)
        assert np.max(worst) < 1e-11
        assert int(status) == LoopStatus.OK
        errors.append(max(np.abs(wrapped(q.joints - joints[-1])).max(), np.abs(speed - rates[-1]).max()))
        drifts.append(abs(float(energy(name)(q, speed)) - before))
    assert errors[-1] < 1e-5
    assert np.log2(errors[0] / errors[2]) / 2 > 3.6, errors
    assert np.log2(drifts[0] / drifts[2]) / 2 > 3.6, drifts


def test_stabilization_keeps_loops_nearly_closed_without_projection():
    """Started open, the residual decays as (1 + a t) exp(-a t) has it; without anything it grows."""
    s, *_, v, _ = case("four_bar")
    loops = jax.tree.map(lambda x: x, s.loops[0])
    object.__setattr__(loops, "frame_a", lgjax.Pose(loops.frame_a.rotation, loops.frame_a.translation + 1e-3))
    run = stepper("four_bar", None)
    for alpha in (0.0, 10.0):
        q, _, _, status = run((loops,), v, 2e-3, 250, alpha)
        gap = np.abs(lgjax.loops.loop_residual(s.model, loops, q)).max()
        assert LoopStatus.OPEN in LoopStatus(int(status))
        assert (gap < 3e-4) if alpha else (gap > 8e-4)


@pytest.mark.slow
def test_controllers_wrenches_saving_and_batches():
    s, *_, v, _ = case("five_bar")
    spring = lambda t, q, v: -2.0 * (q.joints - s.q0.joints) - 0.1 * v
    lift = lambda t, q, v: jnp.zeros((4, 6)).at[0, 3].set(jnp.sin(t))

    def run(v, every):
        options = {"save_every": every, "wrenches": lift, "loops": s.loops, "project": "plain"}
        return lgjax.rollout(s.model, s.q0, v, spring, 2e-3, 40, **options)

    batch = v * jnp.asarray([[1.0], [0.0], [-0.5]])
    every, last = (jit(jax.vmap(lambda v, k=k: run(v, k)))(batch) for k in (5, None))
    assert every.v.shape == (3, 9, 4)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[:, -1:], b, atol=1e-12),
        *(path._replace(status=None) for path in (every, last)),
    )
    np.testing.assert_array_equal(every.status, 0)
    assert np.all(np.diff(every.residual) >= 0)


@pytest.mark.slow
def test_gradients_go_through_steps_and_projections():
    s, *_, v, _ = case("four_bar")

    def end(x):
        model = s.model.replace(inertias=s.model.inertias.scaled(1 + x[:3]))
        tau = lambda t, q, v: x[3] * jnp.asarray([1.0, 0, 0])
        path = lgjax.rollout(model, s.q0, v * (1 + x[4]), tau, 0.02, 10, save_every=None, loops=s.loops)
        return path.q.joints[-1, 0]

    run, h = jit(jax.value_and_grad(end)), 1e-5
    value = lambda x: np.stack([run(row)[0] for row in x])
    expected = (value(h * jnp.eye(5)) - value(-h * jnp.eye(5))) / (2 * h)
    np.testing.assert_allclose(run(jnp.zeros(5))[1], expected, atol=1e-7)


def test_float32_stays_float32():
    s, *_, v, _ = case("four_bar")
    s32 = four_bar(dtype=jnp.float32)
    run = lambda v: lgjax.rollout(s32.model, s32.q0, v, None, 5e-3, 40, save_every=20, loops=s32.loops)
    path = jit(run)(v.astype(jnp.float32))
    assert {x.dtype for x in jax.tree.leaves(path._replace(status=None))} == {jnp.dtype(jnp.float32)}
    assert int(path.status) == 0
    q, *_ = stepper("four_bar")(s.loops, v, 5e-3, 40, 0.0)
    np.testing.assert_allclose(path.q.joints[-1], q.joints, atol=2e-4)


def test_inconsistent_starts_are_refused_or_reported():
    s, *_, v, _ = case("four_bar")
    run = lambda q, v, **options: lgjax.rollout(s.model, q, v, None, 1e-3, 1, save_every=None, loops=s.loops, **options)
    off = s.q0._replace(joints=s.q0.joints + 0.1)
    with pytest.raises(
        ValueError, match=r"loop 'coupler pin' is open at the start, by -?0\.\d+; see project_positions"
    ):
        run(off, v)
    with pytest.raises(
        ValueError, match=r"loop 'coupler pin' opens with the initial velocities, at .*; see project_vel"
    ):
        run(s.q0, v + 0.1)
    with pytest.raises(ValueError, match=r"v has shape \(2,\), expected \(3,\)"):
        run(s.q0, v[:2])
    with pytest.raises(ValueError, match="metric is 'mass' or 'plain', not 'energy'"):
        run(s.q0, v, project="energy")
    with pytest.raises(ValueError, match="rollout takes Taylor for a passive motion alone"):
        lgjax.rollout(s.model, s.q0, v, None, 1e-3, 1, lgjax.Taylor(4), loops=s.loops)
    far = s.loops[0]
    far = jax.tree.map(lambda x: x, far)
    object.__setattr__(far, "frame_b", lgjax.Pose(far.frame_b.rotation, 5 * far.frame_b.translation))
    for loops, start, flag in (
        (s.loops, v + 0.1, LoopStatus.SLIPPING),
        ((far,), v, LoopStatus.OPEN),
        (s.loops, v * jnp.nan, LoopStatus.NOT_FINITE),
    ):
        *_, status = stepper("four_bar")(loops, start, 1e-3, 2, 0.0)
        assert flag in LoopStatus(int(status)), flag
    assert int(status) == LoopStatus.NOT_FINITE  # nothing is said of loops whose places are not known


# ---- ten seconds
@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_ten_seconds_stay_closed_and_agree_with_the_reduced_equations(name):
    s, oracle, free, rate, v, stiffness = case(name)
    joints, rates = linkages.solve(oracle, np.asarray(s.q0.joints)[free], rate, np.array([0.0, 10.0]), stiffness)
    q, speed, worst, status = stepper(name)(s.loops, v, 1e-3, 10_000, 0.0)
    assert np.max(worst) < 1e-9
    assert int(status) == LoopStatus.OK
    before = float(energy(name)(s.q0, v))
    drift = abs(float(energy(name)(q, speed)) / before - 1)
    error = max(np.abs(wrapped(q.joints - joints[-1])).max(), np.abs(speed - rates[-1]).max())
    print(f"{name}: residual and rate {np.asarray(worst)}, energy drift {drift:.1e}, error {error:.1e}")  # noqa: T201
    assert drift < 1e-8
    assert error < 1e-5


@cache
def platform_on_springs():
    """The Stewart platform on springs that carry it, its energy, and a program with the number of steps traced."""
    s = stewart_platform()
    slides = jnp.asarray(s.actuated)
    stiffness, carried = 3000.0, 50.0
    lengths = lambda q: q.joints[2::3]

    def energy(q, v):
        x = lengths(q)
        return s.invariants["energy"](q, v) + jnp.sum(stiffness * x**2 / 2 - carried * x)

    def run(q, v, dt, n):
        spring = lambda t, q, v: jnp.zeros_like(v).at[slides].set(carried - stiffness * lengths(q))

        def step(_, state):
            q, v, worst, status = state
            path = lgjax.rollout(s.model, q, v, spring, dt, 1, save_every=None, loops=s.loops)
            worst = jnp.maximum(worst, jnp.stack([path.residual[-1], path.rate[-1]]))
            return jax.tree.map(lambda x: x[0], path.q), path.v[0], worst, status | path.status

        return jax.lax.fori_loop(0, n, step, (q, v, jnp.zeros(2), jnp.int32(0)))

    return s, jit(energy), optimized.jit(run)


@pytest.mark.slow
def test_the_stewart_platform_on_springs_for_ten_seconds():
    s, energy, run = platform_on_springs()
    push = jnp.zeros(s.model.nv).at[:6].set(jnp.asarray([0.3, -0.2, 0.4, 0.2, 0.3, -0.2]))
    v = jit(lgjax.project_velocity)(s.model, s.loops, s.q0, push)
    before = float(energy(s.q0, v))
    drifts = []
    for n in (50, 100):
        q, speed, *_ = run(s.q0, v, 0.5 / n, n)
        drifts.append(abs(float(energy(q, speed)) - before))
    assert np.log2(drifts[0] / drifts[1]) > 3.5, drifts
    q, speed, worst, status = run(s.q0, v, 1e-3, 10_000)
    drift = abs(float(energy(q, speed)) - before)
    print(f"residual and rate {np.asarray(worst)}, energy {before} drifts by {drift:.1e} J")  # noqa: T201
    assert np.max(worst) < 1e-9
    assert int(status) == LoopStatus.OK
    assert drift < 1e-6
    assert np.abs(speed).max() > 1e-2


def test_a_step_with_its_projection_is_one_native_function(monkeypatch):
    found, real = [], native.as_native
    monkeypatch.setattr(native, "as_native", lambda *args: found.append(real(*args)) or found[-1])
    s, *_, v, _ = case("four_bar")

    def end(v):
        path = lgjax.rollout(s.model, s.q0, v, None, 1e-3, 3, save_every=None, loops=s.loops)
        return path.v[-1], path.status

    batch = v * jnp.linspace(0.5, 1.0, 11)[:, None]
    together, status = jit(jax.vmap(end))(batch)
    jax.jit(jax.vmap(jax.grad(lambda v: end(v)[0][0]))).lower(batch)
    assert found
    assert None not in found
    np.testing.assert_array_equal(jit(jax.vmap(lambda v: end(v)))(batch[3:5])[0], together[3:5])
    assert not np.any(status)
