"""Energies, momentum and center of mass. Source: [featherstone2008] sections 2.12 and 2.13."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lgjax.dynamics.kinematics import world_kinematics
from lgjax.dynamics.mass_matrix import world_inertia
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm


@checked_arguments()
def kinetic_energy(model: Model, q: Configuration, v: jax.Array) -> jax.Array:
    """Kinetic energy, including that of the armature: v . M v / 2.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.

    Returns:
        (), J.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> lgjax.kinetic_energy(arm, lgjax.neutral(arm), jnp.zeros(2))
        Array(0., dtype=float32)

    Source: [featherstone2008] section 2.13.
    """
    world = world_kinematics(model, q, v)
    momenta = _momenta(model, world)
    return (jnp.sum(sm.dot(world.twists, momenta)) + sm.dot(model.armature * v, v)) / 2


@checked_arguments()
def potential_energy(model: Model, q: Configuration) -> jax.Array:
    """Potential energy () of gravity, J, zero at the world origin: minus gravity times the sum of mass times position.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> q = lgjax.configuration(arm, joints=[0.5, 0.0])
        >>> bool(lgjax.potential_energy(arm, q) > lgjax.potential_energy(arm, lgjax.neutral(arm)))
        True

    Source: first moments as in [featherstone2008] section 2.13.
    """
    world = world_kinematics(model, q)
    moment, mass = _first_moment(model, world)
    return -(sm.dot(model.gravity, moment) + mass * sm.dot(model.gravity, world.origin))


@checked_arguments()
def total_energy(model: Model, q: Configuration, v: jax.Array) -> jax.Array:
    """Kinetic plus potential energy.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.

    Returns:
        (), J; potential energy is zero at the world origin.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> q = lgjax.configuration(arm, joints=[0.5, 0.0])
        >>> v = jnp.ones(2)
        >>> U, T = lgjax.potential_energy(arm, q), lgjax.kinetic_energy(arm, q, v)
        >>> bool(jnp.isclose(lgjax.total_energy(arm, q, v), T + U))
        True

    Source: as for `kinetic_energy` and `potential_energy`.
    """
    return kinetic_energy(model, q, v) + potential_energy(model, q)


@checked_arguments()
def momentum(model: Model, q: Configuration, v: jax.Array) -> jax.Array:
    """Total momentum in world axes: [angular about the world origin, linear].

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.

    Returns:
        (6,), kg m^2/s and kg m/s.

    Example:
        >>> robot = lgjax.models.quadruped()
        >>> lgjax.momentum(robot, lgjax.neutral(robot), jnp.zeros(robot.nv)).shape  # angular, linear
        (6,)

    Source: [featherstone2008] section 2.12.
    """
    world = world_kinematics(model, q, v)
    total = jnp.sum(_momenta(model, world), 0)
    return jnp.concatenate([total[:3] + sm.cross(world.origin, total[3:]), total[3:]])


@checked_arguments()
def center_of_mass(model: Model, q: Configuration) -> jax.Array:
    """Center of mass (3,) of the whole mechanism in the world, meters. Source: [featherstone2008] section 2.13.

    Example:
        >>> robot = lgjax.models.quadruped()
        >>> lgjax.center_of_mass(robot, lgjax.neutral(robot)).shape
        (3,)
    """
    world = world_kinematics(model, q)
    moment, mass = _first_moment(model, world)
    return moment / mass + world.origin


def _momenta(model: Model, world):
    """Momentum (nbodies, 6) of each body in world axes about the kinematics' origin."""
    inertia = world_inertia(world.poses, model.inertias)
    return jnp.concatenate(inertia.momentum(world.twists[:, :3], world.twists[:, 3:]), -1)


def _first_moment(model: Model, world):
    """Total first moment (3,) about the kinematics' origin, and total mass ()."""
    R, p = world.poses
    moments = sm.matvec(R, model.inertias.moment) + model.inertias.mass[:, None] * p
    return jnp.sum(moments, 0), jnp.sum(model.inertias.mass)
