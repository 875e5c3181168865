"""The equations of motion and their first time derivative as matrices: one stack of Jacobians instead of recursions.

Joint motions S are twists in world axes about one point. With P the path sums of the tree, stacked over the bodies,

    J = P S,  dJ/dt = P dS/dt,  V = J v,  dM/dt = -(M ad_V + ad_V^T M),  dS/dt = ad_V S + Ad_T dB/dt

where M holds the bodies' inertias and B(q) a joint's motions in its own body, constant for most kinds. Momentum J v
taken through M, and differentiated, gives every matrix below. Source: [ali2026] Proposition 1 and Lemma 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import ancestor_mask, world_kinematics
from lgjax.dynamics.mass_matrix import world_inertia
from lgjax.dynamics.time_derivatives.time_stacks import Frame, check_frame
from lgjax.groups import se3
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm


class ClosedForm(NamedTuple):
    """Matrices (nv, nv) and vectors (nv,) of the equations of motion and of their derivative in time.

        tau     = mass vdot + (coriolis + D) v + gravity
        dtau/dt = mass vddot + (mass_rate + coriolis + D) vdot + coriolis_rate v + gravity_rate

    with D the diagonal matrix of the model's damping. mass includes the armature. coriolis is admissible: mass_rate -
    2 coriolis is skew. The rates are derivatives along the motion; coriolis_rate alone depends on vdot.
    """

    mass: jax.Array
    coriolis: jax.Array
    gravity: jax.Array
    mass_rate: jax.Array
    coriolis_rate: jax.Array
    gravity_rate: jax.Array


@checked_arguments()
def closed_form(
    model: Model,
    q: Configuration,
    v: jax.Array,
    vdot: jax.Array,
    frame: Frame = "body",
) -> ClosedForm:
    """The equations of motion as matrices, from v and vdot (nv,).

    frame "spatial": the base part of v, vdot and of the forces is the twist and wrench in world axes about the world
    origin, and the component-wise derivatives of those, as in inverse_dynamics_time_derivatives. The block of D of a
    free joint with damping is then turned into these coordinates and no longer diagonal. The cost grows with the number
    of bodies times nv^2. Raises ValueError for other shapes, dtypes or frames. Source: [ali2026] eqs. (10)-(19), (21).
    """
    check_frame(frame)
    world = world_kinematics(model, q, rates=[v, vdot])
    inertia = jax.tree.map(lambda x: x[:, None], world_inertia(world.poses, model.inertias))
    body = np.asarray(model.tree.v_body)
    moves = ancestor_mask(model.tree)[:, body]  # P: [i, j] true iff velocity j moves body i
    S, moving = world.S, np.full(model.nv, True)
    if frame == "spatial":
        S, moving = _with_spatial_bases(model, S, world.origin)

    stacked = lambda columns: jnp.where(moves[..., None], columns, 0)
    motion = lambda J, x: jnp.sum(J * x[:, None], 1)
    J = stacked(S)
    V = motion(J, v)
    along = se3.ad(V[body], S)
    if world.bend is not None:
        along = along + world.bend[0]
    dS = jnp.where(moving[:, None], along, 0)
    dJ = stacked(dS)
    dV = motion(J, vdot) + motion(dJ, v)
    along = se3.ad(dV[body], S) + se3.ad(V[body], dS)
    if world.bend is not None:
        along = along + se3.ad(V[body], world.bend[0]) + world.bend[1]
    ddJ = stacked(jnp.where(moving[:, None], along, 0))

    V, dV = V[:, None], dV[:, None]
    M = lambda x: _momenta(inertia, x)
    dM = lambda x: -M(se3.ad(V, x)) - se3.coad(V, M(x))
    # B v is the rate of the bodies' momenta under the velocity v alone
    B = M(dJ) - se3.coad(V, M(J))
    dB = M(ddJ) + dM(dJ) - se3.coad(dV, M(J)) - se3.coad(V, dM(J) + M(dJ))
    coriolis = _products(J, B)
    fall = jnp.concatenate([jnp.zeros_like(model.gravity), model.gravity])
    weight, weight_rate = M(fall), dM(fall)
    found = ClosedForm(
        mass=_products(J, M(J)) + sm.diagonal(jnp.where(moving, model.armature, 0)),
        coriolis=coriolis,
        gravity=-_products(J, weight)[:, 0],
        mass_rate=coriolis + coriolis.T,
        coriolis_rate=_products(dJ, B) + _products(J, dB),
        gravity_rate=-(_products(dJ, weight) + _products(J, weight_rate))[:, 0],
    )
    return found if frame == "body" else _with_base_armature(found, model, q, v, vdot)


def _with_base_armature(found: ClosedForm, model: Model, q: Configuration, v, vdot) -> ClosedForm:
    """Adds the armature a of free joints, in spatial coordinates: with body twist = T(q) v, T^T a d(T v)/dt."""
    starts = [
        s for kind, s in zip(model.tree.kinds, model.tree.v_start, strict=True) if kind.coordinates == "free_poses"
    ]
    for n, start in enumerate(starts):
        part = slice(start, start + 6)
        g = jax.tree.map(lambda x, n=n: x[n], q.free_poses)
        T = se3.Ad(se3.inverse(g), jnp.eye(6, dtype=v.dtype))  # T^T, and its rates; likewise below
        twist = v[part] @ T
        dT = -se3.ad(twist, T)
        ddT = -se3.ad(vdot[part] @ T + v[part] @ dT, T) - se3.ad(twist, dT)
        weighed, slope = T * model.armature[part], dT * model.armature[part]
        mass, coriolis, rate = weighed @ T.T, weighed @ dT.T, slope @ dT.T + weighed @ ddT.T
        found = found._replace(
            mass=found.mass.at[part, part].add(mass),
            coriolis=found.coriolis.at[part, part].add(coriolis),
            mass_rate=found.mass_rate.at[part, part].add(coriolis + coriolis.T),
            coriolis_rate=found.coriolis_rate.at[part, part].add(rate),
        )
    return found


def _with_spatial_bases(model: Model, S, origin):
    """Joint motions with those of the bases as twists about the world origin, which stay; and which ones move."""
    moving = np.full(model.nv, True)
    basis = se3.Ad(se3.Pose(sm.identity(3, S.dtype), -origin), jnp.eye(6, dtype=S.dtype))
    for kind, start in zip(model.tree.kinds, model.tree.v_start, strict=True):
        if kind.coordinates == "free_poses":
            S = S.at[start : start + 6].set(basis)
            moving[start : start + 6] = False
    return S, moving


def _momenta(inertia: Inertia, x):
    """Inertias (nbodies, 1) times twists (nbodies or 1, n, 6)."""
    return jnp.concatenate(inertia.momentum(*se3.split(x)), -1)


def _products(left, right):
    """Scalar products (m, n) of the stacks (nbodies, m, 6) and (nbodies, n, 6), in full precision."""
    return jnp.einsum("bik,bjk->ij", left, right, precision="highest")
