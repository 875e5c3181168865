"""A row of dominoes in the plane, from event to event: each turns about its right lower edge, which stays in place.

Coordinates are the tilts to the right. The right upper edge of a domino pushes the left face of the next one without
friction and without rebound; a domino that nothing pushes stands. NumPy and SciPy alone, no code of the library.
"""

from typing import NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import nnls

G = 9.81
CLOSED = 1e-9  # gaps, m and rad, below which an edge touches


class Row(NamedTuple):
    """count dominoes of a width, height and mass, whose right lower edges are `apart`."""

    count: int
    width: float
    height: float
    apart: float
    mass: float = 1.0

    @property
    def moment(self) -> float:
        """About the lower edge."""
        return self.mass * (self.width**2 + self.height**2) / 3

    def gaps(self, q):
        """Of the edges from the faces of the next dominoes, and of the dominoes from standing."""
        return np.append(self.apart * np.cos(q[1:]) - self.height * np.sin(q[:-1] - q[1:]) - self.width, q)

    def gradients(self, q, w):
        """Of the gaps, one a row, and the part of their second derivatives without accelerations."""
        n, lean = self.count, q[:-1] - q[1:]
        rows, rest = np.zeros((2 * n - 1, n)), np.zeros(2 * n - 1)
        for k in range(n - 1):
            rows[k, k] = -self.height * np.cos(lean[k])
            rows[k, k + 1] = -self.apart * np.sin(q[k + 1]) - rows[k, k]
            closing = w[k] - w[k + 1]
            rest[k] = self.height * np.sin(lean[k]) * closing**2 - self.apart * np.cos(q[k + 1]) * w[k + 1] ** 2
        rows[n - 1 :] = np.eye(n)
        return rows, rest

    def center(self, q):
        """Of a domino, from its lower edge: to the right and up."""
        sin, cos = np.sin(q), np.cos(q)
        return np.stack([self.height * sin - self.width * cos, self.height * cos + self.width * sin]) / 2

    def energy(self, q, w):
        return np.sum(self.moment * w**2 / 2 + self.mass * G * self.center(q)[1])

    def free(self, q):
        """Accelerations by gravity alone."""
        return self.mass * G * self.center(q)[0] / self.moment


def unilateral(rows, wanted, moment):
    """The least p >= 0 with rows p' / moment >= wanted, complementary, where p' = rowsᵀ p."""
    if not len(rows):
        return np.zeros(0)
    factor = np.linalg.cholesky(rows @ rows.T / moment)
    return nnls(factor.T, np.linalg.solve(factor, wanted))[0]


class Found(NamedTuple):
    """The state at the end, events (time, what), and the loads of the lower edges: (n, 2) forward and up of each."""

    q: np.ndarray
    w: np.ndarray
    events: list
    forces: list
    impulses: list


def run(row: Row, w: np.ndarray, end: float) -> Found:
    """From standing with the rates w."""
    q, t, n = np.zeros(row.count), 0.0, row.count
    w, events, forces, impulses = np.array(w, float), [], [], []
    while t < end:
        closed = np.flatnonzero(row.gaps(q) < CLOSED)
        rows, _ = row.gradients(q, w)
        push = unilateral(rows[closed], -rows[closed] @ w, row.moment)
        change = rows[closed].T @ push / row.moment
        if np.any(push > 1e-9):
            impulses.append(_loads(row, q, change, 0 * w, _of_pairs(closed, push, n), 0.0))
            events.append((t, "hit"))
        w = w + change
        _, rest = row.gradients(q, w)
        still = closed[np.abs(rows[closed] @ w) < 1e-9]
        force = unilateral(rows[still], -rows[still] @ row.free(q) - rest[still], row.moment)
        held = still[force > 1e-12]
        q, w, t, why = _smooth(row, q, w, t, end, held, forces)
        events.append((t, why))
    return Found(q, w, events, forces, impulses)


def _smooth(row, q, w, t, end, held, forces):
    """With the contacts of `held` closed until another one closes or one of them pulls."""
    n = row.count

    def pushes(q, w):
        rows, rest = row.gradients(q, w)
        rows = rows[held]
        return rows, np.linalg.solve(rows @ rows.T / row.moment, -rows @ row.free(q) - rest[held])

    def field(t, y):
        rows, force = pushes(y[:n], y[n:])
        return np.concatenate([y[n:], row.free(y[:n]) + rows.T @ force / row.moment])

    others = [k for k in range(2 * n - 1) if k not in held]
    closes = [lambda t, y, k=k: row.gaps(y[:n])[k] for k in others]
    pulls = [lambda t, y, k=k: pushes(y[:n], y[n:])[1][k] for k in range(len(held))]
    for event in closes + pulls:
        event.terminal, event.direction = True, -1
    found = solve_ivp(
        field, (t, end), np.concatenate([q, w]), method="DOP853", rtol=1e-12, atol=1e-13, events=closes + pulls,
        max_step=0.01,
    )  # fmt: skip
    for y in found.y.T:
        q, w = y[:n], y[n:]
        rows, force = pushes(q, w)
        pair = _of_pairs(held, force, n)
        forces.append(_loads(row, q, row.free(q) + rows.T @ force / row.moment, w, pair, G))
    why = "end" if found.status == 0 else "meets" if any(map(len, found.t_events[: len(closes)])) else "parts"
    return q, w, found.t[-1], why


def _of_pairs(closed, push, n):
    """The pushes of the n - 1 upper edges."""
    whole = np.zeros(2 * n - 1)
    whole[closed] = push
    return whole[: n - 1]


def _loads(row, q, alpha, w, pair, gravity):
    """What the ground gives to the lower edges (n, 2): Newton's law of the centers of mass."""
    x, z = row.center(q)
    a = np.stack([z * alpha - x * w**2, -x * alpha - z * w**2], axis=1)
    normal = np.stack([np.cos(q), -np.sin(q)], axis=1)  # of the left faces, into the domino
    given = row.mass * (a + np.array([0.0, gravity]))
    given[1:] -= pair[:, None] * normal[1:]
    given[:-1] += pair[:, None] * normal[1:]
    return given
