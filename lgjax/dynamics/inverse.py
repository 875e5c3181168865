"""Inverse dynamics: the recursive Newton-Euler algorithm, two passes over the tree.

The outward pass finds velocities V and accelerations A, with gravity as an acceleration -g of the world; the inward
pass finds the wrenches W that the joints transmit. All quantities of a body are in its joint frame.

Read first: `spatial.py`; `traversal/` does the walking. Next: `forward.py`.
Source: [featherstone2008] section 5.3; [kim2012] section 2.1.
"""

from __future__ import annotations

import jax

from lgjax.dynamics.spatial import (
    NO_MOTION,
    NO_WRENCH,
    ZERO3,
    PlacedJoint,
    Twist,
    Wrench,
    add,
    applied_wrenches,
    body_data,
    gyroscopic_wrench,
    place_joint,
    project,
    subtract,
    to_parent,
    twist_of_child,
    velocity_product,
)
from lgjax.dynamics.traversal.traversal import TreeTraversal
from lgjax.execution import batched
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model


@checked_arguments()
def inverse_dynamics(
    model: Model,
    q: Configuration,
    v: jax.Array,
    vdot: jax.Array,
    wrenches: jax.Array | None = None,
) -> jax.Array:
    """Generalized forces for the accelerations vdot: M vdot + `bias_forces`. Armature and damping are included.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.
        vdot: (nv,) accelerations, rad/s^2 and m/s^2.
        wrenches: (nbodies, 6), [n, f] on each body, body frame, at the body origin, N m and N; None for none.

    Returns:
        tau (nv,), N m and N.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> q = lgjax.configuration(arm, joints=[0.5, 0.0])
        >>> hold = lgjax.inverse_dynamics(arm, q, jnp.zeros(2), jnp.zeros(2))
        >>> bool(jnp.allclose(hold, lgjax.gravity_forces(arm, q), atol=1e-5))
        True

    Source: [featherstone2008] section 5.3; [kim2012] section 2.1.
    """
    applied = None if wrenches is None else applied_wrenches(model.links, wrenches)
    return newton_euler(model, q, v, vdot, applied)


@checked_arguments()
def bias_forces(
    model: Model,
    q: Configuration,
    v: jax.Array,
    wrenches: jax.Array | None = None,
) -> jax.Array:
    """Generalized forces at zero acceleration: Coriolis, centrifugal, gravity, damping and applied wrenches.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.
        wrenches: as in `inverse_dynamics`; the joints balance them, so they enter with a minus sign.

    Returns:
        (nv,), N m and N.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> q = lgjax.configuration(arm, joints=[0.5, 0.0])
        >>> v = jnp.zeros(2)
        >>> bool(jnp.allclose(lgjax.bias_forces(arm, q, v), lgjax.gravity_forces(arm, q)))
        True

    Source: [featherstone2008] section 5.3, with zero accelerations.
    """
    return inverse_dynamics(model, q, v, 0 * v, wrenches)


@checked_arguments()
def gravity_forces(model: Model, q: Configuration) -> jax.Array:
    """Generalized forces (nv,) that hold the mechanism at rest: the gradient of the potential energy.

    N m and N. Source: [featherstone2008] section 5.3, with zero velocities and accelerations.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> lgjax.gravity_forces(arm, lgjax.neutral(arm))  # it hangs down
        Array([0., 0.], dtype=float32)
    """
    rest = 0 * model.armature
    return inverse_dynamics(model, q, rest, rest)


# ---- the passes
@jax.jit  # one trace, however often a program evaluates it
@batched
def newton_euler(model: Model, q: Configuration, v, vdot, applied: Wrench | None) -> jax.Array:
    """Generalized forces (nv,). applied: Wrench (nbodies, 3) in joint frames, or None."""
    walk = TreeTraversal(model.tree, model.dtype)
    bodies = walk.bodies(body_data(model))
    outside = walk.bodies(applied)
    speeds = list(zip(walk.velocities(v), walk.velocities(vdot), strict=True))
    world = NO_MOTION, Twist(ZERO3, -model.gravity)
    moving = walk.outward(_accelerate, world, bodies, walk.configurations(q), speeds, outside)
    forces = walk.to_velocities(walk.inward(_transmit, NO_WRENCH, moving))
    return forces + model.armature * vdot + model.damping * v


# ---- the steps of one body
def _accelerate(kind, parent: tuple[Twist, Twist], body, q, speeds, outside: Wrench | None):
    """Outward: V = Ad^-1 V_parent + S qd, A = dV/dt, and the body's own wrench I A + V x* I V less the applied one."""
    V_parent, A_parent = parent
    qd, qdd = speeds
    joint = place_joint(kind, body, q)
    V = twist_of_child(joint, V_parent, qd)
    A = add(twist_of_child(joint, A_parent, qdd), velocity_product(kind, body, q, joint.S, qd, V))
    p = gyroscopic_wrench(body, V)
    p = p if outside is None else subtract(p, outside)
    return (V, A), (joint, add(Wrench(*body.inertia.momentum(*A)), p))


def _transmit(kind, children: Wrench, body: tuple[PlacedJoint, Wrench]):
    """Inward: the joint transmits W, the body's own wrench plus those of its children; its force is S^T W."""
    joint, own = body
    W = add(children, own)
    return to_parent(*joint.pose, W), project(joint.S, W)
