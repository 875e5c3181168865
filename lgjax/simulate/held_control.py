"""Controllers with memory in `rollout`: they act at some steps, and what they decide is held in between."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.time_derivatives.taylor_series import checked_result
from lgjax.integrators.method import Method
from lgjax.multibody.configuration import mechanical_space
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.simulate.mechanism_field import mechanism_field

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
    """What a controller with memory did, with a leading time axis (T,), as the states.

    controls: (T, controls), during the step that led to a state; zero at the start. status: (T,) int32, that of its
    memory then, or 0 if it has none.
    """

    controls: Array
    status: Array


@dataclass(frozen=True)
class HeldControl(Method):
    """A method for one mechanism under a controller with memory, on states ((q, v), `ControlRecord` of the last step).

    The memory is carried from step to step and never saved.
    """

    model: Model
    method: Method
    controller: Any
    wrenches: Callable[..., Array] | None

    @property
    def one_step_is_one_call(self) -> bool:
        """True: a step has a whole search in it, which is no one function."""
        return True

    def init(self, space: Any, field: Any, t: Array, y: Any) -> Any:
        return self.controller.init(y[0]), jnp.zeros((), jnp.int32)

    def step(self, space: Any, field: Any, t: Array, y: Any, h: Array, carry: Any) -> tuple[Any, Any]:
        state, seen = y
        memory, count = carry
        act = lambda: self.controller.step(state, memory)
        if self.controller.every == 1:
            control, memory = act()
        else:
            due = count % self.controller.every == 0
            control, memory = jax.lax.cond(due, act, lambda: (seen.controls, memory))
        tau, own = self.controller.forces(control)
        pushed = None if own is None and self.wrenches is None else lambda t, q, v: self._wrenches(own, t, q, v)
        field = mechanism_field(self.model, lambda t, q, v: tau, pushed)
        new, _ = self.method.step(space, field, t, state, h, self.method.init(space, field, t, state))
        status = jnp.asarray(getattr(memory, "status", 0), jnp.int32)
        return (new, ControlRecord(control, status)), (memory, count + 1)

    def _wrenches(self, own: Array | None, t: Array, q: Any, v: Array) -> Array:
        if self.wrenches is None:
            assert own is not None
            return own
        given = checked_result("wrenches", self.wrenches(t, q, v), (self.model.nbodies, 6), v.dtype)
        return given if own is None else given + own


def with_memory(model: Model, start: Any, controller: Any, wrenches: Any, method: Method, dt: Array) -> Any:
    """Space, field, start and method for `integrate`; ValueError for a step that does not fit to the controller."""
    period = getattr(getattr(controller, "system", None), "dt", None)
    if period is not None and checks.known(dt):
        step, wanted = float(np.asarray(dt)), period / controller.every
        if abs(step - wanted) > 1e-5 * wanted:
            raise ValueError(
                f"dt is {step:g} s, the controller's system has steps of {period:g} s for {controller.every} of the "
                f"rollout's: take dt={wanted:g} or another `every`"
            )
    control = jax.eval_shape(lambda state: controller.step(state, controller.init(state))[0], start)
    record = ControlRecord(jnp.zeros(control.shape, control.dtype), jnp.zeros((), jnp.int32))
    space, stepper = mechanical_space(model.tree), HeldControl(model, method, controller, wrenches)
    return space, lambda t, y: y, (start, record), stepper
