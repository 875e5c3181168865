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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forward import prescribed_mask
from lgjax.dynamics.kinematics import ancestor_mask, world_kinematics
from lgjax.dynamics.mass_matrix import world_inertia
from lgjax.dynamics.recursion import applied_wrenches
from lgjax.dynamics.subtrees import products, subtree_sums
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
    instant = _instant(model, q, v, wrenches, execution)
    return _inverse_partials(model, q, instant, v, vdot, _mass_matrix(model, instant), execution)


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
    instant = _instant(model, q, v, wrenches, execution)
    M = _mass_matrix(model, instant)
    free = ~given
    factor = jax.lax.linalg.cholesky(_block(M, free) + sm.diagonal(jnp.asarray(given, M.dtype)))
    known = jnp.where(given, vdot, 0)
    push = jnp.where(free, tau - _forces(model, instant, v, known), 0)
    vdot = known + _cho_solve(factor, push[:, None])[:, 0]
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


# ---- what does not depend on the accelerations
class _Instant(NamedTuple):
    """Motion in world axes about one point, of joints (nv, 6) and bodies (nbodies, 6), and sums over subtrees.

    poses: of the joint frames. S, S_rate: joint motions and their derivatives in time. twists: V. inertia: of the
    bodies. momenta: M V. applied: wrenches, or None. subtrees: inertia and its rate.
    """

    poses: Pose
    S: jax.Array
    S_rate: jax.Array
    twists: jax.Array
    inertia: Inertia
    momenta: jax.Array
    applied: Any
    subtrees: "_Subtrees"


class _Subtrees(NamedTuple):
    """Inertia, and the rate B [w, v] = [turning w, -2 linear x w], summed over bodies and their descendants."""

    inertia: Inertia
    turning: jax.Array
    linear: jax.Array


def _instant(model: Model, q: Configuration, v, wrenches, execution: Execution) -> _Instant:
    world = world_kinematics(model, q, v, execution, [v])
    V, S = world.twists, world.S
    S_rate = se3.ad(V[np.asarray(model.tree.v_body)], S)
    if world.bend is not None:
        S_rate = S_rate + world.bend[0]
    inertia = world_inertia(world.poses, model.inertias)
    momenta = jnp.concatenate(inertia.momentum(*se3.split(V)), -1)
    applied = None
    if wrenches is not None:
        R, p = world.poses
        n, f = applied_wrenches(model.links, wrenches)
        f = sm.matvec(R, f)
        applied = jnp.concatenate([sm.matvec(R, n) + sm.cross(p, f), f], -1)
    own = _Subtrees(inertia, _turning(inertia, *se3.split(V)), momenta[:, 3:])
    return _Instant(world.poses, S, S_rate, V, inertia, momenta, applied, subtree_sums(model, own))


def _turning(inertia: Inertia, w, v):
    """The block of B = V x* M - M V x + (.) x* M V that takes turning to moment: -2 (w x (tr J / 2 - J) + h x v x)."""
    half_trace = sm.trace(inertia.second)[..., None] / 2
    spread = sm.diagonal(jnp.broadcast_to(half_trace, w.shape)) - inertia.second
    return -2 * (sm.matmul(sm.hat(w), spread) + sm.matmul(sm.hat(inertia.moment), sm.hat(v)))


def _wrenches(model: Model, instant: _Instant, v, vdot):
    """Accelerations (nbodies, 6) with gravity, and wrenches (nbodies, 6) that pass the joints."""
    body = np.asarray(model.tree.v_body)
    moves = jnp.asarray(ancestor_mask(model.tree)[:, body], model.dtype)
    fall = jnp.concatenate([jnp.zeros_like(model.gravity), model.gravity])
    A = products(moves, instant.S * vdot[:, None] + instant.S_rate * v[:, None]) - fall
    own = jnp.concatenate(instant.inertia.momentum(*se3.split(A)), -1) - se3.coad(instant.twists, instant.momenta)
    if instant.applied is not None:
        own = own - instant.applied
    return A, subtree_sums(model, own)


def _forces(model: Model, instant: _Instant, v, vdot):
    """Inverse dynamics."""
    _, W = _wrenches(model, instant, v, vdot)
    projected = jnp.sum(instant.S * W[np.asarray(model.tree.v_body)], -1)
    return projected + model.armature * vdot + model.damping * v


def _mass_matrix(model: Model, instant: _Instant):
    deep, shallow = _related(model)
    M = products(_momenta(model, instant, instant.S), instant.S.T)
    return jnp.where(deep, M, jnp.where(shallow, M.T, 0)) + sm.diagonal(model.armature)


def _related(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """[i, j]: the joint of velocity i is that of j or beyond it (deep); it is nearer to the root (shallow)."""
    body = np.asarray(model.tree.v_body)
    deep = ancestor_mask(model.tree)[body][:, body]
    return deep, deep.T & ~deep


def _momenta(model: Model, instant: _Instant, x):
    """The inertia beyond each joint times a twist (nv, 6) of it."""
    carried = jax.tree.map(lambda a: a[np.asarray(model.tree.v_body)], instant.subtrees.inertia)
    return jnp.concatenate(carried.momentum(*se3.split(x)), -1)


# ---- the derivatives
def _inverse_partials(
    model: Model, q: Configuration, instant: _Instant, v, vdot, M, execution: Execution
) -> InversePartials:
    body, parents = np.asarray(model.tree.v_body), np.asarray(model.tree.parents)
    deep, shallow = _related(model)
    A, W = _wrenches(model, instant, v, vdot)
    fall = jnp.concatenate([jnp.zeros_like(model.gravity), model.gravity])
    A_above = jnp.where((parents >= 0)[:, None], A[parents], -fall)[body]
    V_above = jnp.where((parents >= 0)[:, None], instant.twists[parents], 0)[body]
    S = instant.S
    X, Y, own = se3.ad(V_above, S), se3.ad(A_above, S), 0
    if model.tree.varying:
        bent = _bent(model, q, instant, v, vdot, W, execution)
        X, Y = X + bent.velocity, Y + bent.acceleration + se3.ad(instant.twists[body], bent.velocity)
        own = bent.force
    Y = Y + se3.ad(V_above, X)
    Z = instant.S_rate + X

    turning, linear = instant.subtrees.turning[body], instant.subtrees.linear[body]
    rate = lambda w: jnp.concatenate([sm.matvec(turning, w), -2 * sm.cross(linear, w)], -1)
    loads_q = _momenta(model, instant, Y) + rate(X[:, :3]) - se3.coad(S, W[body])
    loads_v = _momenta(model, instant, Z) + rate(S[:, :3])
    # the transpose of the rate, applied to the rows
    rated = sm.tmatvec(turning, S[:, :3]) + 2 * sm.cross(linear, S[:, 3:])
    rows = jnp.concatenate([_momenta(model, instant, S), rated], -1)
    columns = lambda twists, turns: jnp.concatenate([twists, turns[:, :3]], -1).T
    pick = lambda below, above: jnp.where(deep, below, jnp.where(shallow, above, 0))
    by_q = pick(products(rows, columns(Y, X)), products(S, loads_q.T))
    by_v = pick(products(rows, columns(Z, S)), products(S, loads_v.T)) + sm.diagonal(model.damping)
    return InversePartials(by_q + own, by_v, M)


class _Bent(NamedTuple):
    """Derivatives with respect to the own coordinates of joints whose motions depend on them, else zero.

    velocity, acceleration: (nv, 6) of S v and of S vdot + dS/dt v, in world axes. force: (nv, nv) of S . W.
    """

    velocity: jax.Array
    acceleration: jax.Array
    force: jax.Array


def _bent(model: Model, q: Configuration, instant: _Instant, v, vdot, W, execution: Execution) -> _Bent:
    """W: (nbodies, 6), the wrenches that pass the joints."""
    walk = Walk(model.tree, model.dtype, execution)
    out = walk.outward(
        _bend,
        (),
        walk.bodies((model.screws, *se3.split(se3.coAd(instant.poses, W)))),
        walk.configurations(q),
        walk.velocities(v),
        walk.velocities(vdot),
    )
    velocity, acceleration, force = (walk.to_velocities([rows[k] for rows in out]) for k in range(3))
    body, n = np.asarray(model.tree.v_body), np.arange(model.nv)
    column = n - np.asarray(model.tree.v_start)[body][:, None]  # of the joint's own block
    own = body[:, None] == body
    poses = jax.tree.map(lambda x: x[body], instant.poses)
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
