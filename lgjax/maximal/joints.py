"""Joints of bodies in absolute coordinates as rows of constraints, with their derivatives in closed form.

Every joint is a few scalar rows of two kinds: a translation row n·d = offset, d from the origin of the joint on body a
to that on body b, and a rotation row e_a·e_b = 0 of two axes.  All rows of a kind are computed at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics import small_matrix as sm

Array = jax.Array

X, Y, Z = 0, 1, 2
POINT = (("point", X), ("point", Y), ("point", Z))
LINE = (("slide", X), ("slide", Y))
ALIGN_Z = (("perpendicular", X, Z), ("perpendicular", Y, Z))
ALIGN = (("perpendicular", X, Y), ("perpendicular", Y, Z), ("perpendicular", Z, X))
ROWS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "spherical": POINT,
    "revolute": POINT + ALIGN_Z,
    "universal": (*POINT, ("perpendicular", Z, Z)),
    "prismatic": LINE + ALIGN,
    "cylindrical": LINE + ALIGN_Z,
    "fixed": POINT + ALIGN,
    "distance": (("distance",),),
}
DRIVEN = {"revolute": ("turn",), "prismatic": ("slide", Z)}
# Axes that must not only be perpendicular to others but point the same way: ALIGN also vanishes at three half turns and
# four third turns, "turn" half a turn off its drive.
SAME = {"prismatic": (X, Y), "fixed": (X, Y)}


class JointArrays(NamedTuple):
    """Poses of all joints in the frames of their two bodies, (k, 3) and (k, 3, 3), and lengths (k,)."""

    origin_a: Array
    origin_b: Array
    frame_a: Array
    frame_b: Array
    length: Array


class Sides(NamedTuple):
    """Both sides of all joints: rotations of the two bodies (k, 3, 3), d (k, 3) in the world."""

    rotation_a: Array
    rotation_b: Array
    gap: Array


@dataclass(frozen=True)
class JointRows:
    """Static structure of the rows, hashable: kinds, body indices (the world is last), drives; an entry per joint."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]
    drives: tuple[Callable[[Any], Any] | None, ...]
    bodies: int

    @cached_property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """(joint, kind, axes..., drive or None) of every row, joint by joint."""
        found = []
        for joint, (kind, drive) in enumerate(zip(self.kinds, self.drives, strict=True)):
            inner = drive if kind == "distance" else None
            found += [(joint, *row, inner) for row in ROWS[kind]]
            if drive is not None and kind in DRIVEN:
                found.append((joint, *DRIVEN[kind], drive))
        return tuple(found)

    @cached_property
    def translations(self) -> list[int]:
        """Positions of the translation rows, points first, then slides, then distances."""
        kinds = [row[1] for row in self.rows]
        return [i for name in ("point", "slide", "distance") for i, kind in enumerate(kinds) if kind == name]

    @cached_property
    def rotations(self) -> list[int]:
        """Positions of the rotation rows."""
        return [i for i, row in enumerate(self.rows) if row[1] in ("perpendicular", "turn")]

    @cached_property
    def same(self) -> list[tuple[Any, ...]]:
        """(joint, axis, drive or None) of axes that point the same way in a and b, after the turn of the drive in a."""
        joints = list(enumerate(zip(self.kinds, self.drives, strict=True)))
        equal = [(i, axis, None) for i, (kind, _) in joints for axis in SAME.get(kind, ())]
        return equal + [(i, X, drive) for i, (kind, drive) in joints if kind == "revolute" and drive is not None]

    @cached_property
    def order(self) -> np.ndarray:
        """Place of row i among translations followed by rotations."""
        return np.argsort(np.array(self.translations + self.rotations, int), kind="stable")

    @cached_property
    def table(self) -> np.ndarray:
        """(rows, bodies): where the derivative of a row by a body stands among those by a, those by b, and zero."""
        m = len(self.rows)
        table = np.full((m, self.bodies + 1), 2 * m)
        for place, i in enumerate(self.translations + self.rotations):
            table[i, self.a[self.rows[i][0]]] = place
            table[i, self.b[self.rows[i][0]]] = m + place
        return table[:, : self.bodies]

    def row_name(self, i: int) -> str:
        """Constraint and kind of row i, for messages."""
        joint, kind, *_ = self.rows[i]
        return f"{self.names[joint]!r} ({self.kinds[joint]}, {kind})"

    def sides(self, arrays: JointArrays, rotation: Array, translation: Array) -> Sides:
        """Rotations and gaps of all joints, from those of the bodies (bodies, 3, 3) and (bodies, 3)."""
        rotation = jnp.concatenate([rotation, jnp.eye(3, dtype=rotation.dtype)[None]])
        translation = jnp.concatenate([translation, jnp.zeros((1, 3), translation.dtype)])
        a, b = np.array(self.a), np.array(self.b)
        gap = translation[b] + sm.matvec(rotation[b], arrays.origin_b)
        return Sides(rotation[a], rotation[b], gap - translation[a] - sm.matvec(rotation[a], arrays.origin_a))

    def _normals(self, arrays: JointArrays, s: Sides) -> Array:
        """n of the translation rows (k, 3), world axes: of the world for points, of body a for slides, along d."""
        rows = [self.rows[i] for i in self.translations]
        points = np.eye(3)[[row[2] for row in rows if row[1] == "point"]].reshape(-1, 3)
        slides = [(row[0], row[2]) for row in rows if row[1] == "slide"]
        parts = [jnp.asarray(points, s.gap.dtype)]
        if slides:
            joint, axis = np.array(slides).T
            parts.append(sm.matvec(s.rotation_a[joint], arrays.frame_a[joint, :, axis]))
        distances = [row[0] for row in rows if row[1] == "distance"]
        if distances:
            d = s.gap[np.array(distances)]
            parts.append(d / jnp.sqrt(sm.dot(d, d))[:, None])
        return jnp.concatenate(parts)

    def _offsets(self, t: Any, arrays: JointArrays) -> Array:
        """Prescribed value of n·d, (k,)."""
        zero = jnp.zeros((), arrays.length.dtype)

        def offset(row: tuple[Any, ...]) -> Array:
            if row[-1] is not None:
                return jnp.asarray(row[-1](t), zero.dtype)
            return arrays.length[row[0]] if row[1] == "distance" else zero

        return jnp.stack([offset(self.rows[i]) for i in self.translations])

    def _axes(self, t: Any, arrays: JointArrays) -> tuple[np.ndarray, Array, Array]:
        """Joints, e_a and e_b in body axes, (k, 3), of the rotation rows."""
        rows = [self.rows[i] for i in self.rotations]
        joint = np.array([row[0] for row in rows])
        dtype = arrays.length.dtype

        def local(row: tuple[Any, ...]) -> Array:
            if row[1] == "perpendicular":
                return jnp.asarray(np.eye(3)[row[2]], dtype)
            angle = jnp.asarray(row[-1](t), dtype)
            return sm.stack(-jnp.sin(angle), jnp.cos(angle), jnp.zeros_like(angle))

        axis_b = np.array([row[3] if row[1] == "perpendicular" else X for row in rows])
        e_a = sm.matvec(arrays.frame_a[joint], jnp.stack([local(row) for row in rows]))
        return joint, e_a, arrays.frame_b[joint, :, axis_b]

    def cosines(self, t: Any, arrays: JointArrays, s: Sides) -> Array:
        """Cosines (k,), k > 0, between axes of `same`: 1 where a joint holds, else 0 or -1 where its rows vanish."""

        def local(axis: int, drive: Callable[[Any], Any] | None) -> Array:
            if drive is None:
                return jnp.asarray(np.eye(3)[axis], arrays.length.dtype)
            angle = jnp.asarray(drive(t), arrays.length.dtype)
            return sm.stack(jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle))

        joint, axis = np.array([row[:2] for row in self.same]).T
        e_a = sm.matvec(arrays.frame_a[joint], jnp.stack([local(*row[1:]) for row in self.same]))
        e_b = arrays.frame_b[joint, :, axis]
        return sm.dot(sm.matvec(s.rotation_a[joint], e_a), sm.matvec(s.rotation_b[joint], e_b))

    def residual(self, t: Any, arrays: JointArrays, s: Sides) -> Array:
        """All rows (m,): meters for translations, cosines for rotations."""
        parts = []
        if self.translations:
            joint = np.array([self.rows[i][0] for i in self.translations])
            parts.append(sm.dot(self._normals(arrays, s), s.gap[joint]) - self._offsets(t, arrays))
        if self.rotations:
            joint, e_a, e_b = self._axes(t, arrays)
            parts.append(sm.dot(sm.matvec(s.rotation_a[joint], e_a), sm.matvec(s.rotation_b[joint], e_b)))
        return jnp.concatenate(parts)[self.order]

    def jacobian(self, t: Any, arrays: JointArrays, s: Sides, body_axes: bool) -> Array:
        """Derivative of the rows (m, 6 bodies) by [ω, v] of the bodies, ω in body axes, v in world or body axes.

        A body point s moves with v + R (ω × s), an axis e with R (ω × e).
        """
        by_a, by_b = [], []
        if self.translations:
            joint = np.array([self.rows[i][0] for i in self.translations])
            attached = np.array([self.rows[i][1] == "slide" for i in self.translations])
            n, r_a, r_b = self._normals(arrays, s), s.rotation_a[joint], s.rotation_b[joint]
            n_a, n_b = sm.tmatvec(r_a, n), sm.tmatvec(r_b, n)
            # The normal of a slide turns with body a, so the whole gap is a lever there.
            lever = arrays.origin_a[joint]
            if attached.any():
                lever = lever + jnp.where(attached[:, None], sm.tmatvec(r_a, s.gap[joint]), 0)
            by_a.append(sm.join(sm.cross(n_a, lever), -n_a if body_axes else -n))
            by_b.append(sm.join(sm.cross(arrays.origin_b[joint], n_b), n_b if body_axes else n))
        if self.rotations:
            joint, e_a, e_b = self._axes(t, arrays)
            r_a, r_b = s.rotation_a[joint], s.rotation_b[joint]
            zero = jnp.zeros_like(e_a)
            by_a.append(sm.join(sm.cross(e_a, sm.tmatvec(r_a, sm.matvec(r_b, e_b))), zero))
            by_b.append(sm.join(sm.cross(e_b, sm.tmatvec(r_b, sm.matvec(r_a, e_a))), zero))
        entries = jnp.concatenate([*by_a, *by_b, jnp.zeros((1, 6), s.gap.dtype)])
        return entries[self.table].reshape(len(self.rows), 6 * self.bodies)
