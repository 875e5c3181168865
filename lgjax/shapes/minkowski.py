"""The difference of two convex cores, and the conditions that hold at the normal where they are nearest.

D is the set of all x - y, x in the first core a, y in the second core b. The width of the gap between them along a unit
normal n, from a to b, is s(n) = -max over D of n · w, and the signed distance is the largest s(n): the distance of D
from the origin, or minus the least way out of D. At the optimum a mean of support points w of D, all at the height
-s(n), lies along n. One point is enough where D is round, a triangle of three holds the normal of a face.

Labels of points, see `cores.py`, say which points these are. `polished` takes a normal and labels that a search has
found (`apart.py`, `overlap.py`) to round-off by Newton's method. Nothing here but `conditions` and `shares` is
differentiated.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lgjax.groups.se3 import Pose
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm
from lgjax.shapes.contact import Array
from lgjax.shapes.cores import Core
from lgjax.shapes.ridges import Ridges

POLISH = 4  # Newton steps
PAIRS = 8192  # of edges of two polytopes that are all tried


class Difference(NamedTuple):
    """The cores of two bodies and where they are; world axes about the origin of the first body."""

    a: Core
    place_a: Pose
    b: Core
    place_b: Pose

    def label(self, normal: Array) -> Array:
        """Labels of both support points: of a along a unit normal (3,), of b against it."""
        first, second = self.directions(normal)
        return jnp.concatenate([self.a.label(first), self.b.label(second)])

    def directions(self, normal: Array) -> tuple[Array, Array]:
        """A unit normal (3,) in the frame of a, and the opposite one in that of b."""
        return sm.tmatvec(self.place_a.rotation, normal), -sm.tmatvec(self.place_b.rotation, normal)

    def ends(self, labels: Array, normal: Array) -> tuple[list[Array], list[Array]]:
        """The points (3,) of a and those of b with labels (m, k), as they move with the normal."""
        count = labels.shape[1] - self.b.label_size
        first, second = self.directions(normal)
        xs, ys = self.a.points_of(labels[:, :count], first), self.b.points_of(labels[:, count:], second)
        return list(map(self.place_a.act, xs)), list(map(self.place_b.act, ys))

    def points(self, labels: Array, normal: Array) -> list[Array]:
        """The points (3,) of D with labels (m, k)."""
        return [x - y for x, y in zip(*self.ends(labels, normal), strict=True)]

    def support(self, normal: Array) -> tuple[Array, Array]:
        """The point (3,) of D farthest along a unit normal, and its label."""
        first, second = self.directions(normal)
        (x, one), (y, other) = self.a.support(first), self.b.support(second)
        return self.place_a.act(x) - self.place_b.act(y), jnp.concatenate([one, other])

    def gap(self, normal: Array) -> Array:
        """The width s(n) () of the gap along a unit normal (3,)."""
        first, second = self.directions(normal)
        between = sm.dot(normal, self.place_b.translation - self.place_a.translation)
        return between - self.a.height(first) - self.b.height(second)

    @property
    def stays(self) -> bool:
        """Whether a search keeps points of curved cores where it found them, see `settled`."""
        return self.a.stays or self.b.stays

    @property
    def polytope(self) -> bool:
        """Whether D is a polytope of which all normals of faces are tried."""
        edges = [jax.eval_shape(core.ridges).end.shape[0] for core in (self.a, self.b) if core.polytope]
        return len(edges) == 2 and edges[0] * edges[1] <= PAIRS

    @property
    def solid(self) -> bool:
        """Whether it is one with an inside: that of a box or a polyhedron and a polytope."""
        return self.polytope and max(self.a.corners, self.b.corners) > 2

    def ridges(self) -> tuple[Ridges, Ridges]:
        """The edges of a and of b, if they are polytopes."""
        return self.a.ridges().placed(self.place_a), self.b.ridges().placed(self.place_b)

    def settled(self, labels: Array) -> Array:
        """Choices (m, 3, k) of labels (3, k): as they are, and with points of a, of b and of both that move."""
        count = labels.shape[1] - self.b.label_size
        a, b = labels[:, :count], labels[:, count:]
        moved_a, moved_b = jax.vmap(self.a.settled)(a), jax.vmap(self.b.settled)(b)
        of_a, of_b = self.a.stays, self.b.stays
        pairs = [(a, b), *[(moved_a, b)] * of_a, *[(a, moved_b)] * of_b, *[(moved_a, moved_b)] * (of_a and of_b)]
        return jnp.stack([jnp.concatenate(pair, axis=1) for pair in pairs])

    def middle(self) -> Array:
        """A point (3,) in the middle of D."""
        return self.place_a.act(self.a.middle()) - self.place_b.act(self.b.middle())


class Found(NamedTuple):
    """Result of a search: a unit normal (3,), the gap s(n) along it, labels (3, k) of support points, and their error.

    error: () m, see `error_of`.
    """

    normal: Array
    gap: Array
    labels: Array
    error: Array


def judged(D: Difference, normal: Array, labels: Array, size: Array) -> Found:
    """A normal and labels, with the gap and the error."""
    gap = -sm.dot(normal, D.support(normal)[0])
    return Found(normal, gap, labels, error_of(D, normal, labels, gap, size))


def is_better(new: Found, old: Found, least: Array) -> Array:
    """The larger gap is the truer one, and of gaps that are equal to round-off that of the smaller error."""
    change = new.gap - old.gap
    return (change > least) | ((change >= -least) & (new.error < old.error))


def polished(D: Difference, found: Found, size: Array) -> Found:
    """The same optimum after Newton's method, with points that stay where they were found and with points that move."""
    choices = D.settled(found.labels)
    little = 64 * float(jnp.finfo(size.dtype).eps) * size
    least = found.gap - little

    def polish(k, best):
        labels = choices[k]
        normal = jax.lax.fori_loop(0, POLISH, lambda _, n: _newton(D, n, labels, size), found.normal)
        new = judged(D, normal, labels, size)
        # Of those without an error the one in which the most points move, for the second derivatives.
        most = jnp.where(k > 0, jnp.maximum(best.error, little), best.error)
        better = (new.error <= most) & (new.gap >= least)
        return jax.tree.map(lambda x, y: jnp.where(better, x, y), new, best)

    return jax.lax.fori_loop(0, len(choices), polish, found)


def weighted(weights: list[Array], points: list[Array]) -> Array:
    """Sum (3,) of three points, each times its weight ()."""
    return weights[0] * points[0] + weights[1] * points[1] + weights[2] * points[2]


def plane(normal: Array) -> tuple[Array, Array]:
    """Two unit vectors (..., 3) across a unit normal (..., 3) and across each other."""
    x, y, z = sm.components(normal)
    sign = jnp.where(z >= 0, jnp.ones_like(z), -jnp.ones_like(z))
    a = -1 / (sign + z)
    return sm.stack(1 + sign * x * x * a, sign * x * y * a, -sign * x), sm.stack(x * y * a, sign + y * y * a, -y)


def error_of(D: Difference, normal: Array, labels: Array, gap: Array, size: Array) -> Array:
    """Upper minus lower bound of the distance, and how far the mean of the points is beside the normal, together ()."""
    w = D.points(labels, normal)
    weights = shares(normal, w, size)
    v = weighted(weights, w)
    return jnp.abs(norm(v) - jnp.abs(gap)) + norm(v + gap * normal)


def _newton(D: Difference, normal: Array, labels: Array, size: Array) -> Array:
    """One step, to length 1; none where the conditions are singular."""

    def value(n):
        found = conditions(D, n, labels, size)
        return found, found

    step = sm.solve3(*jax.jacfwd(value, has_aux=True)(normal))
    moved = normal - step
    usable = jnp.isfinite(jnp.sum(step)) & (norm(step) < 0.5)
    moved = jnp.where(usable, moved, normal)
    return moved / norm(moved)


def _turned(x: list[Array], turn: Array) -> list[Array]:
    """Three things in their order, which begins `turn` () places later."""
    return [jnp.where(turn == 0, x[k], jnp.where(turn == 1, x[k - 2], x[k - 1])) for k in range(3)]


def _longest_first(w: list[Array]) -> tuple[list[Array], Array]:
    """Three points so that the first two are farthest apart, and by how many places () they are turned."""
    sides = [w[k - 2] - w[k] for k in range(3)]
    turn = jnp.argmax(jnp.stack([jax.lax.stop_gradient(sm.dot(x, x)) for x in sides])).astype(jnp.int32)
    return _turned(w, turn), turn


def _shows(length: Array, gap: Array, size: Array) -> Array:
    """Whether a length () of a triangle defines the normal: more than its round-off does.

    Round-off turns a normal across a length l by eps size / l, and moves the nearest point by eps size gap / l. Without
    that length the gap is wrong by l² / gap. The smaller error wins.
    """
    eps = float(jnp.finfo(size.dtype).eps)
    length, gap = length / size, gap / size
    return jax.lax.stop_gradient((length > 16 * eps) & (length * length * length > eps * gap * gap))


def conditions(D: Difference, n: Array, labels: Array, size: Array) -> Array:
    """Conditions (3,) at the optimum: n is across the triangle of the points, or its side, or along its point.

    Across a side, n is also across the line from the origin to it; and n has length 1.
    """
    (w, b, c), _ = _longest_first(D.points(labels, n))
    unit = lambda x, has: jnp.where(has, x / norm(jnp.where(has, x, jnp.ones_like(x))), jnp.zeros_like(x))
    gap = sm.dot(n, w)
    on_edge = _shows(norm(b - w), gap, size)
    e = unit(b - w, on_edge)
    beside = c - w - sm.dot(c - w, e) * e
    on_face = on_edge & _shows(norm(beside), gap, size)
    f = unit(beside, on_face)
    t = sm.cross(n, e)
    corner = (w - gap * n) / size
    edge = sm.dot(e, n) * e + sm.dot(t, w / size) * t
    face = sm.dot(e, n) * e + sm.dot(f, n) * f
    across = jnp.where(on_face, face, jnp.where(on_edge, edge, corner))
    return across + 0.5 * (sm.dot(n, n) - 1) * n


def shares(n: Array, w: list[Array], size: Array) -> list[Array]:
    """Weights (3 of ()) of three points (3,) whose mean is along n.

    They are at least 0 and of sum 1. Where the mean would lie outside of the triangle it is the nearest of its sides.
    """
    (a, b, c), turn = _longest_first([x - sm.dot(n, x) * n for x in w])  # in the plane across n
    divide = lambda x, y, has: jnp.where(has, x / jnp.where(has, y, jnp.ones_like(y)), jnp.zeros_like(x))
    longest, other = b - a, c - a
    square, across = sm.dot(longest, longest), sm.cross(n, longest)
    height, least = sm.dot(across, other), 16 * float(jnp.finfo(size.dtype).eps) * size
    wide = (square > 0) & (height * height > least * least * square)
    third = divide(-sm.dot(across, a), height, wide)
    second = divide(-sm.dot(longest, a) - third * sm.dot(longest, other), square, wide)
    inside = wide & (third >= 0) & (second >= 0) & (second + third <= 1)
    best, nearest = [1 - second - third, second, third], jnp.where(inside, -jnp.ones_like(square), jnp.inf)
    for k in range(3):
        first, side = (a, b, c)[k], (a, b, c)[k - 2] - (a, b, c)[k]
        length = sm.dot(side, side)
        share = divide(-sm.dot(side, first), length, length > 0)
        share = jnp.clip(share, jnp.zeros_like(share), jnp.ones_like(share))
        v = first + share * side
        nearer = sm.dot(v, v) < nearest
        along = [jnp.zeros_like(share)] * 3
        along[k], along[k - 2] = 1 - share, share
        best = [jnp.where(nearer, x, y) for x, y in zip(along, best, strict=True)]
        nearest = jnp.where(nearer, sm.dot(v, v), nearest)
    return _turned(best, (3 - turn) % 3)
