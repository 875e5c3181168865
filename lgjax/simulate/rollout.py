"""Time stepping of one mechanism: one `lax.scan`, to be mapped over as many as there are."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lgjax.dynamics.forward import forward_dynamics
from lgjax.dynamics.time_derivatives.taylor_series import checked_result, motion_series
from lgjax.execution.compiled import compiled
from lgjax.integrators import RK4, MuntheKaas, Taylor, integrate
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration, mechanical_space
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.saving.checkpoint import Checkpoint

Controller = Callable[[jax.Array, Configuration, jax.Array], jax.Array]


class Trajectory(NamedTuple):
    """States at the saved times; every leaf has a leading time axis (T,).

    ts: (T,) s. q: Configuration. v: (T, nv). finite: () bool, false if any saved state is infinite or NaN.
    """

    ts: jax.Array
    q: Configuration
    v: jax.Array
    finite: jax.Array


@checked_arguments("wrenches", compiles=False)
def rollout(
    model: Model,
    q: Configuration,
    v,
    controller: Controller | None,
    dt,
    steps: int,
    method=MuntheKaas(RK4),  # noqa: B008 (a hashable value)
    save_every: int | None = 1,
    wrenches: Controller | None = None,
    remat: bool | int = False,
    checkpoint: Checkpoint | None = None,
) -> Trajectory:
    """The motion from (q, v) over `steps` steps of dt seconds.

    controller(t, q, v) -> tau (nv,), held to within the method's stages, not sampled; None applies no force.
    wrenches(t, q, v) -> (nbodies, 6), body frame, at the body origin. dt may be traced; steps, method and save_every
    (a divisor of steps, or None for the final state alone) are static. Differentiable in everything that is traced, in
    both modes; forward mode (`jax.jacfwd`) is the one for few parameters, and with `remat` reverse mode keeps memory
    for √steps steps only, see `integrate`; `rollout_memory` predicts it. `checkpoint`, a `lgjax.saving.Checkpoint`,
    writes a long run to a folder part by part, from which it can be resumed. Raises ValueError for a controller that
    returns the wrong shape.

    Outside jit a call compiles once for each structure of its arguments. A controller belongs to that by its code and
    by what it closes over and names, as long as nothing of that can change in place: numbers and JAX arrays, not lists,
    NumPy arrays or objects. With others, and with `checkpoint`, every call compiles; a `forces.Force` never does.
    """
    dt, v = checks.array("dt", dt, (), model.dtype), jnp.asarray(v)
    for name, function in (("controller", controller), ("wrenches", wrenches)):
        if function is not None and not callable(function):
            raise TypeError(f"{name} is of type {type(function).__name__}, expected a function of (t, q, v) or None")
    run = compiled(_rollout) if checkpoint is None else _rollout
    return run(model, q, v, controller, wrenches, dt, steps, method, save_every, remat, checkpoint)


def _rollout(
    model: Model, q: Configuration, v, controller, wrenches, dt, steps, method, save_every, remat, checkpoint
) -> Trajectory:
    def field(t, state):
        q, v = state
        tau = 0 * v if controller is None else checked_result("controller", controller(t, q, v), v.shape, v.dtype)
        applied = None
        if wrenches is not None:
            applied = checked_result("wrenches", wrenches(t, q, v), (model.nbodies, 6), v.dtype)
        return v, forward_dynamics(model, q, v, tau, applied)

    if isinstance(method, Taylor):
        if controller is not None or wrenches is not None:
            raise ValueError("rollout takes Taylor for a passive motion alone; for forces see motion_series")
        field = motion_series(model)
    if isinstance(method, MuntheKaas):
        method = replace(method, scan_stages=True)  # a mechanism compiles slowly: trace it once per step
    ts, (qs, vs), _ = integrate(
        mechanical_space(model.tree),
        field,
        (q, v),
        jnp.zeros_like(dt),
        steps * dt,
        steps,
        method,
        save_every,
        remat,
        checkpoint,
    )
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((qs, vs))]))
    return Trajectory(ts, qs, vs, finite)
