"""Momentum about the centre of mass as a linear function of the velocity."""

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import World, world_kinematics
from lgjax.dynamics.mass_matrix import world_inertia
from lgjax.dynamics.subtrees import carried, inertia_to_parent, momenta, subtree_sums
from lgjax.groups import se3
from lgjax.groups import small_matrix as sm
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration


def centroidal_momentum_matrix(model: Model, q: Configuration) -> jax.Array:
    """A (6, nv): A v is the momentum in world axes, [angular about the centre of mass, linear], kg m^2/s and kg m/s."""
    world = world_kinematics(model, q)
    inertia = subtree_sums(model, q, inertia_to_parent, model.inertias, "scalarised")
    return _about(_center(model, world), _momenta(model, world, inertia, world.subspace)).T


def centroidal_momentum_derivative(model: Model, q: Configuration, v) -> jax.Array:
    """Time derivative (6, nv) of `centroidal_momentum_matrix` along the motion v; times v it is the momentum's bias."""
    world = world_kinematics(model, q, v, rates=[v])
    moving = _inertia_rate(model.inertias, se3.Ad(se3.inverse(world.poses), world.twists))
    to_parent = lambda R, p, pair: tuple(inertia_to_parent(R, p, x) for x in pair)  # a rate is an inertia without mass
    inertia, rate = subtree_sums(model, q, to_parent, (model.inertias, moving), "scalarised")
    S_rate = se3.ad(world.twists[np.asarray(model.tree.v_body)], world.S)
    if world.bend is not None:
        S_rate = S_rate + world.bend[0]
    S_rate = se3.Ad(carried(model, se3.inverse(world.poses)), S_rate)
    columns = _momenta(model, world, inertia, world.subspace)
    change = _momenta(model, world, inertia, S_rate) + _momenta(model, world, rate, world.subspace)
    velocity = jnp.sum(columns[:, 3:] * v[:, None], 0) / jnp.sum(model.inertias.mass)
    slip = sm.cross(velocity, columns[:, 3:])
    return (_about(_center(model, world), change) - jnp.concatenate([slip, jnp.zeros_like(slip)], 1)).T


def center_of_mass_velocity(model: Model, q: Configuration, v) -> jax.Array:
    """Velocity (3,) of the centre of mass of the whole mechanism in the world, m/s."""
    world = world_kinematics(model, q, v)
    _, linear = world_inertia(world.poses, model.inertias).momentum(*se3.split(world.twists))
    return jnp.sum(linear, 0) / jnp.sum(model.inertias.mass)


def _center(model: Model, world: World):
    """Centre of mass (3,) about the kinematics' origin."""
    R, p = world.poses
    moments = sm.matvec(R, model.inertias.moment) + sm.scale(model.inertias.mass, p)
    return jnp.sum(moments, 0) / jnp.sum(model.inertias.mass)


def _momenta(model: Model, world: World, sums: Inertia, twists):
    """What is beyond each joint times twists (nv, 6) in the joint frames, about the kinematics' origin."""
    return se3.coAd(carried(model, se3.inverse(world.poses)), momenta(carried(model, sums), twists))


def _inertia_rate(inertia: Inertia, V) -> Inertia:
    """V x* M - M V x, the derivative in time of inertias M that move with V."""
    w, v = se3.split(V)
    _, linear = inertia.momentum(w, v)
    half = sm.matmul(sm.hat(w), inertia.second) - sm.matmul(sm.hat(v), sm.hat(inertia.moment))
    return Inertia(jnp.zeros_like(inertia.mass), linear, half + sm.transpose(half))


def _about(point, momenta):
    """Momenta (nv, 6) about another point."""
    return momenta - jnp.concatenate([sm.cross(point, momenta[:, 3:]), jnp.zeros_like(momenta[:, 3:])], 1)
