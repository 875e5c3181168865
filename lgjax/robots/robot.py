"""Robot: everything that a robot's file says, in one record. Read next: `load.py`, which makes it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces import Force, Sum
from lgjax.dynamics.jacobians import carrier
from lgjax.dynamics.loops import Loop
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.constant_parts import SpecializedPart
from lgjax.multibody.geometry import Geometry
from lgjax.multibody.importers.description import Ground, Surface
from lgjax.multibody.importers.source import read
from lgjax.multibody.model import Configuration, Mechanism, Model
from lgjax.multibody.specialized import SpecializedModel
from lgjax.numerics import checks
from lgjax.numerics.messages import listed
from lgjax.robots.actuators import Actuators
from lgjax.robots.sensors import Sensors
from lgjax.robots.srdf import disabled

STATIC = {"static": True}


class Keyframe(NamedTuple):
    """Named state of a file: q, v (nv,), and control (n,) and activation (na,) of the actuators."""

    q: Configuration
    v: jax.Array
    control: jax.Array
    activation: jax.Array


@dataclass(frozen=True)
class ContactGeometry:
    """Shapes of a robot that can touch, and those that they touch; static, as numbers.

    shapes: those of `model.geometry`, with their groups, masks and friction. surfaces: of each, its name, MuJoCo's
    filters and friction, contact dimension and priority. excludes: pairs of bodies that never touch. pairs: two indices
    among shapes and the friction of the two, which touch whatever their masks say; -1 - k is the k-th of `fixed`.
    grounds: planes of the world. fixed: other shapes of the world. parents: whether a body may touch its parent.
    """

    shapes: tuple[Geometry, ...] = ()
    surfaces: tuple[Surface, ...] = ()
    excludes: tuple[tuple[str, str], ...] = ()
    pairs: tuple[tuple[int, int, tuple[float, ...]], ...] = ()
    grounds: tuple[Ground, ...] = ()
    fixed: tuple[tuple[Geometry, Surface], ...] = ()
    parents: bool = False

    def __repr__(self) -> str:
        kinds = [shape.kind for shape in self.shapes]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "nothing"
        return f"<ContactGeometry: {counts}; {len(self.grounds)} ground(s), {len(self.fixed)} fixed>"

    def excluded(self, first: str, second: str) -> bool:
        """Whether the file says that two bodies never touch."""
        return (first, second) in self.excludes or (second, first) in self.excludes


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Robot(Mechanism):
    """Everything in a robot's file; pass it anywhere a `Model` is expected. `lgjax.load_robot` returns it.

    model: bodies, joints, inertias, limits. loops: mimic joints, equalities of joints and tendons, connect and weld, as
    exact constraints. forces: passive forces beyond those of the model, such as springs, tendons, gravity compensation
    and fluid; None if there are none. actuators, sensors: records, or None if there are none. keyframes: {name: state},
    each with q, v, control and activation; "initial" is the state that an MJCF shows, and a URDF has none. contacts:
    shapes that can touch. frames: names of the frames of the model, such as sites. ignored: one entry for each thing
    in the file that was left out. mocap: bodies that are moved from outside, each with the indices of the frames that
    move with it; see `with_mocap`.

    A pytree: every number can be batched and differentiated. Robots with the same names and topology share compiled
    programs.
    """

    model: Model
    loops: tuple[Loop, ...] = ()
    forces: Force | None = None
    actuators: Actuators | None = None
    sensors: Sensors | None = None
    keyframes: Mapping[str, Keyframe] = field(default_factory=dict)
    contacts: ContactGeometry = field(default=ContactGeometry(), metadata=STATIC)
    frames: tuple[str, ...] = field(default=(), metadata=STATIC)
    ignored: tuple[str, ...] = field(default=(), metadata=STATIC)
    mocap: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), metadata=STATIC)

    def __repr__(self) -> str:
        return f"<Robot {self.model.name!r}: {', '.join(_parts(self))}>"

    if not TYPE_CHECKING:  # which reports unknown attributes by itself

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, and say if the model has the attribute."""
            message = f"a robot has no attribute {name!r}"
            if not name.startswith("_") and hasattr(self.__dict__.get("model"), name):
                message += f"; its model has one: robot.model.{name}"
            raise AttributeError(message, name=name, obj=self)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of links whose shapes may touch as the file says, for `Contacts(robot, pairs=robot.pairs)`.

        `Contacts` then lets those shapes touch that the file lets: see `shape_pairs`. For fewer pairs filter the list.
        """
        shapes = self.contacts.shapes
        return tuple(dict.fromkeys((shapes[i].link, shapes[j].link) for i, j in self.shape_pairs))

    @property
    def shape_pairs(self) -> dict[tuple[int, int], float | None]:
        """Pairs of numbers of `contacts.shapes` that may touch, with their friction if the file has one for the pair.

        As in MuJoCo: those whose group and mask meet, on bodies that move against each other, are no parent and child
        (but see `ContactGeometry.parents`) and are not excluded; and all <pair> elements. All but parent and child in a
        URDF. Shapes that do not move, and meshes that were not read, are in none.
        """
        shapes, parents = self.contacts.shapes, self.model.tree.parents
        body = [-1 if one.kind == "mesh" else carrier(self.model, one.link)[0] for one in shapes]
        related = lambda i, j: (
            not self.contacts.parents and (parents[body[i]] == body[j] or parents[body[j]] == body[i])
        )
        found: dict[tuple[int, int], float | None] = {}
        for i, j in combinations(range(len(shapes)), 2):
            if body[i] < 0 or body[j] < 0 or body[i] == body[j] or related(i, j):
                continue
            if shapes[i].meets(shapes[j]) and not self.contacts.excluded(shapes[i].link, shapes[j].link):
                found[i, j] = None
        for i, j, friction in self.contacts.pairs:
            if min(i, j) >= 0 and min(body[i], body[j]) >= 0:
                found[min(i, j), max(i, j)] = float(friction[0])
        return found

    def with_srdf(self, path_or_text: str | os.PathLike) -> Robot:
        """A copy in whose `pairs` links do not touch that an SRDF, the companion of a URDF, keeps from it.

        It reads `disable_collisions`, `disable_default_collisions` and `enable_collisions`; groups and states are left
        out. A warning names links that the robot does not have.

        Args:
            path_or_text: name of the file, or its text, a string that starts with '<'.

        Raises:
            ImportError: without the extra `urdf`.
            ValueError: in one line that names file and line, for a file that cannot be read.
        """
        source = read(path_or_text, "SRDF")
        names = [*self.model.body_names, *(name for name, _ in self.model.tree.frames)]
        pairs, unknown = disabled(source, names)
        if unknown:
            warnings.warn(f"{source.label}: {self.model.name!r} has no links {listed(unknown)}", stacklevel=2)
        return self.replace(contacts=replace(self.contacts, excludes=(*self.contacts.excludes, *pairs)))

    def astype(self, dtype: Any) -> Robot:
        """The same robot with all floating-point arrays in `dtype`."""
        special = lambda x: isinstance(x, SpecializedModel | SpecializedPart)
        floats = lambda x: special(x) or jnp.issubdtype(jnp.result_type(x), jnp.floating)
        return jax.tree.map(lambda x: x.astype(dtype) if floats(x) else x, self, is_leaf=special)

    def constant_parts(self) -> dict[str, Any]:
        """Parts besides the model whose numbers `lgjax.specialize` makes constants."""
        parts = {"forces": self.forces, "actuators": self.actuators}
        return {name: part for name, part in parts.items() if part is not None}

    def replace(self, **changes: Any) -> Robot:
        """A copy with other parts, such as `actuators=`.

        With `model=`, another model of the same tree, forces, actuators and sensors that are not replaced use the new
        model. Raises TypeError for an unknown part, and for contacts that are no ContactGeometry.
        """
        if unknown := sorted(set(changes) - {part.name for part in fields(self)}):
            raise TypeError(f"a robot has no {unknown[0]!r}; it has {', '.join(part.name for part in fields(self))}")
        if "contacts" in changes and not isinstance(changes["contacts"], ContactGeometry):
            kind = type(changes["contacts"]).__name__
            raise TypeError(f"contacts of a robot are a ContactGeometry, not {kind}; give those to rollout(contacts=)")
        if "model" in changes:
            for name in ("forces", "actuators", "sensors"):
                part = getattr(self, name)
                if part is not None:
                    changes.setdefault(name, part.for_model(changes["model"]))
        return replace(self, **changes)

    def with_mocap(self, name: str, pose: Pose) -> Robot:
        """A copy with a mocap body of the file, and everything fixed to it, at another pose.

        pose: Pose in the world, which may be traced. Loops that weld bodies to the mocap body hold them there. To move
        it during a motion, roll out piece by piece, or batch over poses. Raises ValueError if no mocap body has that
        name.
        """
        members = dict(self.mocap)
        if name not in members:
            raise ValueError(f"{name!r} is no mocap body of {self.model.name!r}; mocap bodies: {listed(members)}")
        dtype, frames = self.model.dtype, self.model.frames
        parts = [
            checks.array(f"{what} of {name!r}", x, shape, dtype, exact=True)
            for what, x, shape in (("rotation", pose[0], (3, 3)), ("translation", pose[1], (3,)))
        ]
        at = np.asarray(members[name], int)
        first = jax.tree.map(lambda x: x[at[0]], frames)
        there = se3.compose(se3.compose(Pose(*parts), se3.inverse(first)), jax.tree.map(lambda x: x[at], frames))
        moved = jax.tree.map(lambda x, y: x.at[at].set(y), frames, there)
        return self.replace(model=self.model.replace(frames=Pose(*moved)))


def _parts(robot: Robot) -> list[str]:
    """The parts of a robot, in words."""
    model = robot.model
    found = [f"{model.nbodies} bodies", f"nv {model.nv}"]
    count = lambda n, what: f"{n} {what}{'s' * (n != 1)}"
    if robot.loops:
        found.append(count(len(robot.loops), "loop"))
    if robot.forces is not None:
        parts = robot.forces.forces if isinstance(robot.forces, Sum) else (robot.forces,)
        found.append(f"forces {' + '.join(type(part).__name__ for part in parts)}")
    for what in ("actuator", "sensor"):
        part = getattr(robot, f"{what}s")
        if part is not None:
            found.append(count(len(part), what))
    if robot.contacts.shapes:
        found.append(count(len(robot.contacts.shapes), "shape"))
    if robot.contacts.grounds:
        found.append(count(len(robot.contacts.grounds), "ground"))
    if robot.keyframes:
        found.append(f"keyframes {listed(robot.keyframes)}")
    if robot.ignored:
        found.append(f"{len(robot.ignored)} ignored")
    return found
