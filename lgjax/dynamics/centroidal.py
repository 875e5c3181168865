"""Momentum about the center of mass as a linear function of the velocity."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lgjax.dynamics.kinematics import world_kinematics
from lgjax.dynamics.mass_matrix import world_inertia
from lgjax.dynamics.spatial import NO_MASS
from lgjax.dynamics.subtree_sums import Subtrees, inertia_to_parent, momenta
from lgjax.execution import batched
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm


@checked_arguments()
def centroidal_momentum_matrix(model: Model, q: Configuration) -> jax.Array:
    """A (6, nv): A v is the momentum in world axes, [angular about the center of mass, linear], kg m^2/s and kg m/s.

    Example:
        >>> robot = lgjax.models.quadruped()
        >>> lgjax.centroidal_momentum_matrix(robot, lgjax.neutral(robot)).shape
        (6, 18)

    Source: composite rigid bodies as in [featherstone2008] section 6.2.
    """
    return batched(_matrix)(model, q)


def _matrix(model: Model, q: Configuration) -> jax.Array:
    subtrees = Subtrees(model, q)
    inertias = subtrees.sums(lambda body, joint: body.inertia, inertia_to_parent, NO_MASS)
    columns = subtrees.rows(lambda joint, inertia: joint.wrench(momenta(inertia, joint.S)), inertias)
    return _about(_center(model, subtrees.poses()), columns).T


@checked_arguments()
def centroidal_momentum_derivative(model: Model, q: Configuration, v: jax.Array) -> jax.Array:
    """Time derivative dA/dt (6, nv) of `centroidal_momentum_matrix` A along the motion v (nv,).

    The momentum changes at the rate A vdot + dA/dt v.
    """
    return batched(_derivative)(model, q, v)


def _derivative(model: Model, q: Configuration, v) -> jax.Array:
    def read(joint, total):
        inertia, rate = total
        change = momenta(inertia, joint.S_rate) + momenta(rate, joint.S)
        return joint.wrench(momenta(inertia, joint.S)), joint.wrench(change)

    own = lambda body, joint: (body.inertia, _inertia_rate(body.inertia, joint.V))
    to_parent = lambda R, p, pair: tuple(inertia_to_parent(R, p, x) for x in pair)  # a rate is an inertia without mass
    subtrees = Subtrees(model, q, v)
    columns, change = subtrees.rows(read, subtrees.sums(own, to_parent, (NO_MASS, NO_MASS)))
    velocity = jnp.sum(columns[:, 3:] * v[:, None], 0) / jnp.sum(model.inertias.mass)
    slip = sm.cross(velocity, columns[:, 3:])
    about = _about(_center(model, subtrees.poses()), change)
    return (about - jnp.concatenate([slip, jnp.zeros_like(slip)], 1)).T


@checked_arguments()
def center_of_mass_velocity(model: Model, q: Configuration, v: jax.Array) -> jax.Array:
    """Velocity (3,) of the center of mass of the whole mechanism in the world, m/s."""
    world = world_kinematics(model, q, v)
    _, linear = world_inertia(world.poses, model.inertias).momentum(*se3.split(world.twists))
    return jnp.sum(linear, 0) / jnp.sum(model.inertias.mass)


def _center(model: Model, poses: Pose):
    """Center of mass (3,), from the poses of the joint frames."""
    R, p = poses
    moments = sm.matvec(R, model.inertias.moment) + sm.scale(model.inertias.mass, p)
    return jnp.sum(moments, 0) / jnp.sum(model.inertias.mass)


def _inertia_rate(inertia: Inertia, V) -> Inertia:
    """V x* M - M V x, the derivative in time of inertias M that move with V."""
    w, v = se3.split(V)
    _, linear = inertia.momentum(w, v)
    half = sm.matmul(sm.hat(w), inertia.rotational) - sm.matmul(sm.hat(v), sm.hat(inertia.moment))
    return Inertia(jnp.zeros_like(inertia.mass), linear, half + sm.transpose(half))


def _about(point, momenta):
    """Momenta (nv, 6) about another point."""
    return momenta - jnp.concatenate([sm.cross(point, momenta[:, 3:]), jnp.zeros_like(momenta[:, 3:])], 1)
