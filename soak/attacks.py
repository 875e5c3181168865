"""Attacks on readers of XML and of robot descriptions: entities, files outside the folder, endless depth and length.

Each is a function of the root of a real file and of the random numbers, and returns the bytes of a file.
"""

import random
from typing import Any

from lxml import etree

# A folder beside the one that the mutated file lies in; nothing there may be opened.
OUTSIDE = "outside"


def element(root: Any, draw: random.Random, below_root: bool = True) -> Any:
    """A random element, the root only if there is no other or `below_root` is False."""
    found = [e for e in root.iter() if isinstance(e.tag, str) and (e is not root or not below_root)]
    return draw.choice(found) if found else root


def attribute(root: Any, draw: random.Random) -> tuple[Any, str]:
    """A random element and the name of one of its attributes."""
    pairs = [(e, a) for e in root.iter() if isinstance(e.tag, str) for a in e.attrib]
    if not pairs:
        root.set("name", "x")
    return draw.choice(pairs or [(root, "name")])


def entity_bomb(root: Any, draw: random.Random) -> bytes:
    """Ten entities, each ten times the one before, used in an attribute or as text."""
    levels = draw.choice((2, 5, 10, 30))
    lines = [f'<!ENTITY a{i} "{f"&a{i - 1};" * 10 if i else "x" * 10}">' for i in range(levels)]
    return _with_dtd(root, draw, "".join(lines), f"&a{levels - 1};")


def quadratic_bomb(root: Any, draw: random.Random) -> bytes:
    return _with_dtd(root, draw, f'<!ENTITY a "{"x" * 50_000}">', "&a;" * draw.choice((10, 2000)))


def number_entity(root: Any, draw: random.Random) -> bytes:
    """A harmless entity that holds a number: readers that leave it out read another model."""
    return _with_dtd(root, draw, '<!ENTITY a "0.5">', "&a;")


def outside_entity(root: Any, draw: random.Random) -> bytes:
    where = draw.choice(
        (f"../{OUTSIDE}/secret.xml", f"file:../{OUTSIDE}/secret.xml", "http://127.0.0.1:9/x", "part.xml")
    )
    kind = draw.choice((f'<!ENTITY a SYSTEM "{where}">', f'<!ENTITY % p SYSTEM "{where}">%p;<!ENTITY a "1">'))
    return _with_dtd(root, draw, kind, "&a;", in_attribute=False)


def outside_dtd(root: Any, draw: random.Random) -> bytes:
    return f'<!DOCTYPE {root.tag} SYSTEM "../{OUTSIDE}/secret.dtd">'.encode() + etree.tostring(root)


def recursive_entity(root: Any, draw: random.Random) -> bytes:
    return _with_dtd(root, draw, '<!ENTITY a "&b;"><!ENTITY b "&a;">', "&a;")


def _with_dtd(root: Any, draw: random.Random, declared: str, used: str, in_attribute: bool = True) -> bytes:
    if in_attribute and draw.random() < 0.6:
        e, a = attribute(root, draw)
        e.set(a, "ENTITY-HERE")
    else:
        e = element(root, draw)
        e.tail = "ENTITY-HERE"
    text = etree.tostring(root).decode().replace("ENTITY-HERE", used)
    return f"<!DOCTYPE {root.tag} [{declared}]>{text}".encode()


def outside_file(root: Any, draw: random.Random) -> bytes:
    """Includes, meshes and folders that point out of the folder of the file, or into it."""
    places = (f"../{OUTSIDE}/secret", f"./../{OUTSIDE}/secret", f"x/../../{OUTSIDE}/secret", "{absolute}/secret",
              "file://{absolute}/secret", "package://x/secret", "link/secret", "part", "deep/part", "self", "absent",
              f"..\\{OUTSIDE}\\secret", "loop_a")  # fmt: skip
    place = draw.choice(places)
    change = draw.choice(range(6))
    if change <= 1:
        target = draw.choice([root, *root.iter("body", "worldbody", "link", "default", "asset")])
        target.insert(draw.randrange(len(target) + 1), etree.Element("include", file=place + ".xml"))
    elif change == 2:
        asset = etree.SubElement(root, "asset")
        asset.append(etree.Element(draw.choice(("mesh", "hfield", "texture")), name="spy", file=place + ".stl"))
        asset[-1].set("type", "2d") if asset[-1].tag == "texture" else None
        _needs(root, draw)
    elif change == 3:
        compiler = etree.SubElement(root, "compiler")
        compiler.set(
            draw.choice(("meshdir", "texturedir", "assetdir")), draw.choice((f"../{OUTSIDE}", "{absolute}", "link"))
        )
        etree.SubElement(etree.SubElement(root, "asset"), "mesh", name="spy", file="secret.stl")
        _needs(root, draw)
    elif change == 4:
        etree.SubElement(etree.SubElement(root, "asset"), "model", name="spy", file=place + ".xml")
    else:
        target = draw.choice([root, *root.iter("body", "worldbody")])
        flex = etree.SubElement(target, "flexcomp", name="spy", type="mesh", file=place + ".stl", mass="1")
        flex.set("dim", "2")
    return etree.tostring(root)


def _needs(root: Any, draw: random.Random) -> None:
    """A body whose mass comes from the mesh, and a link that shows it."""
    for body in [*root.iter("body")][:1]:
        inside = etree.SubElement(body, "body", name="spied")
        etree.SubElement(inside, "joint", name="spying")
        etree.SubElement(inside, "geom", type="mesh", mesh="spy")
    for link in [*root.iter("link")][:1]:
        geometry = etree.SubElement(etree.SubElement(link, "collision"), "geometry")
        etree.SubElement(geometry, "mesh", filename=f"../{OUTSIDE}/secret.stl")


def xinclude(root: Any, draw: random.Random) -> bytes:
    e = etree.SubElement(element(root, draw), "{http://www.w3.org/2001/XInclude}include")
    e.set("href", f"../{OUTSIDE}/secret.xml")
    return etree.tostring(root)


def stylesheet(root: Any, draw: random.Random) -> bytes:
    return f'<?xml-stylesheet href="../{OUTSIDE}/secret.xml"?>'.encode() + etree.tostring(root)


def long_chain(root: Any, draw: random.Random) -> bytes:
    """A chain of many links or nested bodies."""
    count = draw.choice((50, 200, 1000))
    if root.tag == "mujoco":
        target = next(root.iter("worldbody"), root)
        for i in range(count):
            target = etree.SubElement(target, "body", name=f"chain{i}", pos="0 0 .1")
            etree.SubElement(target, "joint", name=f"chain_joint{i}")
            etree.SubElement(target, "geom", size=".1")
        return etree.tostring(root)
    links = [x.get("name") for x in root.iter("link")] or ["base"]
    mass = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    previous = draw.choice(links)
    for i in range(count):
        root.append(etree.fromstring(f'<link name="chain{i}">{mass}</link>'))
        joint = etree.SubElement(root, "joint", name=f"chain_joint{i}", type="continuous")
        etree.SubElement(joint, "parent", link=previous or "base")
        etree.SubElement(joint, "child", link=f"chain{i}")
        previous = f"chain{i}"
    return etree.tostring(root)


def deep_nesting(root: Any, draw: random.Random) -> bytes:
    depth, tag = draw.choice((200, 600, 20_000, 300_000)), draw.choice(("x", "body", "link", "default", "frame"))
    text = etree.tostring(root)
    end = text.rindex(b"</") if b"</" in text else len(text)
    return (
        text[:end]
        + b"<"
        + tag.encode()
        + b">"
        + f"<{tag}>".encode() * depth
        + f"</{tag}>".encode() * (depth + 1)
        + text[end:]
    )


def many_attributes(root: Any, draw: random.Random) -> bytes:
    e = element(root, draw)
    for i in range(draw.choice((10, 20_000))):
        e.set(f"a{i}", "1")
    return etree.tostring(root)


ATTACKS = (
    *(entity_bomb, quadratic_bomb, number_entity, outside_entity, outside_dtd, recursive_entity, xinclude, stylesheet),
    *(outside_file, outside_file, outside_file, outside_file, long_chain, deep_nesting, many_attributes),
)
