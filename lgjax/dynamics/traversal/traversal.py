"""Order, grouping and execution of recursions over a tree: the only loop over bodies in the library.

Chains of bodies side by side form a run, a rectangle of `length` levels and `width` lanes, executed as one `lax.scan`
over its levels. Between runs values are gathered from parents or summed over children. A body step is a pure function
of small arrays, executed in one of two ways that are tested equal: `plain` maps it over the lanes of a level,
`scalarized` re-emits it on one array of lanes per scalar. On a GPU a scalarized recursion is one kernel, in which all
bodies are written out; `scan` is the same without the kernel.

Read first: `TreeTraversal.outward` and `inward`; to see an algorithm, nothing else here is needed.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.traversal.layout import LaneRun, layout
from lgjax.execution.executors import (
    EXECUTORS,
    Execution,
    Executor,
    full,
    lanes_together,
    map_blocks,
    map_entries,
    pack,
    refill,
    side_by_side,
)
from lgjax.execution.scalars.interpreter import is_known
from lgjax.multibody.joints import JointKind
from lgjax.multibody.tree import Tree
from lgjax.numerics.messages import shown


def tree_traversal(tree: Tree, dtype, execution: Execution = "scalarized") -> "TreeTraversal":
    """The walks over a tree that run body steps as `execution` says; ValueError for an unknown one."""
    if not isinstance(execution, str) or execution not in EXECUTORS:
        raise ValueError(f"execution is one of {', '.join(get_args(Execution))}, not {shown(execution)}")
    return TreeTraversal(tree, dtype, EXECUTORS[execution])


class TreeTraversal:
    """Walks over one tree. Per-body data is a list with one pytree of Blocks for each run of the layout."""

    def __init__(self, tree: Tree, dtype, executor: Executor):
        self.tree, self.dtype, self.runs, self.executor = tree, dtype, layout(tree), executor

    # -- data in and out
    def bodies(self, x) -> list:
        """A pytree of arrays with leading axis nbodies, cut up by run."""
        lift = self.executor.lift_parameters
        return [jax.tree.map(lambda a, i=run.index: lift(_indexable(a)[i]), x) for run in self.runs]

    def configurations(self, q) -> list:
        """Joint coordinates of a Configuration, cut up by run: (nq,) scalars, a Pose or a rotation per body."""
        out = []
        for run in self.runs:
            start = np.asarray(self.tree.q_start)[run.index]
            if run.kind.coordinates == "joints":
                out.append(self.executor.lift(q.joints[start[..., None] + np.arange(run.kind.nq)]))
            else:
                member = q.free_poses if run.kind.coordinates == "free_poses" else q.ball_rotations
                out.append(jax.tree.map(lambda a, i=start: self.executor.lift(a[i]), member))
        return out

    def velocities(self, v) -> list:
        """A flat vector (nv,), cut up by run: (kind.nv,) per body."""
        return [self.executor.lift(v[self._velocity_index(run)]) for run in self.runs]

    def to_bodies(self, values: list):
        """The inverse of `bodies`."""
        return jax.tree.map(lambda *blocks: self._ordered(blocks, [run.index for run in self.runs], 0), *values)

    def to_velocities(self, values: list) -> jax.Array:
        """The inverse of `velocities`, with any trailing axes: (nv, ...)."""
        return self._ordered(values, [self._velocity_index(run) for run in self.runs], 1)

    def _ordered(self, blocks, indices: list[np.ndarray], axes: int) -> jax.Array:
        """Blocks of all runs as one array, in the order of their indices; `axes` leading block axes are indexed."""
        rows, order = [], []
        for block, run, index in zip(blocks, self.runs, indices, strict=True):
            array = self.executor.lower(block, run.index.shape)
            rows.append(array.reshape(-1, *array.shape[2 + axes :]))
            alive = np.broadcast_to(run.alive.reshape(*run.alive.shape, *(1,) * axes), index.shape)
            order.append(np.where(alive, index, -1).ravel())
        target = np.concatenate(order)
        return jnp.concatenate(rows)[np.argsort(target, kind="stable")[np.sum(target < 0) :]]

    def _velocity_index(self, run: LaneRun) -> np.ndarray:
        return np.asarray(self.tree.v_start)[run.index][..., None] + np.arange(run.kind.nv)

    # -- recursions
    def outward(self, step: Callable, root, *data: list) -> list:
        """Walk from the roots to the leaves: step(kind, carry of the parent, *data of the body) -> (carry, output).

        root: carry of the world, a pytree of small arrays; NumPy leaves are constants that fold. Returns the outputs of
        all bodies, by run.
        """
        steps = self._mapped(step)
        outputs: list = []
        below: list = []
        for run, *inputs in zip(self.runs, *data, strict=True):
            carry = self._from_parents(run, below) if run.parents else self._constants(root, run)
            end, out = self._run(run, steps(run.kind), carry, inputs, reverse=False)
            below.append(end)
            outputs.append(out)
        return outputs

    def inward(self, step: Callable, zero, *data: list) -> list:
        """Walk from the leaves to the roots: step(kind, sum over children, *data of the body) -> (to parent, output).

        zero: what a body without children receives, a pytree of small NumPy arrays. Returns the outputs of all bodies,
        by run.
        """
        steps = self._mapped(step)
        outputs: dict[int, Any] = {}
        above: dict[int, Any] = {}
        for number, (run, *inputs) in reversed(list(enumerate(zip(self.runs, *data, strict=True)))):
            numbers = [n for n in sorted(above) if any(parent == number for parent, _ in self.runs[n].parents)]
            carry = self._from_children(number, numbers, above) if numbers else self._constants(zero, run)
            above[number], outputs[number] = self._run(run, steps(run.kind), carry, inputs, reverse=True)
        return [outputs[number] for number in range(len(self.runs))]

    def _from_parents(self, run: LaneRun, below: list):
        """The carries of a run's first row, from those behind the last rows of the runs before."""
        numbers = sorted({number for number, _ in run.parents})
        widths = [self.runs[number].width for number in numbers]
        first = dict(zip(numbers, np.cumsum([0, *widths]).tolist(), strict=False))
        index = tuple(first[number] + lane for number, lane in run.parents)
        return lanes_together([below[number] for number in numbers], widths, partial(_gather, index=index))

    def _from_children(self, number: int, numbers: list[int], above: dict):
        """The sums that the last row of a run receives from the first rows of the runs `numbers`."""
        widths = [self.runs[n].width for n in numbers]
        parents = tuple(lane if parent == number else None for n in numbers for parent, lane in self.runs[n].parents)
        total = partial(_sum_children, parents=parents, width=self.runs[number].width)
        return lanes_together([above[n] for n in numbers], widths, total)

    def side_by_side(self, step: Callable, *data):
        """A step on small arrays, applied to each row of a pytree of arrays; the results as rows of arrays."""
        return side_by_side(self.executor, step, *data)

    def _mapped(self, step: Callable) -> Callable[[JointKind], Callable]:
        """The step of each kind on the lanes of a level."""
        return cache(lambda kind: self.executor.mapped(partial(step, kind)))

    def _constants(self, values, run: LaneRun):
        """The same small arrays in every lane of a run."""
        return jax.tree.map(lambda x: self.executor.constant(x, run.width, self.dtype), values)

    def _run(self, run: LaneRun, step: Callable, carry, data: list, reverse: bool):
        """All levels of one run. Returns the carry behind the last level and the outputs."""

        def level(carry, inputs):
            """One level; outputs that are inputs stay where they are."""
            carry, out = step(carry, *inputs)
            kept = {
                id(inner): outer
                for inside, outside in zip(jax.tree.leaves(inputs), jax.tree.leaves(data), strict=True)
                for inner, outer in zip(inside.entries.flat, outside.entries.flat, strict=True)
                if not is_known(inner)
            }
            return carry, map_blocks(lambda x: _Kept(kept[id(x)]) if id(x) in kept else x, out)

        if run.length == 1:
            carry, out = level(carry, map_entries(lambda x: x[0], data))
            return carry, _reveal(map_entries(lambda x: x[None], out))

        xs, unpack_data = pack(data)
        unpack_out: list[Callable] = []
        # a lane whose chain has ended computes on, but must not push on its parent
        alive = run.alive if reverse and not run.alive.all() else None

        def body(values, x):
            alive, x = x
            new, out = level(refill(carry, values), unpack_data(x))
            ys, unpack = pack(out)
            unpack_out.append(unpack)
            return _silenced(full(new, run.width), alive), ys

        final, ys = self.executor.scan(body, full(carry, run.width), (alive, xs), run.length, reverse)
        return refill(carry, final), _reveal(unpack_out[-1](ys))


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
    """The rows `index` of an array (lanes, ...)."""
    if index == tuple(range(len(rows))):
        return rows
    if len(rows) == 1:
        return jnp.broadcast_to(rows, (len(index), *rows.shape[1:]))
    return rows[np.asarray(index)]


def _sum_children(rows, parents: tuple[int | None, ...], width: int):
    """An array (lanes, ...) summed over the lanes of each of `width` parents, in a fixed order."""
    if parents == tuple(range(width)):
        return rows
    children = [[lane for lane, parent in enumerate(parents) if parent == p] for p in range(width)]
    if width == 1:
        return sum(rows[lane : lane + 1] for lane in children[0])
    most = max(map(len, children))
    index = np.asarray([c + [len(parents)] * (most - len(c)) for c in children])
    padded = jnp.concatenate([rows, jnp.zeros_like(rows[:1])])
    return sum(padded[index[:, k]] for k in range(most))
