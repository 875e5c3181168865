"""Joint kinds, one per file: a frozen record of the joint's map and motion subspace in its own frame.

Read first: `kind.py`, then `cylindrical.py`, a whole kind in a few lines.
"""

from lgjax.multibody.joints.cylindrical import CYLINDRICAL
from lgjax.multibody.joints.free import FREE
from lgjax.multibody.joints.helical import HELICAL
from lgjax.multibody.joints.kind import JointKind
from lgjax.multibody.joints.planar import PLANAR
from lgjax.multibody.joints.prismatic import PRISMATIC
from lgjax.multibody.joints.revolute import REVOLUTE
from lgjax.multibody.joints.spherical import SPHERICAL
from lgjax.multibody.joints.universal import UNIVERSAL
from lgjax.multibody.joints.user import joint_kind

__all__ = [
    "CYLINDRICAL",
    "FREE",
    "HELICAL",
    "PLANAR",
    "PRISMATIC",
    "REVOLUTE",
    "SPHERICAL",
    "UNIVERSAL",
    "JointKind",
    "joint_kind",
]
