"""Two ways to execute a body step on all lanes of a level, and the blocks of data that they work on.

NumPy arrays among the data are constants of the program: where all lanes of all levels agree, the scalarized step
folds them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.execution.scalars.graph import View
from lgjax.execution.scalars.interpreter import Block, is_known
from lgjax.execution.scan import lane_scan
from lgjax.execution.step import scalarized

Execution = Literal["scalarized", "plain", "scan"]


@dataclass(frozen=True)
class Executor:
    """One way to run a body step on lanes.

    scan(body, carry, xs, length, reverse) as `lax.scan`. mapped(step) -> the step on Blocks.
    lift(array, lane_axes=2) -> Block, of state; lift_parameters(array) -> Block, of a model's.
    lower(block, lanes) -> the array. constant(value, width, dtype) -> Block, the same value in all lanes of a level.
    """

    scan: Callable[..., Any]
    mapped: Callable[[Callable], Callable]
    lift: Callable[..., Block]
    lift_parameters: Callable[..., Block]
    lower: Callable[..., Any]
    constant: Callable[..., Block]


# ---- plain: a block is one array whose first axis is the lane, and the step is mapped over it
def _whole(array, lane_axes: int = 2) -> Block:
    entries = np.empty((), object)
    entries[()] = jnp.asarray(array)
    return Block(entries, array.dtype)


def _array(block: Block, lanes):
    return as_array(block.entries[()], lanes, block.dtype)


def _repeated(value, width: int, dtype) -> Block:
    value = jnp.asarray(value, dtype)
    return _whole(jnp.broadcast_to(value, (width, *value.shape)))


def _vmapped(step: Callable) -> Callable:
    def run(*args):
        out = jax.vmap(step)(*jax.tree.map(lambda block: _array(block, ()), args))
        return jax.tree.map(_whole, out)

    return run


PLAIN = Executor(scan=lax.scan, mapped=_vmapped, lift=_whole, lift_parameters=_whole, lower=_array, constant=_repeated)


# ---- scalarized: a block has one entry per scalar, an array of lanes or a number known at trace time
def _scalars(array, lane_axes: int = 2) -> Block:
    """State: every scalar becomes an array of its own, contiguous under a batch."""
    lanes, shape = array.shape[:lane_axes], array.shape[lane_axes:]
    flat = array.reshape(*lanes, -1)
    if isinstance(array, np.ndarray):
        return Block(_entries(shape, lambda k: _folded(flat[..., k])), array.dtype)
    return Block(_entries(shape, lambda k: flat[..., k]), array.dtype)


def _folded(lanes: np.ndarray):
    """The number that a constant is in all lanes, or the array."""
    return lanes.flat[0].item() if (lanes == lanes.flat[0]).all() else jnp.asarray(lanes)


def _views(array) -> Block:
    """Parameters, which are seldom batched: the scalars of an array stay together until they are used."""
    if isinstance(array, np.ndarray):
        return _known_views(array)
    stack = array.reshape(*array.shape[:2], -1)
    return Block(_entries(array.shape[2:], lambda k: View(stack, k)), array.dtype)


def _known_views(array: np.ndarray) -> Block:
    """Numbers where the lanes agree, entries of one array for the others."""
    columns = np.moveaxis(array.reshape(*array.shape[:2], -1), 2, 0)
    known = [(column == column.flat[0]).all() for column in columns]
    stack = jnp.asarray(np.moveaxis(columns[np.logical_not(known)], 0, -1))
    places = np.cumsum(np.logical_not(known)) - 1
    entry = lambda k: columns[k].flat[0].item() if known[k] else View(stack, int(places[k]))
    return Block(_entries(array.shape[2:], entry), array.dtype)


def _stacked(block: Block, lanes) -> jax.Array:
    arrays = [as_array(x, lanes, block.dtype) for x in block.entries.flat]
    return jnp.stack(arrays, -1).reshape(*lanes, *block.entries.shape)


def _numbers(value, width: int, dtype) -> Block:
    if isinstance(value, jax.Array):
        return _scalars(jnp.broadcast_to(value, (width, *value.shape)), 1)
    flat = np.ravel(np.asarray(value, float)).tolist()
    return Block(_entries(np.shape(value), lambda k: flat[k]), dtype)


SCALARIZED = Executor(
    scan=lane_scan, mapped=scalarized, lift=_scalars, lift_parameters=_views, lower=_stacked, constant=_numbers
)

EXECUTORS: dict[str, Executor] = {"scalarized": SCALARIZED, "scan": SCALARIZED, "plain": PLAIN}


def side_by_side(executor: Executor, step: Callable, *data):
    """A step on small arrays, applied to each row of a pytree of arrays; the results as rows of arrays."""
    rows = len(jax.tree.leaves(data)[0])
    out = executor.mapped(step)(*jax.tree.map(lambda x: executor.lift(x, 1), data))
    return jax.tree.map(lambda block: executor.lower(block, (rows,)), out)


# ---- blocks
def _entries(shape, entry: Callable[[int], Any]) -> np.ndarray:
    out = np.empty(shape, object)
    for k, index in enumerate(np.ndindex(*shape)):
        out[index] = entry(k)
    return out


def as_array(entry, shape, dtype):
    if isinstance(entry, View):
        return entry.value()
    return jnp.full(shape, entry, dtype) if is_known(entry) else entry


def map_entries(f: Callable, tree):
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

    return map_blocks(one, tree)


def map_blocks(f: Callable, tree):
    """The same tree of blocks with f applied to every entry."""
    return jax.tree.map(
        lambda block: Block(_entries(block.entries.shape, lambda k: f(block.entries.flat[k])), block.dtype), tree
    )


def pack(tree) -> tuple[list[jax.Array], Callable]:
    """The arrays in a tree of blocks, and the function that puts other arrays in their places."""
    arrays: list[jax.Array] = []
    map_entries(arrays.append, tree)

    def unpack(values):
        stream = iter(values)
        return map_entries(lambda _: next(stream), tree)

    return arrays, unpack


def full(tree, width: int) -> list[jax.Array]:
    """All entries of a tree of blocks as arrays over the lanes, as a scan needs its carry."""
    return [as_array(x, (width,), block.dtype) for block in jax.tree.leaves(tree) for x in block.entries.flat]


def refill(tree, values):
    """The same tree of blocks with the entries taken from `values`, in the order of `full`."""
    stream = iter(values)
    return map_blocks(lambda _: next(stream), tree)


def lanes_together(trees: list, widths: list[int], take: Callable):
    """The tree whose entries are `take` of those of all trees, side by side: `widths` lanes each. Zeros stay zeros."""
    leaves = [jax.tree.leaves(tree) for tree in trees]
    dtypes = [block.dtype for block in leaves[0] for _ in block.entries.flat]
    columns = zip(*([x for block in blocks for x in block.entries.flat] for blocks in leaves), strict=True)
    once = jax.jit(lambda rows: take(jnp.concatenate(rows) if len(rows) > 1 else rows[0]))  # traced once for all

    def one(column, dtype):
        if all(is_known(x) and x == 0 for x in column):
            return 0.0
        arrays = [x.value() if isinstance(x, View) else x for x in column]
        tail = next((x.shape[1:] for x in arrays if not is_known(x)), ())
        return once([as_array(x, (width, *tail), dtype) for x, width in zip(arrays, widths, strict=True)])

    return refill(trees[0], map(one, columns, dtypes))
