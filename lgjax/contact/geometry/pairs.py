"""Pairs of links that can touch each other: their shapes, in groups that are computed alike.

Read first: `../contacts.py`. Next: `patches.py`, where two shapes touch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact.geometry.candidates import Corners, segment_of
from lgjax.contact.geometry.patches import points_of
from lgjax.dynamics.jacobians import carrier
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.shapes.contact import Shape
from lgjax.shapes.convex import Faced, Placed, Polyhedron, Rounded

Links = tuple[tuple[str, str], ...]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Couples:
    """Pairs of shapes of the same kinds: every array of the two shapes has a leading axis of pairs.

    links: of each pair. count: points with which each touches.
    """

    first: Shape
    second: Shape
    links: Links = field(metadata={"static": True})
    count: int = field(metadata={"static": True})


class Touching(NamedTuple):
    """Additions of pairs to the contacts: segments of spheres and capsules, other couples, and for each candidate its
    links and usual friction, in this order."""

    segments: tuple[Corners, Corners] | None
    couples: tuple[Couples, ...]
    links: Links
    friction: list[float]


def touching(
    model: Model, fixed: Sequence[Any], pairs: Any, points: int, filters: Mapping[tuple[int, int], float | None]
) -> Touching:
    """The candidates of pairs of links; fixed: shapes with their links and frictions, `contacts._Fixed`.

    filters: the pairs of numbers of shapes that a file lets touch, with friction, see `Robot.shape_pairs`. Links that
    they join touch with no other shapes.
    """
    ends: list[tuple[Corners, Corners]] = []
    links: list[tuple[str, str]] = []
    usual: list[float] = []
    groups: dict[Any, list] = {}
    for first, second in _checked(model, pairs):
        for a, b, friction in _together(_shapes(fixed, first), _shapes(fixed, second), filters):
            segments = segment_of(a.whole), segment_of(b.whole)
            if segments[0] is not None and segments[1] is not None:
                ends.append((segments[0], segments[1]))
                links.append((first, second))
                usual.append(friction)
                continue
            both = _convex(a.whole, first), _convex(b.whole, second)
            leaves, structure = jax.tree.flatten(both)
            key = structure, tuple(x.shape for x in leaves)
            groups.setdefault(key, []).append((both, (first, second), friction))
    couples = []
    for group in groups.values():
        first, second = jax.tree.map(lambda *x: jnp.stack(x), *(both for both, _, _ in group))
        a, b = group[0][0]
        count = points_of(a, b, points)
        couples.append(Couples(first, second, tuple(pair for _, pair, _ in group), count))
        for _, pair, friction in group:
            links += [pair] * count
            usual += [friction] * count
    stack = lambda side: jax.tree.map(lambda *x: jnp.stack(x).astype(model.dtype), *(pair[side] for pair in ends))
    return Touching((stack(0), stack(1)) if ends else None, tuple(couples), tuple(links), usual)


def _checked(model: Model, pairs: Any) -> list[tuple[str, str]]:
    if not isinstance(pairs, list | tuple):
        raise TypeError(f"pairs must be a list of pairs of links, got {checks.shown(pairs)}")
    seen: set[tuple[str, str]] = set()
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise TypeError(f"pairs must be a list of pairs of links, got {checks.shown(pair)} in it")
        first, second = pair
        if carrier(model, first)[0] == carrier(model, second)[0]:
            raise ValueError(f"the links of a pair move on different bodies, got {first!r} and {second!r} of one")
        if (first, second) in seen or (second, first) in seen:
            raise ValueError(f"pairs name {first!r} and {second!r} twice")
        seen.add((first, second))
    return [tuple(pair) for pair in pairs]


def _shapes(fixed: Sequence[Any], link: str) -> list[Any]:
    own = [one for one in fixed if one.link == link]
    if not own:
        raise ValueError(f"a pair names link {link!r}, which has no shape")
    return own


def _together(first: Sequence[Any], second: Sequence[Any], filters: Mapping) -> list[tuple[Any, Any, float]]:
    """The shapes of two links that touch each other, with their friction."""
    pairs = [(a, b) for a in first for b in second]
    key = lambda a, b: (min(a.number, b.number), max(a.number, b.number))
    allowed = [(a, b) for a, b in pairs if key(a, b) in filters]

    def friction(a, b) -> float:
        own = filters.get(key(a, b))
        return max(a.friction, b.friction) if own is None else own

    return [(a, b, friction(a, b)) for a, b in allowed or pairs]


def _convex(shape: Shape, link: str) -> Shape:
    """The shape, with its faces if it is a polyhedron, checked to be convex."""
    inner = shape
    while isinstance(inner, Placed | Rounded):
        inner = inner.shape
    try:
        inner.core()
        return _faced(shape)
    except ValueError as error:
        raise ValueError(f"a shape of link {link!r} cannot be in a pair: {error}") from None


def _faced(shape: Shape) -> Shape:
    if isinstance(shape, Placed):
        return Placed(_faced(shape.shape), shape.pose)
    if isinstance(shape, Rounded):
        return Rounded(_faced(shape.shape), shape.radius)
    return Faced.of(shape) if type(shape) is Polyhedron else shape
