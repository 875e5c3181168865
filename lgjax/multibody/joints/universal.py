"""Universal joint: turns about z by q[0], then by q[1] about x, which has turned with it."""

import jax.numpy as jnp

from lgjax.multibody.joints.kind import JointKind


def transform(q, screw):
    (c, d), (s, t) = jnp.cos(q), jnp.sin(q)
    zero = jnp.zeros_like(c)
    rotation = jnp.stack([c, -s * d, s * t, s, c * d, -c * t, zero, t, d]).reshape(3, 3)
    return rotation, jnp.zeros(3, q.dtype)


def subspace(q, screw):
    c, s = jnp.cos(q[1]), jnp.sin(q[1])
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    return jnp.stack([zero, one, s, zero, c, zero]).reshape(3, 2), jnp.zeros((3, 2), q.dtype)


UNIVERSAL = JointKind("universal", 2, 2, "joints", transform, subspace, varying=True)
