"""The classical competitors: bodies by Euler parameters with their constraint, or by Tait-Bryan angles.

The equations of a `maximal.System` on R³ x SO(3), multiplied into the coordinates: M̂ = HᵀMH, ĝ = Hᵀ(g - M Ḣ q̇), B̂ = B H
with v = H q̇; for comparison with the Lie group method by the same integrator.
Source: [holzinger2024] section 2.1.2, classical formulation 2.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from scipy.spatial.transform import Rotation

from lgjax import GeneralizedAlpha, maximal, so3
from lgjax.groups.r3_so3 import RotationTranslation
from lgjax.maximal import NewtonRule
from lgjax.maximal.generalized_alpha import ConstrainedProblem
from lgjax.numerics import small_matrix as sm

SIZES = {"EP": 4, "Rxyz": 3}


def rotation(kind: str, rho: jax.Array) -> jax.Array:
    """Rotation matrices (..., 3, 3) of Euler parameters (..., 4) or Tait-Bryan angles (..., 3)."""
    if kind == "EP":
        return so3.from_quaternion(rho)
    axes = jnp.eye(3, dtype=rho.dtype)
    turn = [so3.exp(rho[..., i : i + 1] * axes[i]) for i in range(3)]
    return sm.matmul(sm.matmul(turn[0], turn[1]), turn[2])


def body_rate(kind: str, rho: jax.Array, rate: jax.Array) -> jax.Array:
    """ω in body axes, G(ρ) ρ̇."""
    if kind == "EP":
        w, v, wdot, vdot = rho[..., :1], rho[..., 1:], rate[..., :1], rate[..., 1:]
        return 2.0 * (w * vdot - wdot * v - sm.cross(v, vdot))
    sb, cb, sc, cc = jnp.sin(rho[..., 1]), jnp.cos(rho[..., 1]), jnp.sin(rho[..., 2]), jnp.cos(rho[..., 2])
    a, b, c = rate[..., 0], rate[..., 1], rate[..., 2]
    return sm.stack(cb * cc * a + sc * b, -cb * sc * a + cc * b, sb * a + c)


class Classical(NamedTuple):
    """Problem and start in coordinates, and the configuration that coordinates describe."""

    problem: ConstrainedProblem
    q0: jax.Array
    v0: jax.Array
    configuration: Any


def classical(system: maximal.System, q0: maximal.AbsoluteConfiguration, v0: jax.Array, kind: str) -> Classical:
    """The same mechanism and start in the coordinates of `kind`, "EP" or "Rxyz"."""
    n, size = system.nbodies, 3 + SIZES[kind]

    def split(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = x.reshape(n, size)
        return x[:, :3], x[:, 3:]

    def configuration(q: jax.Array) -> maximal.AbsoluteConfiguration:
        x, rho = split(q)
        return maximal.AbsoluteConfiguration(RotationTranslation(rotation(kind, rho), x), jnp.zeros((0,), q.dtype))

    def velocity(q: jax.Array, rate: jax.Array) -> jax.Array:
        (_, rho), (x, rho_dot) = split(q), split(rate)
        return sm.join(body_rate(kind, rho, rho_dot), x).reshape(-1)

    def transposed(q: jax.Array, f: jax.Array) -> jax.Array:
        return jax.linear_transpose(lambda rate: velocity(q, rate), q)(f)[0]

    def forces(t: Any, q: jax.Array, rate: jax.Array) -> jax.Array:
        bend = jax.jvp(lambda q: velocity(q, rate), (q,), (rate,))[1]
        f = system.generalized_forces(t, configuration(q), velocity(q, rate)) - system.inertia_product(bend)
        return transposed(q, f)

    def unit(q: jax.Array) -> jax.Array:
        rho = split(q)[1]
        return sm.dot(rho, rho) - 1.0 if kind == "EP" else jnp.zeros((0,), q.dtype)

    def jacobian(t: Any, q: jax.Array) -> jax.Array:
        rows = jax.vmap(lambda row: transposed(q, row))(system.jacobian(t, configuration(q)))
        return jnp.concatenate([rows, jax.jacfwd(unit)(q)]) if kind == "EP" else rows

    # The start: ρ by SciPy, ρ̇ from ω by least squares, which keeps Euler parameters of length one.
    turned = Rotation.from_matrix(q0.bodies.rotation)
    rho = turned.as_quat(scalar_first=True) if kind == "EP" else turned.as_euler("XYZ")
    start = jnp.concatenate([q0.bodies.translation, jnp.asarray(rho)], axis=1).reshape(-1)
    rates = jax.jacfwd(lambda rate: velocity(start, rate))(jnp.zeros_like(start))
    problem = ConstrainedProblem(
        move=lambda q, dq: q + dq,
        nudge=lambda q, d: d,
        push=lambda dq, x: x,
        pullback=lambda dq, rows: rows,
        inertia=lambda q, x: transposed(q, system.inertia_product(velocity(q, x))),
        forces=forces,
        constraints=lambda t, q: jnp.concatenate([system.constraints(t, configuration(q)), unit(q)]),
        jacobian=jacobian,
        scale=lambda q: system.scale(configuration(q)),
    )
    return Classical(problem, start, jnp.linalg.lstsq(rates, v0)[0], configuration)


def solve(
    problem: ConstrainedProblem, q: Any, v: Any, t1: Any, steps: jax.Array, method: GeneralizedAlpha, rule: NewtonRule
) -> tuple[Any, jax.Array, jax.Array]:
    """(q at the end, iterations per step, success) by the steps of generalized-alpha; their number may be traced."""
    h = jnp.asarray(t1, v.dtype) / steps

    def step(i: jax.Array, carry: Any) -> Any:
        state, count, good = carry
        state, report = method.step(problem, h * i.astype(v.dtype), state, h, rule)
        good = good & report.converged
        return state._replace(v=jnp.where(good, state.v, jnp.nan)), count + report.iterations, good

    first, good = method.init(problem, jnp.zeros((), v.dtype), q, v, h, rule)
    state, count, good = jax.lax.fori_loop(0, steps, step, (first, jnp.zeros((), jnp.int32), good))
    return state.q, count / steps, good
