"""A quadrotor that carries a load on a rod: a free body with constant thrust along its own axis, and a ball joint."""

from typing import Any

import numpy as np

from benchmarks.suite import library, peers
from benchmarks.suite.chains import tree_references
from benchmarks.suite.mechanism import Mechanism
from benchmarks.suite.mechanisms import DOWN
from benchmarks.suite.multibody_reference import GROUND, Link
from benchmarks.suite.problem import Problem, Sweep, matrix

MASS, INERTIA, JOINT = 1.2, (0.012, 0.014, 0.022), -0.05
LOAD, MOMENT, ROD = 0.4, 0.0004, -0.8  # a ball of 0.05 m on a rod without mass
THRUST = 15.7
QVEL = (1.0, 0.0, 0.0, 0.6, -0.4, 1.5, 1.5, -1.0, 0.5)


def rate(t: Any, y: Any, xp: Any) -> list[Any]:
    """Of the place, quaternions of both bodies, the velocity and body rates: the load's force is eliminated.

    Its center has the acceleration ẍ + B1 Ω̇ + B2 ω̇ + bias, with B1 = -R â and B2 = -S b̂.
    """
    a, c = y[3:7], y[7:11]
    r, s = xp.array(matrix(a)), xp.array(matrix(c))
    u, w = xp.array(y[14:17]), xp.array(y[17:20])
    hat = lambda z: np.array([[0.0, -z, 0.0], [z, 0.0, 0.0], [0.0, 0.0, 0.0]])
    b1, b2 = -r @ hat(JOINT), -s @ hat(ROD)
    swing = lambda w, z: z * xp.stack([w[0] * w[2], w[1] * w[2], -(w[0] ** 2) - w[1] ** 2])
    pull = r @ swing(u, JOINT) + s @ swing(w, ROD) - np.array(DOWN)
    eye, j, i = np.eye(3), np.array(INERTIA), MOMENT * np.eye(3)
    mass = xp.concatenate([
        xp.concatenate([(MASS + LOAD) * eye, LOAD * b1, LOAD * b2], axis=1),
        xp.concatenate([LOAD * b1.T, np.diag(j) + LOAD * b1.T @ b1, LOAD * b1.T @ b2], axis=1),
        xp.concatenate([LOAD * b2.T, LOAD * b2.T @ b1, i + LOAD * b2.T @ b2], axis=1),
    ])  # fmt: skip
    force = xp.concatenate([
        THRUST * r[:, 2] + MASS * np.array(DOWN) - LOAD * pull, -xp.cross(u, j * u) - LOAD * b1.T @ pull,
        -LOAD * b2.T @ pull,
    ])  # fmt: skip
    return [*y[11:14], *_turned(a, u), *_turned(c, w), *xp.linalg.solve(mass, force)]


def _turned(a: Any, w: Any) -> list[Any]:
    p, q, r = w
    return [(-a[1] * p - a[2] * q - a[3] * r) / 2, (a[0] * p + a[2] * r - a[3] * q) / 2,
            (a[0] * q + a[3] * p - a[1] * r) / 2, (a[0] * r + a[1] * q - a[2] * p) / 2]  # fmt: skip


def state(y: Any) -> np.ndarray:
    """The suite's state of these coordinates."""
    y = np.asarray(y)
    r, s = (np.array(matrix(a)) for a in (y[3:7], y[7:11]))
    own = y[17:20] - s.T @ r @ y[14:17]
    return np.concatenate([r.ravel(), (r.T @ s).ravel(), y[:3], y[11:17], own])


def quadrotor(end: float = 2.0) -> Problem:
    """Its thrust carries the weight; it turns and the load swings."""
    load = (
        f'<body name="load" pos="0 0 {JOINT!r}"><joint type="ball"/><inertial pos="0 0 {ROD!r}" mass="{LOAD!r}" '
        f'diaginertia="{MOMENT!r} {MOMENT!r} {MOMENT!r}"/></body>'
    )
    frame = f'<inertial pos="0 0 0" mass="{MASS!r}" diaginertia="{" ".join(map(repr, INERTIA))}"/>'
    text = f'<worldbody><body name="frame"><freejoint/><site name="hub"/>{frame}{load}</body></worldbody>'
    m = Mechanism(text, (0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0), QVEL, DOWN)
    drive = (
        '<actuator><general site="hub" gear="0 0 1 0 0 0" gainprm="0" biastype="affine" '
        f'biasprm="{THRUST!r} 0 0"/></actuator>'
    )

    def references() -> list[tuple[str, Any]]:
        none = (0, 0, 0)
        links = [
            Link(GROUND, "free", none, (0, 0, 1), none, MASS, INERTIA, (0, 0, THRUST)),
            Link(0, "ball", (0, 0, JOINT), (0, 0, 1), (0, 0, ROD), LOAD, (MOMENT,) * 3),
        ]
        return tree_references(links, [*m.qpos, *QVEL], end, 100)

    def sweeps() -> list[Sweep]:
        # Angular before linear in this library, linear first in Pinocchio.
        found = library.tree_sweeps(m, 100, None, torque=np.array([0, 0, 0, 0, 0, THRUST, 0, 0, 0]))
        own = np.array(QVEL[6:]) + QVEL[3:6]
        start = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, *QVEL[:6], *own]
        found += peers.coordinate_sweeps(rate, start, state, slice(11, 20), 50)
        found += peers.mujoco_sweeps(m, 100, drive) + peers.mjx_sweeps(m, 100, drive)
        return found + peers.pinocchio_sweeps(m, 100, np.array([0, 0, THRUST, 0, 0, 0, 0, 0, 0]))

    text = (
        "1.2 kg with a constant thrust of 15.7 N along its axis, and 0.4 kg on a rod of 0.8 m on a ball joint 0.05 m "
        "below its center"
    )
    return Problem("quadrotor", "Quadrotor with a load", text, end, m.positions, {}, references, sweeps)


def problems() -> list[Problem]:
    return [quadrotor()]
