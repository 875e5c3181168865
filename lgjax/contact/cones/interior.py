"""Coulomb's law by an interior-point method: it finds impulses where sweeps stall, as for a box that sticks.

Read first: `law.py`. A contact obeys the law if, with De Saxce's term |u_t|,

    X = (mu x_n, x_t)  and  W = (u_n / mu + |u_t|, u_t)  are in the cone of the (z, y) with |y| <= z,  and  X o W = 0

for the product (z, y) o (z', y') = (z z' + y.y', z y' + z' y). Newton's method solves X o W = (aim, 0, 0) for an aim
that falls to zero. Each step ends before X or W leaves its cone, so no case (open, sticking, sliding) has to be chosen.
Of many impulses that obey the law, it finds those far from the limits of friction. The program takes X divided by
the smaller of mu and 1, and W times it, so that mu may be 0.

Where the derivative of the term |u_t| is left out, each step is that of a convex problem. Such steps converge fast only
with little friction or little sliding, but then also where those with the derivative fail.

Sources: De Saxce and Feng, The bipotential method (1998), for the term; Alizadeh and Goldfarb, Second-order cone
programming (2003), for the product and the steps. The rule for the next aim, after a step by a part of Newton's, is
Mehrotra's (1992) with a square instead of a cube and with the step before instead of a trial.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.algebra import diagonal, plus_blocks, plus_diagonal, solve
from lgjax.contact.cones.law import ConeProblem
from lgjax.numerics.rank import product

Array = jax.Array

FRACTION = 0.95  # of the way to the edge of a cone, at most, in one step
LEAST, LARGEST = 0.01, 0.9  # bounds of the next aim, as a fraction of the mean of the first entries of X o W
MOST_FRICTION = 1e3  # more is taken as this


class _Scaled(NamedTuple):
    """A `ConeProblem` for the X of all contacts and the x of further rows, without units.

    Velocities are divided by the largest |b|, impulses by that over the mean diagonal of G. G: (n, n). b: (n,).
    low, high: (r,). barrier: (k,). unit: (n,), what 1 stands for in each row, N s; 0 for what cannot be other than 0:
    tangents without friction, and rows between bounds that are 0.
    """

    G: Array
    b: Array
    low: Array
    high: Array
    barrier: Array
    unit: Array


class _Point(NamedTuple):
    """A point inside the cones. x: (n,). w: (k, 3). lower, upper: (r,) multipliers of the bounds on rows, u = lower -
    upper, 0 where there is no bound or both are equal. part: (), the fraction of the last Newton step that was taken.
    """

    x: Array
    w: Array
    lower: Array
    upper: Array
    part: Array


def interior_steps(p: ConeProblem, coupling: Array) -> tuple[_Point, Callable, Callable]:
    """The first point, the function of a point and of the number of its step that gives the next point, and the one
    that gives the impulses (n,) of a point. coupling: (), 1 differentiates the term |u_t|, 0 does not."""
    problem = _scaled(p)
    return _middle(problem), lambda z, _: _step(problem, z, coupling), lambda z: problem.unit * z.x


@jax.jit
def _scaled(p: ConeProblem) -> _Scaled:
    k, like = len(p.friction), jnp.ones_like(p.b[0])
    fast = jnp.max(jnp.abs(p.b))
    fast = jnp.where(fast > 0, fast, like)
    stiff = jnp.mean(diagonal(p.G))
    size = fast / stiff
    friction = jnp.minimum(p.friction, MOST_FRICTION)
    normal, tangent = 1 / jnp.maximum(friction, like), jnp.minimum(friction, like)
    contacts = jnp.stack([normal, tangent, tangent], 1).reshape(3 * k)
    scale = jnp.concatenate([contacts, (p.high > p.low).astype(like.dtype)])
    own = p.G[np.arange(0, 3 * k, 3), np.arange(0, 3 * k, 3)]
    G, barrier = p.G / stiff * scale[:, None] * scale, p.barrier / (own * size * fast)
    return _Scaled(G, p.b / fast * scale, p.low / size, p.high / size, barrier, scale * size)


@jax.jit
def _middle(s: _Scaled) -> _Point:
    """The point from which the method starts."""
    k = len(s.barrier)
    tips = jnp.zeros((k, 3), s.b.dtype).at[:, 0].set(1)
    one, none = jnp.ones_like(s.low), jnp.zeros_like(s.low)
    below, above = jnp.isfinite(s.low), jnp.isfinite(s.high)
    inside = jnp.where(below, s.low + one, jnp.where(above, s.high - one, none))
    inside = jnp.where(below & above, 0.5 * (s.low + s.high), inside)
    lower, upper = (jnp.where(known & (s.high > s.low), one, none) for known in (below, above))
    return _Point(jnp.concatenate([tips.reshape(3 * k), inside]), tips, lower, upper, jnp.full_like(s.b[0], 0.7))


@jax.jit
def _step(s: _Scaled, z: _Point, coupling: Array) -> _Point:
    """The next point: a step of Newton's method, as far as the cones allow."""
    k = len(s.barrier)
    x, none = z.x[: 3 * k].reshape(z.w.shape), jnp.zeros_like(z.lower)
    has_lower, has_upper = z.lower > 0, z.upper > 0
    below = jnp.where(has_lower, z.x[3 * k :] - s.low, 1)
    above = jnp.where(has_upper, s.high - z.x[3 * k :], 1)
    products = jnp.sum(_product(x, z.w)[:, 0]) + jnp.sum(below * z.lower + above * z.upper)
    count = k + jnp.sum(has_lower.astype(x.dtype) + has_upper.astype(x.dtype))
    aim = jnp.clip((1 - z.part) ** 2, LEAST, LARGEST) * products / count

    matrix, right, rise, miss = _contacts(s, z, aim, coupling)
    own, force = z.lower / below + z.upper / above, jnp.where(has_lower, aim / below, none)
    rows = _rows(s, z, own, force - jnp.where(has_upper, aim / above, none))
    dx = solve(jnp.concatenate([matrix, rows[0]]), jnp.concatenate([right, rows[1]]))
    dw, row = miss + product(rise, dx), dx[3 * k :]
    lower = jnp.where(has_lower, (aim - z.lower * row) / below - z.lower, none)
    upper = jnp.where(has_upper, (aim + z.upper * row) / above - z.upper, none)

    cones = (x, dx[: 3 * k].reshape(x.shape)), (z.w, dw)
    bounds = (
        (z.lower, lower),
        (z.upper, upper),
        (below, jnp.where(has_lower, row, none)),
        (above, jnp.where(has_upper, -row, none)),
    )
    ends = [_to_edge(*pair) for pair in cones] + [_to_zero(*pair) for pair in bounds]
    part = jnp.min(FRACTION * jnp.concatenate(ends), initial=1.0)
    move = lambda old, change: old + part * change
    return _Point(move(z.x, dx), move(z.w, dw), move(z.lower, lower), move(z.upper, upper), part)


@jax.jit
def _contacts(s: _Scaled, z: _Point, aim: Array, coupling: Array) -> tuple[Array, Array, Array, Array]:
    """Of contacts: the matrix (3 k, n) and the right side (3 k,) of the linear equations for dx.

    With dw = rise dx + miss, rise (k, 3, n) and miss (k, 3), they say X o W + dX o W + X o dW = (aim, 0, 0).
    """
    k, n = len(s.barrier), len(s.b)
    vectors = lambda a: a[: 3 * k].reshape(k, 3, *a.shape[1:])
    x, u, w = vectors(z.x), vectors(product(s.G, z.x) + s.b), z.w
    square = w[:, 1] * w[:, 1] + w[:, 2] * w[:, 2]
    slide = jnp.sqrt(square)
    slope = coupling * w.at[:, 0].set(0) / jnp.where(square > 0, slide, 1)[:, None]
    sliding = lambda a: a.at[:, 0].add(_product(slope, a)[:, 0])  # adds the derivative of |u_t|
    none = jnp.zeros_like(w)
    soft = none.at[:, 0].set(s.barrier / x[:, 0] ** 2)
    rise = sliding(vectors(s.G)).reshape(3 * k, n)
    rise = vectors(plus_diagonal(rise, soft.reshape(3 * k)))
    miss = sliding((u - w).at[:, 0].add(slide - s.barrier / x[:, 0]))
    matrix = _product(x, rise).reshape(3 * k, n)
    nothing = none[:, 0]
    arrow = jnp.stack(
        [jnp.stack(row, 1) for row in (w.swapaxes(0, 1), (w[:, 1], w[:, 0], nothing), (w[:, 2], nothing, w[:, 0]))], 1
    )  # w o unit vectors
    right = (-_product(x, w + miss)).at[:, 0].add(aim)
    return plus_blocks(matrix, arrow), right.reshape(3 * k), rise, miss


@jax.jit
def _rows(s: _Scaled, z: _Point, own: Array, force: Array) -> tuple[Array, Array]:
    """Of further rows: the matrix (r, n), to which bounds add `own` (r,), and the right side (r,)."""
    first = 3 * len(s.barrier)
    held, u, eye = s.unit[first:] == 0, product(s.G, z.x) + s.b, jnp.eye(len(s.b), dtype=s.b.dtype)
    matrix = s.G[first:] + (own + held.astype(own.dtype))[:, None] * eye[first:]
    return matrix, jnp.where(held, 0, force - u[first:])


@jax.jit
def _product(x: Array, w: Array) -> Array:
    """x o w of vectors x (k, 3) and w (k, 3, ...)."""
    x = x.reshape(*x.shape, *[1] * (w.ndim - 2))
    part = lambda i, j: x[:, i] * w[:, j]
    return jnp.stack([part(0, 0) + part(1, 1) + part(2, 2), part(0, 1) + part(1, 0), part(0, 2) + part(2, 0)], 1)


@jax.jit
def _to_edge(y: Array, change: Array) -> Array:
    """The parts (k,) of changes (k, 3) that lead from y to the edge of the cone; infinite where none does."""
    form = lambda a, b: a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1] - a[:, 2] * b[:, 2]
    long = jnp.sqrt(y[:, 1] * y[:, 1] + y[:, 2] * y[:, 2])
    # The first root of c + 2 b t + a t^2.
    a, b, c = form(change, change), form(y, change), (y[:, 0] - long) * (y[:, 0] + long)
    square = b * b - a * c
    rest = jnp.sqrt(jnp.maximum(square, 0)) - b
    meets = (square >= 0) & (rest > 0)
    return jnp.minimum(jnp.where(meets, c / jnp.where(meets, rest, 1), jnp.inf), _to_zero(y[:, 0], change[:, 0]))


@jax.jit
def _to_zero(y: Array, change: Array) -> Array:
    """The parts (r,) of changes that lead from y > 0 to 0; infinite where none does."""
    falls = change < 0
    return jnp.where(falls, -y / jnp.where(falls, change, 1), jnp.inf)
