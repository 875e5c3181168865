"""Bodies that turn about a point: free ones, one with a wheel, tops.

The coordinates are a quaternion and body rates; the second reference takes the momentum in the world instead, and where
there is one, a closed form is the first.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.suite import closed_forms, library, peers, reference
from benchmarks.suite.mechanism import Mechanism
from benchmarks.suite.problem import Problem, matrix

AXES = "xyz"


def body_rate(inertia: Sequence[Any], lever: Sequence[Any], gravity: Sequence[Any], wheel: Any = None) -> Callable:
    """rate(t, y) of a quaternion and body rates; lever is mass times center of mass. wheel: (moment, its momentum).

    With a wheel about z, `inertia` is the whole body's but along z, where it is without the wheel; the last coordinate
    is the wheel's angle.
    """
    j1, j2, j3 = inertia

    def rate(t: Any, y: Sequence[Any], xp: Any = None) -> list[Any]:
        a, b, c, d, p, q, r = y[:7]
        rows = matrix([a, b, c, d])
        fx, fy, fz = (sum(rows[i][k] * gravity[i] for i in range(3)) for k in range(3))
        lx, ly, lz = lever
        h = wheel[1] if wheel else 0
        axial = j3 * r + h
        turned = [(-b * p - c * q - d * r) / 2, (a * p + c * r - d * q) / 2, (a * q + d * p - b * r) / 2,
                  (a * r + b * q - c * p) / 2]  # fmt: skip
        spun = [(j2 * q * r - axial * q + ly * fz - lz * fy) / j1, (axial * p - j1 * p * r + lz * fx - lx * fz) / j2,
                (j1 * p * q - j2 * q * p + lx * fy - ly * fx) / j3]  # fmt: skip
        return [*turned, *spun, wheel[1] / wheel[0] - r] if wheel else [*turned, *spun]

    return rate


def world_rate(inertia: Sequence[Any], lever: Sequence[Any], gravity: Sequence[Any], wheel: Any = None) -> Callable:
    """rate(t, y) of a quaternion and the momentum in the world; the same motion."""

    def rate(t: Any, y: Sequence[Any]) -> list[Any]:
        a, b, c, d = y[:4]
        rows = matrix([a, b, c, d])
        body = [sum(rows[i][k] * y[4 + i] for i in range(3)) for k in range(3)]
        body[2] = body[2] - (wheel[1] if wheel else 0)
        spin = [x / j for x, j in zip(body, inertia, strict=True)]
        u, v, w = (sum(rows[i][k] * spin[k] for k in range(3)) for i in range(3))
        x, z, s = (sum(rows[i][k] * lever[k] for k in range(3)) for i in range(3))
        g0, g1, g2 = gravity
        turned = [(-b * u - c * v - d * w) / 2, (a * u + v * d - w * c) / 2, (a * v + w * b - u * d) / 2,
                  (a * w + u * c - v * b) / 2]  # fmt: skip
        pushed = [z * g2 - s * g1, s * g0 - x * g2, x * g1 - z * g0]
        return [*turned, *pushed, wheel[1] / wheel[0] - spin[2]] if wheel else [*turned, *pushed]

    return rate


class Body:
    """A body about a point, for every program.

    inertia is about the point, without the wheel's own along z; lever is mass times center of mass; wheel: (moment
    along z, moment across, relative speed).
    """

    def __init__(
        self,
        inertia: Sequence[float],
        omega: Sequence[float],
        mass: float = 1.0,
        center: Sequence[float] = (0.0, 0.0, 0.0),
        gravity: Sequence[float] = (0.0, 0.0, 0.0),
        wheel: tuple[float, float, float] | None = None,
    ) -> None:
        self.inertia, self.omega, self.mass, self.center = inertia, omega, mass, center
        self.gravity, self.wheel = gravity, wheel
        self.turning = (wheel[0], round(wheel[0] * (wheel[2] + omega[2]), 12)) if wheel else None
        self.lever = [mass * x for x in center]

    def mechanism(self) -> Mechanism:
        j, c = np.array(self.inertia), np.array(self.center)
        own = j - self.mass * (c @ c - c * c)  # about the center of mass; `center` is along an axis
        inside, speeds = "", []
        if self.wheel:
            axial, across, speed = self.wheel
            own = own - np.array([across, across, 0.0])
            inside = (
                '<body name="wheel"><joint type="hinge" axis="0 0 1"/>'
                f'<inertial pos="0 0 0" mass="0.1" diaginertia="{across!r} {across!r} {axial!r}"/></body>'
            )
            speeds = [speed]
        numbers = lambda x: " ".join(repr(float(v)) for v in x)
        text = (
            '<worldbody><body name="body"><joint type="ball"/>'
            f'<inertial pos="{numbers(c)}" mass="{self.mass!r}" diaginertia="{numbers(own)}"/>{inside}'
            "</body></worldbody>"
        )
        angles = [0.0] * len(speeds)
        return Mechanism(text, (1.0, 0, 0, 0, *angles), (*self.omega, *speeds), tuple(map(float, self.gravity)))

    def start(self) -> list[Any]:
        return [1.0, 0.0, 0.0, 0.0, *self.omega] + ([0.0] if self.wheel else [])

    def from_coordinates(self, y: Any, xp: Any = np) -> Any:
        """The suite's state of quaternion, body rates and wheel."""
        rows = [x for row in matrix(y[:4]) for x in row]
        if not self.wheel:
            return np.array([*rows, *y[4:7]])
        return np.array([*rows, y[7], *y[4:7], self.turning[1] / self.turning[0] - y[6]])

    def invariants(self) -> dict[str, Callable[[np.ndarray], Any]]:
        j, lever, g = np.array(self.inertia), np.array(self.lever), np.array(self.gravity)

        def parts(s: np.ndarray) -> Any:
            r, w = s[:9].reshape(3, 3), s[10:13] if self.wheel else s[9:12]
            axial = self.wheel[0] * (w[2] + s[13]) if self.wheel else 0.0
            return r, w, j * w + np.array([0, 0, axial]), axial

        def energy(s: np.ndarray) -> float:
            r, w, _, axial = parts(s)
            wheel = axial**2 / (2 * self.wheel[0]) if self.wheel else 0.0
            return 0.5 * w @ (j * w) + wheel - g @ r @ lever

        def momentum(s: np.ndarray) -> Any:
            r, _, body, _ = parts(s)
            whole = r @ body
            return whole @ g / np.linalg.norm(g) if g.any() else whole

        return {"energy": energy, "momentum": momentum}

    def exact_rates(self) -> tuple[Any, Any]:
        """Inertia, lever, gravity and wheel as numbers of many digits."""
        v = reference.vector
        wheel = tuple(v(self.turning)) if self.wheel else None
        return v(self.inertia), v(self.lever), v(self.gravity), wheel

    def references(self, end: float, steps: int, closed: Callable | None = None) -> list[tuple[str, Any]]:
        numbers = self.exact_rates()
        inertia, wheel = numbers[0], numbers[3]
        found = []
        if closed:
            attitude, rates = closed(self.inertia, self.omega, end)
            found.append(("closed form", [*attitude, *rates]))
        y = reference.collocated(body_rate(*numbers), self.start(), end, steps)
        found.append(("body rates, Gauss", self._exact_state(y)))
        momentum = inertia * reference.vector(self.omega)
        if wheel:
            momentum[2] = momentum[2] + wheel[1]
        start = [1.0, 0.0, 0.0, 0.0, *momentum] + ([0.0] if wheel else [])
        z = reference.extrapolated(world_rate(*numbers), start, end, 2 * steps)
        rows = matrix(z[:4])
        body = [sum(rows[i][k] * z[4 + i] for i in range(3)) for k in range(3)]
        if wheel:
            body[2] = body[2] - wheel[1]
        rates = [x / j for x, j in zip(body, inertia, strict=True)]
        tail = [z[7], *rates, wheel[1] / wheel[0] - rates[2]] if wheel else rates
        found.append(("momentum in the world, extrapolation", [x for row in rows for x in row] + tail))
        return found

    def _exact_state(self, y: Any) -> list[Any]:
        rows = [x for row in matrix(y[:4]) for x in row]
        if not self.wheel:
            return [*rows, *y[4:7]]
        h, moment = reference.vector([self.turning[1], self.turning[0]])
        return [*rows, y[7], *y[4:7], h / moment - y[6]]


def _forms(body: Body) -> dict[str, Any]:
    """Ready problems of the library: name -> (system, start with scaled momentum, suite's state)."""
    import jax
    import jax.numpy as jnp

    import lgjax

    j = np.array(body.inertia)
    if body.wheel:
        return {"SO(3) x R⁴": _with_wheel(body)}
    body_state = lambda y: np.concatenate([y[0].ravel(), y[1] / j])
    world_state = lambda r, p: np.concatenate([r.ravel(), (r.T @ p) / j])
    scaled = lambda y, f: (y[0], f * y[1])
    covector = lambda y, f: y._replace(mu=f * y.mu)
    names = {"SO(3) x R³": ("body", scaled, body_state)}
    if any(body.gravity):
        symmetric = j[0] == j[2]
        if symmetric:
            names["SO(3) x R³, two-sided"] = ("two_sided", scaled, lambda y: world_state(*y))
        names["T*SO(3)"] = ("cotangent", covector, lambda y: world_state(y.g, y.mu))
        c = np.array(body.center)
        make = lambda form: lgjax.systems.heavy_top(
            form, "benchmark", body.mass, float(np.linalg.norm(c)), j - body.mass * (c @ c - c * c),
            tuple(c / np.linalg.norm(c)), body.gravity, body.omega,
        )  # fmt: skip
    else:
        names["T*SO(3)"] = ("spatial", covector, lambda y: world_state(y.g, y.mu))
        make = lambda form: lgjax.systems.free_rigid_body(form, body.inertia, tuple(j * np.array(body.omega)))
    del jax, jnp
    return {name: (make(form), scale, state) for name, (form, scale, state) in names.items()}


def _with_wheel(body: Body) -> Any:
    """Attitude from the right, body momentum, angle of the wheel."""
    import jax.numpy as jnp

    from lgjax.groups import SO3, product_space, right_translation, vector_space
    from lgjax.systems import Problem as Ready

    j, (moment, h) = jnp.asarray(body.inertia), body.turning
    axial = jnp.asarray([0.0, 0.0, h])

    def field(t: Any, y: Any) -> Any:
        omega = (y[1] - axial) / j
        return omega, jnp.cross(y[1], omega), (h / moment - omega[2])[None]

    momentum = j * jnp.asarray(body.omega) + axial
    y0 = (jnp.eye(3), momentum, jnp.zeros(1))
    space = product_space(right_translation(SO3), vector_space(3), vector_space(1))

    def state(y: Any) -> np.ndarray:
        omega = (y[1] - np.asarray(axial)) / np.asarray(j)
        return np.concatenate([y[0].ravel(), y[2], omega, [h / moment - omega[2]]])

    scaled = lambda y, f: (y[0], axial + f * (y[1] - axial), y[2])
    return Ready({}, space, field, y0, {}), scaled, state


def problem(
    name: str, title: str, text: str, end: float, body: Body, first: int, steps: int, closed: Callable | None = None
) -> Problem:
    """first: the steps of a fourth-order method to begin with; steps: those of the references."""

    def sweeps() -> list[Any]:
        m, found = body.mechanism(), []
        for form, (system, scale, state) in _forms(body).items():
            cotangent = form.startswith("T*")
            methods = ("symplectic 2", "symplectic 6") if cotangent else ("RKMK 8", "RKMK 4", "CF 4")
            found += library.group_sweeps(form, system, scale, state, first, methods, not cotangent)
        found += library.tree_sweeps(m, first) + library.absolute_sweeps(m, 4 * first)
        if not body.wheel and not any(body.gravity):
            found += library.variational_sweeps(body.inertia, body.omega, first)
        rate = body_rate(body.inertia, body.lever, body.gravity, body.turning)
        found += peers.coordinate_sweeps(rate, body.start(), body.from_coordinates, slice(4, 7), first)
        found += peers.mujoco_sweeps(m, first) + peers.pinocchio_sweeps(m, first)
        return found + peers.exudyn_sweeps(m, 4 * first) + peers.mjx_sweeps(m, first) + peers.drake_sweeps(m)

    m = body.mechanism()
    references = lambda: body.references(end, steps, closed)
    return Problem(name, title, text, end, m.positions, body.invariants(), references, sweeps)


BRICK = (0.00189422, 0.006211019, 0.007194665)
RATES = tuple(np.deg2rad((10.0, 20.0, 30.0)).tolist())
TOP = {"inertia": (15.234375, 0.46875, 15.234375), "mass": 15.0, "center": (0.0, 1.0, 0.0)}
DOWN = (0.0, 0.0, -9.81)


def problems() -> list[Problem]:
    free, brick = Body((1.0, 2.0, 2.5), (0.9, -0.8, 0.44)), Body(BRICK, RATES)
    return [
        problem("free_body", "Free rigid body", "J = diag(1, 2, 2.5), ω(0) = (0.9, -0.8, 0.44)", 20.0, free, 50, 30,
                closed_forms.asymmetric_body),
        problem("symmetric_body", "Free symmetric body", "J = diag(1, 1, 2), ω(0) = (0.3, 0.4, 1)", 20.0,
                Body((1.0, 1.0, 2.0), (0.3, 0.4, 1.0)), 50, 30, closed_forms.symmetric_body),
        problem("brick", "Tumbling brick", "J = diag(1.89422, 6.211019, 7.194665)e-3, rates 10, 20, 30 degrees per "
                "second: check case 2 of NASA/TM-2015-218675, whose simulator 5 ends 3e-5 degrees per second away",
                30.0, brick, 30, 30, closed_forms.asymmetric_body),
        problem("dual_spin", "Body with a rotor", "J = diag(1.05, 1.45, 2) with a wheel of 0.1 kg m² along z, free to "
                "turn, at 50 rad/s; ω(0) = (0.3, 0.2, 0.5)", 20.0,
                Body((1.05, 1.45, 2.0), (0.3, 0.2, 0.5), wheel=(0.1, 0.06, 50.0)), 100, 80),
        problem("heavy_top", "Heavy top", "m = 15, J = diag(0.234375, 0.46875, 0.234375) about the center of mass at "
                "(0, 1, 0), ω(0) = (0, 150, -4.61538)", 2.0, Body(omega=(0.0, 150.0, -4.61538), gravity=DOWN, **TOP),
                200, 150),
        problem("slow_top", "Slow top", "the same body with ω(0) = (0, 10, 0): it falls and swings", 2.0,
                Body(omega=(0.0, 10.0, 0.0), gravity=DOWN, **TOP), 50, 40),
        problem("sleeping_top", "Sleeping top", "the same body upright with ω(0) = (0, 250, 0)", 2.0,
                Body(omega=(0.0, 250.0, 0.0), gravity=(0.0, -9.81, 0.0), **TOP), 200, 150, sleeping),
    ]  # fmt: skip


def sleeping(inertia: Any, omega: Any, end: float) -> Any:
    """A turn about the vertical."""
    m = reference.mp()
    return closed_forms.turn(1, m.mpf(repr(omega[1])) * m.mpf(repr(end))), list(reference.vector(omega))
