"""URDF, through yourdfpy.

yourdfpy reads what it can and fills in the rest (a missing moment of inertia is 1 kg m^2, unknown joint types pass).
So the elements that matter for the motion are checked first and only those are passed on: no geometry, no meshes.
"""

import io
import math
import os
import re
from functools import cache
from typing import Any, Literal

import numpy as np

from lgjax.multibody.build import Body, Joint, build
from lgjax.multibody.importers.source import Source, from_file, numbers, one_line, read, require
from lgjax.multibody.importers.urdf.collision import collision_geometry
from lgjax.multibody.importers.urdf.names import NUMBERS, REFERENCES, check_parts, check_values
from lgjax.multibody.model import Model
from lgjax.numerics import checks

KINDS = ("revolute", "continuous", "prismatic", "planar", "floating", "spherical", "fixed")
# The elements that may be joints: Drake has one of its own, in its namespace or with its prefix undeclared.
DRAKE_JOINT = re.compile(r"(\{[^}]*drake[^}]*\}|(\{[^}]*\})?drake:)joint")
XACRO = re.compile(r"(\{[^}]*\})?xacro:|\{http[^}]*/xacro\}")
REQUIRED = {"mass": ("value",), "inertia": ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"), "axis": ("xyz",)}


def load_urdf(
    path_or_text: str | os.PathLike,
    floating_base: bool = True,
    mimic: Literal["error", "independent"] = "error",
    check_inertia: Literal["error", "warn"] = "error",
) -> Model:
    """Load a Model from a URDF file, or from its text (a string that starts with '<').

    Body frames are the link frames; children are in the order of the joints in the file; links on fixed joints are
    merged into the body that carries them. floating_base: give the root link a free joint, or fix it to the world.
    mimic: "error" refuses joints that follow others, "independent" gives them coordinates of their own. Limits, damping
    and friction are read, and of collision geometry boxes, spheres, cylinders and capsules (`Model.geometry`). Visual
    geometry, transmissions and tags of other tools are not part of the dynamics and are ignored, and no mesh is opened.
    Namespaces are ignored: a name without a prefix is the format's. Where a value is absent that could be meant by
    something else (an element, a text, a misspelt or unknown name, an attribute in another element), that is an error.
    A revolute or prismatic joint must have a <limit>, where lower and upper are 0 if absent, as the format says; an
    absent effort or velocity is no limit.

    A spherical joint is written type="spherical", as Bullet and MuJoCo read it, or <drake:joint type="ball">, as Drake
    reads it; its damping is that of each of its three velocities, and limits of its angles are ignored.
    The axis of a planar joint is the normal of its plane, as the format says, also where it is omitted and so is x;
    x and y of the plane are those of the link where the axis is z. A floating joint constrains nothing, so its link is
    a free body beside the others, whatever its parent: the configuration has its pose in the world, and the origin in
    the file is ignored. A massless root link that carries nothing but such links is the world itself.

    Raises ImportError without the extra `urdf`; ValueError in one line, naming file, element and value, for a file that
    cannot be read or is not a URDF, unknown types, missing, misplaced or malformed numbers, misspelt names, links and
    joints that do not form one tree, and for what `build` refuses.
    """
    floating_base = checks.truth("floating_base", floating_base)
    if mimic not in ("error", "independent"):
        raise ValueError(f"mimic is 'error' or 'independent', not {mimic!r}")
    yourdfpy = require("yourdfpy", "urdf", "load_urdf")
    source = read(path_or_text, "URDF")
    try:
        root = _parse(source)
        essentials = _essentials(root, mimic)
        robot = yourdfpy.URDF.load(
            io.BytesIO(_etree().tostring(essentials)), build_scene_graph=False, load_meshes=False
        ).robot
        with np.errstate(all="ignore"):  # `build` finds and names what overflows
            bodies = _bodies(robot, floating_base)
        found = build(bodies, robot.name, check_inertia=check_inertia, geometry=collision_geometry(root))
        return from_file(found, source)
    except (ValueError, SyntaxError) as error:  # lxml's errors of syntax are of Python's kind
        raise ValueError(one_line(f"{source.label}: {error}")) from error


@cache
def _etree() -> Any:
    return require("lxml.etree", "urdf", "load_urdf")


def _parse(source: Source):
    """The root element <robot>.

    A prefix that no namespace declares, a version of XML that does not exist and a declaration that is not at the start
    are common in old files and harmless. Entities are not: readers differ in whether they see them.
    """
    etree = _etree()
    parser = etree.XMLParser(
        recover=True, resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True,
        encoding="utf-8" if source.path is None else None,  # a text has been decoded, whatever it declares
    )  # fmt: skip
    try:
        root = etree.fromstring(source.content, parser)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"not well-formed XML: {error}") from error
    harmless = etree.ErrorTypes.ERR_UNKNOWN_VERSION, etree.ErrorTypes.ERR_RESERVED_XML_NAME
    errors = [e for e in parser.error_log if e.domain != etree.ErrorDomains.NAMESPACE and e.type not in harmless]
    if root is None or errors:
        where = f", line {errors[0].line}: {errors[0].message.strip()}" if errors else ""
        raise ValueError(f"not well-formed XML{where}")
    dtd = root.getroottree().docinfo.internalDTD
    entity = next(dtd.iterentities(), None) if dtd is not None else None
    if entity is not None:
        raise ValueError(f"the file declares the entity {entity.name!r}: entities are not supported")
    foreign = root.xpath("//*[namespace-uri() or contains(name(), ':')]")
    xacro = next((e for e in foreign if XACRO.match(e.tag)), None)
    if xacro is not None:
        raise ValueError(f"line {xacro.sourceline} is a xacro macro: expand the file with xacro first")
    for element in foreign:  # other readers ignore namespaces: a name without a prefix is the format's
        name = element.tag.rpartition("}")[2]
        if element.prefix is None and ":" not in name:
            element.tag = name
    if root.tag != "robot":
        shown = root.tag if root.prefix is None else f"{root.prefix}:{etree.QName(root).localname}"
        raise ValueError(f"no <robot>: the root element is <{shown}>")
    return root


def _essentials(root, mimic: str):
    """A <robot> with the checked elements that matter for the motion, and nothing else."""
    robot = _etree().Element("robot", name=_attribute(root, "name", "<robot>"))
    links = root.findall("link")
    if not links:
        raise ValueError(f"robot {robot.get('name')!r} has no <link>")
    for link in links:
        where = f"link {_attribute(link, 'name', '<link>')!r}"
        kept = _keep(robot, link, ("name",))
        check_parts(link, "link", where)
        inertial = _only(link, "inertial", where)
        if inertial is not None:
            check_parts(inertial, "inertial", f"{where}: <inertial>")
            _copy_checked(_keep(kept, inertial), inertial, ("origin", "mass", "inertia"), where, ("mass", "inertia"))
    for element in root:
        if element.tag == "joint" or DRAKE_JOINT.fullmatch(str(element.tag)):
            _essential_joint(robot, element)
    followers = [joint.get("name") for joint in robot.findall("joint") if joint.find("mimic") is not None]
    if followers and mimic == "error":
        raise ValueError(
            f"mimic joints are not supported: {', '.join(map(repr, followers))} (mimic='independent' frees them)"
        )
    _check_tree(robot)
    return robot


def _essential_joint(robot, joint) -> None:
    name = _attribute(joint, "name", "<joint>")
    where, kind = f"joint {name!r}", joint.get("type")
    if joint.tag != "joint":  # the other types there are no spherical joints of another name
        if kind != "ball":
            raise ValueError(f"{where}: <drake:joint type={kind!r}> is not supported; known: ball")
        kind = "spherical"
    if kind not in KINDS:
        raise ValueError(f"{where}: unknown type {kind!r}; known: {', '.join(KINDS)}")
    kept = _etree().SubElement(robot, "joint", name=name, type=kind)
    for side in ("parent", "child"):
        element = _only(joint, side, where)
        if element is None:
            raise ValueError(f"{where} has no <{side}>")
        _attribute(element, "link", f"{where}: <{side}>")
        _keep(kept, element, ("link",))
    check_parts(joint, "joint", where)
    needed = ("limit",) if kind in ("revolute", "prismatic") else ()
    _copy_checked(kept, joint, ("origin", "axis", "limit", "dynamics", "mimic"), where, needed)


def _keep(parent, element, attributes=()):
    """A bare copy of `element` under `parent`, with the given attributes."""
    return _etree().SubElement(parent, element.tag, {a: element.get(a) for a in attributes})


def _only(element, tag: str, where: str):
    found = element.findall(tag)
    if len(found) > 1:
        raise ValueError(f"{where} has {len(found)} <{tag}> elements")
    return found[0] if found else None


def _attribute(element, name: str, where: str) -> str:
    value = element.get(name)
    if not value:
        raise ValueError(f"{where} in line {element.sourceline} has no attribute {name!r}")
    return value


def _copy_checked(target, element, tags, where: str, needed) -> None:
    here = [child.tag for child in element]
    for tag in tags:
        child = _only(element, tag, where) if tag in here else None
        if child is None:
            if tag in needed:
                raise ValueError(f"{where}: <{element.tag}> has no <{tag}>")
            continue
        check_values(child, where)
        given = dict(child.attrib)
        for attribute in REQUIRED.get(tag, ()):
            if attribute not in given:
                raise ValueError(f"{where}: <{tag}> has no attribute {attribute!r}")
        for attribute, count in NUMBERS[tag].items():
            if attribute in given:
                _check_numbers(tag, attribute, given[attribute], count, where)
        known = (*REFERENCES.get(tag, ()), *NUMBERS[tag])
        _etree().SubElement(target, tag, {a: given[a] for a in known if a in given})


def _check_numbers(tag: str, attribute: str, text: str, count: int, where: str) -> None:
    finite = tag != "limit"  # an infinite limit is none
    values = numbers(text)
    if values is None or len(values) != count or (finite and not all(math.isfinite(x) for x in values)):
        kind = "finite number" if finite else "number"
        expected = f"a {kind}" if count == 1 else f"{count} {kind}s"
        raise ValueError(f"{where}: <{tag} {attribute}={text!r}> is not {expected}")


def _check_tree(robot) -> None:
    """Every joint connects two links that exist, no link has two parents, one link is the root."""
    links: dict[str, None] = {}
    for link in robot.findall("link"):
        if link.get("name") in links:
            raise ValueError(f"two links are named {link.get('name')!r}")
        links[link.get("name")] = None
    carried: dict[str, str] = {}
    for joint in robot.findall("joint"):
        name, child = joint.get("name"), joint.find("child").get("link")
        for side in ("parent", "child"):
            link = joint.find(side).get("link")
            if link not in links:
                raise ValueError(f"joint {name!r}: its {side} link {link!r} does not exist")
        if child in carried:
            raise ValueError(f"link {child!r} has two parents, by the joints {carried[child]!r} and {name!r}")
        carried[child] = name
    roots = [link for link in links if link not in carried]
    if len(roots) > 1:
        raise ValueError(f"the links form {len(roots)} trees, with roots {', '.join(map(repr, roots))}")


def _bodies(robot, floating_base: bool) -> list[Body]:
    """Bodies of a parsed robot, the root link first, the others in the order of their joints."""
    by_child = {joint.child: joint for joint in robot.joints}
    inertials = {link.name: link.inertial for link in robot.links}
    root_joint = "root_joint"
    while any(joint.name == root_joint for joint in robot.joints):
        root_joint += "_"
    bodies = []
    for link in robot.links:
        if link.name not in by_child:
            carried = {joint.type for joint in robot.joints if joint.parent == link.name}
            is_world = not floating_base or (link.inertial is None and carried == {"floating"})
            root = Joint(root_joint, "fixed" if is_world else "free")
            bodies.append(_body(link.name, None, root, None, link.inertial))
    for joint in robot.joints:
        parent, origin = (None, None) if joint.type == "floating" else (joint.parent, joint.origin)
        bodies.append(_body(joint.child, parent, _joint(joint), origin, inertials[joint.child]))
    return bodies


def _joint(joint) -> Joint:
    limits: dict[str, Any] = {}
    if joint.limit is not None:
        limits = {"effort": joint.limit.effort, "velocity_limit": joint.limit.velocity}
        if joint.type in ("revolute", "prismatic"):
            limits |= {"lower": joint.limit.lower or 0.0, "upper": joint.limit.upper or 0.0}
            if limits["lower"] > limits["upper"]:
                raise ValueError(
                    f"joint {joint.name!r}: lower limit {limits['lower']} is above the upper limit {limits['upper']}"
                )
    if joint.dynamics is not None:
        limits |= {"damping": joint.dynamics.damping, "friction": joint.dynamics.friction}
    given: dict[str, Any] = {name: float(value) for name, value in limits.items() if value is not None}
    if joint.type in ("fixed", "floating", "spherical"):
        return Joint(joint.name, {"floating": "free"}.get(joint.type, joint.type), **given)
    return Joint(joint.name, joint.type, tuple(map(float, joint.axis)), **given)


def _body(name: str, parent: str | None, joint: Joint, origin, inertial) -> Body:
    """origin, and that of the inertial, are 4x4 matrices, or None for the identity."""
    place = np.eye(4) if origin is None else origin
    if inertial is None:
        return Body(name, parent, joint, place[:3, :3], place[:3, 3])
    frame = np.eye(4) if inertial.origin is None else inertial.origin
    rotation, com = frame[:3, :3], frame[:3, 3]
    inertia = rotation @ inertial.inertia @ rotation.T
    return Body(name, parent, joint, place[:3, :3], place[:3, 3], inertial.mass, com, (inertia + inertia.T) / 2)
