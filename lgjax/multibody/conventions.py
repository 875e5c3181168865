"""Conversions to and from the flat vectors of MuJoCo and of Pinocchio.

|                     | lgjax                | MuJoCo                       | Pinocchio                   |
|---------------------|----------------------|------------------------------|-----------------------------|
| free joint, q       | Pose                 | position, quaternion wxyz    | position, quaternion xyzw   |
| free joint, v       | [w, v], body frame   | [v world frame, w body frame]| [v, w], body frame          |
| free joint, vdot    | [dw/dt, dv/dt]       | [R (dv/dt + w x v), dw/dt]   | [dv/dt, dw/dt]              |
| free joint, tau     | [n, f], body frame   | [f world frame, n body frame]| [f, n], body frame          |
| ball joint, q       | rotation             | quaternion wxyz              | quaternion xyzw             |
| continuous joint, q | angle                | angle                        | (cos, sin)                  |
| planar joint, q     | angle, x, y          | x, y, angle                  | x, y, cos, sin              |
| planar joint, v, tau| angle, x, y          | x, y, angle                  | x and y in the body, angle  |

MuJoCo has no planar joint: the table has the coordinates of two slides and a hinge. Other joints have the same scalar
coordinates everywhere.

Everything here is a JAX function of its arrays, broadcasts over leading axes and keeps the dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.groups import s3
from lgjax.groups.arguments import Fields, checked
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.joints import PLANAR
from lgjax.multibody.model import Mechanism, Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.messages import listed

XYZW = (1, 2, 3, 0)
WXYZ = (3, 0, 1, 2)


class MotionState(NamedTuple):
    """Configuration, velocity, acceleration and generalized force; None for what was not given."""

    q: Any
    v: Any = None
    vdot: Any = None
    tau: Any = None


def to_mujoco(
    model: Model | Mechanism,
    q: Configuration,
    v: jax.Array | None = None,
    vdot: jax.Array | None = None,
    tau: jax.Array | None = None,
    order: Sequence[str] | None = None,
) -> MotionState:
    """MuJoCo's (qpos, qvel, qacc, generalized force) as a MotionState of flat vectors.

    v, vdot, tau: (nv,) each or None; vdot needs v. order: names of all joints as the other program lists them, or of
    all but the free ones, which then come first; None for body order. Raises ValueError for names that do not match.
    """
    model = checked_model(model)
    index = _layout(model.tree, _names(order), ())
    q, v, vdot, tau = _checked(model, q, _configuration_form(model.tree), v, vdot, tau)
    _needs_velocity(v, vdot)
    R = q.free_poses.rotation
    return MotionState(
        _flat_configuration(index, q, s3.from_rotation),
        None if v is None else _flat_vector(index, v, lambda w, u: (sm.matvec(R, u), w)),
        None if vdot is None else _flat_vector(index, vdot, lambda w, u: (sm.matvec(R, u + _turning(index, v)), w)),
        None if tau is None else _flat_vector(index, tau, lambda n, f: (sm.matvec(R, f), n)),
    )


def from_mujoco(
    model: Model | Mechanism,
    q: ArrayLike,
    v: jax.Array | None = None,
    vdot: jax.Array | None = None,
    tau: jax.Array | None = None,
    order: Sequence[str] | None = None,
) -> MotionState:
    """The inverse of `to_mujoco`: MotionState(Configuration, v, vdot, tau) from MuJoCo's flat vectors."""
    model = checked_model(model)
    index = _layout(model.tree, _names(order), ())
    q, v, vdot, tau = _checked(model, q, (sum(map(len, index.q)),), v, vdot, tau)
    _needs_velocity(v, vdot)
    configuration = _configuration(index, q, s3.to_rotation)
    R = configuration.free_poses.rotation
    ours = None if v is None else _vector(index, v, lambda u, w: (w, sm.tmatvec(R, u)))
    return MotionState(
        configuration,
        ours,
        None if vdot is None else _vector(index, vdot, lambda a, w: (w, sm.tmatvec(R, a) - _turning(index, ours))),
        None if tau is None else _vector(index, tau, lambda f, n: (n, sm.tmatvec(R, f))),
    )


def to_pinocchio(
    model: Model | Mechanism,
    q: Configuration,
    v: jax.Array | None = None,
    vdot: jax.Array | None = None,
    tau: jax.Array | None = None,
    order: Sequence[str] | None = None,
    continuous: Sequence[str] = (),
) -> MotionState:
    """Pinocchio's (q, v, a, tau) as a MotionState of flat vectors.

    order: as in `to_mujoco`; Pinocchio sorts the children of a body by name, `model.names[1:]` is its order.
    continuous: names of the joints that it keeps as (cos, sin), those with two entries in its q.
    """
    model = checked_model(model)
    index = _layout(model.tree, _names(order), checks.names("continuous", continuous), planar_pairs=True)
    q, v, vdot, tau = _checked(model, q, _configuration_form(model.tree), v, vdot, tau)
    if index.planar.size:
        _needs_velocity(v, vdot, "Pinocchio's accelerations of planar joints depend")
        angles = q.joints[..., index.planar_angles]
        v, vdot, tau = (None if x is None else _turn_planar(index, x, -angles) for x in (v, vdot, tau))
        vdot = None if vdot is None else _add_slip(index, vdot, v, 1)
    swap = lambda a, b: (b, a)
    flat = (None if x is None else _flat_vector(index, x, swap) for x in (v, vdot, tau))
    return MotionState(_flat_configuration(index, q, lambda R: s3.from_rotation(R)[..., XYZW]), *flat)


def from_pinocchio(
    model: Model | Mechanism,
    q: ArrayLike,
    v: jax.Array | None = None,
    vdot: jax.Array | None = None,
    tau: jax.Array | None = None,
    order: Sequence[str] | None = None,
    continuous: Sequence[str] = (),
) -> MotionState:
    """The inverse of `to_pinocchio`: MotionState(Configuration, v, vdot, tau); continuous joints within +-pi."""
    model = checked_model(model)
    index = _layout(model.tree, _names(order), checks.names("continuous", continuous), planar_pairs=True)
    q, v, vdot, tau = _checked(model, q, (sum(map(len, index.q)),), v, vdot, tau)
    configuration = _configuration(index, q, lambda x: s3.to_rotation(x[..., WXYZ]))
    swap = lambda a, b: (b, a)
    v, vdot, tau = (None if x is None else _vector(index, x, swap) for x in (v, vdot, tau))
    if index.planar.size:
        _needs_velocity(v, vdot, "Pinocchio's accelerations of planar joints depend")
        angles = configuration.joints[..., index.planar_angles]
        vdot = None if vdot is None else _add_slip(index, vdot, v, -1)
        v, vdot, tau = (None if x is None else _turn_planar(index, x, angles) for x in (v, vdot, tau))
    return MotionState(configuration, v, vdot, tau)


def _needs_velocity(v, vdot, what: str = "MuJoCo's accelerations depend") -> None:
    if vdot is not None and v is None:
        raise ValueError(f"{what} on the velocity: give v as well")


# ---- planar joints, whose velocity Pinocchio keeps in the axes of the body
def _turn_planar(index: _Layout, vector, angles):
    """A vector (..., nv) with the x and y of each planar joint turned by its angle (..., n)."""
    places, c, s = index.planar[:, 1:], jnp.cos(angles), jnp.sin(angles)
    x, y = vector[..., places[:, 0]], vector[..., places[:, 1]]
    turned = jnp.stack([c * x - s * y, s * x + c * y], -1)
    vector = jnp.broadcast_to(vector, (*turned.shape[:-2], vector.shape[-1]))
    return vector.at[..., places].set(turned)


def _add_slip(index: _Layout, vdot, v, sign: int):
    """Add to an acceleration (sign 1), or subtract from it, the term due to the turning of the body's axes."""
    angle, x, y = (v[..., index.planar[:, k]] for k in range(3))
    slip = sign * jnp.stack([angle * y, -angle * x], -1)
    axes = jnp.broadcast_shapes(vdot.shape[:-1], slip.shape[:-2])
    return jnp.broadcast_to(vdot, (*axes, vdot.shape[-1])).at[..., index.planar[:, 1:]].add(slip)


def _names(order) -> tuple[str, ...] | None:
    return None if order is None else checks.names("order", order)


def _configuration_form(tree: Tree) -> Fields:
    poses = Fields(Pose, ((tree.n_free, 3, 3), (tree.n_free, 3)))
    return Fields(Configuration, (poses, (tree.n_joint,), (tree.n_ball, 3, 3)))


def _checked(model: Model, q, form, v, vdot, tau) -> tuple[Any, Any, Any, Any]:
    """q of that form and vectors (..., nv), arrays all and with the same leading axes."""
    vectors = {"v": v, "vdot": vdot, "tau": tau}
    given = {"q": (q, form)} | {name: (x, (model.nv,)) for name, x in vectors.items() if x is not None}
    found = checked(given)
    return found["q"], found.get("v"), found.get("vdot"), found.get("tau")


# ---- where everything is
class _Layout(NamedTuple):
    """Index arrays between a flat vector and the parts that it is made of, side by side and flattened.

    q: parts frees (position, quaternion), balls, joints, (cos, sin) of the continuous ones. v: parts frees (first
    three, last three of the flat vector's six), joints, balls. ours: the same parts of lgjax's v. planar: (n, 3) places
    in lgjax's v of planar joints, and of their angles among its scalar coordinates.
    """

    q: tuple[np.ndarray, ...]
    v: tuple[np.ndarray, ...]
    ours: tuple[np.ndarray, ...]
    continuous: np.ndarray
    planar: np.ndarray
    planar_angles: np.ndarray


@lru_cache(maxsize=256)
def _layout(
    tree: Tree, order: tuple[str, ...] | None, continuous: tuple[str, ...], planar_pairs: bool = False
) -> _Layout:
    """Positions of every body's coordinates in the flat vectors."""
    bodies = _bodies_in_order(tree, order)
    scalar = {n for n, k in zip(tree.joint_names, tree.kinds, strict=True) if k.coordinates == "joints" and k.nq == 1}
    if unknown := [name for name in continuous if name not in scalar]:
        raise ValueError(f"no scalar joint {unknown[0]!r} in {tree.name!r}; joints: {listed(sorted(scalar))}")
    planar = [body for body, kind in enumerate(tree.kinds) if kind is PLANAR]
    pairs = [b for b, name in enumerate(tree.joint_names) if name in continuous or (planar_pairs and b in planar)]
    width = {"free_poses": 7, "ball_rotations": 4}
    starts: dict[int, tuple[int, int]] = {}
    nq = nv = 0
    for body in bodies:
        kind = tree.kinds[body]
        starts[body] = (nq, nv)
        nq += width.get(kind.coordinates, kind.nq) + (body in pairs)
        nv += kind.nv

    def of(coordinates: str, which: int, count, offset: int = 0) -> np.ndarray:
        rows = [
            starts[body][which] + offset + (np.array([2, 0, 1]) if kind is PLANAR else np.arange(count or kind.nv))
            for body, kind in enumerate(tree.kinds)
            if kind.coordinates == coordinates
        ]
        return np.concatenate([np.zeros(0, int), *rows])

    mine = {
        c: [s + i for k, s in zip(tree.kinds, tree.v_start, strict=True) if k.coordinates == c for i in range(k.nv)]
        for c in ("free_poses", "joints", "ball_rotations")
    }
    free = np.asarray(mine["free_poses"], int).reshape(-1, 6)
    return _Layout(
        q=(
            of("free_poses", 0, 3),
            of("free_poses", 0, 4, 3),
            of("ball_rotations", 0, 4),
            of("joints", 0, None),
            np.asarray([starts[body][0] + (3 if body in planar else 1) for body in pairs], int),
        ),
        v=(of("free_poses", 1, 3), of("free_poses", 1, 3, 3), of("joints", 1, None), of("ball_rotations", 1, 3)),
        ours=(
            free[:, :3].ravel(),
            free[:, 3:].ravel(),
            np.asarray(mine["joints"], int),
            np.asarray(mine["ball_rotations"], int),
        ),
        continuous=np.asarray([tree.q_start[body] for body in pairs], int),
        planar=np.asarray([np.arange(3) + tree.v_start[body] for body in planar], int).reshape(-1, 3),
        planar_angles=np.asarray([tree.q_start[body] for body in planar], int),
    )


def _bodies_in_order(tree: Tree, order: tuple[str, ...] | None) -> list[int]:
    if order is None:
        return list(range(tree.nbodies))
    free = [n for n, k in zip(tree.joint_names, tree.kinds, strict=True) if k.coordinates == "free_poses"]
    names = order if set(free) <= set(order) else (*free, *order)
    if sorted(names) != sorted(tree.joint_names):
        differing = sorted(set(names) ^ set(tree.joint_names)) or sorted({n for n in names if names.count(n) > 1})
        raise ValueError(f"order does not list the joints of {tree.name!r} once each: {listed(differing)}")
    return [tree.joint_names.index(name) for name in names]


# ---- taking apart and putting together
def _scatter(indices: tuple[np.ndarray, ...], parts) -> jax.Array:
    """The vector whose entries `indices[k]` are parts[k] (..., n_k)."""
    return sm.join(*parts)[..., np.argsort(np.concatenate(indices))]


def _rows(x, n: int):
    """(..., m n) as (..., m, n)."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // n, n)


def _flatten(x):
    """The last two axes as one."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _flat_vector(index: _Layout, x, turn) -> jax.Array:
    """lgjax's vector (..., nv) as a flat one; turn(angular, linear) -> (first three, last three) of each free joint."""
    angular, linear, joints, balls = (x[..., i] for i in index.ours)
    first, last = turn(_rows(angular, 3), _rows(linear, 3))
    return _scatter(index.v, [_flatten(first), _flatten(last), joints, balls])


def _vector(index: _Layout, x, turn) -> jax.Array:
    """The inverse of `_flat_vector`: turn(first three, last three) -> (angular, linear)."""
    first, last, joints, balls = (jnp.asarray(x)[..., i] for i in index.v)
    angular, linear = turn(_rows(first, 3), _rows(last, 3))
    return _scatter(index.ours, [_flatten(angular), _flatten(linear), joints, balls])


def _turning(index: _Layout, v):
    """w x v of each free joint, (..., n_free, 3): what the rotation of the body frame adds to dv/dt."""
    return sm.cross(_rows(v[..., index.ours[0]], 3), _rows(v[..., index.ours[1]], 3))


def _flat_configuration(index: _Layout, q: Configuration, quaternion) -> jax.Array:
    joints, sines = q.joints, q.joints[..., :0]
    if index.continuous.size:
        angles = joints[..., index.continuous]
        joints, sines = joints.at[..., index.continuous].set(jnp.cos(angles)), jnp.sin(angles)
    parts = [q.free_poses.translation, quaternion(q.free_poses.rotation), quaternion(q.ball_rotations)]
    return _scatter(index.q, [*map(_flatten, parts), joints, sines])


def _configuration(index: _Layout, x, rotation) -> Configuration:
    position, attitude, balls, joints, sines = (jnp.asarray(x)[..., i] for i in index.q)
    if index.continuous.size:
        angles = jnp.arctan2(sines, joints[..., index.continuous])
        joints = joints.at[..., index.continuous].set(angles)
    frees = Pose(rotation(_rows(attitude, 4)), _rows(position, 3))
    return Configuration(frees, joints, rotation(_rows(balls, 4)))
