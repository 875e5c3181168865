"""The Taylor series of a mechanism's motion, as the Taylor integrator takes it."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.experimental import jet

from lgjax.dynamics.recursion import applied_wrenches
from lgjax.dynamics.series import hybrid_series
from lgjax.multibody.model import Model
from lgjax.multibody.traversal import Execution


def motion_series(
    model: Model,
    tau: Callable | None = None,
    wrenches: Callable | None = None,
    *,
    execution: Execution = "scalarised",
) -> Callable:
    """series(t, (q, v), order) for `Taylor`: the coefficients of (v, vdot) along the motion, each (order, nv).

    tau(t) -> (nv,) and wrenches(t) -> (nbodies, 6), body frame, at the body origin, are smooth functions of time that
    `jax.experimental.jet` can differentiate; None applies nothing. The space is `mechanical_space(model.tree)`.
    Source: [ali2026] Alg. 3 and the series in body frames.
    """

    def series(t, state, order: int):
        q, v = state
        forces = _expanded(tau, t, order) if tau else [jnp.zeros_like(v)] * order
        applied = None
        if wrenches:
            applied = [applied_wrenches(model.links, w) for w in _expanded(wrenches, t, order)]
        inputs = lambda k, speeds: (None, forces[k])
        rates, _ = hybrid_series(model, q, v, inputs, order - 1, None, applied, execution)
        speeds = [v, *(x / (k + 1) for k, x in enumerate(rates[:-1]))]
        return jnp.stack(speeds), jnp.stack(rates)

    return series


def _expanded(f: Callable, t, order: int) -> list[jax.Array]:
    """Taylor coefficients 0 ... order - 1 of f at t."""
    t = jnp.asarray(t)
    if order == 1:
        return [f(t)]
    steps = [jnp.ones_like(t), *(jnp.zeros_like(t),) * (order - 2)]
    first, rest = jet.jet(f, (t,), (steps,))
    return [first, *(x / math.factorial(k) for k, x in enumerate(rest, 1))]
