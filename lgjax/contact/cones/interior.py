"""Coulomb's law by an interior-point method: it finds impulses where sweeps stall, as for a box that sticks.

Read first: `law.py`. A contact obeys the law if, with De Saxce's term |u_t|,

    X = (mu x_n, x_t)  and  W = (u_n / mu + |u_t|, u_t)  are in the cone of the (z, y) with |y| <= z,  and  X o W = 0

for the product (z, y) o (z', y') = (z z' + y.y', z y' + z' y). Newton's method solves X o W = (aim, 0, 0) for an aim
that falls to zero. Each step ends before X or W leaves its cone, so no case (open, sticking, sliding) has to be chosen.
Of many impulses that obey the law, it finds those far from the limits of friction. The program takes X divided by
the smaller of mu and 1, and W times it, so that mu may be 0.

With a `BlockMatrix`, a step is Mehrotra's: a predictor towards 0 says how far it can go, which gives the aim, and the
corrector takes away the products of its changes. X and W then go each as far as its cone allows. The cone of W is wider
by the round-off of velocities: near the end W is smaller than that at contacts that bear much, and what is left of it
by chance would hold the steps of all others.

Where the derivative of the term |u_t| is left out, each step is that of a convex problem. Such steps converge fast only
with little friction or little sliding, but then also where those with the derivative fail.

Sources: De Saxce and Feng, The bipotential method (1998), for the term; Alizadeh and Goldfarb, Second-order cone
programming (2003), for the product and the steps. The rule for the next aim, after a step by a part of Newton's, is
Mehrotra's (1992) with a square instead of a cube and with the step before instead of a trial.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.algebra import diagonal, plus_blocks, plus_diagonal, solve, times
from lgjax.contact.cones.block_steps import interior_change, least_of_contacts
from lgjax.contact.cones.blocks import BlockMatrix
from lgjax.contact.cones.law import ConeProblem
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.rank import product

Array = jax.Array

FRACTION = 0.95  # of the way to the edge of a cone, at most, in one step
ROUGH = 600.0  # units of round-off of the largest |b| to which W is known in steps with a `BlockMatrix`
WITHIN = 0.1  # part of this by which W stays inside its cone
SMALLEST = 1e-4  # bound of the corrector's aim, as a fraction of the mean
LEAST, LARGEST = 0.01, 0.9  # bounds of the next aim, as a fraction of the mean of the first entries of X o W
REFINED = 1  # corrections of a step with a factor of G, which has more round-off than elimination
MOST_FRICTION = 1e3  # more is taken as this


class _Scaled(NamedTuple):
    """A `ConeProblem` for the X of all contacts and the x of further rows, without units.

    Velocities are divided by the largest |b|, impulses by that over the mean diagonal of G. Its own matrix is G (n, n)
    with rows and columns times scale (n,): the loops of steps hold no other one. b: (n,).
    low, high: (r,). barrier: (k,) or None. unit: (n,), what 1 stands for in each row, N s; 0 for what cannot be other
    than 0: tangents without friction, and rows between bounds that are 0. factor: None or F (m, n) and the diagonal
    (n,) of G = F^T F + diagonal; None with a `BlockMatrix`.
    """

    G: Any
    scale: Array
    b: Array
    low: Array
    high: Array
    barrier: Array | None
    unit: Array
    factor: tuple[Array, Array] | None

    @property
    def contacts(self) -> int:
        return (len(self.b) - len(self.low)) // 3


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
    if isinstance(p.G, BlockMatrix):  # rows that do not act are held
        p = p._replace(high=jnp.where(p.G.acts[k:], p.high, p.low))
    scale = jnp.concatenate([contacts, (p.high > p.low).astype(like.dtype)])
    barrier = None
    if p.barrier is not None:
        barrier = p.barrier / (diagonal(p.G)[: 3 * k : 3] * size * fast)
    factor = None if p.factor is None else (p.factor[0] / jnp.sqrt(stiff) * scale, p.factor[1] / stiff * scale * scale)
    return _Scaled(
        p.G, scale / jnp.sqrt(stiff), p.b / fast * scale, p.low / size, p.high / size, barrier, scale * size, factor
    )


@jax.jit
def _middle(s: _Scaled) -> _Point:
    """The point from which the method starts."""
    k = s.contacts
    tips = jnp.zeros((k, 3), s.b.dtype).at[:, 0].set(1)
    if isinstance(s.G, BlockMatrix):
        tips = jnp.where(s.G.acts[:k, None], tips, jnp.zeros_like(tips))
    one, none = jnp.ones_like(s.low), jnp.zeros_like(s.low)
    below, above = jnp.isfinite(s.low), jnp.isfinite(s.high)
    inside = jnp.where(below, s.low + one, jnp.where(above, s.high - one, none))
    inside = jnp.where(below & above, 0.5 * (s.low + s.high), inside)
    lower, upper = (jnp.where(known & (s.high > s.low), one, none) for known in (below, above))
    return _Point(jnp.concatenate([tips.reshape(3 * k), inside]), tips, lower, upper, jnp.full_like(s.b[0], 0.7))


@jax.jit
def _step(s: _Scaled, z: _Point, coupling: Array) -> _Point:
    """The next point: a step of Newton's method, as far as the cones allow."""
    bounds = _bounds(s, z)
    if isinstance(s.G, BlockMatrix):
        corrector = lambda dx, dw: _corrector(s, z, bounds, dx, dw)
        own, force = _rows(s, z, bounds.curvature(z), jnp.zeros_like(z.lower))
        dx, dw, (lower, upper) = interior_change(s, z.x, z.w, coupling, own, force, corrector)
    else:
        aim = _aim(s, z, bounds, jnp.clip((1 - z.part) ** 2, LEAST, LARGEST))
        own, force = _rows(s, z, bounds.curvature(z), bounds.force(aim, aim))
        dx, dw = _changes(s, z, coupling, aim, own, force)
        lower, upper = aim, aim
    ends = bounds.ends(s, z, dx, dw, lower, upper)
    primal, dual = (FRACTION * end for end in ends[:2])
    if not isinstance(s.G, BlockMatrix):
        primal = dual = jnp.minimum(primal, dual)
    move = lambda old, change, part: old + jnp.minimum(part, 1) * change
    part = jnp.minimum(jnp.minimum(primal, dual), 1)
    w = move(z.w, dw, dual)
    if isinstance(s.G, BlockMatrix):
        inside = jnp.maximum(w[:, 0], _length(w) + WITHIN * _roughness(w.dtype))
        w = w.at[:, 0].set(jnp.where(s.G.acts[: len(w)], inside, w[:, 0]))
    elif s.factor is not None:
        w = w.at[:, 0].set(jnp.maximum(w[:, 0], _length(w) + WITHIN * _roughness(w.dtype)))
    return _Point(move(z.x, dx, primal), w, move(z.lower, ends[2], dual), move(z.upper, ends[3], dual), part)


def _roughness(dtype) -> float:
    """How far W may be outside its cone, by round-off."""
    return ROUGH * float(jnp.finfo(dtype).eps)


class _Bounds(NamedTuple):
    """Bounds of further rows: how far they are above the lower and below the upper one (r,), 1 where there is none, and
    whether there is one."""

    below: Array
    above: Array
    has_lower: Array
    has_upper: Array

    def curvature(self, z: _Point) -> Array:
        """Terms that the bounds add to the diagonal of G (r,)."""
        return z.lower / self.below + z.upper / self.above

    def force(self, lower: Array, upper: Array) -> Array:
        """Forces of the bounds (r,), for aims of their products."""
        none = jnp.zeros_like(self.below)
        return jnp.where(self.has_lower, lower / self.below, none) - jnp.where(self.has_upper, upper / self.above, none)

    def ends(
        self, s: _Scaled, z: _Point, dx: Array, dw: Array, lower: Array, upper: Array
    ) -> tuple[Array, Array, Array, Array]:
        """How far () x and w may go along changes dx, dw for aims, in parts of them; the changes of lower and upper."""
        k, none = len(z.w), jnp.zeros_like(self.below)
        x, change, row = _vectors(z.x, k), _vectors(dx, k), dx[3 * k :]
        lower = jnp.where(self.has_lower, (lower - z.lower * row) / self.below - z.lower, none)
        upper = jnp.where(self.has_upper, (upper + z.upper * row) / self.above - z.upper, none)
        primal = [_to_zero(self.below, jnp.where(self.has_lower, row, none))]
        primal.append(_to_zero(self.above, jnp.where(self.has_upper, -row, none)))
        dual = [_to_zero(z.lower, lower), _to_zero(z.upper, upper)]
        if isinstance(s.G, BlockMatrix):
            steps = (x, change, 0.0), (z.w, dw, _roughness(dx.dtype))
            one = lambda y, step, wider: _to_edge((y.at[0].add(wider))[None], step[None])[0]
            edges = [end[None] for end in least_of_contacts(s.G, one, steps)]
        else:
            wider = z.w if s.factor is None else z.w.at[:, 0].add(_roughness(dx.dtype))
            edges = [_to_edge(x, change), _to_edge(wider, dw)]
        primal, dual = [*primal, edges[0]], [*dual, edges[1]]
        far = float(jnp.finfo(dx.dtype).max)
        least = lambda ends: jnp.min(jnp.concatenate(ends), initial=far)
        return least(primal), least(dual), lower, upper


def _bounds(s: _Scaled, z: _Point) -> _Bounds:
    row, has_lower, has_upper = z.x[3 * s.contacts :], z.lower > 0, z.upper > 0
    return _Bounds(jnp.where(has_lower, row - s.low, 1), jnp.where(has_upper, s.high - row, 1), has_lower, has_upper)


def _aim(s: _Scaled, z: _Point, bounds: _Bounds, fraction: Array) -> Array:
    """A fraction of the mean () of the first entries of X o W and of the products of rows and their multipliers."""
    k = s.contacts
    x = z.x[: 3 * k].reshape(z.w.shape)
    products = jnp.sum(_product(x, z.w)[:, 0]) + jnp.sum(bounds.below * z.lower + bounds.above * z.upper)
    contacts = jnp.sum(s.G.acts[:k].astype(x.dtype)) if isinstance(s.G, BlockMatrix) else k
    count = contacts + jnp.sum(bounds.has_lower.astype(x.dtype) + bounds.has_upper.astype(x.dtype))
    return fraction * products / count


def _corrector(
    s: _Scaled, z: _Point, bounds: _Bounds, dx: Array, dw: Array
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Terms of Mehrotra's corrector after the predictor's dx (n,) and dw (k, 3).

    They are added to the right sides of contacts (k, 3) and rows (r,); last, the aims of both products of bounds. The
    farther the predictor can go, the smaller is the aim.
    """
    k, none = len(z.w), jnp.zeros_like(z.lower)
    *ends, lower, upper = bounds.ends(s, z, dx, dw, none, none)
    part = jnp.minimum(jnp.minimum(*ends), 1)
    aim = _aim(s, z, bounds, jnp.clip((1 - part) ** 3, SMALLEST, 1))
    row = dx[3 * k :]
    left = aim - row * lower, aim + row * upper
    more = -_product(dx[: 3 * k].reshape(k, 3), dw)
    return more.at[:, 0].add(aim), bounds.force(*left), left


def _changes(s: _Scaled, z: _Point, coupling: Array, aim: Array, own: Array, force: Array) -> tuple[Array, Array]:
    """The Newton step: dx (n,) and dw (k, 3)."""
    k = s.contacts
    x = _vectors(z.x, k)
    sliding, soft, miss = _velocities(s, z, coupling)
    right = (-_product(x, z.w + miss)).at[:, 0].add(aim)
    through = lambda a: _product(x, sliding(_vectors(a, k)))
    blocks = _arrow(z.w) + _product(x, soft[..., None] * jnp.eye(3, dtype=x.dtype))
    dx = _solve(s, through, blocks, own, jnp.concatenate([right.reshape(3 * k), force]))
    return dx, miss + sliding(_vectors(_times(s, dx), k)) + soft * _vectors(dx, k)


def _velocities(s: _Scaled, z: _Point, coupling: Array) -> tuple[Callable, Array, Array]:
    """The terms of contacts: W = u + (mu |u_t| ..., 0, 0) after a step dx is w + miss + sliding(G dx) + soft dx.

    sliding maps (k, 3, ...) to the same shape, with the derivative of |u_t|. soft, miss: (k, 3).
    """
    w, x, u = z.w, _vectors(z.x, len(z.w)), _vectors(_times(s, z.x) + s.b, len(z.w))
    square = w[:, 1] * w[:, 1] + w[:, 2] * w[:, 2]
    slide = jnp.sqrt(square)
    slope = coupling * w.at[:, 0].set(0) / jnp.where(square > 0, slide, 1)[:, None]
    sliding = lambda a: a.at[:, 0].add(_product(slope, a)[:, 0])
    if s.barrier is None:
        return sliding, jnp.zeros_like(w), sliding((u - w).at[:, 0].add(slide))
    soft = jnp.zeros_like(w).at[:, 0].set(s.barrier / x[:, 0] ** 2)
    return sliding, soft, sliding((u - w).at[:, 0].add(slide - s.barrier / x[:, 0]))


def _solve(s: _Scaled, through: Callable, blocks: Array, own: Array, right: Array) -> Array:
    """The dx (n,) with through(G dx) + blocks dx = right for contacts, G dx + own dx = right for further rows.

    With a factor the system is one for F dx, with fewer unknowns (Woodbury's formula), whose round-off is corrected.
    """
    k, n = s.contacts, len(s.b)
    whole = lambda a: jnp.concatenate([through(a).reshape(3 * k, a.shape[1]), a[3 * k :]])
    if s.factor is None:
        matrix = plus_diagonal(
            plus_blocks(whole(s.scale[:, None] * s.G * s.scale), blocks),
            jnp.concatenate([jnp.zeros_like(right[: 3 * k]), own]),
        )
        return solve(matrix, right)
    F, ridge = s.factor
    places = jnp.asarray(np.tile(np.eye(3), (n, 1))[:n], F.dtype)
    blocks, own = blocks + through(ridge[:, None] * places), own + ridge[3 * k :]
    inverse = sm.inv3(blocks)

    def divided(a: Array) -> Array:
        contacts = sm.matmul(inverse, _vectors(a, k)).reshape(3 * k, a.shape[1])
        return jnp.concatenate([contacts, a[3 * k :] / own[:, None]])

    columns = whole(F.T)
    parts = divided(columns)
    inner = plus_diagonal(product(F, parts), jnp.ones_like(F[:, 0]))

    def correct(_, dx: Array) -> Array:
        contacts = sm.matvec(blocks, _vectors(dx, k)).reshape(3 * k)
        left = right - product(columns, product(F, dx)) - jnp.concatenate([contacts, own * dx[3 * k :]])
        y = divided(left[:, None])[:, 0]
        return dx + y - product(parts, solve(inner, product(F, y)))

    return jax.lax.fori_loop(0, 1 + REFINED, correct, jnp.zeros_like(right))


def _times(s: _Scaled, x: Array) -> Array:
    """G x (n,)."""
    if s.factor is None:
        return s.scale * times(s.G, s.scale * x)
    F, ridge = s.factor
    return product(F.T, product(F, x)) + ridge * x


def _vectors(a: Array, k: int) -> Array:
    """Rows of contacts (k, 3, ...), from all rows (n, ...)."""
    return a[: 3 * k].reshape(k, 3, *a.shape[1:])


def _arrow(w: Array) -> Array:
    """The matrices (k, 3, 3) of the products w o, of w (k, 3)."""
    none = jnp.zeros_like(w[:, 0])
    rows = w.swapaxes(0, 1), (w[:, 1], w[:, 0], none), (w[:, 2], none, w[:, 0])
    return jnp.stack([jnp.stack(row, 1) for row in rows], 1)


@jax.jit
def _rows(s: _Scaled, z: _Point, own: Array, force: Array) -> tuple[Array, Array]:
    """Terms of further rows: addition to the diagonal of G and right side (r,), from those of bounds."""
    first = 3 * s.contacts
    held, u = s.unit[first:] == 0, _times(s, z.x) + s.b
    return own + held.astype(own.dtype), jnp.where(held, 0, force - u[first:])


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
    long = _length(y)
    # The first root of c + 2 b t + a t^2.
    a, b, c = form(change, change), form(y, change), (y[:, 0] - long) * (y[:, 0] + long)
    square = b * b - a * c
    rest = jnp.sqrt(jnp.maximum(square, 0)) - b
    meets = (square >= 0) & (rest > 0)
    return jnp.minimum(jnp.where(meets, c / jnp.where(meets, rest, 1), jnp.inf), _to_zero(y[:, 0], change[:, 0]))


def _length(y: Array) -> Array:
    """The lengths (k,) of the last two entries of y (k, 3)."""
    return jnp.sqrt(y[:, 1] * y[:, 1] + y[:, 2] * y[:, 2])


@jax.jit
def _to_zero(y: Array, change: Array) -> Array:
    """The parts (r,) of changes that lead from y > 0 to 0; infinite where none does."""
    falls = change < 0
    return jnp.where(falls, -y / jnp.where(falls, change, 1), jnp.inf)
