"""Rollouts converge to the motion that Pinocchio and SciPy find, keep what is conserved and stay on the group."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import jit

import lgjax
from lgjax import models
from lgjax.integrators import Status
from tests.oracles import floating_robot


@cache
def swimmer():
    return lgjax.load_urdf(floating_robot.URDF).replace(gravity=jnp.zeros(3))


def start():
    model = swimmer()
    q = lgjax.random_configuration(jax.random.key(0), model)._replace(joints=jnp.asarray([0.4, 0.1]))
    return q, jnp.asarray([1.5, -2.0, 1.0, 0.3, -0.2, 0.5, 2.0, -0.4])


@cache
def stepper():
    """n steps of dt with n traced: one program for all step sizes."""

    def run(model, q, v, dt, n):
        def step(_, state):
            path = lgjax.rollout(model, *state, None, dt, 1, save_every=None)
            return jax.tree.map(lambda x: x[0], (path.q, path.v))

        return jax.lax.fori_loop(0, n, step, (q, v))

    return jax.jit(run)


DURATION = 1.0
STEPS = (20, 40, 80, 160)


@cache
def ends():
    q, v = start()
    return [stepper()(swimmer(), q, v, jnp.asarray(DURATION / n), n) for n in STEPS]


def order(errors):
    """The slope of log error against log step, over the finer steps."""
    return np.polyfit(np.log(1 / np.array(STEPS[-3:])), np.log(errors[-3:]), 1)[0]


def test_taylor_rolls_out_a_passive_mechanism():
    model = lgjax.models.chain(1)
    q = lgjax.neutral(model)._replace(joints=jnp.array([0.7]))
    path = lgjax.rollout(model, q, jnp.zeros(1), None, 0.02, 20, lgjax.Taylor(8), None)
    fine = lgjax.rollout(model, q, jnp.zeros(1), None, 0.001, 400, save_every=None)
    np.testing.assert_allclose(path.q.joints, fine.q.joints, atol=1e-11)
    with pytest.raises(ValueError, match="passive motion alone"):
        lgjax.rollout(model, q, jnp.zeros(1), lambda t, q, v: v, 0.02, 20, lgjax.Taylor(8))


def test_rk4_has_order_four_against_another_formulation():
    q, v = start()
    rotation, position, joints, velocity = floating_robot.motion(
        q.free_poses.rotation[0], q.free_poses.translation[0], q.joints, v, DURATION
    )
    errors = []
    for at, speed in ends():
        gaps = (at.free_poses.rotation[0] - rotation, at.free_poses.translation[0] - position, at.joints - joints)
        errors.append(max(np.abs(x).max() for x in (*gaps, speed - velocity)))
    assert errors[-1] < 1e-6
    assert abs(order(errors) - 4) < 0.2, (errors, order(errors))


def test_momentum_and_energy_are_conserved_to_the_order_of_the_method():
    model = swimmer()
    of = jit(lambda q, v: (lgjax.momentum(model, q, v), lgjax.kinetic_energy(model, q, v)[None]))
    before = jax.tree.map(np.asarray, of(*start()))
    for k in range(2):
        drift = [np.abs(of(*end)[k] - before[k]).max() / np.abs(before[k]).max() for end in ends()]
        assert drift[-1] < 1e-7
        assert order(drift) > 3.7, (drift, order(drift))


def test_the_pose_stays_on_the_group_for_a_hundred_thousand_steps():
    q, v = start()
    end, speed = stepper()(swimmer(), q, v, jnp.asarray(1e-3), 100_000)
    R = np.asarray(end.free_poses.rotation[0])
    assert np.isfinite(speed).all()
    assert np.abs(R.T @ R - np.eye(3)).max() < 1e-12
    assert abs(np.linalg.det(R) - 1) < 1e-12
    assert np.abs(R - np.asarray(q.free_poses.rotation[0])).max() > 0.1


def test_rotations_stay_on_the_group_in_float32():
    """Products alone would have left it by 1e-5 after these steps."""
    model = models.random_tree(2, 2, True, ("spherical",)).replace(gravity=jnp.zeros(3)).astype(jnp.float32)
    v = jax.random.normal(jax.random.key(1), (model.nv,), jnp.float32)
    q = jit(lambda v: lgjax.rollout(model, lgjax.neutral(model), v, None, 1e-3, 1000, save_every=None).q)(v)
    R = np.concatenate([q.free_poses.rotation[0], q.ball_rotations[0]])
    assert R.shape == (2, 3, 3)
    assert np.abs(np.swapaxes(R, -1, -2) @ R - np.eye(3)).max() < 5e-7


@cache
def fall():
    """A rod thrown with a spin about its axis of symmetry: its center of mass flies on a parabola."""
    model = models.chain(1, floating_base=True)
    run = lambda dt, steps, save_every: lgjax.rollout(
        model, lgjax.neutral(model), jnp.asarray([0.0, 0, 3, 1, 2, 3]), None, dt, steps, save_every=save_every
    )
    return model, jit(run, static_argnums=(1, 2))


def test_free_flight_is_a_parabola():
    _, run = fall()
    path = run(0.1, 10, 2)
    t = np.linspace(0, 1, 6)
    np.testing.assert_allclose(path.ts, t, atol=1e-15)
    expected = t[:, None] * np.array([1, 2, 3]) + t[:, None] ** 2 / 2 * np.array([0, 0, -9.81])
    # the frame spins, so its velocity turns in the body: exact for the position only to the order of the method
    np.testing.assert_allclose(path.q.free_poses.translation[:, 0], expected, atol=5e-4)
    spin = path.q.free_poses.rotation[:, 0]
    np.testing.assert_allclose(spin[:, 0, 0], np.cos(3 * t), atol=1e-12)
    assert bool(path.success)


def test_what_is_saved_is_a_selection():
    _, run = fall()
    every, second, last = run(0.1, 10, 1), run(0.1, 10, 2), run(0.1, 10, None)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[::2], b, atol=1e-14), every[:3], second[:3])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[-1:], b, atol=1e-14), every[:3], last[:3])


def test_controllers_and_wrenches_act():
    """A wrench through the center of mass that carries the weight, and a torque law on a joint, against by hand."""
    model = models.chain(1)
    inertia = float(lgjax.mass_matrix(model, lgjax.neutral(model))[0, 0])
    hold = lambda t, q, v: lgjax.gravity_forces(model, q) + inertia * jnp.cos(3 * t)
    path = jit(lambda: lgjax.rollout(model, lgjax.neutral(model), jnp.zeros(1), hold, 0.02, 50, save_every=None))()
    np.testing.assert_allclose(path.v[0, 0], np.sin(3 * 1.0) / 3, atol=1e-7)
    np.testing.assert_allclose(path.q.joints[0, 0], (1 - np.cos(3 * 1.0)) / 9, atol=1e-7)

    rod, _ = fall()

    def lift(t, q, v):
        force = q.free_poses.rotation[0].T @ (-rod.gravity * rod.inertias.mass[0])
        return jnp.concatenate([jnp.cross(rod.inertias.com[0], force), force])[None]

    v = jnp.asarray([0.0, 0, 0, 1, 2, 3])
    path = jit(lambda: lgjax.rollout(rod, lgjax.neutral(rod), v, None, 0.1, 10, save_every=None, wrenches=lift))()
    np.testing.assert_allclose(path.q.free_poses.translation[0, 0], [1, 2, 3], atol=1e-12)


def test_time_runs_backwards_too():
    model = swimmer()
    q, v = start()
    there = stepper()(model, q, v, jnp.asarray(0.01), 20)
    back = stepper()(model, *there, jnp.asarray(-0.01), 20)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), back, (q, v))


def test_a_trajectory_that_leaves_the_finite_numbers_says_so():
    model = models.chain(1)
    blow = lambda t, q, v: 1e3 * v**3
    path = jit(lambda: lgjax.rollout(model, lgjax.neutral(model), jnp.ones(1), blow, 0.1, 10, save_every=None))()
    assert not bool(path.success)
    assert int(path.status) == Status.NOT_FINITE


def test_bad_input_is_refused():
    model = models.chain(2)
    q, v = lgjax.neutral(model), jnp.zeros(2)
    with pytest.raises(ValueError, match=r"v has shape \(3,\), expected \(2,\)"):
        lgjax.rollout(model, q, jnp.zeros(3), None, 0.1, 1)
    with pytest.raises(ValueError, match=r"controller returned shape \(1,\), expected \(2,\)"):
        lgjax.rollout(model, q, v, lambda t, q, v: v[:1], 0.1, 1)
    with pytest.raises(ValueError, match=r"wrenches returned shape \(6,\), expected \(2, 6\)"):
        lgjax.rollout(model, q, v, None, 0.1, 1, wrenches=lambda t, q, v: jnp.zeros(6))
    with pytest.raises(ValueError, match="save_every must divide steps, got save_every=3 and steps=10"):
        lgjax.rollout(model, q, v, None, 0.1, 10, save_every=3)
    with pytest.raises(ValueError, match="steps must be a positive integer, got 0"):
        lgjax.rollout(model, q, v, None, 0.1, 0)
