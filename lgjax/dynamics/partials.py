"""First derivatives of inverse, forward and hybrid dynamics with respect to configuration, velocity and force.

A configuration is moved along the columns of the body velocity, q exp(e_j). Everything is a twist or a wrench in world
axes about one point: the part of the tree beyond joint j then moves rigidly with the twist S_j, and what is left of the
derivative of twist V, acceleration A (gravity included) and wrench W of a body beyond it,

    dV = S_j x V + X_j,   dA = S_j x A + X_j x V + Y_j,   dW = S_j x* W + M Y_j + B X_j,

are two columns X_j, Y_j that depend on the joint alone, and the sums over subtrees of inertia M and of its rate B.
Joint force i, S_i . W, feels the rigid motion only if joint i is nearer to the root than j. So the derivatives are
scalar products of rows of deep joints and columns of shallow ones, and the reverse. A joint whose motions depend on its
own coordinates adds to X_j, Y_j and to its own diagonal block.
Source: [kim2012] section 4; [singh2022] with the rate B as twelve numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forward import forward_dynamics
from lgjax.dynamics.hybrid import hybrid_dynamics, prescribed_mask
from lgjax.dynamics.spatial import NO_MASS, NO_WRENCH, ZERO3, ZERO33, Wrench, applied_wrenches, to_parent
from lgjax.dynamics.subtree_sums import (
    JointTerms,
    Subtrees,
    inertia_to_parent,
    mass_matrix_of,
    momenta,
    products,
    related,
)
from lgjax.dynamics.traversal.traversal import TreeTraversal
from lgjax.execution import batched
from lgjax.execution.operation import batched_or_parts
from lgjax.groups import se3
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.numerics import definite
from lgjax.numerics import small_matrix as sm


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


@checked_arguments()
@jax.jit  # one trace, however often a program evaluates it
@batched
def inverse_dynamics_partials(
    model: Model,
    q: Configuration,
    v: jax.Array,
    vdot: jax.Array,
    wrenches: jax.Array | None = None,
) -> InversePartials:
    """Derivatives of `inverse_dynamics` with respect to q, v and vdot; wrenches are constant in the body frames.

    Args:
        model: the mechanism.
        q, v, vdot, wrenches: as in `inverse_dynamics`.

    Returns:
        three matrices (nv, nv). Column j of the first is the derivative along retract(model, q, e_j).

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> q = lgjax.configuration(arm, joints=[0.5, 0.0])
        >>> by = lgjax.inverse_dynamics_partials(arm, q, jnp.zeros(2), jnp.zeros(2))
        >>> bool(jnp.allclose(by.vdot, lgjax.mass_matrix(arm, q), atol=1e-5))
        True

    Source: [kim2012] section 4; [singh2022].
    """
    rows, bent = joint_rows(model, q, v, vdot, wrenches)
    by_q, by_v, _ = row_products(model, rows, rows)
    M = mass_matrix_of(model, rows.S, rows.momenta)
    return InversePartials(sum(bent, by_q), by_v + sm.diagonal(model.damping), M)


def row_products(model: Model, left: JointRows, right: JointRows, products=products) -> InversePartials:
    """The three matrices without damping, armature and `bent`: bilinear in the rows, whose derivatives give theirs."""
    deep, shallow = related(model.tree)
    pick = lambda below, above: jnp.where(deep, below, jnp.where(shallow, above, 0))
    columns = lambda twists, turns: jnp.concatenate([twists, turns[:, :3]], 1).T
    below = jnp.concatenate([left.momenta, left.rated], 1)
    by_q = pick(products(below, columns(right.Y, right.X)), products(left.S, right.load_q.T))
    by_v = pick(products(below, columns(right.Z, right.S)), products(left.S, right.load_v.T))
    return InversePartials(by_q, by_v, pick(products(left.momenta, right.S.T), products(left.S, right.momenta.T)))


@checked_arguments()
def forward_dynamics_partials(
    model: Model,
    q: Configuration,
    v: jax.Array,
    tau: jax.Array,
    wrenches: jax.Array | None = None,
) -> ForwardPartials:
    """Derivatives of `forward_dynamics` with respect to q, v and tau: M^-1 (d(tau) - d(`inverse_dynamics`)).

    The last term is taken at constant vdot. Wrenches are constant in the body frames.

    Args:
        model: the mechanism.
        q, v, tau, wrenches: as in `forward_dynamics`.

    Returns:
        three matrices (nv, nv). Column j of the first is the derivative along retract(model, q, e_j).

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> q = lgjax.configuration(arm, joints=[0.5, 0.0])
        >>> by = lgjax.forward_dynamics_partials(arm, q, jnp.zeros(2), jnp.zeros(2))
        >>> bool(jnp.allclose(by.tau @ lgjax.mass_matrix(arm, q), jnp.eye(2), atol=1e-4))
        True

    Source: [kim2012] section 4.
    """
    return _forward_partials(model, q, v, tau, wrenches)


@jax.jit
@batched_or_parts
def _forward_partials(model: Model, q: Configuration, v, tau, wrenches) -> ForwardPartials:
    vdot = forward_dynamics(model, q, v, tau, wrenches)
    inverse = inverse_dynamics_partials(model, q, v, vdot, wrenches)
    return ForwardPartials(*_solved(inverse, np.zeros(model.nv, bool)))


@checked_arguments()
def hybrid_dynamics_partials(
    model: Model,
    q: Configuration,
    v: jax.Array,
    vdot: jax.Array,
    tau: jax.Array,
    prescribed: Sequence[int],
    wrenches: jax.Array | None = None,
) -> HybridPartials:
    """Derivatives of what `hybrid_dynamics` solves for, with displacements as in `forward_dynamics_partials`.

    Args:
        model: the mechanism.
        q, v, vdot, tau, prescribed, wrenches: as in `hybrid_dynamics`.

    Returns:
        three matrices (nv, nv). Row i is that of tau[i] where i is prescribed and of vdot[i] elsewhere; column j of the
        last is with respect to vdot[j] where j is prescribed and to tau[j] elsewhere.

    Raises:
        ValueError: as for `hybrid_dynamics`.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> zero = jnp.zeros(2)
        >>> by = lgjax.hybrid_dynamics_partials(arm, lgjax.neutral(arm), zero, zero, zero, (0,))
        >>> len(by)
        3

    Source: [kim2012] sections 2.3 and 4.
    """
    given = tuple(prescribed_mask(model, prescribed).tolist())
    return _hybrid_partials(given, model, q, v, vdot, tau, wrenches)


@partial(jax.jit, static_argnums=0)
def _hybrid_partials(given: tuple[bool, ...], model: Model, q: Configuration, v, vdot, tau, wrenches):
    def of(model: Model, q: Configuration, v, vdot, tau, wrenches) -> HybridPartials:
        vdot, _ = hybrid_dynamics(model, q, v, vdot, tau, np.flatnonzero(given).tolist(), wrenches)
        inverse = inverse_dynamics_partials(model, q, v, vdot, wrenches)
        return HybridPartials(*_solved(inverse, np.asarray(given)))

    return batched_or_parts(of)(model, q, v, vdot, tau, wrenches)


def _solved(inverse: InversePartials, given: np.ndarray):
    """Rows of d(tau) where the acceleration is given, of d(vdot) elsewhere; columns likewise."""
    M, free = inverse.vdot, ~given
    at_free = lambda x: jnp.where(free[:, None], x, 0)
    inverse_mass = inverse_of_definite(jnp.where(free[:, None] & free, M, 0) + sm.diagonal(jnp.asarray(given, M.dtype)))
    moved = products(inverse_mass, -at_free(jnp.concatenate([inverse.q, inverse.v], 1)))
    if not given.any():
        return *jnp.split(moved, 2, 1), inverse_mass
    # with M x = r on the free rows; a given column of the last moves those by -M
    last = products(inverse_mass, at_free(jnp.where(given, -M, sm.identity(len(M), M.dtype))))
    moved = jnp.concatenate([moved, last], 1)
    needed = jnp.concatenate([inverse.q, inverse.v, jnp.where(given, M, 0)], 1) + products(M, moved)
    return jnp.split(jnp.where(given[:, None], needed, moved), 3, 1)


def inverse_of_definite(M):
    """Inverse of a positive definite matrix; in a batch, products with it are faster than solves."""
    if len(M) <= definite.SMALL:
        return batched(_small_inverse)(M)
    factor = jax.lax.linalg.cholesky(M)
    root = jax.lax.linalg.triangular_solve(factor, sm.identity(len(M), M.dtype), left_side=True, lower=True)
    return products(root.T, root)


def _small_inverse(M):
    root = definite.solved(M, sm.identity(len(M), M.dtype))[0].half
    return products(root.T, root)


# ---- what the matrices are products of
class JointRows(NamedTuple):
    """Arrays (nv, 6) in world axes about one point; X and rated are angular parts (nv, 3).

    momenta, rated: inertia beyond each joint times its motion, and the transpose of the rate times it. load_q, load_v:
    wrenches on what a joint moves. The others as above.
    """

    S: jax.Array
    X: jax.Array
    Y: jax.Array
    Z: jax.Array
    momenta: jax.Array
    rated: jax.Array
    load_q: jax.Array
    load_v: jax.Array


class _InertiaRate(NamedTuple):
    """B [w, v] = [turning w, -2 linear x w]."""

    turning: jax.Array
    linear: jax.Array

    def times(self, w):
        return sm.join(sm.matvec(self.turning, w), -2 * sm.cross(self.linear, w))

    def transpose_times(self, x):
        angular = sm.tmatvec(self.turning, x[..., :3]) + 2 * sm.cross(self.linear, x[..., 3:])
        return sm.join(angular, jnp.zeros_like(angular))


class _Sum(NamedTuple):
    """Sums over a body and its descendants: inertia, its rate and the wrench through the joint."""

    inertia: Inertia
    rate: _InertiaRate
    wrench: Wrench


NOTHING = _Sum(NO_MASS, _InertiaRate(ZERO33, ZERO3), NO_WRENCH)


def joint_rows(model: Model, q: Configuration, v, vdot, wrenches) -> tuple[JointRows, tuple]:
    """The rows, and what is added to the derivative with respect to q where joint motions depend on coordinates."""
    return _rows(_read, model, q, v, vdot, wrenches)


def _rows(read: Callable, model: Model, q: Configuration, v, vdot, wrenches) -> tuple:
    subtrees = Subtrees(model, q, v, vdot)
    applied = [] if wrenches is None else [subtrees.walk.bodies(applied_wrenches(model.links, wrenches))]
    sums = subtrees.sums(_own, _to_parent, NOTHING, *applied)
    bent = _bent(model, subtrees.walk, sums, q, v, vdot) if model.tree.varying else ()
    return subtrees.rows(read, sums, *bent[:2]), bent[2:]


def _own(body, joint: JointTerms, applied: Wrench | None = None) -> _Sum:
    momentum = momenta(body.inertia, joint.V)
    wrench = momenta(body.inertia, joint.A) - se3.coad(joint.V, momentum)
    if applied is not None:
        wrench = wrench - sm.join(*applied)
    rate = _InertiaRate(_turning(body.inertia, *se3.split(joint.V)), momentum[3:])
    return _Sum(body.inertia, rate, Wrench(*se3.split(wrench)))


def _turning(inertia: Inertia, w, v):
    """The block of B = V x* M - M V x + (.) x* M V that takes turning to moment: -2 (w x (tr J / 2 - J) + h x v x)."""
    spread = sm.diagonal(jnp.broadcast_to(sm.trace(inertia.rotational) / 2, w.shape)) - inertia.rotational
    return -2 * (sm.matmul(sm.hat(w), spread) + sm.matmul(sm.hat(inertia.moment), sm.hat(v)))


def _to_parent(R, p, own: _Sum) -> _Sum:
    linear = sm.matvec(R, own.rate.linear)
    turning = sm.matmult(sm.matmul(R, own.rate.turning), R) - 2 * sm.matmul(sm.hat(p), sm.hat(linear))
    return _Sum(inertia_to_parent(R, p, own.inertia), _InertiaRate(turning, linear), to_parent(R, p, own.wrench))


def _read(joint: JointTerms, total: _Sum, velocity: Any = None, acceleration: Any = None) -> JointRows:
    S, (inertia, rate, wrench) = joint.S, total
    X, Y = se3.ad(joint.V_above, S), se3.ad(joint.A_above, S)
    if velocity is not None:
        X, Y = X + velocity, Y + acceleration + se3.ad(joint.V, velocity)
    Y = Y + se3.ad(joint.V_above, X)
    Z = joint.S_rate + X
    load_q = momenta(inertia, Y) + rate.times(X[:3]) - se3.coad(S, sm.join(*wrench))
    load_v = momenta(inertia, Z) + rate.times(S[:3])
    wrenches = (momenta(inertia, S), rate.transpose_times(S), load_q, load_v)
    S, X, Y, Z = map(joint.twist, (S, X, Y, Z))
    momentum, rated, load_q, load_v = map(joint.wrench, wrenches)
    return JointRows(S, X[:3], Y, Z, momentum, rated[:3], load_q, load_v)


def _bent(model: Model, walk: TreeTraversal, sums: list, q: Configuration, v, vdot) -> tuple:
    """Terms that come from joint motions that depend on the joint's own coordinates, zero where none does.

    Derivatives (nv, 6) of S v and of S vdot + dS/dt v, and (nv, nv) of S . wrench.
    """
    rates = zip(walk.velocities(v), walk.velocities(vdot), strict=True)
    data = (walk.bodies(model.screws), [x.wrench for x in sums], walk.configurations(q), list(rates))
    out = walk.outward(_bend, (), *data)
    velocity, acceleration, force = (walk.to_velocities([rows[k] for rows in out]) for k in range(3))
    body, n = np.asarray(model.tree.v_body), np.arange(model.nv)
    column = n - np.asarray(model.tree.v_start)[body][:, None]  # of the joint's own block
    own = body[:, None] == body
    return velocity, acceleration, jnp.where(own, force[n[:, None], np.clip(column, 0, 5)], 0)


def _bend(kind, parent, screw, wrench: Wrench, q, rates):
    """Rows (nv, 6) of one joint in its frame: derivatives of S v, of its rate, and of S . wrench, by column."""
    qd, qdd = rates
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
