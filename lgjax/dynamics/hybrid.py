"""Hybrid dynamics: the articulated-body algorithm with prescribed accelerations at some joints.

A prescribed joint counts as welded: its given acceleration is added to the bias c, and its force is read from the
wrench that it transmits. One joint may have velocities of both sorts: `free` is 1 for those that are solved for and 0
for those that are prescribed, whose rows and columns of D are replaced by those of the identity.

Read first: `forward.py`, which has the outward pass for the velocities.
Source: [kim2012] section 2.3; [featherstone2008] section 9.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.dynamics.articulated import (
    NO_INERTIA,
    ArticulatedInertia,
    add_inertia,
    inertia_columns,
    joint_inertia,
    joint_wrench,
    shift,
    through_joint,
)
from lgjax.dynamics.derivative_rules import by_partial_inverse_dynamics
from lgjax.dynamics.forward import Moving, accelerations, velocity_pass
from lgjax.dynamics.inverse import newton_euler
from lgjax.dynamics.mass_solve import at_rest, mass_times
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
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm


@checked_arguments()
def hybrid_dynamics(
    model: Model,
    q: Configuration,
    v: jax.Array,
    vdot: jax.Array,
    tau: jax.Array,
    prescribed: Sequence[int],
    wrenches: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Accelerations and forces where some accelerations are prescribed and the other forces given.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.
        vdot: (nv,) accelerations, rad/s^2 and m/s^2; only the prescribed entries are read.
        tau: (nv,) forces, N m and N; only the other entries are read.
        prescribed: static velocity indices, which may be those of a floating base, at which vdot is given and tau is
            solved for; elsewhere tau is given and vdot is solved for.
        wrenches: as in `forward_dynamics`.

    Returns:
        (vdot, tau), both (nv,) and complete.

    Raises:
        ValueError: for an index that is out of range or named twice.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> q = lgjax.configuration(arm, joints=[0.5, 0.0])
        >>> zero = jnp.zeros(2)  # joint 0 is held, joint 1 swings
        >>> vdot, tau = lgjax.hybrid_dynamics(arm, q, zero, zero, zero, prescribed=(0,))
        >>> vdot[0]
        Array(0., dtype=float32)

    Source: [kim2012] section 2.3; [featherstone2008] section 9.2.
    """
    given = prescribed_mask(model, prescribed)
    applied = None if wrenches is None else applied_wrenches(model.links, wrenches)
    x, f = jnp.where(given, vdot, 0), jnp.where(given, 0, tau)
    return _differentiable(tuple(given.tolist()))(model, q, v, x, f, applied)


def prescribed_mask(model: Model, indices: Sequence[int], name: str = "prescribed") -> np.ndarray:
    """Mask (nv,) of checked static velocity indices; errors call them by `name`."""
    mask = np.zeros(model.nv, bool)
    mask[list(checks.indices(name, indices, model.nv))] = True
    return mask


@lru_cache
def _differentiable(given: tuple[bool, ...]):
    """Hybrid dynamics with its derivatives; forward dynamics if nothing is prescribed, inverse dynamics if all is."""
    mask = np.asarray(given, bool)
    inverse = lambda model, q, v, x, applied: newton_euler(model, q, v, x, applied)
    if not mask.any():
        return lambda model, q, v, x, f, applied: (accelerations(model, q, v, f, applied), f)
    if mask.all():
        return lambda model, q, v, x, f, applied: (x, inverse(model, q, v, x, applied))
    solve = lambda model, q, f, x: _solve_at_rest(model, q, f, x, mask)
    rules = by_partial_inverse_dynamics(partial(_recursion, given), inverse, solve, mask)
    return fused_derivatives(rules)


@partial(jax.jit, static_argnums=0)
def _recursion(given: tuple[bool, ...], model: Model, q: Configuration, v, vdot, tau, applied):
    """Accelerations and forces (nv,). vdot, tau: (nv,), zero where not given. applied: as in `articulated_body`."""
    return batched(partial(_three_passes, np.asarray(given)))(model, q, v, vdot, tau, applied)


# ---- the passes
def _three_passes(given: np.ndarray, model: Model, q: Configuration, v, vdot, tau, applied):
    walk = TreeTraversal(model.tree, model.dtype)
    drives, bodies = _drives(walk, model, given, vdot, tau - model.damping * v), walk.bodies(body_data(model))
    moving = velocity_pass(walk, bodies, q, v, applied)
    articulated = walk.inward(_articulate, (NO_INERTIA, NO_WRENCH), bodies, moving, drives)
    x, through = _accelerations(walk, Twist(ZERO3, -model.gravity), articulated)
    return x, jnp.where(given, through + model.armature * x + model.damping * v, tau)


def _two_passes_at_rest(given: np.ndarray, model: Model, q: Configuration, vdot, tau):
    """Accelerations and the forces (nv,) that the joints transmit, without velocities, gravity and damping."""
    walk = TreeTraversal(model.tree, model.dtype)
    drives, bodies = _drives(walk, model, given, vdot, tau), walk.bodies(body_data(model))
    zero = NO_INERTIA, NO_WRENCH
    return _accelerations(
        walk, NO_MOTION, walk.inward(_articulate_at_rest, zero, bodies, walk.configurations(q), drives)
    )


def _drives(walk: TreeTraversal, model: Model, given: np.ndarray, vdot, tau) -> list[tuple]:
    """Armature, `free`, given acceleration and given force of every joint, by run."""
    free = (~given).astype(model.dtype)  # NumPy, so that it folds where the lanes agree
    return list(zip(*map(walk.velocities, (model.armature, free, vdot, tau)), strict=True))


def _accelerations(walk: TreeTraversal, world: Twist, articulated: list) -> tuple[jax.Array, jax.Array]:
    """Accelerations and the forces (nv,) that the joints transmit."""
    found = walk.outward(_accelerate, world, articulated)
    accelerations, through = (walk.to_velocities([rows[k] for rows in found]) for k in (0, 1))
    return accelerations, through


# ---- the steps of one body; the first is that of `forward.py`
class HybridJoint(NamedTuple):
    """A joint after the inward pass: its given acceleration, c with that, I_A, p_A, U, D as its LDL factor, and u."""

    joint: PlacedJoint
    given: Any
    c: Twist
    inertia: ArticulatedInertia
    bias: Wrench
    U: Any
    D: Any
    u: Any


def _articulate(kind, children, body, moving: Moving, drive):
    """Inward: what the parent feels of a body, I_a = I_A - U D^-1 U^T and p_a = p_A + I_a c + U D^-1 u."""
    (pose, S), c, p = moving
    armature, free, given, tau = drive
    I_A, p_A = add_inertia(children[0], body.inertia), add(p, children[1])
    c = add(c, joint_twist(S, given))
    U = inertia_columns(I_A, S)
    U, D = (U[0] * free, U[1] * free), sm.outer(free, free) * joint_inertia(S, U, armature) + sm.diagonal(1 - free)
    D = sm.ldl(D)
    u = free * (tau - project(S, p_A))
    I_a = through_joint(I_A, U, D)
    p_a = add(add(p_A, I_a.wrench(c)), joint_wrench(U, sm.ldl_solve(D, u)))
    return (shift(I_a, *pose), to_parent(*pose, p_a)), HybridJoint(moving.joint, given, c, I_A, p_A, U, D, u)


def _articulate_at_rest(kind, children, body, q, drive):
    zeros = [jnp.zeros_like(x) for x in children[1]]  # in the dtype of the model
    return _articulate(kind, children, body, Moving(place_joint(kind, body, q), Twist(*zeros), Wrench(*zeros)), drive)


def _accelerate(kind, A_parent: Twist, body: HybridJoint):
    """Outward: the joint's acceleration as in `forward.py`, and the force that it transmits, S^T (I_A A + p_A)."""
    (pose, S), given, c, I_A, p_A, U, D, u = body
    A = add(to_child(*pose, A_parent), c)
    qdd = sm.ldl_solve(D, u - project(U, A))
    A = add(A, joint_twist(S, qdd))
    return A, (qdd + given, project(S, add(I_A.wrench(A), p_A)))


# ---- what derivatives need
def _solve_at_rest(model: Model, q: Configuration, forces, vdot, given: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Accelerations x and forces `needed` (nv,) with M x = forces + needed; x is vdot where `given`, else needed is 0.

    The result is linear in forces and vdot and takes time proportional to the number of bodies. In reverse mode it is
    its own transpose, because the system M x - needed = forces, -x = -vdot (where given), needed = 0 (elsewhere) is
    symmetric.
    """

    still = at_rest(model)

    def rows(unknown):
        x, needed = unknown
        return jnp.stack([mass_times(still, q, x) - jnp.where(given, needed, 0), jnp.where(given, -x, needed)])

    def solve(_, right):
        return jnp.stack(_exchanged(still, q, *right, given=tuple(given.tolist())))

    # one array: in reverse mode a right side is linear as a whole
    right = jnp.stack([forces, jnp.where(given, -vdot, 0)])
    x, needed = lax.custom_linear_solve(rows, right, solve, symmetric=True)
    return x, needed


@partial(jax.jit, static_argnames="given")  # one trace, however often a program evaluates it
def _exchanged(model: Model, q: Configuration, f, less, *, given: tuple[bool, ...]):
    """Unknowns of `_solve_at_rest`. less: (nv,), minus the accelerations where given, the needed forces elsewhere."""
    mask = np.asarray(given)
    program = batched(partial(_two_passes_at_rest, mask))
    x, through = program(model, q, jnp.where(mask, -less, 0), f)
    return x, jnp.where(mask, through + model.armature * x - f, less)
