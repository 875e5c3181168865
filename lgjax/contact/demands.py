"""What the law demands of the rows of a step: least velocities, bounds of impulses, and the work that they do.

`coupled.py` finds impulses that obey it, `equations.py` differentiates them. Read first: `step.py`, the scheme.
"""

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.geometry.detection import ContactPoints

Array = jax.Array

# Units of round-off of the largest coordinate of a contact below which a gap counts as closed.
GAP_EPS = 16


def joint_bounds(joints):
    """Least and largest impulses of limits and of dry friction."""
    high = jnp.concatenate([jnp.full_like(joints.gap, jnp.inf), joints.dry])
    return jnp.concatenate([jnp.zeros_like(joints.gap), -joints.dry]), high


def extent(points: ContactPoints) -> Array:
    """The largest coordinate () of a contact, m, a constant to derivatives."""
    return jax.lax.stop_gradient(jnp.max(jnp.abs(points.point), initial=0.0))


def open_gap(gap, points: ContactPoints, closes: bool):
    """Gaps, 0 where they are closed. closes: whether gaps count as closed that are round-off of positions.

    By them the points of a face would seem to contradict each other.
    """
    if not closes:
        return jnp.maximum(gap, jnp.zeros_like(gap))
    least = GAP_EPS * float(jnp.finfo(gap.dtype).eps) * extent(points)
    return jnp.where(gap > least, gap, jnp.zeros_like(gap))


def excess(islands, u, before, after, x, pushed, h) -> Array:
    """Work, J, of the displacements and impulses x together, where it is positive; (islands,).

    Impulses do positive work at a point that first separates and is then pressed together, as when a body turns.

    pushed: impulses of the displacements, as x. Gravity and motors change the velocities from `before` to u.
    """

    def one(rows) -> Array:
        own = np.asarray(rows, int)
        gained = 0.5 * jnp.sum(x[own] * (before[own] + after[own]))
        work = jnp.sum(pushed[own] * (before[own] - u[own])) / h
        return jnp.maximum(work + gained, jnp.zeros_like(work))

    return jnp.stack([one(rows) for rows, _ in islands])


def spread(rows, values, like):
    """Values in some rows, zeros in the others."""
    return jnp.zeros_like(like).at[rows].set(values, unique_indices=True)


def shifted(n: int, u, allowed):
    """Velocities minus the least ones that are allowed, along the normals of n contacts and at the limits."""
    rows = np.asarray([*range(0, 3 * n, 3), *range(3 * n, 2 * n + len(allowed))], int)
    return u.at[rows].add(-allowed, unique_indices=True)


def rebound(before, u, opens, gap, restitution, h) -> tuple[Array, Array]:
    """Whether any contact bounces (), and the least normal velocities (n,) that restitution demands."""
    closing = (gap + 0.5 * h * u < 0) & (before < 0)
    demanded = -restitution * before
    bounces = jnp.any(closing & (demanded > 0))
    return jax.lax.stop_gradient(bounces), jnp.where(closing, jnp.maximum(demanded, opens), opens)
