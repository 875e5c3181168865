"""Shapes made of shapes."""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.shapes.contact import Array, Contact, Shape, farthest, unit
from lgjax.shapes.convex import Placed
from lgjax.shapes.implicit import directions, intersect
from lgjax.shapes.solver import climb

SEAM_STARTS = 64


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Union(Shape):
    """Points in any of the parts; its distance from a plane is the least of theirs. Source: [tran2024] eq. (68)."""

    parts: tuple[Shape, ...]

    def support(self, direction: Array) -> Contact:
        contacts = [part.support(direction) for part in self.parts]
        points = jnp.stack([contact.point for contact in contacts])
        best = farthest(points, unit(direction))
        # The part that is farthest may itself lie on an edge or a face.
        heights = sm.matvec(points, unit(direction))
        return Contact(best.point, best.flat | jnp.stack([c.flat for c in contacts])[jnp.argmax(heights)])

    def middle(self) -> Array:
        return self.parts[0].middle()

    def core(self) -> None:
        raise ValueError("a union is not convex and has no signed distance from bodies: take its parts one by one")


def parts_of(shape: Shape) -> list[Shape]:
    """The shapes that a union is made of, also through unions in it, placed as they are; any other shape alone."""
    if isinstance(shape, Union):
        return [part for one in shape.parts for part in parts_of(one)]
    if isinstance(shape, Placed):
        return [Placed(part, shape.pose) for part in parts_of(shape.shape)]
    return [shape]


def union(*shapes: Shape) -> Union:
    """Union of one or more shapes, in the frame of the body. They may overlap; only their hull touches planes."""
    if not shapes:
        raise ValueError("a union needs at least one shape")
    return Union(_shapes("union", shapes))


def intersection(*shapes: Shape) -> Shape:
    """Intersection of convex shapes, or of unions of them; the lowest point may lie where surfaces meet.

    Rounded shapes and those given by a support function have no constraint functions: give them as `implicit`. Raises
    ValueError for them, and if no interior point is common to all parts. An iteration finds the distance to round-off;
    see `Solved.optimum` for its residual. Source: [tran2024] section 6.4, where the maximum of the two distances, eq.
    (70), is a lower bound and no more.
    """
    if not shapes:
        raise ValueError("an intersection needs at least one shape")
    shapes = _shapes("intersection", shapes)
    if any(isinstance(shape, Complement) for shape in shapes):
        return _difference(shapes)
    # An intersection of unions is a union of intersections.
    choices = itertools.product(*map(parts_of, shapes))
    parts = [intersect(choice) for choice in choices]
    return parts[0] if len(parts) == 1 else Union(tuple(parts))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Complement(Shape):
    """Points outside a shape.  Source: [tran2024] eq. (72)."""

    shape: Shape

    def support(self, direction: Array) -> Contact:
        raise ValueError("a complement alone is unbounded and has no farthest point: intersect it with a convex shape")

    def core(self) -> None:
        raise ValueError("a complement is not convex and has no signed distance from bodies")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Difference(Shape):
    """Points of a convex shape outside another one; each has one smooth constraint function."""

    body: Shape
    hole: Shape

    def support(self, direction: Array) -> Contact:
        d = unit(direction)
        whole = self.body.support(d)
        along = jnp.asarray(directions(SEAM_STARTS), d.dtype)
        starts = jax.lax.stop_gradient(jax.vmap(self.body.support)(along).point)
        size = jax.lax.stop_gradient(jnp.max(jnp.abs(starts - self.body.middle())))
        seam, _ = climb(_seam, (self.body, self.hole), d, starts, size)
        kept = self.hole.constraints(whole.point)[0] >= 0
        return Contact(jnp.where(kept, whole.point, seam), kept & whole.flat)

    def middle(self) -> Array:
        return self.body.middle()

    def core(self) -> None:
        raise ValueError("a shape without a part of it is not convex and has no signed distance from bodies")


def _seam(parts, point: Array) -> Array:
    """Two functions that vanish where the two surfaces meet and are negative in the difference."""
    body, hole = parts
    return jnp.concatenate([body.constraints(point), -hole.constraints(point)])


def complement(shape: Shape) -> Complement:
    """Points outside a shape, to be intersected with a convex one: intersection(a, complement(b)) is a without b.

    The lowest point is that of a unless b removes it, and otherwise the lowest of the curve where both surfaces meet.
    That curve need not be convex: it is searched from 70 starts spread over a, so a narrow bay can be missed. Takes one
    convex body and one complement, each with one smooth constraint (ellipsoid, sphere, capsule, implicit).
    """
    return Complement(_shapes("complement", (shape,))[0])


def _difference(shapes: tuple[Shape, ...]) -> Difference:
    """A convex shape without another."""
    whole = [shape for shape in shapes if not isinstance(shape, Complement)]
    holes = [shape.shape for shape in shapes if isinstance(shape, Complement)]
    if len(whole) != 1 or len(holes) != 1:
        raise ValueError(
            f"an intersection with a complement takes one convex shape and one complement, "
            f"not {len(whole)} and {len(holes)}"
        )
    for shape in (*whole, *holes):
        if len(shape.constraints(shape.middle())) != 1:
            raise ValueError(f"{type(shape).__name__} has faces; a complement needs shapes with one smooth surface")
    shape = Difference(whole[0], holes[0])
    points = jax.vmap(shape.body.support)(jnp.asarray(directions(SEAM_STARTS), shape.middle().dtype)).point
    inside = jax.vmap(shape.hole.constraints)(points) < 0
    if checks.known(inside) and (np.all(inside) or not np.any(inside)):
        what = "leaves nothing of" if np.all(inside) else "does not reach the surface of"
        raise ValueError(f"the complement's shape {what} the convex one, in {len(points)} directions")
    return shape


def _shapes(name: str, shapes) -> tuple[Shape, ...]:
    """The shapes, checked to be shapes of one dtype."""
    for shape in shapes:
        if not isinstance(shape, Shape):
            raise ValueError(f"{name} takes shapes, not {checks.shown(shape)}")
    dtypes = {str(leaf.dtype) for leaf in jax.tree.leaves(shapes)}
    if len(dtypes) > 1:
        raise ValueError(f"the parts of the {name} differ in dtype: {', '.join(sorted(dtypes))}")
    return tuple(shapes)
