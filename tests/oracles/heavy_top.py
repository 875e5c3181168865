"""The heavy top as an ordinary differential equation for quaternion and body rates; shares no code with the library."""

import numpy as np
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

MASS, INERTIA, GRAVITY = 15.0, np.array([0.234375, 0.46875, 0.234375]), np.array([0.0, 0.0, -9.81])
ARM = np.array([0.0, 1.0, 0.0])
ABOUT_TIP = INERTIA + MASS * np.array([1.0, 0.0, 1.0])


def accelerations(r, w):
    """Angular acceleration in body axes, and that of the center of mass in world axes."""
    moment = np.cross(ARM, r.T @ (MASS * GRAVITY))
    wdot = (moment - np.cross(w, ABOUT_TIP * w)) / ABOUT_TIP
    return wdot, r @ (np.cross(wdot, ARM) + np.cross(w, np.cross(w, ARM)))


def solve(end=1.0, w0=(0.0, 150.0, -4.61538)):
    """Rotation, body rates, center of mass, its velocity, and the force of the tip on the world."""

    def rhs(t, y):
        q, w = y[:4], y[4:]
        r = Rotation.from_quat(q, scalar_first=True).as_matrix()
        rate = 0.5 * np.array([-q[1:] @ w, *(q[0] * w + np.cross(q[1:], w))])
        return np.concatenate([rate, accelerations(r, w)[0]])

    y0 = np.concatenate([[1.0, 0.0, 0.0, 0.0], w0])
    y = solve_ivp(rhs, (0.0, end), y0, method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    r, w = Rotation.from_quat(y[:4], scalar_first=True).as_matrix(), y[4:]
    # The world pushes the tip with m a - m g; the library's multiplier is minus that.
    return r, w, r @ ARM, r @ np.cross(w, ARM), MASS * (GRAVITY - accelerations(r, w)[1])
