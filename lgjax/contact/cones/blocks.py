"""Delassus' matrix of many bodies, as a product: G = F^T F + ridge, where a contact is felt by few velocities.

Velocities are in blocks of six: a free body is one, a tree has several. A column of F has entries in the blocks on the
ways of the two bodies that touch. So G x costs a few operations for each contact, and a sweep keeps z = F x. The
interior-point steps of `interior.py` solve systems 1 + F K F^T of the velocities, whose blocks are zero where no
contact couples two: `elimination.py`.

Everything goes contact by contact, and past those that do not act. Read first: `law.py`. Next: `solver.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics.loops import only_if
from lgjax.numerics.rank import product

Array = jax.Array

SIZE = 6  # velocities of a block
RUNS = 3  # of columns that are treated alike, at most


@dataclass(frozen=True)
class Pattern:
    """Which blocks feel each contact and each further row, by their numbers; static. blocks: how many there are."""

    contacts: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[int, ...], ...]
    blocks: int

    @property
    def width(self) -> int:
        """The most blocks that feel one contact or row."""
        return max(map(len, (*self.contacts, *self.rows)), default=1)

    def normals(self, rows: int) -> "Pattern":
        """That of the normals of contacts and of the first further rows, all as rows."""
        return Pattern((), (*self.contacts, *self.rows[:rows]), self.blocks)


class Run(NamedTuple):
    """Successive columns of F that as many blocks feel. together: columns of one; first: number of the first.

    places: (m, width), the blocks.
    """

    together: int
    first: int
    places: np.ndarray


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BlockMatrix:
    """G for k contacts and r further rows, n = 3 k + r.

    contacts: (k, 6 w, 3), the columns of F in the blocks of `pattern`, w of them at most. rows: (r, 6 w, 1). ridge:
    (n,). own: (k, 3, 3) and sizes: (r,), the diagonal of G. acts: (k + r,), whether F has anything there; the ridge of
    what does not act is positive. shares: whether contacts share loads.
    """

    contacts: Array
    rows: Array
    ridge: Array
    own: Array
    sizes: Array
    acts: Array
    pattern: Pattern = field(metadata={"static": True})
    shares: bool = field(metadata={"static": True}, default=False)

    @classmethod
    def of(cls, contacts: Array, rows: Array, acts: Array, pattern: Pattern, shares: bool) -> "BlockMatrix":
        """The matrix of columns, with a ridge where nothing acts, of the mean of the others."""
        k, r = len(contacts), len(rows)
        blocks = jax.lax.map(lambda x: product(x.T, x), contacts) if k else jnp.zeros((0, 3, 3), contacts.dtype)
        sizes = jnp.sum(rows * rows, (1, 2))
        found = cls(contacts, rows, jnp.zeros(3 * k + r, sizes.dtype), blocks, sizes, acts, pattern, shares)
        own = found.diagonal()
        count, one = jnp.sum((own > 0).astype(own.dtype)), jnp.ones((), own.dtype)
        mean = jnp.where(count > 0, jnp.sum(own) / jnp.maximum(count, one), one)
        spread = jnp.concatenate([jnp.repeat(acts[:k], 3), acts[k:]])
        return found.plus(jnp.where(spread, jnp.zeros_like(own), mean))

    @property
    def dtype(self):
        return self.ridge.dtype

    def diagonal(self) -> Array:
        """(n,)."""
        own = self.own
        return jnp.concatenate([jnp.stack([own[:, i, i] for i in range(3)], 1).reshape(-1), self.sizes])

    def plus(self, d: Array) -> "BlockMatrix":
        """With d (n,) added to the diagonal."""
        k = len(self.contacts)
        own = self.own + d[: 3 * k].reshape(k, 3, 1) * jnp.eye(3, dtype=d.dtype)
        return replace(self, ridge=self.ridge + d, own=own, sizes=self.sizes + d[3 * k :])

    def normals(self, rows: int) -> "BlockMatrix":
        """That of the normals of contacts and of the first further rows, all as rows."""
        k = len(self.contacts)
        joined = lambda contacts, others: jnp.concatenate([contacts, others[:rows]])
        return BlockMatrix(
            self.contacts[:0],
            joined(self.contacts[:, :, :1], self.rows),
            joined(self.ridge[: 3 * k : 3], self.ridge[3 * k :]),
            self.own[:0],
            joined(self.own[:, 0, 0], self.sizes),
            joined(self.acts[:k], self.acts[k:]),
            self.pattern.normals(rows),
        )

    def runs(self) -> Iterator[tuple[Run, Array]]:
        """The runs of columns, and the array that has their entries: of contacts, then of rows."""
        for places, count, values in ((self.pattern.contacts, 3, self.contacts), (self.pattern.rows, 1, self.rows)):
            for first, length, width in alike(list(map(len, places))):
                own = [[*x, *[self.pattern.blocks] * (width - len(x))] for x in places[first : first + length]]
                yield Run(count, first, np.array(own, np.int32)), values

    def times(self, x: Array) -> Array:
        """G x (n,)."""
        return self.rates(self.spread(x)) + self.ridge * x

    def spread(self, x: Array) -> Array:
        """z = F x (6 (blocks + 1),), the last block of no meaning."""

        def add(run: Run, values, i, z):
            part = jax.lax.dynamic_slice_in_dim(x, self.offset(run, run.first + i), run.together)
            return added(z, run, i, [product(F, part) for F in columns(values, run, i)])

        return self.by_contacts(add, jnp.zeros(SIZE * (self.pattern.blocks + 1), x.dtype))

    def rates(self, z: Array) -> Array:
        """F^T z (n,)."""

        def put(run: Run, values, i, u):
            found = felt(z, run, i, columns(values, run, i))
            return jax.lax.dynamic_update_slice_in_dim(u, found, self.offset(run, run.first + i), 0)

        return self.by_contacts(put, jnp.zeros_like(self.ridge))

    def offset(self, run: Run, i):
        """Number of the first row of contact i, or that of row i."""
        return 3 * i if run.together == 3 else 3 * len(self.contacts) + i

    def acting(self, run: Run, i):
        """Whether contact or row i of a run acts, ()."""
        first = run.first + (0 if run.together == 3 else len(self.contacts))
        return jax.lax.dynamic_index_in_dim(self.acts, first + i, keepdims=False)

    def by_contacts(self, visit: Callable, state):
        """The state after visit(run, values, i, state) of all columns that act, one contact after the other."""
        for run, values in self.runs():

            def turn(i, state, run=run, values=values):
                return only_if(self.acting(run, i), lambda state: visit(run, values, i, state), state)

            state = jax.lax.fori_loop(0, len(run.places), turn, state)
        return state


def alike(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Successive equal numbers: of the first, how many, and the number; all with the largest where there are many."""
    cuts = [0, *(k for k in range(1, len(sizes)) if sizes[k] != sizes[k - 1]), len(sizes)]
    cuts = cuts if len(cuts) <= 1 + RUNS else [0, len(sizes)]
    return [(a, b - a, max(sizes[a:b])) for a, b in pairwise(cuts) if a < b]


def columns(values: Array, run: Run, i) -> list[Array]:
    """The entries (6, count) of columns i of a run, for each of its blocks."""
    width = run.places.shape[1]
    part = lambda b: jax.lax.dynamic_slice(values, (run.first + i, SIZE * b, 0), (1, SIZE, run.together))
    return [part(b)[0] for b in range(width)]


def _start(run: Run, i, b: int) -> Array:
    """Where block b of column i begins in z."""
    return jnp.asarray(SIZE * run.places[:, b])[i]


def felt(z: Array, run: Run, i, own: list[Array]) -> Array:
    """F^T z (count,) of columns i of a run, with the entries `own`."""
    parts = [product(F.T, jax.lax.dynamic_slice_in_dim(z, _start(run, i, b), SIZE)) for b, F in enumerate(own)]
    return sum(parts[1:], parts[0])


def added(z: Array, run: Run, i, changes: list[Array]) -> Array:
    """z with changes (6,) of the blocks of column i."""
    starts = [_start(run, i, b) for b in range(len(changes))]
    # All are read before anything is written, so that a loop writes them in place.
    new = [jax.lax.dynamic_slice_in_dim(z, at, SIZE) + change for at, change in zip(starts, changes, strict=True)]
    for at, part in zip(starts, new, strict=True):
        z = jax.lax.dynamic_update_slice_in_dim(z, part, at, 0)
    return z


def sweep(G: BlockMatrix, contact: Callable, row: Callable, x: Array) -> tuple[Array, Array]:
    """Impulses (n,), one contact after the other, each with the latest of the others; and their change (), m/s.

    contact(i, u, own), row(j, u, own): the impulses of one and their change, from its velocities u without b, its
    impulses and its number.
    """
    visit = (contact, row)

    def one(run: Run, values, i, state):
        z, x, change = state
        at = G.offset(run, run.first + i)
        own, F = jax.lax.dynamic_slice_in_dim(x, at, run.together), columns(values, run, i)
        ridge = jax.lax.dynamic_slice_in_dim(G.ridge, at, run.together)
        new = visit[run.together == 1](run.first + i, felt(z, run, i, F) + ridge * own, own)
        moved = new[:-1] - own
        x = jax.lax.dynamic_update_slice_in_dim(x, new[:-1], at, 0)
        return added(z, run, i, [product(part, moved) for part in F]), x, jnp.maximum(change, new[-1])

    _, x, change = G.by_contacts(one, (G.spread(x), x, jnp.zeros_like(x[0])))
    return x, change
