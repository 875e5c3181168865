"""The classical competitors, `lgjax.maximal.classical`, under the short names of [holzinger2024]: EP and Rxyz."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax import GeneralizedAlpha, maximal
from lgjax.maximal import NewtonRule
from lgjax.maximal.classical import body_rate as rate_of
from lgjax.maximal.classical import coordinate_problem, rotation_matrix
from lgjax.maximal.generalized_alpha import ConstrainedProblem

NAMES = {"EP": "euler_parameters", "Rxyz": "tait_bryan"}


def rotation(kind: str, rho: jax.Array) -> jax.Array:
    """Rotation matrices (..., 3, 3) of Euler parameters (..., 4) or Tait-Bryan angles (..., 3)."""
    return rotation_matrix(NAMES[kind], rho)


def body_rate(kind: str, rho: jax.Array, rate: jax.Array) -> jax.Array:
    """ω in body axes, G(ρ) ρ̇."""
    return rate_of(NAMES[kind], rho, rate)


class Classical(NamedTuple):
    """Problem and start in coordinates, and the configuration that coordinates describe."""

    problem: ConstrainedProblem
    q0: jax.Array
    v0: jax.Array
    configuration: Any


def classical(system: maximal.System, q0: maximal.AbsoluteConfiguration, v0: jax.Array, kind: str) -> Classical:
    """The same mechanism and start in the coordinates of `kind`, "EP" or "Rxyz"."""
    made = coordinate_problem(system, q0, v0, NAMES[kind])
    return Classical(made.problem, made.q, made.rate, made.configuration)


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
