"""Inverse dynamics: the recursive Newton-Euler algorithm, order 0 of its time derivatives."""

import jax

from lgjax.dynamics.spatial import applied_wrenches
from lgjax.dynamics.time_derivatives.series import inverse_series
from lgjax.dynamics.traversal.traversal import Execution
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model


@checked_arguments()
def inverse_dynamics(
    model: Model, q: Configuration, v, vdot, wrenches=None, *, execution: Execution = "scalarized"
) -> jax.Array:
    """Generalised forces tau (nv,) that produce the accelerations vdot (nv,): M vdot + bias + damping v.

    v: (nv,) body-frame velocities. wrenches: (nbodies, 6), [n, f] on each body, body frame, at the body origin.
    Armature and joint damping are included. N m and N. Source: [kim2012] section 2.2; [ali2026] Alg. 2, order 0.
    """
    applied = None if wrenches is None else [applied_wrenches(model.links, wrenches)]
    return inverse_series(model, q, v, [vdot], applied, execution)[0]


@checked_arguments()
def bias_forces(model: Model, q: Configuration, v, wrenches=None, *, execution: Execution = "scalarized") -> jax.Array:
    """Generalised forces (nv,) at zero acceleration: Coriolis, centrifugal, gravity, damping and applied wrenches."""
    return inverse_dynamics(model, q, v, 0 * v, wrenches, execution=execution)


@checked_arguments()
def gravity_forces(model: Model, q: Configuration, *, execution: Execution = "scalarized") -> jax.Array:
    """Generalised forces (nv,) that hold the mechanism at rest: the gradient of the potential energy."""
    rest = 0 * model.armature
    return inverse_dynamics(model, q, rest, rest, execution=execution)
