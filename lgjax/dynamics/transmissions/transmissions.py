"""Transmissions: n scalar lengths of a configuration, how velocities change them and how forces on them act on joints.

Read `Transmissions` first, then `coordinates.py` for those that read coordinates (joints, fixed tendons) and
`lines.py` for those that pull on bodies (spatial tendons, sites, slider-cranks). `makers.py` makes them from names.

Every kind gives its moments as a list of entries at places (row, column) that the tree alone decides. A joint or a
fixed tendon has as many as it has coefficients, so nothing multiplies by zeros, and all sums are the same few lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import World, world_kinematics
from lgjax.execution.compiled import compiled
from lgjax.multibody.arguments import checked_array, checked_configuration, checked_model
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Mechanism, Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import checks
from lgjax.numerics.messages import listed

STATIC = {"static": True}


class Kind:
    """Several transmissions of one kind. Lengths (n,) and entries (m,) of the moments at places (row, column)."""

    @property
    def bodies(self) -> bool:
        """Whether it reads the model and the kinematics in world axes; else both may be None."""
        return False

    @property
    def constant(self) -> bool:
        """Whether the entries are the same for all q."""
        return True

    @property
    def alike(self) -> Any:
        """Values that are equal in all transmissions that can be one record."""
        return None

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Which lengths (n,) are angles of a rotation, which come back after a `periods`."""
        return (False,) * len(self)

    def periods(self) -> jax.Array:
        """Change (n,) of each length in a whole turn, 1 where there is none."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def places(self, tree: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Rows (m,) and columns (m,) of the entries."""
        raise NotImplementedError

    def lengths(self, q: Configuration, model: Any, world: Any) -> jax.Array:
        raise NotImplementedError

    def entries(self, q: Configuration, model: Any, world: Any) -> jax.Array:
        raise NotImplementedError

    def take(self, rows: np.ndarray) -> "Kind":
        """Return the transmissions with these indices, in this order."""
        raise NotImplementedError

    @property
    def scales(self) -> str:
        """The leaf whose n rows lengths and moments are proportional to."""
        return "gear"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transmissions:
    """n lengths that depend on the configuration, rad or m: transmissions of actuators, or tendons.

    Makers: `joints`, `balls`, `frees`, `fixed_tendons`, `spatial_tendons`, `sites`, `slider_cranks`. `a + b` joins two
    records, those of a first. Gears, coefficients, places and the numbers of the model are leaves. The methods are for
    one system; use jax.vmap over a batch. Pass the result of `kinematics` as `world` to several methods, and it is
    computed once.

    The moments are the derivatives of the lengths, d(length)/dt = moments @ v, except where MuJoCo's force does not act
    along the rate of a length: balls beyond small angles, free joints, sites.
    Source: the definitions of MuJoCo's actuator transmissions and tendons.
    """

    kinds: tuple[Kind, ...]
    model: Model | None  # only where a kind needs the poses of bodies
    tree: Tree = field(metadata=STATIC)

    def __repr__(self) -> str:
        names = [f"{len(kind)} {type(kind).__name__}" for kind in self.kinds]
        return f"<Transmissions of {self.tree.name!r}: {listed(names)}>"

    def __len__(self) -> int:
        return sum(map(len, self.kinds))

    def __add__(self, other: Any) -> "Transmissions":
        return join([self, other])

    @property
    def nv(self) -> int:
        return self.tree.nv

    @property
    def dtype(self) -> Any:
        return jax.tree.leaves(self.kinds)[0].dtype

    @property
    def constant(self) -> bool:
        """Whether the moments are the same in all configurations."""
        return all(kind.constant for kind in self.kinds)

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Which lengths (n,) are angles of balls, or of sites in a reference, and count modulo a whole turn."""
        return tuple(flag for kind in self.kinds for flag in kind.periodic)

    def periods(self) -> jax.Array:
        """Change (n,) of each `periodic` length in a whole turn; 1 for the others."""
        ones = [jnp.ones(len(kind), self.dtype) for kind in self.kinds]
        return _joined(
            [k.periods() if any(k.periodic) else x for k, x in zip(self.kinds, ones, strict=True)], self.dtype
        )

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns (m,) of the entries of the moments, which the tree decides."""
        first, rows, columns = 0, [np.zeros(0, int)], [np.zeros(0, int)]
        for kind in self.kinds:
            row, column = kind.places(self.tree)
            rows.append(row + first)
            columns.append(column)
            first += len(kind)
        return np.concatenate(rows), np.concatenate(columns)

    def take(self, rows: Any) -> "Transmissions":
        """The transmissions with these indices, which must increase."""
        rows = checks.indices("rows", rows, len(self), "transmission", "n")
        if list(rows) != sorted(rows):
            raise ValueError(f"rows must increase, got {rows}")
        if len(rows) == len(self):
            return self
        first, kinds = 0, []
        for kind in self.kinds:
            own = np.asarray([r - first for r in rows if first <= r < first + len(kind)], int)
            kinds += [kind.take(own)] if own.size else []
            first += len(kind)
        return Transmissions(tuple(kinds), self.model if any(k.bodies for k in kinds) else None, self.tree)

    def geared(self, factors: jax.Array) -> "Transmissions":
        """The same transmissions with lengths and moments multiplied by factors (n,), as by gears."""
        factors = checked_array("factors", factors, (len(self),), self.dtype, "the transmission")
        first, kinds = 0, []
        for kind in self.kinds:
            own, leaf = factors[first : first + len(kind)], getattr(kind, kind.scales)
            scaled = leaf * (own if leaf.ndim == 1 else own[:, None])
            kinds.append(replace(kind, **{kind.scales: scaled}))  # type: ignore[type-var]
            first += len(kind)
        return replace(self, kinds=tuple(kinds))

    def astype(self, dtype: Any) -> "Transmissions":
        """The same transmissions with every array in `dtype`."""
        return jax.tree.map(lambda x: x.astype(dtype), self)

    def replace(self, **changes: Any) -> "Transmissions":
        return replace(self, **changes)

    def for_model(self, model: Model | Mechanism) -> "Transmissions":
        """The same transmissions on another model of the same tree, whose bodies then move."""
        model = checked_model(model)
        if model.tree != self.tree:
            raise ValueError(f"transmissions of {self.tree.name!r} need a model with its tree, not {model.name!r}")
        return self if self.model is None else replace(self, model=model)

    # ---- what they do
    def kinematics(self, q: Configuration, v: Any = None) -> World | None:
        """Kinematics that the other methods take as `world`; None where only coordinates are read."""
        return None if self.model is None else world_kinematics(self.model, q, v)

    @compiled
    def lengths(self, q: Configuration, world: World | None = None) -> jax.Array:
        """Lengths (n,), rad or m; 0 for free joints and for sites without a reference."""
        q = self._checked(q)
        world = self.kinematics(q) if world is None else world
        return _joined([kind.lengths(q, self.model, world) for kind in self.kinds], self.dtype)

    @compiled
    def entries(self, q: Configuration, world: World | None = None) -> jax.Array:
        """Entries (m,) of the moments at `places`; several at one place add up."""
        q = self._checked(q)
        world = self.kinematics(q) if world is None else world
        return _joined([kind.entries(q, self.model, world) for kind in self.kinds], self.dtype)

    @compiled
    def moments(self, q: Configuration, world: World | None = None) -> jax.Array:
        """Moments (n, nv): rates = moments @ v and torque = moments^T forces, each without this matrix."""
        return jnp.zeros((len(self), self.nv), self.dtype).at[self.places].add(self.entries(q, world))

    @compiled
    def rates(self, q: Configuration, v: jax.Array, world: World | None = None) -> jax.Array:
        """moments @ v (n,), rad/s or m/s, from v (nv,)."""
        v = checked_array("v", v, (self.nv,), self.dtype, "the transmission", self)  # type: ignore[arg-type]
        rows, columns = self.places
        return _added(len(self), rows, self.entries(q, world) * _taken(v, columns))

    @compiled
    def torque(self, q: Configuration, forces: jax.Array, world: World | None = None) -> jax.Array:
        """Generalized forces moments^T forces (nv,) from forces (n,) along the lengths, N m or N."""
        forces = checked_array("forces", forces, (len(self),), self.dtype, "the transmission")
        rows, columns = self.places
        return _added(self.nv, columns, self.entries(q, world) * _taken(forces, rows))

    def _checked(self, q: Any) -> Configuration:
        return checked_configuration("q", q, self)  # type: ignore[arg-type]


def join(parts: Sequence[Transmissions]) -> Transmissions:
    """One record of several transmissions of one model, in order; neighbours of one kind are computed together."""
    for part in parts:
        if not isinstance(part, Transmissions):
            raise TypeError(f"transmissions add to transmissions, not to {checks.shown(part)}")
        if part.tree != parts[0].tree or part.dtype != parts[0].dtype:
            raise ValueError(f"transmissions of two models: {parts[0].tree.name!r} and {part.tree.name!r}")
    if not parts:
        raise ValueError("no transmission: the list is empty")
    models = [part.model for part in parts if part.model is not None]
    found = groupby((kind for part in parts for kind in part.kinds), key=lambda kind: (type(kind), kind.alike))
    kinds = tuple(_merged(list(group)) for _, group in found)
    return Transmissions(kinds, models[0] if models else None, parts[0].tree)


def _merged(same: list) -> Any:
    """One record of several of its kind: arrays, tuples and counts one after the other, rows counted on."""
    if len(same) == 1:
        return same[0]
    firsts = np.cumsum([0, *map(len, same)])
    changes = {}
    for name in (x.name for x in fields(same[0])):
        values = [getattr(kind, name) for kind in same]
        if name == "rows":
            changes[name] = tuple(int(i + first) for rows, first in zip(values, firsts, strict=False) for i in rows)
        elif isinstance(values[0], tuple):
            changes[name] = tuple(x for value in values for x in value)
        elif isinstance(values[0], bool):
            changes[name] = values[0]
        elif isinstance(values[0], int):
            changes[name] = sum(values)
        else:
            changes[name] = values[0].joined(values) if hasattr(values[0], "joined") else jnp.concatenate(values)
    return replace(same[0], **changes)


def _joined(parts: list, dtype: Any) -> jax.Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate([jnp.zeros(0, dtype), *parts])


def _taken(x, index: np.ndarray):
    """x[index], without an operation where that is x."""
    return x if np.array_equal(index, np.arange(len(x))) else x[index]


def _added(n: int, index: np.ndarray, values):
    """Vector (n,) of the sums of the values with each index."""
    if np.array_equal(index, np.arange(n)):
        return values
    return jnp.zeros(n, values.dtype).at[index].add(values)
