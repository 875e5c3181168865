"""Forward and hybrid dynamics of constrained mechanisms: the articulated-body solve as the inverse mass matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forward import forward_dynamics
from lgjax.dynamics.hybrid import hybrid_dynamics, prescribed_mask
from lgjax.dynamics.loops.constraint import Constraint, loop_constraint
from lgjax.dynamics.loops.loop import Loop
from lgjax.dynamics.loops.status import flags
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.rank import (
    default_tolerance,
    independent_rows,
    longest_row,
    product,
    pseudo_inverse,
    regular_inverse,
)

Minimum = Literal["constraint_force", "torque"]


class ConstrainedDynamics(NamedTuple):
    """Result of constrained dynamics.

    vdot: (nv,). tau: (nv,), forces of the joints, given and found. multipliers: (m,), lambda in the order of the loops,
    newtons for meters and newton meters for radians; of several that give the same the shortest. forces: (nv,),
    A^T lambda, what the loops do to the joints. residual: () largest entry of what is left of the equations that could
    not be met. rank: () int32, of the constraints. status: () int32, `LoopStatus`.
    """

    vdot: jax.Array
    tau: jax.Array
    multipliers: jax.Array
    forces: jax.Array
    residual: jax.Array
    rank: jax.Array
    status: jax.Array


@checked_arguments()
def constrained_forward_dynamics(
    model: Model,
    loops: Loop | Sequence[Loop],
    q: Configuration,
    v: jax.Array,
    tau: jax.Array,
    wrenches: jax.Array | None = None,
    *,
    alpha: Any = 0.0,
    beta: Any = 0.0,
    tolerance: Any = None,
) -> ConstrainedDynamics:
    """Accelerations under the forces tau of a mechanism with closed loops: M vdot + b = tau + A^T lambda.

    The constraints hold as d^2 phi/dt^2 = -2 alpha dphi/dt - beta^2 phi (Baumgarte). Dependent ones are left out of the
    solve: the status says REDUNDANT, and INCONSISTENT where they contradict one another; `rank` says how many count. q
    and v need not obey the constraints: see `project_positions` and `project_velocity`.

    Args:
        model: the mechanism.
        loops: one `Loop` or several.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.
        tau: (nv,) generalized forces, N m and N.
        wrenches: as in `forward_dynamics`.
        alpha, beta: gains of the equation above, 1/s, may be traced.
        tolerance: relative size below which constraints count as dependent, by default half the digits of the dtype.

    Returns:
        a `ConstrainedDynamics`: vdot, tau, multipliers and status.

    Example:
        >>> s = lgjax.systems.four_bar()
        >>> v = tau = jnp.zeros(s.model.nv)
        >>> lgjax.constrained_forward_dynamics(s.model, s.loops, s.q0, v, tau).vdot.shape
        (3,)

    Source: [kim2012] eqs. 54-55; the solve is derived in the comments.
    """
    return constrained_hybrid_dynamics(
        model, loops, q, v, 0 * tau, tau, (), wrenches, alpha=alpha, beta=beta, tolerance=tolerance
    )


@checked_arguments()
def constrained_hybrid_dynamics(
    model: Model, loops: Loop | Sequence[Loop], q: Configuration, v: jax.Array, vdot: jax.Array, tau: jax.Array,
    prescribed: Sequence[int], wrenches: jax.Array | None = None, *, minimum: Minimum = "constraint_force",
    alpha: Any = 0.0, beta: Any = 0.0, tolerance: Any = None,
) -> ConstrainedDynamics:  # fmt: skip
    """Accelerations and forces of a mechanism with closed loops where some accelerations are prescribed.

    Where the prescribed motion alone decides some of the constraints, the forces that drive it can work against one
    another: the status says OVERACTUATED. Where it contradicts a constraint the status says INCONSISTENT, and the
    residual says by how much.

    Args:
        model: the mechanism.
        loops: one `Loop` or several.
        q: its configuration.
        v, vdot, tau, prescribed: as in `hybrid_dynamics`.
        wrenches: as in `forward_dynamics`.
        minimum: the choice among several solutions: "constraint_force" for the least multipliers, "torque" for the
            least forces of the prescribed joints.
        alpha, beta, tolerance: as in `constrained_forward_dynamics`.

    Returns:
        a `ConstrainedDynamics`: vdot, tau, multipliers and status.

    Raises:
        ValueError: for prescribed indices that are out of range or named twice, and for an unknown `minimum`.

    Source: derived from [kim2012] eq. 54, sections 2.3 and 3.
    """
    check_minimum(minimum)
    given = prescribed_mask(model, prescribed)
    alpha, beta = checks.scalar("alpha", alpha, model.dtype), checks.scalar("beta", beta, model.dtype)
    c = loop_constraint(model, loops, q, v)
    wanted = -c.bias - 2 * alpha * c.rate - beta**2 * c.residual
    # Constraints act on the joints that are free to accelerate; of dependent ones some are left out.
    free = jnp.where(given, 0, c.jacobian)
    tolerance = rank_tolerance(model, tolerance)
    limit = tolerance * longest_row(c.jacobian)
    chosen = independent_rows(free, limit)
    B = product(chosen.combine, free)
    # vdot = vdot_0 + X^T mu with X = B M^-1, and B vdot = E wanted: (B X^T) mu = E (wanted - A vdot_0)
    (vdot_0, tau_0), (X, pull) = responses(model, q, v, vdot, tau, wrenches, B, prescribed)
    grown = product(B, X.T) + jnp.where(chosen.kept, 0, 1)[:, None] * jnp.eye(len(B), dtype=B.dtype)
    inverse, right = regular_inverse(grown), product(chosen.combine, wanted - product(c.jacobian, vdot_0))
    mu = product(inverse, right)
    mu = mu + product(inverse, right - product(grown, mu))
    vdot = vdot_0 + product(X.T, mu)
    tau_0 = tau_0 + product(pull.T, mu)
    multipliers = product(pseudo_inverse(free, limit).T, product(B.T, mu))
    if given.any() and minimum == "torque":
        multipliers = relieve(multipliers, free, c.jacobian[:, given], tau_0[given], limit)
    forces = product(c.jacobian.T, multipliers)
    tau = jnp.where(given, tau_0 - forces, tau)
    return _report(c, wanted, vdot_0, vdot, tau, multipliers, forces, chosen.rank, given, tolerance)


def responses(model: Model, q, v, vdot, tau, wrenches, columns, prescribed=()):
    """Motion under what is given, and under each row of `columns` (m, nv) as forces alone; of both (vdot, tau).

    One call of the articulated-body algorithm: the inertias are shared, only velocities and forces differ.
    """
    first = lambda x: jnp.concatenate([x[None], jnp.zeros((len(columns), *x.shape), x.dtype)])

    def one(gravity, v, vdot, tau, wrenches):
        here = model.replace(gravity=gravity)
        if not len(prescribed):
            return forward_dynamics(here, q, v, tau, wrenches), tau
        return hybrid_dynamics(here, q, v, vdot, tau, prescribed, wrenches)

    forces = jnp.concatenate([tau[None], columns])
    applied = None if wrenches is None else first(wrenches)
    found = jax.vmap(one)(first(model.gravity), first(v), first(vdot), forces, applied)
    return jax.tree.map(lambda x: x[0], found), jax.tree.map(lambda x: x[1:], found)


def relieve(multipliers, passive, active, torque, limit):
    """The multipliers with the least `torque` - active^T multipliers that act on the passive joints as before.

    passive (m, n), active (m, k): columns of the Jacobian. Source: [kim2012] eqs. 61-64.
    """
    idle = jnp.eye(len(passive), dtype=passive.dtype) - product(passive, pseudo_inverse(passive, limit))
    left = torque - product(active.T, multipliers)
    return multipliers + product(idle, product(pseudo_inverse(product(active.T, idle), limit), left))


def check_minimum(minimum: str) -> None:
    if minimum not in ("constraint_force", "torque"):
        raise ValueError(f"minimum is 'constraint_force' or 'torque', not {checks.shown(minimum)}")


def rank_tolerance(model: Model, tolerance, name: str = "tolerance") -> jax.Array:
    return checks.scalar(name, default_tolerance(model.dtype) if tolerance is None else tolerance, model.dtype)


def finite(*values) -> jax.Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in values]))


def _report(c: Constraint, wanted, vdot_0, vdot, tau, multipliers, forces, rank, given: np.ndarray, tolerance):
    left = product(c.jacobian, vdot) - wanted
    residual = jnp.max(jnp.abs(left))
    # What roundoff and dependent constraints that close no better than their tolerance may leave.
    # A joint that is held has no acceleration: what is left is a difference of those that it would have.
    moving = jnp.abs(vdot) + jnp.abs(vdot_0)
    size = jnp.max(jnp.abs(wanted)) + jnp.max(product(jnp.abs(c.jacobian), moving))
    full = independent_rows(c.jacobian, tolerance * longest_row(c.jacobian)).rank if given.any() else rank
    status = flags(
        REDUNDANT=full < len(left),
        INCONSISTENT=residual > 1e2 * tolerance * size,
        NOT_FINITE=~finite(vdot, tau, multipliers),
        OVERACTUATED=full > rank,
    )
    return ConstrainedDynamics(vdot, tau, multipliers, forces, residual, full, status)
