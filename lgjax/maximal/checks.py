"""Checks of a start, with names: inconsistent, redundant, or massless where nothing holds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution.compiled import compiled
from lgjax.numerics import checks
from lgjax.numerics.messages import listed

# Where the rows of a joint vanish, its cosines are 1, 0 or -1 to round-off.
LEAST_COSINE = 0.5


def start_tolerance(dtype: Any) -> float:
    """Largest miss of a constraint at the start, relative to lengths, or of its rate, relative to speeds."""
    return float(jnp.finfo(dtype).eps) ** 0.5


def check_start(system: Any, t: Any, q: Any, v: Any) -> None:
    """Raise ValueError for a start that cannot be integrated; no check where any of it is traced."""
    if not checks.known(system, t, q, v):
        return
    for name, state in (("q", q), ("v", v)):
        checks.finite_leaves(name, state)
    with jax.ensure_compile_time_eval():
        *values, length = _start_values(system, t, q)
    gap, b, drift, mass, cosines = map(np.asarray, values)
    scale = float(length)
    limit = start_tolerance(system.dtype)
    _check_zero(system, "is broken at the start", gap, limit * scale)
    _check_same(system, cosines)
    speed = 1.0 + float(np.max(np.abs(v)))
    _check_zero(
        system, "is broken by the initial velocities, its rate", b @ np.asarray(v) + drift, limit * scale * speed
    )
    _check_rank(system, b.astype(float))
    _check_mass(system, b.astype(float), mass.astype(float))


@compiled
def _start_values(system: Any, t: Any, q: Any) -> tuple[Any, ...]:
    """Constraints, their Jacobian, their rate at rest, the mass matrix, cosines, the length to compare gaps with."""
    gap, drift = jax.jvp(lambda t: system.constraints(t, q), (t,), (jnp.ones_like(t),))
    mass = jax.vmap(system.inertia_product)(jnp.eye(system.nv, dtype=system.dtype))
    return gap, system.jacobian(t, q), drift, mass, start_cosines(system, t, q), system.scale(q)


def start_cosines(system: Any, t: Any, q: Any) -> Any:
    """Cosines (k,) that must be above LEAST_COSINE where the constraints vanish, or these hold at another attitude."""
    rows = system.structure.joints
    if not rows.same:
        return jnp.zeros((0,), system.dtype)
    return rows.cosines(t, system.joints, rows.sides(system.joints, *q.bodies))


def _row_name(system: Any, i: int) -> str:
    rows = system.structure.joints
    if i < len(rows.rows):
        return rows.row_name(i)
    i -= len(rows.rows)
    for name, _, size in system.structure.users:
        if i < size:
            return repr(name)
        i -= size
    raise AssertionError


def _check_zero(system: Any, text: str, values: np.ndarray, limit: float) -> None:
    if values.size and not np.max(np.abs(values)) <= limit:
        i = int(np.nanargmax(np.abs(values))) if not np.all(np.isnan(values)) else 0
        raise ValueError(f"joint {_row_name(system, i)} {text}: {values[i]:.3g}, allowed {limit:.1g}")


def _check_same(system: Any, cosines: np.ndarray) -> None:
    for (joint, axis, drive), cosine in zip(system.structure.joints.same, cosines, strict=True):
        if not cosine > LEAST_COSINE:
            rows = system.structure.joints
            name, what = f"{rows.names[joint]!r} ({rows.kinds[joint]})", f"its axes {'xyz'[axis]} are not equal"
            if drive is not None:
                what = "it is half a turn off its drive"
            raise ValueError(f"joint {name} is broken at the start: {what}, cosine {cosine:.3g} instead of 1")


def _check_rank(system: Any, b: np.ndarray) -> None:
    """Rows of B, scaled to length one, must be independent."""
    if not len(b):
        return
    lengths = np.linalg.norm(b, axis=1)
    if np.min(lengths) == 0.0:
        raise ValueError(f"joint {_row_name(system, int(np.argmin(lengths)))} holds nothing: its derivative is zero")
    left, values, _ = np.linalg.svd(b / lengths[:, None])
    rank = int(np.sum(values > 10.0 * start_tolerance(system.dtype) ** 1.5))
    if rank < len(b):
        involved = np.max(np.abs(left[:, rank:]), axis=1)
        names = [_row_name(system, int(i)) for i in np.flatnonzero(involved > 0.1)]
        raise ValueError(
            f"{len(b)} constraints of rank {rank} are redundant, so that multipliers are not unique; "
            f"dependent among them: {listed(names)}"
        )


def _check_mass(system: Any, b: np.ndarray, mass: np.ndarray) -> None:
    """M must be positive definite on the kernel of B."""
    kernel = np.linalg.svd(b)[2][len(b) :].T if len(b) else np.eye(system.nv)
    if not kernel.shape[1]:
        return
    values, vectors = np.linalg.eigh(kernel.T @ mass @ kernel)
    if values[0] <= 1e-13 * np.max(np.abs(mass)):
        direction = kernel @ vectors[:, 0]
        i = int(np.argmax(np.abs(direction)))
        bodies = system.structure.body_names
        name = f"body {bodies[i // 6]!r}" if i < 6 * len(bodies) else "a vector node"
        raise ValueError(
            f"the mass matrix is singular where no constraint holds: {name} can move without inertia "
            f"({values[0]:.3g} kg or kg m^2)"
        )
