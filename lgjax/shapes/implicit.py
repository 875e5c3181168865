"""Convex shapes given by functions: a support mapping, an implicit surface, and the intersection of convex shapes.

An intersection is again a set of smooth convex inequalities, those of its parts together. The maximum of the parts'
distances from a plane is not its distance: the lowest point may lie where two surfaces meet.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.shapes.contact import Array, Contact, Shape, unit
from lgjax.shapes.convex import Facets, Placed, Polyhedron
from lgjax.shapes.solver import Optimum, maximize, solve

# Directions in which a user's function is tried when it is given.
SAMPLES = 200


def directions(count: int) -> np.ndarray:
    """Unit vectors (count + 6, 3): the six axes, then a Fibonacci spiral over the sphere."""
    k = np.arange(count) + 0.5
    z, turn = 1 - 2 * k / count, np.pi * (1 + 5**0.5) * k
    r = np.sqrt(1 - z * z)
    return np.concatenate([np.eye(3), -np.eye(3), np.stack([r * np.cos(turn), r * np.sin(turn), z], axis=1)])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Support(Shape):
    """A convex body given by its support point, function(direction, *parameters) -> (3,)."""

    function: Callable = field(metadata={"static": True})
    parameters: tuple
    anchor: Array  # (3,) the mean of some support points; its dtype is that of the shape

    def support(self, direction: Array) -> Contact:
        return Contact(self.function(unit(direction), *self.parameters), jnp.zeros((), bool))

    def middle(self) -> Array:
        return self.anchor


class Solved(Shape):
    """A shape whose support point is found by `maximize` over its constraints, from a start and with a size."""

    start: Array
    size: Array

    def optimum(self, direction: Array) -> Optimum:
        """The support point with its multipliers, the residual of the search and whether the point is unique."""
        return maximize(_inequalities, self, unit(direction), self.start, self.size)

    def support(self, direction: Array) -> Contact:
        best = self.optimum(direction)
        # A point that was not found must not pass for one: NaN, which drivers report.
        found = best.residual < float(jnp.finfo(best.z.dtype).eps) ** 0.5
        return Contact(jnp.where(found, best.z, jnp.nan), ~best.unique)

    def middle(self) -> Array:
        return self.start


def _inequalities(shape: Shape, point: Array) -> Array:
    return shape.constraints(point)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Implicit(Solved):
    """Convex set function(point, *parameters) <= 0.  Source: [tran2024] eqs. (61)-(64)."""

    function: Callable = field(metadata={"static": True})
    parameters: tuple
    scale: Array  # () minus the function's value at the start
    start: Array
    size: Array

    def constraints(self, point: Array) -> Array:
        return (self.function(point, *self.parameters) / self.scale)[None]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Intersection(Solved):
    """Points in all of the parts, which are convex and smooth or polyhedral."""

    parts: tuple[Shape, ...]
    start: Array
    size: Array

    def constraints(self, point: Array) -> Array:
        return jnp.concatenate([part.constraints(point) for part in self.parts])


def support(function: Callable, parameters: tuple = (), dtype: DTypeLike | None = None) -> Support:
    """Convex body given by its support point function(direction, *parameters) -> (3,), m, body frame.

    direction (3,) has length 1. The point must be the farthest of the body along it; its derivatives are used
    unchanged, and `flat` is always False. parameters: arrays that can be batched and differentiated. dtype: that of the
    directions, by default that of the first parameter. Raises ValueError "non-convex support" naming a sampled
    direction along which the point of another direction lies farther, which is impossible for a convex body.
    """
    checks.function("function", function)
    parameters = _parameters(parameters)
    leaves = jax.tree.leaves(parameters)
    dtype = dtype or checks.float_dtype(leaves[0] if leaves else 0.0)
    along = jnp.asarray(directions(SAMPLES), dtype)
    points = jax.vmap(lambda d: function(d, *parameters))(along)
    if points.shape != along.shape or points.dtype != along.dtype:
        raise ValueError(f"the support function returns {points.dtype}{points.shape[1:]}, not {along.dtype}(3,)")
    _check_support(along, points)
    return Support(function, parameters, jax.lax.stop_gradient(jnp.mean(points, axis=0)))


def _parameters(parameters: Any) -> tuple:
    """Arrays, or anything else that JAX can trace, in a tuple or list."""
    if not isinstance(parameters, tuple | list):
        raise TypeError(f"parameters must be a tuple of arrays, got {checks.shown(parameters)}")
    for i, leaf in enumerate(jax.tree.leaves(tuple(parameters))):
        checks.floats(f"parameters[{i}]", leaf, np.shape(leaf), checks.float_dtype(leaf))
    return tuple(parameters)


def _check_support(along, points, slack: float = 0.0) -> None:
    """Known points must each be the farthest of all along their own direction, to round-off and `slack`, m."""
    if not checks.known(points):
        return
    d, p = np.asarray(along, float), np.asarray(points, float)
    if not np.all(np.isfinite(p)):
        bad = d[~np.isfinite(p).all(axis=1)][0]
        raise ValueError(f"the support point along {bad.tolist()} is not finite")
    height = d @ p.T
    excess = height.max(axis=1) - np.diag(height)
    worst = int(np.argmax(excess))
    if excess[worst] > slack + 64 * float(jnp.finfo(along.dtype).eps) * np.abs(p).max():
        raise ValueError(
            f"non-convex support: along {d[worst].tolist()} another point lies {excess[worst]:.3g} m farther "
            f"than the support point {p[worst].tolist()}"
        )


def implicit(
    function: Callable, inside: ArrayLike = 0.0, parameters: tuple = (), dtype: DTypeLike | None = None
) -> Implicit:
    """Convex body function(point, *parameters) <= 0, m, body frame; the function is convex, with two derivatives.

    inside (3,): a point well within it, from which its size is measured and each search starts. dtype: by default that
    of `inside`. Raises ValueError if the function is not negative there, or if in a sampled direction the body is
    unbounded, the search for the farthest point does not converge, or another point lies farther ("non-convex
    support").
    """
    checks.function("function", function)
    parameters, dtype = _parameters(parameters), dtype or checks.float_dtype(inside)
    start = jax.lax.stop_gradient(checks.array("inside point of the implicit surface", inside, (3,), dtype))
    value = function(start, *parameters)
    if jnp.shape(value) != ():
        raise ValueError(f"the implicit surface takes a function to a number, not to an array of shape {value.shape}")
    if checks.known(value) and not value < 0:
        raise ValueError(f"the implicit surface does not contain its inside point {start.tolist()}: value {value}")
    # The doubling at which each axis leaves the body; convex, so beyond it all are outside.
    doublings = 2.0 ** jnp.arange(-40, 40, dtype=dtype)
    rays = doublings[:, None, None] * jnp.asarray(directions(0), dtype)
    outside = jax.vmap(jax.vmap(lambda z: function(start + z, *parameters) > 0))(rays)
    if checks.known(outside) and not np.all(np.any(outside, axis=0)):
        axis = directions(0)[~np.any(outside, axis=0)][0]
        raise ValueError(f"the implicit surface has no end along {axis.tolist()}")
    size = jnp.max(doublings[jnp.argmax(outside, axis=0)])
    shape = Implicit(function, parameters, jax.lax.stop_gradient(-value), start, jax.lax.stop_gradient(size))
    _check_search("implicit surface", shape)
    return shape


class EmptyIntersectionError(ValueError):
    """Raised where convex shapes share no interior point."""


def intersect(parts: tuple[Shape, ...]) -> Intersection:
    """The intersection of convex shapes with constraint functions; EmptyIntersectionError if there is none."""
    parts = tuple(map(_with_faces, parts))
    start, size, depth = jax.lax.stop_gradient(_deepest(parts))
    if checks.known(depth) and not depth < 0:
        raise EmptyIntersectionError(
            f"the parts of the intersection have no interior point in common: at best, near "
            f"{np.asarray(start).tolist()}, a constraint is {float(depth):.3g} instead of negative"
        )
    shape = Intersection(parts, start, size)
    _check_search("intersection", shape)
    return shape


def _with_faces(part: Shape) -> Shape:
    """The part, with its faces if it is a polyhedron, placed or not."""
    if isinstance(part, Placed):
        return Placed(_with_faces(part.shape), part.pose)
    return Facets.of(part) if type(part) is Polyhedron else part


@jax.jit
def _deepest(parts: tuple[Shape, ...]) -> tuple[Array, Array, Array]:
    """The point (3,) where the greatest of the constraints is least, the size () of the smallest part, that least."""
    dtype = jax.tree.leaves(parts)[0].dtype
    axes = jnp.asarray(directions(0), dtype)
    middles = [part.middle() for part in parts]
    reach = [jax.vmap(part.support)(axes).point - middle for part, middle in zip(parts, middles, strict=True)]
    size = jnp.min(jnp.stack([jnp.max(jnp.abs(r)) for r in reach]))
    start = jnp.mean(jnp.stack(middles), axis=0) / size
    level = jnp.max(_sunken((parts, size), sm.join(start, jnp.zeros((1,), dtype)))) + 1
    down = jnp.asarray([0, 0, 0, -1], dtype)
    deepest, _ = solve(_sunken, (parts, size), down, sm.join(start, level[None]), jnp.ones((), dtype))
    return deepest[:3] * size, size, deepest[3]


def _sunken(parameters, point: Array) -> Array:
    """The constraints of all parts at point[:3], in units of the size, each lowered by point[3]."""
    parts, size = parameters
    return jnp.concatenate([part.constraints(point[:3] * size) for part in parts]) - point[3]


# Compiled once for all shapes that are alike but for their numbers.
@jax.jit
def _trial(shape: Solved, along: Array) -> Optimum:
    return jax.vmap(shape.optimum)(along)


def _check_search(name: str, shape: Solved) -> None:
    """Find the support points of a known shape along a few directions; they must be found, and be support points."""
    if not checks.known(shape):
        return
    along = jnp.asarray(directions(32), shape.start.dtype)
    best = _trial(shape, along)
    residual, eps = np.asarray(best.residual), float(jnp.finfo(along.dtype).eps)
    worst = int(np.argmax(np.where(np.isfinite(residual), residual, np.inf)))
    if not residual[worst] < eps**0.5:
        where = np.asarray(along[worst]).tolist()
        raise ValueError(f"the search for the farthest point of the {name} along {where} leaves {residual[worst]:.3g}")
    # Where the farthest point is not unique its height is good to the root of round-off only.
    _check_support(along, best.z, slack=eps**0.5 * float(shape.size))
