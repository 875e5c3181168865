"""Motions of driven robots of the installed packages beside MuJoCo's, over a second without contact.

The controls are constant, as MuJoCo holds them for a step. Ours is a motion of small steps of fourth order; MuJoCo's is
that of the integrator of the file, and of its RK4, with the step h and h / 2: the difference between the two has to
fall with h as the order of MuJoCo's integrator says. What MuJoCo has as constraints (limits of joints, dry friction) is
off on both sides, and robots with equalities are not among these. Read first: `beside_mujoco.py`.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import lgjax
from lgjax.conventions import from_mujoco, to_mujoco
from soak import packages
from soak.agreement_records import Records
from soak.beside_mujoco import smooth
from soak.robots import _quiet
from tests import conftest

ROBOTS, SECONDS, SAVED = 20, 1.0, 10
LARGEST_STEP = 1 / 512  # s
FINER, HALVED = (1, 4, 16), (1, 2, 4, 8, 16)  # shorter steps: of ours if they are not stable, of MuJoCo's
NEAR = 0.03  # apart at the longest of three steps: what is further apart is not stable, or not yet of any order
MOST, FROM_ONE_FOLDER = 60, 1  # velocities of a robot; robots
ORDERS = {"EULER": 1, "RK4": 4, "IMPLICIT": 1, "IMPLICITFAST": 1}
PARTS, WILD = (0.3, 0.05, 0.01, 0.002), 20.0  # of controls, the first with which no coordinate is larger than that
EXACT = 1e-9  # differences below have no order: they are rounding, and what our steps leave

# MuJoCo begins again where these happen.
LOST = [getattr(mujoco.mjtWarning, f"mjWARN_BAD{x}").value for x in ("QPOS", "QVEL", "QACC")]


class Start(NamedTuple):
    """State of MuJoCo and constant controls."""

    q: np.ndarray
    control: np.ndarray


def drive_all(match: str, keep: Records, say: Callable[[str], None]) -> int:
    """Print a line for each robot and what they come to; 1 if the order is missed by one of them."""
    for path, robot, theirs in driven_robots(match):
        if not keep.begun("driven", path):
            try:
                said = motion(robot, theirs)
            except Exception as error:  # of any kind: the next ones move all the same
                said = f"{type(error).__name__}: {error}"[:500]
            keep.add("driven", path, {"said": said})
            conftest.forget()
    said = [one.get("said", one.get("raised")) for _, one in keep.of("driven")]
    missed = [line for line in said if not line.endswith("; as its order says")]
    say(f"driven: {len(said) - len(missed)} of {len(said)} motions agree with MuJoCo's to the order of its integrator")
    return 1 if missed else 0


def driven_robots(match: str) -> Iterator[tuple[Path, lgjax.Robot, Any]]:
    """Different robots that load and have actuators, from different folders."""
    from soak.agreements import loaded, read_by_other

    folders: dict[Path, int] = {}
    shapes, count = set(), 0
    for path in packages.files("mjcf"):
        if match not in str(path) or count == ROBOTS or folders.get(path.parent, 0) >= FROM_ONE_FOLDER:
            continue
        try:
            theirs = read_by_other("mjcf", path)
        except ValueError:
            continue
        shape = theirs.nv, theirs.nu, theirs.body_mass.sum().round(6)
        if not theirs.nu or theirs.nv > MOST or theirs.neq or shape in shapes:
            continue
        robot, _, _ = loaded("mjcf", path)
        if robot is None or robot.actuators is None or len(robot.actuators) != theirs.nu:
            continue
        folders[path.parent] = folders.get(path.parent, 0) + 1
        shapes.add(shape)
        count += 1
        yield path, robot, theirs


def motion(robot: lgjax.Robot, theirs: Any) -> str:
    """How far the motions are apart, with which steps, and whether that is as MuJoCo's order says.

    Where a force reaches its limit it has a kink, across which no method keeps its order: if one is missed, the motion
    without limits of forces has to have it.
    """
    theirs.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT.value)
    said, good = _both(robot, theirs)
    said = f"nv {theirs.nv}, nu {theirs.nu}, na {theirs.na}, {said}"
    if not good and (theirs.actuator_forcelimited.any() or theirs.jnt_actfrclimited.any()):
        further, good = _both(*_without_limits(robot, theirs))
        said = f"{said}; without limits of forces, {further}"
    return said + ("; as its order says" if good else "; NOT as its order says")


def _both(robot: lgjax.Robot, theirs: Any) -> tuple[str, bool]:
    """What is said of MuJoCo's integrators, and whether each that is stable has its order, and there is one."""
    own = mujoco.mjtIntegrator(theirs.opt.integrator).name.rpartition("_")[2]
    steps = round(SECONDS / min(theirs.opt.timestep, LARGEST_STEP) / SAVED) * SAVED
    starts = (_start(theirs, part) for part in PARTS)
    start = next((x for x in starts if np.abs(_finest(robot, x, 8 * steps)).max() < WILD), _start(theirs, 0.0))
    exact = cache(lambda k: _finest(robot, start, 8 * steps * k))
    lines, good = [f"moved {np.abs(exact(1) - start.q).max():.2g}"], []
    # Our activations are exact for a step, or of first order, and Euler's steps are too long for some servos.
    names = dict.fromkeys((own, *(() if theirs.na else ("RK4",)), "IMPLICITFAST"))
    for name in names:
        if name == "IMPLICITFAST" != own and any(good):
            continue
        apart = cache(lambda k, name=name: _apart(theirs, exact(k), its_motion(theirs, start, name, steps * k)))
        k = next((k for k in HALVED if apart(k) < NEAR), None)
        if k is None:
            lines.append(f"{name} is not stable with h = 1/{HALVED[-1] * steps} s")
            continue
        order = np.log2(apart(2 * k) / max(apart(4 * k), 1e-300))
        good.append(bool(apart(4 * k) < EXACT or order > 0.8 * ORDERS[name]))
        parts = ", ".join(f"{apart(i * k):.1e}" for i in (1, 2, 4))
        lines.append(f"{name} with h = 1/{steps * k} s, h/2, h/4: {parts} (order {order:.1f})")
    return "; ".join(lines), bool(good) and all(good)


def _finest(robot: lgjax.Robot, start: Start, steps: int) -> np.ndarray:
    """Our motion with that many steps, or with more if it has no numbers."""
    return next((q for finer in FINER if np.isfinite(q := ours(robot, start, steps * finer)).all()), np.array(np.nan))


def _without_limits(robot: lgjax.Robot, theirs: Any) -> tuple[lgjax.Robot, Any]:
    theirs.actuator_forcelimited[:] = 0
    theirs.jnt_actfrclimited[:] = 0
    drives: Any = robot.actuators
    free = lambda limits: None if limits is None else jnp.broadcast_to(jnp.array([-jnp.inf, jnp.inf]), limits.shape)
    drives = drives.replace(force_range=free(drives.force_range), joint_range=free(drives.joint_range))
    return robot.replace(actuators=drives), theirs


def _start(theirs: Any, part: float) -> Start:
    """The first keyframe, or what the file shows; controls within a part of their half range, or of 1."""
    q = theirs.key_qpos[0] if theirs.nkey else theirs.qpos0
    draw = np.random.default_rng(0).uniform(-part, part, theirs.nu)
    low, high = theirs.actuator_ctrlrange.T
    within = (low + high) / 2 + draw * (high - low) / 2
    return Start(q.copy(), np.where(theirs.actuator_ctrllimited.astype(bool), within, draw))


def ours(robot: lgjax.Robot, start: Start, steps: int) -> np.ndarray:
    """Positions (SAVED, nq) in MuJoCo's form."""
    model = robot.model
    state = from_mujoco(model, jnp.asarray(start.q), jnp.zeros(model.nv))
    smoothed = robot.replace(forces=smooth(robot.forces))
    control = jnp.asarray(start.control)
    found = lgjax.rollout(
        smoothed, state.q, state.v, control, SECONDS / steps, steps, save_every=steps // SAVED, loops=(), contacts=()
    )
    flat = jax.vmap(lambda q, v: to_mujoco(model, q, v).q)(found.q, found.v)
    return np.asarray(flat)[1:]


def its_motion(theirs: Any, start: Start, integrator: str, steps: int) -> np.ndarray:
    """Positions (SAVED, nq) of MuJoCo."""
    before = theirs.opt.timestep, theirs.opt.integrator
    theirs.opt.timestep = SECONDS / steps
    theirs.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}").value
    data, found = mujoco.MjData(theirs), []
    data.qpos[:], data.ctrl[:] = start.q, start.control
    for _ in range(SAVED):
        with _quiet():
            mujoco.mj_step(theirs, data, steps // SAVED)
        lost = any(data.warning[i].number for i in LOST)
        found.append(np.full_like(data.qpos, np.nan) if lost else data.qpos.copy())
    theirs.opt.timestep, theirs.opt.integrator = before
    return np.array(found)


def _apart(theirs: Any, ours: np.ndarray, found: np.ndarray) -> float:
    """The largest difference of a position, in parts of the largest way; of quaternions with our sign."""
    if not np.isfinite(found).all():
        return np.inf
    alike = found.copy()
    for kind, at in zip(theirs.jnt_type, theirs.jnt_qposadr, strict=True):
        if kind <= 1:  # free and ball joints
            turn = slice(at + 3, at + 7) if kind == 0 else slice(at, at + 4)
            alike[:, turn] *= np.sign(np.sum(found[:, turn] * ours[:, turn], axis=1, keepdims=True))
    return float(np.abs(ours - alike).max() / max(1.0, np.abs(ours).max()))
