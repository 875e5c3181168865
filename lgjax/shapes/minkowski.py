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

POLISH = 4  # Newton steps
FLAT = 1e-6  # sines of angles, and lengths relative to the size, below which points count as on a line, or as one


class Difference(NamedTuple):
    """The cores of two bodies and where they are; world axes about the origin of the first body."""

    a: Core
    place_a: Pose
    b: Core
    place_b: Pose

    def label(self, normal: Array) -> Array:
        """Labels of both support points: of a along a unit normal (3,), of b against it."""
        first = self.a.label(sm.tmatvec(self.place_a.rotation, normal))
        return jnp.concatenate([first, self.b.label(-sm.tmatvec(self.place_b.rotation, normal))])

    def points(self, label: Array, normal: Array) -> tuple[Array, Array]:
        """The points (3,) of a and of b with a label, as they move with the normal."""
        count = len(label) - self.b_size()
        x = self.a.point(label[:count], sm.tmatvec(self.place_a.rotation, normal))
        y = self.b.point(label[count:], -sm.tmatvec(self.place_b.rotation, normal))
        return self.place_a.act(x), self.place_b.act(y)

    def b_size(self) -> int:
        """How many numbers of a label belong to b."""
        return jax.eval_shape(self.b.label, self.place_b.translation).shape[0]

    def point(self, label: Array, normal: Array) -> Array:
        """The point (3,) of D with a label."""
        x, y = self.points(label, normal)
        return x - y

    def support(self, normal: Array) -> tuple[Array, Array]:
        """The point (3,) of D farthest along a unit normal, and its label."""
        label = self.label(normal)
        return self.point(label, normal), label

    @property
    def stays(self) -> bool:
        """Whether a search keeps points of curved cores where it found them, see `settled`."""
        return self.a.stays or self.b.stays

    @property
    def solid(self) -> bool:
        """Whether D is a polytope with an inside, whose face normals are known: that of a box and a polytope."""
        return self.a.polytope and self.b.polytope and max(self.a.corners, self.b.corners) > 2

    def settled(self, label: Array) -> Array:
        """The label whose points move with the normal."""
        count = len(label) - self.b_size()
        return jnp.concatenate([self.a.settled(label[:count]), self.b.settled(label[count:])])

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


def polished(D: Difference, found: Found, size: Array) -> Found:
    """The same optimum after Newton's method, with points that stay where they were found and with points that move."""
    choices = found.labels[None]
    if D.stays:
        choices = jnp.concatenate([choices, jax.vmap(D.settled)(found.labels)[None]])
    least = found.gap - 64 * float(jnp.finfo(size.dtype).eps) * size

    def polish(k, best):
        labels = choices[k]
        normal = jax.lax.fori_loop(0, POLISH, lambda _, n: _newton(D, n, labels, size), found.normal)
        new = judged(D, normal, labels, size)
        better = (new.error <= best.error) & (new.gap >= least)
        return jax.tree.map(lambda x, y: jnp.where(better, x, y), new, best)

    return jax.lax.fori_loop(0, len(choices), polish, found)


def weighted(weights: list[Array], points: list[Array]) -> Array:
    """Sum (3,) of three points, each times its weight ()."""
    return weights[0] * points[0] + weights[1] * points[1] + weights[2] * points[2]


def error_of(D: Difference, normal: Array, labels: Array, gap: Array, size: Array) -> Array:
    """Upper minus lower bound of the distance, and how far the mean of the points is beside the normal, together ()."""
    weights, w = shares(D, normal, labels, size)
    v = weighted(weights, w)
    return jnp.abs(norm(v) - jnp.abs(gap)) + norm(v + gap * normal)


def _newton(D: Difference, normal: Array, labels: Array, size: Array) -> Array:
    """One step, to length 1; none where the conditions are singular."""
    value = lambda n: conditions(D, n, labels, size)
    step = sm.solve3(jax.jacfwd(value)(normal), value(normal))
    moved = normal - step
    usable = jnp.isfinite(jnp.sum(step)) & (norm(step) < 0.5)
    moved = jnp.where(usable, moved, normal)
    return moved / norm(moved)


class _Triangle(NamedTuple):
    """A triangle of points of D, the longer of two sides first.

    e, f: (3,) unit vectors along that side and across it, in the plane; 0 where there is none. edge, face: () bool,
    whether there are. sides: lengths () of the first side along e, and of the other along e and f. swapped: () bool,
    whether the first side leads to the third point.
    """

    e: Array
    f: Array
    edge: Array
    face: Array
    sides: tuple[Array, Array, Array]
    swapped: Array


def _triangle(w: list[Array], size: Array) -> _Triangle:
    still = jax.lax.stop_gradient
    first, second = w[1] - w[0], w[2] - w[0]
    swapped = still(sm.dot(first, first) < sm.dot(second, second))
    first, second = jnp.where(swapped, second, first), jnp.where(swapped, first, second)
    unit = lambda x, has: jnp.where(has, x / norm(jnp.where(has, x, jnp.ones_like(x))), jnp.zeros_like(x))
    edge = still(norm(first) > FLAT * size)
    e = unit(first, edge)
    across = second - sm.dot(second, e) * e
    # Where nearly on a line, the third point counts for nothing.
    face = edge & still((norm(across) > FLAT * norm(second)) & (norm(second) > FLAT * size))
    f = unit(across, face)
    return _Triangle(e, f, edge, face, (sm.dot(e, first), sm.dot(e, second), sm.dot(f, second)), swapped)


def conditions(D: Difference, n: Array, labels: Array, size: Array) -> Array:
    """Conditions (3,) at the optimum: n is across the triangle of the points, or its side, or along its point.

    Across a side, n is also across the line from the origin to it; and n has length 1.
    """
    w = [D.point(label, n) for label in labels]
    of = _triangle(w, size)
    t = sm.cross(n, of.e)
    corner = (w[0] - sm.dot(n, w[0]) * n) / size
    edge = sm.dot(of.e, n) * of.e + sm.dot(t, w[0] / size) * t
    face = sm.dot(of.e, n) * of.e + sm.dot(of.f, n) * of.f
    across = jnp.where(of.face, face, jnp.where(of.edge, edge, corner))
    return across + 0.5 * (sm.dot(n, n) - 1) * n


def shares(D: Difference, n: Array, labels: Array, size: Array) -> tuple[list[Array], list[Array]]:
    """Weights (3 of ()) of the points of the labels, whose mean is along n, and these points."""
    w = [D.point(label, n) for label in labels]
    of = _triangle(w, size)
    along, beside, height = of.sides
    divide = lambda x, y, has: jnp.where(has, x / jnp.where(has, y, jnp.ones_like(y)), jnp.zeros_like(x))
    other = divide(-sm.dot(of.f, w[0]), height, of.face)
    one = divide(-sm.dot(of.e, w[0]) - other * beside, along, of.edge)
    clip = lambda x: jnp.clip(x, jnp.zeros_like(x), jnp.ones_like(x))
    first, one, other = clip(1 - one - other), clip(one), clip(other)
    total = first + one + other
    second, third = jnp.where(of.swapped, other, one), jnp.where(of.swapped, one, other)
    return [first / total, second / total, third / total], w
