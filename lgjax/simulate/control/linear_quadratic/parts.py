"""Parts of a linear-quadratic problem that nothing couples, such as robots that stand side by side.

Each part is solved with matrices of its own size. Read first: `sparse.py`. Next: `riccati.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.simulate.control.linear_quadratic.sparse import Columns, Diagonal, Matrix, Pattern, Sparse, dense

Array = jax.Array


class Part(NamedTuple):
    """Which tangents of the state and which controls, in rising order; factors of the cost have a row per control."""

    states: tuple[int, ...]
    controls: tuple[int, ...]


def connected(count: int, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """The numbers below `count` in sets, in rising order: those of a group are in the same set."""
    of = list(range(count))
    for group in groups:
        joined = {of[k] for k in group}
        of = [min(joined) if k in joined else k for k in of]
    return [[k for k in range(count) if of[k] == first] for first in sorted(set(of))]


def cut(x: Array, axis: int, index: Sequence[int]) -> Array:
    """The entries `index` along an axis."""
    pieces = [jax.lax.slice_in_dim(x, start, stop, axis=axis) for start, stop in _runs(index)]
    return pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces, axis)


def block(matrix: Matrix | Diagonal, rows: Sequence[int], columns: Sequence[int]) -> Matrix | Diagonal:
    """The entries of a matrix in these rows and columns; boxes of sparse ones are in them or outside altogether.

    Of a `Diagonal`, rows and columns are the same.
    """
    if isinstance(matrix, Diagonal):
        among = [(box, list(rows).index(k)) for box, k in zip(matrix.boxes, matrix.starts, strict=True) if k in rows]
        return Diagonal(cut(matrix.numbers, 0, rows), tuple(box for box, _ in among), tuple(k for _, k in among))
    if not isinstance(matrix, Sparse):
        return cut(cut(dense(matrix), 0, rows), 1, columns)
    places = zip(matrix.boxes, matrix.pattern.corners, strict=True)
    inside = [(box, row, column) for box, (row, column) in places if row in rows and column in columns]
    corners = tuple((list(rows).index(row), list(columns).index(column)) for _, row, column in inside)
    return Sparse([box for box, _, _ in inside], Pattern(matrix.pattern.known[np.ix_(rows, columns)], corners))


def columns_of(columns: Columns, part: Part) -> Columns:
    """Columns of the part's own matrix, in which those of its controls follow each other."""
    start = part.states.index(columns.start + part.controls[0])
    return replace(columns, start=start, stop=start + len(part.controls))


def spread(x: Array, axis: int, index: Sequence[int], count: int) -> Array:
    """The inverse of `cut`: zeros, with x at the entries `index` of `count` along an axis."""
    zeros = lambda many: jnp.zeros((*x.shape[:axis], many, *x.shape[axis + 1 :]), x.dtype)
    pieces, place, done = [], 0, 0
    for start, stop in _runs(index):
        pieces += [zeros(start - place)] if start > place else []
        pieces.append(jax.lax.slice_in_dim(x, done, done + stop - start, axis=axis))
        place, done = stop, done + stop - start
    return jnp.concatenate([*pieces, zeros(count - place)] if count > place else pieces, axis)


def together(pieces: Sequence[Array], indices: Sequence[Sequence[int]]) -> Array:
    """Rows of all parts in one array, in the order of their indices."""
    order = np.argsort([k for index in indices for k in index], kind="stable")
    return cut(jnp.concatenate(pieces), 0, order.tolist())


def _runs(index: Sequence[int]) -> list[tuple[int, int]]:
    """(first, last + 1) of the stretches in which numbers follow each other."""
    found: list[tuple[int, int]] = []
    for k in index:
        if found and found[-1][1] == k:
            found[-1] = (found[-1][0], k + 1)
        else:
            found.append((k, k + 1))
    return found
