"""Time stepping of a mechanism with closed loops: integrate, then project back onto the constraints."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.loops import constrained_forward_dynamics, loop_constraint, project_positions
from lgjax.dynamics.loops.loop import Loop, as_loops
from lgjax.dynamics.loops.project import Metric, check_metric, velocity_projection
from lgjax.dynamics.loops.status import flags
from lgjax.dynamics.time_derivatives.taylor_series import checked_result
from lgjax.execution.compiled import compiled
from lgjax.groups.homogeneous_space import product_space, vector_space
from lgjax.integrators import RK4, MuntheKaas, Taylor, integrate
from lgjax.multibody.configuration import Configuration, mechanical_space
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.small_angle import norm
from lgjax.simulate.rollout import Controller


class LoopTrajectory(NamedTuple):
    """States at the saved times; every leaf but `status` has a leading time axis (T,).

    ts: (T,) s. q: Configuration. v: (T, nv). residual, rate: (T,), the largest length of phi(q) and of dphi/dt after
    any step so far. status: () int32, `LoopStatus`, of all steps: OPEN if a projection did not converge or the residual
    has passed the square root of eps; SLIPPING if the rate has, relative to 1 + the largest entry of v.
    """

    ts: jax.Array
    q: Configuration
    v: jax.Array
    residual: jax.Array
    rate: jax.Array
    status: jax.Array


class _Seen(NamedTuple):
    """What is watched from step to step, each (): the largest so far; the last three as 0 or 1."""

    residual: jax.Array
    rate: jax.Array
    open: jax.Array
    slipping: jax.Array
    redundant: jax.Array


def constrained_rollout(
    model: Model,
    loops: Loop | Sequence[Loop],
    q: Configuration,
    v,
    controller: Controller | None,
    dt,
    steps: int,
    method=MuntheKaas(RK4),  # noqa: B008 (a hashable value)
    save_every: int | None = 1,
    wrenches: Controller | None = None,
    *,
    project: Metric | None = "mass",
    alpha: Any = 0.0,
    beta: Any = 0.0,
    tolerance: Any = None,
) -> LoopTrajectory:
    """The motion of a mechanism with closed loops from (q, v) over `steps` steps of dt seconds.

    controller, wrenches, dt, steps, method and save_every: as in `rollout`. project: after every step positions and
    velocities are moved to the nearest that keep the loops closed, in the kinetic-energy metric ("mass") or plainly
    ("plain"); None leaves them to alpha and beta, 1/s, of `constrained_forward_dynamics`. tolerance: of the positions,
    see `project_positions`. Differentiable in everything that is traced.
    Raises ValueError, where q and v are known, for a start at which loops are open or move apart: `project_positions`
    and `project_velocity` make a consistent one. Within jit the status says it.
    """
    if project is not None:
        check_metric(project)
    several = as_loops(model, loops)
    dt, v = jnp.asarray(dt, model.dtype), jnp.asarray(v, model.dtype)
    if v.shape != (model.nv,):
        raise ValueError(f"v has shape {v.shape}, {model.name!r} takes ({model.nv},); vmap rollout over a batch")
    if isinstance(method, Taylor):
        raise ValueError("constrained_rollout takes methods with stages, not Taylor")
    _check_start(model, several, q, v)
    baumgarte, forces = (alpha, beta), (controller, wrenches)
    return _rollout(model, several, q, v, forces, dt, steps, method, save_every, project, baumgarte, tolerance)


@compiled
def _rollout(
    model: Model,
    several: tuple[Loop, ...],
    q: Configuration,
    v,
    forces: tuple[Controller | None, Controller | None],
    dt,
    steps: int,
    method: Any,
    save_every: int | None,
    project: Metric | None,
    baumgarte: tuple[Any, Any],
    tolerance: Any,
) -> LoopTrajectory:
    (controller, wrenches), (alpha, beta) = forces, baumgarte

    def field(t, state):
        (q, v), seen = state
        tau = 0 * v if controller is None else checked_result("controller", controller(t, q, v), v.shape, v.dtype)
        applied = None
        if wrenches is not None:
            applied = checked_result("wrenches", wrenches(t, q, v), (model.nbodies, 6), v.dtype)
        found = constrained_forward_dynamics(model, several, q, v, tau, applied, alpha=alpha, beta=beta)
        return (v, found.vdot), 0 * seen

    if isinstance(method, MuntheKaas):
        method = replace(method, scan_stages=True)  # as in rollout
    settled = _Settled(method, partial(_settle, model, several, project, tolerance))
    space = product_space(mechanical_space(model.tree), vector_space(len(_Seen._fields)))
    y = (q, v), _watch(model, several, q, v)
    ts, ((qs, vs), seen), _ = integrate(space, field, y, jnp.zeros_like(dt), steps * dt, steps, settled, save_every)
    worst = _Seen(*jnp.moveaxis(seen, -1, 0))
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((qs, vs))]))
    status = flags(
        OPEN=worst.open[-1] > 0, SLIPPING=worst.slipping[-1] > 0, REDUNDANT=worst.redundant[-1] > 0, NOT_FINITE=~finite
    )
    return LoopTrajectory(ts, qs, vs, worst.residual, worst.rate, status)


def _settle(model: Model, loops, project: Metric | None, tolerance, state):
    """The state ((q, v), seen) moved onto the constraints, and what was seen of it."""
    (q, v), seen = state
    if project is None:
        return (q, v), jnp.maximum(seen, _watch(model, loops, q, v))
    found = project_positions(model, loops, q, metric=project, tolerance=tolerance)
    v, rate, rank = velocity_projection(model, loops, found.q, v, project)
    rows = sum(loop.rows(model, q) for loop in loops)
    now = _seen(found.residual, rate, v, ~found.converged, rank, rows)
    return (found.q, v), jnp.maximum(seen, now)


@dataclass(frozen=True)
class _Settled:
    """A method whose steps end with `settle`, state -> state."""

    method: Any
    settle: Any

    def init(self, space, field, t, y):
        return self.method.init(space, field, t, y)

    def step(self, space, field, t, y, h, carry):
        y, carry = self.method.step(space, field, t, y, h, carry)
        return self.settle(y), carry


def _small(dtype) -> float:
    return float(jnp.finfo(dtype).eps) ** 0.5


def _seen(residual, rate, v, failed, rank, rows: int) -> jax.Array:
    small = _small(residual.dtype)
    slipping = rate > small * (1 + jnp.max(jnp.abs(v)))
    marks = [x.astype(residual.dtype) for x in (failed | (residual > small), slipping, rank < rows)]
    return jnp.stack([residual, rate, *marks])


def _watch(model: Model, loops, q, v) -> jax.Array:
    c = loop_constraint(model, loops, q, v)
    rows = jnp.int32(len(c.residual))
    return _seen(norm(c.residual), norm(c.rate), v, jnp.zeros((), bool), rows, len(c.residual))


_gaps = jax.jit(lambda model, loops, q, v: loop_constraint(model, loops, q, v)[::2])


def _check_start(model: Model, loops, q, v) -> None:
    """Raises ValueError for a known start at which the loops are open or come apart."""
    if not checks.known(model, loops, q, v):
        return
    residual, rate = (np.asarray(x) for x in _gaps(model, loops, q, v))
    small = _small(model.dtype)
    owner = np.repeat(np.arange(len(loops)), [loop.rows(model, q) for loop in loops])
    speed = 1 + float(np.max(np.abs(np.asarray(v))))
    for values, limit, what, cure in (
        (residual, small, "is open at the start, by", "project_positions"),
        (rate, small * speed, "opens with the initial velocities, at", "project_velocity"),
    ):
        if not np.max(np.abs(values)) <= limit:
            worst = int(np.argmax(np.where(np.isnan(values), np.inf, np.abs(values))))
            raise ValueError(f"loop {loops[owner[worst]].label} {what} {values[worst]:.3g}; see {cure}")
