"""Mechanisms: tree, joints, inertias, configuration, and their construction from bodies or from a file.

`build.py` makes a `Model` from bodies and joints, `importers/` from URDF and MJCF.  Read first: `tree.py`, `model.py`.
"""

from lgjax.multibody.build import Body, Joint, build
from lgjax.multibody.configuration import (
    configuration,
    difference,
    mechanical_space,
    neutral,
    random_configuration,
    retract,
)
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.joints import JointKind, joint_kind
from lgjax.multibody.model import Configuration, Model
from lgjax.multibody.tree import Tree

__all__ = [
    "Body",
    "Configuration",
    "Inertia",
    "Joint",
    "JointKind",
    "Model",
    "Tree",
    "build",
    "configuration",
    "difference",
    "joint_kind",
    "mechanical_space",
    "neutral",
    "random_configuration",
    "retract",
]
