"""URDF, read straight from its XML. Read first: `document.py`, `elements.py`, `bodies.py`."""

from __future__ import annotations

import os
import warnings
from typing import Literal

import numpy as np

from lgjax.multibody.build import build
from lgjax.multibody.importers.description import Description, Surface, Touching
from lgjax.multibody.importers.source import Source, from_file, one_line, read
from lgjax.multibody.importers.urdf.bodies import WORLD, bodies, is_world, root_of
from lgjax.multibody.importers.urdf.collision import Meshes, collision_geometry
from lgjax.multibody.importers.urdf.document import etree, parse
from lgjax.multibody.importers.urdf.drives import couplings, drives
from lgjax.multibody.importers.urdf.elements import elements
from lgjax.multibody.model import Model
from lgjax.numerics import checks


def load_urdf(
    path_or_text: str | os.PathLike, floating_base: bool = True, mimic: Literal["error", "independent"] = "error",
    check_inertia: Literal["error", "warn"] = "error",
) -> Model:  # fmt: skip
    """Load a Model from a URDF file, or from its text.

    A model alone: `lgjax.load_robot` reads mimic joints, transmissions and collision meshes too. Body frames are the
    link frames; children are in the order of the joints in the file; links on fixed joints are merged into the body
    that carries them. Limits, damping and friction are read, and of collision geometry boxes, spheres, cylinders and
    capsules (`Model.geometry`). Visual geometry and tags of other tools are not part of the dynamics and are ignored,
    and no mesh is opened. Namespaces are ignored: a name without a prefix is the format's. If a value is absent and
    something else may have been meant for it (an element, a text, a misspelt or unknown name, an attribute in another
    element), that is an error. A revolute or prismatic joint must have a <limit>, where lower and upper are 0 if
    absent, as the format says; an absent effort or velocity is no limit.

    A spherical joint is written type="spherical", as Bullet and MuJoCo read it, or <drake:joint type="ball">, as Drake
    reads it; its damping is that of each of its three velocities, and limits of its angles are ignored. The axis of a
    planar joint is the normal of its plane, as the format says, also where it is omitted and so is x; x and y of the
    plane are those of the link where the axis is z. A floating joint constrains nothing, so its link is a free body
    beside the others, whatever its parent: the configuration has its pose in the world, and the origin in the file is
    ignored. A massless root link that carries nothing but such links is the world itself.

    Args:
        path_or_text: name of the file, or its text, a string that starts with '<'.
        floating_base: True gives the root link a free joint, with a warning if it is called "world"; False fixes it to
            the world.
        mimic: "error" rejects joints that follow others, "independent" gives them coordinates of their own.
        check_inertia: as in `build`.

    Raises:
        ImportError: without the extra `urdf`.
        ValueError: in one line, naming file, element, value and line, for a file that cannot be read or is not a URDF,
            unknown types, missing, misplaced or malformed numbers, misspelt names, links and joints that do not form
            one tree, and for what `build` refuses.
    """
    floating_base = checks.truth("floating_base", floating_base)
    if mimic not in ("error", "independent"):
        raise ValueError(f"mimic is 'error' or 'independent', not {mimic!r}")
    etree("load_urdf")
    source = read(path_or_text, "URDF")
    try:
        root = parse(source)
        robot = elements(root)
        followers = [joint.name for joint in robot.joints if joint.mimic is not None]
        if followers and mimic == "error":
            raise ValueError(
                f"mimic joints are not supported: {', '.join(map(repr, followers))} (mimic='independent' frees them, "
                "lgjax.load_robot reads them)"
            )
        model = build(
            bodies(robot, floating_base), robot.name, check_inertia=check_inertia, geometry=collision_geometry(root)
        )
    except ValueError as error:
        raise ValueError(one_line(f"{source.label}: {error}")) from error
    if floating_base and root_of(robot) == WORLD and model.tree.n_free:
        warnings.warn(
            f"{source.label}: the root link 'world' floats; floating_base=False fixes it, as lgjax.load_robot does",
            stacklevel=2,
        )
    return from_file(model, source)


def describe_urdf(
    source: Source, floating_base: bool | None, ignore: frozenset[str], meshes: Meshes | None
) -> Description:
    """All that is read of a URDF, without the kinds of elements in `ignore`; errors as in `load_urdf`.

    floating_base: None decides by the root link. meshes: None to take note of collision meshes only.
    """
    try:
        root = parse(source, "load_robot")
        robot = elements(root)
        floats = not is_world(robot) if floating_base is None else floating_base
        left_out: list[str] = []
        motors = () if "actuator" in ignore else drives(robot, root, "transmission" not in ignore, left_out)
        shapes = () if "contact" in ignore else tuple(collision_geometry(root, meshes, left_out))
        return Description(
            robot.name,
            bodies(robot, floats),
            np.array((0.0, 0.0, -9.81)),
            shapes,
            couplings=() if "mimic" in ignore else couplings(robot),
            drives=motors,
            touching=Touching((Surface(),) * len(shapes)),
            loud=tuple(left_out),
        )
    except ValueError as error:
        raise ValueError(one_line(f"{source.label}: {error}")) from error
