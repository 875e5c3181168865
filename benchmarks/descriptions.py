"""A model as URDF and as SDF, for programs that read these: bodies, joints and inertias, nothing that touches.

Link i is body i, joint i the one that carries it; the frames are those of the model, so every axis is z. A floating
base has no joint, a fixed one is the link "base", which SDF holds to the world.
"""

import warnings
from collections.abc import Callable

import numpy as np

TYPES = {"revolute": "revolute", "prismatic": "prismatic"}  # of joints: ours, theirs


def urdf(model) -> str:
    """The mechanism as URDF."""
    limit = '<limit lower="-10" upper="10" effort="1e6" velocity="1e6"/>'

    def link(name: str, mass: float, com, inertia) -> str:
        entries = " ".join(f'{key}="{value!r}"' for key, value in inertia.items())
        return (
            f'<link name="{name}"><inertial><origin xyz="{com}" rpy="0 0 0"/><mass value="{mass!r}"/>'
            f"<inertia {entries}/></inertial></link>"
        )

    def joint(body: int, parent: str, kind: str, xyz: str, rpy: str) -> str:
        return (
            f'<joint name="joint{body}" type="{kind}"><parent link="{parent}"/><child link="body{body}"/>'
            f'<origin xyz="{xyz}" rpy="{rpy}"/><axis xyz="0 0 1"/>{limit}</joint>'
        )

    return f'<robot name="{model.name}">{_elements(model, link, joint)}</robot>'


def sdf(model) -> str:
    """The mechanism as SDF 1.10."""

    def link(name: str, mass: float, com, inertia) -> str:
        entries = "".join(f"<{key}>{value!r}</{key}>" for key, value in inertia.items())
        return (
            f'<link name="{name}">{place.get(name, "")}<inertial><pose>{com} 0 0 0</pose><mass>{mass!r}</mass>'
            f"<inertia>{entries}</inertia></inertial></link>"
        )

    def joint(body: int, parent: str, kind: str, xyz: str, rpy: str) -> str:
        return (
            f'<joint name="joint{body}" type="{kind}"><pose relative_to="{parent}">{xyz} {rpy}</pose>'
            f"<parent>{parent}</parent><child>body{body}</child><axis><xyz>0 0 1</xyz></axis></joint>"
        )

    place = {
        f"body{i}": f'<pose relative_to="joint{i}">0 0 0 0 0 0</pose>'
        for i, kind in enumerate(model.tree.kinds)
        if kind.name != "free"
    }
    held = '<joint name="ground" type="fixed"><parent>world</parent><child>base</child></joint>'
    elements = _elements(model, link, joint, held)
    return f'<sdf version="1.10"><model name="{model.name}">{elements}</model></sdf>'


ENTRIES = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")


def _elements(model, link: Callable, joint: Callable, held: str = "") -> str:
    from scipy.spatial.transform import Rotation

    from lgjax.cli.bench.peers import central_inertia

    tree, parts = model.tree, []
    if tree.kinds[0].name != "free":
        unit = dict(zip(ENTRIES, (1.0, 0.0, 0.0, 1.0, 0.0, 1.0), strict=True))
        parts.append(link("base", 1.0, "0 0 0", unit) + held)
    for body, (kind, parent) in enumerate(zip(tree.kinds, tree.parents, strict=True)):
        inertia = dict(zip(ENTRIES, map(float, central_inertia(model, body)[np.triu_indices(3)]), strict=True))
        parts.append(link(f"body{body}", float(model.inertias.mass[body]), _text(model.inertias.com[body]), inertia))
        if kind.name == "free" and body == 0:
            continue
        if kind.name not in TYPES:
            raise ValueError(f"{model.name}: a {kind.name} joint is not written")
        with warnings.catch_warnings(action="ignore"):  # where two axes are parallel one of the angles is free
            angles = Rotation.from_matrix(np.asarray(model.placements.rotation[body], float)).as_euler("xyz")
        place = (_text(model.placements.translation[body]), _text(angles))
        parts.append(joint(body, "base" if parent < 0 else f"body{parent}", TYPES[kind.name], *place))
    return "".join(parts)


def _text(array) -> str:
    return " ".join(repr(float(x)) for x in np.ravel(array))
