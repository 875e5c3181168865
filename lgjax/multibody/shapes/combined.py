"""Shapes made of shapes."""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from lgjax.groups import small_matrix as sm
from lgjax.multibody.shapes.contact import Array, Contact, Shape, farthest, unit
from lgjax.multibody.shapes.implicit import intersect


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Union(Shape):
    """The points in any of the parts; its distance from a plane is the least of theirs. Source: [tran2024] eq. (68)."""

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


def union(*shapes: Shape) -> Union:
    """The union of one or more shapes, in the frame of the body. They may overlap; only their hull touches planes."""
    if not shapes:
        raise ValueError("a union needs at least one shape")
    return Union(_shapes("union", shapes))


def intersection(*shapes: Shape) -> Shape:
    """The intersection of convex shapes, or of unions of such; the lowest point may lie where surfaces meet.

    Not of rounded shapes or of those given by a support function, which have no constraint functions: give them as
    `implicit`. ValueError for those and if no interior point is common to all parts. The distance is found by an
    iteration to round-off; see `Solved.optimum` for its residual. Source: [tran2024] section 6.4, where the maximum of
    the two distances, eq. (70), is a lower bound and no more.
    """
    if not shapes:
        raise ValueError("an intersection needs at least one shape")
    shapes = _shapes("intersection", shapes)
    # An intersection of unions is a union of intersections.
    choices = itertools.product(*(shape.parts if isinstance(shape, Union) else (shape,) for shape in shapes))
    parts = [intersect(choice) for choice in choices]
    return parts[0] if len(parts) == 1 else Union(tuple(parts))


def _shapes(name: str, shapes) -> tuple[Shape, ...]:
    """The shapes, checked to be shapes of one dtype."""
    for shape in shapes:
        if not isinstance(shape, Shape):
            raise ValueError(f"{name} takes shapes, not {shape!r}")
    dtypes = {str(leaf.dtype) for leaf in jax.tree.leaves(shapes)}
    if len(dtypes) > 1:
        raise ValueError(f"the parts of the {name} differ in dtype: {', '.join(sorted(dtypes))}")
    return tuple(shapes)
