"""Motions of the systems by SciPy, formulated otherwise than in the library: quaternions, positions, constraints."""

from functools import cache

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import ellipj

TIGHT = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14}


def rotation(quaternion: np.ndarray) -> np.ndarray:
    a, b, c, d = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (c * c + d * d), 2 * (b * c - a * d), 2 * (b * d + a * c)],
            [2 * (b * c + a * d), 1 - 2 * (b * b + d * d), 2 * (c * d - a * b)],
            [2 * (b * d - a * c), 2 * (c * d + a * b), 1 - 2 * (b * b + c * c)],
        ]
    )


def heavy_top(tensor: np.ndarray, lever: np.ndarray, gravity: np.ndarray, omega: np.ndarray, end: float):
    """Q and body angular velocity at the end; gravity the vector, lever mass times the center's position."""

    def rate(t, y):
        a, w = y[:4], y[4:]
        quaternion = 0.5 * np.array([-a[1:] @ w, *(a[0] * w + np.cross(a[1:], w))])
        torque = np.cross(lever, rotation(a).T @ gravity)
        return np.concatenate([quaternion, np.linalg.solve(tensor, torque - np.cross(w, tensor @ w))])

    y = solve_ivp(rate, (0.0, end), np.concatenate([[1.0, 0, 0, 0], omega]), **TIGHT).y[:, -1]
    return rotation(y[:4]), y[4:]


def free_body_momentum(inertia: np.ndarray, first: float, third: float, t: np.ndarray) -> np.ndarray:
    """Body momentum (n, 3) of ω(0) = (first, 0, third) for I_1 < I_2 < I_3 by Jacobi's elliptic functions."""
    i1, i2, i3 = inertia
    rate = third * np.sqrt((i3 - i2) * (i3 - i1) / (i1 * i2))
    second = (i3 - i1) * third * first / (i2 * rate)
    m = (i2 - i1) * first * second / (rate * i3 * third)
    assert 0 < m < 1, "the motion must turn about the third axis"
    sn, cn, dn, _ = ellipj(rate * t, m)
    return np.stack([i1 * first * cn, i2 * second * sn, i3 * third * dn], axis=-1)


def linked_masses(x, v, masses, links, forces):
    """Accelerations (n, 3) of points under forces with the distances of linked pairs held, by multipliers."""
    n = len(masses)
    jacobian, right = np.zeros((len(links), n, 3)), np.zeros(len(links))
    for row, (i, j) in enumerate(links):
        d = x[i] - (x[j] if j is not None else 0.0)
        dv = v[i] - (v[j] if j is not None else 0.0)
        jacobian[row, i] = d
        if j is not None:
            jacobian[row, j] = -d
        right[row] = -dv @ dv
    jacobian = jacobian.reshape(len(links), -1)
    inverse = np.repeat(1.0 / np.asarray(masses), 3)
    free = forces.ravel() * inverse
    multipliers = np.linalg.solve((jacobian * inverse) @ jacobian.T, right - jacobian @ free)
    return (free + inverse * (jacobian.T @ multipliers)).reshape(n, 3)


def pendulum(q, omega, masses, lengths, gravity: np.ndarray, end: float):
    """Directions and angular velocities (n, 3) at the end, from the positions of the masses."""
    n = len(masses)
    links = [(i, i - 1 if i else None) for i in range(n)]
    forces = np.outer(masses, gravity)

    def rate(t, y):
        x, v = y.reshape(2, n, 3)
        return np.concatenate([v.ravel(), linked_masses(x, v, masses, links, forces).ravel()])

    rods = lengths[:, None] * q
    rates = lengths[:, None] * np.cross(omega, q)
    y0 = np.concatenate([np.cumsum(rods, axis=0).ravel(), np.cumsum(rates, axis=0).ravel()])
    x, v = solve_ivp(rate, (0.0, end), y0, **TIGHT).y[:, -1].reshape(2, n, 3)
    rods, rates = (np.diff(z, axis=0, prepend=np.zeros((1, 3))) for z in (x, v))
    q = rods / lengths[:, None]
    return q, np.cross(q, rates / lengths[:, None])


@cache
def benchmark_top():
    """The published benchmark at 1 s."""
    lever = np.array([0.0, 15.0, 0.0])
    tensor = np.diag([15.234375, 0.46875, 15.234375])
    return heavy_top(tensor, lever, np.array([0, 0, -9.81]), np.array([0.0, 150.0, -4.61538]), 1.0)


def quadrotors(state, masses, load_mass: float, lengths, inertia, gravity: np.ndarray, control, end: float):
    """Load, links and attitudes at the end: three linked points and two quaternions; control(t, state) in the state's
    terms gives forces (2, 3) and body moments (2, 3)."""
    links = [(1, 0), (2, 0)]
    weights = np.array([load_mass, *masses])

    def unpack(y):
        x, v = y[:18].reshape(2, 3, 3)
        quaternions, spin = y[18:26].reshape(2, 4), y[26:].reshape(2, 3)
        q = (x[0] - x[1:]) / lengths[:, None]
        omega = np.cross(q, (v[0] - v[1:]) / lengths[:, None])
        return x, v, quaternions, spin, q, omega

    def rate(t, y):
        x, v, quaternions, spin, q, omega = unpack(y)
        attitude = np.stack([rotation(a) for a in quaternions])
        forces, moments = control(t, (x[0], v[0], attitude, spin, q, omega))
        total = np.concatenate([np.zeros((1, 3)), forces]) + np.outer(weights, gravity)
        acceleration = linked_masses(x, v, weights, links, total)
        turn = (moments - np.cross(spin, inertia * spin)) / inertia
        dq = [0.5 * np.array([-a[1:] @ w, *(a[0] * w + np.cross(a[1:], w))]) for a, w in zip(quaternions, spin)]
        return np.concatenate([v.ravel(), acceleration.ravel(), np.ravel(dq), turn.ravel()])

    position, velocity, _, spin, q, omega = state  # attitudes start at the identity
    x = np.concatenate([position[None], position - lengths[:, None] * q])
    v = np.concatenate([velocity[None], velocity - lengths[:, None] * np.cross(omega, q)])
    y0 = np.concatenate([x.ravel(), v.ravel(), [1.0, 0, 0, 0] * 2, spin.ravel()])
    y = solve_ivp(rate, (0.0, end), y0, **TIGHT).y[:, -1]
    x, v, quaternions, spin, q, omega = unpack(y)
    return x[0], v[0], np.stack([rotation(a) for a in quaternions]), spin, q, omega
