"""MJCF, through MuJoCo's own MjSpec: defaults, includes, angles, frames and inertias of geoms are resolved by the
compiler that defines the format. What remains here is to leave out what needs files and what is not smooth dynamics,
and to refuse what would change the motion if it were left out."""

import math
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lgjax.multibody.build import Body, Joint, build
from lgjax.multibody.geometry import SIZES, Geometry, geometry
from lgjax.multibody.importers.mjcf.files import Allowed, check_files, is_inside
from lgjax.multibody.importers.mjcf.parser import asked, located, parsed
from lgjax.multibody.importers.source import Source, from_file, one_line, read, require
from lgjax.multibody.model import Model
from lgjax.numerics import checks

# Elements without use for smooth dynamics, in an order in which nothing refers to an element already deleted.
IGNORED = (
    "keys",
    "sensors",
    "actuators",
    "tendons",
    "equalities",
    "pairs",
    "tuples",
    "skins",
    "cameras",
    "lights",
)
# Geoms whose shape needs no file.
PRIMITIVES = tuple(f"mjGEOM_{name}" for name in ("SPHERE", "CAPSULE", "CYLINDER", "BOX", "ELLIPSOID"))


def load_mjcf(
    path_or_text: str | os.PathLike,
    check_inertia: Literal["error", "warn"] = "error",
    folder: str | os.PathLike | None = None,
) -> Model:
    """Load a Model from an MJCF file, or from its text (a string that starts with '<').

    Body frames are those of the file and children are in file order. Joints may be hinge, slide, ball and free. A body
    with several joints becomes a chain: all joints but the last move massless bodies of their own, called
    <body>_<joint>, that come before it. A body without a joint is merged into its parent. Free bodies have their pose
    in the configuration, so their position in the file is ignored; at joint coordinate 0 a body with `ref` is where
    MuJoCo puts it for qpos = 0. Gravity, armature, damping, frictionloss and ranges are read, unless their own flag
    disables them. Unnamed bodies are called body_<number>, unnamed joints <body>_joint, or <body>_joint<number> where
    the body has several. Named sites are frames, called <site>_site where a body has the name.

    Boxes, spheres, capsules, cylinders and ellipsoids of moving bodies that collide are kept as `Model.geometry`, but
    not those fitted to a mesh that need not be opened.
    Actuators, sensors, other geoms, contact pairs, cameras, lights, keyframes and tendons without effect are not
    part of smooth dynamics and are ignored. Mesh files are opened only where a body has no <inertial> and so needs
    the shape. Every file that is opened, included ones too, lies in `folder` or below it when links are followed: by
    default the folder of the file, and for text the current one. With check_inertia="warn" an <inertial> that breaks
    the triangle inequality, which MuJoCo refuses, is accepted unchanged.

    Raises ImportError without the extra `mjcf`; ValueError in one line, naming file and element, for a file that cannot
    be read, files outside the folder, entities, what MuJoCo's compiler refuses, mocap bodies, springs, active equality
    constraints, tendons with stiffness, damping, friction, armature or limits, flexible bodies, plugins, fluid forces,
    gravity compensation, nonlinear damping, armature of free joints, and for what `build` refuses.
    """
    folder = None if folder is None else checks.path("folder", folder)
    if folder is not None and not folder.is_dir():
        raise ValueError(f"folder={str(folder)!r} is not a folder")
    mujoco = require("mujoco", "mjcf", "load_mjcf")
    source = read(path_or_text, "MJCF")
    try:
        allowed = check_files(source, folder)
        name, compiled, given = _compiled(mujoco, source, allowed, check_inertia == "warn")
        with np.errstate(all="ignore"):  # `build` finds and names what overflows
            bodies = _bodies(mujoco, compiled, given)
            bodies += _sites(mujoco, compiled, {body.name for body in bodies})
        gravity = np.zeros(3) if _disabled(mujoco, compiled, "GRAVITY") else compiled.opt.gravity
        found = build(bodies, name, gravity, check_inertia, geometry=_geometry(mujoco, compiled))
        return from_file(found, source)
    except ValueError as error:
        # MuJoCo's messages have several lines.
        raise ValueError(one_line(f"{source.label}: {error}")) from error


def _compiled(mujoco: Any, source: Source, allowed: Allowed, warn: bool) -> tuple[str, Any, dict]:
    """Name of the model, MuJoCo's compiled model, and explicit inertias by body; errors name file and line."""

    def judged(spec: Any) -> tuple[str, Any, dict]:
        _check_supported(mujoco, spec)
        given = _taken_inertias(mujoco, spec) if warn else {}
        _prune(mujoco, spec, allowed)
        compiled = asked(mujoco, spec.compile)
        _check_compiled(mujoco, compiled)
        if compiled.nmocap:
            _refuse_mocap(next(body for body in spec.bodies if body.mocap))
        return spec.modelname, compiled, {body.id: inertia for body, inertia in given.items()}

    # Attached models are read first: a bad one ends the process where it is attached.
    for path in reversed(allowed.attached):
        try:
            parsed(mujoco, path.read_bytes(), path)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    spec = parsed(mujoco, source.content, source.path)
    try:
        return judged(spec)
    except ValueError as error:
        raise ValueError(located(mujoco, error, source.content, source.path, judged)) from error


def _called(element) -> str:
    return repr(element.name) if element.name else f"in {element.info}"


def _check_supported(mujoco: Any, spec: Any) -> None:
    """Refuse what acts on the motion and is neither a body nor a joint."""
    for flex in spec.flexes:
        raise ValueError(f"flex {_called(flex)}: flexible bodies are not supported")
    for plugin in spec.plugins:
        raise ValueError(f"plugin {_called(plugin)}: plugins are not supported")
    for equality in spec.equalities:
        if equality.active and not _disabled(mujoco, spec.option, "EQUALITY", "CONSTRAINT"):
            kind = equality.type.name.removeprefix("mjEQ_").lower()
            raise ValueError(f"equality {_called(equality)}: {kind} constraints are not supported")
    for tendon in spec.tendons:
        for attribute in ("stiffness", "damping", "frictionloss", "armature"):
            if np.any(getattr(tendon, attribute, 0)):
                raise ValueError(f"tendon {_called(tendon)}: {attribute} is not supported")
        limited = mujoco.mjtLimited.mjLIMITED_TRUE, mujoco.mjtLimited.mjLIMITED_AUTO
        if tendon.limited == limited[0] or (tendon.limited == limited[1] and np.any(tendon.range)):
            raise ValueError(f"tendon {_called(tendon)}: limits are not supported")
    for actuator in spec.actuators:
        for attribute in ("damping", "armature"):
            if np.any(getattr(actuator, attribute, 0)):
                raise ValueError(f"actuator {_called(actuator)}: {attribute} of an actuator is not supported")


def _refuse_mocap(body: Any) -> None:
    where = f"{body.name!r} in {body.info}" if body.name else f"in {body.info}"
    raise ValueError(
        f"body {where}: mocap bodies are not supported, for others move them; without mocap='true' it is fixed to the "
        "world"
    )


def _disabled(mujoco: Any, compiled_or_option: Any, *names: str) -> bool:
    """Whether one of the flags (which differ between MuJoCo's versions) is disabled in the file."""
    option = getattr(compiled_or_option, "opt", compiled_or_option)
    bits = [getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}", None) for name in names]
    return any(option.disableflags & bit.value for bit in bits if bit is not None)


def _prune(mujoco: Any, spec: Any, allowed: Allowed) -> None:
    """Delete what plays no part in smooth dynamics, and keep the compiler from moving or fusing bodies."""
    spec.compiler.fusestatic = False
    spec.compiler.alignfree = False
    for joint in spec.joints:
        joint.align = mujoco.mjtAlignFree.mjALIGNFREE_FALSE
    for collection in IGNORED:
        for element in list(getattr(spec, collection)):
            spec.delete(element)
    for site in spec.sites:
        site.material = ""
    _prune_geoms(mujoco, spec, allowed)
    shapes = {geom.meshname for geom in spec.geoms}
    for mesh in list(spec.meshes):
        # A mesh without a name is called after its file.
        if (mesh.name or Path(mesh.file).stem) not in shapes:
            spec.delete(mesh)
    for collection in ("hfields", "materials", "textures"):
        for element in list(getattr(spec, collection)):
            spec.delete(element)


def _prune_geoms(mujoco: Any, spec: Any, allowed: Allowed) -> None:
    """Keep the geoms that a mass is computed from, and check that the meshes among them can be read."""
    from_geoms = spec.compiler.inertiafromgeom
    always = from_geoms == mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE
    never = from_geoms == mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    low, high = spec.compiler.inertiagrouprange
    files = {mesh.name or Path(mesh.file).stem: mesh.file for mesh in spec.meshes}
    for body in spec.bodies:
        # The mass of a fixed body matters only where the file sets the total.
        weighed = _moves(body) or (body.name != "world" and spec.compiler.settotalmass > 0)
        needed = weighed and (always or not (never or body.explicitinertial))
        for geom in list(body.geoms):
            weightless = geom.mass == 0 or (math.isnan(geom.mass) and geom.density == 0)
            if not needed or weightless or not low <= geom.group <= high:
                # What collides is kept for its shape alone, where the compiler can tell it without a file: not if it is
                # fitted to a mesh.
                plain = geom.type.name in PRIMITIVES and not geom.meshname
                if _moves(body) and plain and (geom.contype or geom.conaffinity):
                    geom.mass, geom.material = 0, ""
                else:
                    spec.delete(geom)
                continue
            geom.material = ""
            file = files.get(geom.meshname)
            if file:
                _check_mesh(spec, body, geom.meshname, file, allowed)


def _moves(body: Any) -> bool:
    while body is not None and body.name != "world":
        if body.joints:
            return True
        body = body.parent
    return False


def _check_mesh(spec: Any, body: Any, mesh: str, file: str, allowed: Allowed) -> None:
    """A mesh that is needed exists, and lies where files may be read."""
    file = file.replace("\\", "/")
    path = Path(spec.modelfiledir) / spec.meshdir.replace("\\", "/") / (Path(file).name if spec.strippath else file)
    needs = f"body {_called(body)} has no <inertial> and needs the mesh {mesh!r}, whose file {str(path)!r}"
    if not is_inside(path, allowed.folder):
        raise ValueError(f"{needs} is outside the folder {str(allowed.folder)!r} (folder= names another one)")
    if not allowed.attached and not os.path.isfile(path):
        raise ValueError(f"{needs} does not exist")


def _taken_inertias(mujoco: Any, spec: Any) -> dict[Any, tuple[bool, np.ndarray]]:
    """The explicit inertias by body, replaced in the spec by ones that MuJoCo accepts.

    The value is (True, full matrix in the body frame) or (False, diagonal in the inertial frame).
    """
    always = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE
    if spec.compiler.inertiafromgeom == always or spec.compiler.balanceinertia:
        return {}
    taken = {}
    for body in spec.bodies:
        if not body.explicitinertial or not _moves(body):
            continue
        full = np.array(body.fullinertia)
        if np.isnan(full[0]):
            taken[body] = False, np.array(body.inertia)
        else:
            xx, yy, zz, xy, xz, yz = full
            taken[body] = True, np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            body.fullinertia = [math.nan, 0, 0, 0, 0, 0]
        body.inertia = [max(body.mass, 1e-3)] * 3
    return taken


def _check_compiled(mujoco: Any, m: Any) -> None:
    for body in range(1, m.nbody):
        name = _body_name(mujoco, m, body)
        if m.body_gravcomp[body]:
            raise ValueError(f"body {name!r}: gravity compensation is not supported")
    for joint in range(m.njnt):
        name, kind = _joint_name(mujoco, m, joint), mujoco.mjtJoint(m.jnt_type[joint])
        where = f"joint {name!r} of body {_body_name(mujoco, m, m.jnt_bodyid[joint])!r}"
        dof = m.jnt_dofadr[joint]
        springs = m.jnt_stiffness[joint] or np.any(getattr(m, "jnt_stiffnesspoly", np.zeros(m.njnt))[joint])
        if springs and not _disabled(mujoco, m, "SPRING", "PASSIVE"):
            raise ValueError(f"{where}: springs (stiffness) are not supported")
        if np.any(getattr(m, "dof_dampingpoly", np.zeros(m.nv))[dof]):
            raise ValueError(f"{where}: nonlinear damping is not supported")
        if kind == mujoco.mjtJoint.mjJNT_FREE and m.dof_armature[dof]:
            raise ValueError(f"{where}: armature of a free joint is not supported")
    if m.opt.density or m.opt.viscosity:
        raise ValueError("<option density, viscosity>: fluid forces are not supported")


def _body_name(mujoco: Any, m: Any, body: int) -> str:
    return _name(mujoco, m, mujoco.mjtObj.mjOBJ_BODY, body, f"body_{body}")


def _joint_name(mujoco: Any, m: Any, joint: int) -> str:
    body = m.jnt_bodyid[joint]
    number = joint - m.body_jntadr[body] if m.body_jntnum[body] > 1 else ""
    made_up = f"{_body_name(mujoco, m, body)}_joint{number}"
    return _name(mujoco, m, mujoco.mjtObj.mjOBJ_JOINT, joint, made_up)


def _name(mujoco: Any, m: Any, kind: Any, index: int, made_up: str) -> str:
    """The name in the file, or the one made up, made different from those in the file."""
    name = mujoco.mj_id2name(m, kind, index)
    if name:
        return name
    while mujoco.mj_name2id(m, kind, made_up) >= 0:
        made_up += "_"
    return made_up


def _bodies(mujoco: Any, m: Any, given: dict[int, tuple[bool, np.ndarray]]) -> list[Body]:
    bodies = []
    for i in range(1, m.nbody):
        parent = _body_name(mujoco, m, m.body_parentid[i]) if m.body_parentid[i] else None
        rotation, position, name = _rotation(mujoco, m.body_quat[i]), m.body_pos[i].copy(), _body_name(mujoco, m, i)
        joint = Joint(_name(mujoco, m, mujoco.mjtObj.mjOBJ_JOINT, -1, f"{name}_fixed"), "fixed")
        for j in range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i]):
            if j > m.body_jntadr[i]:  # every joint but the last moves a body of its own, which has the axes of this one
                between = _name(mujoco, m, mujoco.mjtObj.mjOBJ_BODY, -1, f"{name}_{joint.name}")
                bodies.append(Body(between, parent, joint, rotation, position))
                parent, rotation, position = between, np.eye(3), np.zeros(3)
            joint, rotation, position = _joint(mujoco, m, j, rotation, position)
        axes = _rotation(mujoco, m.body_iquat[i])
        full, inertia = given.get(i, (False, m.body_inertia[i]))
        inertia = inertia if full else axes @ np.diag(inertia) @ axes.T
        bodies.append(
            Body(
                name,
                parent,
                joint,
                rotation,
                position,
                m.body_mass[i],
                m.body_ipos[i].copy(),
                (inertia + inertia.T) / 2,
            )
        )
    return bodies


def _sites(mujoco: Any, m: Any, taken: set[str]) -> list[Body]:
    """Named sites, as links without mass that are fixed to the bodies."""
    found = []
    for i in range(m.nsite):
        name = mujoco.mj_id2name(m, mujoco.mjtObj.mjOBJ_SITE, i)
        if name:
            while name in taken:
                name += "_site"
            taken.add(name)
            parent = _body_name(mujoco, m, m.site_bodyid[i]) if m.site_bodyid[i] else None
            place = _rotation(mujoco, m.site_quat[i]), m.site_pos[i].copy()
            found.append(
                Body(
                    name,
                    parent,
                    Joint(_name(mujoco, m, mujoco.mjtObj.mjOBJ_JOINT, -1, f"{name}_fixed"), "fixed"),
                    *place,
                )
            )
    return found


def _geometry(mujoco: Any, m: Any) -> list[Geometry]:
    """The shapes on moving bodies that collide; meshes only where a mass was computed from them."""
    found = []
    for i in range(m.ngeom):
        body, kind = m.geom_bodyid[i], mujoco.mjtGeom(m.geom_type[i])
        collides = m.geom_contype[i] or m.geom_conaffinity[i]
        if not collides or not body or kind.name not in (*PRIMITIVES, "mjGEOM_MESH"):
            continue
        name, what = _body_name(mujoco, m, body), kind.name.removeprefix("mjGEOM_").lower()
        if what == "mesh":
            found.append(Geometry(name, what))
        else:
            size = m.geom_size[i][: SIZES[what]]
            found.append(geometry(name, what, size, m.geom_pos[i], _rotation(mujoco, m.geom_quat[i])))
    return found


def _joint(mujoco: Any, m: Any, j: int, rotation, position) -> tuple[Joint, np.ndarray, np.ndarray]:
    """The joint, and the pose in the parent of the body that it moves at joint coordinate 0."""
    dof, name = m.jnt_dofadr[j], _joint_name(mujoco, m, j)
    passive: dict[str, Any] = {"armature": m.dof_armature[dof]}
    if not _disabled(mujoco, m, "FRICTIONLOSS"):
        passive["friction"] = m.dof_frictionloss[dof]
    if not _disabled(mujoco, m, "DAMPER", "PASSIVE"):
        passive["damping"] = m.dof_damping[dof]
    if m.jnt_actfrclimited[j]:
        passive["effort"] = np.max(np.abs(m.jnt_actfrcrange[j]))
    if m.jnt_limited[j] and not _disabled(mujoco, m, "LIMIT"):
        passive["lower"], passive["upper"] = m.jnt_range[j]
    passive = {key: float(value) for key, value in passive.items()}
    kind, axis, origin = mujoco.mjtJoint(m.jnt_type[j]), m.jnt_axis[j], m.jnt_pos[j]
    if kind == mujoco.mjtJoint.mjJNT_FREE:
        return Joint(name, "free", **passive), np.eye(3), np.zeros(3)
    if kind == mujoco.mjtJoint.mjJNT_BALL:
        passive.pop("lower", None)
        passive.pop("upper", None)
        return Joint(name, "spherical", origin=tuple(origin), **passive), rotation, position
    # The file shows the body at coordinate ref; go back along the joint to coordinate 0.
    ref = m.qpos0[m.jnt_qposadr[j]]
    if kind == mujoco.mjtJoint.mjJNT_SLIDE:
        joint = Joint(name, "prismatic", tuple(axis), **passive)
        return joint, rotation, position - rotation @ axis * ref
    back = np.zeros(4)
    mujoco.mju_axisAngle2Quat(back, axis, -ref)
    back = _rotation(mujoco, back)
    joint = Joint(name, "revolute", tuple(axis), tuple(origin), **passive)
    return joint, rotation @ back, position + rotation @ (origin - back @ origin)


def _rotation(mujoco: Any, quaternion) -> np.ndarray:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, quaternion)
    return matrix.reshape(3, 3)
