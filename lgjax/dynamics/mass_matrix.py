"""Mass matrix and Coriolis matrix from sums over subtrees."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lgjax.dynamics.spatial import NO_MASS, ZERO3, ZERO33
from lgjax.dynamics.subtree_sums import (
    JointTerms,
    Subtrees,
    inertia_to_parent,
    mass_matrix_of,
    momenta,
    products,
    related,
)
from lgjax.execution import batched
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm


def world_inertia(poses: Pose, inertia: Inertia) -> Inertia:
    """Inertia of bodies at `poses`, about the origin in world axes."""
    R, p = poses
    h = sm.matvec(R, inertia.moment)
    turned = sm.matmult(sm.matmul(R, inertia.rotational), R)
    P, H = sm.hat(p), sm.hat(h)
    mass = inertia.mass[..., None]
    second = turned - sm.matmul(P, H) - sm.matmul(H, P) - mass[..., None] * sm.matmul(P, P)
    return Inertia(inertia.mass, h + mass * p, second)


@checked_arguments()
@batched
def mass_matrix(model: Model, q: Configuration) -> jax.Array:
    """Mass matrix (nv, nv), armature on the diagonal. Source: composite rigid bodies, [ali2026] eq. (13).

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> M = lgjax.mass_matrix(arm, lgjax.neutral(arm))
        >>> bool(jnp.allclose(M, M.T))
        True
    """
    return mass_matrix_of(model, *_motions_and_momenta(model, q))


def _motions_and_momenta(model: Model, q: Configuration) -> tuple[jax.Array, jax.Array]:
    """Motions (nv, 6) of the joints and momenta of what they carry, in world axes."""
    read = lambda joint, inertia: (joint.twist(joint.S), joint.wrench(momenta(inertia, joint.S)))
    subtrees = Subtrees(model, q)
    return subtrees.rows(read, subtrees.sums(lambda body, joint: body.inertia, inertia_to_parent, NO_MASS))


class _Carried(NamedTuple):
    """Sums over the bodies that a joint carries: inertia, and the rate of momentum due to the velocity alone."""

    inertia: Inertia
    rate: _CoriolisRate


class _CoriolisRate(NamedTuple):
    """Sum of -ad_V^T M: (w, v) -> [turning w + (lever + hat(linear)) v, hat(spin) v - lever w].

    turning, lever: (..., 3, 3), the latter hat(V_w) hat(h). linear: m V_v. spin: m V_w.
    """

    turning: jax.Array
    lever: jax.Array
    linear: jax.Array
    spin: jax.Array

    def times(self, x):
        """Wrenches (..., 6) of twists."""
        w, v = se3.split(x)
        moment = sm.matvec(self.turning, w) + sm.matvec(self.lever, v) + sm.cross(self.linear, v)
        return sm.join(moment, sm.cross(self.spin, v) - sm.matvec(self.lever, w))

    def transpose_times(self, x):
        w, v = se3.split(x)
        angular = sm.tmatvec(self.turning, w) - sm.tmatvec(self.lever, v)
        return sm.join(angular, sm.tmatvec(self.lever, w) - sm.cross(self.linear, w) - sm.cross(self.spin, v))


NOTHING = _Carried(NO_MASS, _CoriolisRate(ZERO33, ZERO33, ZERO3, ZERO3))


def _rate(inertia: Inertia, V) -> _CoriolisRate:
    w, v = se3.split(V)
    W, H, mass = sm.hat(w), sm.hat(inertia.moment), inertia.mass[..., None]
    turning = sm.matmul(W, inertia.rotational) - sm.matmul(sm.hat(v), H)
    return _CoriolisRate(turning, sm.matmul(W, H), mass * v, mass * w)


def _to_parent(R, p, own: _Carried) -> _Carried:
    turn = lambda X: sm.matmult(sm.matmul(R, X), R)
    P, spin, linear = sm.hat(p), sm.matvec(R, own.rate.spin), sm.matvec(R, own.rate.linear)
    near = turn(own.rate.lever)
    lever = near + sm.matmul(sm.hat(spin), P)
    turning = turn(own.rate.turning) - sm.matmul(P, lever) - sm.matmul(near + sm.hat(linear), P)
    rate = _CoriolisRate(turning, lever, linear + sm.cross(p, spin), spin)
    return _Carried(inertia_to_parent(R, p, own.inertia), rate)


@checked_arguments()
@batched
def coriolis_matrix(model: Model, q: Configuration, v: jax.Array) -> jax.Array:
    """Admissible Coriolis matrix C: C v + gravity = bias without damping, and dM/dt - 2 C is skew.

    C = J^T (M dJ/dt - ad_V^T M J) with the stacked spatial Jacobian J.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.

    Returns:
        C (nv, nv).

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> q = lgjax.configuration(arm, joints=[0.5, 0.0])
        >>> lgjax.coriolis_matrix(arm, q, jnp.zeros(2)).shape
        (2, 2)

    Source: [ali2026] Lemma 1, eq. (21).
    """
    S, S_rate, rows, rated, columns = _coriolis_rows(model, q, v)
    deep, shallow = related(model.tree)
    below = products(jnp.concatenate([rows, rated], 1), jnp.concatenate([S_rate, S], 1).T)
    return jnp.where(deep, below, jnp.where(shallow, products(S, columns.T), 0))


def _coriolis_rows(model: Model, q: Configuration, v) -> tuple[jax.Array, ...]:
    def read(joint: JointTerms, total: _Carried):
        inertia, rate = total
        wrenches = (
            momenta(inertia, joint.S),
            rate.transpose_times(joint.S),
            momenta(inertia, joint.S_rate) + rate.times(joint.S),
        )
        return *map(joint.twist, (joint.S, joint.S_rate)), *map(joint.wrench, wrenches)

    subtrees = Subtrees(model, q, v)
    own = lambda body, joint: _Carried(body.inertia, _rate(body.inertia, joint.V))
    return subtrees.rows(read, subtrees.sums(own, _to_parent, NOTHING))
