"""Transmissions that pull on bodies: spatial tendons, sites with a wrench, slider-cranks.

Read first: `Pulls`, which turns unit wrenches on bodies into entries of the moments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import World
from lgjax.dynamics.transmissions.coordinates import Indices
from lgjax.dynamics.transmissions.transmissions import Kind
from lgjax.groups import se3, so3
from lgjax.groups.se3 import Pose
from lgjax.multibody.model import Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import length_and_direction, norm

STATIC = {"static": True}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Places:
    """m poses fixed to bodies or to the world: names of bodies and frames, and poses in those, None for none."""

    offset: Pose | None
    names: tuple[str | int | None, ...] = field(metadata=STATIC)

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows) -> "Places":
        offset = None if self.offset is None else jax.tree.map(lambda x: x[rows], self.offset)
        return Places(offset, tuple(self.names[i] for i in rows))

    @staticmethod
    def joined(parts: "Sequence[Places]") -> "Places":
        """Places of all parts, in their order."""
        names = tuple(name for part in parts for name in part.names)
        known = [part.offset for part in parts if part.offset is not None]
        if not known:
            return Places(None, names)
        one = lambda n: Pose(sm.identity(3, known[0].rotation.dtype, (n,)), jnp.zeros((n, 3), known[0].rotation.dtype))
        offsets = [one(len(part)) if part.offset is None else part.offset for part in parts]
        return Places(jax.tree.map(lambda *x: jnp.concatenate(x), *offsets), names)

    def bodies(self, tree: Tree) -> tuple[int, ...]:
        """The body that carries each, -1 for the world."""
        return tuple(body for body, _ in _carriers(tree, self.names))

    def in_bodies(self, model: Model) -> Pose:
        """Poses (m) in the joint frames of their bodies, or in the world."""
        one = sm.identity(3, model.dtype, (1,))
        nowhere = Pose(one, one[..., 0] * 0)
        index = np.asarray([i for _, i in _carriers(model.tree, self.names)], int)
        table = jax.tree.map(lambda *x: jnp.concatenate(x)[index], model.links, model.frames, nowhere)
        return table if self.offset is None else se3.compose(table, self.offset)

    def in_world(self, model: Model, world: World, here: Pose | None = None) -> Pose:
        """Poses (m) in world axes about the origin of `world`. here: what `in_bodies` returns."""
        root = Pose(sm.identity(3, model.dtype, (1,)), -world.origin[None])
        index = np.asarray(self.bodies(model.tree), int)
        bodies = jax.tree.map(lambda *x: jnp.concatenate(x)[index], world.poses, root)  # -1 is the last
        return se3.compose(bodies, self.in_bodies(model) if here is None else here)


@lru_cache(maxsize=256)
def _carriers(tree: Tree, names: tuple) -> tuple[tuple[int, int], ...]:
    """The body of each name, and its place in a table of all bodies, all frames and the world."""
    frames = [name for name, _ in tree.frames]
    found = []
    for name in names:
        if name is None:
            found.append((-1, tree.nbodies + len(frames)))
        elif isinstance(name, str) and name not in tree.body_names:
            found.append((tree.frames[frames.index(name)][1], tree.nbodies + frames.index(name)))
        else:
            found.append((tree.body(name), tree.body(name)))
    return tuple(found)


# ---- unit wrenches on bodies as entries of moments
class Pull(NamedTuple):
    """Wrench `unit` (an index) times `sign` acts on `body` in row `row`; what is above `above` takes no part."""

    row: int
    unit: int
    body: int
    above: int
    sign: int = 1


class Pulls(NamedTuple):
    """Places of entries, and what each is the product of: a motion (a column) and a unit wrench, with a sign."""

    rows: np.ndarray
    columns: np.ndarray
    units: np.ndarray
    signs: np.ndarray

    def entries(self, world: World, wrenches) -> jax.Array:
        """Entries from unit wrenches (units, 6) in world axes about the origin of `world`."""
        products = sm.dot(world.S[self.columns], wrenches[self.units])
        return products if np.all(self.signs == 1) else products * self.signs.astype(products.dtype)


@lru_cache(maxsize=256)
def pulls(tree: Tree, given: tuple[Pull, ...]) -> Pulls:
    """One entry for each velocity that moves the body of a pull, but not the bodies that `above` shares with it.

    A pair of opposite wrenches does no work in motions that both bodies share, so those have no entry.
    """
    found = []
    for pull in given:
        shared = set(tree.ancestors[pull.above]) if pull.above >= 0 else set()
        path = set(tree.ancestors[pull.body]) - shared if pull.body >= 0 else set()
        found += [(pull.row, i, pull.unit, pull.sign) for i, body in enumerate(tree.v_body) if body in path]
    return Pulls(*np.asarray(found, int).reshape(-1, 4).T)


def at_point(point, force, torque=None):
    """Wrench (..., 6) about the origin of a force, and a torque, at a point."""
    moment = sm.cross(point, force)
    return jnp.concatenate([moment if torque is None else moment + torque, force], -1)


class Lines(Kind):
    """Common part of the kinds below: pairs of pulls on bodies, from unit wrenches in world axes."""

    @property
    def bodies(self) -> bool:
        return True

    @property
    def constant(self) -> bool:
        return False

    def given(self, tree: Tree) -> tuple[Pull, ...]:
        raise NotImplementedError

    def units(self, model: Model, world: World) -> jax.Array:
        raise NotImplementedError

    def places(self, tree):
        found = pulls(tree, self.given(tree))
        return found.rows, found.columns

    def entries(self, q, model, world):
        return pulls(model.tree, self.given(model.tree)).entries(world, self.units(model, world))


# ---- the kinds
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SpatialTendons(Lines):
    """Straight segments between places: length = gear sum of |segment| / divisor, m."""

    gear: jax.Array
    divisors: jax.Array
    starts: Places
    ends: Places
    rows: Indices = field(metadata=STATIC)  # of the segments
    count: int = field(metadata=STATIC)

    def __len__(self) -> int:
        return self.count

    def given(self, tree):
        pairs = enumerate(zip(self.rows, self.starts.bodies(tree), self.ends.bodies(tree), strict=True))
        return tuple(
            pull for k, (row, a, b) in pairs for pull in (Pull(row, k, b, above=a), Pull(row, k, a, above=b, sign=-1))
        )

    def _segments(self, model, world):
        a, b = (x.in_world(model, world).translation for x in (self.starts, self.ends))
        return a, *length_and_direction(b - a)

    def lengths(self, q, model, world):
        _, length, _ = self._segments(model, world)
        total = jnp.zeros(self.count, length.dtype).at[np.asarray(self.rows, int)].add(length / self.divisors)
        return self.gear * total

    def units(self, model, world):
        a, _, along = self._segments(model, world)
        return at_point(a, (self.gear[np.asarray(self.rows, int)] / self.divisors)[:, None] * along)

    def take(self, rows):
        new = {int(row): k for k, row in enumerate(rows)}
        kept = np.asarray([i for i, row in enumerate(self.rows) if row in new], int)
        renumbered = tuple(new[self.rows[i]] for i in kept)
        starts, ends = self.starts.take(kept), self.ends.take(kept)
        return SpatialTendons(self.gear[rows], self.divisors[kept], starts, ends, renumbered, len(rows))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sites(Kind):
    """Wrenches (n, 6) at places and in their axes; no length."""

    wrench: jax.Array
    at: Places

    @property
    def bodies(self) -> bool:
        return True

    @property
    def constant(self) -> bool:
        return False

    @property
    def scales(self) -> str:
        return "wrench"

    def __len__(self) -> int:
        return len(self.at)

    def _pulls(self, tree) -> tuple[np.ndarray, np.ndarray, Pulls]:
        """Rows and columns of the body's own joint, and all others."""
        own, others = [], []
        for row, body in enumerate(self.at.bodies(tree)):
            if body >= 0:
                own += [(row, i) for i, of in enumerate(tree.v_body) if of == body]
                others.append(Pull(row, row, tree.parents[body], above=-1))
        rows, columns = np.asarray(own, int).reshape(-1, 2).T
        return rows, columns, pulls(tree, tuple(others))

    def places(self, tree):
        rows, columns, others = self._pulls(tree)
        return np.concatenate([rows, others.rows]), np.concatenate([columns, others.columns])

    def lengths(self, q, model, world):
        return jnp.zeros(len(self), self.wrench.dtype)

    def entries(self, q, model, world):
        rows, columns, others = self._pulls(model.tree)
        here = self.at.in_bodies(model)
        turned = [sm.matvec(here.rotation, x) for x in (self.wrench[:, :3], self.wrench[:, 3:])]
        wrench = at_point(here.translation, turned[1], turned[0])
        # In the joint frame the motions of the body's own joint are constants, mostly zeros: nothing else for a drone.
        own = sm.dot(world.subspace[columns], wrench[rows])
        if not others.rows.size:
            return own
        there = self.at.in_world(model, world, here)
        turned = [sm.matvec(there.rotation, x) for x in (self.wrench[:, :3], self.wrench[:, 3:])]
        return jnp.concatenate([own, others.entries(world, at_point(there.translation, turned[1], turned[0]))])

    def take(self, rows):
        return Sites(self.wrench[rows], self.at.take(rows))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RelativeSites(Lines):
    """length = wrench . [log, place] of the pose in a reference, whose axes the wrench (n, 6) has; opposite on both."""

    wrench: jax.Array
    at: Places
    reference: Places
    turns: tuple[bool, ...] = field(metadata=STATIC)  # whether the wrench is known to have no force

    @property
    def scales(self) -> str:
        return "wrench"

    def __len__(self) -> int:
        return len(self.at)

    @property
    def periodic(self):
        return self.turns

    def periods(self):
        turns = 2 * np.pi * norm(self.wrench[:, :3])
        return jnp.where(np.asarray(self.turns), turns, jnp.ones_like(turns))

    def given(self, tree):
        n, pairs = len(self), enumerate(zip(self.at.bodies(tree), self.reference.bodies(tree), strict=True))
        return tuple(
            pull for k, (a, b) in pairs for pull in (Pull(k, k, a, above=b), Pull(k, n + k, b, above=a, sign=-1))
        )

    def _poses(self, model, world):
        return tuple(x.in_world(model, world) for x in (self.at, self.reference))

    def lengths(self, q, model, world):
        a, b = self._poses(model, world)
        turn = so3.log(sm.tmatmul(b.rotation, a.rotation))
        gap = sm.tmatvec(b.rotation, a.translation - b.translation)
        return sm.dot(self.wrench, jnp.concatenate([turn, gap], 1))

    def units(self, model, world):
        a, b = self._poses(model, world)
        torque, force = (sm.matvec(b.rotation, x) for x in (self.wrench[:, :3], self.wrench[:, 3:]))
        return jnp.concatenate([at_point(x.translation, force, torque) for x in (a, b)])

    def take(self, rows):
        at, reference = self.at.take(rows), self.reference.take(rows)
        return RelativeSites(self.wrench[rows], at, reference, tuple(self.turns[i] for i in rows))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SliderCranks(Lines):
    """length = gear s, with s where a slider on the z axis of `sliders` is, a rod of length `rod` from `cranks`, m.

    Where the rod does not reach, s is the foot of the perpendicular.
    """

    gear: jax.Array
    rod: jax.Array
    cranks: Places
    sliders: Places

    def __len__(self) -> int:
        return len(self.cranks)

    def given(self, tree):
        n, pairs = len(self), enumerate(zip(self.cranks.bodies(tree), self.sliders.bodies(tree), strict=True))
        return tuple(pull for k, (a, b) in pairs for pull in (Pull(k, k, a, above=b), Pull(k, n + k, b, above=a)))

    def _parts(self, model, world):
        """Crank, slider and its axis; the foot on the axis and the root that leads to the slider, 0 out of reach."""
        crank, slider = (x.in_world(model, world) for x in (self.cranks, self.sliders))
        axis, gap = slider.rotation[..., 2], crank.translation - slider.translation
        foot = sm.dot(gap, axis)
        square = foot * foot + self.rod * self.rod - sm.dot(gap, gap)
        reaches = square > 0
        root = jnp.sqrt(jnp.where(reaches, square, jnp.ones_like(square)))
        return crank.translation, slider.translation, axis, gap, foot, root, reaches

    def lengths(self, q, model, world):
        *_, foot, root, reaches = self._parts(model, world)
        return self.gear * jnp.where(reaches, foot - root, foot)

    def units(self, model, world):
        crank, slider, axis, gap, foot, root, reaches = self._parts(model, world)
        share = jnp.where(reaches, 1 - foot / root, jnp.ones_like(foot))[:, None]  # ds / d foot
        lean = jnp.where(reaches, 1 / root, jnp.zeros_like(root))[:, None]
        by_gap = self.gear[:, None] * (share * axis + lean * gap)
        by_axis = self.gear[:, None] * share * gap
        on_slider = at_point(slider, -by_gap, sm.cross(axis, by_axis))
        return jnp.concatenate([at_point(crank, by_gap), on_slider])

    def take(self, rows):
        return SliderCranks(self.gear[rows], self.rod[rows], self.cranks.take(rows), self.sliders.take(rows))
