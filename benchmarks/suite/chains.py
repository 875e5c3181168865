"""Trees of bodies: chains of rods, hinged in the plane and on ball joints in space, and a robot without gravity.

Generalized-alpha of this library compiles for minutes on these, and is left out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

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


def rods(n: int, joint: str) -> str:
    """The world of n rods, each hanging by a joint from the end of the one before."""
    bodies = ""
    for i in reversed(range(n)):
        bodies = (
            f'<body name="rod{i}" pos="0 0 {-1 if i else 0}">{joint}<inertial pos="0 0 -0.5" mass="1" '
            f'diaginertia="{THIN!r} {THIN!r} {AXIAL!r}"/>{bodies}</body>'
        )
    return f"<worldbody>{bodies}</worldbody>"


def planar(n: int = 6, end: float = 2.0) -> Problem:
    """n rods, let go straight and level."""
    quarter = float(np.pi / 2)
    m = Mechanism(rods(n, '<joint type="hinge" axis="0 1 0"/>'), (quarter, *[0.0] * (n - 1)), (0.0,) * n, DOWN)
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

    text = f"{n} uniform rods of 1 m and 1 kg, let go horizontally"
    return Problem("chain", "Chain of pendulums", text, end, n, {"energy": mujoco_energy(m)}, references, sweeps)


def spatial(n: int = 4, end: float = 2.0) -> Problem:
    """n rods on ball joints, hanging, with turns of all kinds."""
    rates = [(3.0, 1.0, 2.0), (-2.0, 1.0, 0.0), (0.0, -3.0, 1.0), (2.0, 2.0, -2.0), (-1.0, 2.0, 1.0)][:n]
    inertia = (THIN, THIN, AXIAL)
    qvel = tuple(x for rate in rates for x in rate)
    m = Mechanism(rods(n, '<joint type="ball"/>'), (1.0, 0.0, 0.0, 0.0) * n, qvel, DOWN)
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
        return tree_references(links, [*(1, 0, 0, 0) * n, *qvel], end, 300)

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

    text = f"{n} uniform rods of 1 m and 1 kg on ball joints, hanging"
    return Problem("ball_chain", "Chain on ball joints", text, end, m.positions, {"energy": energy}, references, sweeps)


def robot(end: float = 1.0) -> Problem:
    """A body with four legs of two links, without gravity; it tumbles, and its legs swing."""
    hips = [(x, y, -0.1) for x in (0.3, -0.3) for y in (0.2, -0.2)]
    links = [Link(GROUND, "free", (0, 0, 0), (0, 0, 1), (0, 0, 0), 10, (0.2, 0.4, 0.5))]
    bodies = ""
    for k, hip in enumerate(hips):
        axes = ((1, 0, 0) if k % 2 else (0, 1, 0), (0, 1, 0))
        thigh = Link(0, "hinge", hip, axes[0], (0, 0, "-0.15"), 1, (0.02, 0.02, 0.005))
        links += [thigh, thigh._replace(parent=2 * k + 1, at=(0, 0, "-0.3"), axis=axes[1])]
        bodies += _leg(f"thigh{k}", hip, axes[0], _leg(f"shank{k}", (0, 0, -0.3), axes[1]))
    base = '<freejoint/><inertial pos="0 0 0" mass="10" diaginertia="0.2 0.4 0.5"/>'
    rates = (0.3, -0.2, 0.5, 1.0, 2.0, -1.5, 2.0, -3.0, -1.0, 2.5, 1.5, -2.0, 3.0, 1.0)
    m = Mechanism(
        f'<worldbody><body name="base">{base}{bodies}</body></worldbody>', (0, 0, 0, 1, 0, 0, 0, *(0,) * 8), rates
    )
    tree = Tree(links, (0, 0, 0), float)

    def moved(state: np.ndarray) -> Any:
        """Of every body: mass, place and velocity of its center, momentum of its turning; and the energy."""
        q = Rotation.from_matrix(state[:9].reshape(3, 3)).as_quat(scalar_first=True)
        y = np.concatenate([state[9:12], q, state[12:]])
        found, energy = [], 0.0
        for link, (turn, x, u, w, _) in zip(tree.links, tree.bodies(y), strict=True):
            c, spin = turn @ link.com, turn @ (link.inertia * (turn.T @ w))
            found.append((link.mass, x + c, u + np.cross(w, c), spin))
            energy += 0.5 * link.mass * found[-1][2] @ found[-1][2] + 0.5 * spin @ w
        return found, energy

    def momentum(state: np.ndarray) -> np.ndarray:
        bodies, _ = moved(state)
        linear, angular = sum(m * u for m, _, u, _ in bodies), sum(m * np.cross(x, u) + s for m, x, u, s in bodies)
        return np.concatenate([linear, angular])

    def sweeps() -> list[Sweep]:
        found = library.tree_sweeps(m, 100) + peers.mujoco_sweeps(m, 100)
        return found + peers.pinocchio_sweeps(m, 100) + peers.mjx_sweeps(m, 100)

    start = [0, 0, 0, 1, 0, 0, 0, *(0,) * 8, *rates]
    references = lambda: tree_references(links, start, end, 25, (0, 0, 0))
    invariants = {"energy": lambda state: moved(state)[1], "momentum": momentum}
    text = "four legs of two links of 1 kg each on a body of 10 kg, all moving"
    return Problem("robot", "Robot without gravity", text, end, m.positions, invariants, references, sweeps)


def _leg(name: str, place: Any, axis: Any, inside: str = "") -> str:
    at, along = (" ".join(map(str, x)) for x in (place, axis))
    return (
        f'<body name="{name}" pos="{at}"><joint type="hinge" axis="{along}"/><inertial pos="0 0 -0.15" mass="1" '
        f'diaginertia="0.02 0.02 0.005"/>{inside}</body>'
    )


def problems() -> list[Problem]:
    return [planar(), spatial(), robot()]
