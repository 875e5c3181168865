"""Transmissions that read coordinates: scalar joints behind gears, fixed tendons, ball joints and free joints."""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.transmissions.transmissions import Kind
from lgjax.groups import so3
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm

STATIC = {"static": True}
Indices = tuple[int, ...]


def chosen(indices: Indices, rows: np.ndarray) -> Indices:
    return tuple(indices[i] for i in rows)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Joints(Kind):
    """length = gear x, with x the scalar coordinate `coordinates` of a Configuration and `columns` of a velocity."""

    gear: jax.Array
    coordinates: Indices = field(metadata=STATIC)
    columns: Indices = field(metadata=STATIC)

    def __len__(self) -> int:
        return len(self.columns)

    def places(self, tree):
        return np.arange(len(self)), np.asarray(self.columns, int)

    def lengths(self, q, model, world):
        return self.gear * q.joints[np.asarray(self.coordinates, int)]

    def entries(self, q, model, world):
        return self.gear

    def take(self, rows):
        return Joints(self.gear[rows], chosen(self.coordinates, rows), chosen(self.columns, rows))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FixedTendons(Kind):
    """length = gear sum of coefficient x. coefficients (m,) with their rows, coordinates and columns."""

    gear: jax.Array
    coefficients: jax.Array
    rows: Indices = field(metadata=STATIC)
    coordinates: Indices = field(metadata=STATIC)
    columns: Indices = field(metadata=STATIC)
    count: int = field(metadata=STATIC)

    def __len__(self) -> int:
        return self.count

    def places(self, tree):
        return np.asarray(self.rows, int), np.asarray(self.columns, int)

    def lengths(self, q, model, world):
        parts = self.coefficients * q.joints[np.asarray(self.coordinates, int)]
        return self.gear * jnp.zeros(self.count, parts.dtype).at[np.asarray(self.rows, int)].add(parts)

    def entries(self, q, model, world):
        return self.gear[np.asarray(self.rows, int)] * self.coefficients

    def take(self, rows):
        new = {int(row): k for k, row in enumerate(rows)}
        kept = np.asarray([i for i, row in enumerate(self.rows) if row in new], int)
        renumbered = tuple(new[self.rows[i]] for i in kept)
        coordinates, columns = chosen(self.coordinates, kept), chosen(self.columns, kept)
        return FixedTendons(self.gear[rows], self.coefficients[kept], renumbered, coordinates, columns, len(rows))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Balls(Kind):
    """length = axis . log R of the rotations `coordinates`, torque along axis (n, 3), in the child or the parent."""

    axis: jax.Array
    coordinates: Indices = field(metadata=STATIC)
    columns: Indices = field(metadata=STATIC)  # the first of three
    in_parent: bool = field(metadata=STATIC)

    @property
    def alike(self):
        return self.in_parent

    @property
    def constant(self) -> bool:
        return not self.in_parent

    @property
    def periodic(self):
        return (True,) * len(self)

    def periods(self):
        return 2 * np.pi * norm(self.axis)

    @property
    def scales(self) -> str:
        return "axis"

    def __len__(self) -> int:
        return len(self.columns)

    def places(self, tree):
        return _blocks(self.columns, 3)

    def lengths(self, q, model, world):
        # log R has the same components in the child and in the parent.
        return sm.dot(self.axis, so3.log(self._rotations(q)))

    def entries(self, q, model, world):
        return (sm.tmatvec(self._rotations(q), self.axis) if self.in_parent else self.axis).reshape(-1)

    def take(self, rows):
        columns = chosen(self.columns, rows)
        return replace(self, axis=self.axis[rows], coordinates=chosen(self.coordinates, rows), columns=columns)

    def _rotations(self, q):
        return q.ball_rotations[np.asarray(self.coordinates, int)]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Frees(Kind):
    """Wrenches (n, 6) on bodies of free joints: force in the world, torque in the body, or in the world; no length."""

    wrench: jax.Array
    coordinates: Indices = field(metadata=STATIC)
    columns: Indices = field(metadata=STATIC)  # the first of six
    in_parent: bool = field(metadata=STATIC)

    @property
    def alike(self):
        return self.in_parent

    @property
    def constant(self) -> bool:
        return False

    @property
    def scales(self) -> str:
        return "wrench"

    def __len__(self) -> int:
        return len(self.columns)

    def places(self, tree):
        return _blocks(self.columns, 6)

    def lengths(self, q, model, world):
        return jnp.zeros(len(self), self.wrench.dtype)

    def entries(self, q, model, world):
        R = q.free_poses.rotation[np.asarray(self.coordinates, int)]
        torque, force = self.wrench[:, :3], sm.tmatvec(R, self.wrench[:, 3:])
        torque = sm.tmatvec(R, torque) if self.in_parent else torque
        return jnp.concatenate([torque, force], 1).reshape(-1)

    def take(self, rows):
        columns = chosen(self.columns, rows)
        return replace(self, wrench=self.wrench[rows], coordinates=chosen(self.coordinates, rows), columns=columns)


def _blocks(columns: Indices, width: int):
    """Places of entries (n, width) in consecutive columns."""
    rows = np.repeat(np.arange(len(columns)), width)
    return rows, (np.asarray(columns, int)[:, None] + np.arange(width)).reshape(-1)
