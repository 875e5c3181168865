"""Mass, center of mass and inertia of shapes of uniform density.

Ellipsoids, boxes, capsules and polyhedra have exact formulas. All other shapes with constraint functions are integrated
by quadrature: a convex body is integrated over the rays from an inner point to its surface, and a union is the
alternating sum over the intersections of its parts (inclusion and exclusion), so that overlaps count once.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.execution.compiled import compiled
from lgjax.groups.se3 import Pose
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.shapes.combined import Difference, Union, parts_of
from lgjax.shapes.contact import Array, Shape
from lgjax.shapes.convex import Box, Capsule, Cylinder, Ellipsoid, Placed, Polyhedron, faces_of, placed
from lgjax.shapes.implicit import EmptyIntersectionError, Solved, intersect

FEW_RAYS, ROUNDS = 12, 8  # rays and rounds that find how long and wide a body is; a round finds about a digit of it
DOUBLINGS, DIGITS = 6, 52  # bisections of a ray: 6 find one of 64 powers of two, 52 the digits behind it


class MassProperties(NamedTuple):
    """mass () kg, center (3,) m, and inertia (3, 3) kg m^2 about the center, along the axes of the shape's frame."""

    mass: Array
    center: Array
    inertia: Array


class Moments(NamedTuple):
    """Integrals over a body about a point `about` (3,): volume (), first moment (3,), second moment (3, 3) of z z^T."""

    volume: Array
    first: Array
    second: Array
    about: Array


def mass_properties(
    shape: Shape, density: ArrayLike = 1.0, mass: ArrayLike | None = None, rays: int = 200
) -> MassProperties:
    """Mass properties of a shape with uniform `density`, kg/m^3, or with a total `mass`, kg, instead.

    Exact and differentiable for ellipsoids, boxes, capsules, cylinders and polyhedra, placed or not; a polyhedron's
    vertices must be known, and it needs SciPy. For unions, also of unions, intersections and implicit surfaces 2 rays^2
    lines are integrated, in a space where the shape is about as long as wide: thin plates and rods are as accurate as
    cubes. Smooth surfaces are integrated to round-off. Where surfaces meet in edges the relative error is up to about
    4 rays^-2 in the mass and 15 rays^-2 in the inertia of what is integrated, which of a union is what its parts share;
    first derivatives are good to about rays^-1 there, and second derivatives are wrong. ValueError for shapes without
    constraint functions (rounded ones, support functions) and for a mass or density not above zero. Sources:
    [tran2024] section 7 (closed forms); B. Mirtich, Fast and accurate computation of polyhedral mass properties, 1996
    (here by tetrahedra from an inner point, which is the same integral).
    """
    volume, first, second, about = moments(shape, checks.integer("rays", rays))
    name, value = ("density", density) if mass is None else ("mass", mass)
    value = checks.positive(name, checks.array(name, value, (), volume.dtype))
    rho = value if mass is None else value / volume
    offset = first / volume
    about_center = second - sm.outer(first, offset)
    inertia = sm.trace(about_center)[None, None] * sm.identity(3, volume.dtype) - about_center
    return MassProperties(rho * volume, about + offset, rho * inertia)


def recentered(shape: Shape, rays: int = 200) -> Placed:
    """Shape moved so that its center of mass, at uniform density, is the origin."""
    center = mass_properties(shape, rays=rays).center
    return placed(shape, Pose(sm.identity(3, center.dtype), -center))


def moments(shape: Shape, rays: int = 200) -> Moments:
    """The integrals that mass properties are made of; m^3, m^4, m^5."""
    if isinstance(shape, Placed):
        volume, first, second, about = moments(shape.shape, rays)
        R = shape.pose.rotation
        turned = sm.matmul(R, sm.matmult(second, R))
        return Moments(volume, sm.matvec(R, first), turned, shape.pose.act(about))
    if isinstance(shape, Ellipsoid):
        a = shape.semi_axes
        volume = 4 / 3 * np.pi * a[0] * a[1] * a[2]
        return Moments(volume, jnp.zeros_like(a), sm.diagonal(volume / 5 * a * a), shape.center)
    if isinstance(shape, Box):
        a = shape.half_extents
        volume = 8 * a[0] * a[1] * a[2]
        return Moments(volume, jnp.zeros_like(a), sm.diagonal(volume / 3 * a * a), shape.center)
    if isinstance(shape, Capsule):
        return _capsule(shape)
    if isinstance(shape, Cylinder):
        r, h = shape.radius, shape.half_length
        volume = 2 * np.pi * r * r * h
        second = sm.diagonal(volume * sm.stack(r * r / 4, r * r / 4, h * h / 3))
        return Moments(volume, jnp.zeros_like(shape.center), second, shape.center)
    if isinstance(shape, Polyhedron):
        return _polyhedron(shape)
    if isinstance(shape, Union):
        return _union(shape, rays)
    if isinstance(shape, Difference):
        common = _by_rays(intersect((shape.body, shape.hole)), rays)
        return _total([(1.0, moments(shape.body, rays)), (-1.0, common)])
    if isinstance(shape, Solved):
        return _by_rays(shape, rays)
    raise ValueError(f"no mass properties of a {type(shape).__name__} shape: take what it is made of, or `implicit`")


def _capsule(shape: Capsule) -> Moments:
    """A cylinder and two half balls, the center of each 3/8 of the radius beyond the cylinder's end."""
    r, h = shape.radius, shape.half_length
    cylinder, ball = 2 * np.pi * r * r * h, 4 / 3 * np.pi * r * r * r
    across = cylinder * r * r / 4 + ball * r * r / 5
    along = cylinder * h * h / 3 + ball * (r * r / 5 + h * h + 3 / 4 * r * h)
    second = sm.diagonal(sm.stack(across, across, along))
    return Moments(cylinder + ball, jnp.zeros_like(shape.center), second, shape.center)


def _polyhedron(shape: Polyhedron) -> Moments:
    """Sum over tetrahedra (m, a, b, c), m the mean of the vertices and (a, b, c) the outward triangles of the hull."""
    faces, about = faces_of(shape.vertices), jnp.mean(shape.vertices, axis=0)
    corners = shape.vertices[faces] - about
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    volume = sm.dot(a, sm.cross(b, c)) / 6
    total = a + b + c
    pairs = sm.outer(a, a) + sm.outer(b, b) + sm.outer(c, c) + sm.outer(total, total)
    return Moments(
        jnp.sum(volume),
        jnp.sum(volume[:, None] / 4 * total, axis=0),
        jnp.sum(volume[:, None, None] / 20 * pairs, axis=0),
        about,
    )


def _union(shape: Union, rays: int) -> Moments:
    """Inclusion and exclusion: one part counts positive, what two share negative, what three share positive, ..."""
    flat = parts_of(shape)
    pieces = [(1.0, moments(part, rays)) for part in flat]
    for count in range(2, len(flat) + 1):
        for parts in itertools.combinations(flat, count):
            try:
                common = intersect(parts)
            except EmptyIntersectionError:
                continue
            pieces.append(((-1.0) ** (count - 1), _by_rays(common, rays)))
    return _total(pieces)


def _total(pieces: list[tuple[float, Moments]]) -> Moments:
    """The sum of pieces with signs, about the point of the first."""
    about = pieces[0][1].about
    volume, first, second, _ = pieces[0][1]
    for sign, piece in pieces[1:]:
        moved = _moved(piece, about)
        volume, first, second = volume + sign * moved.volume, first + sign * moved.first, second + sign * moved.second
    return Moments(volume, first, second, about)


def _moved(piece: Moments, about: Array) -> Moments:
    """The same integrals about another point."""
    volume, first, second, old = piece
    d = old - about
    mixed = sm.outer(first, d)
    return Moments(volume, first + volume * d, second + mixed + sm.transpose(mixed) + volume * sm.outer(d, d), about)


@compiled
def _by_rays(shape: Solved, rays: int) -> Moments:
    """Integrals over a convex body, along rays in a space where it is about as long as wide; 0 for an empty one."""
    # Rays and space may be any, so they have no derivative; the distances along the rays have.
    still = jax.lax.stop_gradient(shape)
    start = still.start, still.size * sm.identity(3, still.start.dtype)
    middle, axes = jax.lax.fori_loop(0, ROUNDS, lambda _, space: _rounder(still, *space), start)
    volume, first, second = _along_rays(shape, middle, axes, rays)
    scale = jnp.where(_holds(still, middle), jnp.abs(sm.det3(axes)), 0)
    turned = sm.matmul(axes, sm.matmult(second, axes))
    return Moments(scale * volume, scale * sm.matvec(axes, first), scale * turned, middle)


def _rounder(shape: Solved, middle: Array, axes: Array) -> tuple[Array, Array]:
    """Origin (3,) and axes, the columns (3, 3), in which a convex body has about the second moments of a unit ball.

    A convex body with exactly these about its center of mass holds a ball of radius 1 and lies in one of radius 3. Few
    rays see only a part of a thin body, but a rounder part than all of it, so that each round comes closer.
    """
    volume, first, second = _along_rays(shape, middle, axes, FEW_RAYS)
    offset = first / volume
    spread = jnp.linalg.cholesky(5 * (second / volume - sm.outer(offset, offset)))
    # The mean of points of a convex body is one of it, however rough the integrals are.
    new = middle + sm.matvec(axes, offset), sm.matmul(axes, spread)
    usable = _holds(shape, new[0]) & jnp.all(jnp.isfinite(spread))
    return jnp.where(usable, new[0], middle), jnp.where(usable, new[1], axes)


def _along_rays(shape: Solved, middle: Array, axes: Array, rays: int) -> tuple[Array, Array, Array]:
    """Volume, first and second moment of a convex body in the given space, about its origin, which is in the body.

    They are the integrals of r^3/3, r^4/4 u and r^5/5 u u^T over the directions u, r the way to the surface.
    """
    nodes, weights = np.polynomial.legendre.leggauss(rays)
    turns = 2 * np.pi * np.arange(2 * rays) / (2 * rays)
    flat = np.sqrt(1 - nodes**2)[:, None]
    z = np.broadcast_to(nodes[:, None], (rays, 2 * rays))
    along = jnp.asarray(np.stack([flat * np.cos(turns), flat * np.sin(turns), z], axis=-1), middle.dtype)
    # Circle by circle: jaxlib 0.10.2 computes a user's matrix @ z wrongly beyond 16384 points at once (jax #39103).
    circle = jax.vmap(lambda direction: _exit(shape, middle, direction))
    r = jax.lax.map(circle, sm.matvec(axes, along)).reshape(-1)
    share = jnp.asarray(np.repeat(weights * np.pi / rays, 2 * rays), middle.dtype)
    u, cube = along.reshape(-1, 3), share * r * r * r
    return (
        jnp.sum(cube) / 3,
        jnp.sum((cube * r / 4)[:, None] * u, axis=0),
        jnp.sum((cube * r * r / 5)[:, None, None] * sm.outer(u, u), axis=0),
    )


def _exit(shape: Solved, middle: Array, direction: Array) -> Array:
    """Multiple () of a direction (3,) that leads from an inner point to the surface of a convex body."""
    still = jax.lax.stop_gradient(shape)

    def halve(at: Callable[[Array], Array], bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        inner, outer = bounds
        half = (inner + outer) / 2
        inside = jnp.max(still.constraints(middle + at(half) * direction)) <= 0
        return jnp.where(inside, half, inner), jnp.where(inside, outer, half)

    # First the power of two, then the digits.
    most = jnp.full((), 2.0 ** (DOUBLINGS - 1), middle.dtype)
    powers = jax.lax.fori_loop(0, DOUBLINGS, lambda _, x: halve(jnp.exp2, x), (-most, most))
    bounds = jnp.exp2(powers[0]), jnp.exp2(powers[1])
    inner, outer = jax.lax.fori_loop(0, DIGITS, lambda _, x: halve(lambda r: r, x), bounds)

    # Bisection has no derivative; Newton steps at its end have, the second one for second derivatives.
    r, ray = (inner + outer) / 2, lambda r: shape.constraints(middle + r * direction)
    for _ in range(2):
        values, slopes = jax.jvp(ray, (r,), (jnp.ones_like(r),))
        # Not the derivative of a maximum, which is 0 / 0 where XLA computes the values twice with other digits.
        last = jnp.argmax(values)
        step = values[last] / jnp.where(slopes[last] > 0, slopes[last], 1)
        r = jnp.where((slopes[last] > 0) & (jnp.abs(step) < r / 2), r - step, r)
    return r


def _holds(shape: Solved, point: Array) -> Array:
    """Whether a point (3,) is an inner one; where the shape is empty none is."""
    return jnp.max(shape.constraints(point)) < 0
