"""Order, grouping and execution of recursions over a tree: the only loop over bodies in the library.

Chains of bodies side by side form a run, a rectangle of `length` levels and `width` lanes: one `lax.scan` over the
levels, of a body step that `jax.vmap` maps over the lanes. Between runs values are gathered from parents or summed over
children. That is the whole algorithm, and what XLA runs where there are no kernels (`execution.plain`). Kernels are
written from the same jaxpr, in which all bodies are written out but those of long chains (`execution/`).

Read first: `TreeTraversal.outward` and `inward`; to see an algorithm, nothing else here is needed.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.dynamics.traversal.layout import LaneRun, layout
from lgjax.multibody.tree import Tree

LONGEST = 48  # levels of a run that a kernel writes out; of more it has a loop


class TreeTraversal:
    """Walks over one tree. Per-body data is a list with one pytree of arrays (levels, lanes, ...) for each run."""

    def __init__(self, tree: Tree, dtype):
        self.tree, self.dtype, self.runs = tree, dtype, layout(tree)

    # -- data in and out
    def bodies(self, x) -> list:
        """A pytree of arrays with leading axis nbodies, cut up by run."""
        return [jax.tree.map(lambda a, i=run.index: a[i], x) for run in self.runs]

    def configurations(self, q) -> list:
        """Joint coordinates of a Configuration, cut up by run: (nq,) scalars, a Pose or a rotation per body."""
        out = []
        for run in self.runs:
            start = np.asarray(self.tree.q_start)[run.index]
            if run.kind.coordinates == "joints":
                out.append(q.joints[start[..., None] + np.arange(run.kind.nq)])
            else:
                member = q.free_poses if run.kind.coordinates == "free_poses" else q.ball_rotations
                out.append(jax.tree.map(lambda a, i=start: a[i], member))
        return out

    def velocities(self, v) -> list:
        """A flat vector (nv,), cut up by run: (kind.nv,) per body."""
        return [v[self._velocity_index(run)] for run in self.runs]

    def to_bodies(self, values: list):
        """The inverse of `bodies`."""
        return jax.tree.map(lambda *arrays: self._ordered(arrays, [run.index for run in self.runs], 0), *values)

    def to_velocities(self, values: list) -> jax.Array:
        """The inverse of `velocities`, with any trailing axes: (nv, ...)."""
        return self._ordered(values, [self._velocity_index(run) for run in self.runs], 1)

    def _ordered(self, arrays, indices: list[np.ndarray], axes: int) -> jax.Array:
        """Arrays of all runs as one, in the order of their indices; `axes` axes behind the lanes are indexed."""
        rows, order = [], []
        for array, run, index in zip(arrays, self.runs, indices, strict=True):
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

        root: carry of the world, a pytree of small arrays. Returns the outputs of all bodies, by run.
        """
        steps = cache(lambda kind: jax.vmap(partial(step, kind)))
        outputs: list = []
        below: list = []
        for run, *inputs in zip(self.runs, *data, strict=True):
            carry = self._from_parents(run, below) if run.parents else self._constants(root, run)
            end, out = _run(run, steps(run.kind), carry, inputs, reverse=False)
            below.append(end)
            outputs.append(out)
        return outputs

    def inward(self, step: Callable, zero, *data: list) -> list:
        """Walk from the leaves to the roots: step(kind, sum over children, *data of the body) -> (to parent, output).

        zero: what a body without children receives, a pytree of small arrays. Returns the outputs of all bodies, by
        run.
        """
        steps = cache(lambda kind: jax.vmap(partial(step, kind)))
        outputs: dict[int, Any] = {}
        above: dict[int, Any] = {}
        for number, (run, *inputs) in reversed(list(enumerate(zip(self.runs, *data, strict=True)))):
            numbers = [n for n in sorted(above) if any(parent == number for parent, _ in self.runs[n].parents)]
            carry = self._from_children(number, numbers, above) if numbers else self._constants(zero, run)
            above[number], outputs[number] = _run(run, steps(run.kind), carry, inputs, reverse=True)
        return [outputs[number] for number in range(len(self.runs))]

    def _from_parents(self, run: LaneRun, below: list):
        """The carries of a run's first row, from those behind the last rows of the runs before."""
        numbers = sorted({number for number, _ in run.parents})
        first = dict(zip(numbers, np.cumsum([0, *(self.runs[n].width for n in numbers)]).tolist(), strict=False))
        index = tuple(first[number] + lane for number, lane in run.parents)
        return jax.tree.map(lambda *rows: _gather(_joined(rows), index), *(below[number] for number in numbers))

    def _from_children(self, number: int, numbers: list[int], above: dict):
        """The sums that the last row of a run receives from the first rows of the runs `numbers`."""
        parents = tuple(lane if parent == number else None for n in numbers for parent, lane in self.runs[n].parents)
        total = partial(_sum_children, parents=parents, width=self.runs[number].width)
        return jax.tree.map(lambda *rows: total(_joined(rows)), *(above[n] for n in numbers))

    def _constants(self, values, run: LaneRun):
        """The same small arrays in every lane of a run."""
        return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, self.dtype), (run.width, *np.shape(x))), values)


def _run(run: LaneRun, step: Callable, carry, data: list, reverse: bool):
    """All levels of one run. Returns the carry behind the last level and the outputs."""
    # A lane whose chain has ended computes on, but must not push on its parent.
    alive = run.alive if reverse and not run.alive.all() else None

    def level(carry, inputs):
        alive, data = inputs
        carry, out = step(carry, *data)
        return _silenced(carry, alive), out

    unroll = max(2, run.length) if run.length <= LONGEST else 1  # kernels write out what has unroll > 1
    return lax.scan(level, carry, (alive, data), run.length, reverse, unroll)


def _silenced(tree, alive):
    """Zero in the lanes that have ended; alive None: none has."""
    if alive is None:
        return tree
    return jax.tree.map(lambda x: jnp.where(alive.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.zeros_like(x)), tree)


def _joined(rows) -> jax.Array:
    return jnp.concatenate(rows) if len(rows) > 1 else rows[0]


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
