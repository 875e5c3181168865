"""Built-in mechanisms, made by `build` from numbers, without a parser or a file."""

import inspect
import math
from collections.abc import Callable, Sequence
from importlib import resources
from itertools import pairwise

import jax
import numpy as np

from lgjax.multibody.build import Body, Joint, build
from lgjax.multibody.geometry import Geometry, geometry
from lgjax.multibody.joints import JointKind
from lgjax.multibody.model import Model
from lgjax.multibody.models.multirotor_with_arms import aerial_manipulator
from lgjax.numerics import checks
from lgjax.numerics.messages import nearest

LARGEST = 100_000  # bodies of a model that is asked for by name
QUADRUPED_LEGS = {"FL": (1, 1), "FR": (1, -1), "RL": (-1, 1), "RR": (-1, -1)}
# Position in the link before, joint axis, range (rad), effort (N m), rate (rad/s), mass (kg), center of mass (m),
# moments about it (kg m^2): xx, yy, zz, xy, xz, yz.
ARM_LINKS = (
    ((0, 0, 0.14), (0, 0, 1), 2.9, 180, 1.7, 3.6, (0.0, -0.025, 0.1), (0.032, 0.028, 0.010, 0, 0, 0.006)),
    ((0, 0, 0.2), (0, 1, 0), 2.0, 180, 1.7, 3.8, (0.0, 0.03, 0.06), (0.024, 0.022, 0.011, 0, 0, -0.004)),
    ((0, 0, 0.21), (0, 0, 1), 2.9, 110, 1.8, 3.0, (0.0, 0.03, 0.12), (0.026, 0.024, 0.007, 0, 0, -0.005)),
    ((0, 0, 0.21), (0, -1, 0), 2.1, 110, 2.3, 2.6, (0.0, 0.045, 0.05), (0.013, 0.009, 0.008, 0, 0, -0.002)),
    ((0, 0, 0.2), (0, 0, 1), 2.9, 65, 2.4, 1.8, (0.0, 0.02, 0.08), (0.010, 0.009, 0.004, 0, 0, -0.002)),
    ((0, 0, 0.2), (0, 1, 0), 2.1, 40, 3.1, 1.7, (0.0, 0.0, 0.01), (0.0045, 0.0040, 0.0035, 0, 0, 0.0003)),
    ((0, 0, 0.08), (0, 0, 1), 3.0, 40, 3.1, 0.4, (0.002, 0.0, 0.03), (0.0004, 0.0004, 0.0005, 0, 0, 0)),
)


def _symmetric(xx, yy, zz, xy=0.0, xz=0.0, yz=0.0) -> np.ndarray:
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], float)


def _at(*position) -> np.ndarray:
    return np.array(position, float)


def quadruped() -> Model:
    """Quadruped robot of 12.5 kg: a trunk on a free joint and four legs of three revolute joints; 13 bodies, nv = 18.

    Legs FL, FR, RL, RR (front and rear, left and right) with bodies hip (abduction, about x), thigh and calf (about
    y), and the foot as a frame fixed to the calf. x is forward, z up; at zero every leg points straight down.
    The numbers resemble those of small commercial robots. The same robot as a file: `urdf("quadruped")`.
    """
    bodies = [
        Body(
            "trunk", None, Joint("root_joint", "free"), mass=5.6, com=_at(0.008, 0.0, 0.004),
            inertia=_symmetric(0.026, 0.074, 0.086, xz=-0.0004),
        )
    ]  # fmt: skip
    for leg, (front, left) in QUADRUPED_LEGS.items():
        bodies += _leg(leg, front, left)
    return build(bodies, "quadruped", geometry=_quadruped_geometry())


def _quadruped_geometry() -> list[Geometry]:
    """A trunk, four knees and four feet."""
    shapes = [geometry("trunk", "box", (0.19, 0.055, 0.055))]
    for leg in QUADRUPED_LEGS:
        shapes.append(geometry(f"{leg}_calf", "sphere", (0.025,)))
        shapes.append(geometry(f"{leg}_foot", "sphere", (0.02,)))
    return shapes


def _leg(leg: str, front: int, left: int) -> list[Body]:
    def joint(part: str, axis, lower, upper, effort, rate):
        return Joint(
            f"{leg}_{part}_joint", "revolute", axis, lower=lower, upper=upper, effort=effort, velocity_limit=rate
        )

    hip = Body(
        f"{leg}_hip", "trunk", joint("hip", (1.0, 0.0, 0.0), -0.85, 0.85, 24.0, 30.0),
        position=_at(0.19 * front, 0.048 * left, 0.0), mass=0.57, com=_at(-0.004 * front, 0.006 * left, 0.0),
        inertia=_symmetric(0.00042, 0.00066, 0.00049, xy=1.5e-5 * front * left),
    )  # fmt: skip
    thigh = Body(
        f"{leg}_thigh", hip.name, joint("thigh", (0.0, 1.0, 0.0), -0.7, 3.9, 24.0, 30.0),
        position=_at(0.0, 0.08 * left, 0.0), mass=0.94, com=_at(-0.004, -0.019 * left, -0.03),
        inertia=_symmetric(0.0056, 0.0053, 0.0012, xz=0.0003, yz=0.0005 * left),
    )  # fmt: skip
    calf = Body(
        f"{leg}_calf", thigh.name, joint("calf", (0.0, 1.0, 0.0), -2.8, 0.0, 36.0, 20.0),
        position=_at(0.0, 0.0, -0.21), mass=0.16, com=_at(0.005, 0.0, -0.11),
        inertia=_symmetric(0.0019, 0.0019, 4e-5, xz=2e-5),
    )  # fmt: skip
    foot = Body(
        f"{leg}_foot", calf.name, Joint(f"{leg}_foot_fixed", "fixed"),
        position=_at(0.0, 0.0, -0.21), mass=0.06, inertia=_symmetric(1e-5, 1e-5, 1e-5),
    )  # fmt: skip
    return [hip, thigh, calf, foot]


def arm() -> Model:
    """Robot arm of 17 kg on a fixed base: seven revolute joints, links link1 to link7 and the frames base and tool.

    The joints turn in alternation along the arm and across it; at zero the arm points straight up, 1.34 m to the tool.
    The same robot as a file: `urdf("arm")`.
    """
    bodies = [
        Body("base", None, Joint("base_fixed", "fixed"), mass=4.0, com=_at(0.0, 0.0, 0.06),
             inertia=_symmetric(0.014, 0.014, 0.018))
    ]  # fmt: skip
    for i, (position, axis, reach, effort, rate, mass, com, moments) in enumerate(ARM_LINKS, 1):
        joint = Joint(f"joint{i}", "revolute", axis, lower=-reach, upper=reach, effort=effort, velocity_limit=rate)
        bodies.append(
            Body(f"link{i}", bodies[-1].name, joint, np.eye(3), _at(*position), mass, _at(*com), _symmetric(*moments))
        )
    bodies.append(Body("tool", "link7", Joint("tool_fixed", "fixed"), position=_at(0.0, 0.0, 0.1)))
    shapes = [geometry(f"link{i}", "sphere", (0.06,)) for i in range(1, 8)]
    return build(bodies, "arm", geometry=[*shapes, geometry("tool", "sphere", (0.03,))])


def urdf(name: str) -> str:
    """The text of the URDF of "quadruped" or "arm", equal to what the function of that name builds."""
    if name not in ("quadruped", "arm"):
        raise ValueError(f"no URDF of {name!r}; there are 'quadruped' and 'arm'")
    return resources.files("lgjax.multibody").joinpath("data", f"{name}.urdf").read_text(encoding="utf-8")


def _rod(name: str, parent: str | None, joint: Joint, position, direction, length: float) -> Body:
    """A rod of 1 kg and 2 cm radius from its body's origin along the unit vector `direction`."""
    d, radius = np.asarray(direction, float), 0.02
    along, across = radius**2 / 2, length**2 / 12 + radius**2 / 4
    inertia = across * np.eye(3) + (along - across) * np.outer(d, d)
    return Body(name, parent, joint, np.eye(3), np.asarray(position, float), 1.0, length / 2 * d, inertia)


def _count(name: str, value: int, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} is {checks.shown(value)}, expected an integer of at least {least}")
    return int(value)


def _chain(prefix: str, n: int, parent: str | None, position, direction, axes: Sequence, length: float) -> list[Body]:
    """n rods end to end, turning about `axes` in alternation; the first hangs at `position` on `parent`."""
    names = [parent, *(f"{prefix}{i}" for i in range(n))]
    step = length * np.asarray(direction, float)
    return [
        _rod(
            str(name), before, Joint(f"{name}_joint", "continuous", tuple(map(float, axes[i % len(axes)]))),
            position if i == 0 else step, direction, length,
        )
        for i, (before, name) in enumerate(pairwise(names))
    ]  # fmt: skip


def chain(n: int, floating_base: bool = False) -> Model:
    """Chain of n rods of 1 kg and 0.3 m that hangs down, its joints turning about y and x in alternation.

    With floating_base the first of the n rods is on a free joint and the others on n - 1 revolute ones.
    """
    bodies = _chain("rod", _count("n", n), None, (0, 0, 0), (0, 0, -1), ((0, 1, 0), (1, 0, 0)), 0.3)
    if checks.truth("floating_base", floating_base):
        bodies[0] = _rod(bodies[0].name, None, Joint("root_joint", "free"), (0, 0, 0), (0, 0, -1), 0.3)
    return build(bodies, f"chain_{n}")


def branched_tree(branches: int, length: int) -> Model:
    """Floating disc that carries `branches` chains of `length` bodies in a star; 1 + branches length bodies.

    The chains lie in the plane of the disc; their rods of 1 kg and 0.2 m turn alternately in that plane and out of it.
    """
    branches, length = _count("branches", branches), _count("length", length)
    disc = Body("base", None, Joint("root_joint", "free"), mass=5.0, inertia=np.diag([0.06, 0.06, 0.1]))
    bodies = [disc]
    for branch in range(branches):
        angle = 2 * np.pi * branch / branches
        outward = np.array([np.cos(angle), np.sin(angle), 0.0])
        across = np.array([-np.sin(angle), np.cos(angle), 0.0])
        bodies += _chain(f"branch{branch}_", length, "base", 0.2 * outward, outward, (across, (0, 0, 1)), 0.2)
    return build(bodies, f"branched_tree_{branches}x{length}")


class _Stream:
    """Random numbers that are the same in every version of NumPy, which guarantees this only for raw bits."""

    def __init__(self, key, part: int):
        new = hasattr(key, "dtype") and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
        if new or np.ndim(key):
            key = checks.random_key("key", key)
            words = np.asarray(jax.random.key_data(key) if new else key).ravel().tolist()
        else:
            words = [checks.integer("key", key, 0)]
        self.bits = np.random.PCG64([*words, part])

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        raw = np.asarray(self.bits.random_raw(int(np.prod(shape, dtype=int))), np.uint64)
        return low + (high - low) * ((raw >> np.uint64(11)) * 2.0**-53).reshape(shape)

    def choice(self, n: int) -> int:
        return int(self.uniform(0, n, 1)[0])

    def rotation(self) -> np.ndarray:
        """Uniform on SO(3), from a uniform unit quaternion."""
        u, a, b = self.uniform(0, 1, 3)
        a, b = 2 * np.pi * a, 2 * np.pi * b
        x, y = np.sqrt(1 - u) * np.array([np.sin(a), np.cos(a)])
        z, w = np.sqrt(u) * np.array([np.sin(b), np.cos(b)])
        hat = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        return np.eye(3) + 2 * w * hat + 2 * hat @ hat


def random_tree(
    key: jax.Array | int,
    n: int,
    floating_base: bool = True,
    kinds: Sequence[str | JointKind] = ("revolute", "prismatic"),
    armature: float = 0.0,
    damping: float = 0.0,
) -> Model:
    """Random tree of n bodies; the same key gives the same tree on every machine.

    key: an integer or a JAX key (concrete). Each body is attached to an earlier one, chosen uniformly, by a joint of
    one of `kinds`, with a random axis and pose, 0.1 m/rad of pitch and a valid inertia (0.5 to 2 kg, about 10 cm). With
    floating_base the first is on a free joint, otherwise on one of `kinds`. armature, damping: upper bounds of uniform
    values on the other joints. Topology and kinds do not depend on the other options. "fixed" among the kinds leaves
    fewer moving bodies.
    """
    _count("n", n)
    floating_base = checks.truth("floating_base", floating_base)
    armature, damping = checks.number("armature", armature, 0.0), checks.number("damping", damping, 0.0)
    shape, values = _Stream(key, 0), _Stream(key, 1)
    bodies = []
    for i in range(n):
        parent, kind = shape.choice(max(i, 1)), kinds[shape.choice(len(kinds))]
        a, d = values.uniform(0, armature, 1)[0], values.uniform(0, damping, 1)[0]
        axis = tuple(values.rotation()[2])
        if i == 0 and floating_base:
            joint = Joint("root_joint", "free")
        else:
            pitch = 0.1 if kind == "helical" else 0.0
            joint = Joint(f"joint{i}", kind, axis, armature=a, damping=d, pitch=pitch)
        rotation, position = values.rotation(), values.uniform(-0.3, 0.3, 3)
        if i == 0:
            rotation, position = np.eye(3), np.zeros(3)
        mass, com = values.uniform(0.5, 2.0, 1)[0], values.uniform(-0.1, 0.1, 3)
        spread, axes = values.uniform(0.03, 0.15, 3) ** 2, values.rotation()
        inertia = mass * axes @ np.diag(np.sum(spread) - spread) @ axes.T
        parent_name = f"body{parent}" if i else None
        bodies.append(Body(f"body{i}", parent_name, joint, rotation, position, mass, com, (inertia + inertia.T) / 2))
    return build(bodies, f"random_tree_{n}")


def _default_random_tree(n: int, floating_base: bool = True) -> Model:
    return random_tree(0, n, floating_base)


# How each built-in model is asked for by name, with the sizes that some take.
BUILT_IN: dict[str, Callable[..., Model]] = {
    "quadruped": quadruped,
    "arm": arm,
    "chain:N": chain,
    "branched_tree:BxL": branched_tree,
    "random_tree:N": _default_random_tree,
    "aerial_manipulator": aerial_manipulator,
}


def by_name(name: str, floating_base: bool | None = None) -> Model:
    """Make a built-in model by name: quadruped, arm, chain:7, branched_tree:5x20, random_tree:30.

    floating_base: whether the base floats, for the models that leave the choice; None is their default. Raises
    ValueError for an unknown name, listing the known ones, and for a choice that a model does not leave.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be the name of a built-in model, got {name!r}")
    start, _, sizes = name.partition(":")
    patterns = {pattern.partition(":")[0]: pattern for pattern in BUILT_IN}
    if start not in patterns:
        raise ValueError(f"unknown model {name!r}; built in: {', '.join(BUILT_IN)}{nearest(start, patterns)}")
    make, expected = BUILT_IN[patterns[start]], patterns[start].partition(":")[2]
    numbers = [int(part) for part in sizes.split("x") if part.isdecimal()]
    if "x".join(map(str, numbers)) != sizes or len(numbers) != len(expected.split("x") if expected else ()):
        raise ValueError(f"model {name!r} is not of the form {patterns[start]}")
    if math.prod(numbers) > LARGEST:
        raise ValueError(f"model {name!r} has more than {LARGEST} bodies")
    if floating_base is None:
        return make(*numbers)
    if "floating_base" not in inspect.signature(make).parameters:
        raise ValueError(f"model {name!r} has a base of its own, which can be neither fixed nor freed")
    return make(*numbers, floating_base=floating_base)
