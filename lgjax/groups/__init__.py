"""Lie groups as plain functions over arrays, gathered in records, and the spaces they act on."""

from lgjax.groups import r3_so3, s3, se3, so3, vector
from lgjax.groups.homogeneous_space import (
    HomogeneousSpace,
    left_translation,
    product_space,
    right_translation,
    vector_space,
)
from lgjax.groups.lie_group import LieGroup, product
from lgjax.groups.r3_so3 import R3xSO3, RotationTranslation
from lgjax.groups.s3 import S3
from lgjax.groups.se3 import SE3, Pose
from lgjax.groups.so3 import SO3
from lgjax.groups.vector import Rn

__all__ = [
    "S3",
    "SE3",
    "SO3",
    "HomogeneousSpace",
    "LieGroup",
    "Pose",
    "R3xSO3",
    "Rn",
    "RotationTranslation",
    "left_translation",
    "product",
    "product_space",
    "r3_so3",
    "right_translation",
    "s3",
    "se3",
    "so3",
    "vector",
    "vector_space",
]
