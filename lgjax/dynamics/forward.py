"""Forward dynamics: the articulated-body algorithm, three passes over the tree.

The first pass goes outward for the velocities, the second inward for the articulated inertias, the third outward for
the accelerations. All quantities of a body are in its joint frame. As in the book:

    V, A      velocity, and acceleration with gravity as an acceleration -g of the world
    S         motion subspace of the joint: V = Ad^-1 V_parent + S qd
    c, p      what the velocities alone add to the acceleration and to the wrench of a body
    I_A, p_A  articulated inertia and bias wrench: the joint of a body transmits I_A A + p_A
    I_a, p_a  what is left of them behind the joint, which the parent feels
    U, D, u   I_A S, S^T U + armature and tau - damping qd - S^T p_A
    A', qdd   Ad^-1 A_parent + c, and the joint's acceleration D^-1 (u - U^T A')

Read first: `spatial.py` and `articulated.py`; `traversal/` does the walking. Next: `hybrid.py`.
Source: [featherstone2008] section 7.3; [kim2012] section 2.2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from lgjax.dynamics.articulated import (
    NO_INERTIA,
    add_inertia,
    inertia_columns,
    joint_inertia,
    joint_wrench,
    shift,
    through_joint,
)
from lgjax.dynamics.derivative_rules import by_inverse_dynamics
from lgjax.dynamics.inverse import newton_euler
from lgjax.dynamics.mass_solve import solve_mass_matrix
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
    joint_twist,
    place_joint,
    project,
    subtract,
    to_child,
    to_parent,
    twist_of_child,
    velocity_product,
)
from lgjax.dynamics.traversal.traversal import TreeTraversal
from lgjax.execution import batched, fused_derivatives
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm


@checked_arguments()
def forward_dynamics(
    model: Model,
    q: Configuration,
    v: jax.Array,
    tau: jax.Array,
    wrenches: jax.Array | None = None,
) -> jax.Array:
    """Accelerations under the generalized forces tau: M^-1 (tau - `bias_forces`). Armature and damping are included.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.
        tau: (nv,) generalized forces, N m and N.
        wrenches: (nbodies, 6), [n, f] on each body, body frame, at the body origin, N m and N; None for none.

    Returns:
        vdot (nv,), rad/s^2 and m/s^2.

    Raises:
        TypeError, ValueError: naming the argument, for a wrong shape or dtype.

    Example:
        >>> arm = lgjax.models.chain(2)  # hangs down, at rest
        >>> lgjax.forward_dynamics(arm, lgjax.neutral(arm), jnp.zeros(2), jnp.zeros(2))
        Array([0., 0.], dtype=float32)

    Source: [featherstone2008] section 7.3; [kim2012] section 2.2.
    """
    applied = None if wrenches is None else applied_wrenches(model.links, wrenches)
    return accelerations(model, q, v, tau, applied)


# ---- the passes
@jax.jit  # one trace, however often a program evaluates it, and a kernel where it is called outside of jit
@batched
def articulated_body(model: Model, q: Configuration, v, tau, applied: Wrench | None) -> jax.Array:
    """Accelerations (nv,). applied: Wrench (nbodies, 3) in joint frames, or None."""
    walk = TreeTraversal(model.tree, model.dtype)
    drives = list(zip(*map(walk.velocities, (model.armature, model.damping, v, tau)), strict=True))
    bodies = walk.bodies(body_data(model))
    moving = velocity_pass(walk, bodies, q, v, applied)
    articulated = walk.inward(articulate, (NO_INERTIA, NO_WRENCH), bodies, moving, drives)
    return walk.to_velocities(walk.outward(accelerate, Twist(ZERO3, -model.gravity), articulated))


# Derivatives are taken from inverse dynamics at the solution, not through the recursion.
accelerations = fused_derivatives(by_inverse_dynamics(articulated_body, newton_euler, solve_mass_matrix))


def velocity_pass(walk: TreeTraversal, bodies: list, q: Configuration, v, applied: Wrench | None) -> list:
    """The `Moving` of every body, by run; applied: as in `articulated_body`."""
    outside = walk.bodies(applied)
    return walk.outward(move, NO_MOTION, bodies, walk.configurations(q), walk.velocities(v), outside)


# ---- the steps of one body
class Moving(NamedTuple):
    """A body at its velocity: its joint, its bias acceleration c, and p, the wrench that it needs to keep its twist."""

    joint: PlacedJoint
    c: Twist
    p: Wrench


def move(kind, V_parent: Twist, body, q, qd, outside: Wrench | None) -> tuple[Twist, Moving]:
    """Outward: V = Ad^-1 V_parent + S qd."""
    joint = place_joint(kind, body, q)
    V = twist_of_child(joint, V_parent, qd)
    c = velocity_product(kind, body, q, joint.S, qd, V)
    p = gyroscopic_wrench(body, V)
    return V, Moving(joint, c, p if outside is None else subtract(p, outside))


class Articulated(NamedTuple):
    """A joint after the inward pass: c of its body, U, D as its LDL factor, and u."""

    joint: PlacedJoint
    c: Twist
    U: Any
    D: Any
    u: Any


def articulate(kind, children, body, moving: Moving, drive):
    """Inward: what the parent feels of a body through its joint.

    I_a = I_A - U D^-1 U^T and p_a = p_A + I_a c + U D^-1 u. drive: armature, damping, velocity, force.
    """
    (pose, S), c, p = moving
    armature, damping, qd, tau = drive
    I_A, p_A = add_inertia(children[0], body.inertia), add(p, children[1])
    U = inertia_columns(I_A, S)
    D = sm.ldl(joint_inertia(S, U, armature))
    u = tau - damping * qd - project(S, p_A)
    I_a = through_joint(I_A, U, D, kind.axes, armature)
    p_a = add(add(p_A, I_a.wrench(c)), joint_wrench(U, sm.ldl_solve(D, u)))
    return (shift(I_a, *pose), to_parent(*pose, p_a)), Articulated(moving.joint, c, U, D, u)


def accelerate(kind, A_parent: Twist, body: Articulated):
    """Outward: A' = Ad^-1 A_parent + c, qdd = D^-1 (u - U^T A') and A = A' + S qdd."""
    (pose, S), c, U, D, u = body
    A = add(to_child(*pose, A_parent), c)
    qdd = sm.ldl_solve(D, u - project(U, A))
    return add(A, joint_twist(S, qdd)), qdd
