"""Order, grouping and execution of recursions over a tree: the only loop over bodies in the library.

Bodies of equal depth form a level; levels whose bodies follow one another lane by lane form a run, a rectangle of
(length, width) lanes executed as one `lax.scan`. Between runs values are gathered from parents or summed over
children. A body step is a pure function of small arrays, executed in one of three ways that are tested equal: `plain`
maps it over the lanes of a level, `scalarised` re-emits it on one array of lanes per scalar, `unrolled` calls it for
one body after the other, for programs that are scalarised as a whole.
"""

from collections.abc import Callable
from functools import partial
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.multibody.execution import (
    EXECUTORS,
    Execution,
    full,
    lanes_together,
    map_blocks,
    map_entries,
    pack,
    refill,
    split_lanes,
)
from lgjax.multibody.layout import Group, Run, layout
from lgjax.multibody.scalarize import is_known
from lgjax.multibody.tree import Tree


class Walk:
    """Recursions over one tree. Per-body data is a list with one pytree of Blocks per group of the layout."""

    def __new__(cls, tree: Tree, dtype, execution: Execution = "scalarised"):
        return object.__new__(_Unrolled if execution == "unrolled" else cls)

    def __init__(self, tree: Tree, dtype, execution: Execution = "scalarised"):
        if execution not in EXECUTORS:
            raise ValueError(f"execution is one of {', '.join(get_args(Execution))}, not {execution!r}")
        self.tree, self.dtype, self.runs = tree, dtype, layout(tree)
        self.executor = EXECUTORS[execution]
        self.groups = [group for run in self.runs for group in run.groups]

    # -- data in and out
    def bodies(self, x) -> list:
        """A pytree of arrays with leading axis nbodies, by group."""
        lift = self.executor.lift_parameters
        return [jax.tree.map(lambda a, i=group.index: lift(_indexable(a)[i]), x) for group in self.groups]

    def configurations(self, q) -> list:
        """Joint coordinates of a Configuration by group: (nq,) scalars, a Pose or a rotation."""
        out = []
        for group in self.groups:
            start = np.asarray(self.tree.q_start)[group.index]
            if group.kind.coordinates == "joints":
                out.append(self.executor.lift(q.joints[start[..., None] + np.arange(group.kind.nq)]))
            else:
                member = q.frees if group.kind.coordinates == "frees" else q.balls
                out.append(jax.tree.map(lambda a, i=start: self.executor.lift(a[i]), member))
        return out

    def velocities(self, v) -> list:
        """A flat vector (nv,) by group: (kind.nv,) per body."""
        return [self.executor.lift(v[self._velocity_index(group)]) for group in self.groups]

    def to_bodies(self, values: list):
        """The inverse of `bodies`."""
        return jax.tree.map(lambda *blocks: self._ordered(blocks, [g.index for g in self.groups], 0), *values)

    def to_velocities(self, values: list) -> jax.Array:
        """The inverse of `velocities`, with any trailing axes: (nv, ...)."""
        return self._ordered(values, [self._velocity_index(g) for g in self.groups], 1)

    def _ordered(self, blocks, indices: list[np.ndarray], axes: int) -> jax.Array:
        """Blocks of all groups as one array, in the order of their indices; `axes` leading block axes are indexed."""
        rows, order = [], []
        for block, group, index in zip(blocks, self.groups, indices, strict=True):
            array = self.executor.lower(block, group.index.shape)
            rows.append(array.reshape(-1, *array.shape[2 + axes :]))
            alive = np.broadcast_to(group.alive.reshape(*group.alive.shape, *(1,) * axes), index.shape)
            order.append(np.where(alive, index, -1).ravel())
        target = np.concatenate(order)
        return jnp.concatenate(rows)[np.argsort(target, kind="stable")[np.sum(target < 0) :]]

    def _velocity_index(self, group: Group) -> np.ndarray:
        return np.asarray(self.tree.v_start)[group.index][..., None] + np.arange(group.kind.nv)

    # -- recursions
    def outward(self, step: Callable, root, *data: list) -> list:
        """From the roots to the leaves: step(kind, carry of the parent, *data of the body) -> (carry, output).

        root: carry of the world, a pytree of small arrays; NumPy leaves are constants that fold.
        """
        outputs: list = []
        below: list = []
        widths: list[int] = []
        for number, run in enumerate(self.runs):
            if number == 0:
                carry = [
                    jax.tree.map(lambda x, w=g.width: self.executor.constant(x, w, self.dtype), root)
                    for g in run.groups
                ]
            else:
                joined = lanes_together(below, widths, partial(_gather, index=run.parents))
                carry = split_lanes(joined, [g.width for g in run.groups])
            here = slice(len(outputs), len(outputs) + len(run.groups))
            below, out = self._run(run, step, carry, [d[here] for d in data], reverse=False)
            widths = [g.width for g in run.groups]
            outputs += out
        return outputs

    def inward(self, step: Callable, zero, *data: list) -> list:
        """From the leaves to the roots: step(kind, sum over children, *data of the body) -> (to the parent, output).

        zero: what a body without children receives, a pytree of small NumPy arrays.
        """
        outputs: list = []
        above: list = []
        stop = len(self.groups)
        for number in reversed(range(len(self.runs))):
            run = self.runs[number]
            widths = [g.width for g in run.groups]
            if number == len(self.runs) - 1:
                carry = [self._constants(zero, group) for group in run.groups]
            else:
                child = self.runs[number + 1]
                joined = lanes_together(
                    above,
                    [g.width for g in child.groups],
                    partial(_sum_children, parents=child.parents, width=run.width),
                )
                carry = split_lanes(joined, widths)
            here = slice(stop - len(run.groups), stop)
            above, out = self._run(run, step, carry, [d[here] for d in data], reverse=True)
            stop = here.start
            outputs = out + outputs
        return outputs

    def _constants(self, values, group: Group):
        """The same small arrays in every lane of a group."""
        return jax.tree.map(lambda x: self.executor.constant(x, group.width, self.dtype), values)

    def _run(self, run: Run, step: Callable, carry: list, data: list[list], reverse: bool):
        """All levels of one run; data[k][group]. Returns the carries behind the last level and the outputs."""

        def level(carries, inputs):
            """One level; outputs that are inputs stay where they are."""
            pairs = [
                self.executor.apply(partial(step, group.kind), carries[i], *(d[i] for d in inputs))
                for i, group in enumerate(run.groups)
            ]
            kept = {
                id(inner): outer
                for inside, outside in zip(jax.tree.leaves(inputs), jax.tree.leaves(data), strict=True)
                for inner, outer in zip(inside.entries.flat, outside.entries.flat, strict=True)
                if not is_known(inner)
            }
            out = [y for _, y in pairs]
            mark = map_blocks(lambda x: _Kept(kept[id(x)]) if id(x) in kept else x, out)
            return [c for c, _ in pairs], mark

        if run.length == 1:
            carry, out = level(carry, map_entries(lambda x: x[0], data))
            return carry, _reveal(map_entries(lambda x: x[None], out))

        xs, unpack_data = pack(data)
        unpack_out: list[Callable] = []

        def split(values):
            stream = iter(values)
            return [refill(c, stream) for c in carry]

        # a lane whose chain has ended computes on, but must not push on its parent
        alive = [group.alive for group in run.groups] if reverse else [None] * len(run.groups)
        alive = [None if mask is None or mask.all() else mask for mask in alive]

        def body(values, x):
            alive, x = x
            new, out = level(split(values), unpack_data(x))
            ys, unpack = pack(out)
            unpack_out.append(unpack)
            ends = zip(new, run.groups, alive, strict=True)
            return [a for c, g, mask in ends for a in _silenced(full(c, g.width), mask)], ys

        start = [a for c, g in zip(carry, run.groups, strict=True) for a in full(c, g.width)]
        final, ys = self.executor.scan(body, start, (alive, xs), run.length, reverse)
        return split(final), _reveal(unpack_out[-1](ys))


class _Unrolled(Walk):
    """One body after the other: a group is one body, its data are small arrays. Compiled as it is, it grows long."""

    def __init__(self, tree: Tree, dtype, execution: Execution = "unrolled"):
        self.tree, self.dtype = tree, dtype
        self.groups = [Group(kind, ((body,),)) for body, kind in enumerate(tree.kinds)]

    def bodies(self, x) -> list:
        return [jax.tree.map(lambda a, b=b: _indexable(a)[b], x) for b in range(self.tree.nbodies)]

    def configurations(self, q) -> list:
        out = []
        for kind, start in zip(self.tree.kinds, self.tree.q_start, strict=True):
            if kind.coordinates == "joints":
                out.append(q.joints[start : start + kind.nq])
            else:
                out.append(jax.tree.map(lambda a, i=start: a[i], q.frees if kind.coordinates == "frees" else q.balls))
        return out

    def velocities(self, v) -> list:
        pairs = zip(self.tree.kinds, self.tree.v_start, strict=True)
        return [v[start : start + kind.nv] for kind, start in pairs]

    def to_bodies(self, values: list):
        return jax.tree.map(lambda *rows: jnp.stack(rows), *values)

    def to_velocities(self, values: list) -> jax.Array:
        return jnp.concatenate(values)

    def outward(self, step: Callable, root, *data: list) -> list:
        once = jax.jit(step, static_argnums=0)  # traced once for bodies of the same kind
        root = self._constant(root)
        carries: list = []
        outputs = []
        for body, (kind, parent) in enumerate(zip(self.tree.kinds, self.tree.parents, strict=True)):
            carry, out = once(kind, root if parent < 0 else carries[parent], *(d[body] for d in data))
            carries.append(carry)
            outputs.append(out)
        return outputs

    def inward(self, step: Callable, zero, *data: list) -> list:
        once = jax.jit(step, static_argnums=0)
        sums: list = [self._constant(zero)] * self.tree.nbodies
        outputs: list = [None] * self.tree.nbodies
        for body in reversed(range(self.tree.nbodies)):
            up, outputs[body] = once(self.tree.kinds[body], sums[body], *(d[body] for d in data))
            if (parent := self.tree.parents[body]) >= 0:
                sums[parent] = jax.tree.map(jnp.add, sums[parent], up)
        return outputs

    def _constant(self, values):
        return jax.tree.map(lambda x: jnp.asarray(x, self.dtype), values)


def _indexable(array):
    """NumPy arrays stay what they are: constants of the program."""
    return array if isinstance(array, np.ndarray) else jnp.asarray(array)


def _silenced(arrays: list, alive) -> list:
    """Zero in the lanes that have ended; alive None: none has."""
    if alive is None:
        return arrays
    return [jnp.where(alive.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.zeros_like(x)) for x in arrays]


class _Kept:
    """An output that is an entry of the inputs: known outside the loop, so the loop does not carry it."""

    def __init__(self, outer):
        self.outer = outer


def _reveal(tree):
    return map_blocks(lambda x: x.outer if isinstance(x, _Kept) else x, tree)


def _gather(rows, index: tuple[int, ...]):
    """Rows (entries, lanes, ...) of the parents `index` of the new lanes."""
    if index == tuple(range(rows.shape[1])):
        return rows
    if rows.shape[1] == 1:
        return jnp.broadcast_to(rows, (rows.shape[0], len(index), *rows.shape[2:]))
    return rows[:, np.asarray(index)]


def _sum_children(rows, parents: tuple[int, ...], width: int):
    """Rows (entries, lanes, ...) summed over the lanes of each of `width` parents, in a fixed order."""
    if parents == tuple(range(width)):
        return rows
    if width == 1:
        return rows.sum(1, keepdims=True)
    children = [[lane for lane, parent in enumerate(parents) if parent == p] for p in range(width)]
    most = max(map(len, children))
    index = np.asarray([c + [len(parents)] * (most - len(c)) for c in children])
    padded = jnp.concatenate([rows, jnp.zeros_like(rows[:, :1])], 1)
    return padded[:, index].sum(2)
