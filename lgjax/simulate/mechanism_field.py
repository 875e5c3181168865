"""The equations of motion of a mechanism as a field for an integrator."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from lgjax.dynamics.forward import forward_dynamics
from lgjax.dynamics.loops import Loop, constrained_forward_dynamics
from lgjax.dynamics.time_derivatives.taylor_series import checked_result
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model

Array = jax.Array
State = tuple[Configuration, Array]
Controller = Callable[[Array, Configuration, Array], Array]


def mechanism_field(
    model: Model,
    controller: Controller | None = None,
    wrenches: Controller | None = None,
    loops: Sequence[Loop] = (),
    *,
    alpha: Any = 0.0,
    beta: Any = 0.0,
    dynamics: Callable[..., Array] = forward_dynamics,
) -> Callable[[Array, State], tuple[Array, Array]]:
    """The field (t, (q, v)) -> (v, vdot) of a mechanism on `mechanical_space(model.tree)`.

    controller(t, q, v) -> tau (nv,) and wrenches(t, q, v) -> (nbodies, 6), body frame, at the body origin; None applies
    nothing. dynamics(model, q, v, tau, wrenches) -> vdot (nv,) gives the accelerations of a tree; with loops
    `constrained_forward_dynamics` does, stabilized by alpha and beta, 1/s.
    Raises TypeError for anything but a function; the field raises ValueError for results of the wrong shape or dtype.
    """
    check_functions(controller, wrenches)

    def field(t: Array, state: State) -> tuple[Array, Array]:
        q, v = state
        tau, applied = 0 * v, None
        if controller is not None:
            tau = checked_result("controller", controller(t, q, v), v.shape, v.dtype)
        if wrenches is not None:
            applied = checked_result("wrenches", wrenches(t, q, v), (model.nbodies, 6), v.dtype)
        if loops:
            found = constrained_forward_dynamics(model, loops, q, v, tau, applied, alpha=alpha, beta=beta)
            return v, found.vdot
        return v, dynamics(model, q, v, tau, applied)

    return field


def check_functions(controller: Any, wrenches: Any) -> None:
    """Raise TypeError for anything but functions and None."""
    for name, function in (("controller", controller), ("wrenches", wrenches)):
        if function is not None and not callable(function):
            raise TypeError(f"{name} is of type {type(function).__name__}, expected a function of (t, q, v) or None")
