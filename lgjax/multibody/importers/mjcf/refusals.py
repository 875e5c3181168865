"""What of an MJCF is refused, by name and line, because it would change the motion if it were left out."""

from typing import Any

import numpy as np

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
