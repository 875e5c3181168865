"""Built-in models: an arm, a quadruped, an aerial manipulator, chains and random trees.

Read first: `built_in.py`.
"""

from lgjax.multibody.models.built_in import (
    BUILT_IN,
    arm,
    branched_tree,
    by_name,
    chain,
    quadruped,
    random_tree,
    urdf,
)
from lgjax.multibody.models.multirotor_with_arms import aerial_manipulator

__all__ = [
    "BUILT_IN",
    "aerial_manipulator",
    "arm",
    "branched_tree",
    "by_name",
    "chain",
    "quadruped",
    "random_tree",
    "urdf",
]
