"""Fields on SO(3) and SE(3) with reference solutions, for observed orders."""

from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from lgjax.groups import (
    SE3,
    SO3,
    HomogeneousSpace,
    cayley_coordinates,
    left_translation,
    right_translation,
    se3,
    second_kind_coordinates,
    so3,
)
from lgjax.integrators import integrate
from tests.oracles.matrix_groups import hat_se3, skew

INERTIA = np.array([1.0, 2.0, 3.5])
MOMENTUM = np.array([0.9, -1.6, 1.1])  # in space, constant
WIND = np.array([0.5, -0.3, 0.2])
END = 1.5


class Problem(NamedTuple):
    space: HomogeneousSpace
    field: Any


def body_rate(t, g):
    """Free rigid body: ω = J⁻¹ Rᵀ π."""
    return so3.coAd(g, jnp.asarray(MOMENTUM, g.dtype)) / jnp.asarray(INERTIA, g.dtype)


def body_twist(t, g):
    """The same attitude, while wind that changes in time and a spring to the origin push the body along."""
    push = jnp.asarray(WIND, t.dtype) * (1.0 + jnp.sin(2.0 * t)) - 0.4 * g.translation
    return jnp.concatenate([body_rate(t, g.rotation), so3.coAd(g.rotation, push)])


PROBLEMS = {
    "SO3 right": Problem(right_translation(SO3), body_rate),
    "SO3 left": Problem(left_translation(SO3), lambda t, g: so3.Ad(g, body_rate(t, g))),
    "SE3 right": Problem(right_translation(SE3), body_twist),
    "SE3 left": Problem(left_translation(SE3), lambda t, g: se3.Ad(g, body_twist(t, g))),
    "SE3 right, second kind": Problem(right_translation(second_kind_coordinates(SE3)), body_twist),
    "SE3 left, Cayley": Problem(left_translation(cayley_coordinates(SE3)), lambda t, g: se3.Ad(g, body_twist(t, g))),
}


def start(name: str, dtype: Any) -> Any:
    group = SO3 if name.startswith("SO3") else SE3
    return group.exp(jnp.asarray([0.3, -0.2, 0.4, 1.0, 0.5, -0.7][: group.dim], dtype))


@cache
def reference(name: str) -> np.ndarray:
    """The matrix at END by SciPy's DOP853, from the matrix differential equation Ṁ = M hat(body twist)."""
    y0 = start(name, jnp.float64)
    m0 = np.asarray(y0 if name.startswith("SO3") else se3.to_matrix(y0))

    def rate(t, flat):
        m = flat.reshape(m0.shape)
        omega = m[:3, :3].T @ MOMENTUM / INERTIA
        if len(m) == 3:
            return (m @ skew(omega)).ravel()
        push = WIND * (1.0 + np.sin(2.0 * t)) - 0.4 * m[:3, 3]
        return (m @ hat_se3(np.concatenate([omega, m[:3, :3].T @ push]))).ravel()

    solution = solve_ivp(rate, (0.0, END), m0.ravel(), method="DOP853", rtol=1e-13, atol=1e-14)
    return solution.y[:, -1].reshape(m0.shape)


@partial(jax.jit, static_argnums=(0, 1, 2))
def leg(name: str, method: Any, steps: int, y: Any, t0: Any, t1: Any) -> Any:
    """The state after `steps` steps from t0 to t1."""
    problem = PROBLEMS[name]
    return jax.tree.map(
        lambda x: x[0], integrate(problem.space, problem.field, y, t0, t1, steps, method, save_every=None).ys
    )


def errors(name: str, method: Any, steps: int, legs: tuple[int, ...]) -> np.ndarray:
    """Errors at END with steps * n steps for each n in legs: n calls of one compiled program."""
    result = []
    for n in legs:
        y, times = start(name, jnp.float64), np.linspace(0.0, END, n + 1)
        for t0, t1 in pairwise(times):
            y = leg(name, method, steps, y, float(t0), float(t1))
        m = np.asarray(y if name.startswith("SO3") else se3.to_matrix(y))
        result.append(np.max(np.abs(m - reference(name))))
    return np.array(result)


def observed_order(error: np.ndarray) -> float:
    return float(np.log2(error[-2] / error[-1]))
