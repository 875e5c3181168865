"""A robot file as plain numbers: what it says besides bodies and joints is read by `lgjax.load_robot` alone.

The importers fill a `Description`; `lgjax/robots/load.py` makes a Model, loops, forces, actuators and sensors of it.
Numbers are those of the file, resolved by its defaults: SI units, radians, body frames, quaternions wxyz.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lgjax.multibody.build import Body
from lgjax.multibody.geometry import Geometry


class Place(NamedTuple):
    """A frame on a link, None the world: position (3,) m and rotation (3, 3) in the link's frame."""

    link: str | None
    position: np.ndarray
    rotation: np.ndarray


class Spring(NamedTuple):
    """A spring at a joint. stiffness: k, and the coefficients of |x| and x^2 that add to it."""

    joint: str
    stiffness: tuple[float, ...]
    where: str


class Damper(NamedTuple):
    """Coefficients of |v| and v^2 that add to the damping of a joint."""

    joint: str
    coefficients: tuple[float, ...]
    where: str


class Heavy(NamedTuple):
    """A body as gravity and a fluid see it: mass kg, com Place (principal axes), principal inertia (3,) kg m^2.

    factor: share of its weight that is carried.
    """

    com: Place
    mass: float
    inertia: tuple[float, ...]
    factor: float = 0.0


class Ellipsoid(NamedTuple):
    """A geom in a fluid: half axes (3,) m and the twelve numbers that MuJoCo keeps of its flow."""

    place: Place
    axes: tuple[float, ...]
    coefficients: tuple[float, ...]


class Fluid(NamedTuple):
    """A medium at rest but for the wind: density kg/m^3, viscosity Pa s, wind (3,) m/s; bodies and ellipsoids in it."""

    density: float
    viscosity: float
    wind: tuple[float, ...]
    bodies: tuple[Heavy, ...]
    ellipsoids: tuple[Ellipsoid, ...]


class Wrap(NamedTuple):
    """A piece of a tendon's path.

    kind: "joint" (name, number its coefficient), "site" (place), "pulley" (number its divisor), "sphere" or "cylinder"
    (place, number its radius, side the site that the tendon passes on, if any).
    """

    kind: str
    name: str = ""
    number: float = 0.0
    place: Place | None = None
    side: Place | None = None


@dataclass(frozen=True)
class Tendon:
    """A length of a configuration and its passive forces.

    rest: the range of lengths without spring force. stiffness and damping: linear coefficient, then those of the first
    and second power. limits None where it has none. stop: stiffness, damping and width (m) of soft stops that are as
    stiff as MuJoCo's. length0: at the configuration that the file shows.
    """

    name: str
    kind: str
    path: tuple[Wrap, ...]
    rest: tuple[float, float]
    stiffness: tuple[float, ...]
    damping: tuple[float, ...]
    friction: float
    armature: float
    limits: tuple[float, float] | None
    stop: tuple[float, float, float]
    length0: float
    where: str

    @property
    def acts(self) -> bool:
        """Whether it has forces of its own."""
        return bool(any(self.stiffness) or any(self.damping) or self.friction or self.limits)


class Coupling(NamedTuple):
    """first - reference = sum of coefficients[k] (second - its reference)^k, of joints or tendons; second may be None.

    kind: "joint" or "tendon".
    """

    name: str
    kind: str
    first: str
    second: str | None
    coefficients: tuple[float, ...]
    references: tuple[float, float]
    where: str


class Closure(NamedTuple):
    """Two places held together: kind "point" or "weld"."""

    name: str
    kind: str
    first: Place
    second: Place
    where: str


@dataclass(frozen=True)
class Drive:
    """An actuator, in MuJoCo's terms: force = gain(length, velocity) input + bias(length, velocity).

    transmission: "joint", "joint_in_parent", "tendon", "site", "slider_crank"; targets: names of joints or tendons, or
    Places of sites (a second one is the reference, of a crank the slider). gain, bias: "fixed", "none", "affine", ...;
    dynamics: "none", "integrator", "filter", "filterexact", ... Ranges None where nothing is clipped. delay in s.
    """

    name: str
    transmission: str
    targets: tuple[str | Place, ...]
    gear: tuple[float, ...]
    gain: tuple[str, tuple[float, ...]]
    bias: tuple[str, tuple[float, ...]]
    dynamics: tuple[str, tuple[float, ...]]
    control_range: tuple[float, float] | None
    force_range: tuple[float, float] | None
    activation_range: tuple[float, float] | None
    early: bool = False
    delay: float = 0.0
    samples: int = 0
    interpolation: int = 0
    crank: float = 0.0
    where: str = ""


@dataclass(frozen=True)
class Measure:
    """A sensor. kind: MuJoCo's name of it. target: Place, or name of a joint, tendon or actuator; reference: Place.

    size: of the site, for touch: its shape and half extents.
    """

    name: str
    kind: str
    target: Place | str | None
    reference: Place | None
    noise: float
    cutoff: float
    delay: float
    interval: tuple[float, ...]
    shape: tuple[str, tuple[float, ...]]
    where: str


class Key(NamedTuple):
    """A state by name, in flat coordinates of the file; control and activation of all its actuators."""

    name: str
    q: np.ndarray
    v: np.ndarray
    control: np.ndarray
    activation: np.ndarray


@dataclass(frozen=True)
class Surface:
    """How a shape touches others, beyond what `Geometry` says.

    friction: sliding, torsional (m), rolling (m); of two shapes the larger counts, or that of higher priority.
    dimension 1 is without friction, 3 has sliding, 4 torsional, 6 rolling friction.
    """

    name: str = ""
    friction: tuple[float, ...] = (1.0, 0.005, 0.0001)
    dimension: int = 3
    priority: int = 0


@dataclass(frozen=True)
class Ground:
    """A plane that is fixed to the world: normal (3,) towards the bodies, offset m with normal . x + offset = 0.

    friction, group and mask as of `Geometry`.
    """

    normal: tuple[float, ...]
    offset: float
    friction: float
    group: int = 1
    mask: int = 1
    surface: Surface = Surface()


@dataclass(frozen=True)
class Touching:
    """Parts of a robot that can touch; surfaces are those of Description.geometry, fixed shapes belong to the world.

    excludes: pairs of bodies that never touch. pairs: two indices among the shapes of `geometry`, -1 - k for the k-th
    fixed shape, and the friction of the two.
    """

    surfaces: tuple[Surface, ...] = ()
    excludes: tuple[tuple[str, str], ...] = ()
    pairs: tuple[tuple[int, int, tuple[float, ...]], ...] = ()
    grounds: tuple[Ground, ...] = ()
    fixed: tuple[tuple[Geometry, Surface], ...] = ()
    parents: bool = False  # whether a body may touch its parent


@dataclass(frozen=True)
class Description:
    """A robot file, resolved."""

    name: str
    bodies: tuple[Body, ...]
    gravity: np.ndarray
    geometry: tuple[Geometry, ...] = ()
    order: tuple[str, ...] = ()  # names of the joints in flat vectors of the file
    start: np.ndarray | None = None  # the configuration that the file shows, in flat coordinates of the file
    springs: tuple[Spring, ...] = ()
    rest: np.ndarray | None = None  # the configuration in which springs are at rest
    dampers: tuple[Damper, ...] = ()
    joint_ranges: tuple[tuple[str, tuple[float, float]], ...] = ()  # of the sum of the forces of actuators at a joint
    free_armature: tuple[tuple[str, float], ...] = ()
    compensated: tuple[Heavy, ...] = ()
    fluid: Fluid | None = None
    tendons: tuple[Tendon, ...] = ()
    couplings: tuple[Coupling, ...] = ()
    closures: tuple[Closure, ...] = ()
    mocap: tuple[str, ...] = ()
    drives: tuple[Drive, ...] = ()
    measures: tuple[Measure, ...] = ()
    magnetic: np.ndarray = field(default_factory=lambda: np.zeros(3))  # the field in the world
    keys: tuple[Key, ...] = ()
    touching: Touching = field(default_factory=Touching)
    loud: tuple[str, ...] = ()  # what was left out, and a user should hear of
    quiet: tuple[str, ...] = ()  # the rest of it
