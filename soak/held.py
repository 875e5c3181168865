"""Robots with equalities beside MuJoCo in the limit in which its constraints are stiff.

At rest, in configurations in which all equalities hold, the accelerations of both are the same but for what MuJoCo's
constraints give way, a share 1 - d of them. MuJoCo takes impedances d up to 0.9999, at which the difference is still
large where constraints hardly reach some directions; in the limit d = 1 of its own equations it has to vanish.
Limits, dry friction and contact are off on both sides. Read first: `driven.py`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import lgjax
from lgjax.conventions import from_mujoco, to_mujoco
from soak import packages
from soak.agreement_records import Records
from soak.beside_mujoco import smooth
from tests import conftest

ROBOTS, STATES, MOST = 20, 5, 60
IMPEDANCES = (0.99, 0.999, 0.9999)  # MuJoCo takes no more than the last
SPREAD = 0.05  # rad and m from the configuration that the file shows, before the equalities are closed
EXACT = 1e-6  # of the largest acceleration; Jacobians are near singular in some configurations


def hold_all(match: str, keep: Records, say: Callable[[str], None]) -> int:
    """Print a line for each robot and what they come to; 1 if one of them does not agree."""
    for path, robot, theirs in held_robots(match):
        if not keep.begun("held", path):
            try:
                said = stiff_limit(robot, theirs)
            except Exception as error:  # of any kind: the next ones are held all the same
                said = f"{type(error).__name__}: {error}"[:500]
            keep.add("held", path, {"said": said})
            conftest.forget()
    said = [one.get("said", one.get("raised")) for _, one in keep.of("held")]
    missed = [line for line in said if not line.endswith("; as it should")]
    say(f"held: {len(said) - len(missed)} of {len(said)} robots with equalities agree with MuJoCo in the stiff limit")
    return 1 if missed else 0


def held_robots(match: str) -> Iterator[tuple[Path, lgjax.Robot, Any]]:
    """Robots with loops, one from each folder."""
    from soak.agreements import loaded, read_by_other

    folders: set[Path] = set()
    for path in packages.files("mjcf"):
        if match not in str(path) or len(folders) == ROBOTS or path.parent in folders:
            continue
        try:
            theirs = read_by_other("mjcf", path)
        except ValueError:
            continue
        if not theirs.eq_active0.any() or not 0 < theirs.nv <= MOST:
            continue
        robot, way, _ = loaded("mjcf", path)
        if robot is None or not robot.loops or "ignore" in way:
            continue
        folders.add(path.parent)
        yield path, robot, theirs


def stiff_limit(robot: lgjax.Robot, theirs: Any) -> str:
    """How far accelerations are apart at each impedance, as a part of the largest."""
    off = mujoco.mjtDisableBit
    theirs.opt.disableflags |= int(off.mjDSBL_CONTACT.value | off.mjDSBL_LIMIT.value | off.mjDSBL_FRICTIONLOSS.value)
    theirs.opt.tolerance, theirs.opt.iterations = 0.0, 1000
    theirs.eq_solref[:] = 0  # no force for what is open or moves
    q, ours, held = _ours(robot, theirs)
    if not held.any():
        return "no configuration closes the equalities"
    apart = []
    for impedance in IMPEDANCES:
        theirs.eq_solimp[:] = impedance, impedance, 1, 0.5, 1
        found = np.array([_acceleration(theirs, x) for x in q[held]])
        scale = np.abs(ours[held]).max(1).clip(1e-3)
        apart.append(float((np.abs(found - ours[held]).max(1) / scale).max()))
    limit = np.array([_acceleration(theirs, x, True) for x in q[held]])
    apart.append(float((np.abs(limit - ours[held]).max(1) / scale).max()))
    good = apart[-1] < EXACT
    parts = ", ".join(f"{x:.1e}" for x in apart)
    said = (
        f"nv {theirs.nv}, {theirs.neq} equalities, {int(held.sum())} states, with 1 - d = .01, .001, .0001, 0: {parts}"
    )
    return said + ("; as it should" if good else "; NOT as it should")


def _acceleration(theirs: Any, q: np.ndarray, limit: bool = False) -> np.ndarray:
    """MuJoCo's answer at rest; limit: of its own equations, in which nothing gives way."""
    data, nv = mujoco.MjData(theirs), theirs.nv
    data.qpos[:] = q
    mujoco.mj_forward(theirs, data)
    if not limit:
        return data.qacc.copy()
    M, J = np.zeros((nv, nv)), np.zeros((data.nefc, nv))
    mujoco.mj_fullM(theirs, data, M)
    if mujoco.mj_isSparse(theirs):
        mujoco.mju_sparse2dense(J, data.efc_J, data.efc_J_rownnz, data.efc_J_rowadr, data.efc_J_colind)
    else:
        J = data.efc_J.reshape(-1, nv)[: data.nefc]
    free = np.linalg.solve(M, data.qfrc_smooth)
    half = np.linalg.inv(np.linalg.cholesky(M)).T  # M^-1 = half half'
    return free - half @ np.linalg.pinv(J @ half, rcond=1e-10) @ (J @ free)


def _ours(robot: lgjax.Robot, theirs: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Closed configurations in MuJoCo's form, accelerations at rest there, and whether they are closed."""
    model, data, start = robot.model, mujoco.MjData(theirs), []
    draw = np.random.default_rng(0)
    for _ in range(STATES):
        mujoco.mj_resetData(theirs, data)
        mujoco.mj_integratePos(theirs, data.qpos, SPREAD * draw.normal(size=theirs.nv), 1.0)
        start.append(data.qpos.copy())
    passive, drives = smooth(robot.forces), robot.actuators

    @jax.jit
    @jax.vmap
    def f(flat):
        state = from_mujoco(model, flat, jnp.zeros(model.nv))
        closed = lgjax.project_positions(model, robot.loops, state.q)
        tau = -model.damping * state.v
        if passive is not None:
            tau = tau + passive(0.0, closed.q, state.v)
        if drives is not None:
            nothing = jnp.zeros(len(drives)), jnp.zeros(drives.na)
            tau = tau + drives.torque(closed.q, state.v, *nothing)
        found = lgjax.constrained_forward_dynamics(model, robot.loops, closed.q, state.v, tau)
        flat = to_mujoco(model, closed.q, state.v, found.vdot)
        return flat.q, flat.vdot, closed.converged

    return tuple(map(np.asarray, f(jnp.asarray(start))))
