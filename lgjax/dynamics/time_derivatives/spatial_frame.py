"""Series of the motion of a body in an inertial frame: the paper's spatial representation.

Nothing changes frame on its way through the tree, so twists and wrenches are sums along paths and over subtrees; what
moves are joint screws S and inertias M, dS/dt = ad_V S and dM/dt = -M ad_V - ad_V^T M; where a joint's motions B(q) in
its own body vary, S = Ad_T B and dS/dt has Ad_T dB/dt in addition. An inertia is kept as its ten numbers, mass m, first
moment h and second moment Sigma, J = tr(Sigma) 1 - Sigma:

    dh/dt = w x h + m v,    dSigma/dt = X + X^T,  X = hat(w) Sigma + v h^T.

The frame is the one that coincides with the base, or with the world under a fixed base, at the instant of evaluation,
so that the precision does not depend on how far a robot has traveled. Source: [ali2026] Algs. 1-4, eqs. (57)-(70).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.dynamics.spatial import (
    NO_MOTION,
    WORLD_FRAME,
    BodyData,
    Twist,
    Wrench,
    add,
    convolve,
    joint_twist,
    place_joint,
    project,
)
from lgjax.dynamics.time_derivatives.formulation import Formulation
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.joints.kind import JointKind, subspace_coefficient
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm


class PseudoInertia(NamedTuple):
    """A coefficient of an inertia: second moment (3, 3) and first moment (3,); the mass is constant."""

    second: jax.Array
    first: jax.Array

    def wrench(self, w, v) -> Wrench:
        """The part of the momentum that moves with the body: without m v."""
        turned = sm.trace(self.second)[..., None] * w - sm.matvec(self.second, w)
        return Wrench(turned + sm.cross(self.first, v), -sm.cross(self.first, w))


class SpatialFrameHistory(NamedTuple):
    """The coefficients of one body's motion that are known so far, one tuple entry per order.

    S: joint motions, as columns, and inertia: both one order ahead. q: coordinates of a joint whose motions bend. bend:
    coefficients of dB/dt. speed: (nv,) joint velocity. twist: of the body.
    pose: of the joint frame. mass: constant. gravity: constant, in the axes of the frame.
    """

    S: tuple[tuple[jax.Array, jax.Array], ...]
    inertia: tuple[PseudoInertia, ...]
    q: Any
    bend: tuple[tuple[jax.Array, jax.Array], ...]
    speed: tuple[jax.Array, ...]
    twist: tuple[Twist, ...]
    pose: tuple[Pose, ...]
    mass: jax.Array
    gravity: jax.Array


def _root(model: Model, order: int):
    """The world's pose, twist and gravity, and its accelerations by order."""
    return (WORLD_FRAME, NO_MOTION, model.gravity), (NO_MOTION,) * (order + 1)


def _start(kind: JointKind, body: BodyData, q, speed, carry):
    parent, parent_twist, gravity = carry
    placed, (angular, linear) = place_joint(kind, body, q)
    pose = se3.compose(parent, placed)
    if kind.coordinates == "free_poses":  # it hangs on the world, and is itself the frame
        pose, gravity = _origin(placed), sm.tmatvec(placed.rotation, gravity)
    R, p = pose
    angular = sm.matmul(R, angular)
    S = angular, sm.matmul(R, linear) + sm.matmul(sm.hat(p), angular)
    twist = add(parent_twist, joint_twist(S, speed))
    inertia = _placed(body.inertia, R, p)
    bending = q if kind.varying else ()
    history = SpatialFrameHistory(
        (S,), (inertia,), bending, (), (speed,), (twist,), (pose,), body.inertia.mass, gravity
    )
    return _ahead(kind, body, history), (pose, twist, gravity)


def _origin(like: Pose) -> Pose:
    dtype = like.translation.dtype
    return Pose(sm.identity(3, dtype), jnp.zeros(3, dtype))


def _times_identity(x) -> jax.Array:
    return sm.diagonal(sm.stack(x, x, x))


def _placed(inertia: Inertia, R, p) -> PseudoInertia:
    """An inertia about the origin of a joint frame, as seen from the frame."""
    own = _times_identity(0.5 * sm.trace(inertia.rotational)) - inertia.rotational
    turned, moment = sm.matmult(sm.matmul(R, own), R), sm.matvec(R, inertia.moment)
    mixed = sm.outer(moment, p)
    second = sm.symmetric(turned + mixed + mixed.T + inertia.mass * sm.outer(p, p))
    return PseudoInertia(second, moment + inertia.mass * p)


def _ahead(kind: JointKind, body: BodyData, history: SpatialFrameHistory) -> SpatialFrameHistory:
    """The next coefficients of joint motions and inertia."""
    k = len(history.S)
    w, v = zip(*history.twist, strict=True)
    S_w, S_v = zip(*history.S, strict=True)
    second, first = zip(*history.inertia, strict=True)
    spins, slides = [sm.hat(x) for x in w], [sm.hat(x) for x in v]
    angular = convolve(sm.matmul, spins, S_w, k - 1) / k
    linear = (convolve(sm.matmul, slides, S_w, k - 1) + convolve(sm.matmul, spins, S_v, k - 1)) / k
    if kind.varying:
        history = _bent(kind, body, history)
        bend_w, bend_v = _in_frame(history)
        angular, linear = angular + bend_w / k, linear + bend_v / k
    X = (convolve(sm.matmul, spins, second, k - 1) + convolve(sm.outer, v, first, k - 1)) / k
    moment = (convolve(sm.cross, w, first, k - 1) + history.mass * v[k - 1]) / k
    return history._replace(
        S=(*history.S, (angular, linear)), inertia=(*history.inertia, PseudoInertia(sm.symmetric(X + X.T), moment))
    )


def _bent(kind: JointKind, body: BodyData, history: SpatialFrameHistory) -> SpatialFrameHistory:
    """With the next coefficient of dB/dt."""
    k = len(history.speed)
    w, v = subspace_coefficient(kind, body.screw, history.q, history.speed)
    return history._replace(bend=(*history.bend, (k * w, k * v)))


def _in_frame(history: SpatialFrameHistory):
    """The last coefficient of Ad_T dB/dt."""
    k = len(history.bend) - 1
    R, p = zip(*history.pose, strict=True)
    bend_w, bend_v = zip(*history.bend, strict=True)
    angular = [convolve(sm.matmul, R, bend_w, m) for m in range(k + 1)]
    return angular[k], convolve(sm.matmul, R, bend_v, k) + convolve(sm.matmul, [sm.hat(x) for x in p], angular, k)


def _bias(history: SpatialFrameHistory) -> Twist:
    """The acceleration is the parent's + dS/dt qd + S qdd."""
    k = len(history.speed)
    moved = convolve(joint_twist, history.S, (*history.speed, None), k, first=1)
    return Twist(k * moved.w, k * moved.v)


def _load(body: BodyData, history: SpatialFrameHistory, applied) -> Wrench:
    """dM/dt V less gravity and what is applied."""
    k = len(history.speed)
    changed = convolve(lambda inertia, twist: inertia.wrench(*twist), history.inertia, (*history.twist, None), k, 1)
    n = k * changed.n - sm.cross(history.inertia[k - 1].first, history.gravity)
    f = k * changed.f
    if k == 1:
        f = f - history.mass * history.gravity
    if applied is None:
        return Wrench(n, f)
    R, p = zip(*history.pose, strict=True)
    moments, forces = zip(*applied[:k], strict=True)
    turned = [convolve(sm.matvec, R, forces, m) for m in range(k)]
    n = n - convolve(sm.matvec, R, moments, k - 1) - convolve(sm.cross, p, turned, k - 1)
    return Wrench(n, f - turned[k - 1])


def _advance(
    kind: JointKind, body: BodyData, history: SpatialFrameHistory, x, parent: Twist, own: Twist, last: bool
) -> SpatialFrameHistory:
    """The pose follows dR/dt = hat(w) R, dp/dt = w x p + v."""
    k = len(history.twist)
    w, v = zip(*history.twist, strict=True)
    R, p = zip(*history.pose, strict=True)
    turned = convolve(sm.matmul, [sm.hat(a) for a in w], R, k - 1) / k
    moved = (convolve(sm.cross, w, p, k - 1) + v[k - 1]) / k
    return _ahead(
        kind,
        body,
        history._replace(
            speed=(*history.speed, x / k),
            twist=(*history.twist, Twist(own.w / k, own.v / k)),
            pose=(*history.pose, Pose(turned, moved)),
        ),
    )


def _posture(history: SpatialFrameHistory) -> SpatialFrameHistory:
    first = history.inertia[:1] if len(history.speed) == 1 else ()  # an articulated inertia starts with it
    return history._replace(S=history.S[:-1], inertia=first, q=(), bend=(), twist=(), pose=())


def _project(history: SpatialFrameHistory, wrenches):
    return convolve(project, history.S, wrenches, len(wrenches) - 1)


def _inertia(body: BodyData, history: SpatialFrameHistory) -> Inertia:
    second, first = history.inertia[0]
    return Inertia(history.mass, first, _times_identity(sm.trace(second)) - second)


SPATIAL_FRAME = Formulation(
    root=_root,
    start=_start,
    bias=_bias,
    load=_load,
    advance=_advance,
    posture=_posture,
    subspace=lambda history: history.S[0],
    inertia=_inertia,
    to_child=lambda body, history, parent: parent,
    to_parent=lambda body, history, wrenches: wrenches[-1],
    shift=lambda inertia, history: inertia,
    project=_project,
)
