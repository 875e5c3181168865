"""Sensors of touch: normal forces at contacts of some links, within a zone around a frame, and their number.

A contact is in the zone if the half line from its point along the normal, away from the link, meets the zone: always
where the point is inside. Every zone is convex, so a line is in it between two parameters. Read first: `group.py`.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm
from lgjax.robots.sensors.group import STATIC, Group, Kind
from lgjax.robots.sensors.instant import ContactForces
from lgjax.robots.sensors.scene import Places, Scene

Array = jax.Array
Span = tuple[Array, Array]  # first and last parameter of a line in a zone; the first is larger where it misses

TOUCH = Kind("touch", 1, ("contact",), "positive")
COUNT = Kind("contact count", 1, ("contact",))
EVERYWHERE = "everywhere"
# Numbers that give the size of a zone, m: radius; radius and half length along z; half extents.
SIZES = {EVERYWHERE: 0, "sphere": 1, "capsule": 2, "cylinder": 2, "box": 3, "ellipsoid": 3}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Touch(Group):
    """Zones around frames on bodies, each with the links whose contacts it feels."""

    kind: Kind = field(metadata=STATIC)
    bodies: tuple[int, ...] = field(metadata=STATIC)
    links: tuple[tuple[str, ...], ...] = field(metadata=STATIC)
    zones: tuple[str, ...] = field(metadata=STATIC)
    offsets: Pose
    sizes: Array

    def __len__(self) -> int:
        return len(self.bodies)

    def read(self, scene: Scene) -> Array:
        contact = scene.instant.contact
        assert contact is not None
        place = Places(scene, self.bodies, self.offsets).pose
        push = jnp.maximum(sm.dot(contact.force, contact.normal), 0)
        point = contact.point - scene.moving.origin
        rows = []
        for k, (links, zone) in enumerate(zip(self.links, self.zones, strict=True)):
            side = _sides(contact, links)
            R, p = jax.tree.map(lambda x, k=k: x[k], place)
            at, ray = sm.tmatvec(R, point - p), sm.tmatvec(R, -side[:, None] * contact.normal)
            first, last = ZONES[zone](*jax.lax.stop_gradient((at, ray, self.sizes[k])))
            rows.append(jnp.sum(jnp.where((last >= first) & (last >= 0) & (side != 0), push, 0)))
        return jnp.stack(rows)[:, None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ContactCounts(Group):
    """Links, and for each what they may touch: names, None for the ground; None in place of names is anything."""

    kind: Kind = field(metadata=STATIC)
    links: tuple[tuple[str, ...], ...] = field(metadata=STATIC)
    others: tuple[tuple[str | None, ...] | None, ...] = field(metadata=STATIC)

    def __len__(self) -> int:
        return len(self.links)

    def read(self, scene: Scene) -> Array:
        contact = scene.instant.contact
        assert contact is not None
        pushes = sm.dot(contact.force, contact.normal) > 0
        between = lambda a, b, links, others: a in links and (others is None or b in others)
        mask = [
            [between(a, b, *pair) or between(b, a, *pair) for a, b in contact.links]
            for pair in zip(self.links, self.others, strict=True)
        ]
        counted = pushes & np.asarray(mask, bool).reshape(len(self), len(contact.links))
        return jnp.sum(counted.astype(scene.model.dtype), 1)[:, None]


def _sides(contact: ContactForces, links: tuple[str, ...]) -> Any:
    """For each contact 1 if its first link is one of these, -1 if its second is, else 0."""
    return np.asarray([1 if a in links else -1 if b in links else 0 for a, b in contact.links], contact.force.dtype)


# ---- lines through zones: points and directions (n, 3) in the frame of the zone
def _quadratic(a: Array, b: Array, c: Array) -> Span:
    """Where a s^2 + 2 b s + c <= 0, with a >= 0."""
    moves, root = a > 0, b * b - a * c
    over, width = jnp.where(moves, a, 1), jnp.sqrt(jnp.maximum(root, 0))
    first = jnp.where(jnp.where(moves, root, -c) >= 0, -jnp.inf, jnp.inf).astype(a.dtype)
    hits = moves & (root >= 0)
    return jnp.where(hits, (-b - width) / over, first), jnp.where(hits, (-b + width) / over, -first)


def _slab(x: Array, d: Array, half: Array) -> Span:
    """Where |x + s d| <= half."""
    moves = d != 0
    speed = jnp.where(moves, d, 1)
    ends = (-half - x) / speed, (half - x) / speed
    first = jnp.where(jnp.abs(x) <= half, -jnp.inf, jnp.inf).astype(x.dtype)
    return jnp.where(moves, jnp.minimum(*ends), first), jnp.where(moves, jnp.maximum(*ends), -first)


def _both(*spans: Span) -> Span:
    """Where a line is in all of some zones."""
    first, last = zip(*spans, strict=True)
    return jnp.max(jnp.stack(first), 0), jnp.min(jnp.stack(last), 0)


def _ball(x: Array, d: Array, center: Array, radius: Array) -> Span:
    r = x - center
    return _quadratic(sm.dot(d, d), sm.dot(r, d), sm.dot(r, r) - radius**2)


def _cylinder(x: Array, d: Array, size: Array) -> Span:
    y, e = x[:, :2], d[:, :2]
    around = _quadratic(sm.dot(e, e), sm.dot(y, e), sm.dot(y, y) - size[0] ** 2)
    return _both(around, _slab(x[:, 2], d[:, 2], size[1]))


def _capsule(x: Array, d: Array, size: Array) -> Span:
    """The first and last parameter of the cylinder and the two balls, which together are convex."""
    end = size[1] * jnp.asarray([0, 0, 1], x.dtype)
    spans = [_cylinder(x, d, size), *(_ball(x, d, c, size[0]) for c in (end, -end))]
    first, last = zip(*[(jnp.where(b >= a, a, jnp.inf), jnp.where(b >= a, b, -jnp.inf)) for a, b in spans], strict=True)
    return jnp.min(jnp.stack(first), 0), jnp.max(jnp.stack(last), 0)


ZONES = {
    EVERYWHERE: lambda x, d, size: (jnp.full_like(x[:, 0], -jnp.inf), jnp.full_like(x[:, 0], jnp.inf)),
    "sphere": lambda x, d, size: _ball(x, d, jnp.zeros_like(size), size[0]),
    "ellipsoid": lambda x, d, size: _ball(x / size, d / size, jnp.zeros_like(size), jnp.ones_like(size[0])),
    "cylinder": _cylinder,
    "capsule": _capsule,
    "box": lambda x, d, size: _both(*(_slab(x[:, k], d[:, k], size[k]) for k in range(3))),
}
