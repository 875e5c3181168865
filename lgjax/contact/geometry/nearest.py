"""The point of a height field that is nearest to a point: on a face, an edge or a vertex of its cells.

A cell is made of straight lines, its edges among them, whose nearest points are in closed form. From the best of some
of them Newton's method leads on. Every candidate is a point of the surface, so a distance is never too short. The
search itself is not differentiated: two more steps of Newton's method from what it found have its derivatives, the
first three.

Read first: `height_field.py`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.geometry.height_field import HeightField
from lgjax.numerics import small_matrix as sm

Array = jax.Array

# Turns of the guess for a ball that is larger than the cells, of the search, and of Newton's method within a cell.
GUESSES, SEARCHES, STEPS = 3, 3, 4
SMALL = 0.25  # radius as a part of the size of a cell, up to which the four cells around a point are enough
# Straight lines from which the steps begin divide a cell into as many parts: a twisted one can have two points that are
# nearest to a large ball.
FEW, MANY = 2, 4


class Cell(NamedTuple):
    """Cells of a height field, seen from points: the rest is linear in s and in t, both 0 to 1.

    x, y, z: their first corners minus the points. dx, dy: sizes. rise_x, rise_y: of z along the first edges. twist: how
    much more it rises along the second ones.
    """

    x: Array
    y: Array
    z: Array
    dx: Array
    dy: Array
    rise_x: Array
    rise_y: Array
    twist: Array

    def at(self, s: Array, t: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Coordinates x, y, z of the point of the surface at (s, t), and dz/ds and dz/dt."""
        slope_s, slope_t = self.rise_x + t * self.twist, self.rise_y + s * self.twist
        return self.x + s * self.dx, self.y + t * self.dy, self.z + s * slope_s + t * self.rise_y, slope_s, slope_t


def nearest(field: HeightField, points: Array, radii: Array, origin: Array) -> tuple[Array, Array]:
    """Signed distances (k,), negative below the surface, and unit normals (k, 3), of points relative to `origin`.

    The normal is along the line from the nearest point of the surface, to round-off of its face where the point is on
    the surface. For balls of radii (k,), all up to a quarter of a cell's size, the four cells around the point are
    searched, and the result is exact up to half that size; beyond it may be too large. Otherwise those are searched
    that lie around the cell below the point, three by three, and twice those around the nearest point so far: exact up
    to the size of a cell. For a ball larger than the cells the search may begin at the point of `_guess` instead.
    """
    across = (points[:, :2] + origin[:2] - field.corner) / field.spacing
    level = points[:, 2] + origin[2]
    place, s, t, inside = _search(*jax.lax.stop_gradient((field, points, radii, origin)))
    cell = jax.tree.map(lambda x: x[:, 0, 0], _cells(field, across, level, place, 1))
    free = _free(cell, s, t)
    for _ in range(2):
        s, t = _newton(cell, s, t, free)
    x, y, z, slope_s, slope_t = cell.at(s, t)
    upward = sm.stack(-slope_s / cell.dx, -slope_t / cell.dy, jnp.ones_like(z))
    upward = upward / jnp.sqrt(sm.dot(upward, upward))[:, None]
    away = -sm.stack(x, y, z)
    square = sm.dot(away, away)
    # On an edge or a vertex the direction is round-off where the point itself is there.
    least = float(jnp.finfo(z.dtype).eps) * cell.dx * cell.dy
    beside = ~(free[0] & free[1]) & (square > least)
    length = jnp.sqrt(jnp.where(beside, square, jnp.ones_like(square)))
    outward = away / jnp.where(inside, -length, length)[:, None]
    normal = jnp.where(beside[:, None], outward, upward)
    return sm.dot(normal, away), normal


def _search(field: HeightField, points: Array, radii: Array, origin: Array) -> tuple[Array, Array, Array, Array]:
    """Cells (k, 2), s and t (k,) of the nearest points, and whether the points are below the surface."""
    places = points + origin
    at = lambda places: (places[:, :2] - field.corner) / field.spacing
    across, level, below = at(places), places[:, 2], field(places)[0]

    def among(first, count, lines):
        return _best(_cells(field, across, level, first, count), first, lines)

    def small():
        return among(jnp.round(across) - 1, 2, FEW)

    def large():
        guess = _guess(field, places, radii)
        beyond = guess - places
        nearer = (radii > jnp.min(field.spacing)) & (sm.dot(beyond, beyond) < (level - below) ** 2)
        place = jnp.floor(jnp.where(nearer[:, None], at(guess), across))
        found = among(place - 1, 3, MANY)
        for _ in range(SEARCHES - 1):
            found = among(found[0] - 1, 3, MANY)
        return found

    # One answer for all balls, so that a batch with the same ones does not take both ways.
    fit = jnp.max(radii) <= SMALL * jnp.min(field.spacing)
    return *jax.lax.cond(fit, small, large), level < below


def _guess(field: HeightField, places: Array, radii: Array) -> Array:
    """Points (k, 3) of the surface near the places, if it is smooth: below those of the balls against its normal."""
    point = places
    for _ in range(GUESSES):
        point = places - radii[:, None] * field(point)[1]
    return sm.stack(*sm.components(point)[:2], field(point)[0])


def _cells(field: HeightField, across: Array, level: Array, first: Array, count: int) -> Cell:
    """Squares (k, count, count) of cells, of which the first (k, 2) are given by whole numbers."""
    steps = jnp.asarray(np.arange(count + 1), across.dtype)
    sizes = field.heights.shape
    along = lambda axis: first[:, axis, None] + steps
    # Beyond the grid the last heights go on.
    index = [jnp.clip(along(axis), 0, sizes[axis] - 1).astype(jnp.int32) for axis in (0, 1)]
    z = field.heights.reshape(-1)[index[0][:, :, None] * sizes[1] + index[1][:, None, :]] - level[:, None, None]
    x, y = (field.spacing[axis] * (along(axis) - across[:, axis, None])[:, :-1] for axis in (0, 1))
    a, b, c, d = z[:, :-1, :-1], z[:, :-1, 1:], z[:, 1:, :-1], z[:, 1:, 1:]
    whole = lambda x: jnp.broadcast_to(x, a.shape)
    x, y, dx, dy = whole(x[:, :, None]), whole(y[:, None, :]), whole(field.spacing[0]), whole(field.spacing[1])
    return Cell(x, y, a, dx, dy, c - a, b - a, a - b - c + d)


def _best(cells: Cell, first: Array, lines: int) -> tuple[Array, Array, Array]:
    """The nearest point of squares of cells (k, n, n): its cell (k, 2), counted from the first, s and t (k,)."""
    s, t = u, w = _on_lines(cells, lines)
    for _ in range(STEPS):
        u, w = _newton(cells, u, w, (True, True))
        u, w = jnp.clip(u, 0, 1), jnp.clip(w, 0, 1)
    better = _square(cells, u, w) < _square(cells, s, t)
    s, t = jnp.where(better, u, s), jnp.where(better, w, t)
    flat = lambda x: x.reshape(len(x), -1)
    best = jnp.argmin(flat(_square(cells, s, t)), 1)
    n = cells.z.shape[1]
    place = jnp.stack([best // n, best % n], 1).astype(first.dtype)
    return first + place, _taken(flat(s), best), _taken(flat(t), best)


def _on_lines(cells: Cell, lines: int) -> tuple[Array, Array]:
    """s and t of the nearest points of cells on some of their straight lines: the edges, and others in between."""
    none = jnp.zeros_like(cells.z)
    s, t, least = none, none, _square(cells, none, none)
    along = lambda a, d, b, e: jnp.clip(-(a * d + b * e) / (d * d + e * e), 0, 1)
    for k in range(lines + 1):
        end = none + k / lines
        x, y, z, slope_s, _ = cells.at(none, end)
        first = along(x, cells.dx, z, slope_s), end
        x, y, z, _, slope_t = cells.at(end, none)
        for u, w in (first, (end, along(y, cells.dy, z, slope_t))):
            square = _square(cells, u, w)
            better = square < least
            s, t, least = jnp.where(better, u, s), jnp.where(better, w, t), jnp.where(better, square, least)
    return s, t


def _square(cells: Cell, s: Array, t: Array) -> Array:
    x, y, z = cells.at(s, t)[:3]
    return x * x + y * y + z * z


def _taken(x: Array, index: Array) -> Array:
    return jnp.take_along_axis(x, index[..., None], -1)[..., 0]


def _newton(cell: Cell, s: Array, t: Array, free: tuple[Any, Any]) -> tuple[Array, Array]:
    """One step towards the nearest point along the coordinates that are free."""
    x, y, z, slope_s, slope_t = cell.at(s, t)
    none, one = jnp.zeros_like(z), jnp.ones_like(z)
    gs = jnp.where(free[0], x * cell.dx + z * slope_s, none)
    gt = jnp.where(free[1], y * cell.dy + z * slope_t, none)
    ss = jnp.where(free[0], cell.dx * cell.dx + slope_s * slope_s, one)
    tt = jnp.where(free[1], cell.dy * cell.dy + slope_t * slope_t, one)
    plain = slope_s * slope_t
    whole = plain + z * cell.twist
    # Farther away than the surface is curved there is no nearest point inside the cell.
    mixed = jnp.where(whole * whole < 0.9 * ss * tt, whole, plain)
    mixed = jnp.where(free[0] & free[1], mixed, none)
    det = ss * tt - mixed * mixed
    return s - (tt * gs - mixed * gt) / det, t - (ss * gt - mixed * gs) / det


def _free(cell: Cell, s: Array, t: Array) -> tuple[Array, Array]:
    """Whether a nearest point may move in s and in t: it is not held at the end of its cell.

    One that is at the end without being pressed there, to round-off, is free: edges of flat ground are no edges.
    """
    x, y, z, slope_s, slope_t = cell.at(s, t)
    small = float(jnp.finfo(z.dtype).eps) ** 0.5 * jnp.sqrt(x * x + y * y + z * z)
    gs, gt = x * cell.dx + z * slope_s, y * cell.dy + z * slope_t
    least_s = small * jnp.sqrt(cell.dx * cell.dx + slope_s * slope_s)
    least_t = small * jnp.sqrt(cell.dy * cell.dy + slope_t * slope_t)
    held = lambda u, g, least: ((u <= 0) & (g > least)) | ((u >= 1) & (g < -least))
    return jax.lax.stop_gradient((~held(s, gs, least_s), ~held(t, gt, least_t)))
