"""Bricard's mechanism: six rods along edges of a cube, hinged across, with more constraints than its freedom needs."""

from typing import Any

import numpy as np

from benchmarks.suite import library, peers, reference
from benchmarks.suite.mechanism import Mechanism
from benchmarks.suite.mechanisms import mujoco_energy
from benchmarks.suite.multibody_reference import GROUND, Link, Loop, Tree
from benchmarks.suite.problem import Problem, Sweep

THIN, AXIAL = 1.0 / 12.0, 0.001
EDGES = ((1, 0, 0), (0, -1, 0), (0, 0, 1), (-1, 0, 0), (0, 1, 0))  # of the rods; the sixth edge is the ground
AXES = ((0, 1, 0), (0, 0, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0))  # of the joints; the last one closes the loop
CLOSURE = Loop(4, GROUND, EDGES[4], (0, 0, 1), AXES[5], 1)


def rods(number: Any = float) -> list[Link]:
    found, before = [], (0, 0, 0)
    for i, (edge, axis) in enumerate(zip(EDGES, AXES, strict=False)):
        half = number("0.5")
        inertia = [AXIAL if x else THIN for x in edge]
        found.append(Link(i - 1 if i else GROUND, "hinge", before, axis, [half * x for x in edge], 1, inertia))
        before = edge
    return found


def turns(y: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
    """The rates of (θ, φ) for a speed u: tangent to (1 + cos θ)(1 + cos φ) = 1, which all of its positions obey."""
    theta, phi = y[0], y[1]
    return sin(phi) * (1 + cos(theta)), -sin(theta) * (1 + cos(phi))


def joints(odd: Any, even: Any) -> np.ndarray:
    return np.array([odd, even, odd, even, odd])


def one_speed(tree: Tree) -> Any:
    """rate(t, (θ, φ, u)): odd joints turn with θ, even ones with φ."""
    cos, sin, quarter = np.cos, np.sin, 2 * np.arctan(tree.one)

    def rate(t: Any, y: Any, xp: Any = None) -> list[Any]:
        theta, phi, u = y
        a, b = turns(y, cos, sin)
        da = (cos(phi) * (1 + cos(theta)) * b - sin(phi) * sin(theta) * a) * u * u
        db = (sin(theta) * sin(phi) * b - cos(theta) * (1 + cos(phi)) * a) * u * u
        w, dw = joints(a, b), joints(da, db)
        mass, force = tree.mass_and_force(np.concatenate([joints(theta + quarter, phi + quarter), w * u]))
        return [a * u, b * u, w @ (force - mass @ dw) / (w @ mass @ w)]

    return rate


def state(y: Any) -> np.ndarray:
    """The suite's state of θ, φ and the speed."""
    theta, phi, u = y
    quarter, rates = 2 * np.arctan(theta * 0 + 1), turns(y, np.cos, np.sin)
    return np.concatenate([joints(theta + quarter, phi + quarter), u * joints(*rates)])


def bricard(end: float = 2.0) -> Problem:
    """Six rods, the sixth on the ground, let go from the cube."""
    number, gravity = np.longdouble, ("0", "-9.81", "0")
    bodies = '<site name="a" pos="-0.2 1 0"/><site name="b" pos="0.2 1 0"/>'
    numbers = lambda x: " ".join(map(repr, x))
    for i, rod in reversed(list(enumerate(rods()))):
        bodies = (
            f'<body name="rod{i}" pos="{numbers(rod.at)}"><joint type="hinge" axis="{numbers(rod.axis)}"/><inertial '
            f'pos="{numbers(rod.com)}" mass="1" diaginertia="{numbers(rod.inertia)}"/>{bodies}</body>'
        )
    inside = (
        f'<worldbody>{bodies}<site name="c" pos="-0.2 0 1"/><site name="d" pos="0.2 0 1"/></worldbody><equality>'
        '<connect site1="a" site2="c"/><connect site1="b" site2="d"/></equality>'
    )
    m = Mechanism(inside, (0.0,) * 5, (0.0,) * 5, (0.0, -9.81, 0.0))

    def references() -> list[tuple[str, Any]]:
        tree, quarter = Tree(rods(), gravity, number, [CLOSURE]), 2 * np.arctan(number(1))
        first = reference.extrapolated(one_speed(tree), [-quarter, -quarter, 0], end, 100, 8, number)
        still = tree.absolute_start(np.zeros(10, number))
        second = reference.extrapolated(tree.newton_euler, still, end, 120, 6, number)
        exact = lambda x: [reference.mp().mpf(str(v)) for v in x]
        return [
            ("one speed, Kane's equations", exact(state(first))),
            ("Newton's and Euler's equations of all bodies", exact(tree.from_absolute(second, np.arctan2))),
        ]

    def sweeps() -> list[Sweep]:
        robot = library.lgjax.load_robot(m.xml)
        found = library.tree_sweeps(m, 200, None, False, robot.loops)
        rate, start = one_speed(Tree(rods(), gravity, float)), [-np.pi / 2, -np.pi / 2, 0.0]
        found += peers.coordinate_sweeps(rate, start, state, slice(2, 3), 100)[:1]  # not in JAX
        return found + peers.mujoco_sweeps(m, 400)

    text = "five moving rods of 1 m and 1 kg, six hinges of 5 constraints for one freedom; SciPy integrates one speed"
    return Problem("bricard", "Bricard's mechanism", text, end, 5, {"energy": mujoco_energy(m)}, references, sweeps)


def problems() -> list[Problem]:
    return [bricard()]
