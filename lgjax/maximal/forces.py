"""Forces on bodies in absolute coordinates: every kind at once for all its members.

A force gives each of its bodies a torque about the center of mass in body axes and a force in world axes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import length_and_direction

Array = jax.Array


class BodyMotions(NamedTuple):
    """Rotation (k + 1, 3, 3), position, velocity in world axes and ω in body axes, (k + 1, 3), the world last."""

    rotation: Array
    translation: Array
    velocity: Array
    omega: Array


class SpringArrays(NamedTuple):
    """Points in body axes (k, 3); stiffness, damping, length (k,)."""

    point_a: Array
    point_b: Array
    stiffness: Array
    damping: Array
    length: Array


class BushingArrays(NamedTuple):
    """Points in body axes, stiffness and damping along world axes, (k, 3)."""

    point_a: Array
    point_b: Array
    stiffness: Array
    damping: Array


class TorsionArrays(NamedTuple):
    """Frames in body axes (k, 3, 3); stiffness and damping (k,)."""

    frame_a: Array
    frame_b: Array
    stiffness: Array
    damping: Array


class LoadArrays(NamedTuple):
    """Points in body axes, forces and torques in world and in body axes, (k, 3)."""

    point: Array
    force_world: Array
    force_body: Array
    torque_world: Array
    torque_body: Array


class ForceArrays(NamedTuple):
    """The numbers of all forces; gravity (3,), parameters of user functions as they were given."""

    gravity: Array
    springs: SpringArrays
    bushings: BushingArrays
    torsions: TorsionArrays
    loads: LoadArrays
    users: tuple[Any, ...]


Pairs = tuple[tuple[int, int], ...]
TorqueAndForce = tuple[list[int], Array, Array]


@dataclass(frozen=True)
class ForceMembers:
    """Static structure of the forces, hashable: pairs of body indices (the world is last), drives, user functions."""

    springs: Pairs
    bushings: Pairs
    torsions: Pairs
    drives: tuple[Callable[[Any], Any] | None, ...]
    loads: tuple[int, ...]
    users: tuple[tuple[Callable[..., Any], bool], ...]
    bodies: int

    @property
    def coupled(self) -> bool:
        """Whether the force on a body depends on another body."""
        pairs = self.springs + self.bushings + self.torsions
        return any(self.bodies not in pair for pair in pairs) or any(couples for _, couples in self.users)

    def on_bodies(self, t: Any, arrays: ForceArrays, mass: Array, m: BodyMotions) -> tuple[Array, Array]:
        """Torques in body axes and forces in world axes, (bodies, 3) each, without those of user functions."""
        parts: list[TorqueAndForce] = []
        if self.springs:
            parts.append(_springs(self.springs, arrays.springs, m))
        if self.bushings:
            parts.append(_bushings(self.bushings, arrays.bushings, m))
        if self.torsions:
            parts.append(_torsions(self.torsions, self.drives, t, arrays.torsions, m))
        if self.loads:
            parts.append(_loads(self.loads, arrays.loads, m))
        weight = mass[:, None] * arrays.gravity
        if not parts:
            return jnp.zeros_like(weight), weight
        owners = [owner for part in parts for owner in part[0]]
        torques = jnp.concatenate([torque for _, torque, _ in parts])
        forces = jnp.concatenate([force for _, _, force in parts])
        table = _table(owners, self.bodies)
        return _collect(torques, table), weight + _collect(forces, table)

    def potential(self, arrays: ForceArrays, mass: Array, m: BodyMotions) -> Array:
        """Energy of gravity and of springs without a drive."""
        total = -jnp.sum(mass * sm.dot(m.translation[:-1], jnp.broadcast_to(arrays.gravity, m.translation[:-1].shape)))
        if self.springs:
            s = arrays.springs
            d, _ = _gaps(self.springs, s.point_a, s.point_b, m)
            length, _ = length_and_direction(d)
            # Of points that coincide, the square in the form that has its derivatives there.
            square = jnp.where(length > 0, (length - s.length) ** 2, sm.dot(d, d) + s.length * (s.length - 2 * length))
            total = total + 0.5 * jnp.sum(s.stiffness * square)
        if self.bushings:
            d, _ = _gaps(self.bushings, arrays.bushings.point_a, arrays.bushings.point_b, m)
            total = total + 0.5 * jnp.sum(arrays.bushings.stiffness * d * d)
        if self.torsions:
            angle, _, _ = _angles(self.torsions, self.drives, jnp.zeros((), mass.dtype), arrays.torsions, m)
            passive = np.array([drive is None for drive in self.drives])
            total = total + 0.5 * jnp.sum(jnp.where(passive, arrays.torsions.stiffness * angle * angle, 0))
        return total


def _table(owners: list[int], bodies: int) -> np.ndarray:
    """(bodies, most contributions): positions of the contributions of each body, filled up with that of a zero."""
    lists = [[i for i, owner in enumerate(owners) if owner == body] for body in range(bodies)]
    width = max([1, *map(len, lists)])
    return np.array([found + [len(owners)] * (width - len(found)) for found in lists])


def _collect(contributions: Array, table: np.ndarray) -> Array:
    """Sums (bodies, 3) of contributions (k, 3)."""
    padded = jnp.concatenate([contributions, jnp.zeros_like(contributions[:1])])
    first, *others = (padded[column] for column in table.T)
    return sum(others, first)


def _sides(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.array(pairs).T
    return a, b


def _gaps(pairs: Pairs, point_a: Array, point_b: Array, m: BodyMotions) -> tuple[Array, Array]:
    """Vectors from the points on a to those on b and their rates, (k, 3), world axes."""
    a, b = _sides(pairs)

    def point(body: np.ndarray, point: Array) -> tuple[Array, Array]:
        rotation = m.rotation[body]
        rate = m.velocity[body] + sm.matvec(rotation, sm.cross(m.omega[body], point))
        return m.translation[body] + sm.matvec(rotation, point), rate

    (at_a, rate_a), (at_b, rate_b) = point(a, point_a), point(b, point_b)
    return at_b - at_a, rate_b - rate_a


def _pull(pairs: Pairs, point_a: Array, point_b: Array, force: Array, m: BodyMotions) -> TorqueAndForce:
    """A force (k, 3) on the points of a and its opposite on those of b."""
    a, b = _sides(pairs)
    torques = [
        sm.cross(point_a, sm.tmatvec(m.rotation[a], force)),
        sm.cross(point_b, sm.tmatvec(m.rotation[b], -force)),
    ]
    return [*a, *b], jnp.concatenate(torques), jnp.concatenate([force, -force])


def _springs(pairs: Pairs, s: SpringArrays, m: BodyMotions) -> TorqueAndForce:
    d, rate = _gaps(pairs, s.point_a, s.point_b, m)
    _, direction = length_and_direction(d)
    # A spring without a rest length is linear: with its part of the tension apart, that is seen also where d = 0.
    rest = s.damping * sm.dot(direction, rate) - s.stiffness * s.length
    return _pull(pairs, s.point_a, s.point_b, s.stiffness[:, None] * d + rest[:, None] * direction, m)


def _bushings(pairs: Pairs, s: BushingArrays, m: BodyMotions) -> TorqueAndForce:
    d, rate = _gaps(pairs, s.point_a, s.point_b, m)
    return _pull(pairs, s.point_a, s.point_b, s.stiffness * d + s.damping * rate, m)


def _angles(pairs: Pairs, drives: Any, t: Any, s: TorsionArrays, m: BodyMotions) -> tuple[Array, Array, Array]:
    """Angles beyond the drives, their rates (k,), and the axes (k, 3) in world axes."""
    a, b = _sides(pairs)
    frame_a, frame_b = sm.matmul(m.rotation[a], s.frame_a), sm.matmul(m.rotation[b], s.frame_b)
    t = jnp.asarray(t, s.stiffness.dtype)

    def driven(t: Array) -> Array:
        values = [jnp.zeros_like(t) if drive is None else jnp.asarray(drive(t), t.dtype) for drive in drives]
        return jnp.stack(values)

    target, rate = jax.jvp(driven, (t,), (jnp.ones_like(t),))
    x, y, z = frame_a[..., 0], frame_a[..., 1], frame_a[..., 2]
    along, across = sm.dot(frame_b[..., 0], x), sm.dot(frame_b[..., 0], y)
    c, sn = jnp.cos(target), jnp.sin(target)
    angle = jnp.arctan2(c * across - sn * along, c * along + sn * across)
    spin = sm.matvec(m.rotation[b], m.omega[b]) - sm.matvec(m.rotation[a], m.omega[a])
    return angle, sm.dot(z, spin) - rate, z


def _torsions(pairs: Pairs, drives: Any, t: Any, s: TorsionArrays, m: BodyMotions) -> TorqueAndForce:
    a, b = _sides(pairs)
    angle, rate, axis = _angles(pairs, drives, t, s, m)
    torque = (s.stiffness * angle + s.damping * rate)[:, None] * axis
    torques = jnp.concatenate([sm.tmatvec(m.rotation[a], torque), sm.tmatvec(m.rotation[b], -torque)])
    return [*a, *b], torques, jnp.zeros_like(torques)


def _loads(bodies: tuple[int, ...], s: LoadArrays, m: BodyMotions) -> TorqueAndForce:
    rotation = m.rotation[np.array(bodies)]
    force = s.force_body + sm.tmatvec(rotation, s.force_world)
    torque = s.torque_body + sm.tmatvec(rotation, s.torque_world) + sm.cross(s.point, force)
    return list(bodies), torque, sm.matvec(rotation, force)
