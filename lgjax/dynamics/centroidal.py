"""Momentum about the centre of mass as a linear function of the velocity."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import World, world_kinematics
from lgjax.dynamics.mass_matrix import world_inertia
from lgjax.dynamics.subtrees import subtree_sums
from lgjax.groups import se3
from lgjax.groups import small_matrix as sm
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration


class _Whole(NamedTuple):
    """Columns (nv, 6) of momentum about the kinematics' origin, total mass () and first moment (3,)."""

    columns: jax.Array
    mass: jax.Array
    moment: jax.Array


def centroidal_momentum_matrix(model: Model, q: Configuration) -> jax.Array:
    """A (6, nv): A v is the momentum in world axes, [angular about the centre of mass, linear], kg m^2/s and kg m/s."""
    world = world_kinematics(model, q)
    _, whole = _momenta(model, world, world_inertia(world.poses, model.inertias))
    return _about(whole.moment / whole.mass, whole.columns).T


def centroidal_momentum_derivative(model: Model, q: Configuration, v) -> jax.Array:
    """Time derivative (6, nv) of `centroidal_momentum_matrix` along the motion v; times v it is the momentum's bias."""
    world = world_kinematics(model, q, v, rates=[v])
    own = world_inertia(world.poses, model.inertias)
    carried, whole = _momenta(model, world, own)
    body = np.asarray(model.tree.v_body)
    S_rate = se3.ad(world.twists[body], world.S)
    if world.bend is not None:
        S_rate = S_rate + world.bend[0]
    moving = subtree_sums(model, _inertia_rate(own, world.twists))
    rated = jax.tree.map(lambda x: x[body], moving)
    rate = _times(carried, S_rate) + _times(rated, world.S)
    center, velocity = whole.moment / whole.mass, jnp.sum(whole.columns[:, 3:] * v[:, None], 0) / whole.mass
    slip = sm.cross(velocity, whole.columns[:, 3:])
    return (_about(center, rate) - jnp.concatenate([slip, jnp.zeros_like(slip)], 1)).T


def center_of_mass_velocity(model: Model, q: Configuration, v) -> jax.Array:
    """Velocity (3,) of the centre of mass of the whole mechanism in the world, m/s."""
    world = world_kinematics(model, q, v)
    _, linear = world_inertia(world.poses, model.inertias).momentum(*se3.split(world.twists))
    return jnp.sum(linear, 0) / jnp.sum(model.inertias.mass)


def _momenta(model: Model, world: World, own: Inertia) -> tuple[Inertia, _Whole]:
    """The inertia beyond the joint of each velocity, and what that moves with it."""
    carried = jax.tree.map(lambda x: x[np.asarray(model.tree.v_body)], subtree_sums(model, own))
    return carried, _Whole(_times(carried, world.S), jnp.sum(own.mass), jnp.sum(own.moment, 0))


def _times(inertia: Inertia, x):
    return jnp.concatenate(inertia.momentum(*se3.split(x)), -1)


def _inertia_rate(inertia: Inertia, V) -> Inertia:
    """V x* M - M V x, the derivative in time of inertias M that move with V."""
    w, v = se3.split(V)
    _, linear = inertia.momentum(w, v)
    half = sm.matmul(sm.hat(w), inertia.second) - sm.matmul(sm.hat(v), sm.hat(inertia.moment))
    return Inertia(jnp.zeros_like(inertia.mass), linear, half + sm.transpose(half))


def _about(point, momenta):
    """Momenta (nv, 6) about another point."""
    return momenta - jnp.concatenate([sm.cross(point, momenta[:, 3:]), jnp.zeros_like(momenta[:, 3:])], 1)
