"""The walking quadruped: rewards and observations by hand, starts, servos, random robots and grounds, batches."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import lgjax
from lgjax import adapters
from lgjax.adapters import EnvironmentParams, EnvironmentStatus, Walk
from lgjax.adapters.legged import STAND

RNG = np.random.default_rng(2)


@cache
def environment(**options):
    return adapters.walking_quadruped(**{"dtype": jnp.float64, **options})


def state(tilt=(0.1, -0.2, 0.3), height=0.3, joints=None, v=None, dtype=jnp.float64):
    """A state, its rotation by SciPy, and its velocity."""
    R = Rotation.from_rotvec(tilt).as_matrix()
    joints = STAND + 0.1 * RNG.normal(size=12) if joints is None else joints
    v = 0.3 * RNG.normal(size=18) if v is None else v
    model = environment().mechanism.astype(dtype)
    arrays = (jnp.asarray(x, dtype) for x in (R, (0.1, -0.2, height), joints, v))
    R, place, joints, v = arrays
    return model, lgjax.configuration(model, (R, place), joints), v


def test_the_observation_is_in_the_frame_of_the_trunk():
    env = environment()
    model, q, v = state()
    command, last = np.array([0.4, 0.1, -0.3]), RNG.normal(size=12)
    found = env.observe(model, q, v, Walk(jnp.asarray(command), jnp.asarray(last)))
    upward = Rotation.from_rotvec((0.1, -0.2, 0.3)).inv().apply((0, 0, 1))
    parts = [upward, v[:3] / 4, v[3:6], command, q.joints - STAND, v[6:] / 20, last]
    np.testing.assert_allclose(found, np.concatenate(parts), atol=1e-14)
    assert env.observation_space.shape == found.shape == (48,)


def test_the_reward_is_that_of_its_formula():
    env = environment()
    model, q, v = state()
    command, last, action = np.array([0.4, 0.1, -0.3]), *RNG.normal(size=(2, 12))
    found = env.reward(model, q, v, jnp.asarray(action), Walk(jnp.asarray(command), jnp.asarray(last)))
    wx, wy, wz, x, y, z = v[:6]
    sine = np.linalg.norm(np.cross(Rotation.from_rotvec((0.1, -0.2, 0.3)).inv().apply((0, 0, 1)), (0, 0, 1)))
    expected = np.exp(-((x - 0.4) ** 2 + (y - 0.1) ** 2) / 0.0625) + 0.5 * np.exp(-((wz + 0.3) ** 2) / 0.0625)
    expected -= z**2 + 0.05 * (wx**2 + wy**2) + sine**2 + 0.01 * action @ action
    expected -= 0.02 * (action - last) @ (action - last)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    # it is largest, 1.5, for the commanded motion without any effort
    still = jnp.zeros(12)
    v = jnp.zeros(18).at[jnp.array([2, 3, 4])].set(jnp.array([-0.3, 0.4, 0.1]))
    model, q, v = state((0.0, 0.0, 1.0), v=v)
    assert env.reward(model, q, v, still, Walk(jnp.asarray(command), still)) == pytest.approx(1.5, abs=1e-14)


@pytest.mark.parametrize(
    ("tilt", "height", "fails"),
    [((0, 0, 2), 0.3, False), ((1.0, 0, 0), 0.3, False), ((0, 1.1, 0), 0.3, True), ((0, 0, 0), 0.15, True)],
)
def test_a_walk_fails_where_the_trunk_is_low_or_tilts_by_more_than_sixty_degrees(tilt, height, fails):
    model, q, v = state(tilt, height)
    found = environment().failed(model, q, v, Walk(jnp.zeros(3), jnp.zeros(12)))
    assert bool(found) == fails


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32], ids=["float64", "float32"])
def test_walks_start_above_the_ground_in_the_ranges_that_are_said(dtype):
    env = environment(dtype=dtype, command=(0.5, 0.0, 0.2), spread=(0.3, 0.1, 0.0))
    observations, states = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 300))
    assert observations.dtype == dtype
    assert states.memory.command.dtype == dtype
    joints = np.asarray(states.q.joints) - STAND
    assert 0.09 < np.max(np.abs(joints)) <= 0.1 + 1e-6
    np.testing.assert_allclose(joints.std(), 0.1 / np.sqrt(3), rtol=0.05)  # uniform
    assert 0.18 < np.max(np.abs(states.v)) <= 0.2
    commands = np.asarray(states.memory.command) - [0.5, 0.0, 0.2]
    assert np.all(np.abs(commands) <= np.array([0.3, 0.1, 0.0]) + 1e-6)
    np.testing.assert_allclose(commands.std(0), np.array([0.3, 0.1, 0.0]) / np.sqrt(3), rtol=0.1, atol=1e-6)
    np.testing.assert_array_equal(states.memory.action, 0)
    np.testing.assert_array_equal(states.step, 0)
    gaps = jax.jit(jax.vmap(lambda q: lgjax.contact.contact_points(env.mechanism, env.contacts, q).gap))(states.q)
    assert 0.0 < np.min(np.min(gaps, 1)) < np.max(np.min(gaps, 1)) < 0.06
    failed = jax.vmap(lambda s: env.failed(env.mechanism, s.q, s.v, s.memory))(states)
    assert not np.any(failed)


def test_the_servos_pull_to_the_targets_within_the_efforts():
    """tau = 40 (stand + 0.4 a - q) - 1.5 v, within 24, 24 and 36 N m."""
    env = environment()
    _, q, v = state()
    for action in (0.3 * RNG.normal(size=12), np.full(12, 4.0)):
        wanted = 40 * (STAND + 0.4 * action - q.joints) - 1.5 * v[6:]
        most = np.tile([24.0, 24.0, 36.0], 4)
        found = env.robot.actuators.torque(q, v, jnp.asarray(action))
        np.testing.assert_allclose(found[:6], 0)
        np.testing.assert_allclose(found[6:], np.clip(wanted, -most, most), rtol=1e-12)
    assert np.any(np.abs(wanted) > most)


def test_random_robots_have_masses_frictions_and_grounds_of_their_own():
    env = environment(rough=True)
    draw = lambda key: adapters.random_params(key, env, (0.8, 1.2), (0.4, 0.9), 0.02)
    found = jax.vmap(draw)(jax.random.split(jax.random.key(1), 200))
    factors = np.asarray(found.model.inertias.mass / env.mechanism.inertias.mass)
    assert factors.shape == (200, 13)
    assert 0.8 <= factors.min() < 0.81 < 1.19 < factors.max() <= 1.2
    friction = np.asarray(found.contacts.friction)
    assert 0.4 <= friction.min() < 0.41 < 0.89 < friction.max() <= 0.9
    np.testing.assert_array_equal(friction, friction[:, :1] * np.ones(4))  # one ground under all feet
    (field,) = found.contacts.grounds
    one = jax.tree.map(lambda x: x[0], field)
    places = jnp.asarray(RNG.uniform(-0.6, 0.6, (50, 2)))
    assert np.all(np.abs(one(places)[0]) < 1e-12)  # level where episodes begin
    np.testing.assert_allclose(np.std(field.heights[:, 10:]), 0.02, rtol=0.05)
    with pytest.raises(ValueError, match=r"roughness needs .* walking_quadruped\(rough=True\)"):
        adapters.random_params(jax.random.key(0), environment(), roughness=0.1)


def run(env, params, states, actions):
    """Rewards, last states and status of steps under actions (steps, batch, 12), of a batch."""
    axes = None if params is None else 0
    keys = jax.random.split(jax.random.key(9), actions.shape[1])

    def step(states, actions):
        _, states, reward, _, info = jax.vmap(env.step, (0, 0, 0, axes))(keys, states, actions, params)
        return states, (reward, info["observation"], info["status"], info["contact"])

    return jax.lax.scan(step, states, actions)


def test_a_robot_walks_alike_alone_and_in_a_batch_on_rough_ground():
    """With a mass, a friction and a ground of its own; and the ground bears it."""
    env = environment(rough=True, steps=30)
    keys = jax.random.split(jax.random.key(3), 3)
    params = jax.vmap(lambda key: adapters.random_params(key, env, roughness=0.02))(keys)
    first = jax.vmap(env.reset)(keys, params)[1]
    actions = jnp.asarray(0.3 * RNG.normal(size=(25, 3, 12)))
    program = jax.jit(lambda *given: run(env, *given))
    together = program(params, first, actions)
    assert not np.any(together[1][2])
    assert np.all(np.asarray(together[0].q.free_poses.translation)[:, 0, 2] > 0.2)
    three = lambda tree, n: jax.tree.map(lambda x: jnp.stack([x[n]] * 3), tree)
    for n in range(3):
        alone = program(three(params, n), three(first, n), jnp.stack([actions[:, n]] * 3, 1))
        for a, b in zip(jax.tree.leaves(together[1]), jax.tree.leaves(alone[1]), strict=True):
            np.testing.assert_allclose(a[:, n], b[:, 0], rtol=1e-9, atol=1e-9)
    assert np.max(np.abs(together[1][1][-1][0] - together[1][1][-1][1])) > 1e-3


def test_what_a_learner_differentiates_is_the_slope_of_the_reward():
    """Through a step on the ground with respect to the action; and zero, beside it, of a step that blows up."""
    env = replace(environment(), method=lgjax.contact.TimeStepping())  # differences need the solver's full accuracy
    _, first = jax.jit(env.reset)(jax.random.key(0))
    settled = jax.jit(lambda s: run(env, None, jax.tree.map(lambda x: x[None], s), jnp.zeros((10, 1, 12))))(first)[0]
    standing = jax.tree.map(lambda x: x[0], settled)
    broken = standing._replace(v=standing.v.at[4].set(1e200))
    both = jax.tree.map(lambda *x: jnp.stack(x), standing, broken)
    keys = jax.random.split(jax.random.key(1), 2)

    def rewards(actions):
        _, _, reward, _, info = jax.vmap(env.step)(keys, both, actions)
        return reward, info["status"]

    actions = jnp.asarray(0.2 * RNG.normal(size=(2, 12)))
    program = jax.jit(lambda a: jax.value_and_grad(lambda a: (jnp.sum(rewards(a)[0]), rewards(a)[1]), has_aux=True)(a))
    (_, status), slope = program(actions)
    assert status[0] == 0
    assert status[1] & EnvironmentStatus.NOT_FINITE
    np.testing.assert_array_equal(slope[1], 0)
    value = lambda a: program(a)[0][0]
    for k in (1, 5, 9):
        bump = jnp.zeros_like(actions).at[0, k].set(1e-6)
        difference = (value(actions + bump) - value(actions - bump)) / 2e-6
        assert abs(difference) > 1e-3
        np.testing.assert_allclose(slope[0, k], difference, rtol=1e-5, atol=1e-6)
    assert EnvironmentParams(env.mechanism).contacts is None
