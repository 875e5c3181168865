"""The inverse of the mass matrix applied to a vector, without the matrix: the articulated-body algorithm at rest.

Read first: `forward.py`, the same passes with velocities and gravity. Source: [kim2012] section 2.2.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.dynamics.articulated import (
    NO_INERTIA,
    add_inertia,
    inertia_columns,
    joint_inertia,
    joint_wrench,
    shift,
    through_joint,
)
from lgjax.dynamics.inverse import newton_euler
from lgjax.dynamics.spatial import (
    NO_MOTION,
    NO_WRENCH,
    PlacedJoint,
    Twist,
    add,
    body_data,
    joint_twist,
    place_joint,
    project,
    to_child,
    to_parent,
)
from lgjax.dynamics.traversal.traversal import TreeTraversal
from lgjax.execution import batched, fused_derivatives
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm


@checked_arguments()
def solve_mass_matrix(model: Model, q: Configuration, f: jax.Array) -> jax.Array:
    """M^-1 f, armature included, in time proportional to the number of bodies.

    For several right sides map it over f with `jax.vmap`: the inertias are then computed once. In reverse mode it is
    its own transpose.

    Args:
        model: the mechanism.
        q: its configuration.
        f: (nv,) generalized forces, N m and N.

    Returns:
        (nv,) accelerations, rad/s^2 and m/s^2.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> q = lgjax.configuration(arm, joints=[0.5, 0.0])
        >>> x = lgjax.solve_mass_matrix(arm, q, jnp.ones(2))
        >>> (lgjax.mass_matrix(arm, q) @ x).round(4)
        Array([1., 1.], dtype=float32)

    Source: [kim2012] section 2.2.
    """
    return _solved(model, q, f)


@fused_derivatives
def _solved(model: Model, q: Configuration, f) -> jax.Array:
    still = at_rest(model)
    return lax.custom_linear_solve(
        lambda x: mass_times(still, q, x),
        f,
        lambda _, f: _at_rest(still, q, f),
        symmetric=True,
    )


def at_rest(model: Model) -> Model:
    """The model without what acts besides inertia; a solution must not read more than its equations do."""
    zeros = lambda x: (np if isinstance(x, np.ndarray) else jnp).zeros_like(x)  # constants of a specialized model stay
    return model.replace(gravity=zeros(model.gravity), damping=zeros(model.damping))


def mass_times(still: Model, q: Configuration, x) -> jax.Array:
    """M x (nv,) of `at_rest(model)`, which derivatives of a solution with respect to model and configuration need."""
    return newton_euler(still, q, jnp.zeros_like(x), x, None)


@jax.jit  # one trace, however often a program evaluates it
@batched
def _at_rest(model: Model, q: Configuration, f) -> jax.Array:
    walk = TreeTraversal(model.tree, model.dtype)
    drives = list(zip(walk.velocities(model.armature), walk.velocities(f), strict=True))
    bodies = walk.bodies(body_data(model))
    articulated = walk.inward(_articulate, (NO_INERTIA, NO_WRENCH), bodies, walk.configurations(q), drives)
    return walk.to_velocities(walk.outward(_accelerate, NO_MOTION, articulated))


def _articulate(kind, children, body, q, drive):
    """Inward: what a parent feels of a body at rest whose joint is free; see `forward.py`."""
    armature, force = drive
    pose, S = place_joint(kind, body, q)
    I_A, p_A = add_inertia(children[0], body.inertia), children[1]
    U = inertia_columns(I_A, S)
    D = sm.ldl(joint_inertia(S, U, armature))
    u = force - project(S, p_A)
    p_a = add(p_A, joint_wrench(U, sm.ldl_solve(D, u)))
    I_a = through_joint(I_A, U, D, kind.axes, armature)
    return (shift(I_a, *pose), to_parent(*pose, p_a)), (PlacedJoint(pose, S), U, D, u)


def _accelerate(kind, A_parent: Twist, body: tuple[PlacedJoint, Any, Any, Any]):
    """Outward: qdd = D^-1 (u - U^T A') from the acceleration A' at which the parent carries the body."""
    (pose, S), U, D, u = body
    A = to_child(*pose, A_parent)
    qdd = sm.ldl_solve(D, u - project(U, A))
    return add(A, joint_twist(S, qdd)), qdd
