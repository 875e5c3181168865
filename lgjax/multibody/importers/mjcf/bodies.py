"""Bodies, joints and sites of a compiled MJCF as those of `build`."""

import math
from typing import Any

import numpy as np

from lgjax.multibody.build import Body, Joint
from lgjax.multibody.importers.mjcf.compiled import Compiled

MATRIX = [[0, 3, 4], [3, 1, 5], [4, 5, 2]]  # where MuJoCo's six numbers of a full inertia are


def moves(body: Any) -> bool:
    """Whether a body of the specification moves in the world."""
    while body is not None and body.name != "world":
        if body.joints:
            return True
        body = body.parent
    return False


def taken_inertias(mujoco: Any, spec: Any) -> dict[Any, tuple[bool, np.ndarray]]:
    """The explicit inertias by body, replaced in the spec by ones that MuJoCo accepts.

    The value is (True, full matrix in the body frame) or (False, diagonal in the inertial frame).
    """
    always = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE
    if spec.compiler.inertiafromgeom == always or spec.compiler.balanceinertia:
        return {}
    taken = {}
    for body in spec.bodies:
        if not body.explicitinertial or not moves(body):
            continue
        full = np.array(body.fullinertia)
        if np.isnan(full[0]):
            taken[body] = False, np.array(body.inertia)
        else:
            taken[body] = True, full[MATRIX]
            body.fullinertia = [math.nan, 0, 0, 0, 0, 0]
            body.iquat = _principal(mujoco, full[MATRIX])[1]  # the compiler keeps note of axes that are the body's own
        body.inertia = [max(body.mass, 1e-3)] * 3
    return taken


def _principal(mujoco: Any, inertia: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Principal moments (3,) and a quaternion of their axes, in MuJoCo's order."""
    moments, turn = np.zeros(3), np.zeros(4)
    mujoco.mju_eig3(moments, np.zeros(9), turn, inertia.ravel())
    return moments, turn


def put_back(file: Compiled, given: dict[int, tuple[bool, np.ndarray]]) -> None:
    """The moments that were replaced, in the compiled file too, where fluids, sensors and tendons read them."""
    for body, (full, inertia) in given.items():
        file.m.body_inertia[body] = _principal(file.mujoco, inertia)[0] if full else inertia
    if given:  # what the file's own state makes of them, such as the mass that a tendon moves
        file.mujoco.mj_setConst(file.m, file.mujoco.MjData(file.m))


def bodies(file: Compiled, given: dict[int, tuple[bool, np.ndarray]]) -> tuple[Body, ...]:
    """All bodies but the world, and after them named sites, as links without mass; given: inertias by number."""
    with np.errstate(all="ignore"):  # `build` finds and names what overflows
        return tuple(_bodies(file, given))


def _bodies(file: Compiled, given: dict[int, tuple[bool, np.ndarray]]) -> list[Body]:
    m, found, reflected = file.m, [], reflected_armature(file)
    for i in range(1, m.nbody):
        parent = file.body(m.body_parentid[i]) if m.body_parentid[i] else None
        rotation, position, name = file.rotation(m.body_quat[i]), m.body_pos[i].copy(), file.body(i)
        joint = _fixed(file, name)
        for j in range(m.body_jntadr[i], m.body_jntadr[i] + m.body_jntnum[i]):
            if j > m.body_jntadr[i]:  # every joint but the last moves a body of its own, which has the axes of this one
                between = file.name("BODY", -1, f"{name}_{joint.name}")
                found.append(Body(between, parent, joint, rotation, position))
                parent, rotation, position = between, np.eye(3), np.zeros(3)
            joint, rotation, position = _joint(file, j, rotation, position, reflected)
        axes = file.rotation(m.body_iquat[i])
        full, inertia = given.get(i, (False, m.body_inertia[i]))
        inertia = inertia if full else axes @ np.diag(inertia) @ axes.T
        symmetric = (inertia + inertia.T) / 2
        found.append(Body(name, parent, joint, rotation, position, m.body_mass[i], m.body_ipos[i].copy(), symmetric))
    return found + _sites(file, {body.name for body in found})


def _fixed(file: Compiled, name: str) -> Joint:
    return Joint(file.name("JOINT", -1, f"{name}_fixed"), "fixed")


def _sites(file: Compiled, taken: set[str]) -> list[Body]:
    found = []
    for i in range(file.m.nsite):
        name = file.mujoco.mj_id2name(file.m, file.mujoco.mjtObj.mjOBJ_SITE, i)
        if name:
            while name in taken:
                name += "_site"
            taken.add(name)
            parent, position, rotation = file.site(i)
            found.append(Body(name, parent, _fixed(file, name), rotation, position))
    return found


def reflected_armature(file: Compiled) -> np.ndarray:
    """Armature and linear damping (2, nv) that actuators add to the joints that they turn."""
    m, added = file.m, np.zeros((2, file.m.nv))
    for i in range(len(m.actuator_trntype)):
        both = [float(getattr(m, f"actuator_{what}", np.zeros(i + 1))[i]) for what in ("armature", "damping")]
        if not any(both):
            continue
        joint = m.actuator_trnid[i, 0]
        turned = m.actuator_trntype[i] in (
            file.mujoco.mjtTrn.mjTRN_JOINT.value,
            file.mujoco.mjtTrn.mjTRN_JOINTINPARENT.value,
        )
        if not turned or file.joint_kind(joint) not in ("hinge", "slide"):
            raise ValueError(
                f"actuator {file.where('actuators', i)}: armature and damping of an actuator are supported on hinges "
                "and slides alone"
            )
        added[:, m.jnt_dofadr[joint]] += m.actuator_gear[i, 0] ** 2 * np.array(both)
    return added


def _joint(
    file: Compiled, j: int, rotation: np.ndarray, position: np.ndarray, reflected: np.ndarray
) -> tuple[Joint, np.ndarray, np.ndarray]:
    """The joint, and the pose in the parent of the body that it moves at joint coordinate 0."""
    m, dof, name, kind = file.m, file.m.jnt_dofadr[j], file.joint(j), file.joint_kind(j)
    passive: dict[str, Any] = {"armature": m.dof_armature[dof] + reflected[0, dof]}
    if not file.disabled("FRICTIONLOSS"):
        passive["friction"] = m.dof_frictionloss[dof]
    if not file.disabled("DAMPER", "PASSIVE"):
        passive["damping"] = m.dof_damping[dof] + reflected[1, dof]
    if m.jnt_actfrclimited[j]:
        passive["effort"] = np.max(np.abs(m.jnt_actfrcrange[j]))
    if m.jnt_limited[j] and not file.disabled("LIMIT"):
        passive["lower"], passive["upper"] = m.jnt_range[j]
    passive = {key: float(value) for key, value in passive.items()}
    axis, origin = m.jnt_axis[j], m.jnt_pos[j]
    if kind == "free":
        return Joint(name, "free", **passive), np.eye(3), np.zeros(3)
    if kind == "ball":
        passive.pop("lower", None)
        passive.pop("upper", None)
        return Joint(name, "spherical", origin=tuple(origin), **passive), rotation, position
    # The file shows the body at coordinate ref; go back along the joint to coordinate 0.
    ref = m.qpos0[m.jnt_qposadr[j]]
    if kind == "slide":
        joint = Joint(name, "prismatic", tuple(axis), **passive)
        return joint, rotation, position - rotation @ axis * ref
    back = np.zeros(4)
    file.mujoco.mju_axisAngle2Quat(back, axis, -ref)
    back = file.rotation(back)
    joint = Joint(name, "revolute", tuple(axis), tuple(origin), **passive)
    return joint, rotation @ back, position + rotation @ (origin - back @ origin)
