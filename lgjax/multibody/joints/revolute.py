"""Revolute joint about z of the joint frame; a continuous joint is the same without limits."""

import jax.numpy as jnp

from lgjax.multibody.joints.helical import HELICAL, rotation_about_z, unit_z
from lgjax.multibody.joints.kind import JointKind


def transform(q, screw):
    return rotation_about_z(q[0]), jnp.zeros(3, q.dtype)


def subspace(q, screw):
    return unit_z(q)[:, None], jnp.zeros((3, 1), q.dtype)


REVOLUTE = JointKind("revolute", 1, 1, "joints", transform, subspace, axes=(2,), general=HELICAL)
