"""Sensors of what hangs on a frame: the wrench that carries it, its center of mass and its momentum.

What is beyond a sensor is some bodies with all that they carry and, where a fixed joint is measured, a rigid part of
the body that the frame is on. Every sum is taken about the point where it is read, so that nothing large cancels.
Read first: `scene.py`, `group.py`. Source: [featherstone2008] sections 2.13 and 5.3.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.jacobians import carrier
from lgjax.dynamics.subtree_sums import inertia_to_parent
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.robots.sensors.group import STATIC, Group, Kind, index
from lgjax.robots.sensors.instant import ContactForces, body_of
from lgjax.robots.sensors.scene import Moving, Places, Scene, below, effort, momentum

Array = jax.Array


class Beyond(NamedTuple):
    """Load of a sensor at a fixed joint: links that the model has merged into one body, and bodies that they carry.

    link: name of a frame fixed to that body (or to the world). inertia: of the rigid part beyond the joint, in the
    frame `link`. bodies: names of the bodies whose joints are on that part. links: names of the frames that belong to
    it; contacts of these links count.
    """

    link: str
    inertia: Inertia
    bodies: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Subtrees(Group):
    """Frames on bodies, and what is beyond each: subtrees from `roots` on, rigid parts with `inertia`, joint frame."""

    kind: Kind = field(metadata=STATIC)
    bodies: tuple[int, ...] = field(metadata=STATIC)
    roots: tuple[tuple[int, ...], ...] = field(metadata=STATIC)
    links: tuple[tuple[str, ...], ...] = field(metadata=STATIC)
    offsets: Pose
    inertia: Inertia

    def __len__(self) -> int:
        return len(self.bodies)

    def read(self, scene: Scene) -> Array:
        return READINGS[self.kind](self, scene)


def hanging(model: Model, body: int, beyond: Beyond | None) -> tuple[tuple[int, ...], tuple[str, ...], Inertia]:
    """Roots, links and inertia in the joint frame of `body` of what is beyond a sensor on it; without `beyond` all."""
    if beyond is None:
        zero = jnp.zeros((), model.dtype)
        return (body,), (), Inertia(zero, jnp.zeros(3, model.dtype), jnp.zeros((3, 3), model.dtype))
    checks.of_kind("beyond", beyond, Beyond)
    on, place = carrier(model, beyond.link)
    if on != body:
        raise ValueError(f"beyond: {beyond.link!r} and the frame of the sensor are on different bodies")
    roots = tuple(model.tree.body(name) for name in checks.names("beyond.bodies", beyond.bodies))
    for root in roots:
        if model.tree.parents[root] != body:
            raise ValueError(f"beyond: the joint of {model.body_names[root]!r} is not on the body of {beyond.link!r}")
    links = checks.names("beyond.links", beyond.links)
    for link in links:
        if carrier(model, link)[0] != body:
            raise ValueError(f"beyond: {link!r} is not fixed to {beyond.link!r}")
    shapes = {"mass": (), "moment": (3,), "rotational": (3, 3)}
    parts = (
        checks.array(f"beyond.inertia.{name}", getattr(beyond.inertia, name), shape, model.dtype, exact=True)
        for name, shape in shapes.items()
    )
    return roots, links, inertia_to_parent(*place, Inertia(*parts))


# ---- sums over what is beyond
def _sums(group: Subtrees, scene: Scene, bodies: Array, parts: Array, point: Array) -> tuple[Array, Array]:
    """Sums (k, 3) of [n, f] about points (k, 3), world axes, of bodies (nbodies, 6) and parts (k, 6), joint frames."""
    mask = below(scene.model, group.roots)
    pose = scene.moving.pose
    R, p = jax.tree.map(lambda x: x[:-1], pose)
    n, f = (sm.matvec(R, x) for x in se3.split(bodies))
    moment = n[None] + sm.cross(p[None] - point[:, None], f[None])
    R, p = jax.tree.map(lambda x: x[index(group.bodies)], pose)
    own_n, own_f = (sm.matvec(R, x) for x in se3.split(parts))
    total = lambda x: jnp.sum(jnp.where(mask[..., None], x, 0), 1)
    return total(moment) + own_n + sm.cross(p - point, own_f), total(f[None]) + own_f


def _mass(group: Subtrees, scene: Scene) -> Array:
    mask = below(scene.model, group.roots)
    return jnp.sum(jnp.where(mask, scene.model.inertias.mass, 0), 1) + group.inertia.mass


def _center(group: Subtrees, scene: Scene) -> Array:
    """Centers of mass (k, 3) about the scene's origin; the frames' own origins where there is no mass."""
    mask = below(scene.model, group.roots)
    pose = scene.moving.pose
    R, p = jax.tree.map(lambda x: x[:-1], pose)
    point = Places(scene, group.bodies, group.offsets).pose.translation
    inertia = scene.model.inertias
    about = sm.matvec(R, inertia.moment)[None] + inertia.mass[:, None] * (p[None] - point[:, None])
    R, p = jax.tree.map(lambda x: x[index(group.bodies)], pose)
    own = sm.matvec(R, group.inertia.moment) + group.inertia.mass[:, None] * (p - point)
    moment = jnp.sum(jnp.where(mask[..., None], about, 0), 1) + own
    return point + _over(moment, _mass(group, scene))


def _over(x: Array, mass: Array) -> Array:
    """x (k, 3) over masses (k,), zero where there is none."""
    some = mass > 0
    return jnp.where(some[:, None], x / jnp.where(some, mass, 1)[:, None], 0)


def _momentum(group: Subtrees, scene: Scene, point: Array) -> tuple[Array, Array]:
    parts = momentum(group.inertia, scene.moving.twist[index(group.bodies)])
    return _sums(group, scene, scene.momentum, parts, point)


def _velocity(group: Subtrees, scene: Scene) -> Array:
    _, linear = _momentum(group, scene, _center(group, scene))
    return _over(linear, _mass(group, scene))


def _wrench(group: Subtrees, scene: Scene) -> tuple[Array, Array]:
    """Moment and force (k, 3), in the frames, that what is before them exerts on what is beyond."""
    place = Places(scene, group.bodies, group.offsets).pose
    moving: Moving = scene.moving
    on = index(group.bodies)
    parts = effort(group.inertia, moving.twist[on], moving.acceleration[on])
    n, f = _sums(group, scene, scene.effort, parts, place.translation)
    if (contact := scene.instant.contact) is not None:
        share = _share(group, scene.model, contact)
        arm = contact.point - moving.origin - place.translation[:, None]
        f = f - jnp.sum(share[..., None] * contact.force, 1)
        n = n - jnp.sum(share[..., None] * sm.cross(arm, jnp.broadcast_to(contact.force, arm.shape)), 1)
    return sm.tmatvec(place.rotation, n), sm.tmatvec(place.rotation, f)


def _share(group: Subtrees, model: Model, contact: ContactForces) -> Any:
    """(k, n): 1 where the first link of a contact is beyond a sensor, -1 where the second is, 0 for both or neither."""
    mask = below(model, group.roots)

    def beyond(side: int) -> np.ndarray:
        links = [pair[side] for pair in contact.links]
        body = index(tuple(body_of(model, link) for link in links))
        moving = (mask[:, body] & (body >= 0)) if model.nbodies else np.zeros((len(group), len(body)), bool)
        fixed = np.asarray([[link in some for link in links] for some in group.links], bool)
        return moving | fixed.reshape(moving.shape)

    return (beyond(0).astype(int) - beyond(1)).astype(model.dtype)


FORCE = Kind("force", 3, ("v", "vdot"))
TORQUE = Kind("torque", 3, ("v", "vdot"))
CENTER_OF_MASS = Kind("subtree center of mass", 3)
LINEAR_VELOCITY = Kind("subtree linear velocity", 3, ("v",))
ANGULAR_MOMENTUM = Kind("subtree angular momentum", 3, ("v",))
READINGS: dict[Kind, Callable[[Subtrees, Scene], Array]] = {
    FORCE: lambda group, scene: _wrench(group, scene)[1],
    TORQUE: lambda group, scene: _wrench(group, scene)[0],
    CENTER_OF_MASS: lambda group, scene: _center(group, scene) + scene.moving.origin,
    LINEAR_VELOCITY: _velocity,
    ANGULAR_MOMENTUM: lambda group, scene: _momentum(group, scene, _center(group, scene))[0],
}
