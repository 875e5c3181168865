"""Closed loops in `rollout`: every step ends with a projection onto the constraints, whose errors are recorded."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.loops import loop_constraint, project_positions
from lgjax.dynamics.loops.loop import Loop
from lgjax.dynamics.loops.project import Metric, check_metric, velocity_projection
from lgjax.dynamics.loops.status import flags
from lgjax.groups.homogeneous_space import HomogeneousSpace, product_space, vector_space
from lgjax.integrators import Method
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.small_angle import norm


class _Seen(NamedTuple):
    """Record of the loops from step to step, each (): the largest value so far; the last three are 0 or 1."""

    residual: jax.Array
    rate: jax.Array
    open: jax.Array
    slipping: jax.Array
    redundant: jax.Array


def keep_closed(
    model: Model, loops: tuple[Loop, ...], space, field, start, method: Method, project: Metric | None, tolerance
) -> tuple[HomogeneousSpace, Callable, tuple, Method]:
    """Space, field, start and method for states ((q, v), seen) from those for (q, v), with steps that end closed.

    `seen` is the record of the loops so far, see `loop_report`. project and tolerance: as in `rollout`.
    Raises ValueError for an unknown metric.
    """
    if project is not None:
        check_metric(project)

    def watched(t, state):
        return field(t, state[0]), 0 * state[1]

    settled = _Settled(method, partial(_settle, model, loops, project, tolerance))
    space = product_space(space, vector_space(len(_Seen._fields)))
    return space, watched, (start, _watch(model, loops, *start)), settled


def loop_report(seen: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Residual and rate (T,) so far and the status () of all steps, from the record `seen` of the loops (T, ...)."""
    worst = _Seen(*jnp.moveaxis(seen, -1, 0))
    status = flags(OPEN=worst.open[-1] > 0, SLIPPING=worst.slipping[-1] > 0, REDUNDANT=worst.redundant[-1] > 0)
    return worst.residual, worst.rate, status


def _settle(model: Model, loops, project: Metric | None, tolerance, state):
    """The state ((q, v), seen) moved onto the constraints, with its record brought up to date."""
    (q, v), seen = state
    if project is None:
        return (q, v), jnp.maximum(seen, _watch(model, loops, q, v))
    found = project_positions(model, loops, q, metric=project, tolerance=tolerance)
    v, rate, rank = velocity_projection(model, loops, found.q, v, project)
    rows = sum(loop.rows(model, q) for loop in loops)
    now = _seen(found.residual, rate, v, ~found.converged, rank, rows)
    return (found.q, v), jnp.maximum(seen, now)


@dataclass(frozen=True)
class _Settled(Method):
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
    finite = jnp.isfinite(residual + rate)  # of what is not, nothing can be said
    marks = [(finite & x).astype(residual.dtype) for x in (failed | (residual > small), slipping, rank < rows)]
    return jnp.stack([residual, rate, *marks])


def _watch(model: Model, loops, q, v) -> jax.Array:
    c = loop_constraint(model, loops, q, v)
    rows = jnp.int32(len(c.residual))
    return _seen(norm(c.residual), norm(c.rate), v, jnp.zeros((), bool), rows, len(c.residual))


_gaps = jax.jit(lambda model, loops, q, v: loop_constraint(model, loops, q, v)[::2])


def check_start(model: Model, loops, q, v) -> None:
    """Raise ValueError for a known start at which the loops are open or come apart."""
    if not checks.known(model, loops, q, v):
        return
    with jax.ensure_compile_time_eval():  # known inside jit too
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
