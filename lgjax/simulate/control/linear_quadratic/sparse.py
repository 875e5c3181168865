"""Matrices of which most entries are known numbers, as those of a step from accelerations are, and products with them.

Read first: `algebra.py`. Arrays may have any axes behind those that are named.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.simulate.control.linear_quadratic.algebra import times, transposed

Array = jax.Array


@dataclass(frozen=True, eq=False)
class Pattern:
    """Known numbers (rows, columns), NumPy, zero in the boxes, and the first row and column of each box."""

    known: np.ndarray
    corners: tuple[tuple[int, int], ...] = ()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sparse:
    """A matrix (rows, columns): known numbers and dense boxes (its rows, its columns, ...)."""

    boxes: list[Array]
    pattern: Pattern = field(metadata={"static": True})

    def with_rows(self, change: Callable[[Array], Array]) -> "Sparse":
        """The matrix after `change`, a linear map of columns (rows, k).

        It may mix the rows of a box among themselves, and leaves all other rows alone.
        """
        rows = len(self.pattern.known)

        def changed(box: Array, row: int) -> Array:
            whole = jnp.zeros((rows, box.shape[1]), box.dtype).at[row : row + len(box)].set(box)
            return change(whole)[row : row + len(box)]

        return Sparse([changed(box, row) for box, (row, _) in zip(self.boxes, self.pattern.corners, strict=True)],
                      self.pattern)  # fmt: skip

    def dense(self, shape: Sequence[int] = ()) -> Array:
        """The array; shape: of the axes behind."""
        known = self.pattern.known
        out = jnp.asarray(known).reshape(*known.shape, *[1] * len(shape))
        out = jnp.broadcast_to(out, (*known.shape, *shape))
        for box, (row, column) in zip(self.boxes, self.pattern.corners, strict=True):
            out = out.at[row : row + len(box), column : column + box.shape[1]].set(box)
        return out

    def transposed(self) -> "Sparse":
        pattern = Pattern(self.pattern.known.T, tuple((column, row) for row, column in self.pattern.corners))
        return Sparse([transposed(box) for box in self.boxes], pattern)


Matrix = Array | Sparse


def dense(matrix: Matrix, shape: Sequence[int] = ()) -> Array:
    """The array; shape: of the axes behind."""
    return matrix.dense(shape) if isinstance(matrix, Sparse) else matrix


def after(x: Array, matrix: Matrix) -> Array:
    """x matrix."""
    if not isinstance(matrix, Sparse):
        return times(x, matrix)
    return _summed(matrix, x, 1, lambda rows, box: times(rows, box))


def before(matrix: Matrix, x: Array) -> Array:
    """matrix^T x."""
    if not isinstance(matrix, Sparse):
        return times(transposed(matrix), x)
    return _summed(matrix, x, 0, lambda rows, box: times(transposed(box), rows))


def applied(matrix: Matrix, x: Array) -> Array:
    """matrix x, for x (columns, ...)."""
    return before(matrix.transposed(), x) if isinstance(matrix, Sparse) else times(matrix, x)


def _summed(matrix: Sparse, x: Array, axis: int, product: Callable[[Array, Array], Array]) -> Array:
    """Columns of the matrix side by side along an axis of the result, each a sum of slices of x and products."""
    cut = lambda start, stop: jax.lax.slice_in_dim(x, start, stop, axis=axis)
    parts = []
    for start, stop, terms in _runs(matrix):
        summands = [cut(k, k + stop - start) * jnp.asarray(number, x.dtype) for k, number in terms]
        for box, (row, column) in zip(matrix.boxes, matrix.pattern.corners, strict=True):
            if column <= start < column + box.shape[1]:
                summands.append(product(cut(row, row + len(box)), box[:, start - column : stop - column]))
        zero = jnp.zeros((*x.shape[:axis], stop - start, *x.shape[axis + 1 :]), x.dtype)
        parts.append(sum(summands[1:], summands[0]) if summands else zero)
    return jnp.concatenate(parts, axis)


def _runs(matrix: Sparse) -> list[tuple[int, int, tuple]]:
    """(first column, last + 1, ((row in the first column, number), ...)) of columns with the same numbers, shifted.

    None begins or ends within a box.
    """
    known, places = matrix.pattern.known, zip(matrix.boxes, matrix.pattern.corners, strict=True)
    borders = {edge for box, (_, column) in places for edge in (column, column + box.shape[1])}
    runs: list = []
    for j, column in enumerate(known.T):
        terms = tuple((int(k), float(column[k])) for k in np.flatnonzero(column))
        if runs and j not in borders:
            start, _, first = runs[-1]
            if tuple((k + j - start, number) for k, number in first) == terms:
                runs[-1] = (start, j + 1, first)
                continue
        runs.append((j, j + 1, terms))
    return runs
