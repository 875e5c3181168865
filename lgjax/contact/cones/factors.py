"""Delassus' operator G = J M^-1 J^T as a sum of factors, through which its derivatives go.

The solver works with the entries of G, a dense matrix. Their derivative in reverse mode would be an n x n matrix for
each product G x. So `times` and `diagonal_of` take the value from G and the derivative from `Factors`, whose product
with x takes a few products of thin matrices with vectors. Next: `law.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones import algebra
from lgjax.contact.cones.blocks import BlockMatrix
from lgjax.numerics.rank import product

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Factors:
    """G = sum_s Y_s^T diag(d_s) Y_s - W^T C W, a term for each segment s of the tree, see `responses.py`.

    y: Y_s (m, k), joint forces that unit impulses cause at the m velocities of a segment. d: d_s (m,) = 1/D. at: the k
    rows of G to which the columns of each Y_s belong; static. held: W (l, n) and C (l, l) of loops and implicit forces,
    which oppose the impulses, or None. count: n.
    """

    y: list[Array]
    d: list[Array]
    held: tuple[Array, Array] | None
    at: tuple[tuple[int, ...], ...] = field(metadata={"static": True})
    count: int = field(metadata={"static": True})

    @property
    def _parts(self) -> list[tuple[Array, Array, np.ndarray]]:
        return [(y, d, np.asarray(at, int)) for y, d, at in zip(self.y, self.d, self.at, strict=True)]

    def matrix(self) -> Array:
        """G (n, n)."""
        G = None
        for y, d, at in reversed(self._parts):
            if G is None and len(at) == self.count:  # it has all rows, as where all forces act on one tree
                y, d, at = y[:, np.argsort(at)], d, np.arange(self.count)
                G = product((d[:, None] * y).T, y)
                continue
            G = jnp.zeros((self.count, self.count), y.dtype) if G is None else G
            G = G.at[np.ix_(at, at)].add(product((d[:, None] * y).T, y), unique_indices=True)
        assert G is not None
        if self.held is None:
            return G
        W, inverse = self.held
        return G - product(W.T, product(inverse.T, W))

    def times(self, x: Array) -> Array:
        """G x (n,)."""
        found = jnp.zeros_like(x)
        for y, d, at in self._parts:
            found = found.at[at].add(product(y.T, d * product(y, x[at])), unique_indices=True)
        if self.held is None:
            return found
        W, inverse = self.held
        return found - product(W.T, product(inverse.T, product(W, x)))

    def diagonal(self) -> Array:
        """The diagonal (n,) of G."""
        found = jnp.zeros(self.count, self.y[0].dtype)
        for y, d, at in self._parts:
            found = found.at[at].add(jnp.sum(d[:, None] * y * y, 0), unique_indices=True)
        if self.held is None:
            return found
        W, inverse = self.held
        return found - jnp.sum(W * product(inverse.T, W), 0)

    def between(self, rows: Sequence[int]) -> "Factors":
        """The factors of the submatrix of G with some rows and columns."""
        place = {row: n for n, row in enumerate(rows)}
        chosen = [[n for n, row in enumerate(at) if row in place] for at in self.at]
        y = [y[:, np.asarray(own, int)] for y, own in zip(self.y, chosen, strict=True)]
        at = tuple(tuple(place[at[n]] for n in own) for at, own in zip(self.at, chosen, strict=True))
        held = None if self.held is None else (self.held[0][:, np.asarray(rows, int)], self.held[1])
        return replace(self, y=y, held=held, at=at, count=len(rows))


def times(G: Array | BlockMatrix, factors: Factors | None, x: Array) -> Array:
    """G x (n,). If factors are given, they have the derivatives, and G is a constant."""
    return algebra.times(G, x) if factors is None else _times(G, factors, x)


def diagonal_of(G: Array | BlockMatrix, factors: Factors | None) -> Array:
    """The diagonal (n,) of G, with the same derivatives as `times`."""
    return _diagonal(G, factors) if factors is not None else algebra.diagonal(G)


@jax.custom_jvp
def _times(G: Array, factors: Factors, x: Array) -> Array:
    return product(G, x)


@_times.defjvp
def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
    along = jax.jvp(lambda factors, x: factors.times(x), primals[1:], tangents[1:])[1]
    return _times(*primals), along


@jax.custom_jvp
def _diagonal(G: Array, factors: Factors) -> Array:
    return algebra.diagonal(G)


@_diagonal.defjvp
def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _diagonal(*primals), jax.jvp(lambda factors: factors.diagonal(), primals[1:], tangents[1:])[1]
