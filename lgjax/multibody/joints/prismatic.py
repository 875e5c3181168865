"""Prismatic joint along z of the joint frame."""

import jax.numpy as jnp

from lgjax.multibody.joints.helical import HELICAL, unit_z
from lgjax.multibody.joints.kind import JointKind


def transform(q, screw):
    return jnp.eye(3, dtype=q.dtype), q[0] * unit_z(q)


def subspace(q, screw):
    return jnp.zeros((3, 1), q.dtype), unit_z(q)[:, None]


PRISMATIC = JointKind("prismatic", 1, 1, "joints", transform, subspace, axes=(5,), general=HELICAL)
