"""What Pinocchio and MuJoCo read from the same file: whether it is the same mechanism, by numbers at one state."""

import os
import tempfile
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pinocchio
from lxml import etree

from soak.plain import mass_matrix

MOST = 200  # velocities of the largest mechanism whose mass matrix is compared
SIMPLE = {"revolute", "prismatic", "spherical", "free"}


def by_pinocchio(content: bytes, floating: bool) -> Any:
    """Pinocchio's model; ValueError for what it refuses.

    Its parser says on the terminal what it does not understand, and goes on without: that is a refusal too.
    """
    with tempfile.TemporaryFile() as said:
        stderr = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            found = pinocchio.buildModelFromXML(
                content.decode(), *([pinocchio.JointModelFreeFlyer()] if floating else [])
            )
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        said.seek(0)
        text = said.read().decode(errors="replace")
    if "Error:" in text:
        raise ValueError(text[text.index("Error:") :].split("\n")[0])
    return found


def without_looks(content: bytes) -> bytes:
    """A URDF without what plays no part in the motion: Pinocchio checks it, and this library does not read it."""
    root = etree.fromstring(content, etree.XMLParser(recover=True, resolve_entities=False))
    for tag in ("visual", "collision", "material", "transmission", "gazebo", "safety_controller", "calibration"):
        for element in list(root.iter(tag)):
            if element.getparent().tag in ("robot", "link", "joint"):
                element.getparent().remove(element)
    return etree.tostring(root)


def by_mujoco(path: Path) -> Any:
    return mujoco.MjModel.from_xml_path(str(path))


def differences_from_pinocchio(model: Any, theirs: Any, floating: bool, seed: int) -> str | None:
    """What differs, or None. Pinocchio lists children by name, and has a joint that floats relative to its parent."""
    kinds = [kind.name for kind in model.tree.kinds]
    if sum(joint.shortname() == "JointModelFreeFlyer" for joint in theirs.joints) > floating:
        return None
    if model.nv != theirs.nv:
        return f"nv {model.nv}, theirs {theirs.nv}"
    mass = sum(inertia.mass for inertia in list(theirs.inertias)[1:])
    if not np.isclose(float(np.sum(model.inertias.mass)), mass, rtol=1e-9):
        return f"mass {float(np.sum(model.inertias.mass))}, theirs {mass}"
    if set(kinds) - SIMPLE or kinds.count("free") > floating or model.nv > MOST:
        return None
    random, q, where = np.random.default_rng(seed), [], []
    theirs_q = pinocchio.neutral(theirs)
    for name, kind in zip(model.tree.joint_names, kinds, strict=True):
        number = 1 if kind == "free" else theirs.getJointId(name)
        if number >= theirs.njoints:
            return f"joint {name!r} is not theirs"
        start = theirs.idx_vs[number]
        where += [*range(start + 3, start + 6), *range(start, start + 3)] if kind == "free" else [start]
        q.append(None if kind == "free" else random.uniform(-2, 2))
        if kind != "free":
            at, pair = theirs.idx_qs[number], theirs.nqs[number] == 2
            theirs_q[at : at + 1 + pair] = (np.cos(q[-1]), np.sin(q[-1])) if pair else q[-1]
    found = mass_matrix(model, q)
    expected = np.triu(pinocchio.crba(theirs, theirs.createData(), theirs_q))
    expected = (expected + np.triu(expected, 1).T)[np.ix_(where, where)]
    return _differ("mass matrix", found, expected) or _differ(
        "damping", np.asarray(model.damping), np.asarray(theirs.damping)[where]
    )


def differences_from_mujoco(model: Any, theirs: Any, seed: int) -> str | None:
    """What differs, or None. Bodies are in the same order."""
    if model.nv != theirs.nv:
        return f"nv {model.nv}, theirs {theirs.nv}"
    moves = np.zeros(theirs.nbody, bool)
    for i in range(1, theirs.nbody):
        moves[i] = moves[theirs.body_parentid[i]] or theirs.body_jntnum[i] > 0
    mass = float(theirs.body_mass[moves].sum())
    if not np.isclose(float(np.sum(model.inertias.mass)), mass, rtol=1e-9):
        return f"mass {float(np.sum(model.inertias.mass))}, theirs {mass}"
    if model.nv > MOST:
        return None
    random, data, q, where = np.random.default_rng(seed), mujoco.MjData(theirs), [], []
    for joint, kind in zip(range(theirs.njnt), model.tree.kinds, strict=True):
        at, dof, turn = theirs.jnt_qposadr[joint], theirs.jnt_dofadr[joint], np.zeros(9)
        if kind.name == "free":
            q.append(None)
            data.qpos[at : at + 7] = 0, 0, 0, 1, 0, 0, 0
            where += [*range(dof + 3, dof + 6), *range(dof, dof + 3)]
        elif kind.name == "spherical":
            quaternion = random.normal(size=4)
            data.qpos[at : at + 4] = quaternion / np.linalg.norm(quaternion)
            mujoco.mju_quat2Mat(turn, data.qpos[at : at + 4])
            q.append(turn.reshape(3, 3))
            where += range(dof, dof + 3)
        else:
            q.append(random.uniform(-1, 1))
            data.qpos[at] = q[-1]
            where.append(dof)
    mujoco.mj_kinematics(theirs, data)
    mujoco.mj_comPos(theirs, data)
    mujoco.mj_crb(theirs, data)
    full = np.zeros((theirs.nv, theirs.nv))
    mujoco.mj_fullM(theirs, data, full)
    damps = not theirs.opt.disableflags & getattr(
        mujoco.mjtDisableBit, "mjDSBL_DAMPER", mujoco.mjtDisableBit.mjDSBL_GRAVITY
    )
    return (
        _differ("mass matrix", mass_matrix(model, q), full[np.ix_(where, where)])
        or (_differ("damping", np.asarray(model.damping), theirs.dof_damping[where]) if damps else None)
        or _differ("limits", *_limits(model, theirs))
    )


def _limits(model: Any, theirs: Any) -> tuple[np.ndarray, np.ndarray]:
    scalar = [j for j in range(theirs.njnt) if theirs.jnt_type[j] in (2, 3)]
    limited = theirs.jnt_limited[scalar].astype(bool)
    expected = np.where(limited, theirs.jnt_range[scalar].T, [[-1e9], [1e9]])
    return np.clip([np.asarray(model.lower), np.asarray(model.upper)], -1e9, 1e9), np.clip(expected, -1e9, 1e9)


def _differ(what: str, found: np.ndarray, expected: np.ndarray) -> str | None:
    if not np.isfinite(expected).all():
        return None  # theirs overflows
    scale = max(np.abs(expected).max(initial=0), 1e-300)
    error = np.abs(found - expected).max(initial=0) / scale
    return None if error < 1e-9 else f"{what} differs by {error:.2g} of its largest entry {scale:.3g}"
