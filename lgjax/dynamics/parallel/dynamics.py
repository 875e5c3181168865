"""Inverse and forward dynamics of long trees in a number of rounds that grows with the logarithm of their depth.

The recursions take two or three steps per body of the longest branch, one after the other, and on a GPU the number of
steps is their cost. Here all bodies work in every one of some log2(depth) rounds (`pointer_doubling.py`).

Motions are products along paths: pose, twist and acceleration of a frame relative to another are an element of the
second tangent group of SE(3). The wrenches on what a body carries are sums, in the frames of the bodies. Nothing is
expressed in a frame far away, so float32 does not suffer from the length of a chain more than in the recursions. For
the accelerations see `elimination.py`.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.dynamics.derivative_rules import by_inverse_dynamics
from lgjax.dynamics.parallel.elimination import Lever, joint_accelerations
from lgjax.dynamics.parallel.pointer_doubling import accumulate, inward, paths
from lgjax.dynamics.spatial import BodyData, Twist, applied_wrenches, body_data, gyroscopic_wrench, place_joint
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.joints.kind import JointKind, subspace_coefficient
from lgjax.multibody.model import Model
from lgjax.multibody.specialized import SpecializedModel
from lgjax.multibody.tree import Tree
from lgjax.numerics import small_matrix as sm


@checked_arguments()
def inverse_dynamics(
    model: Model, q: Configuration, v: jax.Array, vdot: jax.Array, wrenches: jax.Array | None = None
) -> jax.Array:
    """`lgjax.inverse_dynamics` in logarithmic depth: the generalized forces tau (nv,), M vdot + `lgjax.bias_forces`.

    v, vdot: (nv,), body-frame velocities. wrenches: (nbodies, 6), [n, f] on each body, body frame, at the body origin.
    Armature and joint damping are included. N m and N. Equal to `lgjax.inverse_dynamics` to round-off.

    Any tree of any joints. A chain of n bodies takes 2 log2(n) rounds in place of 2 n steps, with some 200 scalar
    operations per body in each where the recursion has 250 per body in all; a tree takes the rounds of its heavy paths
    one after the other. It is made for few long systems on a GPU, where it has not been measured yet; on a CPU it takes
    about as long as the recursion for one system, and wherever a batch fills the machine `lgjax.inverse_dynamics` is
    faster. Reverse mode stores every round.
    Source: none; [ali2026] section 2 (sums over paths and subtrees), [hillis1986] (rounds).
    """
    return _forces(model, q, v, vdot, _applied(model, wrenches))


@checked_arguments()
def forward_dynamics(
    model: Model, q: Configuration, v: jax.Array, tau: jax.Array, wrenches: jax.Array | None = None
) -> jax.Array:
    """`lgjax.forward_dynamics` in logarithmic depth: the accelerations vdot (nv,), M^-1 (tau - `lgjax.bias_forces`).

    v: (nv,) body-frame velocities. tau: (nv,) N m and N. wrenches: (nbodies, 6), [n, f] on each body, body frame, at
    the body origin. Armature and joint damping are included. Equal to `lgjax.forward_dynamics` to round-off, which in
    float32 grows alike with the length (chains of 1000 bodies: 0.5e-5 to 2.5e-5 here, 0.6e-5 to 1.1e-5 there).

    Any tree of any joints. A chain of n bodies takes 3 log2(n) rounds in place of 3 n steps, with some 5300 scalar
    operations per body and three rounds where the recursion has 500 per body in all: for 1000 bodies, a hundred times
    the work. It is made for few long systems on a GPU, where it has not been measured yet; on a CPU
    `lgjax.forward_dynamics` is three to six times faster for one system, and it is the faster one wherever a batch
    fills the machine. Derivatives are those of parallel inverse dynamics, solved with the mass matrix, as for the
    recursion.
    Source: none; Gauss's principle, with [sarkka2023] for the combination of spans (`elimination.py`).
    """
    return _accelerations(model, q, v, tau, _applied(model, wrenches))


def _applied(model: Model, wrenches):
    return None if wrenches is None else sm.join(*applied_wrenches(model.links, wrenches))


# ---- all joints side by side
class Joints(NamedTuple):
    """All joints, (nbodies, ...); those with fewer velocities than the width are padded by zeros.

    pose: in the parent's joint frame. S: (6, width). speed: (width,). own: S speed. bend: dS/dt speed.
    """

    pose: Pose
    S: jax.Array
    speed: jax.Array
    own: jax.Array
    bend: jax.Array


def _slots(tree: Tree) -> np.ndarray:
    """(nbodies, width) index into the flat velocity, nv where a joint has fewer."""
    width = max(kind.nv for kind in tree.kinds)
    width = width if width <= 3 else 6  # the sizes that `elimination.py` solves
    column, start = np.arange(width), np.asarray(tree.v_start)[:, None]
    return np.where(column < np.asarray([kind.nv for kind in tree.kinds])[:, None], start + column, tree.nv)


def _padded(tree: Tree, x, padding: float = 0.0) -> jax.Array:
    """A flat vector (nv,) by body, (nbodies, width)."""
    return jnp.append(x, jnp.asarray(padding, x.dtype))[_slots(tree)]


def _flat(tree: Tree, x) -> jax.Array:
    """The inverse of `_padded`."""
    return x.reshape(-1)[np.flatnonzero(_slots(tree) < tree.nv)]


def _parameters(model: Model) -> tuple[Model, BodyData]:
    model = model.general if isinstance(model, SpecializedModel) else model
    return model, body_data(model)


def _joints(model: Model, data: BodyData, q: Configuration, v) -> Joints:
    tree, speed = model.tree, _padded(model.tree, v)
    parts, order = [], []
    for kind in dict.fromkeys(tree.kinds):
        bodies = np.asarray([body for body, other in enumerate(tree.kinds) if other is kind])
        start = np.asarray(tree.q_start)[bodies]
        if kind.coordinates == "joints":
            coordinates = q.joints[start[:, None] + np.arange(kind.nq)]
        else:
            member = q.free_poses if kind.coordinates == "free_poses" else q.ball_rotations
            coordinates = jax.tree.map(lambda x, i=start: x[i], member)
        carried = jax.tree.map(lambda x, i=bodies: x[i], data)
        parts.append(jax.vmap(partial(_joint, kind))(carried, coordinates, speed[bodies]))
        order.append(bodies)
    back = np.argsort(np.concatenate(order))
    return jax.tree.map(lambda *rows: jnp.concatenate(rows)[back], *parts)


def _joint(kind: JointKind, body: BodyData, q, speed) -> Joints:
    pose, columns = place_joint(kind, body, q)
    S, moving = jnp.concatenate(columns), speed[: kind.nv]
    bend = jnp.zeros_like(S[:, 0])
    if kind.varying:
        bend = sm.matvec(jnp.concatenate(subspace_coefficient(kind, body.screw, q, [moving])), moving)
    padded = jnp.pad(S, ((0, 0), (0, len(speed) - kind.nv)))
    return Joints(pose, padded, speed, sm.matvec(S, moving), bend)


# ---- motions along paths
class RelativeMotion(NamedTuple):
    """Motion of one frame relative to another: its pose there, its twist and the rate of that in the moving frame."""

    pose: Pose
    twist: jax.Array
    rate: jax.Array


def _moved(near: RelativeMotion, far: RelativeMotion) -> RelativeMotion:
    """The motion `near`, relative to a frame that itself moves by `far`."""
    back = se3.inverse(near.pose)
    carried = se3.Ad(back, far.twist)
    rate = se3.Ad(back, far.rate) + se3.ad(carried, near.twist) + near.rate
    return RelativeMotion(se3.compose(far.pose, near.pose), carried + near.twist, rate)


def _fall(model: Model, joints: Joints) -> jax.Array:
    """Gravity as an upward acceleration of the world: (nbodies, 6), of the bodies that hang on it, zero for others."""
    roots = (np.asarray(model.tree.parents) < 0)[:, None]
    upward = jnp.where(jnp.asarray(roots), -model.gravity, 0)
    return sm.join(jnp.zeros_like(upward), sm.tmatvec(joints.pose.rotation, upward))


# ---- wrenches
def _momentum(inertia: Inertia, twist) -> jax.Array:
    return sm.join(*inertia.momentum(*se3.split(twist)))


def _gyroscopic(data: BodyData, twist) -> jax.Array:
    return sm.join(*gyroscopic_wrench(data, Twist(*se3.split(twist))))


def _carried(tree: Tree, poses: Pose, wrench) -> jax.Array:
    """The sum of the wrenches on each body and on all that it carries, in its frame."""

    def element(bodies, received):
        pose = jax.tree.map(lambda x: x[bodies], poses)
        return pose, se3.coAd(se3.inverse(pose), wrench[bodies] + received)

    def join(near, far):
        return se3.compose(near[0], far[0]), near[1] + se3.coAd(se3.inverse(near[0]), far[1])

    return wrench + inward(join, element, lambda passed: passed[1], wrench[0], paths(tree))


# ---- inverse dynamics
def _forces(model: Model, q: Configuration, v, vdot, applied) -> jax.Array:
    model, data = _parameters(model)
    tree, joints = model.tree, _joints(model, data, q, v)
    x = _padded(tree, vdot)
    rate = sm.matvec(joints.S, x) + joints.bend + _fall(model, joints)
    motion = accumulate(_moved, RelativeMotion(joints.pose, joints.own, rate), paths(tree).ancestors)
    wrench = _momentum(data.inertia, motion.rate) + _gyroscopic(data, motion.twist)
    total = _carried(tree, joints.pose, wrench if applied is None else wrench - applied)
    return _flat(tree, sm.tmatvec(joints.S, total)) + model.armature * vdot + model.damping * v


# ---- forward dynamics
def _spans(model: Model, q: Configuration, v, tau, applied) -> jax.Array:
    model, data = _parameters(model)
    tree, joints = model.tree, _joints(model, data, q, v)
    motion = RelativeMotion(joints.pose, joints.own, jnp.zeros_like(joints.own))
    twist = accumulate(_moved, motion, paths(tree).ancestors).twist
    bias = se3.ad(twist, joints.own) + joints.bend + _fall(model, joints)
    load = _gyroscopic(data, twist)
    return _least(model, data, joints, bias, load if applied is None else load - applied, tau - model.damping * v)


def _least(model: Model, data: BodyData, joints: Joints, bias, load, forces) -> jax.Array:
    """The accelerations (nv,) at bias accelerations and loads (nbodies, 6) of the bodies and forces (nv,)."""
    tree, eye = model.tree, jnp.eye(6, dtype=forces.dtype)
    alone = lambda x: jax.tree.map(lambda y: y[:, None], x)
    X = sm.transpose(se3.Ad(alone(se3.inverse(joints.pose)), eye))
    lever = Lever(joints.S, X, bias, _padded(tree, forces), _padded(tree, model.armature, 1.0))
    return _flat(tree, joint_accelerations(tree, lever, _momentum(alone(data.inertia), eye), _thin(data), load))


def _thin(data: BodyData) -> jax.Array:
    """(nbodies,) bodies without mass, or that some rotation about the center of mass does not move."""
    size = jnp.finfo(data.central.dtype).eps * sm.trace(data.central) ** 3
    return (data.inertia.mass <= 0) | (sm.det3(data.central) <= 10 * size)


def _solve_mass_matrix(model: Model, q: Configuration, f) -> jax.Array:
    """M^-1 f, its own transpose in reverse mode."""
    model, data = _parameters(model)
    still = model.replace(gravity=jnp.zeros_like(model.gravity), damping=jnp.zeros_like(model.damping))

    def solve(_, f):
        joints = _joints(model, data, q, jnp.zeros_like(f))
        rest = jnp.zeros_like(joints.own)
        return _least(model, data, joints, rest, rest, f)

    return lax.custom_linear_solve(lambda x: _forces(still, q, 0 * x, x, None), f, solve, symmetric=True)


_accelerations = by_inverse_dynamics(_spans, _forces, _solve_mass_matrix)
