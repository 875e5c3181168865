"""The linear system that a mechanism is for small deviations, over one step of an integrator.

Read first: `mechanism_step.py`, whose derivatives these are.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from lgjax.integrators import RK4, Method, MuntheKaas
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration, difference, retract
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.simulate.control.mechanism_step import mechanism_step

Array = jax.Array


class Linearization(NamedTuple):
    """Deviations obey x' = A x + B u after one step.

    A: (2 nv, 2 nv). B: (2 nv, nv). x: (2 nv,), the displacement of the configuration in the body frame,
    `difference(model, nominal, q)`, and the difference of velocities. u: (nv,), the difference of forces.
    """

    A: Array
    B: Array


@checked_arguments()
def linearize(
    model: Model,
    q: Configuration,
    v: Array,
    tau: Array,
    dt: ArrayLike,
    method: Method = MuntheKaas(RK4),  # noqa: B008 (a hashable value)
    wrenches: Array | None = None,
) -> Linearization:
    """Derivatives of one step of dt seconds under the forces tau, held, with respect to state and forces.

    They are those of the step itself, which is what a controller in discrete time needs, not an approximation of the
    continuous system. Each stage of the method takes the matrices of `forward_dynamics_partials`, and its tangents are
    chained. If the step is not finite, the matrices are not finite either.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.
        tau: (nv,) generalized forces, N m and N.
        dt: length of the step, s.
        method: integrator of fixed steps, static.
        wrenches: (nbodies, 6), body frame, at the body origin, N m and N, held too; None for none.

    Returns:
        a `control.Linearization`: A (2 nv, 2 nv) and B (2 nv, nv).

    Raises:
        TypeError, ValueError: naming the argument that does not fit.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> A, B = lgjax.linearize(arm, lgjax.neutral(arm), jnp.zeros(2), jnp.zeros(2), 0.01)[:2]
        >>> A.shape, B.shape
        ((4, 4), (4, 2))

    Source: [sola2018] section 4 for derivatives on manifolds; [kim2012] section 4.
    """
    if isinstance(method, Method) and method.needs_series:
        raise ValueError(f"linearize takes a method that evaluates a field, got {checks.shown(method)}")
    n, dt = model.nv, checks.scalar("dt", dt, model.dtype)
    step = mechanism_step(model, dt, method, 1)
    after = step((q, v), tau, wrenches)

    def deviation(x: Array) -> Array:
        moved = step((retract(model, q, x[:n]), v + x[n : 2 * n]), tau + x[2 * n :], wrenches)
        return jnp.concatenate([difference(model, after[0], moved[0]), moved[1] - after[1]])

    jacobian = jax.jacfwd(deviation)(jnp.zeros(3 * n, model.dtype))
    return Linearization(jacobian[:, : 2 * n], jacobian[:, 2 * n :])
