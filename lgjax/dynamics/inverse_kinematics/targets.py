"""Targets of a configuration as rows: errors of frames and residuals of loops, with their Jacobian.

The error of a frame is the rotation vector log(R^T R_target) in radians and R^T (p_target - p) in meters, both in the
axes of the frame. Its derivatives along a body twist [w, v] of the frame are -dexpinv(log, w) and -v - w x (...).
Source: [celledoni2021] eq. (8) for dexpinv.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.jacobians import carrier
from lgjax.dynamics.kinematics import World, ancestor_mask, world_kinematics
from lgjax.dynamics.loops import Loop, loop_constraint
from lgjax.dynamics.loops.loop import WORLD
from lgjax.groups import se3, so3
from lgjax.groups.se3 import Pose
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.messages import shown

Array = jax.Array


class Target(NamedTuple):
    """Where a frame is wanted: rotation (3, 3), translation (3,), or None for what is free; weights () of both."""

    rotation: Any
    translation: Any
    turn_weight: Any
    place_weight: Any


class Rows(NamedTuple):
    """Weighted errors (m,), their Jacobian (m, n), and the largest of the lengths of the errors without weights ()."""

    error: Array
    jacobian: Array
    size: Array


def checked_targets(model: Model, targets: Any, weights: Any) -> dict[str, Target]:
    """The targets by frame, checked, with their weights."""
    if not isinstance(targets, Mapping):
        raise TypeError(f"targets is {checks.described(targets)}, expected {{name of a frame: Pose or position}}")
    weights = {} if weights is None else dict(checks.of_kind("weights", weights, Mapping))
    if unknown := sorted(set(weights) - set(targets), key=str):
        raise ValueError(f"weights of {unknown[0]!r}, which has no target; targets: {', '.join(map(str, targets))}")
    found = {}
    for frame, value in targets.items():
        body, offset = carrier(model, frame)
        if body < 0:
            raise ValueError(f"frame {shown(frame)} is fixed to the world: no joint moves it")
        rotation, translation = _parts(f"target of {frame!r}", value, model.dtype)
        turn, place = jnp.ones((), model.dtype), 1 / _reach(model, body, offset)
        if frame in weights:
            given = checks.array(f"weights of {frame!r}", weights[frame], (2,), model.dtype)
            turn, place = checks.positive(f"weights of {frame!r}", given)
        found[frame] = Target(rotation, translation, turn, place)
    return found


def _parts(name: str, value: Any, dtype: Any) -> tuple[Any, Any]:
    """Rotation and translation of a target, None for what it leaves free."""
    if isinstance(value, tuple) and len(value) == 2:
        rotation, translation = value
    else:
        shape = np.shape(value)
        if shape not in ((3,), (3, 3), (4, 4)):
            what = f"an array of shape {shape}" if hasattr(value, "shape") else checks.described(value)
            more = ": use jax.vmap over a batch" if len(shape) > 1 and shape[-1] in (3, 4) else ""
            raise ValueError(
                f"{name} is {what}, expected a Pose, a 4x4 matrix, a position (3,) or a rotation (3, 3){more}"
            )
        matrix = jnp.asarray(value)
        rotation = None if shape == (3,) else matrix[:3, :3] if shape == (4, 4) else matrix
        translation = matrix if shape == (3,) else matrix[:3, 3] if shape == (4, 4) else None
    if rotation is not None:
        rotation = checks.rotation(
            f"rotation in the {name}", checks.array(f"rotation in the {name}", rotation, (3, 3), dtype)
        )
    if translation is not None:
        translation = checks.array(f"position in the {name}", translation, (3,), dtype)
    return rotation, translation


def _reach(model: Model, body: int, offset: Pose) -> Array:
    """Half the length of the chain that carries a frame, meters; 1 for one of no length."""
    path = np.asarray(model.tree.ancestors[body])
    steps = jnp.concatenate([jnp.asarray(model.placements.translation)[path[1:]], offset.translation[None]])
    length = 0.5 * jnp.sum(jnp.linalg.norm(jax.lax.stop_gradient(steps), axis=-1))
    return jnp.where(length > 0, length, 1)


def moving(
    model: Model, frames: Sequence[str], all_bodies: bool, loops: Sequence[Loop], joints: Sequence[str] | None
) -> np.ndarray:
    """Indices, static, of the velocities that frames, or all bodies, and loops depend on, or of the named joints."""
    tree = model.tree
    if joints is not None:
        names = checks.names("joints", joints)
        if unknown := [name for name in names if name not in tree.joint_names]:
            raise ValueError(f"no joint {unknown[0]!r} in {model.name!r}; joints: {', '.join(tree.joint_names)}")
        bodies = {tree.joint_names.index(name) for name in names}
    else:
        ends = list(range(tree.nbodies)) if all_bodies else [carrier(model, frame)[0] for frame in frames]
        for loop in loops:
            if callable(loop.kind):
                ends = list(range(tree.nbodies))
            else:
                named = [body for body in (loop.body_a, loop.body_b) if body is not None and body != WORLD]
                ends += [carrier(model, body)[0] for body in named]
        bodies = {ancestor for body in ends if body >= 0 for ancestor in tree.ancestors[body]}
    chosen = [n for n, body in enumerate(tree.v_body) if body in bodies]
    if not chosen:
        raise ValueError("no joint may move")
    return np.asarray(chosen)


def rows(
    model: Model,
    targets: Mapping[str, Target],
    center: Array | None,
    loops: Sequence[Loop],
    active: np.ndarray,
    q: Configuration,
) -> Rows:
    """Errors of the targets at q, that of the center of mass, then the residuals of the loops.

    The columns are those of the velocities `active`.
    """
    world = world_kinematics(model, q)
    errors, jacobians, sizes = [], [], []

    def add(error: Array, jacobian: Array, weight: Any) -> None:
        errors.append(weight * error)
        jacobians.append(weight * jacobian)
        sizes.append(jnp.sum(error * error))

    for frame, target in targets.items():
        body, offset = carrier(model, frame)
        rotation, translation = world.poses
        pose = se3.compose(Pose(rotation[body], translation[body]), offset)
        moves = ancestor_mask(model.tree)[body][np.asarray(model.tree.v_body)][active]
        twists = jnp.where(moves[:, None], se3.Ad(se3.inverse(pose), world.S[active]), 0)
        turns, slips = twists[:, :3], twists[:, 3:]
        if target.rotation is not None:
            error = so3.log(sm.tmatmul(pose.rotation, target.rotation))
            add(error, -so3.dexpinv(error, turns).T, target.turn_weight)
        if target.translation is not None:
            error = sm.tmatvec(pose.rotation, target.translation - world.origin - pose.translation)
            add(error, -(slips + sm.cross(turns, error)).T, target.place_weight)
    if center is not None:
        place, slope = _center_of_mass(model, world)
        add(center - place, -slope[:, active], 1.0)
    if loops:
        found = loop_constraint(model, loops, q)
        add(found.residual, found.jacobian[:, active], 1.0)
    size = jnp.sqrt(jnp.max(jnp.stack(sizes)))
    return Rows(jnp.concatenate(errors), jnp.concatenate(jacobians), size)


def _center_of_mass(model: Model, world: World) -> tuple[Array, Array]:
    """Center of mass (3,) in the world, and its Jacobian (3, nv): each joint moves that of the bodies beyond it."""
    R, p = world.poses
    mass = model.inertias.mass
    moment = sm.matvec(R, model.inertias.moment) + mass[:, None] * p
    beyond = ancestor_mask(model.tree).T[np.asarray(model.tree.v_body)]  # (nv, nbodies)
    moved = jnp.sum(jnp.where(beyond[:, :, None], moment, 0), 1)
    carried = jnp.sum(jnp.where(beyond, mass, 0), 1)
    total = jnp.sum(mass)
    slope = sm.cross(world.S[:, :3], moved) + carried[:, None] * world.S[:, 3:]
    return jnp.sum(moment, 0) / total + world.origin, slope.T / total
