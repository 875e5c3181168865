"""Environments as vector environments of gymnasium, beside gymnasium's own and by its own checks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lgjax
from lgjax import adapters
from lgjax.adapters import EnvironmentStatus
from tests.adapters.test_environment import MODEL, STEPS, environment, models

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils import env_checker  # noqa: E402


class Single(gymnasium.Env):
    """One copy behind the interface of a single environment, for gymnasium's checks and its own vector."""

    def __init__(self, env, seed=0):
        self.metadata = {"render_modes": []}
        self.vector = adapters.gymnasium_vector(env, 1, seed=seed)
        self.action_space, self.observation_space = (
            self.vector.single_action_space,
            self.vector.single_observation_space,
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        observations, info = self.vector.reset(seed=seed)
        return observations[0], info

    def step(self, action):
        observations, rewards, terminated, truncated, info = self.vector.step(action[None])
        ended = terminated[0] or truncated[0]
        last = info["final_obs"][0] if ended else observations[0]
        return last, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {"status": int(info["status"][0])}


def falling(**options):
    return environment(failed=lambda model, q, v: jnp.abs(q.joints[0]) > 0.45, **options)


def test_spaces_are_the_bounds_of_actions_and_the_size_of_observations():
    env = environment(bounds=(-1.0, 2.0))
    space = env.action_space
    assert (space.shape, space.dtype) == ((1,), np.float64)
    assert space.contains(np.array([1.9]))
    assert not space.contains(np.array([2.1]))
    assert not space.contains(np.zeros(2))
    assert space.gymnasium() == gymnasium.spaces.Box(-1.0, 2.0, (1,), np.float64)
    seen = env.observation_space
    assert seen.gymnasium() == gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    assert environment(bounds=None).action_space.high == np.inf
    assert environment(MODEL.astype(jnp.float32)).observation_space.dtype == np.float32


@pytest.mark.filterwarnings("ignore:.*Box action space:UserWarning", "ignore:.*infinity:UserWarning")
def test_a_copy_passes_the_checks_of_gymnasium():
    env_checker.check_env(Single(environment()), skip_render_check=True)


def test_the_vector_is_that_of_gymnasium():
    """Spaces, types, shapes and the entries of info, beside `SyncVectorEnv` of single copies."""
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    theirs = gymnasium.vector.SyncVectorEnv([lambda: Single(falling())] * 3, autoreset_mode=mode)
    ours = adapters.gymnasium_vector(falling(), 3)
    assert isinstance(ours, gymnasium.vector.VectorEnv)
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    for name in ("action_space", "observation_space", "single_action_space", "single_observation_space", "num_envs"):
        assert getattr(ours, name) == getattr(theirs, name)
    for vector in (ours, theirs):
        assert vector.observation_space.contains(vector.reset(seed=1)[0])
    ends = 0
    for _ in range(2 * STEPS):
        actions = np.full((3, 1), 2.0)
        a, b = ours.step(actions), theirs.step(actions)
        for x, y in zip(a[:4], b[:4], strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert ours.observation_space.contains(a[0])
        for found in (a, b):
            done = found[2] | found[3]
            assert ("final_obs" in found[4]) == bool(np.any(done))
            if np.any(done):
                ends += 1
                np.testing.assert_array_equal(found[4]["_final_obs"], done)
                assert [x is not None for x in found[4]["final_obs"]] == done.tolist()
    assert ends > 2


def test_a_vector_takes_the_steps_of_its_environment():
    env, factors = falling(), jnp.asarray([1.0, 2.0, 4.0])
    params = models(factors)
    vector = adapters.gymnasium_vector(env, 3, params, seed=5)
    observations, _ = vector.reset()
    again, _ = vector.reset(seed=5)
    np.testing.assert_array_equal(observations, again)
    assert np.any(observations != vector.reset()[0])
    assert len(set(observations[:, 0])) == 3
    states = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 3), params)[1]
    kinds = set()
    observations, _ = vector.reset()
    for k in range(3 * STEPS):
        actions = np.random.default_rng(k).uniform(-2, 2, (3, 1))
        joints, v, count = observations[:, :1], observations[:, 1:], vector._state.step
        states = states._replace(q=states.q._replace(joints=jnp.asarray(joints)), v=jnp.asarray(v), step=count)
        _, _, reward, done, info = jax.vmap(env.step)(jax.random.split(jax.random.key(0), 3), states, actions, params)
        after, rewards, terminated, truncated, told = vector.step(actions)
        np.testing.assert_allclose(rewards, reward, rtol=1e-12)
        np.testing.assert_array_equal(terminated | truncated, done)
        np.testing.assert_array_equal(told["status"], info["status"])
        np.testing.assert_array_equal(truncated, np.asarray(info["status"]) == EnvironmentStatus.HORIZON)
        for n in range(3):
            last = told["final_obs"][n] if done[n] else after[n]
            np.testing.assert_allclose(last, info["observation"][n], rtol=1e-12)
            if done[n]:  # the next episode has begun
                assert after[n, 1] == 0
                assert told["final_info"]["status"][n] == info["status"][n]
        kinds |= set(np.asarray(info["status"]).tolist())
        observations = after
    assert {0, int(EnvironmentStatus.FAILED), int(EnvironmentStatus.HORIZON)} <= kinds


def test_a_wrapper_of_gymnasium_takes_a_vector():
    vector = gymnasium.wrappers.vector.RecordEpisodeStatistics(adapters.gymnasium_vector(environment(), 2))
    vector.reset()
    total = np.zeros(2)
    for _ in range(STEPS):
        *_, rewards, _, _, info = (*(), *vector.step(np.zeros((2, 1))))
        total += rewards
    np.testing.assert_allclose(info["episode"]["r"], total, rtol=1e-6)
    np.testing.assert_array_equal(info["episode"]["l"], STEPS)


def test_wrong_arguments_are_named():
    vector = adapters.gymnasium_vector(environment(), 2)
    with pytest.raises(RuntimeError, match=r"call reset\(\) before the first step\(\)"):
        vector.step(np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"no options for a reset, got \['mass'\]"):
        vector.reset(options={"mass": 1})
    with pytest.raises(TypeError, match="environment must be an Environment, got 'quadruped'"):
        adapters.gymnasium_vector("quadruped", 2)
    with pytest.raises(ValueError, match="batch must be a positive integer"):
        adapters.gymnasium_vector(environment(), 0)
    with pytest.raises(ValueError, match=r"params have an array of shape \(3,.*expected a leading axis of 2"):
        adapters.gymnasium_vector(environment(), 2, models(jnp.ones(3)))
    assert lgjax.adapters.gymnasium_vector is adapters.gymnasium_vector
