"""A mechanism as an environment for reinforcement learning: pure `reset` and `step` with automatic resets.

The calls are those of gymnax: reset(key, params) -> observation, state, and step(key, state, action, params) ->
observation, state, reward, done, info. Map both over a batch with `jax.vmap`, scan them, differentiate them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.adapters.space import Space
from lgjax.contact.contacts import Contacts
from lgjax.dynamics.time_derivatives.taylor_series import checked_result
from lgjax.execution._jax import is_inside_jit
from lgjax.integrators import RK4, MuntheKaas
from lgjax.integrators.field import strong
from lgjax.multibody.arguments import checked_array, checked_configuration, checked_model
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.signatures import called_with
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
    """Why an episode ended; 0 means that it goes on. Flags add up.

    OK          0: it goes on
    NOT_FINITE  1: the next state, its observation or its reward was infinite or NaN
    FAILED      2: the environment's function `failed` returned True
    HORIZON     4: the episode has taken all its steps
    """

    OK = 0
    NOT_FINITE = NOT_FINITE
    FAILED = 2
    HORIZON = 4


class EnvironmentState(NamedTuple):
    """State of an episode: the configuration q, the velocity v (nv,), and step () int32, the number of steps taken.

    activation: (na,) of a robot's actuators, () without any. memory: that of the environment's functions, () without.
    """

    q: Configuration
    v: Array
    step: Array
    activation: Any = ()
    memory: Any = ()


class EnvironmentParams(NamedTuple):
    """Parameters of an episode: a model of the same tree, contacts with the same shapes; None: the environment's."""

    model: Model | None = None
    contacts: Contacts | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Environment:
    """Episodes of a mechanism that starts at random, takes actions and earns rewards.

    `step` resets by itself: when an episode is done, it returns the first observation and state of the next one. Its
    info has "observation", the last of the episode, "status", an `EnvironmentStatus`, and "contact", the
    `ContactStatus` of the step, 0 without contacts; a contact that is not solved does not end the episode. A state that
    is not finite ends it with reward 0 and derivative 0. Gradients pass through the dynamics and stop at a reset.
    Outside `jit` both are compiled once; what their functions read besides their arguments is then fixed.

    Args:
        model: the mechanism, or a `Robot`, whose actions are the controls of its actuators and whose loops, forces and
            contacts act. An episode may have another model with the same tree, its parameters `params`, and other
            contacts: `EnvironmentParams`.
        dt: length of a step, s; the action is held during it.
        steps: number of steps in an episode, the horizon.
        start: (key, model) -> (q, v), drawn at random.
        observe: (model, q, v) -> vector (observation_size,).
        reward: (model, q, v, action) -> number, from the state after a step and the action that led to it.
        failed: (model, q, v) -> bool, True where an episode ends before its horizon; None for never.
        remember: (model, q, v, action, memory) -> memory after a step, such as the last action; None for no memory.
            With it `start` returns (q, v, memory), a pytree of arrays, and the other three functions take it as one
            more argument: `observe` and `failed` the memory after the step, `reward` the one before.
        bounds: (lower, upper) to which actions are clipped, numbers or (actions,); None for no bounds.
        actions: number of entries of an action, by default one for each joint velocity but those of free joints.
        actuation, wrenches, method, substeps, contacts: as in `control.ControlSystem.of_model`.

    Raises:
        TypeError, ValueError: naming the argument, for wrong sizes, shapes and dtypes.
    """

    model: Any
    dt: float
    steps: int
    start: Callable[[Array, Model], tuple]
    observe: Callable[..., Array]
    reward: Callable[..., Array]
    failed: Callable[..., Array] | None = None
    remember: Callable[..., Any] | None = None
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
        checks.functions(failed=self.failed, remember=self.remember)
        memory = () if self.remember is None else ("memory",)
        called_with("start", self.start, "key", "model")
        called_with("observe", self.observe, "model", "q", "v", *memory)
        called_with("reward", self.reward, "model", "q", "v", "action", *memory)
        if self.failed is not None:
            called_with("failed", self.failed, "model", "q", "v", *memory)
        if self.remember is not None:
            called_with("remember", self.remember, "model", "q", "v", "action", "memory")
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
        return jax.eval_shape(self._reset, jax.random.key(0), None)[0].shape[0]

    @property
    def action_space(self) -> Space:
        """Shape, bounds and dtype of an action."""
        lower, upper = box(self.bounds, self.num_actions, self.mechanism.dtype)
        return Space(lower.shape, lower, upper)

    @property
    def observation_space(self) -> Space:
        """Shape, bounds and dtype of an observation: finite numbers without bounds."""
        endless = np.full(self.observation_size, np.inf, self.mechanism.dtype)
        return Space(endless.shape, -endless, endless)

    # ---- an episode
    def reset(self, key: Array, params: Model | EnvironmentParams | None = None) -> tuple[Array, EnvironmentState]:
        """First observation and state of an episode.

        Args:
            key: a key of `jax.random`.
            params: a `Model` with the tree of `model`, or `EnvironmentParams`; None for `model`.
        """
        return self._call("_reset", key, params)

    def step(
        self, key: Array, state: EnvironmentState, action: Array, params: Model | EnvironmentParams | None = None
    ) -> tuple[Array, EnvironmentState, Array, Array, dict[str, Array]]:
        """Observation, state, reward (), done () bool and info, one step after `state`.

        Args:
            key: for the start of the next episode, if this one ends.
            state: `EnvironmentState` that `reset` or `step` returned.
            action: (actions,), or one number for all.
            params: as in `reset`.
        """
        return self._call("_step", key, state, action, params)

    def _call(self, name: str, *args: Any) -> Any:
        """A method as one program outside `jit`, which is compiled once."""
        function = getattr(self, name)
        if is_inside_jit() or not all(isinstance(x, jax.Array | np.ndarray) for x in jax.tree.leaves(args)):
            return function(*args)
        return self._programs.setdefault(name, jax.jit(function))(*args)

    @cached_property
    def _programs(self) -> dict[str, Any]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_programs"}

    def _reset(self, key: Array, params: Any) -> tuple[Array, EnvironmentState]:
        model, _ = self._parameters(params)
        checks.random_key("key", key)
        found = strong(self.start(key, model), "start")
        memory = ()
        if self.remember is not None:
            if not isinstance(found, tuple) or len(found) != 3:
                raise TypeError(f"start must be (q, v, memory), got {checks.shown(found)}")
            *found, memory = found
            found = tuple(found)
        q, v = self._state("start", found, model)
        state = EnvironmentState(q, v, jnp.zeros((), jnp.int32), self._at_rest(), memory)
        return self._observation(model, q, v, *self._of(memory)), state

    def _step(self, key: Array, state: EnvironmentState, action: Array, params: Any) -> tuple:
        model, contacts = self._parameters(params)
        checks.random_key("key", key)
        observation, after, reward, status, contact = self._advance(model, contacts, state, action)
        done = status != 0
        first = self._reset(key, params)
        pick = lambda new, old: jnp.where(done, new, old)
        return (
            *jax.tree.map(pick, first, (observation, after)),
            reward,
            done,
            {"observation": observation, "status": status, "contact": contact},
        )

    def system(self, model: Model) -> ControlSystem:
        """The mechanism as the `ControlSystem` that `PredictiveController` and `optimize_controls` take."""
        return self._system(model, self.contacts)

    # ---- its parts
    def _system(self, model: Model, contacts: Contacts | None) -> ControlSystem:
        mechanism = model if self.robot is None else self.robot.replace(model=model)
        return ControlSystem.of_model(
            mechanism, self.dt, self.actions, self.actuation, self.wrenches, self.method, self.substeps, contacts
        )

    def _parameters(self, params: Any) -> tuple[Model, Contacts | None]:
        model, contacts = params if isinstance(params, EnvironmentParams) else (params, None)
        if contacts is None:
            contacts = self.contacts
        elif jax.tree.structure(contacts) != jax.tree.structure(self.contacts):
            raise TypeError(
                f"params.contacts must be the environment's contacts with other numbers, got {checks.shown(contacts)}: "
                "make them by `contacts.replace`"
            )
        if model is None:
            return self.mechanism, contacts
        if not isinstance(model, Model) or model.tree != self.mechanism.tree:
            raise TypeError(
                f"params must be a Model with the tree of {self.mechanism.name!r}, got {checks.shown(model)}"
            )
        return checked_model(model, leaves=True, argument="params"), contacts

    def _of(self, memory: Any) -> tuple:
        """The memory as a further argument of the functions, where there is one."""
        return () if self.remember is None else (memory,)

    def _state(self, name: str, state: Any, model: Model) -> tuple[Configuration, Array]:
        """The pair (q, v), in which both are of the model."""
        if not isinstance(state, tuple) or len(state) != 2:
            raise TypeError(f"{name} must be a pair (q, v), got {checks.shown(state)}")
        q = checked_configuration(f"{name}.q", state[0], model)
        return q, checked_array(f"{name}.v", state[1], (model.nv,), model.dtype, model=model)

    def _observation(self, model: Model, q: Configuration, v: Array, *memory: Any) -> Array:
        found = self.observe(model, q, v, *memory)
        if not hasattr(found, "shape") or len(found.shape) != 1:
            raise ValueError(f"observe must return one vector, got {getattr(found, 'shape', found)}")
        return checked_result("observe", found, found.shape, model.dtype)

    def _advance(self, model: Model, contacts: Contacts | None, state: EnvironmentState, action: Array) -> tuple:
        system = self._system(model, contacts)
        lower, upper = map(jnp.asarray, box(self.bounds, system.controls, model.dtype))
        action = within(checks.array("action", action, (system.controls,), model.dtype), lower, upper)
        checks.of_kind("state", state, EnvironmentState)

        def moved(before: Any, action: Array) -> tuple[Array, Any]:
            (q, v, *activation), contact = self._moved(model, contacts, system, before[:-1], action)
            old = self._of(before[-1])
            memory = self._remembered(model, q, v, action, before[-1])
            observation = self._observation(model, q, v, *self._of(memory))
            reward = checked_result("reward", self.reward(model, q, v, action, *old), (), model.dtype)
            finite = jnp.isfinite(reward)
            for x in (*jax.tree.leaves(q), v, *activation, observation):
                finite = finite & jnp.all(jnp.isfinite(x))
            return finite, (q, v, activation, memory, contact, observation, reward)

        activation = [state.activation] if self._activations() else []
        before = *self._state("state", state[:2], model), *activation, state.memory
        finite, (q, v, activation, memory, contact, observation, reward) = moves_if_kept(moved, before, action)
        count = checked_array("state.step", state.step, (), jnp.int32, "the count of steps") + 1
        status = flag(EnvironmentStatus.NOT_FINITE, ~finite) | flag(EnvironmentStatus.HORIZON, count >= self.steps)
        if self.failed is not None:
            failed = jnp.asarray(self.failed(model, q, v, *self._of(memory)))
            if failed.shape != () or failed.dtype != bool:
                raise ValueError(f"failed must return one bool, got {failed.dtype}{list(failed.shape)}")
            status = status | flag(EnvironmentStatus.FAILED, failed)
        after = EnvironmentState(q, v, count, activation[0] if activation else (), memory)
        return observation, after, jnp.where(finite, reward, 0), status, contact

    def _remembered(self, model: Model, q: Configuration, v: Array, action: Array, memory: Any) -> Any:
        if self.remember is None:
            return memory
        after = strong(self.remember(model, q, v, action, memory), "remember")
        kinds = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
        if jax.tree.structure(after) != jax.tree.structure(memory) or kinds(after) != kinds(memory):
            raise TypeError(f"remember must return a memory like that of start, {kinds(memory)}, got {kinds(after)}")
        return after

    def _activations(self) -> int:
        """Number of activations of a robot's actuators."""
        actuators = None if self.robot is None or self.actuation is not None else self.robot.actuators
        return 0 if actuators is None else actuators.na

    def _at_rest(self) -> Any:
        """Activations at the start of an episode."""
        return jnp.zeros(self._activations(), self.mechanism.dtype) if self._activations() else ()

    def _moved(self, model: Model, contacts: Any, system: ControlSystem, before: Any, action: Array) -> Any:
        """State after a step, and the `ContactStatus` of it."""
        robot = None if self.robot is None else self.robot.replace(model=model)
        if robot is not None and system.forces is None:
            parts = robot_parts(robot, None, contacts, self.method)
            return robot_steps(parts, self.method, self.substeps)(before, action, self.dt)
        if contacts is None:
            return system.step(before, action), jnp.zeros((), jnp.int32)
        steps = contact_steps(model, contacts, self.dt, self.method, self.substeps)
        assert system.forces is not None
        return steps(before, *system.forces(action))
