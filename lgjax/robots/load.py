"""load_robot: a robot file as a Robot. Read first: `robot.py`; the importers describe the file in plain numbers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from lgjax.multibody.conventions import from_mujoco
from lgjax.multibody.importers.description import Description, Key
from lgjax.multibody.importers.mjcf.loading import describe_mjcf, model_of
from lgjax.multibody.importers.source import Source, one_line, read, root_element
from lgjax.multibody.importers.urdf.collision import Meshes
from lgjax.multibody.importers.urdf.loading import describe_urdf
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.messages import listed
from lgjax.robots.actuators import Actuators
from lgjax.robots.assembly.actuators import actuators
from lgjax.robots.assembly.forces import forces
from lgjax.robots.assembly.loops import loops
from lgjax.robots.assembly.sensors import Parts, sensors
from lgjax.robots.assembly.transmissions import tendon_lengths
from lgjax.robots.robot import ContactGeometry, Keyframe, Robot

IGNORABLE = (
    "actuator",
    "armature",
    "contact",
    "damping",
    "equality",
    "fluid",
    "gravcomp",
    "keyframe",
    "mimic",
    "sensor",
    "spring",
    "tendon",
    "transmission",
)
FORMS = {"robot": "URDF", "mujoco": "MJCF"}
INITIAL = "initial"  # name of the state that a file shows


def load_robot(
    path_or_text: str | os.PathLike, floating_base: bool | None = None,
    check_inertia: Literal["error", "warn"] = "error", folder: str | os.PathLike | None = None,
    ignore: Sequence[str] = (), packages: Mapping[str, str | os.PathLike] | None = None,
    meshes: Literal["hull", "ignore"] = "hull", mesh_vertices: int | None = 64,
) -> Robot:  # fmt: skip
    """Load everything in a URDF or an MJCF as a `Robot`, from a file or its text; the root element decides the format.

    Bodies, joints, names and frames are those of `load_urdf` and `load_mjcf`. From a URDF it also reads mimic joints as
    exact loops, collision meshes as convex hulls, and one motor for each driven joint, with the reduction of its
    <transmission>, and limited to the effort of the joint. Without transmissions all joints are driven but those that
    mimic others. From an MJCF it also reads connect, weld, joint and tendon equalities as loops, exact where MuJoCo's
    are soft; springs, dampers, tendons, gravity compensation, fluid, armature; actuators, which take MuJoCo's controls;
    sensors, keyframes, contact filters and friction, and planes of the world as grounds. Limits and dry friction of
    joints are data of the model; those of tendons are forces: soft stops, which yield at rest as MuJoCo's do, and
    friction smoothed near zero speed. `Robot.ignored` lists parts left out; a warning names those that affect motion.

    Args:
        path_or_text: name of the file, or its text, a string that starts with '<'.
        floating_base: True puts the root link of a URDF on a free joint, False fixes it to the world. None fixes a root
            link that is called "world" or that has no mass, counting all links fixed to it, and lets any other float.
        check_inertia: as in `load_urdf`.
        folder: folder in and below which an MJCF may read files; by default that of the file.
        ignore: kinds of elements to leave out: "actuator", "armature" (of free joints), "contact", "damping" (of higher
            order), "equality", "fluid", "gravcomp", "keyframe", "mimic" (frees the joints), "sensor", "spring",
            "tendon" (forces of tendons), "transmission".
        packages: {name: folder} for package://name/... in a URDF; other packages are searched for in the folder of the
            file and above it, then in ROS_PACKAGE_PATH and AMENT_PREFIX_PATH.
        meshes: "hull" turns collision meshes into convex hulls, "ignore" opens no mesh.
        mesh_vertices: largest number of vertices of a hull, None for no limit.

    Raises:
        ImportError: without the extra `urdf` or `mjcf`.
        ValueError: in one line that names file, element, line and a remedy, for broken files and for unsupported parts
            that would change the motion (muscles, tendons that wrap around geoms, flexible bodies, plugins, ...).
    """
    left_out = checked_ignore(ignore)
    checks.choice("meshes", meshes, ("hull", "ignore"))
    if mesh_vertices is not None:
        checks.integer("mesh_vertices", mesh_vertices, 4)
    source = read(path_or_text, "robot")
    form = FORMS.get(root_element(source))
    if form is None:
        raise ValueError(f"{source.label}: neither URDF nor MJCF: the root element is <{root_element(source)}>")
    if source.path is None:
        source = source._replace(label=f"{form} text")
    if form == "MJCF":
        if floating_base is not None:
            raise ValueError("floating_base is for URDF: an MJCF says with its own joints what floats")
        hulls = mesh_vertices if meshes == "hull" else 0
        description = describe_mjcf(source, check_inertia, folder, left_out, hulls)
    else:
        floats = None if floating_base is None else checks.truth("floating_base", floating_base)
        beside = Path.cwd() if source.path is None else source.path.parent
        hulls = Meshes(beside, packages or {}, mesh_vertices) if meshes == "hull" else None
        description = describe_urdf(source, floats, left_out, hulls)
    robot, loud = assembled(description, source, check_inertia, left_out)
    if loud:
        warnings.warn(one_line(f"{source.label}: left out: {listed(loud)} (see Robot.ignored)"), stacklevel=2)
    return robot


def assembled(
    description: Description, source: Source, check_inertia: Any, ignore: frozenset[str]
) -> tuple[Robot, list[str]]:
    """The robot of a description, and what of it a user should hear is left out."""
    model = model_of(description, source, check_inertia)
    try:
        return _assembled(model, description, ignore)
    except ValueError as error:
        raise ValueError(one_line(f"{source.label}: {error}")) from error


def _assembled(model: Model, description: Description, ignore: frozenset[str]) -> tuple[Robot, list[str]]:
    tendons = tendon_lengths(model, description.tendons)
    passive = forces(model, description, tendons)
    driven = actuators(model, description)
    measured, unknown = sensors(Parts(model, description, tendons, driven, passive))
    loud = [*description.loud, *unknown]
    touch = description.touching
    contacts = ContactGeometry(
        model.geometry, touch.surfaces, touch.excludes, touch.pairs, touch.grounds, touch.fixed, touch.parents
    )
    robot = Robot(
        model,
        loops(model, description, tendons),
        passive,
        driven,
        measured,
        keyframes(model, description, driven),
        contacts,
        tuple(name for name, _ in model.tree.frames),
        (*loud, *description.quiet, *(f"{kind} (ignore=)" for kind in sorted(ignore))),
        tuple((name, _members(model, description, name)) for name in description.mocap),
    )
    return robot, loud


def keyframes(model: Model, description: Description, driven: Actuators | None) -> dict[str, Keyframe]:
    """The states that a file names; the one that it shows is the first, unless another one has its name."""
    count, active = (0, 0) if driven is None else (len(driven), driven.na)
    given = list(description.keys)
    if description.start is not None and all(key.name != INITIAL for key in given):
        q = description.start
        given.insert(0, Key(INITIAL, q, np.zeros(model.nv), np.zeros(count), np.zeros(active)))
    return {key.name: _keyframe(model, description, key) for key in given}


def _keyframe(model: Model, description: Description, key: Key) -> Keyframe:
    array = lambda x: jnp.asarray(x, model.dtype)
    state = from_mujoco(model, array(key.q), array(key.v), order=description.order)
    return Keyframe(state.q, state.v, array(key.control), array(key.activation))


def _members(model: Model, description: Description, name: str) -> tuple[int, ...]:
    """Numbers of the frames of a mocap body and of all that is fixed to it, its own first."""
    links = [name]
    for body in description.bodies:  # parents come first
        if body.parent in links:
            links.append(body.name)
    numbers = {frame: i for i, (frame, _) in enumerate(model.tree.frames)}
    return tuple(numbers[link] for link in links)


def checked_ignore(ignore: Any) -> frozenset[str]:
    names = checks.names("ignore", [ignore] if isinstance(ignore, str) else ignore)
    if unknown := [name for name in names if name not in IGNORABLE]:
        raise ValueError(f"ignore has the unknown kind {unknown[0]!r}; known: {', '.join(IGNORABLE)}")
    return frozenset(names)
