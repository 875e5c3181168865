"""Series of the motion of a body in its joint frame.

There the inertia is constant, and so are the joint motions of most kinds, so momentum and projection are linear, and
only rotations and gyroscopic products are Cauchy products; of the latter the center of mass c, moving at u = v + w x c,
has the fewest:

    f = m (du/dt + w x u),    n = J_c dw/dt + w x J_c w + c x f.

Source: [ali2026] Algs. 1-4, in body frames.

Gravity is an acceleration of the world: the acceleration of a body below is dV/dt less the gravity that it feels, so
that dV/dt is needed, and gravity followed, only where a derivative is wanted.
"""

from typing import Any, NamedTuple

import jax

from lgjax.dynamics import articulated
from lgjax.dynamics.spatial import (
    NO_MOTION,
    ZERO3,
    BodyData,
    Twist,
    Wrench,
    convolve,
    joint_twist,
    place_joint,
    project,
    to_child,
    to_parent,
    twist_of_child,
)
from lgjax.dynamics.time_derivatives.formulation import Formulation
from lgjax.groups.se3 import Pose
from lgjax.multibody.joints.kind import JointKind, subspace_coefficient
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm


class BodyFrameHistory(NamedTuple):
    """The coefficients of one body's motion that are known so far, one tuple entry per order.

    S: joint motions, order 0 alone where they are constant, else one order ahead. q: coordinates of a joint whose S
    varies. placed: pose in the parent's joint frame, order 0. joint: pose after the joint in the frame before it.
    speed: (nv,) joint velocity. twist: of the body in its joint frame. spin: J_c w and u. parent: the parent's
    acceleration in the frame before the joint, one order behind. gravity: in the joint frame; empty where no derivative
    is wanted.
    """

    S: tuple[tuple[jax.Array, jax.Array], ...]
    q: Any
    placed: Pose
    joint: tuple[Pose, ...]
    speed: tuple[jax.Array, ...]
    twist: tuple[Twist, ...]
    spin: tuple[Twist, ...]
    parent: tuple[Twist, ...]
    gravity: tuple[jax.Array, ...]


def _root(model: Model, order: int):
    """The world's twist and gravity, the latter if a derivative is wanted, and its accelerations by order."""
    carry = NO_MOTION, model.gravity if order else None
    return carry, (Twist(ZERO3, -model.gravity), *(NO_MOTION,) * order)


def _start(kind: JointKind, body: BodyData, q, speed, carry):
    parent_twist, parent_gravity = carry
    placed = place_joint(kind, body, q)
    twist = twist_of_child(placed, parent_twist, speed)
    gravity = None if parent_gravity is None else sm.tmatvec(placed.pose.rotation, parent_gravity)
    joint = Pose(*kind.transform(q, body.screw))
    spin = _spin(body, twist)
    past = () if gravity is None else (gravity,)
    history = BodyFrameHistory(
        (placed.S,), q if kind.varying else (), placed.pose, (joint,), (speed,), (twist,), (spin,), (), past
    )
    return _ahead(kind, body, history), (twist, gravity)


def _ahead(kind: JointKind, body: BodyData, history: BodyFrameHistory) -> BodyFrameHistory:
    """The next coefficient of the joint motions."""
    if not kind.varying:
        return history
    return history._replace(S=(*history.S, subspace_coefficient(kind, body.screw, history.q, history.speed)))


def _joint_twists(history: BodyFrameHistory) -> tuple[list, list]:
    """S qd, as series of (angular, linear)."""
    S, speed = history.S, history.speed
    if len(S) == 1:
        motions = [joint_twist(S[0], x) for x in speed]
    else:
        motions = [convolve(joint_twist, S, speed, k) for k in range(len(speed))]
    return [motion.w for motion in motions], [motion.v for motion in motions]


def _spin(body: BodyData, twist: Twist) -> Twist:
    return Twist(sm.matvec(body.central, twist.w), twist.v + sm.cross(twist.w, body.com))


def _bias(history: BodyFrameHistory) -> Twist:
    """The acceleration is Ad^-1 (the parent's) + ad_V (S qd) + dS/dt qd + S qdd."""
    k = len(history.speed) - 1
    w, v = zip(*history.twist, strict=True)
    rate_w, rate_v = _joint_twists(history)
    angular = convolve(sm.cross, w, rate_w, k)
    linear = convolve(sm.cross, v, rate_w, k) + convolve(sm.cross, w, rate_v, k)
    if k:
        R, p = zip(*history.joint, strict=True)
        spin = [motion.w for motion in history.parent]
        at_joint = [motion.v + convolve(sm.cross, spin, p, m) for m, motion in enumerate(history.parent)]
        lever = convolve(lambda displacement, w: sm.cross(w, displacement), p, (*spin, None), k, first=1)
        angular = angular + convolve(sm.tmatvec, R, (*spin, None), k, first=1)
        linear = linear + convolve(sm.tmatvec, R, (*at_joint, None), k, first=1) + sm.tmatvec(R[0], lever)
    if len(history.S) > 1:
        bent = convolve(joint_twist, history.S, (*history.speed, None), k + 1, first=1)
        angular, linear = angular + (k + 1) * bent.w, linear + (k + 1) * bent.v
    return Twist(angular, linear)


def _load(body: BodyData, history: BodyFrameHistory, applied) -> Wrench:
    """Gyroscopic wrench less what is applied."""
    k = len(history.speed) - 1
    w = [motion.w for motion in history.twist]
    h, u = zip(*history.spin, strict=True)
    f = body.inertia.mass * convolve(sm.cross, w, u, k)
    wrench = Wrench(convolve(sm.cross, w, h, k) + sm.cross(body.com, f), f)
    return wrench if applied is None else Wrench(wrench.n - applied[k].n, wrench.f - applied[k].f)


def _advance(
    kind: JointKind, body: BodyData, history: BodyFrameHistory, x, parent: Twist, own: Twist, last: bool
) -> BodyFrameHistory:
    """The pose follows dR/dt = R hat(w), dp/dt = R v with the joint's twist, gravity dg/dt = -w x g with the body's."""
    k = len(history.twist)
    R = [pose.rotation for pose in history.joint]
    rate_w, rate_v = _joint_twists(history)
    spin = convolve(sm.matmul, R, [sm.hat(w) for w in rate_w], k - 1) / k
    slide = convolve(sm.matvec, R, rate_v, k - 1) / k
    twist = Twist(own.w / k, (own.v + history.gravity[k - 1]) / k)
    gravity = history.gravity
    if not last:
        gravity = (*gravity, convolve(sm.cross, gravity, [motion.w for motion in history.twist], k - 1) / k)
    history = history._replace(
        joint=(*history.joint, Pose(spin, slide)),
        speed=(*history.speed, x / k),
        twist=(*history.twist, twist),
        spin=(*history.spin, _spin(body, twist)),
        parent=(*history.parent, to_child(*body.placement, parent)),
        gravity=gravity,
    )
    return _ahead(kind, body, history)


def _to_child(body: BodyData, history: BodyFrameHistory, parent: Twist) -> Twist:
    if not history.gravity:
        return to_child(*history.placed, parent)
    return to_child(*history.joint[0], to_child(*body.placement, parent))  # the series has a use for the inner one


def _posture(history: BodyFrameHistory) -> BodyFrameHistory:
    joint = history.joint if len(history.speed) > 1 else ()
    S = history.S[: len(history.speed)]
    return history._replace(S=S, q=(), joint=joint, twist=(), spin=(), parent=(), gravity=())


def _to_parent(body: BodyData, history: BodyFrameHistory, wrenches) -> Wrench:
    k = len(wrenches) - 1
    if k == 0:
        return to_parent(*history.placed, wrenches[k])
    R, p = zip(*history.joint, strict=True)
    n, f = zip(*wrenches, strict=True)
    turned = [convolve(sm.matvec, R, f, m) for m in range(k + 1)]
    moment = convolve(sm.matvec, R, n, k) + convolve(sm.cross, p, turned, k)
    return to_parent(*body.placement, Wrench(moment, turned[k]))


def _project(history: BodyFrameHistory, wrenches):
    if len(history.S) == 1:
        return project(history.S[0], wrenches[-1])
    return convolve(project, history.S, wrenches, len(wrenches) - 1)


BODY_FRAME = Formulation(
    root=_root,
    start=_start,
    bias=_bias,
    load=_load,
    advance=_advance,
    posture=_posture,
    subspace=lambda history: history.S[0],
    inertia=lambda body, history: body.inertia,
    to_child=_to_child,
    to_parent=_to_parent,
    shift=lambda inertia, history: articulated.shift(inertia, *history.placed),
    project=_project,
)
