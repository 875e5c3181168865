"""The Taylor series of a mechanism's motion, as the Taylor integrator takes it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp

from lgjax.dynamics.spatial import applied_wrenches
from lgjax.dynamics.time_derivatives.series import hybrid_series
from lgjax.multibody.arguments import checked_arguments, checked_array
from lgjax.multibody.model import Model
from lgjax.numerics import checks


@checked_arguments("tau", "wrenches", compiles=False)
def motion_series(
    model: Model,
    tau: Callable | None = None,
    wrenches: Callable | None = None,
) -> Callable:
    """series(t, (q, v), order) for `Taylor`: the coefficients of (v, vdot) along the motion, each (order, nv).

    tau(t, order) -> (order, nv) and wrenches(t, order) -> (order, nbodies, 6), body frame, at the body origin, are the
    Taylor coefficients at t of what is applied; None applies nothing. The space is `mechanical_space(model.tree)`.
    Source: [ali2026] Alg. 3.
    """
    checks.functions(tau=tau, wrenches=wrenches)
    return partial(_series, model, tau, wrenches)


def _series(model: Model, tau: Any, wrenches: Any, t, state, order: int):
    q, v = state
    forces, applied = jnp.zeros((order, model.nv), v.dtype), None
    if tau is not None:
        forces = checked_result("tau", tau(t, order), forces.shape, v.dtype)
    if wrenches is not None:
        series = checked_result("wrenches", wrenches(t, order), (order, model.nbodies, 6), v.dtype)
        applied = [applied_wrenches(model.links, w) for w in series]
    inputs = lambda k, speeds: (None, forces[k])
    rates, _ = hybrid_series(model, q, v, inputs, order - 1, None, applied)
    speeds = [v, *(x / (k + 1) for k, x in enumerate(rates[:-1]))]
    return jnp.stack(speeds), jnp.stack(rates)


def checked_result(name: str, value, shape: tuple[int, ...], dtype):
    """The result of a user's function called `name`, checked to be an array of this shape and dtype."""
    if hasattr(value, "shape") and value.shape != shape:
        raise ValueError(f"{name} returned shape {value.shape}, expected {shape}")
    return checked_array(f"the result of {name}", value, shape, dtype)
