"""Joint kinds, one per file: a frozen record of the joint's map and motion subspace in its own frame."""

from lgjax.multibody.joints.free import FREE
from lgjax.multibody.joints.kind import JointKind
from lgjax.multibody.joints.prismatic import PRISMATIC
from lgjax.multibody.joints.revolute import REVOLUTE
from lgjax.multibody.joints.screw import SCREW
from lgjax.multibody.joints.spherical import SPHERICAL

__all__ = ["FREE", "PRISMATIC", "REVOLUTE", "SCREW", "SPHERICAL", "JointKind"]
