"""Mass matrix and Coriolis matrix from sums over subtrees in world axes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import ancestor_mask, world_kinematics
from lgjax.groups import se3
from lgjax.groups import small_matrix as sm
from lgjax.groups.se3 import Pose
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration
from lgjax.multibody.traversal import Execution, Walk


def world_inertia(poses: Pose, inertia: Inertia) -> Inertia:
    """Inertia of bodies at `poses`, about the origin in world axes."""
    R, p = poses
    h = sm.matvec(R, inertia.moment)
    turned = sm.matmult(sm.matmul(R, inertia.second), R)
    P, H = sm.hat(p), sm.hat(h)
    mass = inertia.mass[..., None]
    second = turned - sm.matmul(P, H) - sm.matmul(H, P) - mass[..., None] * sm.matmul(P, P)
    return Inertia(inertia.mass, h + mass * p, second)


class _Subtree(NamedTuple):
    """Summed over a body and its descendants: rigid-body inertia, and B = -sum of ad_V^T M (6, 6)."""

    inertia: Inertia
    rate: jax.Array | None


def _sum(kind, children, own):
    total = jax.tree.map(lambda a, b: a + b, children, own)
    return total, total


def _subtrees(model: Model, own: _Subtree, execution: Execution) -> _Subtree:
    walk = Walk(model.tree, model.dtype, execution)
    zero = jax.tree.map(lambda x: np.zeros(x.shape[1:]), own)
    return walk.to_bodies(walk.inward(_sum, zero, walk.bodies(own)))


def _related(model: Model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bodies of the velocities, and [i, j]: velocity i moves the body of j (above), and the reverse."""
    body = np.asarray(model.tree.v_body)
    mask = ancestor_mask(model.tree)
    return body, mask[body][:, body].T, mask[body][:, body]


def _products(left, right):
    """All scalar products (m, n) of rows (m, 6) and (n, 6), in full precision."""
    return jnp.einsum("ik,jk->ij", left, right, precision="highest")


def mass_matrix(model: Model, q: Configuration, *, execution: Execution = "scalarised") -> jax.Array:
    """Mass matrix (nv, nv), armature on the diagonal. Source: composite rigid bodies, [ali2026] eq. (13)."""
    world = world_kinematics(model, q, execution=execution)
    total = _subtrees(model, _Subtree(world_inertia(world.poses, model.inertias), None), execution).inertia
    body, above, below = _related(model)
    carried = jax.tree.map(lambda x: x[body], total)
    momenta = jnp.concatenate(carried.momentum(world.S[:, :3], world.S[:, 3:]), -1)
    upper = _products(world.S, momenta)
    M = jnp.where(above, upper, jnp.where(below, upper.T, 0))
    return M + sm.diagonal(model.armature)


def coriolis_matrix(model: Model, q: Configuration, v, *, execution: Execution = "scalarised") -> jax.Array:
    """An admissible Coriolis matrix C (nv, nv): C v + gravity = bias without damping, and dM/dt - 2 C is skew.

    C = J^T (M dJ/dt - ad_V^T M J) with the stacked spatial Jacobian J. Source: [ali2026] Lemma 1, eq. (21).
    """
    world = world_kinematics(model, q, v, execution, [v])
    own = world_inertia(world.poses, model.inertias)
    total = _subtrees(model, _Subtree(own, _minus_coad_momentum(world.twists, own)), execution)
    body, above, below = _related(model)
    carried = jax.tree.map(lambda x: x[body], total)
    S = world.S
    S_rate = se3.ad(world.twists[body], S)
    if world.bend is not None:
        S_rate = S_rate + world.bend[0]
    momenta = jnp.concatenate(carried.inertia.momentum(S[:, :3], S[:, 3:]), -1)
    momenta_rate = jnp.concatenate(carried.inertia.momentum(S_rate[:, :3], S_rate[:, 3:]), -1)
    shallow_row = _products(S, momenta_rate + sm.matvec(carried.rate, S))
    deep_row = _products(momenta, S_rate) + _products(sm.tmatvec(carried.rate, S), S)
    return jnp.where(above, shallow_row, jnp.where(below, deep_row, 0))


def _minus_coad_momentum(twists, inertia: Inertia):
    """-ad_V^T M as a matrix (..., 6, 6), column by column."""
    basis = jnp.eye(6, dtype=twists.dtype)
    lifted = jax.tree.map(lambda x: x[..., None, *(slice(None),) * (x.ndim - 1)], inertia)
    momenta = jnp.concatenate(lifted.momentum(basis[:, :3], basis[:, 3:]), -1)
    return -sm.transpose(se3.coad(twists[..., None, :], momenta))
