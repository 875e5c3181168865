"""Homogeneous spaces: a manifold, a group acting on it, and what an integrator needs of the pair.

Source: [celledoni2021] section 2.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.groups.arguments import Fields, cached, takes, vector_form
from lgjax.groups.lie_group import LieGroup, element_form
from lgjax.groups.vector import Rn
from lgjax.numerics.messages import shown
from lgjax.numerics.records import Made
from lgjax.numerics.small_angle import norm

Array = jax.Array
Point = Any
Algebra = Any
Dimension = int | tuple["Dimension", ...]


@dataclass(frozen=True)
class HomogeneousSpace(Made):
    """Space as integrators see it.  Points are any pytrees; equality and hash are those of the functions.

    name       for messages.
    dim        form of an algebra element: an int for one vector with that last axis, a tuple for a tuple of vectors.
    move       (xi, y) -> y moved by the flow of xi for unit time, exp(xi) acting on y.
    dexpinv    (sigma, xi) -> the rate of sigma that makes y = move(sigma, y0) flow along xi; the sign of the side on
               which the group acts is already in it.
    bracket    (x, y) -> the bracket that goes with that dexpinv, dexpinv = 1 - bracket/2 + ..., same sign included.
    distance   (y0, y1) -> a length (...).
    group      the group that acts, where there is one.
    chart      "exp" if `move` follows the flow of a constant field, the name of another map otherwise: commutator-free
               methods and series of brackets need the former.
    factors    those of a product, for error control factor by factor.
    parts      (y, start=None) -> a tuple of the vectors (..., m) that y consists of.  Error control judges each vector
               separately, its error against its length.  A rotation is three unit vectors, so its size is 1.  Positions
               are measured from the point `start`, or from the origin where it is None.  With parts None a point is
               judged as a whole, `distance` against its largest entry.
    """

    name: str
    dim: Dimension
    move: Callable[[Algebra, Point], Point]
    dexpinv: Callable[[Algebra, Algebra], Algebra]
    bracket: Callable[[Algebra, Algebra], Algebra]
    distance: Callable[[Point, Point], Array]
    group: LieGroup | None = None
    chart: str = "exp"
    factors: tuple[HomogeneousSpace, ...] = ()
    parts: Callable[..., tuple[Array, ...]] | None = None

    def __repr__(self) -> str:
        return self.name


@cached(group=LieGroup)
def left_translation(group: LieGroup) -> HomogeneousSpace:
    """Space of a group moved from the left, y -> exp(xi) y: the field is a spatial velocity.

    Example:
        >>> space = lgjax.left_translation(lgjax.SO3)
        >>> space.move(jnp.zeros(3), jnp.eye(3)).shape
        (3, 3)
    """

    @takes(xi=(group.dim,), y=partial(element_form, group))
    def move(xi: Array, y: Point) -> Point:
        return group.compose(group.exp(xi), y)

    return HomogeneousSpace(
        name=f"left_translation({group.name})",
        dim=group.dim,
        move=move,
        dexpinv=group.dexpinv,
        bracket=group.ad,
        distance=group.distance,
        group=group,
        chart=group.chart,
        parts=group.parts,
    )


@cached(group=LieGroup)
def right_translation(group: LieGroup) -> HomogeneousSpace:
    """Space of a group moved from the right, y -> y exp(xi): the field is a body velocity.

    Right translations compose in the opposite order, which flips the sign of the bracket: dexpinv(-sigma, .).

    Example:
        >>> space = lgjax.right_translation(lgjax.SO3)
        >>> space.move(jnp.zeros(3), jnp.eye(3)).shape
        (3, 3)
    """

    @takes(xi=(group.dim,), y=partial(element_form, group))
    def move(xi: Array, y: Point) -> Point:
        return group.compose(y, group.exp(xi))

    @takes(sigma=(group.dim,), xi=(group.dim,))
    def dexpinv(sigma: Array, xi: Array) -> Array:
        if group.chart == "exp":
            return group.dexpinv(-sigma, xi)
        # In other charts exp(-σ) need not be the inverse of exp(σ): go through the spatial velocity.
        return group.dexpinv(sigma, group.Ad(group.exp(sigma), xi))

    def bracket(x: Array, y: Array) -> Array:
        return group.ad(y, x)

    return HomogeneousSpace(
        name=f"right_translation({group.name})",
        dim=group.dim,
        move=move,
        dexpinv=dexpinv,
        bracket=bracket,
        distance=group.distance,
        group=group,
        chart=group.chart,
        parts=group.parts,
    )


@cached(group=LieGroup)
def two_sided_translation(group: LieGroup) -> HomogeneousSpace:
    """Space of a group G moved by G x G, y -> exp(xi) y exp(eta): the field is a (spatial, body) pair of velocities.

    The split of a velocity is free, spatial = xi + Ad_y eta, and decides what a step has to resolve: for a fast top put
    the spin into the body part, so that neither part changes fast.
    Source: [celledoni2021] section 2.1, after eq. (3).
    """
    left, right = left_translation(group), right_translation(group)
    pair = vector_form((group.dim, group.dim))

    @takes(xi=pair, y=partial(element_form, group))
    def move(xi: tuple[Array, Array], y: Point) -> Point:
        return right.move(xi[1], left.move(xi[0], y))

    @takes(sigma=pair, xi=pair)
    def dexpinv(sigma: tuple[Array, Array], xi: tuple[Array, Array]) -> tuple[Array, Array]:
        return left.dexpinv(sigma[0], xi[0]), right.dexpinv(sigma[1], xi[1])

    @takes(x=pair, y=pair)
    def bracket(x: tuple[Array, Array], y: tuple[Array, Array]) -> tuple[Array, Array]:
        return left.bracket(x[0], y[0]), right.bracket(x[1], y[1])

    return HomogeneousSpace(
        name=f"two_sided_translation({group.name})",
        dim=(group.dim, group.dim),
        move=move,
        dexpinv=dexpinv,
        bracket=bracket,
        distance=group.distance,
        chart=group.chart,
        parts=group.parts,
    )


@cached(n=0)
def vector_space(n: int) -> HomogeneousSpace:
    """Space Rⁿ moved by addition, on which Lie group methods reduce to the classical ones."""
    return left_translation(Rn(n))


@cached(spaces=HomogeneousSpace)
def product_space(*spaces: HomogeneousSpace) -> HomogeneousSpace:
    """Product of spaces: points and algebra elements are tuples with one entry per factor, nested as the factors are.

    A tuple costs nothing at run time, where a flat vector would be split and joined in every stage, and a velocity is
    one more entry: ``product_space(right_translation(SE3), vector_space(6))`` takes a field
    (t, (pose, velocity)) -> (velocity, acceleration).  (`product` of groups, one level down, has a flat algebra.)
    """
    if not spaces:
        raise ValueError("product_space() needs at least one space")

    some = Fields(tuple, (None,) * len(spaces))

    @takes(xi=some, y=some)
    def move(xi: tuple[Algebra, ...], y: tuple[Point, ...]) -> tuple[Point, ...]:
        return tuple(space.move(a, b) for space, a, b in zip(spaces, xi, y, strict=True))

    @takes(sigma=some, xi=some)
    def dexpinv(sigma: tuple[Algebra, ...], xi: tuple[Algebra, ...]) -> tuple[Algebra, ...]:
        return tuple(space.dexpinv(a, b) for space, a, b in zip(spaces, sigma, xi, strict=True))

    @takes(x=some, y=some)
    def bracket(x: tuple[Algebra, ...], y: tuple[Algebra, ...]) -> tuple[Algebra, ...]:
        return tuple(space.bracket(a, b) for space, a, b in zip(spaces, x, y, strict=True))

    @takes(y0=some, y1=some)
    def distance(y0: tuple[Point, ...], y1: tuple[Point, ...]) -> Array:
        parts = [space.distance(a, b) for space, a, b in zip(spaces, y0, y1, strict=True)]
        return norm(jnp.stack(jnp.broadcast_arrays(*parts), axis=-1))

    return HomogeneousSpace(
        name=" x ".join(space.name for space in spaces),
        dim=tuple(space.dim for space in spaces),
        move=move,
        dexpinv=dexpinv,
        bracket=bracket,
        distance=distance,
        chart=common_chart(spaces),
        factors=spaces,
    )


def common_chart(spaces: tuple[HomogeneousSpace, ...]) -> str:
    """The chart of a product: that of all factors, or "mixed"."""
    charts = {space.chart for space in spaces}
    return charts.pop() if len(charts) == 1 else "mixed"


@cached(space=HomogeneousSpace, n=1)
def power_space(space: HomogeneousSpace, n: int) -> HomogeneousSpace:
    """Power of a space: n copies along the leading axis of its points, all moved by one vectorized call.

    The space's own functions already broadcast; only `distance` differs, one number for all copies.  Where the space
    has `parts`, error control judges every copy separately.
    """

    def distance(y0: Point, y1: Point) -> Array:
        return norm(space.distance(y0, y1))

    return replace(space, name=f"({space.name})^{n}", distance=distance)


@cached(name=str, dim=1)
def frame_space(name: str, dim: int, flow: Callable, distance: Callable) -> HomogeneousSpace:
    """Manifold with frame fields E_1 ... E_dim and no group: methods may use only frozen fields Σ xi_i E_i.

    flow(xi, y) is the point that Σ xi_i E_i with constant coefficients reaches from y in unit time; distance(y0, y1) a
    length.  Only commutator-free methods integrate here: the brackets of a frame need not lie in its span with constant
    coefficients, so there is no dexpinv, and asking for it raises TypeError.
    Source: [celledoni2021] section 2.1, eq. (4).
    """

    for argument, function in (("flow", flow), ("distance", distance)):
        if not callable(function):
            raise TypeError(f"{argument} must be a function, got {shown(function)}")

    def refuse(*_: Any) -> Any:
        raise TypeError(f"{name} is a frame without a group: use a CommutatorFree method")

    return HomogeneousSpace(name=name, dim=dim, move=flow, dexpinv=refuse, bracket=refuse, distance=distance)
