"""Where the problems of [holzinger2024] end, by SciPy's DOP853; no code is shared with lgjax.

Top and rotor by Newton's and Euler's laws in quaternions; the slider-crank by its energy as a function of the crank's
angle; the Puma 560 by Kane's equations in its joint angles, from derivatives of its positions.  Needs 64-bit floats.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

Array = Any
GRAVITY = 9.81


def solve(rate: Callable[[Any, Any], Array], y0: Array, times: tuple[float, ...], rtol: float = 1e-13) -> np.ndarray:
    """The state at the last of the times; steps end at each, as they must where the rate has a kink."""
    fast, y = jax.jit(rate), np.asarray(y0, float)
    for start, end in pairwise(times):
        run = solve_ivp(lambda t, y: np.asarray(fast(t, y)), (start, end), y, method="DOP853", rtol=rtol, atol=1e-14)
        y = run.y[:, -1]
    return y


def matrix(a: Array) -> Array:
    """The rotation of a quaternion (w, x, y, z) of any length."""
    w, x, y, z = a / jnp.sqrt(a @ a)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return jnp.stack([jnp.stack(row) for row in rows])


def quaternion_rate(a: Array, w: Array) -> Array:
    return 0.5 * jnp.concatenate([-(a[1:] @ w)[None], a[0] * w + jnp.cross(a[1:], w)])


def top(end: float) -> np.ndarray:
    """The center of mass (3,)."""
    arm, inertia = jnp.array([0.0, 1.0, 0.0]), jnp.array([15.234375, 0.46875, 15.234375])

    def rate(t: Any, y: Array) -> Array:
        a, w = y[:4], y[4:]
        moment = jnp.cross(arm, matrix(a).T @ jnp.array([0.0, 0.0, -15.0 * GRAVITY]))
        return jnp.concatenate([quaternion_rate(a, w), (moment - jnp.cross(w, inertia * w)) / inertia])

    y = solve(rate, np.array([1.0, 0, 0, 0, 0, 150.0, -4.61538]), (0.0, end))
    return np.asarray(matrix(y[:4])[:, 1])


def rotor_states(times: Array) -> np.ndarray:
    """The left end of the shaft and the body rates (T, 6) at times that begin with 0."""
    mass, inertia, length, left, spring, damper = 2.0, jnp.array([0.09, 0.046, 0.046]), 0.5, 0.2, 900.0, 0.5
    ends = jnp.array([[-left, 0.0, 0.0], [length - left, 0.0, 0.0]])
    torque = jnp.array([0.0, 0.0, (length / 2 - left) * mass * GRAVITY])

    def rate(t: Any, y: Array) -> Array:
        x, a, v, w = y[:3], y[3:7], y[7:10], y[10:]
        r = matrix(a)
        force, moment = jnp.array([0.0, 0.0, -mass * GRAVITY]), r.T @ torque
        for e in ends:
            pull = -spring * (x + r @ e - e) - damper * (v + r @ jnp.cross(w, e))
            force, moment = force + pull, moment + jnp.cross(e, r.T @ pull)
        turn = (moment - jnp.cross(w, inertia * w)) / inertia
        return jnp.concatenate([v, quaternion_rate(a, w), force / mass, turn])

    y, found = np.array([0.0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 500, 0, 0]), []
    for start, end in pairwise(times):
        y = solve(rate, y, (start, end))
        found.append(np.concatenate([y[:3] + np.asarray(matrix(y[3:7]) @ ends[0]), y[10:]]))
    return np.array(found)


def rotor(end: float) -> np.ndarray:
    """The left end of the shaft (3,)."""
    return rotor_states((0.0, end))[-1, :3]


def slider_crank(end: float) -> np.ndarray:
    """The slider's position (1,)."""
    masses = jnp.array([0.12, 0.5, 2.0])
    crank, rod = 1e-4, jnp.array([4e-4, 4e-3, 4e-3])
    bearing = jnp.array([0.0, 0.1, 0.12])

    def parts(angle: Array) -> tuple[Array, Array]:
        """Centers (3, 3) of crank, rod and slider, and the axes of the rod."""
        pin = bearing + 0.08 * jnp.stack([0.0 * angle, -jnp.sin(angle), jnp.cos(angle)])
        slider = jnp.stack([jnp.sqrt(0.09 - pin[1] ** 2 - pin[2] ** 2), 0.0 * angle, 0.0 * angle])
        x = (slider - pin) / 0.3
        # The rod turns about the slider's x and about an axis of its own, normal to that: its y.
        y = jnp.stack([0.0 * angle, x[2], -x[1]]) / jnp.sqrt(x[1] ** 2 + x[2] ** 2)
        axes = jnp.stack([x, y, jnp.cross(x, y)], axis=1)
        return jnp.stack([(bearing + pin) / 2, (pin + slider) / 2, slider]), axes

    def inertia(angle: Array) -> Array:
        (_, axes), (rates, turning) = jax.jvp(parts, (angle,), (jnp.ones_like(angle),))
        spin = axes.T @ turning
        w = jnp.stack([spin[2, 1], spin[0, 2], spin[1, 0]])
        return masses @ jnp.sum(rates**2, axis=1) + crank + w @ (rod * w)

    def rate(t: Any, y: Array) -> Array:
        weight = jax.grad(lambda angle: GRAVITY * masses @ parts(angle)[0][:, 2])(y[0])
        return jnp.stack([y[1], -(0.5 * jax.grad(inertia)(y[0]) * y[1] ** 2 + weight) / inertia(y[0])])

    y = solve(rate, np.array([0.0, 6.0]), (0.0, end))
    return np.asarray(parts(jnp.asarray(y[0]))[0][2, :1])


def puma560(end: float) -> np.ndarray:
    """The joint angles (6,), as they turn."""
    start = jnp.deg2rad(jnp.array([0.0, 22.5, 90.0, 0.0, 22.5, 0.0]))
    goal = jnp.deg2rad(jnp.array([-120.0, 60.0, -200.0, 90.0, 90.0, 45.0]))
    stiffness = jnp.array([4e4, 4e4, 4e4, 100.0, 100.0, 10.0])
    damping = jnp.array([400.0, 400.0, 100.0, 1.0, 1.0, 0.1])
    d, a = (0.0, 0.0, 0.15005, 0.4318, 0.0, 0.0), (0.0, 0.4318, 0.0203, 0.0, 0.0, 0.0)
    cos, sin = (0.0, 1.0, 0.0, 0.0, 0.0, 1.0), (1.0, 0.0, -1.0, 1.0, -1.0, 0.0)
    masses = jnp.array([20.0, 17.4, 4.8, 0.82, 0.34, 0.09])
    centers = jnp.zeros((6, 3)).at[1].set(jnp.array([-0.3638, 0.006, 0.2275]))
    centers = centers.at[2].set(jnp.array([-0.0203, -0.0141, 0.07]))
    centers = centers.at[3, 1].set(0.019).at[5, 2].set(0.032)
    light = [[0.0018, 0.0013, 0.0018], [3e-4, 4e-4, 3e-4], [1.5e-4, 1.5e-4, 4e-5]]
    inertias = jnp.array([[0, 0.35, 0], [0.13, 0.524, 0.539], [0.066, 0.086, 0.0125], *light])

    def place(q: Array) -> tuple[Array, Array]:
        """Centers of mass (6, 3) and axes (6, 3, 3)."""
        r, x, found = jnp.eye(3), jnp.zeros(3), []
        for i in range(6):
            c, s = jnp.cos(q[i]), jnp.sin(q[i])
            zero = jnp.zeros_like(c)
            turn = [[c, -s * cos[i], s * sin[i]], [s, c * cos[i], -c * sin[i]], [zero, zero + sin[i], zero + cos[i]]]
            x = x + r @ jnp.stack([a[i] * c, a[i] * s, zero + d[i]])
            r = r @ jnp.stack([jnp.stack(row) for row in turn])
            found.append((x + r @ centers[i], r))
        return tuple(jnp.stack(part) for part in zip(*found, strict=True))

    def velocities(q: Array, v: Array) -> tuple[Array, Array]:
        """Of the centers of mass, and of the turning in body axes, (6, 3) each."""
        (_, r), (u, turning) = jax.jvp(place, (q,), (v,))
        spin = jnp.swapaxes(r, 1, 2) @ turning
        return u, jnp.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)

    def rate(t: Any, y: Array) -> Array:
        q, v = y[:6], y[6:]
        part = jnp.where(t < 0.5, 2 * t * t, 1 - 2 * (1 - t) ** 2)
        slope = jnp.where(t < 0.5, 4 * t, 4 * (1 - t))
        drive = stiffness * (start + (goal - start) * part - q) + damping * ((goal - start) * slope - v)
        (_, w), (acceleration, turning) = jax.jvp(velocities, (q, v), (v, jnp.zeros(6)))
        along, about = jax.vmap(lambda e: velocities(q, e))(jnp.eye(6))  # partial velocities
        force = masses[:, None] * (acceleration + jnp.array([0.0, 0.0, GRAVITY]))
        moment = inertias * turning + jnp.cross(w, inertias * w)
        bias = jnp.sum(along * force, (1, 2)) + jnp.sum(about * moment, (1, 2))
        mass = jnp.einsum("aij,i,bij->ab", along, masses, along) + jnp.einsum("aij,ij,bij->ab", about, inertias, about)
        return jnp.concatenate([v, jnp.linalg.solve(mass, drive - bias)])

    times = (0.0, 0.5, end) if end > 0.5 else (0.0, end)  # the profiles have a kink at 0.5 s
    return solve(rate, np.concatenate([start, np.zeros(6)]), times, 1e-10)[:6]
