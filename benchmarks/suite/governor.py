"""The stiff flyball governor of the IFToMM library of benchmarks: springs with dampers carry a slider on a shaft.

Numbers of the library: shaft and rods 1 x 0.01 x 0.01 m, slider 0.1 x 0.1 x 0.1 m, 3000 kg/m³, 5 kg at the ends of the
rods, whose hinges are 0.05 m beside the axis; springs go from their middles to the sides of the slider.
"""

from typing import Any

import numpy as np

from benchmarks.suite import library, peers, reference, stiff_reference
from benchmarks.suite.mechanism import Mechanism
from benchmarks.suite.multibody_reference import GROUND, Link, Spring, Tree
from benchmarks.suite.problem import Problem, Sweep

BESIDE, ROD, BALL = "0.05", "0.3", "5"  # m, kg, kg
STIFFNESS, DAMPING, REST, SLIDER = "8e5", "4e4", "0.5", "3"  # N/m, N s/m, m, kg
END = 3.0


def numbers(number: Any) -> dict[str, Any]:
    """Mass, distance of its center and moments of a rod with its ball, moments of the shaft and the slider."""
    rod, ball, one = number(ROD), number(BALL), number("1")
    mass = rod + ball
    com = (rod / 2 + ball) / mass
    thin = number("1e-4") / 12  # of a square of 0.01 m, per mass
    across = rod * (one / 12 + thin + (com - one / 2) ** 2) + ball * (one - com) ** 2
    shaft = (rod * (one / 12 + thin), 2 * rod * thin)
    return {"mass": mass, "com": com, "across": across, "along": 2 * rod * thin, "shaft": shaft,
            "slider": number(SLIDER) / 600}  # fmt: skip


def lagrange(number: Any, cos: Any, sin: Any, sqrt: Any) -> Any:
    """rate(t, y) of the shaft's angle, that of both rods from the vertical, the slider's depth, and their rates."""
    p = numbers(number)
    m, r, b = p["mass"], p["com"], number(BESIDE)
    k, c, rest, slider, g = (number(x) for x in (STIFFNESS, DAMPING, REST, SLIDER, "9.81"))
    axial, quarter = p["shaft"][1] + p["slider"], number("0.25")

    def rate(t: Any, y: Any, xp: Any = None) -> list[Any]:
        _, a, s, spin, swing, fall = y
        ca, sa = cos(a), sin(a)
        out = b + r * sa
        moment = axial + 2 * (m * out * out + p["across"] * sa * sa + p["along"] * ca * ca)
        slope = 4 * (m * out * r + (p["across"] - p["along"]) * sa) * ca
        long = sqrt(quarter + s * s - s * ca)
        by_a, by_s = s * sa / (2 * long), (s - ca / 2) / long
        pull = 2 * (k * (long - rest) + c * (by_a * swing + by_s * fall))
        rods = slope * spin * spin / 2 - 2 * m * g * r * sa - pull * by_a
        return [
            spin,
            swing,
            fall,
            -slope * swing * spin / moment,
            rods / (2 * (m * r * r + p["across"])),
            g - pull * by_s / slider,
        ]

    return rate


def whole(y: Any) -> list[Any]:
    """The suite's state: shaft, left rod, right rod, slider, and their rates."""
    return [y[0], y[1], -y[1], -y[2], y[3], y[4], -y[4], -y[5]]


def tree(number: Any) -> Tree:
    """The four bodies for Kane's equations."""
    p, none = numbers(number), (0, 0, 0)
    along, across = p["shaft"][1], p["shaft"][0]
    rod = Link(0, "hinge", none, (0, 1, 0), (0, 0, -p["com"]), p["mass"], (p["across"], p["across"], p["along"]))
    links = [
        Link(GROUND, "hinge", none, (0, 0, 1), none, ROD, (across, across, along)),
        rod._replace(at=(f"-{BESIDE}", 0, 0)),
        rod._replace(at=(BESIDE, 0, 0)),
        Link(0, "slide", none, (0, 0, 1), none, SLIDER, (p["slider"],) * 3),
    ]
    ends = ((1, f"-{BESIDE}"), (2, BESIDE))
    springs = [Spring((i, 3), ((0, 0, "-0.5"), (side, 0, 0)), STIFFNESS, DAMPING, REST) for i, side in ends]
    return Tree(links, (0, 0, "-9.81"), number, (), springs)


def mechanism() -> Mechanism:
    p = numbers(float)
    inertia = lambda place, mass, moments: (
        f'<inertial pos="0 0 {place!r}" mass="{mass!r}" diaginertia="{" ".join(map(repr, moments))}"/>'
    )
    rod = (
        '<body name="{0}" pos="{1} 0 0"><joint type="hinge" axis="0 1 0"/>'
        f"{inertia(-p['com'], p['mass'], (p['across'], p['across'], p['along']))}"
        '<site name="{0}_middle" pos="0 0 -0.5"/></body>'
    )
    tie = (
        f'<spatial stiffness="{STIFFNESS}" damping="{DAMPING}" springlength="{REST}"><site site="{{0}}_middle"/>'
        '<site site="{0}_side"/></spatial>'
    )
    inside = (
        '<worldbody><body name="shaft"><joint type="hinge" axis="0 0 1"/>'
        f"{inertia(0.0, float(ROD), (p['shaft'][0], p['shaft'][0], p['shaft'][1]))}"
        f"{rod.format('left', '-' + BESIDE)}{rod.format('right', BESIDE)}"
        f'<body name="slider"><joint type="slide" axis="0 0 1"/>{inertia(0.0, float(SLIDER), (p["slider"],) * 3)}'
        f'<site name="left_side" pos="-{BESIDE} 0 0"/><site name="right_side" pos="{BESIDE} 0 0"/></body>'
        f"</body></worldbody><tendon>{tie.format('left')}{tie.format('right')}</tendon>"
    )
    angle = float(np.pi / 3)
    start = whole([0.0, angle, 0.5, float(2 * np.pi), 0.0, 0.0])
    return Mechanism(inside, tuple(start[:4]), tuple(start[4:]), (0.0, 0.0, -9.81))


def governor(end: float = END) -> Problem:
    """From rods 30 degrees below the horizontal at one turn a second; the rods swing, the slider follows."""
    m = mechanism()
    start = [0.0, -m.qpos[2], 0.5, m.qvel[0], 0.0, 0.0]

    def references() -> list[tuple[str, Any]]:
        mp = reference.mp()
        rate = lagrange(lambda x: mp.mpf(x), mp.cos, mp.sin, mp.sqrt)
        first = stiff_reference.radau(rate, start, stiff_reference.graded(end, 2e-6, 0.01))
        second = stiff_reference.linearly_implicit(
            tree(np.longdouble).kane, whole(start), stiff_reference.graded(end, 2e-6, 0.002), 8
        )
        exact = [mp.mpf(str(x)) for x in second]
        return [("Lagrange's equations, Radau", whole(first)), ("Kane's equations of four bodies, midpoint", exact)]

    def sweeps() -> list[Sweep]:
        rate = lambda t, y, xp: lagrange(float, xp.cos, xp.sin, xp.sqrt)(t, y)
        state = lambda y: np.array(whole(np.asarray(y)))
        found = library.tree_sweeps(m, 16_000, None, False) + library.absolute_sweeps(m, 750)
        found += peers.coordinate_sweeps(rate, start, state, slice(3, 6), 16_000, stiff=True)
        return found + peers.mujoco_sweeps(m, 4000) + peers.exudyn_sweeps(m, 750)

    p = numbers(float)

    def momentum(s: np.ndarray) -> float:
        rods = sum(
            p["mass"] * (float(BESIDE) + p["com"] * np.sin(a)) ** 2
            + p["across"] * np.sin(a) ** 2
            + p["along"] * np.cos(a) ** 2
            for a in (s[1], -s[2])
        )
        return (p["shaft"][1] + p["slider"] + rods) * s[4]

    text = "the IFToMM library's numbers: springs of 8e5 N/m and 4e4 N s/m, which decay with 8000 1/s"
    return Problem("governor", "Flyball governor", text, end, 4, {"momentum": momentum}, references, sweeps)


def problems() -> list[Problem]:
    return [governor()]
