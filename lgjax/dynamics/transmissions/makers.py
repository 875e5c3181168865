"""Makers of transmissions, from names of joints, bodies and frames. Read `Transmissions` first.

All take the model (or a Robot) first and return `Transmissions`; gears and other numbers are one number, or an array
with an entry for each, traced ones too. Wrenches have torque first, as everywhere here: [n, f].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.jacobians import carrier
from lgjax.dynamics.joint_parameters import parameter
from lgjax.dynamics.transmissions.coordinates import Balls, FixedTendons, Frees, Joints
from lgjax.dynamics.transmissions.lines import Places, RelativeSites, Sites, SliderCranks, SpatialTendons
from lgjax.dynamics.transmissions.transmissions import Kind, Transmissions
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import checks
from lgjax.numerics.messages import listed, shown

Place = Any  # name of a body or frame, index of a body, (name, point or Pose in it); None as a name is the world


@dataclass(frozen=True)
class Pulley:
    """Element of a path of `spatial_tendons`: begins a new branch, whose length is divided by `divisor`."""

    divisor: Any = 1.0


# ---- coordinates
def joints(model: Model | Mechanism, names: Sequence[str] | None = None, gear: Any = 1.0) -> Transmissions:
    """Scalar joints: length = gear x with the coordinate x (rad or m), torque = gear force. Returns `Transmissions`.

    names: joints, by default all that have one coordinate. `tree.coordinate_names` has the names of the coordinates of
    joints with several. A name may occur several times. gear: one number or (n,).
    """
    model = checked_model(model)
    every = [name for name in model.tree.coordinate_names if name in model.tree.joint_names]
    names = every if names is None else checks.names("names", names)
    coordinates, columns = zip(*(_scalar(model.tree, name) for name in _some(names)), strict=True)
    return _made(model, Joints(_signed("gear", gear, names, model), coordinates, columns))


def fixed_tendons(
    model: Model | Mechanism, coefficients: Sequence[Mapping[str, Any]], gear: Any = 1.0
) -> Transmissions:
    """Fixed tendons: length = gear sum(coefficient x) over the coordinates x of scalar joints (rad or m).

    coefficients: one {joint: coefficient} for each of n tendons. gear: one number or (n,). Returns `Transmissions`.
    """
    model = checked_model(model)
    rows, coordinates, columns, values = [], [], [], []
    for row, tendon in enumerate(_some(coefficients)):
        if not isinstance(tendon, Mapping) or not tendon:
            raise TypeError(f"a fixed tendon is given by a dict of coefficients by joint, got {shown(tendon)}")
        for name, value in tendon.items():
            coordinate, column = _scalar(model.tree, name)
            rows.append(row)
            coordinates.append(coordinate)
            columns.append(column)
            values.append(_signed(f"coefficient of {name!r}", value, None, model))
    count = len(coefficients)
    gears = _signed("gear", gear, _numbered("tendon", count), model)
    places = tuple(rows), tuple(coordinates), tuple(columns)
    return _made(model, FixedTendons(gears, jnp.stack(values), *places, count))


def balls(model: Model | Mechanism, names: Sequence[str], axis: Any, in_parent: bool = False) -> Transmissions:
    """Ball joints: length = axis . log R, rad, and torque = axis force, as MuJoCo's `joint` and `jointinparent`.

    names: n ball joints. axis: (3,) or (n, 3), of any length, in the axes of the child, or of the parent with
    in_parent. The torque is the gradient of the length only for rotations about the axis. Returns `Transmissions`.
    """
    model = checked_model(model)
    coordinates, columns = _of_kind(model.tree, names, "ball_rotations", "a ball joint")
    axis = _vectors("axis", axis, len(columns), 3, model)
    return _made(model, Balls(axis, coordinates, columns, checks.truth("in_parent", in_parent)))


def frees(model: Model | Mechanism, names: Sequence[str], wrench: Any, in_parent: bool = False) -> Transmissions:
    """Free joints: a wrench per unit of force, and no length, as MuJoCo's `joint` and `jointinparent`.

    names: n free joints. wrench: [n, f] (6,) or (n, 6). The force f acts at the origin of the body along axes of the
    world, the torque n along those of the body, or of the world with in_parent. MuJoCo's gear has the force first.
    Returns `Transmissions`.
    """
    model = checked_model(model)
    coordinates, columns = _of_kind(model.tree, names, "free_poses", "a free joint")
    wrench = _vectors("wrench", wrench, len(columns), 6, model)
    return _made(model, Frees(wrench, coordinates, columns, checks.truth("in_parent", in_parent)))


# ---- bodies
def spatial_tendons(
    model: Model | Mechanism, paths: Sequence[Sequence[Place | Pulley]], gear: Any = 1.0
) -> Transmissions:
    """Spatial tendons: length = gear sum of |segment| / divisor, m, of straight segments between places.

    paths: for each tendon a list of places and, between branches, of `Pulley(divisor)`, which divides the lengths that
    follow. A place is the name of a body or frame, or (name, point in it (3,), m); (None, point) is fixed to the world.
    A segment of length zero has no direction and exerts no force. Returns `Transmissions`.
    """
    model = checked_model(model)
    starts, ends, rows, divisors = [], [], [], []
    for row, path in enumerate(_some(paths)):
        before, divisor, found = Pulley(), jnp.asarray(1, model.dtype), len(rows)
        for element in path:
            if isinstance(element, Pulley):
                before, divisor = element, parameter("divisor", element.divisor, None, model.dtype, positive=True)
                continue
            if not isinstance(before, Pulley):
                starts.append(before)
                ends.append(element)
                rows.append(row)
                divisors.append(divisor)
            before = element
        if len(rows) == found:
            raise ValueError(f"path {row} of spatial_tendons has no two places in a row: {shown(path)}")
    gears = _signed("gear", gear, _numbered("tendon", len(paths)), model)
    begins, finishes = _placed(model, starts), _placed(model, ends)
    return _made(model, SpatialTendons(gears, jnp.stack(divisors), begins, finishes, tuple(rows), len(paths)))


def sites(
    model: Model | Mechanism, places: Sequence[Place], wrench: Any, reference: Sequence[Place] | None = None
) -> Transmissions:
    """Sites: wrenches [n, f] per unit of force, (6,) or (n, 6), at places and in their axes; MuJoCo's gear has f first.

    Without references there is no length, as for a jet. With references, one for each place, the wrench is in their
    axes, and length = n . log R + f . p with the pose (R, p) of the place in its reference. As in MuJoCo, the torque
    does not include the turning of the axes of the reference by its own joints. Returns `Transmissions`.
    """
    model = checked_model(model)
    at = _placed(model, _some(places))
    vectors = _vectors("wrench", wrench, len(at), 6, model)
    if reference is None:
        return _made(model, Sites(vectors, at))
    if len(reference) != len(at):
        raise ValueError(f"reference has {len(reference)} places for {len(at)}")
    turns = (False,) * len(at)
    if checks.known(wrench):
        turns = tuple(not any(x[3:]) for x in np.broadcast_to(np.asarray(wrench), (len(at), 6)).tolist())
    return _made(model, RelativeSites(vectors, at, _placed(model, reference), turns))


def slider_cranks(
    model: Model | Mechanism, cranks: Sequence[Place], sliders: Sequence[Place], rod: Any, gear: Any = 1.0
) -> Transmissions:
    """Slider-cranks without a slider in the tree: length = gear s, m, with pins at `cranks` and guides at `sliders`.

    cranks, sliders: n places each. s is the coordinate of the slider along the z axis of the guide, from which a rod of
    length `rod` (m) reaches the pin. If the rod is too short, s is that of the point of the axis nearest to the pin.
    Returns `Transmissions`.
    """
    model = checked_model(model)
    pins, guides = (_placed(model, _some(x)) for x in (cranks, sliders))
    if len(pins) != len(guides):
        raise ValueError(f"{len(pins)} cranks and {len(guides)} sliders, expected as many of both")
    names = _numbered("crank", len(pins))
    rods = parameter("rod", rod, names, model.dtype, positive=True)
    return _made(model, SliderCranks(_signed("gear", gear, names, model), rods, pins, guides))


# ---- what they share
def _made(model: Model, kind: Kind) -> Transmissions:
    return Transmissions((kind,), model if kind.bodies else None, model.tree)


def _some(given: Sequence) -> Sequence:
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise TypeError(f"transmissions are given by a list with an entry for each, got {shown(given)}")
    if not given:
        raise ValueError("no transmission: the list is empty")
    return given


def _numbered(what: str, count: int) -> list[str]:
    return [f"{what} {i}" for i in range(count)]


def _signed(what: str, value: Any, names: Sequence[str] | None, model: Model):
    return parameter(what, value, names, model.dtype, -np.inf)


def _vectors(what: str, value: Any, count: int, width: int, model: Model):
    """Vectors (count, width), from one or as many; NaN where a traced number is not finite."""
    value = checks.floats(what, value, (count, width), model.dtype)
    if value.shape not in ((width,), (count, width)):
        raise ValueError(f"{what} has shape {value.shape}, expected ({width},) or ({count}, {width})")
    return jnp.broadcast_to(checks.finite(what, value), (count, width))


def _scalar(tree: Tree, name: Any) -> tuple[int, int]:
    """Place of a scalar coordinate in `Configuration.joints`, and in a velocity."""
    if name not in tree.coordinate_names:
        if name not in tree.joint_names:
            raise ValueError(f"no joint {shown(name)} in {tree.name!r}; joints: {listed(tree.coordinate_names)}")
        kind = tree.kinds[tree.joint_names.index(name)]
        if kind.coordinates == "joints":
            raise ValueError(f"joint {name!r} has {kind.nq} coordinates: name one, such as {name + '[0]'!r}")
        maker = "balls" if kind.coordinates == "ball_rotations" else "frees"
        raise ValueError(f"joint {name!r} is {kind.name} and has no scalar coordinate; see transmissions.{maker}")
    coordinate = tree.coordinate_names.index(name)
    columns = [
        tree.v_start[body] + i for body, k in enumerate(tree.kinds) if k.coordinates == "joints" for i in range(k.nq)
    ]
    return coordinate, columns[coordinate]


def _of_kind(tree: Tree, names: Any, coordinates: str, what: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Places of joints of that kind in a Configuration, and of their first velocities."""
    right = [n for n, k in zip(tree.joint_names, tree.kinds, strict=True) if k.coordinates == coordinates]
    bodies = []
    for name in _some(checks.names("names", names)):
        if name not in right:
            raise ValueError(f"{name!r} is not {what} of {tree.name!r}; such joints: {listed(right)}")
        bodies.append(tree.joint_names.index(name))
    return tuple(tree.q_start[b] for b in bodies), tuple(tree.v_start[b] for b in bodies)


def _placed(model: Model, places: Sequence[Place]) -> Places:
    """Names and offsets of places, checked."""
    names, offsets = [], []
    for place in places:
        name, offset = _named(place)
        if name is not None:
            carrier(model, name)
        elif offset is None:
            raise ValueError("a place in the world is given by (None, point)")
        names.append(name)
        offsets.append(_offset(offset, model))
    if all(offset is None for offset in offsets):
        return Places(None, tuple(names))
    one = Pose(jnp.eye(3, dtype=model.dtype), jnp.zeros(3, model.dtype))
    poses = [one if offset is None else offset for offset in offsets]
    return Places(Pose(*(jnp.stack(x) for x in zip(*poses, strict=True))), tuple(names))


def _named(place: Place) -> tuple[Any, Any]:
    return place if isinstance(place, tuple) and len(place) == 2 else (place, None)


def _offset(offset: Any, model: Model) -> Pose | None:
    if offset is None:
        return None
    rotation, point = offset if isinstance(offset, Pose) else (np.eye(3), offset)
    rotation = checks.rotation("rotation of a place", checks.floats("rotation", rotation, (3, 3), model.dtype))
    return Pose(rotation, checks.array("point of a place", point, (3,), model.dtype, exact=True))
