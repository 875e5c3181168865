"""Matrices of which most entries are known numbers, as those of a step from accelerations are, and products with them.

Next: `riccati.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from lgjax.numerics.rank import product

Array = jax.Array


@dataclass(frozen=True, eq=False)
class Pattern:
    """Known numbers (rows, columns), NumPy, zero in the boxes, and the first row and column of each box."""

    known: np.ndarray
    corners: tuple[tuple[int, int], ...] = ()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sparse:
    """A matrix (rows, columns): known numbers and dense boxes (its rows, its columns)."""

    boxes: list[Array]
    pattern: Pattern = field(metadata={"static": True})

    def with_rows(self, change: Callable[[Array], Array]) -> "Sparse":
        """The matrix after `change`, a linear map of columns (rows, k).

        It may mix the rows of a box among themselves, and leaves all other rows alone.
        """
        if not self.boxes:
            return self
        rows, corners = len(self.pattern.known), self.pattern.corners
        padded = [jnp.pad(x, ((k, rows - k - len(x)), (0, 0))) for x, (k, _) in zip(self.boxes, corners, strict=True)]
        whole = change(jnp.concatenate(padded, 1))
        columns = np.cumsum([0, *(x.shape[1] for x in self.boxes)])
        found = [whole[k : k + len(x), i : i + x.shape[1]] for x, (k, _), i in zip(self.boxes, corners, columns)]
        return Sparse(found, self.pattern)

    def dense(self) -> Array:
        """The array."""
        out = jnp.asarray(self.pattern.known)
        for box, (row, column) in zip(self.boxes, self.pattern.corners, strict=True):
            out = out.at[row : row + len(box), column : column + box.shape[1]].set(box)
        return out

    def transposed(self) -> "Sparse":
        pattern = Pattern(self.pattern.known.T, tuple((column, row) for row, column in self.pattern.corners))
        return Sparse([box.T for box in self.boxes], pattern)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Combined:
    """A matrix E + G W of known E (rows, columns) and G (rows, k), and rows W (k, columns) that are not known.

    Such is that of a semi-implicit step, whose configuration follows from its velocity. Products with it need half the
    work of those with the array.
    """

    rows: Array
    known: Pattern = field(metadata={"static": True})
    combine: Pattern = field(metadata={"static": True})

    def dense(self) -> Array:
        """The array."""
        return jnp.asarray(self.known.known) + applied(Sparse([], self.combine), self.rows)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Diagonal:
    """A symmetric matrix: a diagonal (n,), to which dense boxes along it are added."""

    __array_ufunc__ = None  # sums with NumPy arrays are those below
    numbers: Array
    boxes: tuple[Array, ...] = ()
    starts: tuple[int, ...] = field(default=(), metadata={"static": True})

    def __add__(self, other: "Diagonal | Array") -> "Diagonal | Array":
        if not isinstance(other, Diagonal):
            return self.dense() + other
        return Diagonal(self.numbers + other.numbers, self.boxes + other.boxes, self.starts + other.starts)

    __radd__ = __add__

    def __mul__(self, factor: ArrayLike) -> "Diagonal":
        return Diagonal(self.numbers * factor, tuple(box * factor for box in self.boxes), self.starts)

    def dense(self) -> Array:
        """The array."""
        n = len(self.numbers)
        out = jnp.where(np.eye(n, dtype=bool), self.numbers, 0)
        for box, start in zip(self.boxes, self.starts, strict=True):
            around = (start, n - start - len(box))
            out = out + jnp.pad(box, (around, around))
        return out


Matrix = Array | Sparse | Combined


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Columns:
    """A matrix that is `factor` times the columns from `start` to `stop` of another."""

    factor: float = field(metadata={"static": True})
    start: int = field(metadata={"static": True})
    stop: int = field(metadata={"static": True})

    def of(self, x: Array, axis: int) -> Array:
        """`factor` times these rows or columns of x, a product of the other matrix or that matrix itself."""
        return jnp.asarray(self.factor, x.dtype) * jax.lax.slice_in_dim(x, self.start, self.stop, axis=axis)


def dense(matrix: Matrix | Diagonal) -> Array:
    """The array."""
    return matrix.dense() if isinstance(matrix, Diagonal | Sparse | Combined) else matrix


def of_other(A: Array, B: Matrix | Columns) -> Array:
    """B as an array; `Columns` are those of A."""
    return B.of(A, 1) if isinstance(B, Columns) else dense(B)


def after(x: Array, matrix: Matrix) -> Array:
    """x matrix."""
    if isinstance(matrix, Combined):
        through = product(after(x, Sparse([], matrix.combine)), matrix.rows)
        return after(x, Sparse([], matrix.known)) + through
    if not isinstance(matrix, Sparse):
        return product(x, matrix)
    return _summed(matrix, x, 1, product)


def before(matrix: Matrix, x: Array) -> Array:
    """matrix^T x."""
    if isinstance(matrix, Combined):
        through = product(matrix.rows.T, before(Sparse([], matrix.combine), x))
        return before(Sparse([], matrix.known), x) + through
    if not isinstance(matrix, Sparse):
        return product(matrix.T, x)
    return _summed(matrix, x, 0, lambda rows, box: product(box.T, rows))


def applied(matrix: Matrix, x: Array) -> Array:
    """matrix x."""
    if isinstance(matrix, Combined):
        return applied(Sparse([], matrix.known), x) + applied(Sparse([], matrix.combine), product(matrix.rows, x))
    return before(matrix.transposed(), x) if isinstance(matrix, Sparse) else product(matrix, x)


def before_both(A: Matrix, B: Matrix | Columns, x: Array) -> tuple[Array, Array]:
    """A^T x and B^T x; Columns are those of A."""
    first = before(A, x)
    return first, B.of(first, 0) if isinstance(B, Columns) else before(B, x)


def moved(A: Matrix, B: Matrix | Columns, x: Array, u: Array) -> Array:
    """A x + B u; Columns are those of A."""
    if not isinstance(B, Columns):
        return applied(A, x) + applied(B, u)
    there = slice(B.start, B.stop)
    return applied(A, x.at[there].add(jnp.asarray(B.factor, u.dtype) * u))


def _summed(matrix: Sparse, x: Array, axis: int, multiplied: Callable[[Array, Array], Array]) -> Array:
    """Columns of the matrix side by side along an axis of the result, each a sum of slices of x and products."""
    cut = lambda start, stop: jax.lax.slice_in_dim(x, start, stop, axis=axis)
    parts = []
    for start, stop, terms in _runs(matrix):
        summands = [cut(k, k + stop - start) * jnp.asarray(number, x.dtype) for k, number in terms]
        for box, (row, column) in zip(matrix.boxes, matrix.pattern.corners, strict=True):
            if column <= start < column + box.shape[1]:
                summands.append(multiplied(cut(row, row + len(box)), box[:, start - column : stop - column]))
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
