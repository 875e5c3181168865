"""Rigid contact of trees by events: every impact, release, slip and stop at its own time, and smooth motion between.

A step of dt is made of *parts*. The tree flows in its mode by an integrator with error control until a guard vanishes
or the step ends; the time of an event is found to round-off, by steps of the same method. There velocities jump where
contacts approach, and the law of contact chooses the next mode. Every step begins with that choice, so the mode is a
function of the state and nothing else is carried from step to step.

Derivatives are those of the recorded parts, computed again in a loop of fixed length. An event that happens later by
dT moves the state before it along the old field by dT, and shortens the next part by dT: together with the derivative
of the reset that is the saltation matrix. Second derivatives, which need the curvature of all of these, are refused.

Read first: `modes.py`. Next: `event_loop.py`. Source: E. Hairer, S. Norsett, G. Wanner, Solving ordinary differential
equations I (1993), section II.6, for event location; M. di Bernardo et al., Piecewise-smooth dynamical systems (2008),
section 2.5, for saltation matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.contacts import Contacts
from lgjax.contact.event_loop import EventStep, Settings, System
from lgjax.contact.time_stepping import TOLERANCE_EPS
from lgjax.execution.first_order import first_order
from lgjax.execution.kept import keep
from lgjax.integrators import DORMAND_PRINCE54, Method, MuntheKaas
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.tangents import branches, pushed

Array = jax.Array


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class EventDriven:
    """Rigid contacts with every event at its own time, for `rollout`, `ensemble` and `ControlSystem.of_model`.

    It suits few contacts, high accuracy and derivatives through impacts; see `TimeStepping` for many contacts. The
    controller is evaluated at every stage of the method. Where it jumps in time, as a control that is held for a while,
    a step takes many parts or stops early: give each rollout one value, from jump to jump. There are first derivatives;
    a second one raises TypeError.

    On a `HeightField` a contact that stays closed has jumps of its acceleration, or of its velocity, at the edges of
    cells where the slope changes. They are no events: a step that meets one may need more than max_parts and stop
    early, with the status TOO_MANY_PARTS.

    The status says NOT_SOLVED also where a contact is deeper than 1e-6 m (1e-4 m in float32) at the end of a step, and
    where a traced number is out of its range: dt, rtol, atol, or friction, restitution and smoothing of the contacts;
    smoothing must be 0.

    Args:
        rtol, atol: error of the smooth motion in a step of the integrator, as in `integrate_adaptive`; may be traced.
        max_parts: largest number of parts of a step of dt; an impact takes three: the motion towards it, the jump, and
            the choice of what follows. A step that needs more stops early, and the status says TOO_MANY_PARTS. Once
            half of them are used up, a contact whose bounces would all end within dt comes to rest at once.
        method: integrator of the smooth motion, with an embedded one that estimates its error.
        max_sweeps: as in `TimeStepping`.

    Raises:
        ValueError: for numbers out of range and for a method without an embedded one.

    Source: that of `lgjax.contact.event_driven`.
    """

    rtol: Any = 1e-10
    atol: Any = 1e-12
    max_parts: int = 32
    method: Method = MuntheKaas(DORMAND_PRINCE54)  # noqa: RUF009 (a hashable value)
    max_sweeps: int = 200

    driver = "rollout with contacts="

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            if checks.known(getattr(self, name)):
                value = checks.number(name, getattr(self, name), 0.0, inside=True)
                object.__setattr__(self, name, value)
        for name, least in (("max_parts", 2), ("max_sweeps", 1)):
            object.__setattr__(self, name, checks.integer(name, getattr(self, name), least))
        if getattr(self.method, "order_hat", None) is None:
            raise ValueError(
                f"EventDriven needs a method with an embedded one, such as the default; got {checks.shown(self.method)}"
            )

    def tree_flatten(self):
        return (self.rtol, self.atol), (self.max_parts, self.method, self.max_sweeps)

    @classmethod
    def tree_unflatten(cls, static, leaves) -> EventDriven:
        copy = object.__new__(cls)
        names = ("rtol", "atol", "max_parts", "method", "max_sweeps")
        for name, value in zip(names, (*leaves, *static), strict=True):
            object.__setattr__(copy, name, value)
        return copy


def event_step(
    model: Model,
    contacts: Contacts,
    q: Configuration,
    v: Array,
    forces: Callable[[Array, Configuration, Array], tuple[Array, Array | None]],
    dt: Array,
    method: EventDriven,
) -> EventStep:
    """The state dt seconds after (q, v), v (nv,), with every event between at its own time.

    forces(s, q, v) -> tau (nv,) and wrenches (nbodies, 6), body frame, or None; s: seconds since the start of the step.
    """
    dtype = model.dtype
    pure, parameters = jax.closure_convert(forces, jnp.zeros((), dtype), q, v)
    tolerances = tuple(jnp.asarray(x, dtype) for x in (method.rtol, method.atol))
    dt = jnp.asarray(dt, dtype)
    scanned = method.method.with_scanned_stages()
    settings = Settings(scanned, method.max_parts, TOLERANCE_EPS * float(jnp.finfo(dtype).eps), method.max_sweeps)
    return _step(settings, pure, (model, contacts, (q, v), dt, tolerances, parameters))[0]


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _step(settings: Settings, forces: Callable, data) -> tuple[EventStep, Any]:
    return keep(System(settings, forces, *data).run())


@_step.defjvp
def _(settings, forces, primals, tangents):
    """Derivatives of the recorded parts. Only a user's forces may branch; our own branches are safe, see `replay`."""
    found, record = keep(_step(settings, forces, *primals))
    primals = first_order(primals, "a step by contact.EventDriven")
    again = lambda data: System(settings, forces, *data).replay(*jax.lax.stop_gradient((record, found.parts)))
    _, _, state, dt, _, parameters = primals[0]
    if branches(forces, dt, *state, *parameters):
        (q, v), impulse = pushed(jax.linearize(again, *primals)[1], *tangents)
    else:
        (q, v), impulse = jax.jvp(again, primals, tangents)[1]
    change = jax.tree.map(_no_tangent, (found, record))
    return (found, record), (change[0]._replace(q=q, v=v, impulse=impulse.reshape(-1, 3)), change[1])


def _no_tangent(x: Array) -> Any:
    return jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.floating) else np.zeros(x.shape, jax.dtypes.float0)
