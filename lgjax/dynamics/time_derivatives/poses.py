"""A moving pose and its twist: time derivatives of one from those of the other.

The pose T, as a 4x4 matrix, obeys dT/dt = T hat(V) with the body twist V and dT/dt = hat(V) T with the spatial one.
Source: [ali2026] Remark 1.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.spatial import Twist, convolve
from lgjax.dynamics.time_derivatives.time_stacks import Frame, check_frame, coefficients, derivatives
from lgjax.execution.compiled import compiled
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_array
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm


@compiled
def pose_derivatives(pose: Pose, twists: jax.Array, frame: Frame = "body") -> jax.Array:
    """Derivatives (n + 1, 4, 4) of the matrix of a pose, itself first, from its twist and derivatives (n, 6).

    Raises ValueError for other shapes or a dtype that is not the pose's. Source: [ali2026] eq. (20), with Leibniz's
    rule.
    """
    check_frame(frame)
    if not isinstance(pose, Pose):
        raise TypeError(f"pose is of type {type(pose).__name__}, expected a Pose")
    dtype = checks.float_dtype(pose.rotation)
    rotation = checked_array("pose.rotation", pose.rotation, (3, 3), dtype, "a pose")
    pose = Pose(rotation, checked_array("pose.translation", pose.translation, (3,), dtype, "rotation"))
    twists = checked_array("twists", twists, (*np.shape(twists)[:1], 6), dtype, "the pose")
    motion = [Twist(*se3.split(x)) for x in coefficients(twists)]
    rows = [jnp.concatenate([R, p[:, None]], -1) for R, p in pose_series(pose, motion, frame)]
    stack = jnp.concatenate([derivatives(rows), jnp.zeros((len(rows), 1, 4), dtype)], 1)
    return stack.at[0, 3, 3].set(1)


@compiled
def twist_derivatives(poses: jax.Array, frame: Frame = "body") -> jax.Array:
    """Twist and derivatives (n, 6) of a pose from the pose and derivatives of its matrix (n + 1, 4, 4).

    The inverse of pose_derivatives. Raises ValueError for other shapes.
    """
    check_frame(frame)
    shape = np.shape(poses)
    if len(shape) != 3 or shape[0] < 2 or shape[1:] != (4, 4):
        raise ValueError(f"poses has shape {shape}, expected (n + 1, 4, 4) with n > 0")
    poses = checked_array("poses", poses, shape, checks.float_dtype(poses), "a pose")
    series = [Pose(T[:3, :3], T[:3, 3]) for T in coefficients(poses)]
    return derivatives([sm.join(*twist) for twist in twist_series(series, frame)])


# ---- the same on Taylor coefficients, with any leading axes
def pose_series(start: Pose, twists: Sequence[Twist], frame: Frame = "body") -> list[Pose]:
    """Coefficients of the pose, one more than the twist has."""
    R, p = [start.rotation], [start.translation]
    w, v = [twist.w for twist in twists], [twist.v for twist in twists]
    spins = [sm.hat(x) for x in w]
    for k in range(len(twists)):
        if frame == "body":
            turn, slide = convolve(sm.matmul, R, spins, k), convolve(sm.matvec, R, v, k)
        else:
            turn, slide = convolve(sm.matmul, spins, R, k), convolve(sm.cross, w, p, k) + v[k]
        R, p = [*R, turn / (k + 1)], [*p, slide / (k + 1)]
    return [Pose(*pair) for pair in zip(R, p, strict=True)]


def twist_series(poses: Sequence[Pose], frame: Frame = "body") -> list[Twist]:
    """Coefficients of the twist, one fewer than the pose has: hat(w) = R^T dR/dt, v = R^T dp/dt in the body frame."""
    R, p = [pose.rotation for pose in poses], [pose.translation for pose in poses]
    turn, slide = ([k * x for k, x in enumerate(series)][1:] for series in (R, p))
    orders = range(len(turn))
    if frame == "body":
        w = [sm.vee(convolve(sm.tmatmul, R, turn, k)) for k in orders]
        return [Twist(w[k], convolve(sm.tmatvec, R, slide, k)) for k in orders]
    w = [sm.vee(convolve(sm.matmult, turn, R, k)) for k in orders]
    return [Twist(w[k], slide[k] + convolve(sm.cross, p, w, k)) for k in orders]
