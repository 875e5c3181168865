"""Lie groups as plain functions over arrays, gathered in records, and the spaces they act on.

Read first: `so3.py`, then `lie_group.py` and `homogeneous_space.py`.
"""

from lgjax.groups import r3_so3, s3, se3, so3, ts2, vector
from lgjax.groups.charts import cayley_coordinates, second_kind_coordinates
from lgjax.groups.cotangent import Covector, coadjoint_orbit, cotangent_bundle, cotangent_group
from lgjax.groups.functions_of_ad import function_of_ad
from lgjax.groups.homogeneous_space import (
    HomogeneousSpace,
    frame_space,
    left_translation,
    power_space,
    product_space,
    right_translation,
    two_sided_translation,
    vector_space,
)
from lgjax.groups.lie_group import LieGroup, product
from lgjax.groups.r3_so3 import R3xSO3, RotationTranslation
from lgjax.groups.s3 import S3
from lgjax.groups.se3 import SE3, Pose
from lgjax.groups.so3 import SO3
from lgjax.groups.ts2 import TS2, TangentPoint, tangent_sphere
from lgjax.groups.vector import Rn

__all__ = [
    "S3",
    "SE3",
    "SO3",
    "TS2",
    "Covector",
    "HomogeneousSpace",
    "LieGroup",
    "Pose",
    "R3xSO3",
    "Rn",
    "RotationTranslation",
    "TangentPoint",
    "cayley_coordinates",
    "coadjoint_orbit",
    "cotangent_bundle",
    "cotangent_group",
    "frame_space",
    "function_of_ad",
    "left_translation",
    "power_space",
    "product",
    "product_space",
    "r3_so3",
    "right_translation",
    "s3",
    "se3",
    "second_kind_coordinates",
    "so3",
    "tangent_sphere",
    "ts2",
    "two_sided_translation",
    "vector",
    "vector_space",
]
