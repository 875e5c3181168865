"""Kinematics that all sensors of a record share: one pass over the tree, and places fixed to its bodies.

A row of every array belongs to a body, in body order; the last one, which the index -1 takes, is the world. Gravity is
an acceleration -g of the world, so accelerations are what an accelerometer feels. Read first: `dynamics/inverse.py`,
whose outward pass this is. Next: `frames.py`.
"""

from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.jacobians import carrier
from lgjax.dynamics.kinematics import World, ancestor_mask, origin_of, world_kinematics
from lgjax.dynamics.spatial import (
    EYE3,
    NO_MOTION,
    ZERO3,
    Twist,
    add,
    applied_wrenches,
    body_data,
    place_joint,
    twist_of_child,
    velocity_product,
)
from lgjax.dynamics.traversal.traversal import TreeTraversal
from lgjax.execution import batched
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.robots.sensors.instant import Instant

Array = jax.Array


class Moving(NamedTuple):
    """Bodies in motion. pose: joint frames in world axes about `origin` (3,). twist, acceleration: (nbodies + 1, 6),
    in joint frames; None where no velocity or acceleration is needed."""

    pose: Pose
    twist: Any
    acceleration: Any
    origin: Array


class Scene:
    """A model at an instant. needs: the names of fields of `Instant` that its sensors read."""

    def __init__(self, model: Model, instant: Instant, needs: frozenset[str]):
        self.model, self.instant = model, instant
        self._rates = [instant.v] * ("v" in needs) + [instant.vdot] * ("vdot" in needs)

    @cached_property
    def moving(self) -> Moving:
        """Poses, and the twists and accelerations that are needed."""
        return batched(_moving)(self.model, self.instant.q, self._rates)

    @cached_property
    def world(self) -> World:
        """Kinematics as transmissions read them."""
        return world_kinematics(self.model, self.instant.q)

    @cached_property
    def momentum(self) -> Array:
        """Momenta (nbodies, 6) of the bodies in their joint frames."""
        return momentum(self.model.inertias, self.moving.twist[:-1])

    @cached_property
    def effort(self) -> Array:
        """Wrenches (nbodies, 6) that move the bodies against gravity, less what acts from outside; joint frames."""
        needed = effort(self.model.inertias, self.moving.twist[:-1], self.moving.acceleration[:-1])
        if self.instant.wrenches is None:
            return needed
        return needed - sm.join(*applied_wrenches(self.model.links, self.instant.wrenches))


def _moving(model: Model, q, rates: list) -> Moving:
    origin = origin_of(model, q)
    walk = TreeTraversal(model.tree, model.dtype)
    speeds = list(zip(*(walk.velocities(x) for x in rates), strict=True)) or [()] * len(walk.runs)
    world = Pose(EYE3, -origin), (NO_MOTION, Twist(ZERO3, -model.gravity))[: len(rates)]
    found = walk.outward(_outward, world, walk.bodies(body_data(model)), walk.configurations(q), speeds)
    pose, motions = walk.to_bodies(found)
    zero = jnp.zeros_like(origin)
    still = sm.join(zero, zero), sm.join(zero, -model.gravity)
    motions = [jnp.concatenate([x, rest[None]]) for x, rest in zip(motions, still, strict=False)]
    pose = Pose(
        jnp.concatenate([pose.rotation, sm.identity(3, model.dtype, (1,))]),
        jnp.concatenate([pose.translation, -origin[None]]),
    )
    twist, acceleration = (*motions, None, None)[:2]
    return Moving(pose, twist, acceleration, origin)


def _outward(kind, above, body, q, speeds):
    """V = Ad^-1 V_parent + S qd and A = Ad^-1 A_parent + S dqd/dt + V x S qd + dS/dt qd, as far as there are speeds."""
    pose, motions = above
    joint = place_joint(kind, body, q)
    here = se3.compose(pose, joint.pose)
    moved = [twist_of_child(joint, x, speed) for x, speed in zip(motions, speeds, strict=True)]
    if len(moved) == 2:
        moved[1] = add(moved[1], velocity_product(kind, body, q, joint.S, speeds[0], moved[0]))
    return (here, tuple(moved)), (here, [sm.join(*x) for x in moved])


def momentum(inertia: Inertia, twist: Array) -> Array:
    """Momenta (..., 6) of bodies with these twists."""
    return sm.join(*inertia.momentum(*se3.split(twist)))


def effort(inertia: Inertia, twist: Array, acceleration: Array) -> Array:
    """I A + V x* I V (..., 6), the wrenches that give bodies their accelerations."""
    return momentum(inertia, acceleration) - se3.coad(twist, momentum(inertia, twist))


# ---- places fixed to bodies
def located(model: Model, frame: Any, what: str = "frame") -> tuple[int, Pose]:
    """The body that carries a frame, -1 for the world, and the frame's pose in its joint frame.

    frame: name of a body or frame, or a pair (name, Pose) of one and a pose in it; None is the world, as a name too.
    """
    name, pose = frame if isinstance(frame, tuple) and len(frame) == 2 else (frame, None)
    if not (name is None or isinstance(name, str)) or not (pose is None or isinstance(pose, tuple)):
        raise TypeError(f"{what} is the name of a body or frame, or a pair (name, Pose), got {checks.shown(frame)}")
    eye = se3.identity(model.dtype)
    body, place = (-1, eye) if name is None else carrier(model, name)
    if pose is None:
        return body, Pose(*place)
    rotation = checks.array(f"rotation of {what}", pose[0], (3, 3), model.dtype, exact=True)
    checks.rotation(f"rotation of {what}", rotation, 1e-4)
    offset = Pose(rotation, checks.array(f"translation of {what}", pose[1], (3,), model.dtype, exact=True))
    return body, se3.compose(Pose(*place), offset)


def label(frame: Any) -> str:
    """A name for a frame, for the default name of a sensor."""
    name = frame[0] if isinstance(frame, tuple) else frame
    return "world" if name is None else str(name)


class Places:
    """Frames (k,) fixed to bodies, at an instant."""

    def __init__(self, scene: Scene, bodies: tuple[int, ...], offsets: Pose):
        self.scene, self.bodies, self.offsets = scene, np.asarray(bodies, int), offsets

    @cached_property
    def pose(self) -> Pose:
        """Poses in world axes about the scene's origin."""
        return se3.compose(jax.tree.map(lambda x: x[self.bodies], self.scene.moving.pose), self.offsets)

    @cached_property
    def twist(self) -> tuple[Array, Array]:
        """Angular and linear velocities (k, 3) in the frames."""
        return se3.split(se3.Ad(se3.inverse(self.offsets), self.scene.moving.twist[self.bodies]))

    @cached_property
    def acceleration(self) -> tuple[Array, Array]:
        """Angular accelerations and those of the origins less gravity (k, 3), in the frames."""
        turning, linear = se3.split(se3.Ad(se3.inverse(self.offsets), self.scene.moving.acceleration[self.bodies]))
        return turning, linear + sm.cross(*self.twist)


def below(model: Model, roots: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """(k, nbodies) bool, whether body j is one of the roots of row i or beyond one of them."""
    mask = ancestor_mask(model.tree)
    return np.asarray([mask[:, list(some)].any(1) for some in roots], bool).reshape(len(roots), model.nbodies)
