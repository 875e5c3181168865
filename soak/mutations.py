"""Ways to break a robot description: seeded changes of real URDF and MJCF files, of their trees and of their bytes.

`mutate` makes one to three changes of the XML tree, or one of the bytes, or one attack that the format knows: entity
bombs, files outside the folder, endless depth. What the changes mean is not known here: two readers have to agree.
"""

import copy
import random
from collections.abc import Callable
from typing import Any

from lxml import etree

from soak.attacks import ATTACKS, attribute, element

NUMBERS = (
    *("0", "-0", "1", "-1", "2.5", "-3.75e-1", "1e-3", "+4", ".5", "7.", "1e-320", "1e-200", "5e-324", "1e16", "1e60"),
    *("1e200", "1.7e308", "1e309", "-1e400", "nan", "-nan", "NaN", "nan(7)", "inf", "-inf", "Infinity", "1#INF"),
    *("0x10", "0x1p3", "1_000", "1,5", "1;2", "1e", "e5", "--1", "+-1", "1.2.3", "1d5", "${pi}", "$(arg x)", "true"),
    *("\u0661\u0662", "\uff11", "1\u00a0", "\u22121", "1 2 3 4 5 6 7", "1 2", "1e1000000000", "9" * 400),
    "0." + "0" * 400 + "1",
)  # fmt: skip
WORDS = (
    "",
    " ",
    "x",
    "world",
    "a" * 5000,
    "\u00e9\u4e2d\U0001f916",
    "a\nb\tc",
    "../..",
    "<&>\"'",
    "%s%n{0}",
    "None",
    "\x7f",
)
TAGS = (
    "x",
    "robot",
    "mujoco",
    "link",
    "joint",
    "body",
    "inertial",
    "include",
    "xacro:x",
    "mimic",
    "freejoint",
    "frame",
)


def mutate(content: bytes, seed: int) -> tuple[bytes, list[str]]:
    """The mutated bytes and what was done. The same seed always does the same."""
    draw = random.Random(seed)
    done: list[str] = []
    if draw.random() < 0.2:
        change = draw.choice(BYTES)
        done.append(change.__name__)
        return change(content, draw), done
    root = etree.fromstring(content, etree.XMLParser(recover=True, resolve_entities=False, remove_comments=True))
    if draw.random() < 0.12:
        change = draw.choice(ATTACKS)
        done.append(change.__name__)
        return change(root, draw), done
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        change = draw.choice(TREE)
        before = etree.tostring(root)
        try:
            what = change(root, draw)
        except (ValueError, TypeError, IndexError) as error:  # nothing to change, or what XML cannot hold
            root = etree.fromstring(before, etree.XMLParser(recover=True))
            what = f"not done: {error}"
        done.append(f"{change.__name__}: {what}")
    return etree.tostring(root, encoding="utf-8"), done


# ---- the tree
def drop_element(root: Any, draw: random.Random) -> str:
    e = element(root, draw)
    e.getparent().remove(e)
    return e.tag


def duplicate_element(root: Any, draw: random.Random) -> str:
    e = element(root, draw)
    e.getparent().insert(draw.randrange(len(e.getparent()) + 1), copy.deepcopy(e))
    return e.tag


def move_element(root: Any, draw: random.Random) -> str:
    e, target = element(root, draw), element(root, draw, below_root=False)
    if e not in [target, *target.iterancestors()]:
        target.insert(draw.randrange(len(target) + 1), e)
    return f"{e.tag} into {target.tag}"


def swap_elements(root: Any, draw: random.Random) -> str:
    a, b = element(root, draw), element(root, draw)
    if a in [b, *b.iterancestors()] or b in a.iterancestors():
        return "nothing"
    x, y = copy.deepcopy(a), copy.deepcopy(b)
    a.getparent().replace(a, y)
    b.getparent().replace(b, x)
    return f"{x.tag} and {y.tag}"


def rename_element(root: Any, draw: random.Random) -> str:
    e = element(root, draw, below_root=draw.random() < 0.95)
    before, known = e.tag, sorted({x.tag for x in root.iter() if isinstance(x.tag, str)})
    tag = draw.choice(known if draw.random() < 0.7 else TAGS)
    e.tag = tag if ":" not in tag else "{http://www.ros.org/wiki/xacro}x"
    return f"{before} to {e.tag}"


def wrap_element(root: Any, draw: random.Random) -> str:
    e = element(root, draw)
    depth = draw.choice((1, 1, 2, 10, 90, 300, 2000))
    parent, copied = e.getparent(), copy.deepcopy(e)
    place = parent.index(e)
    parent.remove(e)
    tag = draw.choice((e.tag, "x", parent.tag))
    for _ in range(depth):
        inside = etree.Element(tag)
        parent.insert(place, inside)
        parent, place = inside, 0
    parent.append(copied)
    return f"{e.tag} in {depth} of {tag}"


def drop_attribute(root: Any, draw: random.Random) -> str:
    e, a = attribute(root, draw)
    del e.attrib[a]
    return f"{e.tag} {a}"


def rename_attribute(root: Any, draw: random.Random) -> str:
    e, a = attribute(root, draw)
    known = sorted({x for other in root.iter() if isinstance(other.tag, str) for x in other.attrib})
    to = draw.choice(known)
    e.set(to, e.attrib.pop(a))
    return f"{e.tag} {a} to {to}"


def swap_attributes(root: Any, draw: random.Random) -> str:
    (e, a), (f, b) = attribute(root, draw), attribute(root, draw)
    x, y = e.get(a), f.get(b)
    e.set(a, y)
    f.set(b, x)
    return f"{e.tag} {a} and {f.tag} {b}"


def swap_alike(root: Any, draw: random.Random) -> str:
    """Values of the same attribute of two elements: references that cross make cycles and second parents."""
    e, a = attribute(root, draw)
    f = draw.choice([x for x in root.iter(e.tag) if a in x.attrib])
    x, y = e.get(a), f.get(a)
    e.set(a, y)
    if draw.random() < 0.5:
        f.set(a, x)
    return f"{a} of {e.tag}: {x!r} and {y!r}"


def change_number(root: Any, draw: random.Random) -> str:
    """One of the numbers of an attribute, to something close or to something odd."""
    pairs = [(e, a) for e in root.iter() if isinstance(e.tag, str) for a, x in e.attrib.items() if _numeric(x)]
    if not pairs:
        return "nothing"
    e, a = draw.choice(pairs)
    tokens = e.get(a).split()
    i = draw.randrange(len(tokens))
    close = draw.random() < 0.35
    tokens[i] = (
        repr(float(tokens[i]) * draw.uniform(0.9, 1.1) + draw.choice((0, 1e-3))) if close else draw.choice(NUMBERS)
    )
    e.set(a, draw.choice((" ", " ", " ", "  ", "\t", "\n", ", ")).join(tokens))
    return f"{e.tag} {a}={e.get(a)[:80]!r}"


def change_count(root: Any, draw: random.Random) -> str:
    pairs = [(e, a) for e in root.iter() if isinstance(e.tag, str) for a, x in e.attrib.items() if _numeric(x)]
    if not pairs:
        return "nothing"
    e, a = draw.choice(pairs)
    tokens = e.get(a).split()
    tokens = draw.choice((tokens[:-1], [*tokens, "0"], [*tokens, "x"], tokens * 50, tokens[:1]))
    e.set(a, " ".join(tokens))
    return f"{e.tag} {a}={e.get(a)[:80]!r}"


def change_word(root: Any, draw: random.Random) -> str:
    e, a = attribute(root, draw)
    word = draw.choice(WORDS)
    if word == "\x7f" or draw.random() < 0.3:
        word = (e.get(a) or "") + draw.choice((" ", "x", "\u200b", "\n"))
    e.set(a, word)
    return f"{e.tag} {a}={word[:40]!r}"


def change_type(root: Any, draw: random.Random) -> str:
    found = [e for e in root.iter("joint") if isinstance(e.tag, str)]
    if not found:
        return "nothing"
    kinds = ("revolute", "continuous", "prismatic", "planar", "floating", "fixed", "spherical", "ball", "hinge")
    kinds += ("slide", "free", "Revolute", "revolute ", "universal")
    e = draw.choice(found)
    e.set("type", draw.choice(kinds))
    return f"joint {e.get('name')!r} type={e.get('type')!r}"


def _numeric(text: str) -> bool:
    try:
        return bool([float(x) for x in text.split()])
    except ValueError:
        return False


TREE: tuple[Callable[[Any, random.Random], str], ...] = (
    *(drop_element, duplicate_element, move_element, swap_elements, rename_element, wrap_element, drop_attribute),
    *(rename_attribute, swap_attributes, swap_alike, swap_alike, change_number, change_number, change_number),
    *(change_count, change_word, change_type),
)


# ---- the bytes
def truncate(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 3, 30))):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def cut(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    return content[:start] + content[start + draw.choice((1, 5, 50, 500)) :]


def repeat(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    end = start + draw.choice((1, 20, 300))
    return content[:end] + content[start:end] * draw.choice((1, 2, 50)) + content[end:]


def insert(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    odd = (b"\0", b"<", b">", b"&", b"&#0;", b"&#xD800;", b"&nbsp;", b"<!--", b"<![CDATA[", b"]]>", b"<?php x?>")
    odd += (b"\xff\xfe", b"\xc3", b"\r", b"\x1b", b"<!-- -- -->", b"&amp;", b"'", b'"', b"</robot>", b"</mujoco>")
    return content[:place] + draw.choice(odd) + content[place:]


def encode(content: bytes, draw: random.Random) -> bytes:
    body = content.split(b"?>", 1)[1] if content.lstrip().startswith(b"<?xml") else content
    text = body.decode("utf-8", "replace")
    declared = draw.choice(("utf-8", "utf-16", "latin-1", "utf-7", "utf-32", "ascii", "x-none", "ebcdic-cp-us", ""))
    head = (
        f'<?xml version="{draw.choice(("1.0", "1.1", "2.0"))}" encoding="{declared}"?>' if draw.random() < 0.7 else ""
    )
    actual = draw.choice(
        ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp037", "utf-7")
    )
    return (head + text).encode(actual, "replace")


def line_ends(content: bytes, draw: random.Random) -> bytes:
    return content.replace(b"\n", draw.choice((b"\r\n", b"\r", b" ", b"\n\n")))


def two_roots(content: bytes, draw: random.Random) -> bytes:
    return content + draw.choice((content, b"<robot name='second'/>", b"<!-- end -->", b"text", b"\0\0"))


def double_attribute(content: bytes, draw: random.Random) -> bytes:
    places = [
        i for i in range(len(content)) if content.startswith((b"name=", b"xyz=", b"pos=", b"value=", b"type="), i)
    ]
    if not places:
        return content
    i = draw.choice(places)
    end = content.find(content[content.find(b"=", i) + 1 : content.find(b"=", i) + 2], content.find(b"=", i) + 2) + 1
    return content[:end] + b" " + content[i:end] + content[end:]


def nothing_left(content: bytes, draw: random.Random) -> bytes:
    return draw.choice(
        (b"", b" \n", b"\xef\xbb\xbf", b"<", b"<a/>", b"<?xml version='1.0'?>", b"\0" * 100, b"PK\3\4", b"null")
    )


BYTES = (
    *(truncate, truncate, flip, flip, cut, repeat, insert, insert, encode, encode, line_ends, two_roots),
    *(double_attribute, nothing_left),
)
