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
from lgjax.dynamics.spatial import Twist, Wrench, add, body_data, joint_twist, project, to_child, to_parent
from lgjax.dynamics.time_derivatives.series import inverse_series
from lgjax.dynamics.traversal.traversal import Execution, TreeTraversal
from lgjax.execution.call import batch_behind
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.joints.kind import place
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm

ZERO: Any = np.zeros(3)  # a constant that folds


@checked_arguments()
def solve_mass_matrix(model: Model, q: Configuration, f, *, execution: Execution = "scalarized") -> jax.Array:
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


def solve_exchanged(
    model: Model, q: Configuration, forces, vdot, given: np.ndarray, *, execution: Execution = "scalarized"
) -> tuple[jax.Array, jax.Array]:
    """Accelerations and forces (nv,) with M x = forces + needed: x is vdot where `given`, needed is 0 elsewhere.

    A linear function of forces and vdot, in time proportional to the number of bodies and in reverse mode its own
    transpose: M x - needed = forces, -x = -vdot where given, needed = 0 elsewhere is a symmetric system.
    Source: [kim2012] section 2.3.
    """

    def rows(unknown):
        x, needed = unknown
        return jnp.stack([_forces(model, q, x, execution) - jnp.where(given, needed, 0), jnp.where(given, -x, needed)])

    def solve(_, right):
        return jnp.stack(_exchanged(model, q, *right, given=tuple(given.tolist()), execution=execution))

    # one array: in reverse mode a right side is linear as a whole
    right = jnp.stack([forces, jnp.where(given, -vdot, 0)])
    x, needed = lax.custom_linear_solve(rows, right, solve, symmetric=True)
    return x, needed


def by_inverse_dynamics(accelerations: Callable, forces: Callable, solve: Callable) -> Callable:
    """accelerations(model, q, v, tau, applied), with derivatives by M dvdot = dtau - dID at what it returns.

    forces(model, q, v, vdot, applied) is inverse dynamics, a third of the work to differentiate; solve(model, q, f)
    applies M^-1, in reverse mode its own transpose.
    """
    function = jax.custom_jvp(accelerations)

    @partial(function.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        vdot = function(*primals)
        lacking = lambda model, q, v, tau, applied: forces(model, q, v, vdot, applied) - tau
        return vdot, -solve(*primals[:2], _moved(lacking, primals, tangents))

    return function


def by_partial_inverse_dynamics(dynamics: Callable, forces: Callable, solve: Callable, given: np.ndarray) -> Callable:
    """dynamics(model, q, v, vdot, tau, applied) -> (vdot, tau), where vdot is `given`, tau elsewhere.

    The derivatives are those of M dvdot = dtau - dID with the same unknowns, at what it returns; forces as in
    `by_inverse_dynamics`, solve(model, q, f, vdot) as `solve_exchanged`.
    """
    function = jax.custom_jvp(dynamics)

    @partial(function.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        found = function(*primals)
        model, q, *_, tau, _ = primals
        still = lambda x, dx: jnp.zeros_like(x) if isinstance(dx, SymbolicZero) else dx
        vdot, tau = (still(x, dx) for x, dx in zip(primals[3:5], tangents[3:5], strict=True))
        required = lambda model, q, v, applied: forces(model, q, v, found[0], applied)
        without = lambda x: (*x[:3], x[5])
        more = _moved(required, without(primals), without(tangents))
        change, needed = solve(model, q, jnp.where(given, 0, tau) - more, vdot)
        return found, (change, jnp.where(given, needed, tau))

    return function


def _moved(function: Callable, primals, tangents):
    """The tangent of a function; what does not move takes no part."""
    leaves, treedef = jax.tree.flatten(primals)
    moving = jax.tree.leaves(tangents, is_leaf=lambda x: isinstance(x, SymbolicZero))
    live = [i for i, x in enumerate(moving) if not isinstance(x, SymbolicZero)]

    def of_live(*values):
        changed = dict(zip(live, values, strict=True))
        return function(*treedef.unflatten([changed.get(i, x) for i, x in enumerate(leaves)]))

    return jax.jvp(of_live, [leaves[i] for i in live], [moving[i] for i in live])[1]


@partial(jax.jit, static_argnames="execution")  # one trace, however often a program evaluates it
def _sweeps(model: Model, q: Configuration, f, *, execution: Execution) -> jax.Array:
    return batch_behind(partial(_sweep, execution, None), execution)(model, q, f, None)


@partial(jax.jit, static_argnames=("given", "execution"))
def _exchanged(model: Model, q: Configuration, f, less, *, given: tuple[bool, ...], execution: Execution):
    """less (nv,): minus the accelerations where they are given, the needed forces elsewhere."""
    mask = np.asarray(given)
    x, through = batch_behind(partial(_sweep, execution, mask), execution)(model, q, f, jnp.where(mask, -less, 0))
    return x, jnp.where(mask, through + model.armature * x - f, less)


def _sweep(execution: Execution, given: np.ndarray | None, model: Model, q: Configuration, f, vdot):
    """Accelerations; where some are given also the forces through the joints."""
    walk = TreeTraversal(model.tree, model.dtype, execution)
    none = [None] * len(walk.runs)
    bodies = walk.bodies(body_data(model))
    masks = none if given is None else walk.velocities(jnp.asarray(given, model.dtype))
    rates = none if given is None else walk.velocities(vdot)
    joints = list(zip(walk.velocities(model.armature), walk.velocities(f), masks, rates, strict=True))
    passed = walk.inward(_inward, (NO_INERTIA, Wrench(ZERO, ZERO)), bodies, walk.configurations(q), joints)
    found = walk.outward(_outward, Twist(ZERO, ZERO), passed)
    if given is None:
        return walk.to_velocities(found)
    return tuple(walk.to_velocities([rows[k] for rows in found]) for k in (0, 1))


def _forces(model: Model, q: Configuration, x, execution: Execution) -> jax.Array:
    """M x, which derivatives of the solution with respect to model and configuration need."""
    still = model.replace(gravity=jnp.zeros_like(model.gravity), damping=jnp.zeros_like(model.damping))
    return inverse_series(still, q, jnp.zeros_like(x), [x], None, execution)[0]


def _inward(kind, children, body, q, joint):
    armature, force, given, vdot = joint
    below, wrench = children
    inertia = add_inertia(below, body.inertia)
    pose = place(kind, body.placement, body.screw, q)
    S = kind.subspace(q, body.screw)
    U = inertia_columns(inertia, S)
    D = sm.tmatmul(S[0], U[0]) + sm.tmatmul(S[1], U[1]) + sm.diagonal(armature)
    u = force - project(S, wrench)
    if given is not None:
        free = 1 - given
        U, D, u = (U[0] * free, U[1] * free), sm.outer(free, free) * D + sm.diagonal(given), free * u
    factor = sm.ldl(D)
    behind = through_joint(inertia, U, factor)
    pushed = sm.ldl_solve(factor, u)
    loaded = Wrench(wrench.n + sm.matvec(U[0], pushed), wrench.f + sm.matvec(U[1], pushed))
    if given is None:
        return (shift(behind, *pose), to_parent(*pose, loaded)), (pose, S, U, factor, u, None)
    own = joint_twist(S, given * vdot)
    up = shift(behind, *pose), to_parent(*pose, add(loaded, behind.wrench(*own)))
    return up, (pose, S, U, factor, u, (inertia, wrench, own, given * vdot))


def _outward(kind, parent, passed):
    pose, S, U, factor, u, locked = passed
    own = to_child(pose[0], pose[1], parent)
    if locked is not None:
        own = add(own, locked[2])
    x = sm.ldl_solve(factor, u - project(U, Wrench(own.w, own.v)))
    own = add(own, joint_twist(S, x))
    if locked is None:
        return own, x
    inertia, wrench, _, vdot = locked
    return own, (x + vdot, project(S, add(inertia.wrench(*own), wrench)))
