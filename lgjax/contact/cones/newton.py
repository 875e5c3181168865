"""Newton's method for Coulomb's law: it differentiates the natural map and finds impulses to round-off.

Read first: `law.py`. Where contacts share a load, the matrix of Newton's method is singular. So a fraction of the
mean diagonal of G is added to its diagonal (Levenberg damping). If the fraction falls from step to step, the first
steps are short and safe and the last ones nearly Newton's.

Sources: Alart and Curnier, A mixed formulation for frictional contact problems prone to Newton like solution methods
(1991); Levenberg (1944) for the damping.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.contact.cones.algebra import diagonal, plus_blocks, plus_diagonal, solve
from lgjax.contact.cones.law import ConeProblem, natural_map, project, step_of_rows
from lgjax.numerics.rank import product

Array = jax.Array


def newton_steps(p: ConeProblem, x: Array, damping: Array, steps: int) -> tuple[Array, Callable, Callable]:
    """The first impulses (n,), the function of impulses and of the number of their step that gives the next, and the
    identity. damping: (2,), of the first and the last step, in units of the mean diagonal of G."""
    first, last = damping
    mean = jnp.mean(diagonal(p.G))

    def step(x, number):
        now = first * (last / first) ** (number.astype(x.dtype) / (steps - 1))
        return x - solve(_linearized(p, x, now * mean), x - natural_map(p, x))

    return x, step, lambda x: x


def solve_linearized(p: ConeProblem, x: Array, y: Array) -> Array:
    """The dx (n,) with (1 - dF/dx) dx = y for the natural map F at x."""
    matrix = _linearized(*jax.lax.stop_gradient((p, x)))
    along = lambda dx: dx - jax.jvp(partial(natural_map, p), (x,), (dx,))[1]
    ways = lambda _, y: solve(matrix, y), lambda _, y: solve(matrix.T, y)
    return jax.lax.custom_linear_solve(along, y, *ways)


class Slope(NamedTuple):
    """The derivative P of the projection at a point: blocks (k, 3, 3) of contacts, rows (r,) of the others."""

    blocks: Array
    rows: Array

    def times(self, y: Array) -> Array:
        """P y (n,)."""
        return self._applied(self.blocks, y)

    def transposed(self, y: Array) -> Array:
        """P^T y (n,)."""
        return self._applied(jnp.swapaxes(self.blocks, 1, 2), y)

    def _applied(self, blocks: Array, y: Array) -> Array:
        k = len(blocks)
        own = jnp.sum(blocks * y[: 3 * k].reshape(k, 1, 3), 2).reshape(3 * k)
        return jnp.concatenate([own, self.rows * y[3 * k :]])


def slope_at(p: ConeProblem, z: Array) -> Slope:
    """The projection's derivative at z (n,), impulses less steps times velocities."""
    k = len(p.friction)
    # P has blocks of 3 x 3: one column of each block at a time, in all contacts at once.
    columns = [jax.jvp(partial(project, p), (z,), (_every_third(c, k, z),))[1] for c in range(3 if k else 1)]
    blocks = jnp.stack([column[: 3 * k].reshape(k, 3) for column in columns], 2) if k else jnp.zeros((0, 3, 3), z.dtype)
    return Slope(blocks, columns[0][3 * k :])


def _linearized(p: ConeProblem, x: Array, damping: Any = 0.0) -> Array:
    """1 - dF/dx (n, n) = 1 - P (1 - s G) for the projection's derivative P at z = x - s (G x + b).

    damping, (), is added to the diagonal of G.
    """
    steps = step_of_rows(p.G, len(p.friction))
    return linearized(p.G, steps, slope_at(p, x - steps * (product(p.G, x) + p.b)), damping)


def linearized(G: Array, steps: Array, slope: Slope, damping: Any = 0.0) -> Array:
    """1 - P (1 - s (G + damping)) (n, n), for P and step sizes s (n,)."""
    (blocks, rows), k, n = slope, len(slope.blocks), len(G)
    of_contacts, of_rows = steps[: 3 * k].reshape(k, 1, 3), steps[3 * k :]
    scaled = product(blocks * of_contacts, G[: 3 * k].reshape(k, 3, n)).reshape(3 * k, n)
    matrix = jnp.concatenate([scaled, (rows * of_rows)[:, None] * G[3 * k :]])
    matrix = plus_blocks(matrix, jnp.eye(3, dtype=G.dtype) - blocks * (1 - of_contacts * damping))
    return plus_diagonal(matrix, jnp.concatenate([jnp.zeros(3 * k, G.dtype), 1 - rows * (1 - of_rows * damping)]))


def _every_third(c: int, k: int, like: Array) -> Array:
    """Ones at row c of each of k contacts and, if c is 0, at all further rows; zeros elsewhere."""
    chosen = [i % 3 == c if i < 3 * k else c == 0 for i in range(len(like))]
    return jnp.asarray(chosen, like.dtype)
