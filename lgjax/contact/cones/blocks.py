"""Delassus' matrix of many bodies as a sparse product G = F^T F + ridge, for sweeps whose time grows with the contacts.

F = D^-1/2 Y has a row for each velocity of the mechanism and three columns for each contact (Y, D: `responses.py`). The
velocities are in blocks of six: a free body is one block, a tree has several. A column of F is zero except in the
blocks on the paths of the two bodies in contact, so only these blocks are stored. Then G x takes a few operations for
each contact, and a Gauss-Seidel sweep updates z = F x after each contact instead of reading a row of G. Interior-point
and Newton steps solve systems with the matrix 1 + F K F^T, which has a block for two velocity blocks only if a contact
couples them: `elimination.py`.

All functions visit one contact after the other and skip those that do not act. Read first: `law.py`. Next:
`solver.py`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics.loops import only_if
from lgjax.numerics.rank import product

Array = jax.Array

SIZE = 6  # velocities of a block
MOST_RUNS = 3  # loops over contacts; with more, all columns are padded to the widest


@dataclass(frozen=True)
class Pattern:
    """Sparsity of F, static: the numbers of the velocity blocks of each contact and of each further row.

    blocks: how many velocity blocks there are.
    """

    contacts: tuple[tuple[int, ...], ...]
    rows: tuple[tuple[int, ...], ...]
    blocks: int

    @property
    def width(self) -> int:
        """The largest number of blocks of a contact or row."""
        return max(map(len, (*self.contacts, *self.rows)), default=1)

    def normals(self, rows: int) -> "Pattern":
        """The pattern of the contact normals and of the first further rows, all as rows."""
        return Pattern((), (*self.contacts, *self.rows[:rows]), self.blocks)


class Run(NamedTuple):
    """Successive contacts, or rows, with equally many blocks: one loop visits them, group by group.

    A group has the same blocks, as the corners of a box on the ground; it is skipped if none of it acts. size: columns
    of F for each contact, 3 or 1. first: number of the first. places: (m, width), the blocks of each group. together:
    contacts in a group. group: the one that is visited, ().
    """

    size: int
    first: int
    places: np.ndarray
    together: int
    group: Any = None

    def of_group(self, table: np.ndarray) -> Array:
        """The whole number in a table (m,) that belongs to the group that is visited."""
        return jnp.asarray(np.asarray(table, np.int32))[self.group]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BlockMatrix:
    """G = F^T F + ridge for k contacts and r further rows, n = 3 k + r.

    contacts: (k, 6 w, 3), the columns of F in the blocks of `pattern`, at most w for each contact. rows: (r, 6 w, 1).
    ridge: (n,). own: (k, 3, 3), the diagonal blocks of G for contacts. sizes: (r,), its diagonal for rows. acts:
    (k + r,) bool, whether a contact or row acts: the others have zero columns and a positive ridge. shares: whether
    contacts can share a load, as the corners of a face do.
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
        """The matrix with these columns. Contacts that do not act get the mean of the diagonal as their ridge."""
        k, r = len(contacts), len(rows)
        blocks, sizes = jnp.zeros((k, 3, 3), contacts.dtype), jnp.sum(rows * rows, (1, 2))
        found = cls(contacts, rows, jnp.zeros(3 * k + r, sizes.dtype), blocks, sizes, acts, pattern, shares)

        def square(run: Run, values, i, blocks):
            parts = [product(F.T, F) for F in columns(values, run, i)]
            return jax.lax.dynamic_update_index_in_dim(blocks, sum(parts[1:], parts[0]), run.first + i, 0)

        found = replace(found, own=found.by_contacts(square, blocks, rows=False))
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
        """The matrix of the contact normals and of the first further rows, all as rows."""
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
        """The runs of contacts, then of rows, each with the array of its columns."""
        for places, count, values in ((self.pattern.contacts, 3, self.contacts), (self.pattern.rows, 1, self.rows)):
            for first, length, width in equal_runs(list(map(len, places))):
                together = _together(own := places[first : first + length])
                padded = [[*x, *[self.pattern.blocks] * (width - len(x))] for x in own[::together]]
                yield Run(count, first, np.array(padded, np.int32), together), values

    def times(self, x: Array) -> Array:
        """G x (n,)."""
        return self.rates(self.spread(x)) + self.ridge * x

    def spread(self, x: Array) -> Array:
        """z = F x (6 (blocks + 1),) of impulses x (n,); the last block takes what is padding."""

        def add(run: Run, values, i, z):
            part = jax.lax.dynamic_slice_in_dim(x, self.offset(run, run.first + i), run.size)
            return scatter_add(z, run, [product(F, part) for F in columns(values, run, i)])

        return self.by_contacts(add, jnp.zeros(SIZE * (self.pattern.blocks + 1), x.dtype))

    def rates(self, z: Array) -> Array:
        """F^T z (n,): velocities at the contacts and rows."""

        def put(run: Run, values, i, u):
            found = rates_of(z, run, columns(values, run, i))
            return jax.lax.dynamic_update_slice_in_dim(u, found, self.offset(run, run.first + i), 0)

        return self.by_contacts(put, jnp.zeros_like(self.ridge))

    def offset(self, run: Run, i):
        """Number of the first row of contact i, or that of row i."""
        return 3 * i if run.size == 3 else 3 * len(self.contacts) + i

    def acting(self, run: Run, i, count: int = 1) -> Array:
        """Whether contacts or rows of a run act, from number i on (count,)."""
        first = run.first + (0 if run.size == 3 else len(self.contacts))
        return jax.lax.dynamic_slice_in_dim(self.acts, first + i, count)

    def by_contacts(self, visit: Callable, state, rows: bool = True):
        """Fold: the state after state = visit(run, values, i, state) for each contact that acts, and row, in order."""
        for run, values in self.runs():
            if run.size == 1 and not rows:
                continue

            def group(k, state, run=run, values=values):
                run, first = run._replace(group=k), run.together * k

                def turn(n, state):
                    i = first + n
                    return only_if(self.acting(run, i)[0], lambda state: visit(run, values, i, state), state)

                if run.together == 1:
                    return turn(0, state)
                some = jnp.any(self.acting(run, first, run.together))
                return only_if(some, lambda state: jax.lax.fori_loop(0, run.together, turn, state), state)

            state = jax.lax.fori_loop(0, len(run.places), group, state)
        return state


def _together(places: Sequence[tuple[int, ...]]) -> int:
    """Into how large groups of equal places a sequence divides; 1 if it is a single group."""
    cuts = [0, *(k for k in range(1, len(places)) if places[k] != places[k - 1]), len(places)]
    together = math.gcd(*(b - a for a, b in pairwise(cuts)))
    return together if together < len(places) else 1


def equal_runs(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Runs of equal numbers as (first, length, number); a single run with the largest number if there are many."""
    cuts = [0, *(k for k in range(1, len(sizes)) if sizes[k] != sizes[k - 1]), len(sizes)]
    cuts = cuts if len(cuts) <= 1 + MOST_RUNS else [0, len(sizes)]
    return [(a, b - a, max(sizes[a:b])) for a, b in pairwise(cuts) if a < b]


def columns(values: Array, run: Run, i) -> list[Array]:
    """The blocks (6, run.size) of F for contact or row i of a run."""
    width = run.places.shape[1]
    part = lambda b: jax.lax.dynamic_slice(values, (run.first + i, SIZE * b, 0), (1, SIZE, run.size))
    return [part(b)[0] for b in range(width)]


def rates_of(z: Array, run: Run, own: list[Array]) -> Array:
    """F^T z (run.size,) of a contact or row of a run, with its blocks `own` of F: a gather from z."""
    starts = [run.of_group(SIZE * run.places[:, b]) for b in range(len(own))]
    parts = [product(F.T, jax.lax.dynamic_slice_in_dim(z, at, SIZE)) for F, at in zip(own, starts, strict=True)]
    return sum(parts[1:], parts[0])


def scatter_add(z: Array, run: Run, changes: list[Array]) -> Array:
    """z with changes (6,) added to the blocks of a contact or row of a run."""
    starts = [run.of_group(SIZE * run.places[:, b]) for b in range(len(changes))]
    # All are read before anything is written, so that a loop writes them in place.
    new = [jax.lax.dynamic_slice_in_dim(z, at, SIZE) + change for at, change in zip(starts, changes, strict=True)]
    for at, part in zip(starts, new, strict=True):
        z = jax.lax.dynamic_update_slice_in_dim(z, part, at, 0)
    return z


def sweep(G: BlockMatrix, contact: Callable, row: Callable, x: Array) -> tuple[Array, Array]:
    """A block Gauss-Seidel sweep: impulses (n,), and the largest change of a velocity (), m/s.

    contact(i, u, own), row(j, u, own): new impulses of contact i or row j, with their change as a last entry, from its
    velocities u = G x (without b) and its present impulses.
    """
    visit = (contact, row)

    def one(run: Run, values, i, state):
        z, x, change = state
        at = G.offset(run, run.first + i)
        own, F = jax.lax.dynamic_slice_in_dim(x, at, run.size), columns(values, run, i)
        ridge = jax.lax.dynamic_slice_in_dim(G.ridge, at, run.size)
        new = visit[run.size == 1](run.first + i, rates_of(z, run, F) + ridge * own, own)
        moved = new[:-1] - own
        x = jax.lax.dynamic_update_slice_in_dim(x, new[:-1], at, 0)
        return scatter_add(z, run, [product(part, moved) for part in F]), x, jnp.maximum(change, new[-1])

    _, x, change = G.by_contacts(one, (G.spread(x), x, jnp.zeros_like(x[0])))
    return x, change
