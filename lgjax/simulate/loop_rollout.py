"""Closed loops in `rollout`: every step ends with a projection onto the constraints, whose errors are recorded."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.loops import loop_constraint, project_positions
from lgjax.dynamics.loops.loop import Loop
from lgjax.dynamics.loops.project import Metric, velocity_projection
from lgjax.dynamics.loops.status import flags
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.small_angle import norm
from lgjax.simulate.steppers import SmoothSteps, Stepper


class _Seen(NamedTuple):
    """Record of the loops from step to step, each (): the largest value so far; the last three are 0 or 1."""

    residual: jax.Array
    rate: jax.Array
    open: jax.Array
    slipping: jax.Array
    redundant: jax.Array


@dataclass(frozen=True)
class ClosedSteps(Stepper):
    """Steps of another stepper, each of which ends with a projection onto the loops.

    project and tolerance: as in `rollout`.
    """

    inner: SmoothSteps
    loops: tuple[Loop, ...]
    project: Metric | None
    tolerance: Any = None

    @property
    def model(self) -> Model:  # type: ignore[override]
        return self.inner.model

    def first_seen(self, q, v):
        return watched(self.model, self.loops, q, v)

    def first_carry(self, forces, t, q, v):
        return self.inner.first_carry(forces, t, q, v)

    def step(self, forces, t, q, v, h, seen, carry):
        q, v, _, carry = self.inner.step(forces, t, q, v, h, (), carry)
        if self.project is None:
            return q, v, jnp.maximum(seen, watched(self.model, self.loops, q, v)), carry
        found = project_positions(self.model, self.loops, q, metric=self.project, tolerance=self.tolerance)
        v, rate, rank = velocity_projection(self.model, self.loops, found.q, v, self.project)
        rows = sum(loop.rows(self.model, q) for loop in self.loops)
        now = loops_seen(found.residual, rate, v, ~found.converged, rank < rows)
        return found.q, v, jnp.maximum(seen, now), carry

    def status(self, seen):
        return loop_status(seen)

    def report(self, qs, vs, seen, h):
        return loop_report(seen)


def loop_status(seen: jax.Array) -> jax.Array:
    """The status () of all steps up to a record of the loops."""
    worst = _Seen(*jnp.moveaxis(seen, -1, 0))
    return flags(OPEN=worst.open > 0, SLIPPING=worst.slipping > 0, REDUNDANT=worst.redundant > 0)


def loop_report(seen: jax.Array) -> dict[str, jax.Array]:
    """Residual and rate (T,) so far, from records of the loops (T, ...)."""
    worst = _Seen(*jnp.moveaxis(seen, -1, 0))
    return {"residual": worst.residual, "rate": worst.rate}


def _small(dtype) -> float:
    return float(jnp.finfo(dtype).eps) ** 0.5


def loops_seen(residual, rate, v, failed, redundant) -> jax.Array:
    """The record of one step: lengths of residual and rate, and what the flags () bool say."""
    small = _small(residual.dtype)
    slipping = rate > small * (1 + jnp.max(jnp.abs(v)))
    finite = jnp.isfinite(residual + rate)  # of what is not, nothing can be said
    marks = [(finite & x).astype(residual.dtype) for x in (failed | (residual > small), slipping, redundant)]
    return jnp.stack([residual, rate, *marks])


def watched(model: Model, loops, q, v) -> jax.Array:
    """The record of the loops at a state."""
    c = loop_constraint(model, loops, q, v)
    none = jnp.zeros((), bool)
    return loops_seen(norm(c.residual), norm(c.rate), v, none, none)


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
