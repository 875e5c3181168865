"""Pairs of links that an SRDF, the companion of a URDF, keeps from touching. Read first: `robot.py`."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from lgjax.multibody.importers.source import Source, one_line
from lgjax.multibody.importers.urdf.document import parse

Pairs = tuple[tuple[str, str], ...]


def disabled(source: Source, links: Sequence[str]) -> tuple[Pairs, tuple[str, ...]]:
    """Pairs of `links` that may not touch, and names in the file that are none of them.

    `disable_collisions` excludes a pair, `disable_default_collisions` a link from all others, and `enable_collisions`
    lets a pair touch again. Raises ValueError, naming the line, for a broken file and for an element without its links.
    """
    try:
        return _disabled(parse(source, "Robot.with_srdf"), links)
    except ValueError as error:
        raise ValueError(one_line(f"{source.label}: {error}")) from error


def _disabled(root: Any, links: Sequence[str]) -> tuple[Pairs, tuple[str, ...]]:
    pairs = lambda tag: [frozenset(_named(element, "link1", "link2")) for element in root.iterchildren(tag)]
    alone = {name for element in root.iterchildren("disable_default_collisions") for name in _named(element, "link")}
    off, on = set(pairs("disable_collisions")), set(pairs("enable_collisions"))
    off |= {frozenset(pair) for pair in combinations(links, 2) if alone & set(pair)} - on
    named = alone.union(*off, *on)
    known = [pair for pair in combinations(links, 2) if frozenset(pair) in off]
    return tuple(known), tuple(sorted(named - set(links)))


def _named(element: Any, *attributes: str) -> list[str]:
    for name in attributes:
        if not element.get(name):
            raise ValueError(f"line {element.sourceline}: <{element.tag}> has no {name!r}: name a link")
    return [element.get(name) for name in attributes]
