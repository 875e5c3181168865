"""Coulomb's law for impulses at contacts: the problem, and the map whose fixed points are its solutions.

Find impulses x with velocities u = G x + b such that for each contact, rows (normal, two tangents),

    0 <= x_n,  0 <= u_n,  x_n u_n = 0   and   |x_t| <= mu x_n,  x_t = -mu x_n u_t / |u_t| where u_t is not 0,

and for each further row  low <= x <= high  with u >= 0 at low, u <= 0 at high and u = 0 between.

This is the nonlinear complementarity problem of Coulomb friction (De Saxce's cone complementarity with his term
mu |u_t|), not its convex relaxation, in which sliding contacts lift off.
Next: `solver.py`.

Source: Acary and Brogliato, Numerical methods for nonsmooth dynamical systems (2008), chapter 13, for the problem and
the projections.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.algebra import diagonal, times

Array = jax.Array


class ConeProblem(NamedTuple):
    """A problem with k contacts and r further rows, n = 3 k + r.

    G: (n, n) symmetric, positive semidefinite with positive diagonal, or a `BlockMatrix`. b: (n,). friction: (k,),
    finite. low, high: (r,), may be infinite, and equal only if both are 0. barrier: (k,) >= 0: 0 and None are the law
    itself; otherwise x_n u_n = barrier / G_nn, which is smooth. factor: None or F (m, n), m < n, with G = F^T F; in the
    solver, F with the diagonal (n,) that it adds to G. sizes: None or the diagonal (n,) of G, whose derivatives are
    wanted where G is a constant.
    """

    G: Any
    b: Array
    friction: Array
    low: Array
    high: Array
    barrier: Array | None
    factor: Any = None
    sizes: Array | None = None

    def velocities(self, x: Array) -> Array:
        """G x + b (n,)."""
        return times(self.G, x) + self.b

    @property
    def steps(self) -> tuple[Array, Array, Array]:
        """`steps_of_parts`; their derivatives where there is a barrier, without which no solution depends on them."""
        k = len(self.friction)
        if self.barrier is None:
            return jax.lax.stop_gradient(steps_of_parts(self.G, k))
        return steps_of(diagonal(self.G) if self.sizes is None else self.sizes, k)


@partial(jax.jit, static_argnames="k")
def steps_of_parts(G: Any, k: int) -> tuple[Array, Array, Array]:
    """Step sizes, impulse per velocity: (k,) of normals, (k,) of tangents, (r,) of further rows."""
    return steps_of(diagonal(G), k)


def steps_of(sizes: Array, k: int) -> tuple[Array, Array, Array]:
    """Step sizes as in `steps_of_parts`, from the diagonal (n,) of G."""
    blocks = sizes[: 3 * k].reshape(k, 3)
    return 1 / blocks[:, 0], 2 / (blocks[:, 1] + blocks[:, 2]), 1 / sizes[3 * k :]


@jax.jit
def push(x: Array, barrier: Array | None, step: Array) -> Array:
    """The impulse x_n >= 0 nearest to x or, with a barrier, the one with x_n (x_n - x) = barrier step^2."""
    if barrier is None:
        return jnp.maximum(x, jnp.zeros_like(x))
    barrier = barrier * step * step
    smooth = barrier > 0
    root = jnp.sqrt(jnp.where(smooth, x * x + 4 * barrier, jnp.ones_like(x)))
    # `falling` is the same root, without cancellation where x < 0.
    rising = 0.5 * (x + root)
    falling = 2 * barrier / jnp.where(smooth, root - x, jnp.ones_like(x))
    soft = jnp.where(x > 0, rising, falling)
    return jnp.where(smooth, soft, jnp.maximum(x, jnp.zeros_like(x)))


@jax.jit
def disc(x0: Array, x1: Array, radius: Array) -> tuple[Array, Array]:
    """The point of the disc nearest to (x0, x1)."""
    square = x0 * x0 + x1 * x1
    # In a disc of radius 0 nothing moves: at an open contact the derivative is 0, even at the center.
    outside = (square > radius * radius) | (radius <= 0)
    size = jnp.sqrt(jnp.where(outside & (square > 0), square, jnp.ones_like(square)))
    part = jnp.where(outside, radius / size, jnp.ones_like(size))
    return part * x0, part * x1


@jax.jit
def scaled_disc(x0: Array, x1: Array, radius: Array) -> tuple[Array, Array]:
    """`disc` for derivatives: the first and second ones stay in the range of the dtype, however short the vector is.

    All is divided by a constant of its size first. In float32 derivatives are 0 if vector and radius are below 4e-19.
    """
    size = jax.lax.stop_gradient(jnp.maximum(jnp.abs(x0), jnp.abs(x1)))
    moves = jnp.maximum(size, jax.lax.stop_gradient(radius)) > 4 * float(jnp.finfo(size.dtype).tiny) ** 0.5
    lengths = [jnp.where(moves, x, jax.lax.stop_gradient(x)) for x in (x0, x1, radius)]
    size = jnp.where(size > 0, size, jnp.ones_like(size))
    y0, y1 = disc(*(x / size for x in lengths))
    return size * y0, size * y1


@jax.jit
def natural_map(p: ConeProblem, x: Array) -> Array:
    """One projected step of impulses (n,), all contacts at once; impulses obey the law if they are a fixed point."""
    return image(p, x, p.velocities(x))


def image(p: ConeProblem, x: Array, u: Array) -> Array:
    """`natural_map` for impulses after which the velocities are u (n,)."""
    return project(p, x - _of_rows(*p.steps) * u)


@partial(jax.jit, static_argnames="k")
def step_of_rows(G: Any, k: int) -> Array:
    """Step sizes, impulse per velocity, of all rows (n,)."""
    return _of_rows(*steps_of_parts(G, k))


def _of_rows(normal: Array, tangent: Array, rows: Array) -> Array:
    return jnp.concatenate([jnp.stack([normal, tangent, tangent], 1).reshape(-1), rows])


@jax.jit
def project(p: ConeProblem, z: Array) -> Array:
    """The impulses (n,) that the law allows, projected from z = x - step (G x + b)."""
    k = len(p.friction)
    Z = z[: 3 * k].reshape(k, 3)
    normal = push(Z[:, 0], p.barrier, p.steps[0])
    tangents = scaled_disc(Z[:, 1], Z[:, 2], p.friction * normal)
    rows = jnp.clip(z[3 * k :], p.low, p.high)
    return jnp.concatenate([jnp.stack([normal, *tangents], 1).reshape(3 * k), rows])


def contact_image(z: Array, friction: Array, barrier: Array | None, step: Array) -> Array:
    """`project` of one contact, z (3,), friction (), barrier () and the normal's step size ()."""
    normal = push(z[0], barrier, step)
    return jnp.stack([normal, *scaled_disc(z[1], z[2], friction * normal)])


def largest_part(u, x, step, pull, bend, islands: Sequence[Sequence[int]] = ()) -> Array:
    """The largest part s, at most 1, of a change `step` (n,) of impulses x (n,) that adds no energy.

    (), or with several islands of rows (n,): each takes as much as it can, since nothing couples them.

    u (n,): velocities before the impulses; where other forces act in a step, the mean of those with and without them.
    pull, bend: G x and G step. The energy that impulses add is x·(u + G x / 2), convex in s and not positive at s = 0.
    """
    if len(islands) > 1:
        parts = [[a[np.asarray(rows, int)] for a in (u, x, step, bend, pull)] for rows in islands]
        found = {k: s for rows, part in zip(islands, parts, strict=True) for s in [_largest_part(*part)] for k in rows}
        return jnp.stack([found[k] for k in range(len(step))])
    return _largest_part(u, x, step, bend, pull)


@jax.jit
def _largest_part(u, x, step, bend, pull) -> Array:
    dot = lambda a, b: jnp.sum(a * b)
    start = jnp.minimum(dot(x, u + 0.5 * pull), 0)
    slope, curve = dot(step, u + pull), 0.5 * dot(step, bend)
    gains = (start + slope + curve > 0) & (curve > 0)
    one = jnp.ones_like(curve)
    root = jnp.sqrt(jnp.where(gains, slope * slope - 4 * curve * start, one))
    return jnp.where(gains, jnp.clip((root - slope) / jnp.where(gains, 2 * curve, one), 0 * one, one), one)
