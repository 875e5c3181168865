"""Chains of rods of 1 m and 1 kg: hinged in the plane, and on ball joints in space.

Generalized-alpha of this library compiles for minutes on these, and is left out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.suite import library, peers, reference
from benchmarks.suite.mechanism import Mechanism
from benchmarks.suite.mechanisms import DOWN, G, mujoco_energy
from benchmarks.suite.multibody_reference import GROUND, Link, Tree
from benchmarks.suite.problem import Problem, Sweep, matrix

THIN, AXIAL = 1.0 / 12.0, 0.01


def tree_references(
    links: Sequence[Link], start: Sequence[Any], end: float, steps: int, gravity: Sequence[Any] = ("0", "0", "-9.81")
) -> list[tuple[str, Any]]:
    """By Kane's equations and by those with the forces of joints, in long double, by steps of two sizes."""
    number = np.longdouble
    tree = Tree(links, gravity, number)
    y0 = np.array([number(str(x)) for x in start])
    first = reference.extrapolated(tree.kane, y0, end, steps, 8, number)
    second = reference.extrapolated(tree.newton_euler, tree.absolute_start(y0), end, 2 * steps, 6, number)
    exact = lambda state: [reference.mp().mpf(str(x)) for x in state]
    return [
        ("Kane's equations, extrapolation, 18 digits", exact(tree.from_joints(first))),
        ("Newton's and Euler's equations of all bodies", exact(tree.from_absolute(second, np.arctan2))),
    ]


def weights(n: int) -> tuple[np.ndarray, np.ndarray]:
    """κ_ij = Σ_k m s_ki s_kj and Σ_k m s_ki: the center of rod k is at Σ_i s_ki e_i, e_i up along rod i."""
    s = -(np.tril(np.ones((n, n)), -1) + 0.5 * np.eye(n))
    return s.T @ s, s.sum(0)


def planar(n: int = 6, end: float = 2.0) -> Problem:
    """n rods, let go straight and level."""
    bodies = ""
    for i in reversed(range(n)):
        place = "0 0 0" if i == 0 else "0 0 -1"
        bodies = (
            f'<body name="rod{i}" pos="{place}"><joint type="hinge" axis="0 1 0"/><inertial pos="0 0 -0.5" mass="1" '
            f'diaginertia="{THIN!r} {THIN!r} {AXIAL!r}"/>{bodies}</body>'
        )
    quarter = float(np.pi / 2)
    m = Mechanism(f"<worldbody>{bodies}</worldbody>", (quarter, *[0.0] * (n - 1)), (0.0,) * n, DOWN)
    kappa, sigma = weights(n)

    def rate(t: Any, y: Any, xp: Any) -> list[Any]:
        q, v = xp.array(y[:n]), xp.array(y[n:])
        gap = q[:, None] - q[None, :]
        force = sigma * G * xp.sin(q) - (kappa * xp.sin(gap)) @ (v * v)
        return [*v, *xp.linalg.solve(kappa * xp.cos(gap) + THIN * np.eye(n), force)]

    def references() -> list[tuple[str, Any]]:
        rod = Link(GROUND, "hinge", (0, 0, 0), (0, 1, 0), (0, 0, "-0.5"), 1, (THIN, THIN, AXIAL))
        links = [rod._replace(parent=i - 1, at=(0, 0, -1 if i else 0)) for i in range(n)]
        return tree_references(links, [repr(quarter), *[0] * (2 * n - 1)], end, 200)

    def state(y: Any) -> np.ndarray:
        y = np.asarray(y)
        return np.concatenate([np.diff(y[:n], prepend=0.0), np.diff(y[n:], prepend=0.0)])

    def sweeps() -> list[Sweep]:
        found = library.tree_sweeps(m, 200, group=False)
        found += peers.coordinate_sweeps(rate, [quarter] * n + [0.0] * n, state, slice(n, 2 * n), 100)
        found += peers.mujoco_sweeps(m, 200) + peers.pinocchio_sweeps(m, 200) + peers.exudyn_sweeps(m, 400)
        return found + peers.mjx_sweeps(m, 200) + peers.drake_sweeps(m)

    text = f"{n} uniform rods of 1 m and 1 kg, let go level"
    return Problem("chain", "Chain of pendulums", text, end, n, {"energy": mujoco_energy(m)}, references, sweeps)


def spatial(n: int = 4, end: float = 2.0) -> Problem:
    """n rods on ball joints, hanging, with turns of all kinds."""
    rates = [(3.0, 1.0, 2.0), (-2.0, 1.0, 0.0), (0.0, -3.0, 1.0), (2.0, 2.0, -2.0), (-1.0, 2.0, 1.0)][:n]
    inertia = (THIN, THIN, AXIAL)
    bodies = ""
    for i in reversed(range(n)):
        place = "0 0 0" if i == 0 else "0 0 -1"
        bodies = (
            f'<body name="rod{i}" pos="{place}"><joint type="ball"/><inertial pos="0 0 -0.5" mass="1" '
            f'diaginertia="{THIN!r} {THIN!r} {AXIAL!r}"/>{bodies}</body>'
        )
    qvel = tuple(x for rate in rates for x in rate)
    m = Mechanism(f"<worldbody>{bodies}</worldbody>", (1.0, 0.0, 0.0, 0.0) * n, qvel, DOWN)
    kappa, sigma = weights(n)

    def rate(t: Any, y: Any, xp: Any) -> list[Any]:
        """Quaternions and rates in the bodies: v_k = Σ_i s_ki B_i ω_i with B_i = -R_i ê₃."""
        a, w = xp.array(y[: 4 * n]).reshape(n, 4), xp.array(y[4 * n :]).reshape(n, 3)
        r = xp.array(matrix([a[:, k] for k in range(4)])).transpose(2, 0, 1)
        j = np.array(inertia)
        b = xp.stack([-r[:, :, 1], r[:, :, 0], 0 * r[:, :, 2]], axis=-1)
        across = w[:, 0] ** 2 + w[:, 1] ** 2
        pulls = xp.stack([w[:, 0] * w[:, 2], w[:, 1] * w[:, 2], -across], axis=-1)
        bias = xp.einsum("iab,ib->ia", r, pulls)  # R (ω x (ω x e₃))
        total = kappa @ bias - sigma[:, None] * np.array(DOWN)
        force = -xp.einsum("iab,ia->ib", b, total) - xp.cross(w, j * w)
        mass = xp.einsum("ij,iab,jac->ibjc", kappa, b, b).reshape(3 * n, 3 * n) + np.diag(np.tile(j, n))
        p, q, s = w[:, 0], w[:, 1], w[:, 2]
        turned = 0.5 * xp.stack(
            [-a[:, 1] * p - a[:, 2] * q - a[:, 3] * s, a[:, 0] * p + a[:, 2] * s - a[:, 3] * q,
             a[:, 0] * q + a[:, 3] * p - a[:, 1] * s, a[:, 0] * s + a[:, 1] * q - a[:, 2] * p], axis=-1
        )  # fmt: skip
        return [*turned.reshape(-1), *xp.linalg.solve(mass, force.reshape(-1))]

    def state(y: Any) -> np.ndarray:
        a, w = np.asarray(y)[: 4 * n].reshape(n, 4), np.asarray(y)[4 * n :].reshape(n, 3)
        r = [np.array(matrix(x)) for x in a]
        relative = [r[0]] + [r[i - 1].T @ r[i] for i in range(1, n)]
        own = [w[0]] + [w[i] - relative[i].T @ w[i - 1] for i in range(1, n)]
        return np.concatenate([np.ravel(relative), np.ravel(own)])

    def references() -> list[tuple[str, Any]]:
        rod = Link(GROUND, "ball", (0, 0, 0), (0, 0, 1), (0, 0, "-0.5"), 1, inertia)
        links = [rod._replace(parent=i - 1, at=(0, 0, -1 if i else 0)) for i in range(n)]
        return tree_references(links, [*(1, 0, 0, 0) * n, *qvel], end, 200)

    def sweeps() -> list[Sweep]:
        start = np.concatenate([np.tile([1.0, 0.0, 0.0, 0.0], n), np.cumsum(rates, axis=0).ravel()])
        found = library.tree_sweeps(m, 200)
        found += peers.coordinate_sweeps(rate, start, state, slice(4 * n, 7 * n), 100)
        found += peers.mujoco_sweeps(m, 200) + peers.pinocchio_sweeps(m, 200) + peers.exudyn_sweeps(m, 400)
        return found + peers.mjx_sweeps(m, 200) + peers.drake_sweeps(m)

    def energy(s: np.ndarray) -> float:
        r, w = s[: 9 * n].reshape(n, 3, 3), s[9 * n :].reshape(n, 3)
        whole, omega, up, speed, total = np.eye(3), np.zeros(3), np.zeros(3), np.zeros(3), 0.0
        for i in range(n):
            whole, omega = whole @ r[i], r[i].T @ omega + w[i]
            e, turn = whole[:, 2], whole @ np.cross(omega, [0.0, 0.0, 1.0])
            center = speed - 0.5 * turn
            total += 0.5 * center @ center + 0.5 * omega @ (np.array(inertia) * omega) + G * (up - 0.5 * e)[2]
            up, speed = up - e, speed - turn
        return total

    text = f"{n} uniform rods of 1 m and 1 kg on ball joints, hanging; SciPy and diffrax have quaternions"
    return Problem("ball_chain", "Chain on ball joints", text, end, m.positions, {"energy": energy}, references, sweeps)


def problems() -> list[Problem]:
    return [planar(), spatial()]
