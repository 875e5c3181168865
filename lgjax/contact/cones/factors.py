"""Delassus' operator by the factors that it is made of, for derivatives.

The derivative of G x goes through the factors, as x goes: with respect to the entries of G it would hold a matrix as
large as G for every product with it. Next: `law.py`.
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
    """G = sum Y^T diag(d) Y - W^T C W.

    y: Y (m, k) of each part. d: (m,) of each. held: W (l, n) and C (l, l), or None. at: the rows (k) of G to which the
    columns of each Y belong; static. count: n.
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
            if G is None and len(at) == self.count:  # it has all rows, as of forces on one tree
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
        """(n,) of G."""
        found = jnp.zeros(self.count, self.y[0].dtype)
        for y, d, at in self._parts:
            found = found.at[at].add(jnp.sum(d[:, None] * y * y, 0), unique_indices=True)
        if self.held is None:
            return found
        W, inverse = self.held
        return found - jnp.sum(W * product(inverse.T, W), 0)

    def between(self, rows: Sequence[int]) -> "Factors":
        """Those of some rows and columns of G."""
        place = {row: n for n, row in enumerate(rows)}
        chosen = [[n for n, row in enumerate(at) if row in place] for at in self.at]
        y = [y[:, np.asarray(own, int)] for y, own in zip(self.y, chosen, strict=True)]
        at = tuple(tuple(place[at[n]] for n in own) for at, own in zip(self.at, chosen, strict=True))
        held = None if self.held is None else (self.held[0][:, np.asarray(rows, int)], self.held[1])
        return replace(self, y=y, held=held, at=at, count=len(rows))


def times(G: Array | BlockMatrix, factors: Factors | None, x: Array) -> Array:
    """G x (n,). With factors, derivatives go through them, and G is a constant."""
    return algebra.times(G, x) if factors is None else _times(G, factors, x)


def diagonal_of(G: Array | BlockMatrix, factors: Factors | None) -> Array:
    """The diagonal (n,) of G, with derivatives as `times` has them."""
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
