"""Inverse dynamics of constrained mechanisms with actuated and passive joints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.dynamics.hybrid import prescribed_mask
from lgjax.dynamics.inverse import inverse_dynamics
from lgjax.dynamics.loops.constraint import loop_constraint
from lgjax.dynamics.loops.forward import (
    ConstrainedDynamics,
    Minimum,
    check_minimum,
    finite,
    rank_tolerance,
    relieve,
)
from lgjax.dynamics.loops.loop import Loop
from lgjax.dynamics.loops.status import flags
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics.rank import independent_rows, longest_row, product, pseudo_inverse


@checked_arguments()
def constrained_inverse_dynamics(
    model: Model, loops: Loop | Sequence[Loop], q: Configuration, v: jax.Array, vdot: jax.Array,
    actuated: Sequence[int], tau: jax.Array | None = None, wrenches: jax.Array | None = None, *,
    minimum: Minimum = "constraint_force", tolerance: Any = None,
) -> ConstrainedDynamics:  # fmt: skip
    """Forces of the actuated joints that give a mechanism with closed loops the accelerations vdot.

    The passive joints determine the multipliers, A_p^T lambda = tau_r - tau at p with tau_r = M vdot + b, and these the
    actuators, tau = tau_r - A^T lambda. Where more than one solution exists the status says OVERACTUATED. Where none
    exists it says UNDERACTUATED, and the result has the least residual, the force missing at the passive joints.

    Args:
        model: the mechanism.
        loops: one `Loop` or several.
        q, v, vdot: configuration, (nv,) velocities, body frame, rad/s and m/s, and (nv,) accelerations, rad/s^2 and
            m/s^2, consistent with the loops: the status says SLIPPING or INCONSISTENT where v or vdot is not.
        actuated: static velocity indices at which forces are found.
        tau: (nv,) forces of the other joints, N m and N, by default zero.
        wrenches: as in `forward_dynamics`.
        minimum: as in `constrained_hybrid_dynamics`, where "torque" means the forces of the actuated joints.
        tolerance: as in `constrained_forward_dynamics`.

    Returns:
        a `ConstrainedDynamics`: vdot, tau, multipliers and status.

    Raises:
        ValueError: for actuated indices that are out of range or named twice, and for an unknown `minimum`.

    Source: [kim2012] eqs. 56-66.
    """
    check_minimum(minimum)
    active = prescribed_mask(model, actuated, "actuated")
    c = loop_constraint(model, loops, q, v)
    tolerance = rank_tolerance(model, tolerance)
    limit = tolerance * longest_row(c.jacobian)
    free_tau = inverse_dynamics(model, q, v, vdot, wrenches)
    given = 0 * free_tau if tau is None else tau
    rank = independent_rows(c.jacobian, limit).rank
    # Actuated columns as zeros: the shapes and so the programs do not depend on the split.
    passive, driven = jnp.where(active, 0, c.jacobian), jnp.where(active, c.jacobian, 0)
    lack = jnp.where(active, 0, free_tau - given)
    multipliers = product(pseudo_inverse(passive, limit).T, lack)
    if minimum == "torque":
        multipliers = relieve(multipliers, passive, driven, jnp.where(active, free_tau, 0), limit)
    forces = product(c.jacobian.T, multipliers)
    left = jnp.where(active, 0, lack - forces)
    found = jnp.where(active, free_tau - forces, given)
    residual = jnp.max(jnp.abs(left))
    acceleration = product(c.jacobian, vdot)
    size = jnp.max(product(jnp.abs(c.jacobian), jnp.abs(vdot)) + jnp.abs(c.bias))
    speed = jnp.max(product(jnp.abs(c.jacobian), jnp.abs(v)))
    status = flags(
        REDUNDANT=rank < len(c.residual),
        OVERACTUATED=independent_rows(passive, limit).rank < rank,
        UNDERACTUATED=residual > 1e2 * tolerance * (jnp.max(jnp.abs(lack)) + jnp.max(jnp.abs(forces))),
        INCONSISTENT=jnp.max(jnp.abs(acceleration + c.bias)) > 1e2 * tolerance * size,
        SLIPPING=jnp.max(jnp.abs(c.rate)) > 1e2 * tolerance * speed,
        NOT_FINITE=~finite(found, multipliers),
    )
    return ConstrainedDynamics(vdot, found, multipliers, forces, residual, rank, status)
