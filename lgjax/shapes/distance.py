"""Signed distance of two convex bodies, with the points and the normal where they are nearest, and their derivatives.

Every shape is a core and a radius of rounding. `minkowski.py` searches the cores for a normal and for up to three pairs
of support points that hold it. Newton's method on the conditions of the optimum, with these pairs, goes to round-off,
and the implicit function of the same conditions gives all derivatives. Read first: `cores.py`, then `minkowski.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.execution import batched
from lgjax.execution.compiled import compiled
from lgjax.groups import se3
from lgjax.groups.arguments import takes
from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.implicit import by_columns, implicit
from lgjax.numerics.small_angle import norm
from lgjax.numerics.status import NOT_FINITE, Flags, flag
from lgjax.shapes.apart import nearest
from lgjax.shapes.contact import POSE, SHAPE, Array, Shape
from lgjax.shapes.convex import Placed, Rounded, with_faces
from lgjax.shapes.cores import Core, Other
from lgjax.shapes.minkowski import Difference, Found, conditions, is_better, polished, shares, weighted
from lgjax.shapes.overlap import shallowest
from lgjax.shapes.starts import normals

TOLERANCE = 1e-9  # of the status, relative to the size of the bodies; 64 units of round-off if that is more


class DistanceStatus(Flags):
    """Flags of `distance`; 0: nothing to report.

    NOT_FINITE  1: a number of a shape or of a pose is infinite or NaN, or a support point was not found
    NOT_SOLVED  2: the error bound is above the tolerance: the distance may be less exact
    """

    OK = 0
    NOT_FINITE = NOT_FINITE
    NOT_SOLVED = 2


class Distance(NamedTuple):
    """Result of `distance`, world frame.

    distance: () m, negative where the bodies overlap: minus the shortest way that separates them. point_a, point_b:
    (3,) m, points of the bodies at its ends. normal: (3,) from a to b, of length 1: point_b - point_a = distance
    normal, unless NOT_SOLVED. error: () m, bound of the error of the distance. status: () int32, `DistanceStatus`.
    """

    distance: Array
    point_a: Array
    point_b: Array
    normal: Array
    error: Array
    status: Array


def distance(a: Shape, pose_a: Pose, b: Shape, pose_b: Pose) -> Distance:
    """Signed distance of two convex shapes, apart, touching or overlapping.

    It is the largest s(n) = min n·y - max n·x over unit normals n, x in a and y in b. Any n gives a lower bound s(n) of
    it, the two points an upper bound of its size; `error` is their difference. Unless this is at most 1e-9 of the size
    of the bodies in float64 and 1e-5 in float32, to round-off, the status says NOT_SOLVED. Where bodies overlap the
    search starts from several normals, and the best end is taken. Among boxes, capsules, spheres and polyhedra whose
    vertices are known, not traced (at most 256, and at most 8,192 pairs of edges), it is the least overlap. For larger
    polyhedra it is at most the least overlap along normals of faces. For round shapes that overlap deeply another
    normal might be better still.

    Derivatives are exact to any order where the optimum is regular. At an edge or a corner, where different features of
    a body touch on both sides, they are those of one side: of the pairs of corners that the search has found. Where
    many points are nearest (parallel faces and edges) the points are one pair of them, which moves with the bodies. A
    rotation in which nothing defines the normal (concentric spheres) has derivative zero.

    Args:
        a, b: convex shapes of `lgjax.shapes`.
        pose_a, pose_b: their poses, body to world, m.

    Returns:
        a `Distance`: the distance in m (negative where they overlap), normal, points, error and status.

    Raises:
        ValueError: for shapes that are not convex: unions and complements.
    """
    return _distance(with_faces(a), pose_a, with_faces(b), pose_b)


def core_of(shape: Shape) -> tuple[Core, Pose | None, Any]:
    """The core of a shape, its pose in the shape's frame, None for none, and the radius of its rounding."""
    if isinstance(shape, Placed):
        core, pose, radius = core_of(shape.shape)
        return core, shape.pose if pose is None else se3.compose(shape.pose, pose), radius
    if isinstance(shape, Rounded):
        core, pose, radius = core_of(shape.shape)
        return core, pose, radius + shape.radius
    core, radius = shape.core() or (Other(shape), 0.0)
    return core, None, radius


@compiled
@takes(True, a=SHAPE, pose_a=POSE, b=SHAPE, pose_b=POSE)
def _distance(a: Shape, pose_a: Pose, b: Shape, pose_b: Pose) -> Distance:
    D, radius_a, radius_b = difference(a, pose_a, b, pose_b)
    found = distance_of(D, radius_a, radius_b)
    return found._replace(point_a=found.point_a + pose_a.translation, point_b=found.point_b + pose_a.translation)


def difference(a: Shape, pose_a: Pose, b: Shape, pose_b: Pose) -> tuple[Difference, Any, Any]:
    """The cores of two shapes, in world axes about the origin of a's pose, and the radii of their rounding."""
    origin = pose_a.translation
    (core_a, in_a, radius_a), (core_b, in_b, radius_b) = core_of(a), core_of(b)
    relative = lambda pose, own: pose if own is None else se3.compose(pose, own)
    place_a = relative(Pose(pose_a.rotation, jnp.zeros_like(origin)), in_a)
    place_b = relative(Pose(pose_b.rotation, pose_b.translation - origin), in_b)
    return Difference(core_a, place_a, core_b, place_b), radius_a, radius_b


def distance_of(D: Difference, radius_a: Any, radius_b: Any) -> Distance:
    """`distance` of two cores with rounding, in the axes of their difference."""
    normal, found, size = normal_of(D)
    ends = D.ends(found.labels, normal)
    w = [x - y for x, y in zip(*ends, strict=True)]
    weights = shares(normal, w, size)
    x, y = weighted(weights, ends[0]), weighted(weights, ends[1])
    # At fixed weights, which change only along the plane that the normal is across.
    held = jax.lax.stop_gradient(weights)
    between = -sm.dot(normal, weighted(held, w))
    rounding = radius_a + radius_b
    value = between + jax.lax.stop_gradient(found.gap - between) - rounding
    return _result(value, x + radius_a * normal, y - radius_b * normal, normal, found.error, size + rounding)


def _result(value: Array, x: Array, y: Array, normal: Array, error: Array, size: Array) -> Distance:
    least = max(TOLERANCE, 64 * float(jnp.finfo(size.dtype).eps)) * size
    x, y = _joined(x, y, normal, value, least)
    status = flag(DistanceStatus.NOT_SOLVED, ~(error <= least))
    status = status | flag(DistanceStatus.NOT_FINITE, ~jnp.isfinite(value + jnp.sum(normal)))
    return Distance(value, x, y, normal, jax.lax.stop_gradient(error), status)


def _joined(x: Array, y: Array, normal: Array, value: Array, least: Array) -> tuple[Array, Array]:
    """The points moved by round-off, so that y - x is along the normal, and no farther: they stay on the bodies."""
    off = 0.5 * (y - x - value * normal)
    off = jnp.where(jax.lax.stop_gradient(norm(off)) <= least, off, jnp.zeros_like(off))
    return x + off, y - off


# ---- the normal
def normal_of(D: Difference) -> tuple[Array, Found, Array]:
    """The normal (3,) with its derivatives, what the search has found, which has none, and the size () of the pair."""
    still = jax.lax.stop_gradient(D)
    size = still.a.size() + still.b.size()
    away = norm(still.middle())
    size = jnp.where(size > 0, size, jnp.where(away > 0, away, jnp.ones_like(away)))
    found = batched(_optimum)(still, size)
    residual = lambda n: conditions(D, n, found.labels, size)
    normal, _ = implicit(residual, lambda _: (found.normal, ()), found.normal, by_columns(_inverse))
    return normal, found, size


def _optimum(D: Difference, size: Array) -> Found:
    """The best normal, by `nearest`, and where the bodies touch or overlap by `shallowest`."""
    margin = float(jnp.finfo(size.dtype).eps) ** 0.25 * size
    offset = -D.middle()
    length = norm(offset)
    near = length <= float(jnp.finfo(size.dtype).tiny) ** 0.25
    up = jnp.zeros_like(offset).at[2].set(1.0)
    start = jnp.where(near, up, offset / jnp.where(near, jnp.ones_like(length), length))
    least = 64 * float(jnp.finfo(size.dtype).eps) * size
    if D.solid:
        # Their starts are all normals that there can be where they touch; mostly nothing is left to search for.
        overlap = shallowest(D, jnp.concatenate([normals(D), start[None]]), 1, size, margin, jnp.ones((), bool))
        known = overlap.error <= least
        apart, length = _apart(D, start, size, least, ~known)
        done = ~known & _is_apart(apart, length, least, margin)
        again = shallowest(D, apart.normal[None], 1, size, margin, ~known & ~done)
        better = ~known & ~done & is_better(again, overlap, least)
        overlap = jax.tree.map(lambda x, y: jnp.where(better, x, y), again, overlap)
    else:
        known = jnp.zeros((), bool)
        apart, length = _apart(D, start, size, least, ~known)
        done = _is_apart(apart, length, least, margin)
        starts = jnp.concatenate([normals(D), jnp.stack([apart.normal, start])])
        # The starts of two polytopes are all normals that there can be.
        count = 1 if D.polytope else max(D.a.starts, D.b.starts)
        overlap = shallowest(D, starts, count, size, margin, ~done)
    better = done | (~known & is_better(apart, overlap, least))
    return jax.tree.map(lambda x, y: jnp.where(better, x, y), apart, overlap)


def _apart(D: Difference, start: Array, size: Array, least: Array, wanted: Array) -> tuple[Found, Array]:
    """The nearest points of cores that are apart, and their distance (), where this is wanted ()."""
    found, length = nearest(D, start, size, least, wanted)
    return jax.lax.cond(wanted, lambda x: polished(D, x, size), lambda x: x, found), length


def _is_apart(apart: Found, length: Array, least: Array, margin: Array) -> Array:
    """Where bodies are apart the conditions have no other solution. Farther than the margin nothing is better."""
    return (length > 0.5 * margin) | ((apart.gap > least) & (apart.error <= least))


def _inverse(jacobian: Array) -> Array:
    """Its inverse; 0 where nothing holds the normal in some direction, as where two corners touch."""
    det = sm.det3(jacobian)
    held = jnp.abs(det) > float(jnp.finfo(det.dtype).eps) ** 1.5
    safe = jnp.where(held, jacobian, sm.identity(3, det.dtype))
    return jnp.where(held, sm.inv3(safe), jnp.zeros_like(jacobian))
