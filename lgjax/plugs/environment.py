"""A mechanism as an environment for reinforcement learning: pure `reset` and `step` with automatic resets.

The calls are those of gymnax: reset(key, params) -> observation, state, and step(key, state, action, params) ->
observation, state, reward, done, info. Map both over a batch with `jax.vmap`, scan them, differentiate them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact.contacts import Contacts
from lgjax.dynamics.time_derivatives.taylor_series import checked_result
from lgjax.integrators import RK4, MuntheKaas
from lgjax.integrators.field import strong
from lgjax.multibody.arguments import checked_array, checked_configuration, checked_model
from lgjax.multibody.configuration import Configuration, neutral
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.status import NOT_FINITE, Flags, flag
from lgjax.numerics.tangents import moves_if_kept
from lgjax.robots.robot import Robot
from lgjax.simulate.control.check_problem import box
from lgjax.simulate.control.mechanism_step import contact_steps
from lgjax.simulate.control.problem import ControlSystem, within
from lgjax.simulate.robot_step import robot_steps
from lgjax.simulate.robots import robot_parts

Array = jax.Array


class EnvironmentStatus(Flags):
    """Why an episode ended; 0 means that it goes on. Flags add up."""

    OK = 0  # it goes on
    NOT_FINITE = NOT_FINITE  # the next state, its observation or its reward was infinite or NaN
    FAILED = 2  # the environment's function `failed` returned True
    HORIZON = 4  # the episode has taken all its steps


class EnvironmentState(NamedTuple):
    """State of an episode: the configuration q, the velocity v (nv,), and step () int32, the number of steps taken.

    activation: (na,) of a robot's actuators, () without any.
    """

    q: Configuration
    v: Array
    step: Array
    activation: Any = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Environment:
    """Episodes of a mechanism that starts at random, takes actions and earns rewards.

    model       the mechanism, or a `Robot`, whose actions are the controls of its actuators and whose loops, forces and
                contacts act. An episode may have another model with the same tree, its parameters `params`.
    dt          length of a step, s; the action is held during it. steps: in an episode, the horizon.
    start       (key, model) -> (q, v), drawn at random. observe: (model, q, v) -> vector (observation_size,).
    reward      (model, q, v, action) -> number, from the state after a step and the action that led to it.
    failed      (model, q, v) -> bool, True where an episode ends before its horizon; None for never.
    bounds      (lower, upper) to which actions are clipped, numbers or (actions,); None for no bounds.
    actions     number of entries of an action, by default one for each joint velocity but those of free joints.
    actuation, wrenches, method, substeps, contacts: as in `control.ControlSystem.of_model`.

    `step` resets by itself: when an episode is done, it returns the first observation and state of the next one.
    Its info has "observation", the last of the episode, "status", an `EnvironmentStatus`, and "contact", the
    `ContactStatus` of the step, 0 without contacts; a contact that is not solved does not end the episode. A state that
    is not finite ends it with reward 0 and derivative 0. Gradients pass through the dynamics and stop at a reset.
    Raises TypeError or ValueError naming the argument for wrong sizes, shapes and dtypes.
    """

    model: Any
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
        checked_model(self.model, leaves=True)
        for name in ("start", "observe", "reward"):
            checks.function(name, getattr(self, name))
        checks.functions(failed=self.failed)
        checks.integer("steps", self.steps)
        checks.number("dt", self.dt, 0.0, inside=True)
        box(self.bounds, self.num_actions, self.mechanism.dtype)

    @property
    def mechanism(self) -> Model:
        """The model, also of a robot."""
        return checked_model(self.model)

    @property
    def robot(self) -> Robot | None:
        """The robot, None for a model alone."""
        return self.model if isinstance(self.model, Robot) else None

    # ---- what learners ask for
    @property
    def default_params(self) -> Model:
        """The model of the mechanism itself."""
        return self.mechanism

    @property
    def num_actions(self) -> int:
        """Number of entries of an action."""
        return self.system(self.mechanism).controls

    @property
    def observation_size(self) -> int:
        """Number of entries of an observation."""
        v = jnp.zeros(self.mechanism.nv, self.mechanism.dtype)
        return jax.eval_shape(self._observation, self.mechanism, neutral(self.mechanism), v).shape[0]

    # ---- an episode
    def reset(self, key: Array, params: Model | None = None) -> tuple[Array, EnvironmentState]:
        """First observation and state of an episode. params: a `Model` with the tree of `model`; None for `model`."""
        model = self._mechanism(params)
        checks.random_key("key", key)
        q, v = self._state("start", strong(self.start(key, model), "start"), model)
        return self._observation(model, q, v), EnvironmentState(q, v, jnp.zeros((), jnp.int32), self._at_rest())

    def step(
        self, key: Array, state: EnvironmentState, action: Array, params: Model | None = None
    ) -> tuple[Array, EnvironmentState, Array, Array, dict[str, Array]]:
        """Observation, state, reward (), done () bool and info, one step after `state` under an action (actions,).

        key: for the start of the next episode, if this one ends. params: as in `reset`.
        """
        model = self._mechanism(params)
        checks.random_key("key", key)
        observation, after, reward, status, contact = self._advance(model, state, action)
        done = status != 0
        first = self.reset(key, model)
        pick = lambda new, old: jnp.where(done, new, old)
        return (
            *jax.tree.map(pick, first, (observation, after)),
            reward,
            done,
            {"observation": observation, "status": status, "contact": contact},
        )

    def system(self, model: Model) -> ControlSystem:
        """The mechanism as the `ControlSystem` that `PredictiveController` and `optimize_controls` take."""
        mechanism = model if self.robot is None else self.robot.replace(model=model)
        return ControlSystem.of_model(
            mechanism, self.dt, self.actions, self.actuation, self.wrenches, self.method, self.substeps, self.contacts
        )

    # ---- its parts
    def _mechanism(self, params: Model | None) -> Model:
        if params is None:
            return self.mechanism
        if not isinstance(params, Model) or params.tree != self.mechanism.tree:
            raise TypeError(
                f"params must be a Model with the tree of {self.mechanism.name!r}, got {checks.shown(params)}"
            )
        return checked_model(params, leaves=True, argument="params")

    def _state(self, name: str, state: Any, model: Model) -> tuple[Configuration, Array]:
        """The pair (q, v), in which both are of the model."""
        if not isinstance(state, tuple) or len(state) != 2:
            raise TypeError(f"{name} must be a pair (q, v), got {checks.shown(state)}")
        q = checked_configuration(f"{name}.q", state[0], model)
        return q, checked_array(f"{name}.v", state[1], (model.nv,), model.dtype, model=model)

    def _observation(self, model: Model, q: Configuration, v: Array) -> Array:
        found = self.observe(model, q, v)
        if not hasattr(found, "shape") or len(found.shape) != 1:
            raise ValueError(f"observe must return one vector, got {getattr(found, 'shape', found)}")
        return checked_result("observe", found, found.shape, model.dtype)

    def _advance(self, model: Model, state: EnvironmentState, action: Array) -> tuple[Array, Any, Array, Array, Array]:
        system = self.system(model)
        lower, upper = map(jnp.asarray, box(self.bounds, system.controls, model.dtype))
        action = within(checks.array("action", action, (system.controls,), model.dtype), lower, upper)
        checks.of_kind("state", state, EnvironmentState)

        def moved(before: Any, action: Array) -> tuple[Array, Any]:
            (q, v, *activation), contact = self._moved(model, system, before, action)
            observation = self._observation(model, q, v)
            reward = checked_result("reward", self.reward(model, q, v, action), (), model.dtype)
            finite = jnp.isfinite(reward)
            for x in (*jax.tree.leaves(q), v, *activation, observation):
                finite = finite & jnp.all(jnp.isfinite(x))
            return finite, (q, v, activation, contact, observation, reward)

        before = *self._state("state", state[:2], model), *([state.activation] if self._activations() else [])
        finite, (q, v, activation, contact, observation, reward) = moves_if_kept(moved, before, action)
        count = checked_array("state.step", state.step, (), jnp.int32, "the count of steps") + 1
        status = flag(EnvironmentStatus.NOT_FINITE, ~finite) | flag(EnvironmentStatus.HORIZON, count >= self.steps)
        if self.failed is not None:
            failed = jnp.asarray(self.failed(model, q, v))
            if failed.shape != () or failed.dtype != bool:
                raise ValueError(f"failed must return one bool, got {failed.dtype}{list(failed.shape)}")
            status = status | flag(EnvironmentStatus.FAILED, failed)
        after = EnvironmentState(q, v, count, *activation)
        return observation, after, jnp.where(finite, reward, 0), status, contact

    def _activations(self) -> int:
        """Number of activations of a robot's actuators."""
        actuators = None if self.robot is None or self.actuation is not None else self.robot.actuators
        return 0 if actuators is None else actuators.na

    def _at_rest(self) -> Any:
        """Activations at the start of an episode."""
        return jnp.zeros(self._activations(), self.mechanism.dtype) if self._activations() else ()

    def _moved(self, model: Model, system: ControlSystem, before: Any, action: Array) -> tuple[Any, Array]:
        """State after a step, and the `ContactStatus` of it."""
        robot = None if self.robot is None else self.robot.replace(model=model)
        if robot is not None and system.forces is None:
            parts = robot_parts(robot, None, self.contacts, self.method)
            return robot_steps(parts, self.method, self.substeps)(before, action, self.dt)
        if self.contacts is None:
            return system.step(before, action), jnp.zeros((), jnp.int32)
        steps = contact_steps(model, self.contacts, self.dt, self.method, self.substeps)
        assert system.forces is not None
        return steps(before, *system.forces(action))
