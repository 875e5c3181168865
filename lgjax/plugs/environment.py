"""A mechanism as an environment of reinforcement learning: pure `reset` and `step` with automatic resets.

The calls are those of gymnax: reset(key, params) -> observation, state, and step(key, state, action, params) ->
observation, state, reward, done, info. Map both over a batch with `jax.vmap`, scan them, differentiate them.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact.contacts import Contacts
from lgjax.dynamics.time_derivatives.taylor_series import checked_result
from lgjax.integrators import RK4, MuntheKaas
from lgjax.integrators.field import strong
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.configuration import Configuration, neutral
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.status import NOT_FINITE, flag
from lgjax.simulate.control.problem import ControlSystem, box, within

Array = jax.Array


class EnvironmentStatus(enum.IntFlag):
    """How an episode ended; 0 means that it goes on."""

    NOT_FINITE = NOT_FINITE  # the next state, its observation or its reward was infinite or NaN
    FAILED = 2  # `failed` said so
    HORIZON = 4  # all its steps were taken


class EnvironmentState(NamedTuple):
    """Where a mechanism is in its episode: q, v (nv,), and the number () int32 of steps taken."""

    q: Configuration
    v: Array
    step: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Environment:
    """Episodes of a mechanism that starts at random, is pushed by actions and earns rewards.

    model       the mechanism; its copies with other numbers are the parameters `params` of an episode.
    dt          seconds of a step, in which the action is held. steps: of an episode, the horizon.
    start       (key, model) -> (q, v), at random. observe: (model, q, v) -> vector.
    reward      (model, q, v, action) -> number, of the state after a step and the action that led there.
    failed      (model, q, v) -> bool, whether an episode ends there before its time; None for never.
    bounds      (lower, upper) of the actions, numbers or (actions,): actions are clipped to them. None for none.
    actions     how many; actuation, wrenches, method, substeps, contacts: see `control.ControlSystem.of_model`.

    `step` resets by itself: where an episode is done, the state and observation that it returns are the first of the
    next one. info has "observation", the last of the episode, and "status", an `EnvironmentStatus`. A state that is not
    finite ends an episode with reward 0. Gradients pass through the dynamics, and stop at a reset.
    """

    model: Model
    dt: float
    steps: int
    start: Callable[[Array, Model], tuple[Configuration, Array]]
    observe: Callable[[Model, Configuration, Array], Array]
    reward: Callable[[Model, Configuration, Array, Array], Array]
    failed: Callable[[Model, Configuration, Array], Array] | None = None
    bounds: Any = None
    actions: int | None = None
    actuation: Callable[[Array], Array] | None = None
    wrenches: Callable[[Array], Array] | None = None
    method: Any = MuntheKaas(RK4)  # noqa: RUF009 (a hashable value)
    substeps: int = 1
    contacts: Contacts | None = None

    def __post_init__(self) -> None:
        checked_model(self.model)
        checks.integer("steps", self.steps)
        checks.number("dt", self.dt, 0.0, inside=True)
        box(self.bounds, self.num_actions, self.model.dtype)

    # ---- what learners ask for
    @property
    def default_params(self) -> Model:
        """The mechanism itself."""
        return self.model

    @property
    def num_actions(self) -> int:
        """Entries of an action."""
        return self.system(self.model).controls

    @property
    def observation_size(self) -> int:
        """Entries of an observation."""
        v = jnp.zeros(self.model.nv, self.model.dtype)
        return jax.eval_shape(self._observation, self.model, neutral(self.model), v).shape[0]

    # ---- an episode
    def reset(self, key: Array, params: Model | None = None) -> tuple[Array, EnvironmentState]:
        """The first observation and state of an episode; params: the mechanism, a copy of `model`, or None for it."""
        model = self._mechanism(params)
        q, v = strong(self.start(key, model))
        checked_result("start", v, (model.nv,), model.dtype)
        return self._observation(model, q, v), EnvironmentState(q, v, jnp.zeros((), jnp.int32))

    def step(
        self, key: Array, state: EnvironmentState, action: Array, params: Model | None = None
    ) -> tuple[Array, EnvironmentState, Array, Array, dict[str, Array]]:
        """Observation, state, reward (), done () bool and info, one step after `state` under an action (actions,)."""
        model = self._mechanism(params)
        observation, after, reward, status = self._advance(model, state, action)
        done = status != 0
        first = self.reset(key, model)
        pick = lambda new, old: jnp.where(done, new, old)
        return (
            *jax.tree.map(pick, first, (observation, after)),
            reward,
            done,
            {"observation": observation, "status": status},
        )

    def system(self, model: Model) -> ControlSystem:
        """The mechanism as a system in discrete time, such as `PredictiveController` and `optimize_controls` take."""
        return ControlSystem.of_model(
            model, self.dt, self.actions, self.actuation, self.wrenches, self.method, self.substeps, self.contacts
        )

    # ---- its parts
    def _mechanism(self, params: Model | None) -> Model:
        if params is None:
            return self.model
        if not isinstance(params, Model) or params.tree != self.model.tree:
            raise TypeError(f"params must be a Model with the tree of {self.model.name!r}, got {params!r}")
        return params

    def _observation(self, model: Model, q: Configuration, v: Array) -> Array:
        found = self.observe(model, q, v)
        if not hasattr(found, "shape") or len(found.shape) != 1:
            raise ValueError(f"observe must return one vector, got {getattr(found, 'shape', found)}")
        return checked_result("observe", found, found.shape, model.dtype)

    def _advance(self, model: Model, state: EnvironmentState, action: Array) -> tuple[Array, Any, Array, Array]:
        system = self.system(model)
        lower, upper = map(jnp.asarray, box(self.bounds, system.controls, model.dtype))
        action = within(checks.array("action", action, (system.controls,), model.dtype), lower, upper)
        q, v = system.step((state.q, state.v), action)
        observation = self._observation(model, q, v)
        reward = checked_result("reward", self.reward(model, q, v, action), (), model.dtype)
        finite = jnp.isfinite(reward)
        for x in (*jax.tree.leaves(q), v, observation):
            finite = finite & jnp.all(jnp.isfinite(x))
        count = state.step + 1
        status = flag(EnvironmentStatus.NOT_FINITE, ~finite) | flag(EnvironmentStatus.HORIZON, count >= self.steps)
        if self.failed is not None:
            status = status | flag(EnvironmentStatus.FAILED, jnp.asarray(self.failed(model, q, v), bool))
        return observation, EnvironmentState(q, v, count), jnp.where(finite, reward, 0), status
