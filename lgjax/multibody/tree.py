"""Topology of a mechanism: hashable, static under jit."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lgjax.multibody.joints import JointKind
from lgjax.numerics.messages import listed, shown
from lgjax.numerics.renamed import attributes


@dataclass(frozen=True)
class Tree:
    """Moving bodies in an order in which parents come first; body i is moved by joint i.

    parents: index of each body's parent, -1 for the world. kinds: kind of each body's joint.
    frames: (name, body) of links that are rigidly fixed to a body (-1: to the world). source: the file that it came
    from, which only viewers read: trees are equal whatever it is.
    """

    name: str
    body_names: tuple[str, ...]
    parents: tuple[int, ...]
    kinds: tuple[JointKind, ...]
    joint_names: tuple[str, ...]
    frames: tuple[tuple[str, int], ...] = ()
    source: str | None = field(default=None, compare=False, repr=False)

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(nq="n_free, n_joint and n_ball")

    @property
    def nbodies(self) -> int:
        return len(self.parents)

    @cached_property
    def nv(self) -> int:
        return sum(kind.nv for kind in self.kinds)

    @cached_property
    def n_free(self) -> int:
        """Number of free joints, and of poses in a Configuration."""
        return sum(kind.coordinates == "free_poses" for kind in self.kinds)

    @cached_property
    def n_joint(self) -> int:
        """Number of scalar coordinates in a Configuration."""
        return sum(kind.nq for kind in self.kinds if kind.coordinates == "joints")

    @cached_property
    def n_ball(self) -> int:
        """Number of spherical joints, and of rotations in a Configuration."""
        return sum(kind.coordinates == "ball_rotations" for kind in self.kinds)

    @cached_property
    def v_start(self) -> tuple[int, ...]:
        """Index of the first velocity of each body's joint in the flat v."""
        starts, total = [], 0
        for kind in self.kinds:
            starts.append(total)
            total += kind.nv
        return tuple(starts)

    @cached_property
    def q_start(self) -> tuple[int, ...]:
        """Index of each joint's (first) coordinate in the member of Configuration that its kind uses."""
        starts, count = [], {"joints": 0, "free_poses": 0, "ball_rotations": 0}
        for kind in self.kinds:
            starts.append(count[kind.coordinates])
            count[kind.coordinates] += kind.nq if kind.coordinates == "joints" else 1
        return tuple(starts)

    @cached_property
    def v_body(self) -> tuple[int, ...]:
        """The body that each entry of v moves."""
        return tuple(body for body, kind in enumerate(self.kinds) for _ in range(kind.nv))

    @cached_property
    def coordinate_names(self) -> tuple[str, ...]:
        """Names of the scalar coordinates: that of the joint, numbered where it has several."""
        pairs = zip(self.joint_names, self.kinds, strict=True)
        scalar = [(name, kind.nq) for name, kind in pairs if kind.coordinates == "joints"]
        return tuple(f"{name}[{i}]" if n > 1 else name for name, n in scalar for i in range(n))

    @cached_property
    def varying(self) -> bool:
        """Whether a joint's motion subspace depends on its coordinates."""
        return any(kind.varying for kind in self.kinds)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Number of moving bodies between each body and the world."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    @cached_property
    def ancestors(self) -> tuple[tuple[int, ...], ...]:
        """For each body the bodies on its path from the world, itself last."""
        paths: list[tuple[int, ...]] = []
        for body, parent in enumerate(self.parents):
            paths.append((*(paths[parent] if parent >= 0 else ()), body))
        return tuple(paths)

    def body(self, name_or_index: str | int) -> int:
        """Index of a body by name; an index passes through after a range check."""
        if isinstance(name_or_index, str):
            if name_or_index not in self.body_names:
                raise ValueError(f"no body {shown(name_or_index)} in {self.name!r}; bodies: {listed(self.body_names)}")
            return self.body_names.index(name_or_index)
        if not isinstance(name_or_index, int | np.integer) or isinstance(name_or_index, bool):
            raise TypeError(f"a body is given by its name or its index, got {shown(name_or_index)}")
        if not -self.nbodies <= name_or_index < self.nbodies:
            raise ValueError(f"body index {name_or_index} is out of range for {self.nbodies} bodies")
        return name_or_index % self.nbodies
