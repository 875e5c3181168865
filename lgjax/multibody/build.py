"""Construction of a checked Model from a description of bodies and joints."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from lgjax.groups.se3 import Pose
from lgjax.multibody.geometry import Geometry
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.joints import (
    CYLINDRICAL,
    FREE,
    HELICAL,
    PLANAR,
    PRISMATIC,
    REVOLUTE,
    SPHERICAL,
    UNIVERSAL,
    JointKind,
)
from lgjax.multibody.model import Model
from lgjax.multibody.parts import Body, Joint
from lgjax.multibody.tree import Tree
from lgjax.numerics import checks
from lgjax.numerics.messages import listed

GRAVITY = (0.0, 0.0, -9.81)
KINDS: dict[str, JointKind | None] = {
    "revolute": REVOLUTE,
    "continuous": REVOLUTE,
    "prismatic": PRISMATIC,
    "helical": HELICAL,
    "cylindrical": CYLINDRICAL,
    "universal": UNIVERSAL,
    "planar": PLANAR,
    "spherical": SPHERICAL,
    "free": FREE,
    "fixed": None,
}


@dataclass
class _Moving:
    """A moving body while fixed links are merged into it: joint-frame placement and accumulated inertia."""

    body: Body
    kind: JointKind
    parent: int
    placement: tuple[np.ndarray, np.ndarray]
    link: tuple[np.ndarray, np.ndarray]
    mass: float = 0.0
    moment: np.ndarray = field(default_factory=lambda: np.zeros(3))
    rotational: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))


def build(
    bodies: Iterable[Body], name: str = "model", gravity: ArrayLike | Sequence[float] = GRAVITY,
    check_inertia: Literal["error", "warn"] = "error", dtype: DTypeLike | None = None,
    geometry: Iterable[Geometry] = (),
) -> Model:  # fmt: skip
    """Build a Model from bodies in any order; links on fixed joints are merged into the body that carries them.

    Args:
        bodies: each a `Body`; the moving ones are numbered depth first, children in the order given.
        name: name of the model, for messages.
        gravity: (3,) in the world, m/s^2.
        check_inertia: "warn" turns the error for the triangle inequality into a warning.
        dtype: dtype of all arrays, by default JAX's default float.
        geometry: shapes fixed to bodies, for contacts; the dynamics do not use it.

    Raises:
        ValueError: naming the body and the value: duplicate names, a missing parent, a cycle, an unknown joint kind, a
            zero axis, non-finite or wrongly shaped values, numbers too large for the dtype, negative limits of force or
            velocity, a lower limit above the upper one, negative mass, an inertia that is not positive semi-definite or
            breaks the triangle inequality (1e-6 relative) after merging.

    Example:
        >>> pin = lgjax.Joint("pin", "revolute", (0.0, 1.0, 0.0))
        >>> rod = lgjax.Body("rod", None, pin, mass=1.0, inertia=0.1 * jnp.eye(3))
        >>> lgjax.build([rod]).joint_names
        ('pin',)
    """
    checks.choice("check_inertia", check_inertia, ("error", "warn"))
    if not isinstance(name, str):
        raise TypeError(f"name must be a text, got {name!r}")
    ordered = _depth_first(_bodies(bodies), name)
    gravity = checks.numbers("gravity", gravity, (3,))
    with np.errstate(all="ignore"):  # what overflows is found and named
        moving, frames = _merge(ordered)
        if not moving:
            raise ValueError(f"{name!r} has no moving body")
        carriers = {body.parent for body in moving}
        for index, body in enumerate(moving):
            _check_inertia(body, index in carriers, check_inertia)
    tree = Tree(
        name,
        tuple(m.body.name for m in moving),
        tuple(m.parent for m in moving),
        tuple(m.kind for m in moving),
        tuple(m.body.joint.name for m in moving),
        tuple((body, index) for body, index, _ in frames),
    )
    geometry, names = tuple(geometry), {body.name for body in ordered}
    for shape in geometry:
        if shape.link not in names:
            raise ValueError(f"geometry of {shape.link!r}, which is no body of {name!r}")
    model = _assemble(tree, moving, [place for _, _, place in frames], gravity, checks.floating("dtype", dtype))
    return model.replace(geometry=geometry)


def _bodies(bodies: Iterable[Body]) -> list[Body]:
    """The bodies as a list; TypeError for what are no bodies, or have names or joints that are none."""
    if isinstance(bodies, str) or not isinstance(bodies, Iterable):
        raise TypeError(f"bodies must be a list of Body, got {checks.shown(bodies)}")
    found = list(bodies)
    for body in found:
        if not isinstance(body, Body) or not isinstance(body.name, str):
            raise TypeError(f"bodies must be a list of Body with names, got {checks.shown(body)} in it")
        if not isinstance(body.parent, str | None):
            raise TypeError(f"body {body.name!r}: parent must be the name of a body or None, got {body.parent!r}")
        if not isinstance(body.joint, Joint) or not isinstance(body.joint.name, str):
            raise TypeError(f"body {body.name!r}: joint must be a Joint with a name, got {checks.shown(body.joint)}")
    return found


def _depth_first(bodies: list[Body], name: str) -> list[Body]:
    """Bodies with parents first; checks names, parents and cycles."""
    by_name: dict[str, Body] = {}
    for body in bodies:
        if body.name in by_name:
            raise ValueError(f"two bodies are named {body.name!r}")
        by_name[body.name] = body
    children: dict[str | None, list[Body]] = {}
    for body in bodies:
        if body.parent is not None and body.parent not in by_name:
            raise ValueError(f"body {body.name!r}: its parent {body.parent!r} does not exist")
        children.setdefault(body.parent, []).append(body)
    ordered: list[Body] = []
    stack = list(reversed(children.get(None, [])))
    while stack:
        body = stack.pop()
        ordered.append(body)
        stack.extend(reversed(children.get(body.name, [])))
    if len(ordered) < len(bodies):
        reached = {body.name for body in ordered}
        loop = [body.name for body in bodies if body.name not in reached]
        raise ValueError(f"{name!r}: these bodies form a cycle that never reaches the world: {listed(loop)}")
    joints = Counter(body.joint.name for body in bodies)
    twice = sorted(joint for joint, count in joints.items() if count > 1)
    if twice:
        raise ValueError(f"two joints are named {twice[0]!r}")
    return ordered


def _merge(ordered: list[Body]):
    """Moving bodies with fixed links merged, and the frames of those links."""
    moving: list[_Moving] = []
    # body name -> (index of the moving body that carries it or -1, pose of its frame in that body's joint frame)
    place: dict[str | None, tuple[int, tuple[np.ndarray, np.ndarray]]] = {None: (-1, (np.eye(3), np.zeros(3)))}
    frames = []
    for body in ordered:
        kind = _kind(body)
        carrier, parent_pose = place[body.parent]
        here = _compose(parent_pose, _pose(body))
        if kind is None:
            place[body.name] = (carrier, here)
            frames.append((body.name, carrier, here))
            _check_finite(f"position of body {body.name!r}", here[1] @ here[1])
        else:
            to_joint = _joint_frame(body, kind)
            link = (to_joint[0].T, -to_joint[0].T @ to_joint[1])
            # the coordinates of a free joint are its world pose, wherever the description puts the body
            placement = (np.eye(3), np.zeros(3)) if kind is FREE else _compose(here, to_joint)
            _check_finite(f"position of body {body.name!r}", placement[1] @ placement[1], link[1] @ link[1])
            moving.append(_Moving(body, kind, carrier, placement, link))
            carrier, here = len(moving) - 1, link
            place[body.name] = (carrier, here)
        _add_inertia(body, moving[carrier] if carrier >= 0 else None, here)
    return moving, frames


def _kind(body: Body) -> JointKind | None:
    kind = body.joint.kind
    if not isinstance(kind, JointKind):
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(
                f"joint {body.joint.name!r} of body {body.name!r}: unknown type {kind!r}; known: {', '.join(KINDS)}"
            )
        kind = KINDS[kind]
    elif kind.coordinates == "joints" and kind.nq != kind.nv:
        raise ValueError(f"joint {body.joint.name!r}: {kind} has {kind.nq} scalar coordinates and {kind.nv} velocities")
    if body.joint.pitch and kind is not HELICAL:
        raise ValueError(f"joint {body.joint.name!r} of body {body.name!r}: only a helical joint has a pitch")
    if kind is FREE and body.parent is not None:
        raise ValueError(f"body {body.name!r}: a free joint hangs on the world, not on {body.parent!r}")
    return kind


def _pose(body: Body) -> tuple[np.ndarray, np.ndarray]:
    rotation = checks.numbers(f"rotation of body {body.name!r}", body.rotation, (3, 3))
    checks.rotation(f"rotation of body {body.name!r}", rotation, 1e-6)
    return rotation, checks.numbers(f"position of body {body.name!r}", body.position, (3,))


def _compose(a, b):
    return a[0] @ b[0], a[0] @ b[1] + a[1]


def _joint_frame(body: Body, kind: JointKind) -> tuple[np.ndarray, np.ndarray]:
    """Pose of the joint frame in the body frame: z along the axis, by the shortest rotation."""
    where = f"joint {body.joint.name!r} of body {body.name!r}"
    origin = checks.numbers(f"origin of {where}", body.joint.origin, (3,))
    if kind is FREE:
        if np.any(origin):
            raise ValueError(f"origin of {where} is not at the body frame: {origin.tolist()}")
        return np.eye(3), origin
    if kind is SPHERICAL:
        return np.eye(3), origin
    z = _direction(f"axis of {where}", body.joint.axis)
    if body.joint.second_axis is None:
        return rotation_to(z), origin
    x = _direction(f"second axis of {where}", body.joint.second_axis)
    if abs(x @ z) > 1e-6:
        raise ValueError(f"second axis of {where} is not perpendicular to the first: their cosine is {x @ z:.3g}")
    x = x - (x @ z) * z
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], 1), origin


def _direction(what: str, value) -> np.ndarray:
    """The unit vector along `value`."""
    axis = checks.numbers(what, value, (3,))
    length = np.linalg.norm(axis)
    if length < 1e-9:
        raise ValueError(f"{what} has no direction: {axis.tolist()}")
    return axis / length


def _screw(kind: JointKind, joint: Joint) -> tuple[float, float]:
    """Rotation and translation along z per unit of the coordinate."""
    if kind is HELICAL:
        return 1.0, float(checks.numbers(f"pitch of joint {joint.name!r}", joint.pitch, ()))
    return {REVOLUTE: (1.0, 0.0), PRISMATIC: (0.0, 1.0)}.get(kind, (0.0, 0.0))


def _each(joint: Joint, attribute: str, count: int) -> np.ndarray:
    """An attribute of a joint for each of its `count` coordinates."""
    values = checks.real(f"{attribute} of joint {joint.name!r}", getattr(joint, attribute))
    if values.ndim and values.shape != (count,):
        raise ValueError(f"{attribute} of joint {joint.name!r} has {values.size} entries, expected one or {count}")
    return np.broadcast_to(values, (count,))


def rotation_to(axis: np.ndarray) -> np.ndarray:
    """The shortest rotation (3, 3) that takes z to the unit vector `axis`; about x for axis = -z."""
    x, y, z = axis
    r = np.hypot(x, y)
    c, s = (x / r, y / r) if r > 0 else (0.0, 1.0)
    return np.array([[1 - (1 - z) * c * c, (z - 1) * c * s, x], [(z - 1) * c * s, 1 - (1 - z) * s * s, y], [-x, -y, z]])


def _add_inertia(body: Body, target: _Moving | None, pose) -> None:
    """Add a body's inertia to the moving body that carries it; what is fixed to the world has none to add."""
    where = f"of body {body.name!r}"
    mass = float(checks.positive(f"mass {where}", checks.numbers(f"mass {where}", body.mass, ()), allow_zero=True))
    com = checks.numbers(f"center of mass {where}", body.com, (3,))
    inertia = checks.symmetric(f"inertia {where}", checks.numbers(f"inertia {where}", body.inertia, (3, 3)), 1e-9)
    if target is None:
        return
    c = pose[0] @ com + pose[1]
    target.mass += mass
    target.moment = target.moment + mass * c
    target.rotational = target.rotational + pose[0] @ inertia @ pose[0].T + mass * (c @ c * np.eye(3) - np.outer(c, c))
    _check_finite(f"inertia {where}", target.mass, target.moment, target.rotational)


def _check_finite(what: str, *values) -> None:
    """Numbers that were finite in the description and do not stay so when they are put together."""
    if not all(np.all(np.isfinite(value)) for value in values):
        raise ValueError(f"{what} overflows: its numbers are too large")


def _check_inertia(body: _Moving, carries: bool, check: str) -> None:
    """Positive semi-definite, within the triangle inequality about the center of mass, and no massless leaf."""
    name, m = body.body.name, body.mass
    if m == 0:
        if not carries and not np.min(body.body.joint.armature) > 0:
            raise ValueError(f"mass of body {name!r} is zero and it carries no other body: it would accelerate freely")
        c = np.zeros(3)
    else:
        c = body.moment / m
    about_com = body.rotational - m * (c @ c * np.eye(3) - np.outer(c, c))
    _check_finite(f"inertia of body {name!r}", about_com)
    # Moments that vanish about the center of mass leave round-off of those about the origin.
    left = 1e-12 * float(np.trace(body.rotational))
    moments = np.linalg.eigvalsh(about_com)
    try:
        checks.principal_moments(f"inertia of body {name!r}", moments, definite=False, round_off=left)
    except ValueError as error:
        if check == "error":
            raise ValueError(f"{error} (check_inertia='warn' accepts it)") from None
        warnings.warn(str(error), stacklevel=4)


def _assemble(tree: Tree, moving: list[_Moving], frames, gravity, dtype) -> Model:
    def array(values, shape):
        values = np.asarray(values, float).reshape(shape)
        with np.errstate(over="ignore", under="ignore"):
            cast = values.astype(dtype)
        if large := values[np.isfinite(values) & ~np.isfinite(cast)].tolist():
            raise ValueError(f"{tree.name!r}: {large[0]:g} is too large for {np.dtype(dtype).name}")
        return jnp.asarray(cast)

    def poses(pairs):
        pairs = list(pairs)
        return Pose(array([r for r, _ in pairs], (-1, 3, 3)), array([p for _, p in pairs], (-1, 3)))

    def per_velocity(attribute):
        return array(np.concatenate([_each(m.body.joint, attribute, m.kind.nv) for m in moving]), (-1,))

    def per_coordinate(attribute):
        return array(np.concatenate([_each(m.body.joint, attribute, m.kind.nq) for m in moving]), (-1,))

    for m in moving:
        where = f"of joint {m.body.joint.name!r}"
        for attribute in ("damping", "friction", "armature", "effort", "velocity_limit"):
            value = checks.real(f"{attribute} {where}", getattr(m.body.joint, attribute))
            limit = attribute in ("effort", "velocity_limit")  # infinite where there is none
            if not (np.min(value, initial=0) >= 0 and (limit or np.all(np.isfinite(value)))):
                raise ValueError(f"{attribute} {where} is not a non-negative number: {checks.entries(value)}")
        limits = {side: getattr(m.body.joint, side) for side in ("lower", "upper")}
        lower, upper = (checks.real(f"{side} limit {where}", x) for side, x in limits.items())
        if not np.all(np.less_equal(lower, upper)):
            lower, upper = checks.entries(lower), checks.entries(upper)
            raise ValueError(f"limits {where}: lower {lower} is not at most upper {upper}")
    return Model(
        tree=tree,
        placements=poses(m.placement for m in moving),
        links=poses(m.link for m in moving),
        screws=array([_screw(m.kind, m.body.joint) for m in moving], (-1, 2)),
        inertias=Inertia(
            array([m.mass for m in moving], (-1,)),
            array([m.moment for m in moving], (-1, 3)),
            array([m.rotational for m in moving], (-1, 3, 3)),
        ),
        gravity=array(gravity, (3,)),
        armature=per_velocity("armature"),
        damping=per_velocity("damping"),
        friction=per_velocity("friction"),
        lower=per_coordinate("lower"),
        upper=per_coordinate("upper"),
        effort=per_velocity("effort"),
        velocity_limit=per_velocity("velocity_limit"),
        frames=poses(frames),
    )
