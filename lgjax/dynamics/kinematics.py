"""Kinematics: poses and velocities of the bodies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.spatial import EYE3, NO_MOTION, WORLD_FRAME, BodyData, add, body_data, joint_twist, place_joint
from lgjax.dynamics.traversal.traversal import TreeTraversal
from lgjax.execution import batched
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.joints.kind import subspace_coefficient
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.messages import listed


@checked_arguments()
@jax.jit  # one trace, however often a program evaluates it
@batched
def forward_kinematics(model: Model, q: Configuration) -> Pose:
    """World poses of the bodies, T_world_body with a leading body axis (nbodies, ...), meters.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> lgjax.forward_kinematics(arm, lgjax.neutral(arm)).translation.round(2)
        Array([[ 0.        ,  0.        ,  0.        ],
               [ 0.        ,  0.        , -0.29999998]], dtype=float32)

    Source: [featherstone2008] chapter 4.
    """
    walk = TreeTraversal(model.tree, model.dtype)
    bodies = walk.bodies((body_data(model), model.links))
    return walk.to_bodies(walk.outward(_outward_pose, WORLD_FRAME, bodies, walk.configurations(q)))


def _outward_pose(kind, parent, data, q):
    body, link = data
    here = se3.compose(parent, place_joint(kind, body, q).pose)
    return here, se3.compose(here, link)


@checked_arguments()
def frame_pose(model: Model, q: Configuration, name: str) -> Pose:
    """World pose T_world_frame of a named frame, meters: a body, or a link on fixed joints.

    Args:
        model: the mechanism.
        q: its configuration.
        name: name of a body, or of a frame in `model.tree.frames`.

    Raises:
        ValueError: for an unknown name.

    Example:
        >>> arm = lgjax.models.arm()
        >>> lgjax.frame_pose(arm, lgjax.neutral(arm), "tool").translation.round(3)
        Array([0.  , 0.  , 1.34], dtype=float32)

    Source: as `forward_kinematics`.
    """
    names = [frame for frame, _ in model.tree.frames]
    poses = forward_kinematics(model, q)
    if name in model.body_names:
        index = model.body_names.index(name)
        return jax.tree.map(lambda x: x[index], poses)
    if name not in names:
        raise ValueError(f"no frame {name!r} in {model.name!r}; frames: {listed([*model.body_names, *names])}")
    index = names.index(name)
    frame = jax.tree.map(lambda x: x[index], model.frames)
    carrier = model.tree.frames[index][1]
    if carrier < 0:
        return frame
    body, link = (jax.tree.map(lambda x: x[carrier], p) for p in (poses, model.links))
    return se3.compose(body, se3.compose(se3.inverse(link), frame))


class World(NamedTuple):
    """Kinematics of one instant in world axes about one origin: the columns of every Jacobian.

    poses: joint frames. S: (nv, 6) joint motions as spatial twists. twists: (nbodies, 6) spatial velocities, zero if
    no velocity was given. origin: (3,) the point in the world about which they are taken. bend: (orders, nv, 6), what
    the dependence of joint motions on coordinates adds: derivatives of S with the bodies at rest. subspace: (nv, 6)
    joint motions in their joint frames, which no rotation has rounded.
    """

    poses: Pose
    S: jax.Array
    twists: jax.Array
    origin: jax.Array
    bend: jax.Array | None = None
    subspace: Any = None


@jax.jit
@batched
def world_kinematics(model: Model, q: Configuration, v=None, rates: Sequence = ()) -> World:
    """Kinematics in world axes about the point `origin_of` the model, which keeps them accurate far from the origin.

    rates: velocities, accelerations, ... (nv,) along which `bend` is wanted; it stays None where no joint's motions
    depend on coordinates.
    """
    rates = list(rates) if model.tree.varying else []
    origin = origin_of(model, q)
    root = Pose(EYE3, -origin)
    walk = TreeTraversal(model.tree, model.dtype)
    out = walk.outward(
        _outward_world,
        (root, NO_MOTION),
        walk.bodies(body_data(model)),
        walk.configurations(q),
        walk.velocities(0 * model.armature if v is None else v),
        list(zip(*(walk.velocities(x) for x in rates), strict=True)) or [()] * len(walk.runs),
    )
    columns, own = (walk.to_velocities([values[k] for values in out]) for k in (1, 2))
    poses, twists = walk.to_bodies([(pose, twist) for pose, _, _, twist, _ in out])
    bend = [walk.to_velocities([bends[n] for *_, bends in out]) for n in range(len(rates))]
    return World(poses, columns, twists, origin, jnp.stack(bend) if bend else None, own)


def origin_of(model: Model, q: Configuration):
    """The point (3,) of the world about which twists are taken: the first free body, or the mount of the first body."""
    return q.free_poses.translation[0] if model.tree.n_free else jnp.asarray(model.placements.translation[0])


def _outward_world(kind, parent, body: BodyData, q, qd, rates):
    """Pose of a body, its joint's motions (nv, 6) and its velocity, all in world axes about the origin, and bends."""
    parent_pose, parent_twist = parent
    pose, S = place_joint(kind, body, q)
    here = se3.compose(parent_pose, pose)
    w, v = _in_world(here, S)
    twist = add(parent_twist, joint_twist((w, v), qd))
    bends = tuple(jnp.concatenate(_bend(kind, body, q, rates[: n + 1], here, w)).T for n in range(len(rates)))
    return (here, twist), (here, jnp.concatenate([w, v]).T, jnp.concatenate(S).T, jnp.concatenate([*twist]), bends)


def _in_world(pose: Pose, S):
    """Joint motions as spatial twists."""
    w = sm.matmul(pose.rotation, S[0])
    return w, sm.matmul(pose.rotation, S[1]) + sm.matmul(sm.hat(pose.translation), w)


def _bend(kind, body: BodyData, q, rates, pose: Pose, like):
    """The derivative of order len(rates) of a joint's motions along its coordinates, as spatial twists."""
    if not kind.varying:
        return jnp.zeros_like(like), jnp.zeros_like(like)
    speeds = [x / float(math.factorial(k)) for k, x in enumerate(rates)]
    S = subspace_coefficient(kind, body.screw, q, speeds)
    return _in_world(pose, jax.tree.map(lambda x: x * float(math.factorial(len(rates))), S))


def ancestor_mask(tree: Tree) -> np.ndarray:
    """(nbodies, nbodies) bool, [i, j] true iff body j is body i or one of its ancestors."""
    mask = np.zeros((tree.nbodies, tree.nbodies), bool)
    for body, path in enumerate(tree.ancestors):
        mask[body, list(path)] = True
    return mask


@checked_arguments()
def body_twists(model: Model, q: Configuration, v: jax.Array) -> jax.Array:
    """Velocities of the bodies, [w, v] in each body frame, at its origin.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.

    Returns:
        (nbodies, 6), rad/s and m/s.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> lgjax.body_twists(arm, lgjax.neutral(arm), jnp.array([1.0, 0.5]))[:, :3]  # angular
        Array([[0. , 1. , 0. ],
               [0.5, 1. , 0. ]], dtype=float32)

    Source: [featherstone2008] section 5.3.
    """
    return batched(_body_twists)(model, q, v)


def _body_twists(model: Model, q: Configuration, v) -> jax.Array:
    world = world_kinematics(model, q, v)
    at_body = se3.compose(world.poses, model.links)
    return se3.Ad(se3.inverse(at_body), world.twists)
