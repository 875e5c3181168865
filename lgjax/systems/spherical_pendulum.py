"""The N-fold spherical pendulum: point masses on massless rods, one below the other.

Source: [celledoni2021] section 5.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups import SE3, cayley_coordinates, power_space, tangent_sphere
from lgjax.groups.ts2 import TangentPoint
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm
from lgjax.systems.problem import Problem, arrays, gravity_vector

Array = jax.Array

_DIAGONAL = math.sqrt(0.5)
FORMS = ("chain", "dense", "hamiltonian")
CHARTS = ("exp", "cayley")


def spherical_pendulum(
    n: int,
    form: str = "chain",
    masses: Any = 1.0,
    lengths: Any = 1.0,
    gravity: Any = 9.81,
    q: Any = (_DIAGONAL, 0.0, _DIAGONAL),
    omega: Any = (0.0, 1.0, 0.0),
    chart: str = "exp",
    dtype: Any = None,
) -> Problem:
    """n rods with masses (n,) kg and lengths (n,) m or one number for all; q and omega (n, 3) or (3,) at the start.

    The state is TangentPoint(q (n, 3), omega (n, 3)) on (TS²)^n: directions from the fixed point downwards along the
    chain, and angular velocities rad/s, orthogonal to them.  gravity is a vector (3,) m/s², or a number that pulls
    along -z.

    "chain"        rod tensions from a tridiagonal system, time and memory proportional to n.
    "dense"        the 3n x 3n system of the source, section 5.2.
    "hamiltonian"  omega holds the momenta π = R(q) ω instead, end of section 5.2; `y0` is converted.
    chart "cayley": steps in Cayley coordinates of SE(3) instead of exponentials.  Munthe-Kaas methods keep their
    order and take a quarter of the time; commutator-free methods need "exp".
    Invariants: energy, and the angular momentum about the vertical, which is z without gravity.
    Raises ValueError for masses and lengths that are not positive, directions whose length is not 1 and angular
    velocities that are not orthogonal to them.
    """
    checks.choice("form", form, FORMS)
    checks.choice("chart", chart, CHARTS)
    n = checks.integer("n", n)
    p = arrays(
        dtype,
        masses=(masses, (n,), checks.positive),
        lengths=(lengths, (n,), checks.positive),
        gravity=(gravity_vector(gravity), (3,)),
        q=(q, (n, 3), checks.unit_vector),
        omega=(omega, (n, 3)),
    )
    y0 = TangentPoint(p.pop("q"), p.pop("omega"))
    checks.orthogonal("omega", y0.omega, "q", y0.q)
    field = {"chain": chain_field, "dense": dense_field, "hamiltonian": hamiltonian_field}[form]
    if form == "hamiltonian":
        y0 = TangentPoint(y0.q, _apply(p, y0.q, y0.omega))
    invariants = {"energy": partial(_energy, p, form), "vertical_momentum": partial(_vertical_momentum, p, form)}
    group = SE3 if chart == "exp" else cayley_coordinates(SE3)
    return Problem(p, power_space(tangent_sphere(group), n), partial(_field, p, field), y0, invariants)


def _field(p: dict[str, Array], field: Any, t: Array, y: TangentPoint) -> Array:
    return field(p, y)


def _velocities(p: dict[str, Array], form: str, y: TangentPoint) -> TangentPoint:
    """The point with angular velocities, where the form keeps momenta."""
    return TangentPoint(y.q, _solve(p, y.q, y.omega)) if form == "hamiltonian" else y


def _energy(p: dict[str, Array], form: str, y: TangentPoint) -> Array:
    return energy(p, _velocities(p, form, y))


def _vertical_momentum(p: dict[str, Array], form: str, y: TangentPoint) -> Array:
    return sm.dot(_up(p), jnp.sum(_apply(p, *_velocities(p, form, y)), axis=0))


def _up(p: dict[str, Array]) -> Array:
    """The unit vector (3,) against gravity; z without gravity."""
    g = norm(p["gravity"])
    z = jnp.zeros_like(p["gravity"]).at[2].set(1.0)
    return jnp.where(g > 0, -p["gravity"] / jnp.where(g > 0, g, 1.0), z)


def energy(p: dict[str, Array], y: TangentPoint) -> Array:
    """Kinetic and potential energy of velocities, by the positions of the masses."""
    reach = p["lengths"][:, None] * y.q
    speed = jnp.cumsum(p["lengths"][:, None] * sm.cross(y.omega, y.q), axis=0)
    fall = sm.dot(jnp.cumsum(reach, axis=0), p["gravity"])
    return jnp.sum(p["masses"] * (0.5 * sm.dot(speed, speed) - fall))


def chain_field(p: dict[str, Array], y: TangentPoint) -> Array:
    """[ω, q × ω'] (n, 6), with ω' from the rod tensions λ that keep the lengths.

    Newton's law m_i x_i'' = m_i g - λ_i q_i + λ_{i+1} q_{i+1} in the second derivative of |x_i - x_{i-1}|² = L_i² is a
    symmetric positive definite tridiagonal system for λ.
    """
    q, omega = y
    inverse = 1.0 / p["masses"]
    above = jnp.concatenate([jnp.zeros_like(inverse[:1]), inverse[:-1]])  # that of the mass before; the fixed point's
    first = jnp.asarray(np.eye(1, inverse.shape[0])[0], inverse.dtype)
    aligned = jnp.concatenate([jnp.zeros_like(q[:1, 0]), sm.dot(q[:-1], q[1:])])
    right = p["lengths"] * sm.dot(omega, omega) + first * sm.dot(q, p["gravity"])
    pull = sm.scale(tridiagonal_solve(above + inverse, -above * aligned, right), q)
    none = jnp.zeros_like(pull[:1])
    before, after = jnp.concatenate([none, pull[:-1]]), jnp.concatenate([pull[1:], none])
    # The acceleration of each mass relative to the one before; gravity cancels but for the first.
    relative = sm.scale(inverse, after - pull) + sm.scale(above, before - pull)
    relative = relative + sm.scale(first, jnp.broadcast_to(p["gravity"], q.shape))
    # q × (q × r) = q (q·r) - r
    push = sm.scale(sm.dot(q, relative), q) - relative
    return sm.join(omega, push / p["lengths"][:, None])


def tridiagonal_solve(diagonal: Array, off: Array, right: Array) -> Array:
    """Solution (n,) of a symmetric positive definite tridiagonal system by elimination, two scans.

    diagonal (n,); off (n,), the entry beside each diagonal one in the row before, the first not read; right (n,).
    """

    def eliminate(before: Any, row: Any) -> Any:
        inverse, value = before  # of the pivot of the row before, and its reduced right side
        d, e, r = row
        ratio = e * inverse
        state = (1.0 / (d - e * ratio), r - ratio * value)
        return state, state

    def substitute(after: Array, row: Any) -> Any:
        inverse, value, e = row
        x = (value - after) * inverse
        return e * x, x

    zero = jnp.zeros_like(right[0])
    _, (inverses, values) = jax.lax.scan(eliminate, (zero, zero), (diagonal, off, right))
    return jax.lax.scan(substitute, zero, (inverses, values, off), reverse=True)[1]


def _coupling(p: dict[str, Array]) -> Array:
    """M_ij = L_i L_j times the mass at or below both rods, (n, n)."""
    hanging = jnp.cumsum(p["masses"][::-1])[::-1]
    i = np.arange(hanging.shape[0])
    return sm.outer(p["lengths"], p["lengths"]) * hanging[np.maximum(i[:, None], i[None, :])]


def _matrix(p: dict[str, Array], q: Array) -> Array:
    """R(q) (3n, 3n) with blocks M_ij hat(q_i)ᵀ hat(q_j), M_ii I on the diagonal."""
    n = q.shape[0]
    blocks = sm.matmul(sm.transpose(sm.hat(q))[:, None], sm.hat(q)[None, :])
    own = jnp.asarray(np.eye(n, dtype=bool))[:, :, None, None]
    blocks = _coupling(p)[:, :, None, None] * jnp.where(own, jnp.eye(3, dtype=q.dtype), blocks)
    return blocks.transpose(0, 2, 1, 3).reshape(3 * n, 3 * n)


def _apply(p: dict[str, Array], q: Array, omega: Array) -> Array:
    """The momenta R(q) ω (n, 3)."""
    return jnp.sum(_matrix(p, q) * omega.reshape(-1), axis=1).reshape(omega.shape)


def _solve(p: dict[str, Array], q: Array, momenta: Array) -> Array:
    """R(q)⁻¹ π (n, 3)."""
    return jnp.linalg.solve(_matrix(p, q), momenta.reshape(-1)).reshape(momenta.shape)


def _loads(p: dict[str, Array]) -> Array:
    """Each length times the weight of the masses at or below its rod (n, 3), N m."""
    hanging = jnp.cumsum(p["masses"][::-1])[::-1]
    return sm.outer(hanging * p["lengths"], p["gravity"])


def dense_field(p: dict[str, Array], y: TangentPoint) -> Array:
    """[ω, q × ω'] (n, 6) by the system of the source, R(q) ω' = [Σ_j M_ij |ω_j|² q_i × q_j - ... q_i × e_3]."""
    q, omega = y
    weights = _coupling(p) * sm.dot(omega, omega)[None, :]
    right = sm.cross(q, jnp.sum(weights[:, :, None] * q[None, :, :], axis=1) + _loads(p))
    return sm.join(omega, sm.cross(q, _solve(p, q, right)))


def hamiltonian_field(p: dict[str, Array], y: TangentPoint) -> Array:
    """[∂H/∂π, ∂H/∂q] (n, 6), for momenta instead of velocities.  Source: [celledoni2021] end of section 5.2."""
    q, momenta = y
    omega = _solve(p, q, momenta)
    speed = sm.cross(omega, q)
    coupling = _coupling(p) * (1.0 - jnp.eye(q.shape[0], dtype=q.dtype))
    # At fixed momenta ∂H/∂q = -∂K/∂q at fixed velocities; K couples rods by M_ij (ω_i × q_i)·(ω_j × q_j).
    others = jnp.sum(coupling[:, :, None] * speed[None, :, :], axis=1)
    slope = -sm.cross(others, omega) - _loads(p)
    return sm.join(omega, slope)
