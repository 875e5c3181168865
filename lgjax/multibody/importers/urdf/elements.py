"""Links and joints of a URDF as numbers, checked: nothing is filled in but what the format says about absent values."""

import math
import re
from typing import Any, NamedTuple

import numpy as np

from lgjax.multibody.importers.source import numbers
from lgjax.multibody.importers.urdf.names import NUMBERS, check_parts, check_values

KINDS = ("revolute", "continuous", "prismatic", "planar", "floating", "spherical", "fixed")
# The elements that may be joints: Drake has one of its own, in its namespace or with its prefix undeclared.
DRAKE_JOINT = re.compile(r"(\{[^}]*drake[^}]*\}|(\{[^}]*\})?drake:)joint")
REQUIRED = {"mass": ("value",), "inertia": ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"), "axis": ("xyz",)}

Values = dict[str, Any]


class Inertial(NamedTuple):
    """Mass kg, com (3,) m and inertia (3, 3) kg m^2 about it in the axes of the link."""

    mass: float
    com: np.ndarray
    inertia: np.ndarray


class Mimic(NamedTuple):
    """A joint that follows another one: q = multiplier q_leader + offset."""

    leader: str
    multiplier: float
    offset: float


class JointElement(NamedTuple):
    """A <joint>: pose of the child in the parent at zero, axis in the child, and what else it says."""

    name: str
    kind: str
    parent: str
    child: str
    rotation: np.ndarray
    position: np.ndarray
    axis: tuple[float, ...]
    limit: Values | None
    dynamics: Values
    mimic: Mimic | None
    line: int


class Parsed(NamedTuple):
    """Name of the robot; inertias of its links by name; its joints in the order of the file."""

    name: str
    links: dict[str, Inertial | None]
    joints: tuple[JointElement, ...]


def elements(root: Any) -> Parsed:
    """The links and joints of a <robot>, which form one tree; ValueError names the element, the value and the line."""
    name = attribute(root, "name", "<robot>")
    found = root.findall("link")
    if not found:
        raise ValueError(f"robot {name!r} has no <link>")
    links: dict[str, Inertial | None] = {}
    for link in found:
        link_name = attribute(link, "name", "<link>")
        where = f"link {link_name!r}"
        check_parts(link, "link", where)
        inertial = _inertial(link, where)
        if link_name in links:
            raise ValueError(f"two links are named {link_name!r}{at(link)}")
        links[link_name] = inertial
    joints = tuple(_joint(e) for e in root if e.tag == "joint" or DRAKE_JOINT.fullmatch(str(e.tag)))
    _check_tree(links, joints)
    return Parsed(name, links, joints)


def at(element: Any) -> str:
    """The end of a message: where an element stands."""
    return f" (line {element.sourceline})"


def attribute(element: Any, name: str, where: str) -> str:
    value = element.get(name)
    if not value:
        raise ValueError(f"{where} in line {element.sourceline} has no attribute {name!r}")
    return value


def rotation(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Rotation by roll about x, then pitch about y, then yaw about z, axes that stay: Rz(yaw) Ry(pitch) Rx(roll)."""
    (cr, cp, cy), (sr, sp, sy) = (tuple(map(f, (roll, pitch, yaw))) for f in (math.cos, math.sin))
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def origin(values: Values | None) -> tuple[np.ndarray, np.ndarray]:
    """(rotation, position) of an <origin>, the identity if there is none."""
    given = values or {}
    return rotation(*given.get("rpy", (0.0, 0.0, 0.0))), np.array(given.get("xyz", (0.0, 0.0, 0.0)))


def _inertial(link: Any, where: str) -> Inertial | None:
    element = _only(link, "inertial", where)
    if element is None:
        return None
    check_parts(element, "inertial", f"{where}: <inertial>")
    found = _parts(element, ("origin", "mass", "inertia"), where, ("mass", "inertia"))
    turn, com = origin(found.get("origin"))
    xx, xy, xz, yy, yz, zz = (found["inertia"][name] for name in REQUIRED["inertia"])
    with np.errstate(all="ignore"):  # `build` finds and names what overflows
        inertia = turn @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ turn.T
        return Inertial(found["mass"]["value"], com, (inertia + inertia.T) / 2)


def _joint(joint: Any) -> JointElement:
    name = attribute(joint, "name", "<joint>")
    where, kind = f"joint {name!r}", joint.get("type")
    if joint.tag != "joint":  # the other types there are no spherical joints of another name
        if kind != "ball":
            raise ValueError(f"{where}: <drake:joint type={kind!r}> is not supported; known: ball{at(joint)}")
        kind = "spherical"
    if kind not in KINDS:
        raise ValueError(f"{where}: unknown type {kind!r}; known: {', '.join(KINDS)}{at(joint)}")
    sides = {}
    for side in ("parent", "child"):
        element = _only(joint, side, where)
        if element is None:
            raise ValueError(f"{where} has no <{side}>{at(joint)}")
        sides[side] = attribute(element, "link", f"{where}: <{side}>")
    check_parts(joint, "joint", where)
    needed = ("limit",) if kind in ("revolute", "prismatic") else ()
    found = _parts(joint, ("origin", "axis", "limit", "dynamics", "mimic"), where, needed)
    turn, position = origin(found.get("origin"))
    mimic = found.get("mimic")
    leader = None
    if mimic is not None:
        given = attribute(joint.find("mimic"), "joint", f"{where}: <mimic>")
        leader = Mimic(given, mimic.get("multiplier", 1.0), mimic.get("offset", 0.0))
    axis = found.get("axis", {"xyz": (1.0, 0.0, 0.0)})["xyz"]
    limit, dynamics = found.get("limit"), found.get("dynamics", {})
    return JointElement(
        name, kind, sides["parent"], sides["child"], turn, position, axis, limit, dynamics, leader, joint.sourceline
    )


def _only(element: Any, tag: str, where: str) -> Any:
    found = element.findall(tag)
    if len(found) > 1:
        raise ValueError(f"{where} has {len(found)} <{tag}> elements{at(found[1])}")
    return found[0] if found else None


def _parts(element: Any, tags: tuple[str, ...], where: str, needed: tuple[str, ...]) -> dict[str, Values]:
    """The values of the parts of an element that are there, by tag and attribute."""
    here = [child.tag for child in element]
    found = {}
    for tag in tags:
        child = _only(element, tag, where) if tag in here else None
        if child is not None:
            found[tag] = _values(child, where)
        elif tag in needed:
            raise ValueError(f"{where}: <{element.tag}> has no <{tag}>{at(element)}")
    return found


def _values(child: Any, where: str) -> Values:
    check_values(child, where)
    given = child.attrib
    for name in REQUIRED.get(child.tag, ()):
        if name not in given:
            raise ValueError(f"{where}: <{child.tag}> has no attribute {name!r}{at(child)}")
    counts = {name: count for name, count in NUMBERS[child.tag].items() if name in given}
    return {name: _number(child, name, count, where) for name, count in counts.items()}


def _number(element: Any, name: str, count: int, where: str) -> float | tuple[float, ...]:
    text, finite = element.get(name), element.tag != "limit"  # an infinite limit is none
    values = numbers(text)
    if values is None or len(values) != count or (finite and not all(map(math.isfinite, values))):
        kind = "finite number" if finite else "number"
        expected = f"a {kind}" if count == 1 else f"{count} {kind}s"
        raise ValueError(f"{where}: <{element.tag} {name}={text!r}> is not {expected}{at(element)}")
    return values[0] if count == 1 else tuple(values)


def _check_tree(links: dict[str, Inertial | None], joints: tuple[JointElement, ...]) -> None:
    """Every joint connects two links that exist, no link has two parents, one link is the root."""
    carried: dict[str, str] = {}
    for joint in joints:
        end = f" (line {joint.line})"
        for side, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in links:
                raise ValueError(f"joint {joint.name!r}: its {side} link {link!r} does not exist{end}")
        if joint.child in carried:
            before = carried[joint.child]
            raise ValueError(f"link {joint.child!r} has two parents, by the joints {before!r} and {joint.name!r}{end}")
        carried[joint.child] = joint.name
    roots = [link for link in links if link not in carried]
    if len(roots) > 1:
        raise ValueError(f"the links form {len(roots)} trees, with roots {', '.join(map(repr, roots))}")
