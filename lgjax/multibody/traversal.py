"""Order, grouping and execution of recursions over a tree: the only loop over bodies in the library.

Bodies of equal depth form a level. Consecutive levels in which every body has exactly one child of its own kind form a
run, a rectangle of (length, width) lanes executed as one `lax.scan`; between runs values are gathered from parents
or summed over children. A body step is a pure function of small arrays, executed in one of two ways that are tested
equal: `plain` maps it over the lanes of a level, `scalarised` re-emits it on one array of lanes per scalar.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.multibody.joints import JointKind
from lgjax.multibody.scalar_graph import View
from lgjax.multibody.scalarize import Block, is_known, scalarized
from lgjax.multibody.tree import Tree

Execution = Literal["scalarised", "plain"]


# ---- layout: which bodies run together
@dataclass(frozen=True)
class Group:
    """Bodies (length, width) of one kind; row i + 1 holds the only children of row i."""

    kind: JointKind
    bodies: tuple[tuple[int, ...], ...]

    @property
    def width(self) -> int:
        return len(self.bodies[0])


@dataclass(frozen=True)
class Run:
    """Groups that advance together, and for each lane of the first level the lane of its parent in the run before."""

    groups: tuple[Group, ...]
    parents: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.groups[0].bodies)

    @property
    def width(self) -> int:
        return sum(group.width for group in self.groups)


@lru_cache(maxsize=256)
def layout(tree: Tree) -> tuple[Run, ...]:
    """The runs of a tree, root first."""
    runs: list[Run] = []
    level = [b for b in range(tree.nbodies) if tree.parents[b] < 0]
    lanes = {-1: 0}  # body of the last level of the run before -> its lane
    while level:
        level.sort(key=lambda b: (tree.kinds[b].family.name, lanes[tree.parents[b]]))
        rows = [level]
        while (following := _only_children(tree, rows[-1])) is not None:
            rows.append(following)
        groups = _groups(tree, rows)
        runs.append(Run(groups, tuple(lanes[tree.parents[b]] for b in level)))
        lanes = {b: lane for lane, b in enumerate(rows[-1])}
        level = [b for b in range(tree.nbodies) if tree.parents[b] in lanes]
    return tuple(runs)


def _only_children(tree: Tree, row: list[int]) -> list[int] | None:
    """The next level if it continues every lane with one body of the same family, else None."""
    children: dict[int, list[int]] = {b: [] for b in row}
    for body, parent in enumerate(tree.parents):
        if parent in children:
            children[parent].append(body)
    if any(len(c) != 1 for c in children.values()):
        return None
    following = [children[b][0] for b in row]
    same = all(tree.kinds[a].family is tree.kinds[b].family for a, b in zip(row, following, strict=True))
    return following if same else None


def _groups(tree: Tree, rows: list[list[int]]) -> tuple[Group, ...]:
    """Lanes gathered by family; a family of mixed kinds runs as its most general kind."""
    groups = []
    families = [tree.kinds[b].family for b in rows[0]]
    for family in dict.fromkeys(families):
        lanes = [i for i, f in enumerate(families) if f is family]
        kinds = {tree.kinds[row[i]] for row in rows for i in lanes}
        kind = kinds.pop() if len(kinds) == 1 else family
        groups.append(Group(kind, tuple(tuple(row[i] for i in lanes) for row in rows)))
    return tuple(groups)


# ---- execution
class _Plain:
    """A block is one array whose first axis is the lane; the step is mapped over it."""

    @staticmethod
    def lift(array, lane_axes: int = 2) -> Block:
        entries = np.empty((), object)
        entries[()] = array
        return Block(entries, array.dtype)

    lift_parameters = lift

    @staticmethod
    def lower(block: Block, lanes):
        return block.entries[()]

    @staticmethod
    def constant(value, width: int, dtype) -> Block:
        value = jnp.asarray(value, dtype)
        return _Plain.lift(jnp.broadcast_to(value, (width, *value.shape)))

    @staticmethod
    def apply(step: Callable, *args):
        out = jax.vmap(step)(*jax.tree.map(lambda block: block.entries[()], args))
        return jax.tree.map(_Plain.lift, out)


class _Scalarised:
    """A block has one entry per scalar, an array of lanes or a number known at trace time."""

    @staticmethod
    def lift(array, lane_axes: int = 2) -> Block:
        """State: every scalar becomes an array of its own, contiguous under a batch."""
        lanes, shape = array.shape[:lane_axes], array.shape[lane_axes:]
        flat = array.reshape(*lanes, -1)
        return Block(_entries(shape, lambda k: flat[..., k]), array.dtype)

    @staticmethod
    def lift_parameters(array) -> Block:
        """Parameters, which are seldom batched: the scalars of an array stay together until they are used."""
        shape = array.shape[2:]
        rows = jnp.swapaxes(array.reshape(*array.shape[:2], -1), 1, 2)
        return Block(_entries(shape, lambda k: View(rows, k)), array.dtype)

    @staticmethod
    def lower(block: Block, lanes):
        arrays = [_array(x, lanes, block.dtype) for x in block.entries.flat]
        return jnp.stack(arrays, -1).reshape(*lanes, *block.entries.shape)

    @staticmethod
    def constant(value, width: int, dtype) -> Block:
        if isinstance(value, jax.Array):
            return _Scalarised.lift(jnp.broadcast_to(value, (width, *value.shape)), 1)
        flat = np.ravel(np.asarray(value, float)).tolist()
        return Block(_entries(np.shape(value), lambda k: flat[k]), dtype)

    @staticmethod
    def apply(step: Callable, *args):
        return scalarized(step)(*args)


_EXECUTORS: dict[str, Any] = {"scalarised": _Scalarised, "plain": _Plain}


def _entries(shape, entry: Callable[[int], Any]) -> np.ndarray:
    out = np.empty(shape, object)
    for k, index in enumerate(np.ndindex(*shape)):
        out[index] = entry(k)
    return out


def _shape(group: Group) -> tuple[int, int]:
    return len(group.bodies), group.width


def _array(entry, shape, dtype):
    if isinstance(entry, View):
        return entry.value()
    return jnp.full(shape, entry, dtype) if is_known(entry) else entry


def _map_entries(f: Callable, tree):
    """The same tree of blocks with f applied once to every array in it."""
    done: dict[int, Any] = {}

    def apply(array):
        if id(array) not in done:
            done[id(array)] = (f(array), array)  # holding the array keeps its id its own
        return done[id(array)][0]

    def one(x):
        if is_known(x):
            return x
        return View(apply(x.array), x.index) if isinstance(x, View) else apply(x)

    return _map_blocks(one, tree)


def _map_blocks(f: Callable, tree):
    """The same tree of blocks with f applied to every entry."""
    return jax.tree.map(
        lambda block: Block(_entries(block.entries.shape, lambda k: f(block.entries.flat[k])), block.dtype), tree
    )


def _pack(tree) -> tuple[list[jax.Array], Callable]:
    """The arrays in a tree of blocks, and the function that puts other arrays in their places."""
    arrays: list[jax.Array] = []
    _map_entries(arrays.append, tree)

    def unpack(values):
        stream = iter(values)
        return _map_entries(lambda _: next(stream), tree)

    return arrays, unpack


def _full(tree, width: int) -> list[jax.Array]:
    """All entries of a tree of blocks as arrays over the lanes, as a scan needs its carry."""
    return [_array(x, (width,), block.dtype) for block in jax.tree.leaves(tree) for x in block.entries.flat]


def _refill(tree, values):
    """The same tree of blocks with the entries taken from `values`, in the order of `_full`."""
    stream = iter(values)
    return _map_blocks(lambda _: next(stream), tree)


def _lanes(trees: list, widths: list[int], take: Callable):
    """`take` applied to the lanes of all groups side by side: (entries, lanes, ...) -> (entries, new lanes, ...)."""
    entries = [[x for block in jax.tree.leaves(tree) for x in block.entries.flat] for tree in trees]
    dtypes = [block.dtype for block in jax.tree.leaves(trees[0]) for _ in block.entries.flat]
    result: list[Any] = [0.0] * len(dtypes)
    alike: dict[Any, list[int]] = {}
    for k, column in enumerate(zip(*entries, strict=True)):
        if not all(is_known(x) and x == 0 for x in column):
            tail = next((x.shape[1:] for x in column if not is_known(x)), ())
            alike.setdefault((tail, dtypes[k]), []).append(k)
    for (tail, dtype), members in alike.items():
        rows = [
            jnp.concatenate([_array(group[k], (w, *tail), dtype) for group, w in zip(entries, widths, strict=True)])
            for k in members
        ]
        taken = take(jnp.stack(rows))
        for n, k in enumerate(members):
            result[k] = taken[n] if tail else View(taken, n)
    return _refill(trees[0], result)


def _split_lanes(tree, widths: list[int]) -> list:
    """Blocks over all lanes of a run as one tree per group."""
    if len(widths) == 1:
        return [tree]
    stops = np.cumsum(widths)
    return [_map_entries(lambda x, a=a, b=b: x[a:b], tree) for a, b in zip([0, *stops[:-1]], stops, strict=True)]


class Walk:
    """Recursions over one tree. Per-body data is a list with one pytree of Blocks per group of the layout."""

    def __init__(self, tree: Tree, dtype, execution: Execution = "scalarised"):
        if execution not in _EXECUTORS:
            raise ValueError(f"execution is one of {', '.join(_EXECUTORS)}, not {execution!r}")
        self.tree, self.dtype, self.runs = tree, dtype, layout(tree)
        self.executor = _EXECUTORS[execution]
        self.groups = [group for run in self.runs for group in run.groups]

    # -- data in and out
    def bodies(self, x) -> list:
        """A pytree of arrays with leading axis nbodies, by group."""
        return [
            jax.tree.map(lambda a, i=np.asarray(group.bodies): self.executor.lift_parameters(jnp.asarray(a)[i]), x) for group in self.groups
        ]

    def configurations(self, q) -> list:
        """Joint coordinates of a Configuration by group: (nq,) scalars, a Pose or a rotation."""
        out = []
        for group in self.groups:
            start = np.asarray(self.tree.q_start)[np.asarray(group.bodies)]
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
        order = np.argsort(np.concatenate([np.ravel(group.bodies) for group in self.groups]))

        def join(*blocks):
            rows = [self.executor.lower(b, _shape(g)) for b, g in zip(blocks, self.groups, strict=True)]
            return jnp.concatenate([r.reshape(-1, *r.shape[2:]) for r in rows])[order]

        return jax.tree.map(join, *values)

    def to_velocities(self, values: list) -> jax.Array:
        """The inverse of `velocities`, with any trailing axes: (nv, ...)."""
        order = np.argsort(np.concatenate([np.ravel(self._velocity_index(group)) for group in self.groups]))
        rows = [self.executor.lower(b, _shape(g)) for b, g in zip(values, self.groups, strict=True)]
        return jnp.concatenate([r.reshape(-1, *r.shape[3:]) for r in rows])[order]

    def _velocity_index(self, group: Group) -> np.ndarray:
        return np.asarray(self.tree.v_start)[np.asarray(group.bodies)][..., None] + np.arange(group.kind.nv)

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
                    jax.tree.map(lambda x, w=g.width: self.executor.constant(x, w, self.dtype), root) for g in run.groups
                ]
            else:
                joined = _lanes(below, widths, partial(_gather, index=run.parents))
                carry = _split_lanes(joined, [g.width for g in run.groups])
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
                carry = [jax.tree.map(lambda x, w=w: self.executor.constant(x, w, self.dtype), zero) for w in widths]
            else:
                child = self.runs[number + 1]
                joined = _lanes(
                    above,
                    [g.width for g in child.groups],
                    partial(_sum_children, parents=child.parents, width=run.width),
                )
                carry = _split_lanes(joined, widths)
            here = slice(stop - len(run.groups), stop)
            above, out = self._run(run, step, carry, [d[here] for d in data], reverse=True)
            stop = here.start
            outputs = out + outputs
        return outputs

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
            mark = _map_blocks(lambda x: _Kept(kept[id(x)]) if id(x) in kept else x, out)
            return [c for c, _ in pairs], mark

        if run.length == 1:
            carry, out = level(carry, _map_entries(lambda x: x[0], data))
            return carry, _reveal(_map_entries(lambda x: x[None], out))

        xs, unpack_data = _pack(data)
        unpack_out: list[Callable] = []

        def split(values):
            stream = iter(values)
            return [_refill(c, stream) for c in carry]

        def body(values, x):
            new, out = level(split(values), unpack_data(x))
            ys, unpack = _pack(out)
            unpack_out.append(unpack)
            return [a for c, g in zip(new, run.groups, strict=True) for a in _full(c, g.width)], ys

        start = [a for c, g in zip(carry, run.groups, strict=True) for a in _full(c, g.width)]
        final, ys = lax.scan(body, start, xs, length=run.length, reverse=reverse)
        return split(final), _reveal(unpack_out[-1](ys))


class _Kept:
    """An output that is an entry of the inputs: known outside the loop, so the loop does not carry it."""

    def __init__(self, outer):
        self.outer = outer


def _reveal(tree):
    return _map_blocks(lambda x: x.outer if isinstance(x, _Kept) else x, tree)


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

