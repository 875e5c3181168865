"""Joint kinds as hashable records that the recursions read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lgjax.execution.path_series import path_series
from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm


@dataclass(frozen=True)
class JointKind:
    """Kind of joint, in the joint frame: the child frame that coincides with the parent's side at q = 0.

    transform(q, screw) -> (R (3, 3), p (3,)): pose of the child frame after the joint in the frame before it.
    subspace(q, screw) -> (S_w (3, nv), S_v (3, nv)): child twist = S v, in the child frame (left-trivialized).
    varying: whether S depends on q; only kinds with scalar coordinates may.
    axes: the axes of the child frame that are the columns of S, 0 to 2 for rotation about and 3 to 5 for translation
    along x, y, z; empty if S has others. Recursions leave out what is zero along them.
    coordinates says where q is kept in a Configuration: `joints` (q has shape (nq,), nq = nv, and v is dq/dt),
    `free_poses` (a Pose) or `ball_rotations` (a rotation). screw (2,) is the body's entry of `Model.screws`, which only
    the helical joint reads. `general` names the kind that contains this one, so that different kinds can share a level
    of the traversal.

    Users make kinds with `lgjax.joint_kind`, which checks them. Source: [kim2012] section 2.
    """

    name: str
    nq: int
    nv: int
    coordinates: Literal["joints", "free_poses", "ball_rotations"]
    transform: Callable[..., Any]
    subspace: Callable[..., Any]
    varying: bool = False
    axes: tuple[int, ...] = ()
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


def subspace_coefficient(kind: JointKind, screw, q, speeds: Sequence):
    """Coefficient len(speeds) > 0 of the series S(q(t)), from the coefficients of dq/dt: columns (S_w, S_v)."""
    path = [q, *(x / (k + 1.0) for k, x in enumerate(speeds))]
    return path_series(lambda q: kind.subspace(q, screw), path)[-1]
