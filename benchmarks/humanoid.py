"""A humanoid of plain shapes for benchmarks: a floating pelvis and 29 revolute joints, nv 35, about 66 kg."""

import numpy as np

from lgjax import Body, Joint, Model, build

X, Y, Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
NONE = (0.02, 0.02, 0.02)  # the links between the axes of a joint complex: small cubes
# name, parent, axis, place in the parent, mass, box; limbs hang down
TORSO = [
    ("waist_yaw", "pelvis", Z, (0, 0, 0.1), 1.0, NONE),
    ("waist_pitch", "waist_yaw", Y, (0, 0, 0.02), 1.0, NONE),
    ("chest", "waist_pitch", X, (0, 0, 0.02), 18.0, (0.22, 0.3, 0.4)),
    ("neck", "chest", Z, (0, 0, 0.42), 0.5, NONE),
    ("head", "neck", Y, (0, 0, 0.04), 4.0, (0.18, 0.15, 0.22)),
]
LEG = [
    ("hip_yaw", "pelvis", Z, (0, 0.09, -0.05), 1.0, NONE),
    ("hip_roll", "hip_yaw", X, (0, 0, -0.02), 1.0, NONE),
    ("thigh", "hip_roll", Y, (0, 0, -0.02), 6.0, (0.12, 0.12, -0.4)),
    ("shin", "thigh", Y, (0, 0, -0.4), 3.0, (0.09, 0.09, -0.4)),
    ("ankle", "shin", Y, (0, 0, -0.4), 0.3, NONE),
    ("foot", "ankle", X, (0, 0, -0.02), 1.0, (0.24, 0.1, -0.06)),
]
ARM = [
    ("shoulder_pitch", "chest", Y, (0, 0.2, 0.36), 0.7, NONE),
    ("shoulder_roll", "shoulder_pitch", X, (0, 0.02, 0), 0.7, NONE),
    ("upper_arm", "shoulder_roll", Z, (0, 0, -0.02), 2.0, (0.09, 0.09, -0.28)),
    ("forearm", "upper_arm", Y, (0, 0, -0.28), 1.2, (0.07, 0.07, -0.25)),
    ("wrist", "forearm", Z, (0, 0, -0.25), 0.2, NONE),
    ("hand", "wrist", Y, (0, 0, -0.02), 0.5, (0.04, 0.09, -0.17)),
]


def humanoid() -> Model:
    """The model, in float32 or float64 as JAX is configured."""
    return build(bodies(), "humanoid")


def bodies() -> list[Body]:
    """The pelvis, which is free, then the links, each after its parent."""
    bodies = [Body("pelvis", None, Joint("root", "free"), mass=8.0, inertia=_box(8.0, (0.2, 0.3, 0.15)))]
    bodies += [_link(*part) for part in TORSO]
    for side, sign in (("left", 1), ("right", -1)):
        for name, parent, axis, (x, y, z), mass, size in (*LEG, *ARM):
            above = parent if parent in ("pelvis", "chest") else f"{side}_{parent}"
            bodies.append(_link(f"{side}_{name}", above, axis, (x, sign * y, z), mass, size))
    return bodies


def spheres() -> dict[str, list[tuple[float, tuple[float, float, float]]]]:
    """Radii and centers of 16 spheres, by link: four at each foot, and on knees, elbows, hands, pelvis and head."""
    found: dict[str, list] = {"pelvis": [(0.1, (0.0, 0.0, 0.0))], "head": [(0.1, (0.0, 0.0, 0.11))]}
    for side in ("left", "right"):
        found[f"{side}_foot"] = [(0.02, (x, y, -0.04)) for x in (-0.1, 0.1) for y in (-0.04, 0.04)]
        found |= {f"{side}_shin": [(0.05, (0.0, 0.0, 0.0))], f"{side}_forearm": [(0.04, (0.0, 0.0, 0.0))]}
        found[f"{side}_hand"] = [(0.04, (0.0, 0.0, -0.1))]
    return found


def _link(name, parent, axis, place, mass, size) -> Body:
    """A box whose joint is in the middle of its upper, or lower, face."""
    joint = Joint(f"{name}_joint", "revolute", axis)
    com = (0.0, 0.0, size[2] / 2)
    return Body(name, parent, joint, position=place, mass=mass, com=com, inertia=_box(mass, size))


def _box(mass: float, size) -> np.ndarray:
    a, b, c = np.square(size)
    return mass / 12 * np.diag([b + c, a + c, a + b])
