"""Robots in drivers: which of their parts act, and their actuators as a drive.

Read first: `robot_parts`; then `drives.py`, what a drive is.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact import EventDriven, Implicit, TimeStepping
from lgjax.contact.contacts import Contacts, grounds_of
from lgjax.dynamics.forces import Force
from lgjax.dynamics.loops.loop import Loop, as_loops
from lgjax.dynamics.time_derivatives.taylor_series import checked_result
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.robots.actuators import Actuators
from lgjax.robots.robot import Robot
from lgjax.simulate.drives import Drive
from lgjax.simulate.steppers import Forces

Array = jax.Array


class ActuatorRecord(NamedTuple):
    """Record of actuators with memory, with a leading time axis (T,), as the states.

    control: (T, n), as given at the beginning of the step that led to a state; zero at the start. activation: (T, na)
    at the state.
    """

    control: Array
    activation: Array


class RobotParts(NamedTuple):
    """Parts that act on a mechanism besides a controller; none for a Model."""

    model: Model
    loops: tuple[Loop, ...] = ()
    contacts: Contacts | None = None
    forces: Force | None = None
    actuators: Actuators | None = None

    @property
    def acts(self) -> bool:
        """Whether there is more than a model and its contacts."""
        return bool(self.loops) or self.forces is not None or self.actuators is not None


def robot_parts(mechanism: Any, loops: Any, contacts: Any, method: Any) -> RobotParts:
    """The parts of a Model or a Robot, where loops and contacts are given instead of None: these; () is none.

    A robot's own contacts act if its file has a ground and the method is one for contacts.
    """
    model = checked_model(mechanism, leaves=True)
    robot = mechanism if isinstance(mechanism, Robot) else None
    empty = lambda given: isinstance(given, tuple | list) and not given
    if loops is None:
        closed = () if robot is None else robot.loops
    else:
        closed = () if robot is not None and empty(loops) else as_loops(model, loops)
    if empty(contacts):
        touching = None
    elif contacts is None and robot is not None and isinstance(method, TimeStepping | EventDriven):
        of_robot: Any = Contacts  # it takes a Robot too
        touching = of_robot(robot) if grounds_of(robot) else None
    else:
        touching = contacts
    if robot is None:
        return RobotParts(model, closed, touching)
    return RobotParts(model, closed, touching, robot.forces, robot.actuators)


def driven_velocities(model: Model) -> list[int]:
    """Places in v of all joints but the free ones."""
    return [
        i
        for kind, start in zip(model.tree.kinds, model.tree.v_start, strict=True)
        if kind.coordinates != "free_poses"
        for i in range(start, start + kind.nv)
    ]


def constant_control(control: Any, t: Array, q: Any, v: Array) -> Array:
    """A control law that always returns the same."""
    return control


def as_controller(controller: Any, actuators: Actuators | None) -> Any:
    """A controller as a function; of actuators also an array (n,), or None for zeros."""
    if actuators is None:
        return controller
    if controller is None or not callable(controller):
        given = jnp.zeros(len(actuators), actuators.dtype) if controller is None else controller
        given = checks.array("controller", given, (len(actuators),), actuators.dtype)
        return jax.tree_util.Partial(constant_control, given)
    return controller


@dataclass(frozen=True)
class Passive(Drive):
    """A controller of joint forces beside the passive forces of a robot."""

    forces: Any = None

    def act(self, t, q, v, h, record, memory):
        if self.controller is None:
            return Drive(self.forces, self.wrenches).act(t, q, v, h, record, memory)
        own = lambda t, q, v: checked_result("controller", self.controller(t, q, v), v.shape, v.dtype)
        both = lambda t, q, v: own(t, q, v) + self.forces(t, q, v)
        gives = lambda t, q, v: _added(*(force.slopes(t, q, v) for force in (self.controller, self.forces)))
        alone = lambda t, q, v: Implicit(*self.forces.slopes(t, q, v))
        implicit = gives if isinstance(self.controller, Force) else alone
        return Forces(both, self.wrenches, implicit), record, memory


@dataclass(frozen=True)
class Actuated(Drive):
    """Actuators that follow the controls of a controller at once, beside the passive forces of a robot."""

    actuators: Any = None
    forces: Any = None

    def act(self, t, q, v, h, record, memory):
        control = lambda t, q, v: self._control(t, q, v)
        return self._forces(control, lambda t: None), record, memory

    def _control(self, t, q, v):
        shape, found = (len(self.actuators),), self.controller(t, q, v)
        if v.shape != shape and getattr(found, "shape", shape) == v.shape:
            raise ValueError(
                f"controller returned shape {found.shape}, expected {shape}, the controls of the robot's actuators: "
                "to return joint forces, give rollout the robot's model"
            )
        return checked_result("controller", found, shape, v.dtype)

    def _forces(self, control, activation) -> Forces:
        def tau(t, q, v):
            found = self.actuators.torque(q, v, control(t, q, v), activation(t))
            return found if self.forces is None else found + self.forces(t, q, v)

        def implicit(t, q, v):
            found = self.actuators.implicit(q, v, control(t, q, v), activation(t))
            if self.forces is None:
                return found
            stiffness, damping = self.forces.slopes(t, q, v)
            return found._replace(stiffness=found.stiffness + stiffness, damping=found.damping + damping)

        return Forces(tau, self.wrenches, implicit)


@dataclass(frozen=True)
class ActuatedWithMemory(Actuated):
    """Actuators with activations or delays: controls are taken once a step, and held.

    Activations move on during the step, so that every stage of a method sees that of its own time.
    """

    def start(self, q, v):
        state = self.actuators.start()
        record = ActuatorRecord(jnp.zeros(len(self.actuators), v.dtype), state.activation)
        return record, state.history

    @property
    def remembers(self) -> bool:
        return True

    def act(self, t, q, v, h, record, memory):
        control = self._control(t, q, v)
        state = self.actuators.start()._replace(activation=record.activation, history=memory)
        state = self.actuators.pushed(state, control)
        acting = self.actuators.delayed(state, h)
        later = lambda s: state.activation
        if self.actuators.na:
            rates = self.actuators.rates(q, v, acting, state.activation)
            later = lambda s: self.actuators.advance(state.activation, rates, s)
        forces = self._forces(lambda *_: acting, lambda now: later(now - t))
        return forces, ActuatorRecord(control, later(h)), state.history

    def report(self, record):
        return {"actuators": record}


def robot_drive(parts: RobotParts, controller: Any, wrenches: Any) -> Drive:
    """The drive of the actuators and passive forces of a robot."""
    if parts.actuators is None:
        return Passive(controller, wrenches, parts.forces)
    kind = ActuatedWithMemory if remembers(parts.actuators) else Actuated
    return kind(controller, wrenches, parts.actuators, parts.forces)


def remembers(actuators: Actuators) -> bool:
    """Whether actuators have activations or delays."""
    return bool(actuators.na) or actuators.samples != 1


def with_history(actuators: Actuators | None, dt: Any) -> Actuators | None:
    """The actuators with a history that is long enough for their delays in steps of dt."""
    if actuators is None or actuators.samples > 1 or not checks.known(actuators.delay):
        return actuators
    if not np.any(np.asarray(actuators.delay)):
        return actuators
    if not checks.known(dt):
        raise ValueError("delays need memory for a number of steps: with a traced dt give samples= to the actuators")
    return actuators.sampled(float(np.asarray(dt)))


def _added(first, second) -> Implicit:
    return Implicit(first[0] + second[0], first[1] + second[1])
