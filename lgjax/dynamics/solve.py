"""The inverse of the mass matrix applied to a vector, without the matrix: the articulated-body recursion at rest."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from lgjax.dynamics.articulated import NO_INERTIA, add_inertia, inertia_columns, shift, through_joint
from lgjax.dynamics.recursion import Force, Motion, add, body_data, joint_motion, project, to_child, to_parent
from lgjax.dynamics.series import inverse_series
from lgjax.groups import small_matrix as sm
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.joints.kind import place
from lgjax.multibody.lane_call import batch_behind
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration
from lgjax.multibody.traversal import Execution, Walk

ZERO: Any = np.zeros(3)  # a constant that folds


@checked_arguments()
def solve_mass_matrix(model: Model, q: Configuration, f, *, execution: Execution = "scalarised") -> jax.Array:
    """M^-1 f (nv,) for generalised forces f (nv,), armature included, in time proportional to the number of bodies.

    vmap it over f for several right sides: the inertias are then found once. In reverse mode it is its own transpose.
    Source: [kim2012] section 2.3.
    """
    return lax.custom_linear_solve(
        lambda x: _forces(model, q, x, execution),
        f,
        lambda _, f: _sweeps(model, q, f, execution=execution),
        symmetric=True,
    )


def by_inverse_dynamics(accelerations: Callable, forces: Callable, solve: Callable) -> Callable:
    """accelerations(model, q, v, tau, applied), with derivatives by M dvdot = dtau - dID at what it returns.

    forces(model, q, v, vdot, applied) is inverse dynamics, a third of the work to differentiate; solve(model, q, f)
    applies M^-1, in reverse mode its own transpose.
    """
    function = jax.custom_jvp(accelerations)

    @partial(function.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        vdot = function(*primals)
        leaves, treedef = jax.tree.flatten(primals)
        moving = jax.tree.leaves(tangents, is_leaf=lambda x: isinstance(x, SymbolicZero))
        live = [i for i, x in enumerate(moving) if not isinstance(x, SymbolicZero)]

        def lacking(*values):
            """The forces that the accelerations need, less those that are given."""
            changed = dict(zip(live, values, strict=True))
            model, q, v, tau, applied = treedef.unflatten([changed.get(i, x) for i, x in enumerate(leaves)])
            return forces(model, q, v, vdot, applied) - tau

        _, lack = jax.jvp(lacking, [leaves[i] for i in live], [moving[i] for i in live])
        return vdot, -solve(*primals[:2], lack)

    return function


@partial(jax.jit, static_argnames="execution")  # one trace, however often a program evaluates it
def _sweeps(model: Model, q: Configuration, f, *, execution: Execution) -> jax.Array:
    return batch_behind(partial(_sweep, execution), execution)(model, q, f)


def _sweep(execution: Execution, model: Model, q: Configuration, f) -> jax.Array:
    walk = Walk(model.tree, model.dtype, execution)
    bodies = walk.bodies(body_data(model))
    joints = list(zip(walk.velocities(model.armature), walk.velocities(f), strict=True))
    passed = walk.inward(_inward, (NO_INERTIA, Force(ZERO, ZERO)), bodies, walk.configurations(q), joints)
    return walk.to_velocities(walk.outward(_outward, Motion(ZERO, ZERO), passed))


def _forces(model: Model, q: Configuration, x, execution: Execution) -> jax.Array:
    """M x, which derivatives of the solution with respect to model and configuration need."""
    still = model.replace(gravity=jnp.zeros_like(model.gravity), damping=jnp.zeros_like(model.damping))
    return inverse_series(still, q, jnp.zeros_like(x), [x], None, execution)[0]


def _inward(kind, children, body, q, joint):
    armature, force = joint
    below, wrench = children
    inertia = add_inertia(below, body.inertia)
    pose = place(kind, body.placement, body.screw, q)
    S = kind.subspace(q, body.screw)
    U = inertia_columns(inertia, S)
    factor = sm.ldl(sm.tmatmul(S[0], U[0]) + sm.tmatmul(S[1], U[1]) + sm.diagonal(armature))
    u = force - project(S, wrench)
    pushed = sm.ldl_solve(factor, u)
    loaded = Force(wrench.n + sm.matvec(U[0], pushed), wrench.f + sm.matvec(U[1], pushed))
    up = shift(through_joint(inertia, U, factor), *pose), to_parent(*pose, loaded)
    return up, (pose, S, U, factor, u)


def _outward(kind, parent, passed):
    pose, S, U, factor, u = passed
    own = to_child(pose[0], pose[1], parent)
    x = sm.ldl_solve(factor, u - project(U, Force(own.w, own.v)))
    return add(own, joint_motion(S, x)), x
