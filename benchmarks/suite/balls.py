"""Balls on a plane: one that bounces to rest, one that slides and then rolls, 49 with restitutions from 0 to 1.

Flights are parabolas, so a closed form holds between impacts; the times of bounces are a geometric series.
A ball moves in the plane: x, z of its center above the ground, its angle about y, and their rates.
"""

from typing import Any

import numpy as np

from benchmarks.suite import library, peers, reference
from benchmarks.suite.mechanism import Mechanism
from benchmarks.suite.mechanisms import mujoco_energy
from benchmarks.suite.problem import Problem, Sweep

G, RADIUS, MASS = 9.81, 0.1, 1.0
DOWN = (0.0, 0.0, -G)
SPIN = 0.4 * MASS * RADIUS**2


def ball(
    name: str, title: str, text: str, end: float, start: tuple[float, ...], friction: float, restitution: float
) -> Problem:
    """start: height of the lowest point, velocity along x, rate about y; the ball slides until it bounces no more."""
    height, speed, rate = start
    qpos, qvel = (0.0, height, 0.0), (speed, 0.0, rate)
    joints = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 1 0"/>'
    m = Mechanism(world(body("ball", joints, f"0 0 {RADIUS!r}", friction)), qpos, qvel, DOWN, contact=True)

    def references() -> list[tuple[str, Any]]:
        numbers = reference.vector([height, speed, rate, friction, restitution, end, G, RADIUS])
        return [("closed form", in_closed_form(*numbers)), ("impact by impact, Gauss", impact_by_impact(*numbers))]

    def sweeps() -> list[Sweep]:
        contact = {"friction": friction, "restitution": restitution}
        found = library.contact_sweeps(m, {"ball": RADIUS}, contact, 250, 16)
        automaton = Automaton(height, speed, rate, friction, restitution)
        found.append(Sweep("SciPy", "DOP853, events by hand", automaton.prepare, library.TOLERANCES, steps=False))
        return found + peers.mujoco_sweeps(m, 250, solref=lambda h: spring(restitution, h))

    return Problem(name, title, text, end, 3, {"energy": mujoco_energy(m)}, references, sweeps)


def world(balls: str) -> str:
    """The ground, and balls."""
    return f'<worldbody><geom type="plane" size="50 50 1"/>{balls}</worldbody>'


def body(name: str, joints: str, pos: str, friction: float, others: str = "") -> str:
    """A ball; its numbers of contact go before those of the ground."""
    return (
        f'<body name="{name}" pos="{pos}">{joints}<inertial pos="0 0 0" mass="{MASS!r}" diaginertia='
        f'"{SPIN!r} {SPIN!r} {SPIN!r}"/><geom type="sphere" size="{RADIUS!r}" friction="{friction!r} 0 0" priority="1" '
        f'solimp=".9999 .9999 .001" {others}/></body>'
    )


def spring(restitution: Any, h: float) -> np.ndarray:
    """MuJoCo's solref of a spring that bounces with a restitution in about 5 steps of h; softer ones are less exact."""
    e, rate = np.maximum(restitution, 0.01), 0.6 / h
    damping = -np.log(e) / np.hypot(np.pi, np.log(e))
    return np.stack([np.full(np.shape(e), -(rate**2)), -2 * rate * damping], axis=-1)


def in_closed_form(h: Any, u: Any, w: Any, mu: Any, e: Any, end: Any, g: Any, r: Any) -> list[Any]:
    """The state at `end`, after the last bounce: sliding, or rolling."""
    fall = reference.mp().sqrt(2 * h / g)
    v, rest = g * fall, fall * (1 + e) / (1 - e)
    lost = mu * (1 + e) * v / (1 - e)  # of the speed, while it bounces
    way = u * fall + 2 * v / g * ((u - lost) * e / (1 - e) + lost * e**2 / (1 - e**2))
    rolls = 2 * (u - r * w) / (7 * mu * g)  # friction over all time is mu m g on average
    now = min(end, rolls)
    x = way + (u - lost) * (now - rest) - mu * g * (now - rest) ** 2 / 2
    turned = w * now + 5 * (u * now - x) / (2 * r)  # friction turns it 5/2 times as much as it slows it down
    speed, spin = u - mu * g * now, w + 5 * mu * g * now / (2 * r)
    return [x + speed * (end - now), 0 * h, turned + spin * (end - now), speed, 0 * h, spin]


def impact_by_impact(h: Any, u: Any, w: Any, mu: Any, e: Any, end: Any, g: Any, r: Any) -> list[Any]:
    """The same; after the bounces by collocation, until the momentum about the ground is that of rolling."""
    v, t = reference.mp().sqrt(2 * g * h), reference.mp().sqrt(2 * h / g)
    x, angle = u * t, w * t
    while v > reference.mp().mpf(10) ** -40:
        push = mu * (1 + e) * v
        u, w, v = u - push, w + push * 5 / (2 * r), e * v
        flight = 2 * v / g
        t, x, angle = t + flight, x + u * flight, angle + w * flight
    rolling = (5 * u + 2 * r * w) / 7
    slides = min(end - t, (u - rolling) / (mu * g))
    rate = lambda s, y: [y[2], y[3], -mu * g, 5 * mu * g / (2 * r)]
    unit = lambda s, y: [slides * k for k in rate(s, y)]  # over a time of one
    x, angle, u, w = reference.collocated(unit, [x, angle, u, w], 1.0, 1, 3)
    left = end - t - slides
    return [x + u * left, 0 * h, angle + w * left, u, 0 * h, w]


class Automaton:
    """A ball by SciPy: it flies, slides or rolls, and events end each of them."""

    def __init__(self, height: float, speed: float, rate: float, friction: float, restitution: float) -> None:
        self.start = np.array([0.0, height, 0.0, speed, 0.0, rate])
        self.friction, self.restitution = friction, restitution

    def prepare(self, end: float, tolerance: float, batch: int | None) -> Any:
        return lambda: self.run(end, tolerance), lambda found: found

    def run(self, end: float, tolerance: float) -> tuple[np.ndarray, float]:
        from scipy.integrate import solve_ivp

        lands, stops = lambda t, y: y[1] + (y[4] > 0), lambda t, y: y[3] - RADIUS * y[5]
        lands.terminal, lands.direction, stops.terminal = True, -1, True  # type: ignore[attr-defined]
        y, t, count, flies = self.start, 0.0, 0, self.start[1] > 0
        while t < end:
            slip = 0.0 if abs(stops(t, y)) < 1e-12 else np.sign(stops(t, y))
            push = 0.0 if flies else self.friction * G * slip
            field = lambda t, y, a=push, g=G * flies: np.array([*y[3:], -a, -g, 2.5 * a / RADIUS])
            event = lands if flies else stops if slip else None
            s = solve_ivp(field, (t, end), y, method="DOP853", rtol=tolerance, atol=tolerance, events=event)
            y, t, count = s.y[:, -1].copy(), s.t[-1], count + s.nfev
            if s.status == 1 and flies:
                flies = self._bounce(y)
            elif s.status == 1:
                y[5] = y[3] / RADIUS
        return y, float(count)

    def _bounce(self, y: np.ndarray) -> bool:
        """Whether the ball still flies after an impact; it changes y."""
        push, slip = -(1 + self.restitution) * y[4], y[3] - RADIUS * y[5]
        push = np.sign(slip) * min(abs(slip) / 3.5, self.friction * push)
        y[1], y[3], y[4], y[5] = 0.0, y[3] - push, -self.restitution * y[4], y[5] + 2.5 * push / RADIUS
        flies = y[4] > 1e-11
        y[4] *= flies
        return flies


def grid(n: int = 49, end: float = 4.0, height: float = 5.0) -> Problem:
    """n balls with restitutions from 0 to 1: some have come to rest, some bounce."""
    restitution = np.arange(n) / (n - 1)
    slide = '<joint type="slide" axis="0 0 1"/>'
    touches = 'contype="2" conaffinity="1"'
    balls = [body(f"ball{i}", slide, f"{i % 7} {i // 7} {RADIUS!r}", 0.0, touches) for i in range(n)]
    start = ((height,) * n, (0.0,) * n, DOWN)
    whole = Mechanism(world("".join(balls)), *start, contact=True)
    one = Mechanism(world(balls[0]), (height,), (0.0,), DOWN, contact=True)

    def gathered(found: Any) -> list[Any]:
        return [z for z, _ in found] + [v for _, v in found]

    def references() -> list[tuple[str, Any]]:
        numbers = [x / (n - 1) for x in reference.vector(range(n))]
        h, g, t = reference.vector([height, G, end])
        ways = (("closed form", flight_in_closed_form), ("impact by impact", flight_by_impacts))
        return [(name, gathered([way(h, e, t, g) for e in numbers])) for name, way in ways]

    def scipy(end: float, tolerance: float, batch: int | None) -> Any:
        balls = [Automaton(height, 0.0, 0.0, 0.0, e) for e in restitution]
        call = lambda: [ball.run(end, tolerance) for ball in balls]
        return call, lambda found: (np.array(gathered([y[[1, 4]] for y, _ in found])), sum(n for _, n in found))

    def sweeps() -> list[Sweep]:
        law = {"friction": 0.0, "restitution": 0.0}
        found = library.contact_sweeps(one, {"ball0": RADIUS}, law, 250, 16, restitution)
        found.append(Sweep("SciPy", "DOP853, events by hand", scipy, library.TOLERANCES, steps=False))
        stiff = lambda h: np.concatenate([spring([0.0], h), spring(restitution, h)])
        return found + peers.mujoco_sweeps(whole, 250, solref=stiff)

    energy = lambda s: MASS * np.sum(G * s[:n] + 0.5 * s[n:] ** 2)
    invariants = {"energy": energy, "momentum": lambda s: MASS * np.sum(s[n:])}
    text = f"{n} balls dropped from {height:g} m with restitutions from 0 to 1; some rest in the end"
    return Problem("balls", f"{n} balls", text, end, n, invariants, references, sweeps)


def flight_in_closed_form(h: Any, e: Any, t: Any, g: Any) -> tuple[Any, Any]:
    """Height and speed of a ball; the number of its impacts follows from the geometric series of its flights."""
    m = reference.mp()
    fall = m.sqrt(2 * h / g)
    if e < 1 and t >= fall * (1 + e) / (1 - e):
        return 0 * h, 0 * h
    left = (t / fall - 1) / 2  # = e + e² + ... + eᵏ, and a part of the next flight
    k = m.floor(left) if e == 1 else m.floor(m.log(1 - left * (1 - e) / e, e))
    since = t - fall * (1 + 2 * (k if e == 1 else e * (1 - e**k) / (1 - e)))
    speed = e ** (k + 1) * g * fall
    return speed * since - g * since**2 / 2, speed - g * since


def flight_by_impacts(h: Any, e: Any, t: Any, g: Any) -> tuple[Any, Any]:
    """The same, one flight after the other."""
    v = reference.mp().sqrt(2 * g * h)
    t = t - v / g
    v = e * v
    while t > 2 * v / g and v > reference.mp().mpf(10) ** -40:
        t, v = t - 2 * v / g, e * v
    return (0 * h, 0 * h) if t > 2 * v / g else (v * t - g * t**2 / 2, v - g * t)


def problems() -> list[Problem]:
    return [
        ball("bouncing_ball", "Bouncing ball", "dropped from 1 m at 3 m/s, restitution 0.5, friction "
             "0.05; its bounces end at 1.354 s, then it slides", 1.5, (1.0, 3.0, 0.0), 0.05, 0.5),
        ball("rolling_ball", "Rolling ball", "1 m/s forward, 30 rad/s backward, friction "
             "0.3; it rolls after 0.388 s", 1.0, (0.0, 1.0, -30.0), 0.3, 0.0),
        grid(),
    ]  # fmt: skip
