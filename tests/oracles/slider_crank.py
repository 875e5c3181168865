"""The slider-crank as one equation for the crank's angle, from its energy; shares no code with the library."""

import numpy as np
from scipy.integrate import solve_ivp

A, CRANK, ROD, GRAVITY = np.array([0.0, 0.1, 0.12]), 0.08, 0.3, 9.81


def geometry(angle):
    """Centers of crank, rod and slider and the rotation of the rod; analytic, so that complex angles differentiate."""
    pin = A + CRANK * np.array([0.0 * angle, -np.sin(angle), np.cos(angle)])
    slider = np.array([np.sqrt(ROD**2 - pin[1] ** 2 - pin[2] ** 2), 0.0 * angle, 0.0 * angle])
    x = (slider - pin) / ROD
    # The rod's axis of the universal joint is normal to the rod and to the slider's axis along x.
    y = np.array([0.0 * angle, x[2], -x[1]]) / np.sqrt(x[1] ** 2 + x[2] ** 2)
    rotation = np.stack([x, y, np.cross(x, y)], axis=1)
    return (A + pin) / 2, (pin + slider) / 2, slider, rotation


def inertia(angle, masses, moments):
    """I with the kinetic energy ½ I θ̇²."""
    step = 1e-30
    rates = [part.imag / step for part in geometry(angle + 1j * step)]
    rotation = geometry(angle)[3]
    spin = rotation.T @ rates[3]
    omega = np.array([spin[2, 1], spin[0, 2], spin[1, 0]])
    total = sum(m * (rate @ rate) for m, rate in zip(masses, rates[:3], strict=True))
    return total + moments[0][0] + omega @ (np.asarray(moments[1]) * omega)


def potential(angle, masses):
    return GRAVITY * sum(m * part[2] for m, part in zip(masses, geometry(angle)[:3], strict=True))


def solve(end, masses=(0.12, 0.5, 2.0), moments=((1e-4,) * 3, (4e-4, 4e-3, 4e-3)), speed=6.0):
    """Crank angle, its rate, and the slider's position at the end."""
    step = 1e-5

    def rhs(t, y):
        slope = (inertia(y[0] + step, masses, moments) - inertia(y[0] - step, masses, moments)) / (2 * step)
        pull = potential(y[0] + 1e-30j, masses).imag / 1e-30
        return y[1], -(0.5 * slope * y[1] ** 2 + pull) / inertia(y[0], masses, moments)

    y = solve_ivp(rhs, (0.0, end), (0.0, speed), method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    return y[0], y[1], geometry(y[0])[2][0]
