"""Helical joint: rotation and translation along z in a fixed ratio; revolute and prismatic are cases of it."""

import jax.numpy as jnp

from lgjax.multibody.joints.kind import JointKind


def rotation_about_z(angle):
    """Rotation (3, 3) by `angle` () about z; its constant entries are exact zeros and ones."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    return jnp.stack([c, -s, zero, s, c, zero, zero, zero, one]).reshape(3, 3)


def unit_z(x):
    """The unit vector z (3,) in the dtype of x."""
    return jnp.asarray([0, 0, 1], x.dtype)


def transform(q, screw):
    return rotation_about_z(screw[0] * q[0]), (screw[1] * q[0]) * unit_z(q)


def subspace(q, screw):
    return (screw[0] * unit_z(q))[:, None], (screw[1] * unit_z(q))[:, None]


HELICAL = JointKind("helical", 1, 1, "joints", transform, subspace)
