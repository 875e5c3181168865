"""Names in a URDF, and checks that nothing of it is lost because it is written in another way.

A reader fills in what is absent: no damping, limits of 0, no turn. So an element in which something is absent must not
say anything else instead: no value as an element or as text, no misspelt name, and nothing that belongs elsewhere.
Elements and attributes of other tools are told by a prefix or by a name that resembles none of the format's.
"""

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

# Attributes of each shape in <geometry>, and how many numbers each holds.
SHAPES = {
    "sphere": {"radius": 1},
    "cylinder": {"radius": 1, "length": 1},
    "capsule": {"radius": 1, "length": 1},
    "box": {"size": 3},
}
# The same for all elements.
NUMBERS = SHAPES | {
    "origin": {"xyz": 3, "rpy": 3},
    "mass": {"value": 1},
    "inertia": {"ixx": 1, "ixy": 1, "ixz": 1, "iyy": 1, "iyz": 1, "izz": 1},
    "axis": {"xyz": 3},
    "limit": {"lower": 1, "upper": 1, "effort": 1, "velocity": 1},
    "dynamics": {"damping": 1, "friction": 1},
    "mimic": {"multiplier": 1, "offset": 1},
}
REFERENCES = {"mimic": ("joint",)}
# Attributes that published robots have besides, and that all readers ignore.
OTHERS = {
    "limit": ("acceleration", "deceleration", "jerk", "command_effort", "current", "gear_velocity", "twist"),
    "dynamics": ("spring_reference", "spring_stiffness", "D", "K", "mu_coulomb", "mu_viscous"),
}
# Elements in others, as far as they are read.
PARTS = {
    "link": ("inertial", "collision"),
    "inertial": ("origin", "mass", "inertia"),
    "joint": ("origin", "axis", "limit", "dynamics", "mimic"),
    "collision": ("origin", "geometry"),
    "geometry": tuple(SHAPES),
}


def check_values(element: Any, where: str) -> None:
    """ValueError for an element without some of its attributes that says something else instead, or nothing."""
    tag = element.tag
    known, given = (*REFERENCES.get(tag, ()), *NUMBERS[tag]), element.keys()
    if all(name in given for name in known):
        return
    here, listed = f"{where}: <{tag}> in line {element.sourceline}", ", ".join(known)
    for child in _own(part.tag for part in element):
        if child in known:
            raise ValueError(f'{here} has an element <{child}>: write it as an attribute, <{tag} {child}="...">')
        raise ValueError(f"{here} has an unknown element <{child}>; its values are attributes: {listed}")
    for name in _own(given):
        if name not in known and name not in OTHERS.get(tag, ()):
            raise ValueError(f"{here} has the unknown attribute {name!r}; known: {listed}")
    texts = (element.text, *(part.tail for part in element))
    if text := " ".join(text.strip() for text in texts if text and text.strip()):
        raise ValueError(f"{here} has the text {text!r}; its values are attributes: {listed}")
    # The identity is the only thing that an empty element may stand for.
    if tag != "origin" and not any(name in given for name in known):
        raise ValueError(f"{here} has none of the attributes {listed}: give one, or remove the element")


def check_parts(element: Any, kind: str, where: str) -> None:
    """ValueError for an element without some of its parts that has one of a similar name, or what belongs in them."""
    fault = _misplaced(kind, tuple(element.keys()), tuple(part.tag for part in element))
    if fault:
        raise ValueError(f"{where} in line {element.sourceline} has {fault}")


@lru_cache(1000)  # most elements of a robot look alike
def _misplaced(kind: str, attributes: tuple[str, ...], parts: tuple[str, ...]) -> str | None:
    given = [(name, f"an attribute {name!r}") for name in _own(attributes)]
    given += [(name, f"an element <{name}>") for name in _own(parts)]
    absent = [part for part in PARTS[kind] if part not in parts]
    for name, shown in given:
        for part in absent:
            if _alike(name, part):
                return f"{shown}: write it as an element <{part}>"
            # Links had an origin of their own once.
            if name != "origin" and name in (PARTS.get(part) or NUMBERS[part]):
                return f"{shown}, which belongs in <{part}>"
    return None


def _own(names: Iterable[str]) -> Iterator[str]:
    """The names without those that have a prefix, which are other tools' own."""
    return (name for name in names if ":" not in name and "{" not in name)


def _alike(name: str, part: str) -> bool:
    close = abs(len(name) - len(part)) <= 2
    return close and SequenceMatcher(None, name.lower(), part).ratio() >= 0.75
