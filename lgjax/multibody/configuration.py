"""Configuration of a mechanism and the group operations on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.execution import batched
from lgjax.groups import HomogeneousSpace, se3, so3
from lgjax.groups.arguments import cached
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_arguments, checked_model, hint
from lgjax.multibody.model import Configuration, Mechanism, Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import checks
from lgjax.numerics.messages import listed
from lgjax.numerics.renamed import arguments
from lgjax.numerics.small_angle import norm


def neutral(model: Model | Mechanism) -> Configuration:
    """Configuration with every joint at zero and free bodies at the world origin.

    Example:
        >>> robot = lgjax.models.quadruped()
        >>> lgjax.neutral(robot).joints.shape, lgjax.neutral(robot).free_poses.translation
        ((12,), Array([[0., 0., 0.]], dtype=float32))
    """
    model = checked_model(model)
    tree, dtype = model.tree, model.dtype
    eye = jnp.eye(3, dtype=dtype)
    frees = Pose(jnp.broadcast_to(eye, (tree.n_free, 3, 3)), jnp.zeros((tree.n_free, 3), dtype))
    return Configuration(frees, jnp.zeros(tree.n_joint, dtype), jnp.broadcast_to(eye, (tree.n_ball, 3, 3)))


def random_configuration(key: jax.Array, model: Model | Mechanism) -> Configuration:
    """Random configuration: uniform attitudes, uniform joints within limits and +-pi, base positions within +-1 m.

    Where the limits leave nothing within +-pi, they count alone, as far as pi beyond the nearer of them.

    Example:
        >>> arm = lgjax.models.arm()
        >>> q = lgjax.random_configuration(jax.random.key(0), arm)
        >>> bool(jnp.all((arm.lower <= q.joints) & (q.joints <= arm.upper)))
        True
    """
    model = checked_model(model, leaves=True)
    tree, dtype = model.tree, model.dtype
    keys = jax.random.split(checks.random_key("key", key), 4)
    turn = jnp.asarray(np.pi, dtype)
    # Limits that lie beyond half a turn count alone, one of them with half a turn beside it if the other is infinite.
    lower = jnp.where(
        model.upper < -turn, jnp.maximum(model.lower, model.upper - turn), jnp.maximum(model.lower, -turn)
    )
    upper = jnp.where(model.lower > turn, jnp.minimum(model.upper, model.lower + turn), jnp.minimum(model.upper, turn))
    joints = lower + (upper - lower) * jax.random.uniform(keys[0], (tree.n_joint,), dtype)
    position = jax.random.uniform(keys[1], (tree.n_free, 3), dtype, -1, 1)
    frees = Pose(_random_rotation(keys[2], tree.n_free, dtype), position)
    return Configuration(frees, joints, _random_rotation(keys[3], tree.n_ball, dtype))


def _random_rotation(key: jax.Array, n: int, dtype) -> jax.Array:
    """Rotations (n, 3, 3), uniform on SO(3): orthonormalized Gaussian columns."""
    a, b = jnp.moveaxis(jax.random.normal(key, (n, 2, 3), dtype), 1, 0)
    x = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
    y = b - x * jnp.sum(x * b, -1, keepdims=True)
    y = y / jnp.linalg.norm(y, axis=-1, keepdims=True)
    return jnp.stack([x, y, jnp.cross(x, y)], -1)


@arguments(balls="ball_rotations")
def configuration(
    model: Model | Mechanism,
    base: Pose | tuple[ArrayLike, Any] | ArrayLike | None = None,
    joints: ArrayLike | Sequence[float] | dict[str, Any] | None = None,
    ball_rotations: ArrayLike | None = None,
) -> Configuration:
    """Make a configuration from its parts, checked; parts not given are neutral.

    Args:
        model: the mechanism.
        base: world pose of the floating base, as a Pose, a pair (rotation, position) or a 4x4 matrix, m (leading axis
            n_free if there are several).
        joints: (n,) in the order of the scalar coordinates, or {joint name: value} for some of them, rad and m.
        ball_rotations: (n_ball, 3, 3).

    Raises:
        ValueError: naming the part, for a wrong shape, a non-finite value, an unknown joint or a matrix that is not a
            rotation.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> lgjax.configuration(arm, joints={arm.joint_names[1]: 0.5}).joints
        Array([0. , 0.5], dtype=float32)
    """
    model = checked_model(model)
    q, dtype = neutral(model), model.dtype
    if base is not None:
        rotation, translation = base if isinstance(base, tuple) and len(base) == 2 else _split_homogeneous(base)
        q = q._replace(
            free_poses=Pose(
                _checked("base rotation", rotation, q.free_poses.rotation, dtype, rotation_matrix=True),
                _checked("base position", translation, q.free_poses.translation, dtype),
            )
        )
    if isinstance(joints, dict):
        q = q._replace(joints=_named_joints(model, joints, q.joints))
    elif joints is not None:
        q = q._replace(joints=_checked("joints", joints, q.joints, dtype, reshape=False))
    if ball_rotations is not None:
        q = q._replace(
            ball_rotations=_checked("ball_rotations", ball_rotations, q.ball_rotations, dtype, rotation_matrix=True)
        )
    return q


def _split_homogeneous(base):
    base = base if isinstance(base, jax.Array) else np.asarray(base)
    if base.shape[-2:] != (4, 4):
        raise ValueError(
            f"base is a Pose, a pair (rotation, position) or a 4x4 matrix, not an array of shape {base.shape}"
        )
    return base[..., :3, :3], base[..., :3, 3]


def _named_joints(model: Model, values: dict, joints):
    start = {
        name: (tree_start, kind.nq)
        for name, tree_start, kind in zip(model.tree.joint_names, model.tree.q_start, model.tree.kinds, strict=True)
        if kind.coordinates == "joints"
    }
    for name, value in values.items():
        if name not in start:
            raise ValueError(f"no scalar joint {name!r} in {model.name!r}; joints: {listed(start)}")
        first, size = start[name]
        value = _checked(f"joint {name!r}", value, joints[first : first + size], model.dtype)
        joints = joints.at[first : first + size].set(value)
    return joints


def _checked(name: str, value, like, dtype, rotation_matrix: bool = False, reshape: bool = True):
    """`value` as an array shaped like `like`, checked for finiteness and orthonormality unless traced."""
    array = checks.numbers(name, value) if checks.known(value) else checks.floats(name, value, like.shape, dtype)
    if array.shape != like.shape and not (reshape and array.shape == like.shape[1:] and like.shape[0] == 1):
        why = hint(name, array.shape, like.shape)
        raise ValueError(f"{name} has shape {array.shape}, this model takes {like.shape}{why}")
    if rotation_matrix:
        checks.rotation(name, array, 1e-4)
    return jnp.asarray(array, dtype).reshape(like.shape)


def split_velocity(tree: Tree, v) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Tangent vector v (nv,) as those of free joints (n_free, 6), scalar joints (n,) and spherical ones (n_ball, 3)."""
    index: dict[str, list] = {"free_poses": [], "joints": [], "ball_rotations": []}
    for kind, start in zip(tree.kinds, tree.v_start, strict=True):
        index[kind.coordinates].extend(range(start, start + kind.nv))

    def take(kind, *shape):
        return _entries(v, index[kind]).reshape(shape)

    return take("free_poses", -1, 6), take("joints", -1), take("ball_rotations", -1, 3)


def join_velocity(tree: Tree, frees, joints, balls) -> jax.Array:
    """The inverse of split_velocity: v (nv,)."""
    order, offset = [], {"free_poses": 0, "joints": frees.size, "ball_rotations": frees.size + joints.size}
    for kind in tree.kinds:
        order.extend(range(offset[kind.coordinates], offset[kind.coordinates] + kind.nv))
        offset[kind.coordinates] += kind.nv
    return _entries(jnp.concatenate([frees.reshape(-1), joints, balls.reshape(-1)]), order)


def _entries(x: jax.Array, index: list[int]) -> jax.Array:
    """x[index], as a slice where the numbers follow each other."""
    first = index[0] if index else 0
    following = index == list(range(first, first + len(index)))
    return x[first : first + len(index)] if following else x[np.asarray(index, int)]


@checked_arguments()
def retract(model: Model, q: Configuration, dv: jax.Array) -> Configuration:
    """Configuration q exp(dv), exactly on the manifold.

    Args:
        model: the mechanism.
        q: its configuration.
        dv: (nv,) displacement, body frame, rad and m.

    Returns:
        a `Configuration`.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> lgjax.retract(arm, lgjax.neutral(arm), jnp.array([0.5, 0.25])).joints
        Array([0.5 , 0.25], dtype=float32)
    """
    return displaced(model.tree, q, dv)


@checked_arguments()
def difference(model: Model, q0: Configuration, q1: Configuration) -> jax.Array:
    """Displacement of least length with retract(model, q0, dv) = q1: log(q0^-1 q1).

    Args:
        model: the mechanism.
        q0, q1: two of its configurations.

    Returns:
        dv (nv,), body frame of q0, rad and m.

    Example:
        >>> arm = lgjax.models.chain(2)
        >>> q = lgjax.configuration(arm, joints=[0.5, 0.0])
        >>> lgjax.difference(arm, lgjax.neutral(arm), q)
        Array([0.5, 0. ], dtype=float32)
    """
    return displacement(model.tree, q0, q1)


def displaced(tree: Tree, q: Configuration, dv) -> Configuration:
    """`retract` without checks, for use inside of recursions."""
    frees, joints, balls = split_velocity(tree, dv)
    poses = _of_any(lambda xi, y: se3.compose(y, se3.exp(xi)), frees, q.free_poses)
    balls = _of_any(lambda xi, y: so3.compose(y, so3.exp(xi)), balls, q.ball_rotations)
    return Configuration(poses, q.joints + joints, balls)


def pose_tangent(pose: Pose, twist) -> Pose:
    """d/ds pose exp(s twist) at s = 0, a tangent of the arrays of the pose; twist (..., 6)."""
    angular, linear = se3.split(twist)
    return Pose(so3.compose(pose.rotation, so3.hat(angular)), so3.act(pose.rotation, linear))


def tangent(tree: Tree, q: Configuration, v) -> Configuration:
    """d/ds q exp(s v) at s = 0, as tangents of the arrays of q, computed without an exponential.

    It is the same function of q at every s, so its derivatives along itself are the higher ones along q exp(s v).
    """
    frees, joints, balls = split_velocity(tree, v)
    poses = _of_any(lambda xi, y: pose_tangent(y, xi), frees, q.free_poses)
    return Configuration(poses, joints, _of_any(lambda w, R: so3.compose(R, so3.hat(w)), balls, q.ball_rotations))


def _of_any(function: Callable, *rows: Any) -> Any:
    """function(*rows), of all free or ball joints; the last of the rows if there are none, which saves its trace."""
    return function(*rows) if jax.tree.leaves(rows)[0].size else rows[-1]


def displacement(tree: Tree, q0: Configuration, q1: Configuration) -> jax.Array:
    """`difference` without checks."""
    joints = q1.joints - q0.joints
    if all(kind.coordinates == "joints" for kind in tree.kinds):
        return joints
    frees = se3.log(se3.compose(se3.inverse(q0.free_poses), q1.free_poses))
    balls = so3.log(so3.compose(so3.inverse(q0.ball_rotations), q1.ball_rotations))
    return join_velocity(tree, frees, joints, balls)


@cache
def _turning(tree: Tree) -> np.ndarray:
    """Mask (n,) of the scalar coordinates that are angles, because they turn their body; the others are lengths."""
    turns = [np.zeros(0, bool)]
    with jax.ensure_compile_time_eval():
        for kind in tree.kinds:
            if kind.coordinates == "joints":
                S_w, _ = kind.subspace(jnp.zeros(kind.nq), jnp.ones(2))
                turns.append(np.any(np.asarray(S_w) != 0, axis=0))
    return np.concatenate(turns)


@cached(tree=Tree)
def mechanical_space(tree: Tree) -> HomogeneousSpace:
    """Space of the states (q, v) of a mechanism, SE(3)^n_free x R^n x SO(3)^n_ball x R^nv.

    The group acts by right translation, so a field returns (v, vdot): body velocities move the configuration.
    The maps keep the batch in the last axis, where poses are arithmetic on contiguous arrays, and reverse mode
    recomputes them from their arguments.

    Error control judges separately: each rotation and each angle of a joint, as unit vectors; each free body's position
    and each length of a joint, measured from the start; each free body's angular and its linear velocity; the rates of
    all angles and of all ball joints together, and those of all lengths.
    """

    @batched
    def move(xi, y):
        q = displaced(tree, y[0], xi[0])
        # Millions of products in float32 would leave the group.
        poses, balls = _of_any(se3.normalize, q.free_poses), _of_any(so3.normalize, q.ball_rotations)
        return Configuration(poses, q.joints, balls), y[1] + xi[1]

    @batched
    def dexpinv(sigma, xi):
        frees, _, balls = split_velocity(tree, sigma[0])
        xi_frees, xi_joints, xi_balls = split_velocity(tree, xi[0])
        xi_frees, xi_balls = _of_any(se3.dexpinv, -frees, xi_frees), _of_any(so3.dexpinv, -balls, xi_balls)
        return join_velocity(tree, xi_frees, xi_joints, xi_balls), xi[1]

    def bracket(x, y):
        (a_free, a, a_ball), (b_free, _, b_ball) = split_velocity(tree, x[0]), split_velocity(tree, y[0])
        return join_velocity(tree, se3.ad(b_free, a_free), 0 * a, so3.ad(b_ball, a_ball)), 0 * x[1]

    def distance(y0, y1):
        gap = jnp.concatenate([displacement(tree, y0[0], y1[0]), y1[1] - y0[1]])
        return norm(gap)

    def parts(y, start=None):
        q, v = y
        frees, rates, balls = split_velocity(tree, v)
        turning = _turning(tree)
        lengths = q.joints if start is None else q.joints - start[0].joints
        angles = q.joints[turning]
        return (
            *se3.parts(q.free_poses, None if start is None else start[0].free_poses),
            jnp.stack([jnp.cos(angles), jnp.sin(angles)], -1),
            lengths[~turning][:, None],
            *so3.parts(q.ball_rotations),
            frees.reshape(-1, 3),
            jnp.concatenate([rates[turning], balls.reshape(-1)]),
            rates[~turning],
        )

    name = f"states of {tree.name}"
    return HomogeneousSpace(name, (tree.nv, tree.nv), move, dexpinv, bracket, distance, parts=parts)
