"""MJCF, through MuJoCo's own MjSpec: defaults, includes, angles, frames and inertias of geoms are resolved by the
compiler that defines the format. What remains here is to leave out what needs files, to read what the compiler made,
and to refuse what would change the motion if it were left out. Read first: `prune.py`, then `compiled.py`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np

from lgjax.multibody.build import build
from lgjax.multibody.importers.description import Description, Touching
from lgjax.multibody.importers.mjcf.bodies import bodies, put_back, taken_inertias
from lgjax.multibody.importers.mjcf.compiled import Compiled
from lgjax.multibody.importers.mjcf.drives import drives, joint_ranges, keys
from lgjax.multibody.importers.mjcf.equalities import equalities
from lgjax.multibody.importers.mjcf.files import Allowed, check_files
from lgjax.multibody.importers.mjcf.parser import asked, located, parsed
from lgjax.multibody.importers.mjcf.passive import compensated, dampers, fluid, free_armature, springs, tendons
from lgjax.multibody.importers.mjcf.prune import Kept, LeftOut, prune
from lgjax.multibody.importers.mjcf.refusals import (
    judged,
    refuse_always,
    refuse_beyond_model,
    refuse_laws,
    refuse_passive_beyond_model,
)
from lgjax.multibody.importers.mjcf.sensors import measures
from lgjax.multibody.importers.mjcf.touching import touching
from lgjax.multibody.importers.source import Source, from_file, one_line, read, require
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.messages import listed

T = TypeVar("T")


def load_mjcf(
    path_or_text: str | os.PathLike,
    check_inertia: Literal["error", "warn"] = "error",
    folder: str | os.PathLike | None = None,
) -> Model:
    """Load a Model from an MJCF file, or from its text.

    A model alone: `lgjax.load_robot` reads actuators, sensors, springs, constraints and keyframes too. Body frames are
    those of the file and children are in file order. Joints may be hinge, slide, ball and free. A body with several
    joints becomes a chain: all joints but the last move massless bodies of their own, called <body>_<joint>, that come
    before it. A body without a joint is merged into its parent. Free bodies have their pose in the configuration, so
    their position in the file is ignored; at joint coordinate 0 a body with `ref` is where MuJoCo puts it for qpos = 0.
    Gravity, armature, damping, frictionloss and ranges are read, unless their own flag disables them. Unnamed bodies
    are called body_<number>, unnamed joints <body>_joint, or <body>_joint<number> where the body has several. Named
    sites are frames, called <site>_site where a body has the name.

    Boxes, spheres, capsules, cylinders and ellipsoids of moving bodies that collide are kept as `Model.geometry`, but
    not those fitted to a mesh that need not be opened. Actuators, sensors and keyframes are left out with a warning;
    other geoms, contact pairs, cameras, lights and tendons without effect without one. Mesh files are opened only where
    a body has no <inertial> and so needs the shape.

    Args:
        path_or_text: name of the file, or its text, a string that starts with '<'.
        check_inertia: with "warn", an <inertial> that breaks the triangle inequality, which MuJoCo refuses, is accepted
            unchanged.
        folder: every file that is opened, included ones too, must lie in or below it after links are resolved; by
            default the folder of the file, and for text the current one.

    Raises:
        ImportError: without the extra `mjcf`.
        ValueError: in one line, naming file and element, for a file that cannot be read, files outside the folder,
            entities, what MuJoCo's compiler refuses, flexible bodies, plugins, for what `load_robot` reads and would
            change the motion (mocap bodies, springs, active equality constraints, tendons with stiffness, damping,
            friction, armature or limits, fluid forces, gravity compensation, nonlinear damping, armature of free joints
            and of actuators), and for what `build` refuses.
    """
    require("mujoco", "mjcf", "load_mjcf")
    check_folder(folder)
    source = read(path_or_text, "MJCF")
    left_out: list[str] = []

    def model_alone(mujoco: Any, spec: Any, allowed: Allowed) -> Description:
        refuse_beyond_model(mujoco, spec)
        left_out[:] = [
            f"{len(found)} {what}{'s' * (len(found) > 1)}"
            for what, of in (("actuator", "actuators"), ("sensor", "sensors"), ("keyframe", "keys"))
            if (found := getattr(spec, of))
        ]
        file, given, _ = compiled(mujoco, spec, allowed, Kept(), check_inertia == "warn")
        refuse_passive_beyond_model(file)
        shapes, _ = touching(file)
        return Description(spec.modelname, bodies(file, given), gravity(file), shapes)

    description = described(source, folder, "load_mjcf", model_alone)
    model = model_of(description, source, check_inertia)
    if left_out:
        message = f"{source.label}: load_mjcf leaves out {listed(left_out)}, which lgjax.load_robot reads"
        warnings.warn(one_line(message), stacklevel=2)
    return model


def describe_mjcf(
    source: Source, check_inertia: str, folder: Any, ignore: frozenset[str], hulls: int | None
) -> Description:
    """All that is read of an MJCF, without the kinds of elements in `ignore`; errors are those of `load_mjcf`.

    hulls: at most that many vertices of the hull of a collision mesh, 0 to open none, None for all.
    """

    def whole(mujoco: Any, spec: Any, allowed: Allowed) -> Description:
        kept = Kept(True, hulls != 0 and "contact" not in ignore, "actuator" not in ignore)
        if kept.actuators:
            refuse_laws(spec)
        found = robot_of(*compiled(mujoco, spec, allowed, kept, check_inertia == "warn"), ignore, hulls)
        return judged(found, ignore)

    return described(source, folder, "load_robot", whole)


def check_folder(folder: Any) -> Any:
    """The path of a folder that exists, or None; ValueError for another."""
    folder = None if folder is None else checks.path("folder", folder)
    if folder is not None and not folder.is_dir():
        raise ValueError(f"folder={str(folder)!r} is not a folder")
    return folder


def described(
    source: Source, folder: Any, function: str, describe: Callable[[Any, Any, Allowed], Description]
) -> Description:
    """Return `describe(mujoco, spec, allowed)` of a file; its errors name file and line."""
    folder = check_folder(folder)
    mujoco = require("mujoco", "mjcf", function)
    try:
        allowed = check_files(source, folder)
        # Attached models are read first: a bad one ends the process where it is attached.
        for path in reversed(allowed.attached):
            try:
                parsed(mujoco, path.read_bytes(), path)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
        spec = parsed(mujoco, source.content, source.path)

        def judge(spec: Any) -> Description:
            refuse_always(spec)
            return describe(mujoco, spec, allowed)

        try:
            return judge(spec)
        except ValueError as error:
            raise ValueError(located(mujoco, error, source.content, source.path, judge)) from error
    except ValueError as error:
        # MuJoCo's messages have several lines.
        raise ValueError(one_line(f"{source.label}: {error}")) from error


def compiled(
    mujoco: Any, spec: Any, allowed: Allowed, kept: Kept, warn: bool
) -> tuple[Compiled, dict[int, tuple[bool, np.ndarray]], LeftOut]:
    """The compiled file, explicit inertias by body where they are taken as they are, and what is left out."""
    given = taken_inertias(mujoco, spec) if warn else {}
    left_out = prune(mujoco, spec, allowed, kept)
    file = Compiled(mujoco, spec, asked(mujoco, spec.compile))
    numbered = {body.id: inertia for body, inertia in given.items()}
    asked(mujoco, put_back, file, numbered)
    return file, numbered, left_out


def gravity(file: Compiled) -> np.ndarray:
    return np.zeros(3) if file.disabled("GRAVITY") else file.m.opt.gravity.copy()


def robot_of(
    file: Compiled,
    given: dict[int, tuple[bool, np.ndarray]],
    left_out: LeftOut,
    ignore: frozenset[str],
    hulls: int | None,
) -> Description:
    def unless(kind: str, found: Callable[[], T], none: T) -> T:
        return none if kind in ignore else found()

    def told(entries: list[str]) -> tuple[str, ...]:
        """MuJoCo counts the lines of the main file only and calls all others line 0."""
        return tuple(entry.replace(" in line 0", " in an included file") for entry in entries)

    m = file.m
    shapes, touch = touching(file, hulls, left_out.loud)
    couplings, closures = unless("equality", lambda: equalities(file), ((), ()))
    return Description(
        file.spec.modelname,
        bodies(file, given),
        gravity(file),
        shapes if "contact" not in ignore else (),
        order=tuple(file.joint(j) for j in range(m.njnt)),
        start=m.qpos0.copy(),
        rest=m.qpos_spring.copy(),
        springs=unless("spring", lambda: springs(file), ()),
        dampers=unless("damping", lambda: dampers(file), ()),
        joint_ranges=joint_ranges(file),
        free_armature=free_armature(file),
        compensated=unless("gravcomp", lambda: compensated(file), ()),
        fluid=unless("fluid", lambda: fluid(file), None),
        tendons=tendons(file),
        couplings=couplings,
        closures=closures,
        mocap=tuple(file.body(i) for i in range(m.nbody) if m.body_mocapid[i] >= 0),
        drives=unless("actuator", lambda: drives(file), ()),
        measures=unless("sensor", lambda: measures(file), ()),
        magnetic=m.opt.magnetic.copy(),
        keys=unless("keyframe", lambda: keys(file), ()),
        touching=touch if "contact" not in ignore else Touching(),
        loud=told(left_out.loud),
        quiet=told(left_out.quiet),
    )


def model_of(description: Description, source: Source, check_inertia: Any) -> Model:
    """The Model of a description; ValueError with the name of the file for what `build` refuses."""
    try:
        found = build(
            description.bodies,
            description.name,
            description.gravity,
            check_inertia,
            geometry=description.geometry,
        )
        return from_file(found, source)
    except ValueError as error:
        raise ValueError(one_line(f"{source.label}: {error}")) from error
