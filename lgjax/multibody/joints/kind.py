"""What a joint kind is: a hashable record that the recursions read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from lgjax.groups import small_matrix as sm
from lgjax.groups.se3 import Pose


@dataclass(frozen=True)
class JointKind:
    """A kind of joint, in the joint frame: the child frame that coincides with the parent's side at q = 0.

    transform(q, screw) -> (R (3, 3), p (3,)): pose of the child frame after the joint in the frame before it.
    subspace(q, screw) -> (S_w (3, nv), S_v (3, nv)): child twist = S qd, in the child frame (left-trivialised).
    subspace_rate(q, qd, screw) -> (3,), (3,): the derivative of S along qd, applied to qd; None where S is constant.
    coordinates says where q is kept in a Configuration: `joints` (q has shape (nq,)), `frees` (a Pose) or
    `balls` (a rotation). screw (2,) is the body's entry of `Model.screws`, which only the screw joints read.
    `general` names the kind that contains this one, so that different kinds can share a level of the traversal.
    """

    name: str
    nq: int
    nv: int
    coordinates: Literal["joints", "frees", "balls"]
    transform: Callable[..., Any]
    subspace: Callable[..., Any]
    subspace_rate: Callable[..., Any] | None = None
    general: "JointKind | None" = None

    @property
    def family(self) -> "JointKind":
        """The most general kind that contains this one."""
        return self.general.family if self.general else self

    def __repr__(self) -> str:
        return f"<joint kind {self.name}>"


def place(kind: JointKind, placement: Pose, screw, q):
    """Pose (R (3, 3), p (3,)) of a body's joint frame in its parent's joint frame."""
    rotation, translation = kind.transform(q, screw)
    return sm.matmul(placement.rotation, rotation), placement.translation + sm.matvec(placement.rotation, translation)
