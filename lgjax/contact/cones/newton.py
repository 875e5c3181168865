"""Newton's method for Coulomb's law: it differentiates the natural map and finds impulses to round-off.

Read first: `law.py`. Where contacts share a load, the matrix of Newton's method is singular. So a fraction of the
mean diagonal of G is added to its diagonal (Levenberg damping). If the fraction falls from step to step, the first
steps are short and safe and the last ones nearly Newton's.

Sources: Alart and Curnier, A mixed formulation for frictional contact problems prone to Newton like solution methods
(1991); Levenberg (1944) for the damping.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.algebra import diagonal, plus_diagonal, solve
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
        return x - solve_linearized(p, x, x - natural_map(p, x), damping=now * mean)

    return x, step, lambda x: x


def solve_linearized(p: ConeProblem, x: Array, y: Array, damping: Any = 0.0) -> Array:
    """The dx (n,) with (1 - dF/dx) dx = y for the natural map F at x.

    damping, (), is added to the diagonal of G.
    """
    k, n, steps = len(p.friction), len(p.G), step_of_rows(p.G, len(p.friction))
    z = x - steps * (product(p.G, x) + p.b)
    inner = plus_diagonal(-steps[:, None] * p.G, 1 - steps * damping)  # dz/dx
    # A row of a contact depends on the three z of this contact: one of them at a time, in all contacts at once.
    move = lambda c: jax.jvp(partial(project, p), (z,), (_every_third(c, k, z),))[1]
    part = lambda c: inner[np.asarray([3 * (i // 3) + c if i < 3 * k else i for i in range(n)], int)]
    slope: Any = sum(move(c)[:, None] * part(c) for c in range(3 if k else 1))
    return solve(plus_diagonal(-slope, jnp.ones_like(x)), y)


def _every_third(c: int, k: int, like: Array) -> Array:
    """Ones at row c of each of k contacts and, if c is 0, at all further rows; zeros elsewhere."""
    chosen = [i % 3 == c if i < 3 * k else c == 0 for i in range(len(like))]
    return jnp.asarray(chosen, like.dtype)
