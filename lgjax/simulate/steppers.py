"""One protocol for the steps of a mechanism: smooth methods, closed loops, rigid contacts.

A stepper takes (q, v) from t to t + h under forces, and carries two things: `seen`, which is saved with the states
(contacts and loops so far), and `carry`, which is not (what a method needs from step to step). Read first: `Stepper`.
Next: `drives.py`, where forces come from, and `rollout.py`, which brings both together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact import Implicit
from lgjax.dynamics.time_derivatives.taylor_series import checked_result, motion_series
from lgjax.integrators.method import Method
from lgjax.multibody.configuration import Configuration, mechanical_space
from lgjax.multibody.model import Model
from lgjax.simulate.mechanism_field import Controller, mechanism_field

Array = jax.Array


class Forces(NamedTuple):
    """Forces during a step, functions of (t, q, v); None for nothing.

    tau -> (nv,). wrenches -> (nbodies, 6), body frame. implicit -> `contact.Implicit`, how tau changes with the state.
    """

    tau: Controller | None = None
    wrenches: Controller | None = None
    implicit: Callable[[Array, Configuration, Array], Implicit] | None = None


class Stepper:
    """How a mechanism moves on. Inherit from it and define `step`; the rest has defaults."""

    model: Model

    def first_seen(self, q: Configuration, v: Array) -> Any:
        """The record before the first step, a pytree of arrays."""
        return ()

    def first_carry(self, forces: Forces, t: Array, q: Configuration, v: Array) -> Any:
        """Carry of the first step, in place of that of a previous one."""
        return ()

    def step(
        self, forces: Forces, t: Array, q: Configuration, v: Array, h: Array, seen: Any, carry: Any
    ) -> tuple[Configuration, Array, Any, Any]:
        """(q, v), the record and the carry after a step of h."""
        raise NotImplementedError

    def status(self, seen: Any) -> Array:
        """Flags () int32 of all steps up to a record."""
        return jnp.zeros((), jnp.int32)

    def report(self, qs: Configuration, vs: Array, seen: Any, h: Array) -> dict[str, Any]:
        """Fields of `Trajectory` from the saved states (T,) and records, but for the status."""
        return {}

    # ---- what acts, checked
    def tau(self, forces: Forces, t: Array, q: Configuration, v: Array) -> Array:
        if forces.tau is None:
            return jnp.zeros_like(v)
        return checked_result("controller", forces.tau(t, q, v), v.shape, v.dtype)

    def applied(self, forces: Forces, t: Array, q: Configuration, v: Array) -> Array | None:
        if forces.wrenches is None:
            return None
        return checked_result("wrenches", forces.wrenches(t, q, v), (self.model.nbodies, 6), v.dtype)


@dataclass(frozen=True)
class SmoothSteps(Stepper):
    """Steps of a method of `lgjax.integrators`. loops, gains: as `mechanism_field` takes them."""

    model: Model
    method: Method
    loops: tuple = ()
    gains: tuple = (0.0, 0.0)

    def first_carry(self, forces, t, q, v):
        return self.method.init(self._space(), self._field(forces), t, (q, v))

    def step(self, forces, t, q, v, h, seen, carry):
        (q, v), carry = self.method.step(self._space(), self._field(forces), t, (q, v), h, carry)
        return q, v, seen, carry

    def _space(self):
        return mechanical_space(self.model.tree)

    def _field(self, forces: Forces):
        if self.method.needs_series:
            return motion_series(self.model)
        alpha, beta = self.gains
        return mechanism_field(self.model, forces.tau, forces.wrenches, self.loops, alpha=alpha, beta=beta)
