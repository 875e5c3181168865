"""Planar joint: moves by (q[1], q[2]) along the x and y of the frame before it and turns about z by q[0]."""

import jax.numpy as jnp

from lgjax.multibody.joints.helical import rotation_about_z, unit_z
from lgjax.multibody.joints.kind import JointKind


def transform(q, screw):
    return rotation_about_z(q[0]), jnp.stack([q[1], q[2], jnp.zeros_like(q[0])])


def subspace(q, screw):
    c, s = jnp.cos(q[0]), jnp.sin(q[0])
    zero = jnp.zeros_like(c)
    turn = jnp.stack([unit_z(q), *jnp.zeros((2, 3), q.dtype)], 1)
    return turn, jnp.stack([zero, c, s, zero, -s, c, zero, zero, zero]).reshape(3, 3)


PLANAR = JointKind("planar", 3, 3, "joints", transform, subspace, varying=True)
