"""Gaps, contact points and contact frames at a configuration, with derivatives.

The gap of a ball or a corner on the ground is its signed distance from it, and its normal is along the line from the
nearest point of the ground, `nearest.py`. Where a height field has an edge or a vertex that points up, so the normal
turns with the ball. Of a polyhedron with many corners the deepest are taken, see `Patch`. Other shapes have the
distance of the point that lies farthest against their normal, which on an edge of a height field is between those of
the two faces. There a gap that is not 0, a normal where more than two faces meet, and a point that touches the second
face of a valley are not exact; points of a shape that are no candidates, such as the edges of a box, are not seen. The
derivative of a gap is right on edges; that of such a normal is not.

Links of a pair touch as `patches.py` says, spheres and capsules as `_pairs` does.

Normals point from the ground, or from the second link of a pair, to the link that touches.
Read first: `../contacts.py`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.contacts import Contacts
from lgjax.contact.geometry.candidates import Corners, Patch, points_towards
from lgjax.contact.geometry.height_field import HeightField
from lgjax.contact.geometry.nearest import nearest
from lgjax.contact.geometry.patches import patch
from lgjax.contact.status import ContactStatus
from lgjax.dynamics.jacobians import carrier
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.status import flag

Array = jax.Array

FEET = 3  # turns of the search for the normal of a height field below a shape
HALVINGS = 12  # of the angle between the normals of two faces, on the edge of which a shape may touch


class ContactPoints(NamedTuple):
    """Candidates at a configuration.

    gap: (n,) m, negative inside. point: (n, 3) world frame, where they touch or would. frame: (n, 3, 3) world frame,
    rows the normal and two tangents. status: () int32, `ContactStatus`: NOT_SOLVED where the distance of a pair that is
    near is not found to 1e-4 of its size.
    """

    gap: Array
    point: Array
    frame: Array
    status: Any = None

    def wrenches(self) -> Array:
        """(n, 3, 6): wrenches of unit forces along the axes of the frames, about the origin of the points."""
        point, frame = self.point[:, None], self.frame
        lever = lambda i, j: point[:, :, i] * frame[:, :, j] - point[:, :, j] * frame[:, :, i]
        moment = jnp.stack([lever(1, 2), lever(2, 0), lever(0, 1)], 2)
        return jnp.concatenate([moment, frame], 2)


def sides(contacts: Contacts, model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Bodies (n,) that touch, and those that are touched, -1 for the ground."""
    index = {link: carrier(model, link)[0] for pair in contacts.links for link in pair if link is not None}
    index[None] = -1
    return tuple(np.array([index[pair[k]] for pair in contacts.links], int) for k in (0, 1))  # type: ignore[return-value]


def detect(contacts: Contacts, model: Model, poses: Pose, origin: Array) -> ContactPoints:
    """Candidates, for poses of the joint frames (nbodies, ...) in world axes about the point `origin` (3,).

    The points found are relative to that origin, too.
    """
    links = {}
    touching = *contacts.corner_links, *contacts.solid_links, *(x for pair in contacts.links for x in pair if x)
    for link in dict.fromkeys(touching):
        body, offset = carrier(model, link)
        links[link] = se3.compose(jax.tree.map(lambda x, b=body: x[b], poses), offset)
    at = lambda names: jax.tree.map(lambda *x: jnp.stack(x), *(links[name] for name in names))
    found, inexact = [], jnp.zeros((), bool)
    balls = None
    if contacts.corners is not None:
        balls = Corners(at(contacts.corner_links).act(contacts.corners.centers), contacts.corners.radii)
    for ground in contacts.grounds:
        if balls is not None:
            found.append(_on_ground(ground, balls, origin))
        for link, shape in zip(contacts.solid_links, contacts.solids, strict=True):
            found.append(_solid_on_ground(ground, shape, links[link], origin))
    if contacts.segments is not None:
        others = sum(len(couples.links) * couples.count for couples in contacts.couples)
        end = len(contacts.links) - others
        pairs = contacts.links[end - len(contacts.segments[0].radii) : end]
        ends = [_between(at([pair[k] for pair in pairs]), contacts.segments[k]) for k in (0, 1)]
        found.append(_pairs(*ends))
    for couples in contacts.couples:
        places = [at([pair[k] for pair in couples.links]) for k in (0, 1)]
        # Sequentially: kernels gather at computed places for one pair at a time.
        of = lambda x, count=couples.count: patch(x[0], x[1], x[2], x[3], count, contacts.smoothing)
        *several, failed = jax.lax.map(of, (couples.first, places[0], couples.second, places[1]))
        found.append(tuple(x.reshape(-1, *x.shape[2:]) for x in several))
        inexact = inexact | jnp.any(failed)
    status = flag(ContactStatus.NOT_SOLVED, inexact)
    if not found:
        empty = lambda *shape: jnp.zeros((0, *shape), poses.translation.dtype)
        return ContactPoints(empty(), empty(3), empty(3, 3), status)
    gap, point, normal = (jnp.concatenate(x) for x in zip(*found, strict=True))
    return ContactPoints(gap, point, frames(normal), status)


def _between(place: Pose, segment: Corners) -> Corners:
    return Corners(jnp.stack([place.act(segment.centers[:, k]) for k in (0, 1)], 1), segment.radii)


def _on_ground(ground, balls: Corners, origin: Array) -> tuple[Array, Array, Array]:
    """Gaps, points and normals of balls (k,)."""
    centers, radii = balls
    if not isinstance(ground, HeightField):
        normal = jnp.broadcast_to(ground.normal, centers.shape)
        offset = ground.offset + sm.dot(ground.normal, origin)
        gap = sm.dot(normal, centers) + offset - radii
        return gap, centers - radii[:, None] * normal, normal
    # Sequentially: a kernel then writes the search once, and looks heights up for one ball at a time.
    one = lambda ball: [x[0] for x in nearest(ground, ball.centers[None], ball.radii[None], origin)]
    distance, normal = jax.lax.map(one, balls)
    return distance - radii, centers - radii[:, None] * normal, normal


def _solid_on_ground(ground, shape, place: Pose, origin: Array) -> tuple[Array, Array, Array]:
    """Gaps, points and normals of a shape without corners, at the pose of its link."""
    if isinstance(shape, Patch):
        return _patch_on_ground(ground, shape, place, origin)
    towards = lambda n: place.act(points_towards(shape, -sm.tmatvec(place.rotation, n)))
    if not isinstance(ground, HeightField):
        points = towards(ground.normal)
        normal = jnp.broadcast_to(ground.normal, points.shape)
        return sm.dot(normal, points) + ground.offset + sm.dot(ground.normal, origin), points, normal
    below = lambda n: _below(ground, towards(n), origin)
    normal = turned = ground((place.act(shape.middle()) + origin)[None])[1][0]
    for _ in range(FEET):
        normal, turned = turned, below(turned)
    normal = _between_normals(normal, turned, below)
    points = towards(normal)
    distance, normals = nearest(ground, points, jnp.zeros_like(points[:, 0]), origin)
    if len(points) > 1:  # of a rim, which are treated as corners
        return distance, points, normals
    return distance * sm.dot(normals, normal), points, normal[None]


def _patch_on_ground(ground, patch: Patch, place: Pose, origin: Array) -> tuple[Array, Array, Array]:
    """The deepest corners of a polyhedron above a height field, by their height."""
    if isinstance(ground, HeightField):
        points = place.act(patch.vertices) + origin
        heights, normals = ground(points)
        depths = (heights - points[:, 2]) * normals[:, 2]
        normal = ground((place.act(patch.middle()) + origin)[None])[1][0]
        down = -sm.tmatvec(place.rotation, normal)
    else:
        down = -sm.tmatvec(place.rotation, ground.normal)
        depths = sm.matvec(patch.vertices, down)
    centers = place.act(patch.lowest(depths, down))
    return _on_ground(ground, Corners(centers, jnp.broadcast_to(patch.radius, centers.shape[:1])), origin)


def _below(ground: HeightField, points: Array, origin: Array) -> Array:
    """The normal (3,) of a height field below the lowest of some points."""
    heights, normals = ground(points + origin)
    return normals[jnp.argmin((points[:, 2] + origin[2] - heights) * normals[:, 2])]


def _between_normals(first: Array, second: Array, below) -> Array:
    """The unit normal (3,) between two with which a shape touches the edge of two faces; of one face, its own.

    There the normal below the support point jumps, from one side to the other, and is never the one of the support.
    """
    mixed = lambda a, b, share: a + share * (b - a)
    unit = lambda n: n / jnp.sqrt(sm.dot(n, n))
    a, b = jax.lax.stop_gradient((first, second))

    def halve(k, low):
        middle = low + 0.5 ** (k + 1).astype(low.dtype)
        n = unit(mixed(a, b, middle))
        return jnp.where(sm.dot(below(n) - n, b - a) > 0, middle, low)

    low = jax.lax.fori_loop(0, HALVINGS, halve, jnp.zeros_like(a[0]))
    share = jax.lax.stop_gradient(low) + 0.5 ** (HALVINGS + 1)
    return unit(mixed(first, second, share))


def _pairs(a: Corners, b: Corners) -> tuple[Array, Array, Array]:
    """Gaps, points and normals of pairs of balls swept along segments, centers (k, 2, 3) and radii (k, 1)."""
    p, q = a.centers[:, 0], b.centers[:, 0]
    d, e = a.centers[:, 1] - p, b.centers[:, 1] - q
    r = p - q
    dd, ee, de, dr, er = sm.dot(d, d), sm.dot(e, e), sm.dot(d, e), sm.dot(d, r), sm.dot(e, r)
    divide = lambda x, y: jnp.where(y > 0, x / jnp.where(y > 0, y, jnp.ones_like(y)), jnp.zeros_like(x))
    clip = lambda x: jnp.clip(x, jnp.zeros_like(x), jnp.ones_like(x))
    det = dd * ee - de * de
    apart = det > 1e-9 * dd * ee  # parallel segments touch anywhere; take the middle of the first
    s = jnp.where(apart, clip(divide(de * er - dr * ee, jnp.where(apart, det, jnp.zeros_like(det)))), 0.5)
    t = clip(divide(de * s + er, ee))
    s = jnp.where(dd > 0, clip(divide(de * t - dr, dd)), jnp.zeros_like(s))
    gap = r + s[:, None] * d - t[:, None] * e
    square = sm.dot(gap, gap)
    met = square > 0
    length = jnp.sqrt(jnp.where(met, square, jnp.ones_like(square)))
    up = jnp.broadcast_to(jnp.asarray(np.array([0.0, 0.0, 1.0]), gap.dtype), gap.shape)
    normal = jnp.where(met[:, None], gap / length[:, None], up)
    distance = jnp.where(met, length, jnp.zeros_like(length)) - a.radii[:, 0] - b.radii[:, 0]
    point = p + s[:, None] * d - (a.radii + 0.5 * distance[:, None]) * normal
    return distance, point, normal


def frames(normal: Array) -> Array:
    """Rotations (n, 3, 3) whose first rows are unit normals (n, 3), smooth in the normal except where its z is 0.

    Source: Duff et al., Building an orthonormal basis, revisited (2017).
    """
    x, y, z = sm.components(normal)
    sign = jnp.where(z >= 0, jnp.ones_like(z), -jnp.ones_like(z))
    a = -1 / (sign + z)
    b = x * y * a
    return sm.rows(normal, sm.stack(1 + sign * x * x * a, sign * b, -sign * x), sm.stack(b, sign + y * y * a, -y))
