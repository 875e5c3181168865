"""Delassus' matrix G = J M^-1 J^T as a sum of products of thin matrices. Next: `law.py`."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

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
                G = _square(y[:, np.argsort(at)], d)
                continue
            G = jnp.zeros((self.count, self.count), y.dtype) if G is None else G
            G = G.at[np.ix_(at, at)].add(_square(y, d), unique_indices=True)
        assert G is not None
        if self.held is None:
            return G
        W, inverse = self.held
        return G - product(W.T, product(inverse.T, W))

    def diagonal(self) -> Array:
        """The diagonal (n,) of G."""
        found = jnp.zeros(self.count, self.y[0].dtype)
        for y, d, at in self._parts:
            found = found.at[at].add(jnp.sum(d[:, None] * y * y, 0), unique_indices=True)
        if self.held is None:
            return found
        W, inverse = self.held
        return found - jnp.sum(W * product(inverse.T, W), 0)


def _square(y: Array, d: Array) -> Array:
    """Y^T diag(d) Y as F^T F. Kernels compute the same sums on both sides of the diagonal once."""
    F = jnp.sqrt(d)[:, None] * y
    return product(F.T, F)
