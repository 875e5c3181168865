"""An `Environment` as a vector environment of gymnasium, for learners that are not written in JAX.

Read first: `environment.py`. gymnasium is an extra, imported when it is needed.
"""

from functools import cache
from types import ModuleType
from typing import Any

import jax
import numpy as np

from lgjax.adapters.environment import Environment, EnvironmentParams, EnvironmentStatus
from lgjax.numerics import checks


def gymnasium() -> ModuleType:
    """The package. Raises ImportError that names the extra, if it is not installed."""
    try:
        import gymnasium
    except ImportError:
        raise ImportError("spaces and vectors need the package gymnasium: pip install 'lgjax[gymnasium]'") from None
    return gymnasium


def gymnasium_vector(
    environment: Environment, batch: int, params: EnvironmentParams | None = None, seed: int = 0
) -> Any:
    """A `gymnasium.vector.VectorEnv` of `batch` copies of an environment, which one compiled program steps.

    Actions and results are NumPy arrays. A copy that is done is reset in the same step, `AutoresetMode.SAME_STEP`:
    info["final_obs"] and info["final_info"] then have the end of the old episode. A copy is truncated if it has taken
    all its steps and nothing else ended it. info has "status" and "contact" of `Environment.step`.

    Args:
        environment: the `Environment` to copy.
        batch: number of copies.
        params: parameters of the copies, all arrays with a leading axis (batch,); None for those of `environment`.
        seed: seed of the random keys, until `reset(seed=)` gives another one.

    Raises:
        ImportError: naming the extra, if gymnasium is not installed.
        ValueError: for params with another leading axis.
    """
    if not isinstance(environment, Environment):
        raise TypeError(f"environment must be an Environment, got {checks.shown(environment)}")
    batch = checks.integer("batch", batch)
    for leaf in jax.tree.leaves(params):
        if np.shape(leaf)[:1] != (batch,):
            raise ValueError(f"params have an array of shape {np.shape(leaf)}, expected a leading axis of {batch}")
    return _vector_class()(environment, batch, params, checks.integer("seed", seed, 0))


@cache
def _vector_class() -> type:
    return type("EnvironmentVector", (_Batch, gymnasium().vector.VectorEnv), {})


class _Batch:
    """The part of a `VectorEnv` that gymnasium does not provide."""

    def __init__(self, environment: Environment, batch: int, params: Any, seed: int):
        library = gymnasium()
        self.metadata = {"autoreset_mode": library.vector.AutoresetMode.SAME_STEP}
        self.environment, self.num_envs, self.params = environment, batch, params
        self.single_action_space = environment.action_space.gymnasium()
        self.single_observation_space = environment.observation_space.gymnasium()
        together = library.vector.utils.batch_space
        self.action_space = together(self.single_action_space, batch)
        self.observation_space = together(self.single_observation_space, batch)
        axes = None if params is None else 0
        self._start = jax.jit(jax.vmap(environment.reset, (0, axes)))
        self._move = jax.jit(jax.vmap(environment.step, (0, 0, 0, axes)))
        self._key, self._state = jax.random.key(seed), None

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """First observations of all copies."""
        if options:
            raise ValueError(f"this environment has no options for a reset, got {sorted(options)}")
        super().reset(seed=seed)  # type: ignore[misc]
        if seed is not None:
            self._key = jax.random.key(seed)
        observations, self._state = self._start(self._keys(), self.params)
        return np.array(observations), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        """Observations, rewards, terminations, truncations and info of all copies."""
        if self._state is None:
            raise RuntimeError("call reset() before the first step()")
        given = np.asarray(actions, self.single_action_space.dtype)
        found = self._move(self._keys(), self._state, given, self.params)
        observations, self._state, rewards, done, info = found
        done, status, contact = (np.array(x) for x in (done, info["status"], info["contact"]))
        every = np.ones(self.num_envs, bool)
        told = {"status": status, "_status": every, "contact": contact, "_contact": every.copy()}
        if np.any(done):
            last = np.full(self.num_envs, None, object)
            for n in np.flatnonzero(done):
                last[n] = np.array(info["observation"][n])
            final = {"status": status, "_status": done, "contact": contact, "_contact": done}
            told |= {"final_obs": last, "_final_obs": done, "final_info": final, "_final_info": done}
        truncated = status == int(EnvironmentStatus.HORIZON)
        return np.array(observations), np.array(rewards), done & ~truncated, truncated, told

    def _keys(self) -> jax.Array:
        self._key, key = jax.random.split(self._key)
        return jax.random.split(key, self.num_envs)
