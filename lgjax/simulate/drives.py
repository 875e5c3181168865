"""Where the forces of a step come from: functions of the state, or controllers with memory.

Read first: `Drive`. A drive has a `record`, which is saved with the states, and a `memory`, which is not.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact import Implicit
from lgjax.dynamics.forces import Force
from lgjax.dynamics.time_derivatives.taylor_series import checked_result
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.status import NOT_FINITE, UNCHANGED, flag
from lgjax.simulate.mechanism_field import Controller
from lgjax.simulate.steppers import Forces

Array = jax.Array


@runtime_checkable
class ControllerWithMemory(Protocol):
    """A control law that remembers: memory = init(state), then control, memory = step(state, memory), both pure.

    every: steps of `rollout` for which a control is held. forces(control) -> tau (nv,) and wrenches (nbodies, 6) or
    None. `control.PredictiveController` is one.
    """

    @property
    def every(self) -> int: ...

    def init(self, state: Any) -> Any: ...

    def step(self, state: Any, memory: Any) -> tuple[Array, Any]: ...

    def forces(self, control: Array) -> tuple[Array, Array | None]: ...


class ControlRecord(NamedTuple):
    """Record of a controller with memory, with a leading time axis (T,), as the states.

    controls: (T, controls), during the step that led to a state; zero at the start. status: (T,) int32, that of its
    memory then, or 0 if it has none.
    """

    controls: Array
    status: Array


@dataclass(frozen=True)
class Drive:
    """Forces that are functions of (t, q, v): a controller, or a `forces.Force`, and wrenches."""

    controller: Any = None
    wrenches: Controller | None = None

    @property
    def in_kernel(self) -> bool:
        """Whether a step and its forces may be one kernel."""
        return True

    @property
    def remembers(self) -> bool:
        """Whether forces differ from step to step, so that a method has nothing to carry over."""
        return False

    def start(self, q: Configuration, v: Array) -> tuple[Any, Any]:
        """Record and memory before the first step."""
        return (), ()

    def act(self, t: Array, q: Configuration, v: Array, h: Array, record: Any, memory: Any) -> tuple[Forces, Any, Any]:
        """Forces during the step of h from (t, q, v), with the new record and memory."""
        gives = None
        if isinstance(self.controller, Force):
            gives = lambda t, q, v: Implicit(*self.controller.slopes(t, q, v))
        return Forces(self.controller, self.wrenches, gives), record, memory

    def status(self, record: Any) -> Any:
        """Flags () of all steps up to a record."""
        return 0

    def report(self, record: Any) -> dict[str, Any]:
        """Fields of `Trajectory` from the saved records."""
        return {}


class Failures(NamedTuple):
    """Steps so far (), those at which the memory said NOT_FINITE, and whether each said that or UNCHANGED."""

    steps: Array
    lost: Array
    all: Array


MANY = 10  # a run is a success if at most one search in so many ends NOT_FINITE


@dataclass(frozen=True)
class HeldControl(Drive):
    """A `ControllerWithMemory`: its control acts for `every` steps. A search may be in it, which is no one kernel.

    Its record is a `ControlRecord` and `Failures`.
    """

    model: Any = None

    @property
    def in_kernel(self) -> bool:
        return False

    @property
    def remembers(self) -> bool:
        return True

    def start(self, q, v):
        memory = self.controller.init((q, v))
        control = jax.eval_shape(lambda state: self.controller.step(state, memory)[0], (q, v))
        record = ControlRecord(jnp.zeros(control.shape, control.dtype), jnp.zeros((), jnp.int32))
        none = jnp.zeros((), jnp.int32)
        return (record, Failures(none, none, jnp.ones((), bool))), (memory, none)

    def act(self, t, q, v, h, record, memory):
        (record, failures), (memory, count) = record, memory
        act = lambda: self.controller.step((q, v), memory)
        if self.controller.every == 1:
            control, memory = act()
        else:
            due = count % self.controller.every == 0
            control, memory = jax.lax.cond(due, act, lambda: (record.controls, memory))
        tau, own = self.controller.forces(control)
        pushed = None if own is None and self.wrenches is None else lambda t, q, v: self._wrenches(own, t, q, v)
        status = jnp.asarray(getattr(memory, "status", 0), jnp.int32)
        lost, failed = (status & NOT_FINITE) != 0, (status & (NOT_FINITE | UNCHANGED)) != 0
        failures = Failures(failures.steps + 1, failures.lost + lost.astype(jnp.int32), failures.all & failed)
        return Forces(lambda t, q, v: tau, pushed), (ControlRecord(control, status), failures), (memory, count + 1)

    def status(self, record):
        failures = record[1]
        return flag(UNCHANGED, failures.all | (MANY * failures.lost > failures.steps))

    def report(self, record):
        return {"control": record[0]}

    def _wrenches(self, own: Array | None, t: Array, q: Any, v: Array) -> Array:
        if self.wrenches is None:
            assert own is not None
            return own
        given = checked_result("wrenches", self.wrenches(t, q, v), (self.model.nbodies, 6), v.dtype)
        return given if own is None else given + own


def check_period(controller: Any, dt: Any) -> None:
    """ValueError for a known step that does not fit to the one that a controller with memory plans with."""
    period = getattr(getattr(controller, "system", None), "dt", None)
    if period is not None and checks.known(dt):
        step, wanted = float(np.asarray(dt)), period / controller.every
        if abs(step - wanted) > 1e-5 * wanted:
            raise ValueError(
                f"dt is {step:g} s, the controller's system has steps of {period:g} s for {controller.every} of the "
                f"rollout's: take dt={wanted:g} or another `every`"
            )


def drive_of(model: Model, controller: Any, wrenches: Controller | None) -> Drive:
    """The drive of a controller of `rollout`."""
    if isinstance(controller, ControllerWithMemory):
        return HeldControl(controller, wrenches, model)
    return Drive(controller, wrenches)
