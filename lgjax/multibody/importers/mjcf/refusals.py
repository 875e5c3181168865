"""Elements of an MJCF that raise an error with name and line, because leaving them out would change the motion."""

from dataclasses import replace
from typing import Any

import numpy as np

from lgjax.multibody.importers.description import Description, Tendon
from lgjax.multibody.importers.mjcf.compiled import Compiled, called, disabled

WHOLE = "lgjax.load_robot reads it"


def refuse_always(spec: Any) -> None:
    """Deformable bodies, plugins, and mocap bodies with joints below them."""
    for flex in spec.flexes:
        raise ValueError(f"flex {called(flex)}: flexible bodies are not supported")
    for plugin in spec.plugins:
        raise ValueError(f"plugin {called(plugin)}: plugins are not supported")
    for body in spec.bodies:
        if body.joints and any(above.mocap for above in _above(body)):
            raise ValueError(f"body {called(body)}: joints on a mocap body are not supported")


def _above(body: Any) -> list[Any]:
    found = []
    while body is not None and body.name != "world":
        body = body.parent
        found.append(body)
    return found


def refuse_beyond_model(mujoco: Any, spec: Any) -> None:
    """Equalities, tendons with effect and what actuators add to joints, which are no part of a Model."""
    for equality in spec.equalities:
        if equality.active and not disabled(mujoco, spec.option, "EQUALITY", "CONSTRAINT"):
            kind = equality.type.name.removeprefix("mjEQ_").lower()
            raise ValueError(f"equality {called(equality)}: {kind} constraints are not supported ({WHOLE})")
    for tendon in spec.tendons:
        for attribute in ("stiffness", "damping", "frictionloss", "armature"):
            if np.any(getattr(tendon, attribute, 0)):
                raise ValueError(f"tendon {called(tendon)}: {attribute} is not supported ({WHOLE})")
        limited = mujoco.mjtLimited.mjLIMITED_TRUE, mujoco.mjtLimited.mjLIMITED_AUTO
        if tendon.limited == limited[0] or (tendon.limited == limited[1] and np.any(tendon.range)):
            raise ValueError(f"tendon {called(tendon)}: limits are not supported ({WHOLE})")
    for actuator in spec.actuators:
        for attribute in ("damping", "armature"):
            if np.any(getattr(actuator, attribute, 0)):
                raise ValueError(f"actuator {called(actuator)}: {attribute} of an actuator is not supported ({WHOLE})")
    for body in spec.bodies:
        if body.mocap:
            raise ValueError(
                f"body {called(body)}: mocap bodies are not supported, for others move them; without "
                f"mocap='true' it is fixed to the world ({WHOLE})"
            )


def refuse_passive_beyond_model(file: Compiled) -> None:
    """Passive forces that a Model does not have."""
    m = file.m
    for body in range(1, m.nbody):
        if m.body_gravcomp[body]:
            where = file.where("bodies", body)
            raise ValueError(f"body {where}: gravity compensation is not supported ({WHOLE})")
    for joint in range(m.njnt):
        body = file.body(m.jnt_bodyid[joint])
        where = f"joint {file.joint(joint)!r} of body {body!r} {_line(file.where('joints', joint))}"
        springs = m.jnt_stiffness[joint] or np.any(getattr(m, "jnt_stiffnesspoly", np.zeros(m.njnt))[joint])
        if springs and not file.disabled("SPRING", "PASSIVE"):
            raise ValueError(f"{where}: springs (stiffness) are not supported ({WHOLE})")
        dof = m.jnt_dofadr[joint]
        if np.any(getattr(m, "dof_dampingpoly", np.zeros(m.nv))[dof]):
            raise ValueError(f"{where}: nonlinear damping is not supported ({WHOLE})")
        if file.joint_kind(joint) == "free" and m.dof_armature[dof]:
            raise ValueError(f"{where}: armature of a free joint is not supported ({WHOLE})")
    if m.opt.density or m.opt.viscosity:
        raise ValueError(f"<option density, viscosity>: fluid forces are not supported ({WHOLE})")


def _line(where: str) -> str:
    return where[where.rindex("in ") :]


# ---- of a whole robot
LAWS = {
    "gaintype": ("FIXED", "AFFINE"),
    "biastype": ("NONE", "AFFINE"),
    "dyntype": ("NONE", "INTEGRATOR", "FILTER", "FILTEREXACT"),
    "trntype": ("JOINT", "JOINTINPARENT", "TENDON", "SITE", "SLIDERCRANK", "UNDEFINED"),
}


def refuse_laws(spec: Any) -> None:
    """Actuators whose law is not affine, or that act on something else than joints, tendons and sites.

    They are refused before they are compiled, which fails for some muscles.
    """
    for actuator in spec.actuators:
        for attribute, known in LAWS.items():
            found = getattr(actuator, attribute).name.rpartition("_")[2]
            if found not in known:
                raise ValueError(
                    f"actuator {called(actuator)}: {attribute} {found.lower()!r} is not supported "
                    "(ignore=('actuator',) loads the file without actuators)"
                )


def judged(description: Description, ignore: frozenset[str]) -> Description:
    """The description without what is to be ignored of it, and without tendons that do nothing.

    ValueError for tendons that are not straight, or have an armature.
    """
    tendons = description.tendons
    if "tendon" in ignore:
        none = {"stiffness": (), "damping": (), "friction": 0.0, "armature": 0.0, "limits": None}
        tendons = tuple(replace(tendon, **none) for tendon in tendons)
    used = {end for drive in description.drives for end in drive.targets if isinstance(end, str)}
    used |= {end for coupling in description.couplings for end in (coupling.first, coupling.second) if end}
    measured = {measure.target for measure in description.measures if isinstance(measure.target, str)}
    needed = lambda x: x.acts or x.armature or x.name in used or (x.name in measured and _around(x) is None)
    kept = tuple(tendon for tendon in tendons if needed(tendon))
    for tendon in kept:
        out = "(ignore=('tendon', 'equality', 'actuator') loads the file without its tendons and what acts on them)"
        if around := _around(tendon):
            raise ValueError(f"tendon {tendon.where}: it wraps around a {around}, which is not supported {out}")
        if tendon.armature:
            raise ValueError(f"tendon {tendon.where}: armature of a tendon is not supported {out}")
    if "armature" not in ignore:
        return replace(description, tendons=kept)
    none = lambda body: replace(body, joint=replace(body.joint, armature=0.0)) if body.joint.kind == "free" else body
    return replace(description, tendons=kept, bodies=tuple(map(none, description.bodies)), free_armature=())


def _around(tendon: Tendon) -> str | None:
    """The kind of the first geom that a tendon wraps around."""
    return next((piece.kind for piece in tendon.path if piece.kind in ("sphere", "cylinder")), None)
