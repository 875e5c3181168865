"""Mass, centre of mass and inertia of shapes of uniform density.

Ellipsoids, boxes, capsules and polyhedra have exact formulas. All other shapes with constraint functions are integrated
by quadrature: a convex body is integrated over the rays from an inner point to its surface, and a union is the
alternating sum over the intersections of its parts (inclusion and exclusion), so that overlaps count once.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.execution.compiled import compiled
from lgjax.groups.se3 import Pose
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.shapes.combined import Difference, Union
from lgjax.shapes.contact import Array, Shape
from lgjax.shapes.convex import Box, Capsule, Cylinder, Ellipsoid, Placed, Polyhedron, faces_of, placed
from lgjax.shapes.implicit import EmptyIntersectionError, Solved, intersect


class MassProperties(NamedTuple):
    """mass () kg, center (3,) m, and inertia (3, 3) kg m^2 about the centre, along the axes of the shape's frame."""

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
    vertices must be known, and it needs SciPy. For unions, intersections and implicit surfaces 2 rays^2 lines are
    integrated; the relative error is about rays^-2 or less where parts meet, and much smaller where surfaces are
    smooth. ValueError for shapes without constraint functions (rounded ones, support functions) and for a mass or
    density not above zero. Sources: [tran2024] section 7 (closed forms); B. Mirtich, Fast and accurate computation of
    polyhedral mass properties, 1996 (here by tetrahedra from an inner point, which is the same integral).
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
    """Shape moved so that its centre of mass, at uniform density, is the origin."""
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
    """A cylinder and two half balls, the centre of each 3/8 of the radius beyond the cylinder's end."""
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
    pieces = [(1.0, moments(part, rays)) for part in shape.parts]
    for count in range(2, len(shape.parts) + 1):
        for parts in itertools.combinations(shape.parts, count):
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
    """Integrals over a convex body along the rays u from its middle: of r^3/3, r^4/4 u and r^5/5 u u^T over u."""
    middle = shape.middle()
    nodes, weights = np.polynomial.legendre.leggauss(rays)
    turns = 2 * np.pi * np.arange(2 * rays) / (2 * rays)
    flat = np.sqrt(1 - nodes**2)[:, None]
    z = np.broadcast_to(nodes[:, None], (rays, 2 * rays))
    along = np.stack([flat * np.cos(turns), flat * np.sin(turns), z], axis=-1).reshape(-1, 3)
    share = np.repeat(weights * np.pi / rays, 2 * rays)
    u, share = jnp.asarray(along, middle.dtype), jnp.asarray(share, middle.dtype)
    r = jax.vmap(lambda direction: _exit(shape, middle, direction))(u)
    cube = share * r * r * r
    return Moments(
        jnp.sum(cube) / 3,
        jnp.sum((cube * r / 4)[:, None] * u, axis=0),
        jnp.sum((cube * r * r / 5)[:, None, None] * sm.outer(u, u), axis=0),
        middle,
    )


def _exit(shape: Solved, middle: Array, direction: Array) -> Array:
    """Distance () from an inner point to the surface of a convex body along a direction (3,), by bisection."""

    def halve(_, bounds):
        inner, outer = bounds
        half = (inner + outer) / 2
        inside = jnp.max(shape.constraints(middle + half * direction)) <= 0
        return jnp.where(inside, half, inner), jnp.where(inside, outer, half)

    most = 4 * shape.size
    inner, outer = jax.lax.fori_loop(0, 64, halve, (jnp.zeros_like(most), most))
    return (inner + outer) / 2
