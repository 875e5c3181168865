"""Mechanisms with closed loops: a four-bar, a planar five-bar and a Stewart platform."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.energy import total_energy
from lgjax.dynamics.loops import Loop
from lgjax.groups.se3 import Pose
from lgjax.multibody.build import GRAVITY, Body, Joint, build
from lgjax.multibody.configuration import Configuration, neutral
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.systems.problem import gravity_vector

Y = (0.0, -1.0, 0.0)  # axes of planar mechanisms: they move in the xz plane, angles count from x to z
# z along those axes, so that what a loop calls a line is the axis of a pin
PIN = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])


class LoopProblem(NamedTuple):
    """A tree with loops, ready for `rollout(system.model, system.q0, system.v0, ..., loops=system.loops)`.

    actuated: the velocity indices that motors drive. invariants: name -> function of (q, v) that the passive motion
    keeps.
    """

    model: Model
    loops: tuple[Loop, ...]
    q0: Configuration
    v0: jax.Array
    actuated: tuple[int, ...]
    invariants: dict[str, Callable[[Configuration, jax.Array], jax.Array]]


def _rod(name: str, parent: str | None, length: float, mass: float, at=(0.0, 0.0, 0.0)) -> Body:
    """A uniform thin rod along x that turns about the pin at its end."""
    moment = mass * length**2 / 12
    return Body(
        name, parent, Joint(f"{name}_joint", "revolute", Y), position=np.asarray(at, float), mass=mass,
        com=np.array([length / 2, 0.0, 0.0]), inertia=np.diag([1e-3 * moment, moment, moment]),
    )  # fmt: skip


def _system(model: Model, loops, q0: Configuration, actuated) -> LoopProblem:
    invariants = {"energy": partial(total_energy, model)}
    return LoopProblem(model, loops, q0, jnp.zeros(model.nv, model.dtype), actuated, invariants)


def _joints(model: Model, angles) -> Configuration:
    return neutral(model)._replace(joints=jnp.asarray(np.asarray(angles), model.dtype))


def _elbow(what: str, start, end, first: float, second: float, side: int) -> np.ndarray:
    """Directions (2,) of two rods of given lengths from `start` to `end`; side 1: the elbow is left of the way."""
    way = np.asarray(end) - np.asarray(start)
    reach = float(np.hypot(*way))
    if not abs(first - second) < reach < first + second:
        raise ValueError(f"{what} does not close: rods of {first} m and {second} m over a distance of {reach:.6g} m")
    cosine = [
        (first**2 + reach**2 - second**2) / (2 * first * reach),
        (second**2 + reach**2 - first**2) / (2 * second * reach),
    ]
    return np.arctan2(way[1], way[0]) + side * np.array([1, -1]) * np.arccos(cosine)


def _positive(name: str, values: Any, size: int) -> list[float]:
    """`size` positive numbers that are known; ValueError with their name for anything else."""
    return checks.positive(name, checks.numbers(name, values, (size,))).tolist()


def _heading(angle: float, length: float) -> np.ndarray:
    return length * np.array([np.cos(angle), np.sin(angle)])


def _pin(closure: str, a: str, b: str, at_a: float, at_b: float, name: str) -> Loop:
    """The pin between points on the x axes of two rods."""
    frame = lambda x: Pose(jnp.asarray(PIN), jnp.asarray([x, 0.0, 0.0]))
    return Loop(closure, a, b, frame(at_a), frame(at_b), name=name)


def four_bar(
    lengths: Any = (1.0, 0.4, 0.9, 0.7),
    masses: Any = (0.4, 0.9, 0.7),
    gravity: Any = GRAVITY,
    closure: str = "point_on_line",
    dtype: Any = None,
) -> LoopProblem:
    """A planar four-bar of uniform rods: lengths of ground, crank, coupler, rocker (m), masses of the last three (kg).

    The crank turns about the origin, the rocker about (ground, 0, 0), in the xz plane; the coupler hangs on the crank,
    and its pin on the rocker is cut: three velocities, one degree of freedom. By default the crank can turn all around.
    closure: "point_on_line", two independent rows, or "revolute", five of which three say what the plane says already.
    gravity: a vector (3,) m/s², or a number that pulls along -z. Starts with the crank at 1 rad, at rest.
    Raises ValueError for lengths and masses that are not positive and lengths that cannot close.
    """
    checks.choice("closure", closure, ("point_on_line", "revolute"))
    d, a, b, c = _positive("lengths", lengths, 4)
    masses = _positive("masses", masses, 3)
    crank = 1.0
    coupler, rocker = _elbow("four-bar", _heading(crank, a), (d, 0.0), b, c, 1) + np.array([0.0, np.pi])
    rods = [_rod("crank", None, a, masses[0]), _rod("coupler", "crank", b, masses[1], (a, 0.0, 0.0))]
    rods.append(_rod("rocker", None, c, masses[2], (d, 0.0, 0.0)))
    model = build(rods, "four_bar", gravity_vector(gravity), dtype=dtype)
    loops = (_pin(closure, "coupler", "rocker", b, c, "coupler pin"),)
    return _system(model, loops, _joints(model, (crank, coupler - crank, rocker)), (0,))


def five_bar(
    lengths: Any = (0.5, 0.4, 0.6, 0.6, 0.4),
    masses: Any = (0.5, 0.7, 0.7, 0.5),
    gravity: Any = GRAVITY,
    actuated: tuple[int, ...] = (0, 1, 2),
    dtype: Any = None,
) -> LoopProblem:
    """A planar five-bar of uniform rods: lengths of ground, left upper, left lower, right lower, right upper (m).

    masses: of the same rods without the ground, kg. The upper rods turn about the origin and (ground, 0, 0), in the xz
    plane; the lower rods hang on them and meet in a pin, which is cut: four velocities, two degrees of freedom. Three
    actuators drive it redundantly.
    gravity: a vector (3,) m/s², or a number that pulls along -z.
    Starts with the pin below the middle, at rest. Velocities: left upper, left lower, right upper, right lower.
    Raises ValueError for lengths and masses that are not positive, lengths that cannot close and actuators without a
    velocity. Source: [kim2012] section 3.1, its example of redundant actuation.
    """
    g, a, b, c, d = _positive("lengths", lengths, 5)
    masses = _positive("masses", masses, 4)
    actuated = checks.indices("actuated", actuated, 4)
    rods = [_rod("left_upper", None, a, masses[0]), _rod("left_lower", "left_upper", b, masses[1], (a, 0.0, 0.0))]
    rods += [_rod("right_upper", None, d, masses[3], (g, 0.0, 0.0))]
    rods += [_rod("right_lower", "right_upper", c, masses[2], (d, 0.0, 0.0))]
    model = build(rods, "five_bar", gravity_vector(gravity), dtype=dtype)
    tool = (g / 2, -0.8 * (a + b))
    left, left_lower = _elbow("five-bar", (0.0, 0.0), tool, a, b, -1)
    right, right_lower = _elbow("five-bar", (g, 0.0), tool, d, c, 1)
    loops = (_pin("point_on_line", "left_lower", "right_lower", b, c, "tool"),)
    return _system(model, loops, _joints(model, (left, left_lower - left, right, right_lower - right)), actuated)


def stewart_platform(
    base_radius: float = 1.0,
    top_radius: float = 0.6,
    height: float = 1.2,
    platform_mass: float = 20.0,
    leg_mass: float = 1.5,
    gravity: Any = GRAVITY,
    dtype: Any = None,
) -> LoopProblem:
    """A Stewart platform: a disc on six legs, each a universal joint, an actuated slide and a ball at the platform.

    The tree is the disc on a free joint and the legs on the ground, with a massless cross between the two axes of
    each universal joint; the balls are cut: 24 velocities, 18 constraints, six degrees of freedom, six actuators.
    Radii and height of the joints in meters, masses in kg (a leg has two rods of that mass), gravity a vector (3,) m/s²
    or a number that pulls along -z. Starts level, at rest. Raises ValueError for lengths and masses that are not
    positive.
    """
    given = {"base_radius": base_radius, "top_radius": top_radius, "height": height}
    base_radius, top_radius, height = (_positive(name, [x], 1)[0] for name, x in given.items())
    given = {"platform_mass": platform_mass, "leg_mass": leg_mass}
    platform_mass, leg_mass = (_positive(name, [x], 1)[0] for name, x in given.items())
    bodies, loops, frames = [_disc(top_radius, platform_mass)], [], []
    for i in range(6):
        bottom = base_radius * _direction(i, 0.2)
        top = top_radius * _direction(i, 0.8)
        bodies += _leg(i, bottom, top + np.array([0.0, 0.0, height]) - bottom, leg_mass)
        frames.append(top)
        loops.append(Loop("spherical", f"rod_{i}", "platform", None, top, name=f"ball {i}"))
    model = build(bodies, "stewart_platform", gravity_vector(gravity), dtype=dtype)
    q = neutral(model)
    raised = Pose(q.free_poses.rotation, q.free_poses.translation.at[0, 2].set(height))
    slides = tuple(model.tree.v_start[model.tree.body(f"rod_{i}")] for i in range(6))
    return _system(model, tuple(loops), q._replace(free_poses=raised), slides)


def _direction(i: int, spread: float) -> np.ndarray:
    """Unit vectors in three pairs; those of a pair are `spread` times 120 degrees apart."""
    angle = 2 * np.pi / 3 * (i // 2 + spread * (i % 2 - 0.5))
    return np.array([np.cos(angle), np.sin(angle), 0.0])


def _disc(radius: float, mass: float) -> Body:
    moment = mass * radius**2 / 4
    return Body(
        "platform", None, Joint("platform_joint", "free"), mass=mass, inertia=np.diag([moment, moment, 2 * moment])
    )


def _leg(i: int, bottom: np.ndarray, along: np.ndarray, mass: float) -> list[Body]:
    """Cross, cylinder and rod of a leg; the slide is zero at its length at the start, the rod's frame at the ball."""
    length = float(np.linalg.norm(along))
    z = along / length
    x = np.cross([0.0, 0.0, 1.0], z)
    x /= np.linalg.norm(x)
    rotation = np.stack([x, np.cross(z, x), z], 1)
    half = length / 2
    moment = mass * half**2 / 12
    inertia = np.diag([moment, moment, 0.01 * moment])
    return [
        Body(f"cross_{i}", None, Joint(f"tilt_{i}", "revolute", (1.0, 0.0, 0.0)), rotation, bottom),
        Body(
            f"cylinder_{i}", f"cross_{i}", Joint(f"swing_{i}", "revolute", (0.0, 1.0, 0.0)), mass=mass,
            com=np.array([0.0, 0.0, half / 2]), inertia=inertia,
        ),
        Body(
            f"rod_{i}", f"cylinder_{i}", Joint(f"slide_{i}", "prismatic", (0.0, 0.0, 1.0)),
            position=np.array([0.0, 0.0, length]), mass=mass, com=np.array([0.0, 0.0, -half / 2]), inertia=inertia,
        ),
    ]  # fmt: skip
