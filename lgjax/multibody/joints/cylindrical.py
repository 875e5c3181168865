"""Cylindrical joint: turns about z by q[0] and slides along z by q[1], independently."""

import jax.numpy as jnp

from lgjax.multibody.joints.helical import rotation_about_z, unit_z
from lgjax.multibody.joints.kind import JointKind


def transform(q, screw):
    return rotation_about_z(q[0]), q[1] * unit_z(q)


def subspace(q, screw):
    zero = jnp.zeros(3, q.dtype)
    return jnp.stack([unit_z(q), zero], 1), jnp.stack([zero, unit_z(q)], 1)


CYLINDRICAL = JointKind("cylindrical", 2, 2, "joints", transform, subspace, axes=(2, 5))
