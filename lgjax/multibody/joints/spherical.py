"""Spherical joint: the configuration is the rotation child to parent, the velocity the relative one in child axes."""

import jax.numpy as jnp

from lgjax.multibody.joints.kind import JointKind


def transform(q, screw):
    return q, jnp.zeros(3, q.dtype)


def subspace(q, screw):
    return jnp.eye(3, dtype=q.dtype), jnp.zeros((3, 3), q.dtype)


SPHERICAL = JointKind("spherical", 0, 3, "ball_rotations", transform, subspace, axes=(0, 1, 2))
