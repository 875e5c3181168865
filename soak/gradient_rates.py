"""Time derivatives of the dynamics, and matrices of derivatives, at degenerate states, for `gradients.py`."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import control, time_derivatives
from soak.gradient_mechanics import SHORT, cart, of_mechanism, points
from soak.gradient_subjects import Subject


@cache
def shoulder() -> lgjax.Model:
    """A ball joint and a universal one: less to compile than a tree that floats."""
    body = lambda name, parent, joint: lgjax.Body(
        name, parent, joint, position=np.asarray([0.0, 0.0, 0.3 if parent else 0.0]), mass=1.0,
        com=np.asarray([0.0, 0.0, 0.1]), inertia=np.diag([0.02, 0.03, 0.04]),
    )  # fmt: skip
    cross = lgjax.Joint("wrist", "universal", axis=(1.0, 0.0, 0.0), second_axis=(0.0, 1.0, 0.0))
    return lgjax.build([body("arm", None, lgjax.Joint("ball", "spherical")), body("hand", "arm", cross)])


def _stack(x: jax.Array, n: int) -> jax.Array:
    """(n, nv) derivatives of a motion or a force, of the size of one."""
    return jnp.stack([jnp.roll(x, k) + 0.1 * k for k in range(n)])


def _inverse(order: int, frame: Any, m, q, v, x):
    rates = jnp.concatenate([v[None], _stack(x, order + 1)])
    return time_derivatives.inverse_dynamics_time_derivatives(m, q, rates, order, frame)[-1]


def _forward(order: int, frame: Any, m, q, v, x):
    return time_derivatives.forward_dynamics_time_derivatives(m, q, v, _stack(x, order + 1), frame)[-1]


def _hybrid(order: int, frame: Any, m, q, v, x):
    stack = _stack(x, order + 1)
    return [y[-1] for y in time_derivatives.hybrid_dynamics_time_derivatives(m, q, v, stack, stack, (m.nv - 1,), frame)]


def _poses(m, q, v, x):
    name, twists = m.tree.body_names[-1], jnp.resize(jnp.concatenate([v, x]), (3, 6))
    poses = time_derivatives.pose_derivatives(lgjax.frame_pose(m, q, name), twists)
    return poses, time_derivatives.twist_derivatives(poses)


def _inverse_partials(m, q, v, x):
    rates = jnp.concatenate([v[None], _stack(x, 2)])
    return time_derivatives.inverse_dynamics_time_derivative_partials(m, q, rates, 1)


def _forward_partials(m, q, v, x):
    return time_derivatives.forward_dynamics_time_derivative_partials(m, q, v, _stack(x, 2))


RATES: dict[str, Callable] = {
    **{f"{name} dynamics, time derivative {k}": partial(f, k, "body")
       for name, f in (("inverse", _inverse), ("forward", _forward)) for k in (1, 2, 3)},
    "hybrid dynamics, time derivative 2": partial(_hybrid, 2, "body"),
    "pose_derivatives": _poses,
}  # fmt: skip
# Derivatives themselves: their first derivatives are second ones of the dynamics.
MATRICES: dict[str, Callable] = {
    "inverse_dynamics_partials": lambda m, q, v, x: lgjax.inverse_dynamics_partials(m, q, v, x),
    "forward_dynamics_partials": lambda m, q, v, x: lgjax.forward_dynamics_partials(m, q, v, x),
    "hybrid_dynamics_partials": lambda m, q, v, x: lgjax.hybrid_dynamics_partials(m, q, v, x, x, (m.nv - 1,)),
}
MORE: dict[str, Callable] = {
    "inverse dynamics, partials of time derivatives": _inverse_partials,
    "forward dynamics, partials of time derivatives": _forward_partials,
    "linearize": lambda m, q, v, x: control.linearize(m, q, v, x, 0.01),
}


def _made(where: str, model: Callable, functions: dict, second: bool | str) -> dict[str, Callable[[int], Subject]]:
    return {f"{name} of {where}": partial(of_mechanism, model, {name: f}, second) for name, f in functions.items()}


DERIVED: dict[str, Callable[[int], Subject]] = {
    "forward dynamics, spatial time derivative 1 of a cart": partial(
        of_mechanism, cart, {"spatial forward dynamics": partial(_forward, 1, "spatial")}, SHORT
    ),
    **_made("a shoulder", shoulder, RATES, SHORT),
    **_made("point masses", points, RATES, SHORT),
    **_made("a shoulder", shoulder, MATRICES, SHORT),
    **_made("a shoulder", shoulder, MORE, SHORT),
    **_made("point masses", points, MATRICES | MORE, SHORT),
}
