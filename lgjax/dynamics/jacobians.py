"""Jacobians of bodies and of frames fixed to them, and their derivatives in time."""

from __future__ import annotations

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import World, ancestor_mask, world_kinematics
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.messages import listed, shown

View = Literal["body", "world", "spatial"]


@checked_arguments()
def jacobian(model: Model, q: Configuration, body: str | int, frame: View = "body") -> jax.Array:
    """Jacobian of a body or of a frame fixed to one: J v is its velocity [w, v].

    Args:
        model: the mechanism.
        q: its configuration.
        body: name of a body or of a frame (`tree.frames`), or index of a body.
        frame: "body", at its origin in its own axes; "world", at its origin in world axes; "spatial", at the world
            origin in world axes.

    Returns:
        J (6, nv).

    Raises:
        ValueError: for an unknown name.

    Example:
        >>> arm = lgjax.models.arm()
        >>> J = lgjax.jacobian(arm, lgjax.neutral(arm), "tool", frame="world")
        >>> J.shape
        (6, 7)

    Source: [kim2012] section 2.1.
    """
    place, moves, world = _located(model, q, None, body, frame)
    return jnp.where(moves[:, None], _moved(place, world, frame, world.S), 0).T


@checked_arguments()
def jacobian_derivative(
    model: Model, q: Configuration, v: jax.Array, body: str | int, frame: View = "body"
) -> jax.Array:
    """Time derivative of `jacobian` along the motion v: the velocity changes at dJ/dt v + J vdot.

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.
        body, frame: as in `jacobian`.

    Returns:
        dJ/dt (6, nv).

    Example:
        >>> arm = lgjax.models.arm()
        >>> lgjax.jacobian_derivative(arm, lgjax.neutral(arm), jnp.zeros(7), "tool").shape
        (6, 7)

    Source: [featherstone2008] section 2.10.
    """
    place, moves, world = _located(model, q, v, body, frame)
    V = world.twists[np.asarray(model.tree.v_body)]
    rate = se3.ad(V, world.S)
    if world.bend is not None:
        rate = rate + world.bend[0]
    own = jnp.sum(jnp.where(moves[:, None], world.S * v[:, None], 0), 0)
    if frame == "body":
        rate = rate - se3.ad(own, world.S)
    columns = _moved(place, world, frame, rate)
    if frame == "world":  # its origin moves
        velocity = own[3:] + sm.cross(own[:3], place.translation)
        slip = sm.cross(world.S[:, :3], velocity)
        columns = columns + jnp.concatenate([jnp.zeros_like(slip), slip], 1)
    return jnp.where(moves[:, None], columns, 0).T


def _located(model: Model, q: Configuration, v, body: str | int, frame: View) -> tuple[Pose, np.ndarray, World]:
    """Pose in the axes of the kinematics, the velocities that move it, and the kinematics."""
    if frame not in get_args(View):
        raise ValueError(f"frame is one of {', '.join(get_args(View))}, not {shown(frame)}")
    world = world_kinematics(model, q, v, rates=() if v is None else [v])
    index, offset = carrier(model, body)
    if index < 0:
        pose = Pose(offset.rotation, offset.translation - world.origin)
        return pose, np.zeros(model.nv, bool), world
    pose = se3.compose(jax.tree.map(lambda x: x[index], world.poses), offset)
    return pose, ancestor_mask(model.tree)[index][np.asarray(model.tree.v_body)], world


def carrier(model: Model, body: str | int) -> tuple[int, Pose]:
    """The body that carries a body or frame, -1 for the world, and the pose in its joint frame."""
    frames = [name for name, _ in model.tree.frames]
    if isinstance(body, str) and body not in model.body_names:
        if body not in frames:
            raise ValueError(f"no frame {body!r} in {model.name!r}; frames: {listed([*model.body_names, *frames])}")
        index = frames.index(body)
        return model.tree.frames[index][1], jax.tree.map(lambda x: x[index], model.frames)
    index = model.tree.body(body)
    return index, jax.tree.map(lambda x: x[index], model.links)


def _moved(place: Pose, world: World, frame: View, columns):
    """Twists (nv, 6) about the point of the kinematics, as seen from the frame."""
    if frame == "body":
        return se3.Ad(se3.inverse(place), columns)
    point = place.translation if frame == "world" else -world.origin
    return se3.Ad(Pose(sm.identity(3, columns.dtype), -point), columns)
