"""Free joint: the configuration is a pose, the velocity the body-frame twist [w, v]."""

import jax.numpy as jnp

from lgjax.multibody.joints.kind import JointKind


def transform(q, screw):
    return q.rotation, q.translation


def subspace(q, screw):
    basis = jnp.eye(6, dtype=q.translation.dtype)
    return basis[:3], basis[3:]


FREE = JointKind("free", 0, 6, "free_poses", transform, subspace)
