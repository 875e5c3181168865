"""Four-bar and five-bar of uniform rods in independent coordinates; shares no code with the library.

Centers and angles of the rods as analytic functions of the free angles u, differentiated by complex steps; d'Alembert:
J^T D (J du'/dt + dJ/dt u' - g) = 0 with D the masses and moments.
"""

import numpy as np
from scipy.integrate import solve_ivp

GRAVITY = 9.81


def along(angle, length):
    return length * np.stack([np.cos(angle), np.sin(angle)])


def angle_of(way):
    """The angle of a vector with real part (2,), analytic in its entries."""
    main = np.arctan2(way[1].real, way[0].real)
    turned = np.array([way[0] * np.cos(main) + way[1] * np.sin(main), way[1] * np.cos(main) - way[0] * np.sin(main)])
    return main + np.arctan(turned[1] / turned[0])


def elbow(start, end, first, second, side):
    way = end - start
    reach = np.sqrt(way[0] ** 2 + way[1] ** 2)
    one = (first**2 + reach**2 - second**2) / (2 * first * reach)
    two = (second**2 + reach**2 - first**2) / (2 * second * reach)
    return angle_of(way) + side * np.arccos(one), angle_of(way) - side * np.arccos(two)


class FourBar:
    """u: the angle of the crank. Absolute angles of crank, coupler, rocker."""

    def __init__(self, lengths=(1.0, 0.4, 0.9, 0.7), masses=(0.4, 0.9, 0.7)):
        self.lengths, self.masses, self.rods = lengths, masses, lengths[1:]

    def angles(self, u):
        d, a, b, c = self.lengths
        coupler, back = elbow(along(u[0], a), np.array([d, 0.0]), b, c, 1)
        return np.array([u[0], coupler, back + np.pi])

    def starts(self, angles):
        d, a, _, _ = self.lengths
        return [np.zeros(2), along(angles[0], a), np.array([d, 0.0])]

    def joints(self, u):
        crank, coupler, rocker = self.angles(u)
        return np.array([crank, coupler - crank, rocker])


class FiveBar:
    """u: the angles of the left and the right upper rod. Absolute angles of left upper, lower, right upper, lower."""

    def __init__(self, lengths=(0.5, 0.4, 0.6, 0.6, 0.4), masses=(0.5, 0.7, 0.5, 0.7)):
        self.lengths, self.masses = lengths, masses
        _, a, b, c, d = lengths
        self.rods = (a, b, d, c)

    def angles(self, u):
        g, a, b, c, d = self.lengths
        left, right = along(u[0], a), np.array([g, 0.0]) + along(u[1], d)
        first, second = elbow(left, right, b, c, -1)
        return np.array([u[0], first, u[1], second + np.pi])

    def starts(self, angles):
        g, a, _, _, d = self.lengths
        right = np.array([g, 0.0])
        return [np.zeros(2), along(angles[0], a), right, right + along(angles[2], d)]

    def joints(self, u):
        p = self.angles(u)
        return np.array([p[0], p[1] - p[0], p[2], p[3] - p[2]])


def coordinates(linkage, u):
    """x, z and angle of every rod, at its center."""
    angles = linkage.angles(u)
    centers = [s + along(p, r / 2) for s, p, r in zip(linkage.starts(angles), angles, linkage.rods, strict=True)]
    return np.concatenate([np.append(c, p) for c, p in zip(centers, angles, strict=True)])


def jacobian(function, u):
    """By complex steps."""
    step = 1e-30
    return np.stack([function(u + 1j * step * e).imag / step for e in np.eye(len(u))], 1)


def acceleration(linkage, u, rate, torque=0.0):
    """Of the free angles, with torques that work on them."""
    weights = np.concatenate([(m, m, m * r**2 / 12) for m, r in zip(linkage.masses, linkage.rods, strict=True)])
    pull = np.tile([0.0, -GRAVITY, 0.0], len(linkage.masses))
    J = jacobian(lambda x: coordinates(linkage, x), u)
    step = 1e-5
    ahead, behind = (jacobian(lambda x: coordinates(linkage, x), u + s * step * rate) for s in (1, -1))
    bias = (ahead - behind) @ rate / (2 * step)
    return np.linalg.solve(J.T @ (weights[:, None] * J), J.T @ (weights * (pull - bias)) + torque)


def solve(linkage, u0, rate0, times, stiffness=0.0):
    """Joint angles (T, n) and their rates of the library's trees at `times`, from u and its rate at 0.

    Springs of that stiffness pull the free angles to where they start.
    """
    k = len(u0)
    rhs = lambda t, y: np.concatenate([y[k:], acceleration(linkage, y[:k], y[k:], stiffness * (u0 - y[:k]))])
    y = solve_ivp(
        rhs, (0.0, times[-1]), np.concatenate([u0, rate0]), method="DOP853", rtol=1e-11, atol=1e-11, t_eval=times
    ).y.T
    joints = np.array([linkage.joints(x[:k]) for x in y])
    rates = np.array([jacobian(linkage.joints, x[:k]) @ x[k:] for x in y])
    return joints, rates
