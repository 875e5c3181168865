"""Where two bodies touch: one point of round ones, a patch of a fixed number of points of flat ones.

The normal is that of the signed distance. Of flat bodies the faces that look most along it are laid over each other,
along the normal: the corners of the polygon that both cover are candidates, and the gap at each is that between the two
planes. The point of the distance is a candidate, too. Of these, the points are those of the least gaps that spread
widest, as in `candidates.py`; they do not jump while bodies rest on each other. Points that are missing are open.

Read first: `lgjax/shapes/distance.py`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.geometry.candidates import ASIDE, SLOPE
from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm
from lgjax.shapes.contact import Array, Shape
from lgjax.shapes.distance import DistanceStatus, core_of, difference, distance_of
from lgjax.shapes.minkowski import Difference

SAME = 1e-6  # lengths relative to the size of a body below which points count as one
# A pair is searched for where the balls around its bodies are not farther apart than this part of their radii, and than
# so many times the smoothing.
REACH, FELT = 1 / 8, 8.0
# Errors of a distance that count, relative to the size of the bodies. Where faces are nearly parallel, the last digits
# of the normal may be missing, which moves nothing by more than this.
COUNTS = 1e-4


class Polygon(NamedTuple):
    """Corners (m, 3) of a face, world axes, its unit normal (3,), and whether it has an area ()."""

    corners: Array
    normal: Array
    wide: Array


def points_of(a: Shape, b: Shape, count: int) -> int:
    """How many points a pair of shapes touches with, of `count` at most."""
    corners = sorted(core_of(shape)[0].corners for shape in (a, b))
    return 1 if corners[0] == 0 or corners[1] == 2 else min(count, 2 if corners[0] == 2 else count)


def patch(a: Shape, pose_a: Pose, b: Shape, pose_b: Pose, count: int, smoothing: Array | None) -> tuple[Array, ...]:
    """Gaps (k,), points (k, 3) halfway between the bodies, normals (k, 3) from b to a, and whether they are inexact ().

    k = points_of. Bodies of which the balls around them are far apart are not searched for: see `_apart`.
    """
    D, radius_a, radius_b = difference(a, pose_a, b, pose_b)
    count = points_of(a, b, count)
    near = lambda D, radii: _near(D, radii, count)
    if D.a.bounded and D.b.bounded:
        still = jax.lax.stop_gradient(D)
        size = still.a.size() + still.b.size()
        least = norm(still.middle()) - size - jax.lax.stop_gradient(radius_a + radius_b)
        felt = 0 if smoothing is None else FELT * jax.lax.stop_gradient(smoothing)
        far = least > REACH * size + felt
        apart = lambda D, radii: _apart(D, radii, count)
        gap, point, normal, inexact = jax.lax.cond(far, apart, near, D, (radius_a, radius_b))
    else:
        gap, point, normal, inexact = near(D, (radius_a, radius_b))
    return gap, point + pose_a.translation, normal, inexact


def _apart(D: Difference, radii: tuple[Any, Any], count: int) -> tuple[Array, ...]:
    """As `_near`, for the balls around two bodies: the first gap is less than the distance, others are open."""
    middle, size = D.middle(), D.a.size() + D.b.size()
    length = norm(middle)
    n = -middle / length
    gap = length - size - radii[0] - radii[1]
    point = D.place_a.act(D.a.middle()) + (D.a.size() + radii[0] + 0.5 * gap) * n
    every = lambda x: jnp.broadcast_to(x, (count, *x.shape))
    open_too = jnp.where(np.arange(count) > 0, size, jnp.zeros_like(size))
    return gap + open_too, every(point), every(-n), jnp.zeros((), bool)


def _near(D: Difference, radii: tuple[Any, Any], count: int) -> tuple[Array, ...]:
    """Gaps (k,), points (k, 3) in the axes of D, normals (k, 3), and whether the distance is inexact ()."""
    radius_a, radius_b = radii
    near = distance_of(D, radius_a, radius_b)
    size = jax.lax.stop_gradient(D.a.size() + D.b.size())
    inexact = ((near.status & int(DistanceStatus.NOT_SOLVED)) > 0) & ~(near.error <= COUNTS * size)
    n = near.normal
    middle = 0.5 * (near.point_a + near.point_b)
    if count == 1:
        return near.distance[None], middle[None], -n[None], inexact
    first = _face(D.a.face(sm.tmatvec(D.place_a.rotation, n)), D.place_a, n, size)
    second = _face(D.b.face(-sm.tmatvec(D.place_b.rotation, n)), D.place_b, n, size)
    place, inside = _common(first, second, n, size)
    # The heights of both faces, along the normal, above these places.
    low, high = (sm.dot(face.normal, face.corners[0] - place) / sm.dot(face.normal, n) for face in (first, second))
    low, high = low + radius_a, high - radius_b
    gaps = jnp.concatenate([high - low, near.distance[None]])
    points = jnp.concatenate([place + 0.5 * (low + high)[:, None] * n, middle[None]])
    inside = jnp.concatenate([inside, jnp.ones(1, bool)])
    aside = sm.matvec(D.place_a.rotation, jnp.asarray(ASIDE, size.dtype))
    index, there = _chosen(*jax.lax.stop_gradient((points, gaps, n, aside, size)), inside, count)
    taken = jnp.stack([points[i] for i in index])
    gap = jnp.stack([jnp.where(t, gaps[i], near.distance + size) for i, t in zip(index, there, strict=True)])
    return gap, taken, jnp.broadcast_to(-n, taken.shape), inexact


def _face(face: tuple[Array, Array], place: Pose, n: Array, size: Array) -> Polygon:
    corners, normal = place.act(face[0]), sm.matvec(place.rotation, face[1])
    edges = jnp.roll(corners, -1, 0) - corners
    twice = jnp.sum(sm.dot(n, sm.cross(corners - corners[0], edges)))
    return Polygon(corners, normal, jax.lax.stop_gradient(jnp.abs(twice) > SAME * size * size))


def _common(a: Polygon, b: Polygon, n: Array, size: Array) -> tuple[Array, Array]:
    """Places (k, 3) that may be corners of what two polygons both cover, seen along n, and whether they are (k,)."""
    p, q = (face.corners - sm.dot(face.corners, n)[:, None] * n for face in (a, b))
    d, e = jnp.roll(p, -1, 0) - p, jnp.roll(q, -1, 0) - q
    r = q[None] - p[:, None]
    cross = lambda x, y: sm.dot(n, sm.cross(x, y))
    det = cross(d[:, None], e[None])
    length = norm(d)[:, None] * norm(e)[None]
    met = jnp.abs(det) > SAME * length
    one = jnp.ones_like(det)
    s = jnp.where(met, cross(r, jnp.broadcast_to(e[None], r.shape)) / jnp.where(met, det, one), 0)
    t = jnp.where(met, cross(r, jnp.broadcast_to(d[:, None], r.shape)) / jnp.where(met, det, one), 0)
    within = lambda x: (x >= -SAME) & (x <= 1 + SAME)
    met = met & within(s) & within(t)
    crossing = (p[:, None] + s[..., None] * d[:, None]).reshape(-1, 3)
    places = jnp.concatenate([p, q, crossing])
    return places, jnp.concatenate([_covered(p, q, e, b, n, size), _covered(q, p, d, a, n, size), met.reshape(-1)])


def _covered(points: Array, corners: Array, edges: Array, face: Polygon, n: Array, size: Array) -> Array:
    """Whether a polygon of corners (m, 3), in either order, covers points (k, 3)."""
    aside = sm.dot(n, sm.cross(edges[None], points[:, None] - corners[None]))
    slack = SAME * size * norm(edges)
    left, right = jnp.all(aside >= -slack, 1), jnp.all(aside <= slack, 1)
    return face.wide & (left | right)


def _chosen(points, gaps, n, aside, size, inside, count: int) -> tuple[list[Array], list[Array]]:
    """Numbers () of points, and whether each is there (): those of small gaps that spread widest."""
    flat = points - sm.dot(points, n)[:, None] * n
    length = lambda x: jnp.sqrt(sm.dot(x, x))
    lowest = jnp.argmin(jnp.where(inside, gaps, jnp.inf)).astype(jnp.int32)
    away = sm.matvec(flat - flat[lowest], aside)
    taken: list[Array] = []
    there: list[Array] = []
    for k in range(count):
        if k == 0:
            wide, new = away, jnp.ones_like(inside)
        else:
            apart = jnp.min(jnp.stack([length(flat - flat[i]) for i in taken]), 0)
            wide, new = apart, apart > SAME * size
        if k in (2, 3):
            a, b = flat[taken[0]], flat[taken[1]]
            beside = sm.matvec(flat - a, sm.cross(n, b - a)) / jnp.maximum(length(b - a), SAME * size)
            side = jnp.sign(sm.dot(flat[taken[2]] - a, sm.cross(n, b - a))) if k == 3 else None
            wide = jnp.abs(beside) if side is None else -side * beside
        score = jnp.where(inside & new, -gaps + SLOPE * (wide + 0.01 * away), -jnp.inf)
        taken.append(jnp.argmax(score).astype(jnp.int32))
        there.append((inside & new)[taken[-1]])
    least = jnp.min(jnp.stack([jnp.where(t, gaps[i], jnp.inf) for i, t in zip(taken, there, strict=True)]))
    missed = gaps[lowest] < least - 1e3 * float(jnp.finfo(gaps.dtype).eps) * size
    far = jnp.stack([jnp.where(t, length(flat[i] - flat[lowest]), 0) for i, t in zip(taken, there, strict=True)])
    nearest = jnp.argmin(far).astype(jnp.int32)
    swap = [missed & (nearest == k) for k in range(count)]
    return (
        [jnp.where(x, lowest, i) for x, i in zip(swap, taken, strict=True)],
        [x | t for x, t in zip(swap, there, strict=True)],
    )
