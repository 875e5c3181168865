"""First derivatives of inverse, forward and hybrid dynamics with respect to configuration, velocity and force.

A configuration is moved along the columns of the body velocity, q exp(e_j). Everything is a twist or a wrench in world
axes about one point: the part of the tree beyond joint j then moves rigidly with the twist S_j, and what is left of the
derivative of twist V, acceleration A (gravity included) and wrench W of a body beyond it,

    dV = S_j x V + X_j,   dA = S_j x A + X_j x V + Y_j,   dW = S_j x* W + M Y_j + B X_j,

are two columns X_j, Y_j that depend on the joint alone, and the sums over subtrees of inertia M and of its rate B.
Joint force i, S_i . W, feels the rigid motion only if it is nearer to the root than j. So the derivatives are scalar
products of rows of deep joints and columns of shallow ones, and the reverse. Joints whose motions depend on their own
coordinates add to X_j, Y_j and to the block of their own.
Source: [kim2012] section 4; [singh2022] with the rate B as twelve numbers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forward import prescribed_mask
from lgjax.dynamics.kinematics import World, ancestor_mask, world_kinematics
from lgjax.dynamics.recursion import Force, add, applied_wrenches, to_parent
from lgjax.dynamics.subtrees import (
    carried,
    inertia_to_parent,
    mass_matrix_of,
    momenta,
    products,
    related,
    subtree_sums,
)
from lgjax.groups import se3
from lgjax.groups import small_matrix as sm
from lgjax.groups.se3 import Pose
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration
from lgjax.multibody.traversal import Execution, Walk


class InversePartials(NamedTuple):
    """Derivatives (nv, nv) of tau; that with respect to vdot is the mass matrix."""

    q: jax.Array
    v: jax.Array
    vdot: jax.Array


class ForwardPartials(NamedTuple):
    """Derivatives (nv, nv) of vdot; that with respect to tau is the inverse of the mass matrix."""

    q: jax.Array
    v: jax.Array
    tau: jax.Array


class HybridPartials(NamedTuple):
    """Derivatives (nv, nv) of what hybrid dynamics solves for, tau where prescribed and vdot elsewhere.

    given: with respect to what it is given instead, vdot where prescribed and tau elsewhere.
    """

    q: jax.Array
    v: jax.Array
    given: jax.Array


def inverse_dynamics_partials(
    model: Model, q: Configuration, v, vdot, wrenches=None, *, execution: Execution = "scalarised"
) -> InversePartials:
    """Derivatives of `inverse_dynamics` with respect to q, v and vdot, three matrices (nv, nv).

    Column j of the first is the derivative along retract(model, q, e_j). Arguments as in inverse_dynamics; wrenches
    are held in the body frames. Source: [kim2012] section 4; [singh2022].
    """
    instant = _instant(model, q, v, vdot, wrenches, execution)
    return _inverse_partials(
        model, q, instant, v, vdot, mass_matrix_of(model, instant.world, instant.momenta), execution
    )


def forward_dynamics_partials(
    model: Model, q: Configuration, v, tau, wrenches=None, *, execution: Execution = "scalarised"
) -> ForwardPartials:
    """Derivatives of `forward_dynamics` with respect to q, v and tau, three matrices (nv, nv).

    Column j of the first is the derivative along retract(model, q, e_j). Arguments as in forward_dynamics; wrenches
    are held in the body frames. d(vdot) = M^-1 (d(tau) - what inverse dynamics says at constant vdot).
    Source: [kim2012] section 4.
    """
    return ForwardPartials(*_solved(model, q, v, 0 * v, tau, np.zeros(model.nv, bool), wrenches, execution))


def hybrid_dynamics_partials(
    model: Model,
    q: Configuration,
    v,
    vdot,
    tau,
    prescribed: Sequence[int],
    wrenches=None,
    *,
    execution: Execution = "scalarised",
) -> HybridPartials:
    """Derivatives of what `hybrid_dynamics` solves for, three matrices (nv, nv).

    Row i is that of tau[i] where i is prescribed and of vdot[i] elsewhere; column j of the last is with respect to
    vdot[j] where j is prescribed and to tau[j] elsewhere. Arguments and errors as in hybrid_dynamics, displacements as
    in forward_dynamics_partials. Source: [kim2012] sections 2.3 and 4.
    """
    given = prescribed_mask(model, prescribed)
    return HybridPartials(*_solved(model, q, v, vdot, tau, given, wrenches, execution))


def _solved(model: Model, q, v, vdot, tau, given: np.ndarray, wrenches, execution: Execution):
    """Rows of d(tau) where the acceleration is given, of d(vdot) elsewhere; columns likewise."""
    known = jnp.where(given, vdot, 0)
    instant = _instant(model, q, v, known, wrenches, execution)
    M = mass_matrix_of(model, instant.world, instant.momenta)
    free = ~given
    factor = jax.lax.linalg.cholesky(_block(M, free) + sm.diagonal(jnp.asarray(given, M.dtype)))
    push = jnp.where(free, tau - _forces(model, instant, v, known), 0)
    found = _cho_solve(factor, push[:, None])[:, 0]
    vdot, instant = known + found, _accelerated(model, q, instant, found, execution)
    inverse = _inverse_partials(model, q, instant, v, vdot, M, execution)

    eye = sm.identity(model.nv, M.dtype)
    at_free = lambda x: jnp.where(free[:, None], x, 0)
    # with M x = r on the free rows; a given column of `given` moves those by -M
    right = jnp.concatenate([-at_free(inverse.q), -at_free(inverse.v)], 1)
    last = at_free(jnp.where(given, -M, eye))
    moved = _cho_solve(factor, jnp.concatenate([right, last], 1))
    if not given.any():
        return jnp.split(moved, 3, 1)
    through = products(M, moved)
    n = model.nv
    needed = jnp.concatenate([inverse.q, inverse.v, jnp.where(given, M, 0)], 1) + through
    return jnp.split(jnp.where(given[:, None], needed, moved).reshape(n, 3 * n), 3, 1)


def _block(M, keep: np.ndarray):
    return jnp.where(keep[:, None] & keep, M, 0)


def _cho_solve(factor, right):
    """X with L L^T X = right."""
    half = jax.lax.linalg.triangular_solve(factor, right, left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)


# ---- one instant
class _Subtrees(NamedTuple):
    """Sums over bodies and their descendants, in joint frames: inertia, its rate and the wrench through the joint."""

    inertia: Inertia
    rate: "_Rate"
    wrench: Force


class _Rate(NamedTuple):
    """B [w, v] = [turning w, -2 linear x w]."""

    turning: jax.Array
    linear: jax.Array

    def times(self, w):
        return sm.join(sm.matvec(self.turning, w), -2 * sm.cross(self.linear, w))

    def transpose_times(self, x):
        """The angular part; the linear one is zero."""
        return sm.tmatvec(self.turning, x[..., :3]) + 2 * sm.cross(self.linear, x[..., 3:])


class _Instant(NamedTuple):
    """Motion at one instant, in world axes about the origin of the kinematics, and sums over subtrees.

    at_joint: (nv,) what takes twists and wrenches to the joint frames. S_rate: (nv, 6) derivatives of joint motions in
    time. A: (nbodies, 6) accelerations with gravity. momenta: (nv, 6) inertia beyond each joint times its motion.
    subtrees: by body, in the joint frames.
    """

    world: World
    at_joint: Pose
    S_rate: jax.Array
    A: jax.Array
    momenta: jax.Array
    subtrees: _Subtrees


def _instant(model: Model, q: Configuration, v, vdot, wrenches, execution: Execution) -> _Instant:
    world = world_kinematics(model, q, v, execution, [v])
    S_rate = se3.ad(world.twists[np.asarray(model.tree.v_body)], world.S)
    if world.bend is not None:
        S_rate = S_rate + world.bend[0]
    A = _path_sums(model, world.S * vdot[:, None] + S_rate * v[:, None]) - _fall(model)
    at_body = se3.inverse(world.poses)
    motions = se3.Ad(at_body, jnp.stack([world.twists, A]))
    momentum, push = momenta(model.inertias, motions)
    W = push - se3.coad(motions[0], momentum)
    if wrenches is not None:
        W = W - sm.join(*applied_wrenches(model.links, wrenches))
    rate = _Rate(_turning(model.inertias, *se3.split(motions[0])), momentum[:, 3:])
    own = _Subtrees(model.inertias, rate, Force(*se3.split(W)))
    sums = subtree_sums(model, q, _to_parent, own, execution)
    at_joint = carried(model, at_body)
    rows = se3.coAd(at_joint, momenta(carried(model, sums.inertia), world.subspace))
    return _Instant(world, at_joint, S_rate, A, rows, sums)


def _accelerated(model: Model, q: Configuration, instant: _Instant, vdot, execution: Execution) -> _Instant:
    """The same instant with these accelerations of the joints added."""
    world, sums = instant.world, instant.subtrees
    A = _path_sums(model, world.S * vdot[:, None])
    own = momenta(model.inertias, se3.Ad(se3.inverse(world.poses), A))
    pushed = subtree_sums(model, q, to_parent, Force(*se3.split(own)), execution)
    return instant._replace(A=instant.A + A, subtrees=sums._replace(wrench=add(sums.wrench, pushed)))


def _path_sums(model: Model, rows):
    """Rows (nv, 6) of the joints summed over those that move each body."""
    moves = jnp.asarray(ancestor_mask(model.tree)[:, np.asarray(model.tree.v_body)], model.dtype)
    return products(moves, rows)


def _fall(model: Model):
    return jnp.concatenate([jnp.zeros_like(model.gravity), model.gravity])


def _turning(inertia: Inertia, w, v):
    """The block of B = V x* M - M V x + (.) x* M V that takes turning to moment: -2 (w x (tr J / 2 - J) + h x v x)."""
    half_trace = sm.trace(inertia.second)[..., None] / 2
    spread = sm.diagonal(jnp.broadcast_to(half_trace, w.shape)) - inertia.second
    return -2 * (sm.matmul(sm.hat(w), spread) + sm.matmul(sm.hat(inertia.moment), sm.hat(v)))


def _to_parent(R, p, own: _Subtrees) -> _Subtrees:
    linear = sm.matvec(R, own.rate.linear)
    turning = sm.matmult(sm.matmul(R, own.rate.turning), R) - 2 * sm.matmul(sm.hat(p), sm.hat(linear))
    return _Subtrees(inertia_to_parent(R, p, own.inertia), _Rate(turning, linear), to_parent(R, p, own.wrench))


def _forces(model: Model, instant: _Instant, v, vdot):
    """Inverse dynamics."""
    projected = sm.dot(instant.world.subspace, sm.join(*carried(model, instant.subtrees.wrench)))
    return projected + model.armature * vdot + model.damping * v


# ---- the derivatives
def _inverse_partials(
    model: Model, q: Configuration, instant: _Instant, v, vdot, M, execution: Execution
) -> InversePartials:
    body, parents = np.asarray(model.tree.v_body), np.asarray(model.tree.parents)
    world, A = instant.world, instant.A
    A_above = jnp.where((parents >= 0)[:, None], A[parents], -_fall(model))[body]
    V_above = jnp.where((parents >= 0)[:, None], world.twists[parents], 0)[body]
    S = world.S
    X, Y, own = se3.ad(V_above, S), se3.ad(A_above, S), 0
    if model.tree.varying:
        bent = _bent(model, q, instant, v, vdot, execution)
        X, Y = X + bent.velocity, Y + bent.acceleration + se3.ad(world.twists[body], bent.velocity)
        own = bent.force
    Y = Y + se3.ad(V_above, X)
    Z = instant.S_rate + X

    s, (x, y, z) = world.subspace, se3.Ad(instant.at_joint, jnp.stack([X, Y, Z]))
    inertia, rate, wrench = carried(model, instant.subtrees)
    loads = momenta(inertia, jnp.stack([y, z])) + rate.times(jnp.stack([x, s])[..., :3])
    loads = jnp.stack([loads[0] - se3.coad(s, sm.join(*wrench)), loads[1]])
    by_q, by_v = products(S, jnp.swapaxes(se3.coAd(instant.at_joint, loads), 1, 2))
    # the transpose of the rate, applied to the rows
    rated = sm.tmatvec(instant.at_joint.rotation, rate.transpose_times(s))
    rows = jnp.concatenate([instant.momenta, rated], -1)
    columns = lambda twists, turns: jnp.concatenate([twists, turns[:, :3]], -1).T
    deep, shallow = related(model.tree)
    pick = lambda below, above: jnp.where(deep, below, jnp.where(shallow, above, 0))
    by_q = pick(products(rows, columns(Y, X)), by_q)
    by_v = pick(products(rows, columns(Z, S)), by_v) + sm.diagonal(model.damping)
    return InversePartials(by_q + own, by_v, M)


class _Bent(NamedTuple):
    """Derivatives with respect to the own coordinates of joints whose motions depend on them, else zero.

    velocity, acceleration: (nv, 6) of S v and of S vdot + dS/dt v, in world axes. force: (nv, nv) of S . W.
    """

    velocity: jax.Array
    acceleration: jax.Array
    force: jax.Array


def _bent(model: Model, q: Configuration, instant: _Instant, v, vdot, execution: Execution) -> _Bent:
    walk = Walk(model.tree, model.dtype, execution)
    out = walk.outward(
        _bend,
        (),
        walk.bodies((model.screws, *instant.subtrees.wrench)),
        walk.configurations(q),
        walk.velocities(v),
        walk.velocities(vdot),
    )
    velocity, acceleration, force = (walk.to_velocities([rows[k] for rows in out]) for k in range(3))
    body, n = np.asarray(model.tree.v_body), np.arange(model.nv)
    column = n - np.asarray(model.tree.v_start)[body][:, None]  # of the joint's own block
    own = body[:, None] == body
    poses = carried(model, instant.world.poses)
    return _Bent(
        se3.Ad(poses, velocity),
        se3.Ad(poses, acceleration),
        jnp.where(own, force[n[:, None], np.clip(column, 0, 5)], 0),
    )


def _bend(kind, parent, data, q, qd, qdd):
    """Rows (nv, 6) of one joint in its body's frame: derivatives of S v, of its rate, and of S . wrench, by column."""
    screw, *wrench = data
    if not kind.varying:
        zero = jnp.zeros((kind.nv, 6), qd.dtype)
        return (), (zero, zero, zero)
    S = lambda q: jnp.concatenate(kind.subspace(q, screw))
    along = lambda f, q, x: jax.jvp(f, (q,), (x,))[1]
    speed = lambda q: sm.matvec(S(q), qd)
    rate = lambda q: sm.matvec(S(q), qdd) + along(speed, q, qd)
    force = lambda q: sm.tmatvec(S(q), jnp.concatenate(wrench))
    units = np.eye(kind.nv, dtype=qd.dtype)
    columns = [jnp.stack([along(f, q, unit) for unit in units]) for f in (speed, rate, force)]
    block = jnp.concatenate([columns[2].T, jnp.zeros((kind.nv, 6 - kind.nv), qd.dtype)], 1)
    return (), (columns[0], columns[1], block)
