"""Time derivatives of inverse, forward and hybrid dynamics, to any order.

Every quantity is a truncated Taylor series in time, x(t) = sum_k x[k] t^k, kept as a tuple of coefficients. In the
body's joint frame inertia and joint motions are constant, so momentum and projection are linear, and only rotations and
gyroscopic products are Cauchy products. Inverse dynamics takes one sweep out and one in for all orders. Where forces
are given, coefficient k of the accelerations takes one sweep in and one out, with articulated inertias that do not
depend on k. Source: [ali2026] Algs. 1-4 and Lemma 2, in body frames.

Gravity is an acceleration of the world: the acceleration of a body below is dV/dt less the gravity that it feels, so
that dV/dt is needed, and gravity followed, only where a derivative is wanted.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.articulated import (
    NO_INERTIA,
    add_inertia,
    inertia_columns,
    shift,
    through_joint,
)
from lgjax.dynamics.kinematics import compose
from lgjax.dynamics.recursion import (
    BodyData,
    Force,
    Motion,
    add,
    body_data,
    convolve,
    joint_motion,
    project,
    to_child,
    to_parent,
)
from lgjax.groups import small_matrix as sm
from lgjax.groups.se3 import Pose
from lgjax.multibody.joints import JointKind
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration
from lgjax.multibody.traversal import Execution, Walk

ZERO: Any = np.zeros(3)  # a constant that folds
REST = Motion(ZERO, ZERO)
NO_FORCE = Force(ZERO, ZERO)


class History(NamedTuple):
    """The coefficients of one body's motion that are known so far, one tuple entry per order.

    S: joint motions, constant. placed: pose in the parent's joint frame, order 0. joint: pose after the joint in the
    frame before it. speed: (nv,) joint velocity. twist, momentum: of the body in its joint frame. parent: the parent's
    acceleration in the frame before the joint, one order behind. gravity: in the joint frame; empty where no
    derivative is wanted.
    """

    S: tuple[jax.Array, jax.Array]
    placed: Pose
    joint: tuple[Pose, ...]
    speed: tuple[jax.Array, ...]
    twist: tuple[Motion, ...]
    momentum: tuple[Force, ...]
    parent: tuple[Motion, ...]
    gravity: tuple[jax.Array, ...]


# ---- one body, one order
def _start(kind: JointKind, body: BodyData, q, speed, parent_twist: Motion, parent_gravity) -> History:
    """The coefficients of order 0."""
    joint = Pose(*kind.transform(q, body.screw))
    placed = compose(body.placement, joint)
    S = kind.subspace(q, body.screw)
    twist = add(to_child(*placed, parent_twist), joint_motion(S, speed))
    gravity = () if parent_gravity is None else (sm.tmatvec(placed.rotation, parent_gravity),)
    return History(S, placed, (joint,), (speed,), (twist,), (Force(*body.inertia.momentum(*twist)),), (), gravity)


def _bias(history: History, k: int) -> Motion:
    """Coefficient k of the acceleration, apart from those of the parent's and the joint's acceleration.

    The acceleration is Ad^-1 (the parent's) + ad_V (S qd) + S qdd.
    """
    w, v = zip(*history.twist, strict=True)
    rate_w, rate_v = zip(*(joint_motion(history.S, speed) for speed in history.speed), strict=True)
    angular = convolve(sm.cross, w, rate_w, k)
    linear = convolve(sm.cross, v, rate_w, k) + convolve(sm.cross, w, rate_v, k)
    if k:
        R, p = zip(*history.joint, strict=True)
        spin = [motion.w for motion in history.parent]
        at_joint = [motion.v + convolve(sm.cross, spin, p, m) for m, motion in enumerate(history.parent)]
        lever = convolve(lambda displacement, w: sm.cross(w, displacement), p, (*spin, None), k, first=1)
        angular = angular + convolve(sm.tmatvec, R, (*spin, None), k, first=1)
        linear = linear + convolve(sm.tmatvec, R, (*at_joint, None), k, first=1) + sm.tmatvec(R[0], lever)
    return Motion(angular, linear)


def _gyroscopic(history: History, k: int) -> Force:
    """Coefficient k of -ad_V^T (I V)."""
    w, v = zip(*history.twist, strict=True)
    h, l = zip(*history.momentum, strict=True)
    return Force(convolve(sm.cross, w, h, k) + convolve(sm.cross, v, l, k), convolve(sm.cross, w, l, k))


def _advance(body: BodyData, history: History, x, parent: Motion, own: Motion, last: bool) -> History:
    """Coefficients k + 1 of the motion from coefficients k of the accelerations of joint, parent and body.

    The pose follows dR/dt = R hat(w), dp/dt = R v with the joint's twist, gravity dg/dt = -w x g with the body's.
    """
    k = len(history.twist)
    R = [pose.rotation for pose in history.joint]
    rate_w, rate_v = zip(*(joint_motion(history.S, speed) for speed in history.speed), strict=True)
    spin = convolve(sm.matmul, R, [sm.hat(w) for w in rate_w], k - 1) / k
    slide = convolve(sm.matvec, R, rate_v, k - 1) / k
    twist = Motion(own.w / k, (own.v + history.gravity[k - 1]) / k)
    gravity = history.gravity
    if not last:
        gravity = (*gravity, convolve(sm.cross, gravity, [motion.w for motion in history.twist], k - 1) / k)
    return history._replace(
        joint=(*history.joint, Pose(spin, slide)),
        speed=(*history.speed, x / k),
        twist=(*history.twist, twist),
        momentum=(*history.momentum, Force(*body.inertia.momentum(*twist))),
        parent=(*history.parent, to_child(*body.placement, parent)),
        gravity=gravity,
    )


def _to_parent(body: BodyData, history: History, forces: Sequence[Force], k: int) -> Force:
    """Coefficient k of the wrench on a body as a wrench on its parent."""
    now = to_parent(*history.placed, forces[k])
    if k == 0:
        return now
    R, p = zip(*history.joint, strict=True)
    n, f = zip(*forces, strict=True)
    turned = [convolve(sm.matvec, R, f, m) for m in range(k)]
    late = convolve(sm.matvec, R, f, k, first=1)
    moment = convolve(sm.matvec, R, n, k, first=1) + convolve(sm.cross, p, (*turned, None), k, first=1)
    return add(now, to_parent(*body.placement, Force(moment + sm.cross(p[0], late), late)))


def _own_wrench(body: BodyData, history: History, acceleration: Motion, applied, k: int) -> Force:
    force = add(Force(*body.inertia.momentum(*acceleration)), _gyroscopic(history, k))
    return force if applied is None else Force(force.n - applied[k].n, force.f - applied[k].f)


def _posture(history: History) -> History:
    """What the way in needs of a history whose motion is complete; what is left out is not stored."""
    joint = history.joint if len(history.speed) > 1 else ()
    return history._replace(joint=joint, twist=(), momentum=(), parent=(), gravity=())


# ---- inverse dynamics: one sweep out, one in
def inverse_series(model: Model, q: Configuration, v, x, applied, execution: Execution) -> list[jax.Array]:
    """Coefficients of the forces from v (nv,) and the coefficients x of the accelerations, a sequence of (nv,).

    applied: coefficients of the wrenches on the bodies, a sequence of Force (nbodies, 3) in joint frames, or None.
    """
    orders = range(len(x))
    walk = Walk(model.tree, model.dtype, execution)

    def outward(kind, parent, body, q, speed, x, applied):
        parent_twist, parent_accelerations, parent_gravity = parent
        history = _start(kind, body, q, speed, parent_twist, parent_gravity)
        accelerations, wrenches = [], []
        for k in orders:
            own = add(to_child(*history.placed, parent_accelerations[k]), joint_motion(history.S, x[k]))
            own = add(own, _bias(history, k))
            accelerations.append(own)
            wrenches.append(_own_wrench(body, history, own, applied, k))
            if k < orders[-1]:
                history = _advance(body, history, x[k], parent_accelerations[k], own, k + 1 == orders[-1])
        gravity = history.gravity[0] if history.gravity else None
        return (history.twist[0], tuple(accelerations), gravity), (_posture(history), tuple(wrenches))

    def inward(kind, children, body, motion):
        history, wrenches = motion
        total = [add(child, own) for child, own in zip(children, wrenches, strict=True)]
        up = tuple(_to_parent(body, history, total, k) for k in orders)
        return up, tuple(project(history.S, wrench) for wrench in total)

    bodies = walk.bodies(body_data(model))
    motion = walk.outward(
        outward,
        (REST, *_falling_world(model, len(x) - 1)),
        bodies,
        walk.configurations(q),
        walk.velocities(v),
        _series(walk.velocities, x),
        _applied(walk, applied),
    )
    forces = walk.inward(inward, (NO_FORCE,) * len(x), bodies, motion)
    speeds = [v, *(a / (k + 1) for k, a in enumerate(x))]
    return [
        walk.to_velocities([f[k] for f in forces]) + model.armature * x[k] + model.damping * speeds[k] for k in orders
    ]


def _falling_world(model: Model, order: int):
    """The world's accelerations by order, and its gravity if a derivative is wanted."""
    return (Motion(ZERO, -model.gravity), *(REST,) * order), model.gravity if order else None


def _series(lift, x: Sequence) -> list:
    """Per-group tuples over the order from a sequence of arrays."""
    return [tuple(group) for group in zip(*(lift(a) for a in x), strict=True)]


def _applied(walk: Walk, applied) -> list:
    return [None] * len(walk.groups) if applied is None else _series(walk.bodies, applied)


# ---- hybrid and forward dynamics: a sweep in and a sweep out per order
class Passage(NamedTuple):
    """An articulated inertia before and behind the joint, U, and the factor of D; None where done with."""

    inertia: Any
    behind: Any
    U: Any
    factor: Any


class Load(NamedTuple):
    """What one order of one body adds: bias acceleration and the wrench of a body that is not accelerated."""

    bias: Motion
    wrench: Any


def hybrid_series(
    model: Model, q: Configuration, v, inputs: Callable, order: int, given, applied, execution: Execution
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Coefficients of the accelerations and of the forces, sequences of order + 1 arrays (nv,).

    inputs(k, speeds) -> (x, tau), each (nv,): coefficients k of the prescribed accelerations and of the given forces,
    which may depend on the coefficients of the velocity found so far, speeds[0..k]. given: (nv,) NumPy bool, where the
    acceleration is prescribed and the force unknown; None: nowhere, and x is not read. applied: as in inverse_series.
    """
    orders = range(order + 1)
    sweeps = _Sweeps(given is not None, orders[-1])
    walk = Walk(model.tree, model.dtype, execution)
    none = [None] * len(walk.groups)
    bodies, applied = walk.bodies(body_data(model)), _applied(walk, applied)
    masks = none if given is None else walk.velocities(jnp.asarray(given, model.dtype))
    axles = _zip(walk.velocities(model.armature), walk.velocities(model.damping), masks)
    accelerations, gravity = _falling_world(model, order)
    history, load = _unzip(
        walk.outward(sweeps.first, (REST, gravity), bodies, walk.configurations(q), walk.velocities(v), applied)
    )
    transmitted: list = [()] * len(walk.groups)
    passages: list = none
    found, forces, speeds = [], [], [v]
    for k in orders:
        x, tau = inputs(k, speeds)
        joints = _zip(axles, walk.velocities(tau), none if given is None else walk.velocities(x))
        zero = (NO_INERTIA if k == 0 else None, NO_FORCE)
        passages, load, u = _unzip(
            walk.inward(sweeps.inward, zero, bodies, history, load, joints, transmitted, passages)
        )
        history, load, wrenches, solved, through = _unzip(
            walk.outward(sweeps.outward, accelerations[k], bodies, history, load, joints, passages, u, applied)
        )
        transmitted = [(*before, wrench) for before, wrench in zip(transmitted, wrenches, strict=True)]
        found.append(walk.to_velocities(solved))
        forces.append(tau)
        if given is not None:
            needed = walk.to_velocities(through) + model.armature * found[k] + model.damping * speeds[k]
            forces[k] = jnp.where(given, needed, tau)
        speeds.append(found[k] / (k + 1))
    return found, forces


def _zip(*columns: list) -> list[tuple]:
    return list(zip(*columns, strict=True))


def _unzip(rows: list[tuple]) -> list[list]:
    return [list(column) for column in zip(*rows, strict=True)]


class _Sweeps:
    """The steps of the sweeps; `masked` if some accelerations are given, `last` the highest order."""

    def __init__(self, masked: bool, last: int):
        self.masked, self.last = masked, last

    def first(self, kind, parent, body, q, speed, applied):
        """The motion at order 0 and what it loads."""
        history = _start(kind, body, q, speed, *parent)
        gravity = history.gravity[0] if history.gravity else None
        return (history.twist[0], gravity), self._loaded(history, applied)

    def _loaded(self, history: History, applied) -> tuple[History, Load]:
        k = len(history.speed) - 1
        wrench = _gyroscopic(history, k)
        if applied is not None:
            wrench = Force(wrench.n - applied[k].n, wrench.f - applied[k].f)
        return history if k < self.last else _posture(history), Load(_bias(history, k), wrench)

    def inward(self, kind, children, body, history, load, joint, transmitted, passage):
        """Wrenches that pass the joint when it carries its force and nothing else accelerates it."""
        (armature, damping, given), tau, prescribed = joint
        k = len(history.speed) - 1
        S = history.S
        bias, wrench = load.bias, add(load.wrench, children[1])
        if self.masked:
            bias = add(bias, joint_motion(S, given * prescribed))
        if passage is None:
            passage = self._passage(body, S, children[0], armature, given)
        u = tau - damping * history.speed[k] - project(S, wrench)
        if self.masked:
            u = (1 - given) * u
        pushed = sm.ldl_solve(passage.factor, u)
        moved = passage.behind.wrench(*bias)
        loaded = Force(
            wrench.n + moved.n + sm.matvec(passage.U[0], pushed), wrench.f + moved.f + sm.matvec(passage.U[1], pushed)
        )
        up = _to_parent(body, history, (*transmitted, loaded), k)
        inertia = shift(passage.behind, *history.placed) if k == 0 else None
        if k == self.last:
            passage = passage._replace(behind=None)
            if not self.masked:  # the wrench at the joint is not asked for
                passage, wrench = passage._replace(inertia=None), None
        return (inertia, up), (passage, Load(bias, wrench), u)

    def _passage(self, body, S, children, armature, given) -> Passage:
        inertia = add_inertia(children, body.inertia)
        U = inertia_columns(inertia, S)
        D = sm.tmatmul(S[0], U[0]) + sm.tmatmul(S[1], U[1]) + sm.diagonal(armature)
        if self.masked:
            free = 1 - given
            U = (U[0] * free, U[1] * free)
            D = sm.outer(free, free) * D + sm.diagonal(given)
        factor = sm.ldl(D)
        return Passage(inertia, through_joint(inertia, U, factor), U, factor)

    def outward(self, kind, parent, body, history: History, load: Load, joint, passage: Passage, u, applied):
        """Accelerations of joint and body, and the motion and load of the next order."""
        (_, _, given), _, prescribed = joint
        more = len(history.speed) <= self.last
        own = add(to_child(*history.placed, parent), load.bias)
        x = sm.ldl_solve(passage.factor, u - project(passage.U, Force(own.w, own.v)))
        own = add(own, joint_motion(history.S, x))
        if self.masked:
            x = x + given * prescribed
        wrench: Any = add(passage.inertia.wrench(*own), load.wrench) if self.masked or more else None
        through = project(history.S, wrench) if self.masked else None
        if not more:
            return own, (None, None, wrench, x, through)
        history = _advance(body, history, x, parent, own, len(history.speed) == self.last)
        return own, (*self._loaded(history, applied), wrench, x, through)
