"""Multirotor with six tilted propellers and two arms of three joints: its numbers, and the mechanism.

Source: [ali2026] section 7, which gives the forms. None of the numbers is from its Table 3; they are chosen here for a
hexarotor of 0.6 m span.
"""

from math import pi
from typing import NamedTuple

import numpy as np

from lgjax.multibody.build import Body, Joint, build
from lgjax.multibody.model import Model
from lgjax.numerics import checks


class Mechanism(NamedTuple):
    """Masses and lengths; SI units. Every link of both arms is alike."""

    base_mass: float = 3.0
    base_inertia: tuple[float, ...] = (0.045, 0.045, 0.08)  # xx, yy, zz about the center of mass, kg m^2
    shoulder_offset: float = 0.1  # from the base's center of mass down to the shoulders, m
    arm_spacing: float = 0.3  # between the shoulders, along y, m
    link_mass: float = 0.25
    link_length: float = 0.2  # from joint to joint, m; the center of mass is half-way
    link_inertia: tuple[float, ...] = (9e-4, 9e-4, 1e-4)  # xx, yy, zz about the center of mass, kg m^2
    axes: tuple[str, ...] = ("y", "x", "y")  # of an arm's joints at home: swing, spread, elbow
    joint_range: float = 2.4  # either way, rad


class Propellers(NamedTuple):
    """Propeller i: its frame in the base's is rot_z(angles[i]) trans_x(radius) rot_x(tilts[i]); it thrusts along z.

    Thrust is `thrust` times the squared speed, N s^2/rad^2; the drag moment about z is -spins[i] `drag` times it, N m
    s^2/rad^2. Tilts and spins alternate, such that drag and tilted thrust turn the base the same way.
    """

    angles: tuple[float, ...] = tuple(i * pi / 3 for i in range(6))  # rad
    tilts: tuple[float, ...] = (0.4, -0.4, 0.4, -0.4, 0.4, -0.4)  # rad
    spins: tuple[int, ...] = (1, -1, 1, -1, 1, -1)
    radius: float = 0.3  # m
    thrust: float = 1.2e-5
    drag: float = 1.9e-7


class ReferenceMotion(NamedTuple):
    """The reference: the base on a planar circle with sinusoidal yaw, the joints half-cosines.

    position = (radius cos φ, radius sin φ, height), φ = circle_rate t; yaw = yaw_amplitude sin(yaw_rate t);
    joint i = start + amplitude (1 - cos(joint_rate t)) / 2. Metres, radians, seconds.
    """

    horizon: float = 10.0
    radius: float = 1.0
    height: float = 2.0
    circle_rate: float = 2 * pi / 10
    yaw_amplitude: float = pi / 6
    yaw_rate: float = 2 * pi / 5
    joint_start: tuple[float, ...] = (0.3, 0.1, -0.6, 0.3, -0.1, -0.6)
    joint_amplitude: tuple[float, ...] = (0.6, 0.3, -0.8, -0.5, -0.3, 0.7)
    joint_rate: float = 2 * pi / 5


MECHANISM, PROPELLERS, MOTION = Mechanism(), Propellers(), ReferenceMotion()
AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


def aerial_manipulator(numbers: Mechanism = MECHANISM) -> Model:
    """Multirotor of 4.5 kg with two parallel arms of three revolute joints below it; 7 bodies, nv = 12.

    The base (3 kg) is on a free joint, its center of mass at its origin. The shoulders are 0.1 m below it and 0.3 m
    apart along y; arms left (+y) and right hang straight down at zero, with links 1, 2, 3 of 0.25 kg and 0.2 m that
    turn about y, x, y and the tip as a frame fixed to the last. At zero every frame is parallel to the world's. The
    numbers are those of `numbers`; the propellers are in `lgjax.systems.aerial_manipulator`.
    Source: [ali2026] section 7.1.
    """
    checks.of_kind("numbers", numbers, Mechanism)
    base = Body(
        "base", None, Joint("root_joint", "free"), mass=numbers.base_mass, inertia=np.diag(numbers.base_inertia)
    )
    bodies = [base]
    for arm, side in (("left", 1), ("right", -1)):
        bodies += _arm(numbers, arm, np.array([0.0, side * numbers.arm_spacing / 2, -numbers.shoulder_offset]))
    return build(bodies, "aerial_manipulator")


def _arm(numbers: Mechanism, arm: str, shoulder: np.ndarray) -> list[Body]:
    down = np.array([0.0, 0.0, -numbers.link_length])
    links, parent, position = [], "base", shoulder
    for i, axis in enumerate(numbers.axes, 1):
        joint = Joint(f"{arm}_joint{i}", "revolute", AXES[axis], lower=-numbers.joint_range, upper=numbers.joint_range)
        link = Body(
            f"{arm}_link{i}", parent, joint, position=position, mass=numbers.link_mass, com=down / 2,
            inertia=np.diag(numbers.link_inertia),
        )  # fmt: skip
        links.append(link)
        parent, position = link.name, down
    return [*links, Body(f"{arm}_tip", parent, Joint(f"{arm}_tip_fixed", "fixed"), position=down)]
