"""Newton steps of `interior.py` and `newton.py` for a `BlockMatrix` G = F^T F + ridge, contact by contact.

A linearized contact is an equation with (3, 3) matrices T and D: T (F^T F dx) + D dx = right. For interior points, with
the Jordan product o of X and W, the derivative `slope` of the term |u_t| and the barrier's derivative `soft`,

    T = X o (1 + slope),   D = W o + X o soft + T ridge.

With the unknown s = F dx, of the size of the velocities, this is Woodbury's formula:

    (1 + F K F^T) s = F y,   dx = y - K F^T s,   K = D^-1 T,   y = D^-1 right.

One pass over the contacts assembles the matrix, `elimination.py` factors it, and two passes find dx. These two are
repeated with the residual: of interior points after a predictor for that with the corrector's right side, and for what
round-off has left. Read first: `interior.py`, `elimination.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.blocks import SIZE, Run, columns, rates_of, scatter_add
from lgjax.contact.cones.elimination import factorized, identity, plus_contact
from lgjax.contact.cones.law import ConeProblem, contact_image, step_of_rows
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.loops import only_if
from lgjax.numerics.rank import product

Array = jax.Array

SOLVES = 3  # that find dx: the predictor, the corrector, and a step of iterative refinement
FIRMER = 80  # units of round-off in the ridge that is divided by: stiff contacts would round the bodies' masses away


class _Terms(NamedTuple):
    """Terms of the linearized contacts.

    T, inverse: T and D^-1 (k, 3, 3). right: (k, 3). miss: (k, 3), see `interior._velocities`. bends: (k, 3), soft and
    the two entries of slope.
    """

    T: Array
    inverse: Array
    right: Array
    miss: Array
    bends: Array


def interior_change(
    s: Any, x: Array, w: Array, coupling: Array, own: Array, force: Array, corrector: Callable
) -> tuple[Array, Array, Any]:
    """The step dx (n,) and dw (k, 3) from x (n,), w (k, 3) of a `_Scaled` problem, whose F has columns times `scale`.

    coupling: see `interior.py`. own, force: (r,), added to the diagonal of further rows, and their right side.
    corrector(dx, dw): what the predictor's step adds to the right sides of contacts (k, 3) and rows (r,), and the aims
    of the products of bounds, which are the last result.
    """
    G, scale, ridge = s.G, s.scale, s.G.ridge * s.scale * s.scale
    diagonal, points = own + ridge[3 * len(w) :], x[: 3 * len(w)].reshape(w.shape)
    factors, terms = _assembled(s, x, w, coupling, diagonal, ridge)

    def gathered(run: Run, values, i, dx: Array, of: Array):
        """For contact or row i: number, first index, blocks of F, scale, its dx, and its rows of F^T `of`."""
        n, at, F = run.first + i, G.offset(run, run.first + i), columns(values, run, i)
        c, old = (_part(a, at, run.size) for a in (scale, dx))
        return n, at, F, c, old, c * rates_of(of, run, F)

    def solve(turn: Array, state: _Solve) -> _Solve:
        def forward(run: Run, values, i, found: tuple[Array, Array]):
            dx, f = found
            n, at, F, c, old, g = gathered(run, values, i, dx, state.z)
            if run.size == 1:
                y = (_part(state.force, n, 1) - g) / _part(diagonal, n, 1) - old
            else:
                T, inverse, right, xi, wi = (_row(a, n) for a in (terms.T, terms.inverse, state.right, points, w))
                soft = _row(terms.bends, n)[0] * old[0] * xi
                g = g + _part(ridge, at, 3) * old
                y = sm.matvec(inverse, right - sm.matvec(T, g) - sm.matvec(_arrow(wi), old) - soft)
            return _put(dx, at, old + y), scatter_add(f, run, [product(part, c * y) for part in F])

        def back(run: Run, values, i, found: tuple[Array, Array]):
            dx, z = found
            n, at, F, c, old, g = gathered(run, values, i, dx, answer)
            if run.size == 1:
                new = old - g / _part(diagonal, n, 1)
            else:
                new = old - sm.matvec(_row(terms.inverse, n), sm.matvec(_row(terms.T, n), g))
            return _put(dx, at, new), scatter_add(z, run, [product(part, c * new) for part in F])

        dx, f = G.by_contacts(forward, (state.dx, none := jnp.zeros_like(state.z)))
        answer = factors.solve(f)
        dx, z = G.by_contacts(back, (dx, none))
        return only_if(turn == 0, corrected, state._replace(dx=dx, z=z))

    def corrected(state: _Solve) -> _Solve:
        right, force, aims = corrector(state.dx, _change_of_w(s, state.dx, state.z, terms))
        return state._replace(right=state.right + right, force=state.force + force, aims=aims)

    still = jnp.zeros(SIZE * (G.pattern.blocks + 1), x.dtype)
    start = _Solve(jnp.zeros_like(x), still, terms.right, force, (jnp.zeros_like(own), jnp.zeros_like(own)))
    last = jax.lax.fori_loop(0, SOLVES, solve, start)
    return last.dx, _change_of_w(s, last.dx, last.z, terms), last.aims


class _Solve(NamedTuple):
    """A step dx (n,) with z = F dx, the right sides of contacts (k, 3) and of rows (r,), and the aims of bounds."""

    dx: Array
    z: Array
    right: Array
    force: Array
    aims: tuple[Array, Array]


def _assembled(s: Any, x: Array, w: Array, coupling: Array, diagonal: Array, ridge: Array) -> tuple[Any, _Terms]:
    """The factors of 1 + F K F^T, and the terms of contacts."""
    G, k, scale = s.G, len(w), s.scale
    point = G.spread(scale * x)

    def assemble(run: Run, values, i, state: tuple[Array, _Terms]):
        n, at, F = run.first + i, G.offset(run, run.first + i), columns(values, run, i)
        (M, terms), c = state, _part(scale, at, run.size)
        if run.size == 1:
            return plus_contact(M, G.pattern, run, F, (c * c / _part(diagonal, n, 1))[:, None]), terms
        xi, ri = _part(x, at, 3), _part(ridge, at, 3)
        u = c * rates_of(point, run, F) + ri * xi + _part(s.b, at, 3)
        found = _terms(xi, _row(w, n), u, None if s.barrier is None else _row(s.barrier, n), ri, coupling)
        M = plus_contact(M, G.pattern, run, F, c[:, None] * sm.matmul(found.inverse, found.T) * c)
        return M, jax.tree.map(lambda a, b: jax.lax.dynamic_update_slice_in_dim(a, b[None], n, 0), terms, found)

    matrices, vectors = jnp.zeros((k, 3, 3), x.dtype), jnp.zeros((k, 3), x.dtype)
    M, terms = G.by_contacts(assemble, (identity(G.pattern, x.dtype), _Terms(*[matrices] * 2, *[vectors] * 3)))
    return factorized(M, G.pattern), terms


def _change_of_w(s: Any, dx: Array, z: Array, terms: _Terms) -> Array:
    """The step dw (k, 3) of W that belongs to dx (n,), with z = F dx."""
    G, ridge = s.G, s.G.ridge * s.scale * s.scale

    def one(run: Run, values, i, dw):
        if run.size == 1:
            return dw
        n, at = run.first + i, 3 * (run.first + i)
        own = _part(dx, at, 3)
        g = _part(s.scale, at, 3) * rates_of(z, run, columns(values, run, i)) + _part(ridge, at, 3) * own
        soft, a, b = jnp.unstack(_row(terms.bends, n))
        more = jnp.stack([a * g[1] + b * g[2] + soft * own[0], *[jnp.zeros_like(a)] * 2])
        return jax.lax.dynamic_update_slice_in_dim(dw, (_row(terms.miss, n) + g + more)[None], n, 0)

    return G.by_contacts(one, jnp.zeros_like(terms.miss))


def _terms(x: Array, w: Array, u: Array, barrier: Array | None, ridge: Array, coupling: Array) -> _Terms:
    """The terms of one contact; x, w, u, ridge: (3,)."""
    square = w[1] * w[1] + w[2] * w[2]
    slide, none = jnp.sqrt(square), jnp.zeros_like(square)
    a, b = (coupling * y / jnp.where(square > 0, slide, jnp.ones_like(slide)) for y in (w[1], w[2]))
    push = none if barrier is None else barrier / x[0]
    soft, off = push / x[0], u - w
    miss = jnp.stack([off[0] + slide - push + a * off[1] + b * off[2], off[1], off[2]])
    right = -sm.matvec(_arrow(x), w + miss)
    T = _turned(x, a, b)
    firm = ridge + FIRMER * float(jnp.finfo(x.dtype).eps)
    D = _arrow(w) + T * firm + _arrow(x) * jnp.stack([soft, none, none])
    return _Terms(T, sm.inv3(D), right, miss, jnp.stack([soft, a, b]))


def _arrow(x: Array) -> Array:
    """The matrix (3, 3) of the Jordan product with x (3,): arrow(x) y = x o y."""
    none = jnp.zeros_like(x[0])
    return jnp.stack([x, jnp.stack([x[1], x[0], none]), jnp.stack([x[2], none, x[0]])])


def _turned(x: Array, a: Array, b: Array) -> Array:
    """The matrix (3, 3) of x o (1 + slope), where slope adds a u_1 + b u_2 to u_0."""
    return _arrow(x) + jnp.stack([jnp.zeros_like(x), a * x, b * x], 1)


def least_of_contacts(G: Any, of: Callable, arrays: Sequence[tuple]) -> tuple[Array, ...]:
    """For each of several arrays (y (k, 3), change (k, 3), number) the least of(y, change, number) of a contact, ()."""

    def one(run: Run, values, i, found: tuple):
        n = run.first + i
        new = [of(_row(y, n), _row(change, n), number) for y, change, number in arrays]
        return tuple(map(jnp.minimum, found, new))

    far = jnp.full_like(G.ridge[0], jnp.finfo(G.dtype).max)
    return G.by_contacts(one, (far,) * len(arrays), rows=False)


def violation(p: ConeProblem, x: Array) -> tuple[Array, Array]:
    """How far impulses x (n,) are from the law: the change of `natural_map`, squared in the metric of `solver._change`,
    (), and the largest one as a velocity, ()."""
    G, k = p.G, len(p.friction)
    steps, point = step_of_rows(G, k), G.spread(x)

    def one(run: Run, values, i, found: tuple[Array, Array]):
        n, at = run.first + i, G.offset(run, run.first + i)
        own, step, ridge, b = (_part(a, at, run.size) for a in (x, steps, G.ridge, p.b))
        z = own - step * (rates_of(point, run, columns(values, run, i)) + ridge * own + b)
        if run.size == 1:
            new = jnp.clip(z, _part(p.low, n, 1), _part(p.high, n, 1))
        else:
            new = contact_image(z, _row(p.friction, n), None if p.barrier is None else _row(p.barrier, n), step[0])
        change = jnp.abs(new - own)
        return found[0] + jnp.sum(change * change / step), jnp.maximum(found[1], jnp.max(change / step))

    none = jnp.zeros_like(x[0])
    return G.by_contacts(one, (none, none))


# ---- entries of one contact
def _part(a: Array, at, count: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(a, at, count)


def _row(a: Array, n) -> Array:
    return jax.lax.dynamic_index_in_dim(a, n, keepdims=False)


def _put(a: Array, at, part: Array) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(a, part, at, 0)


def newton_change(p: ConeProblem, x: Array, damping: Array) -> Array:
    """The step dx (n,) of `newton.py` from impulses x (n,), with Levenberg damping ().

    With the derivative S of a contact's projection, T = S diag(steps) and D = 1 - S + T (damping + ridge).
    """
    G, k = p.G, len(p.friction)
    steps, point = step_of_rows(G, k), G.spread(x)

    def terms(run: Run, i, z: Array, own: Array, step: Array, ridge: Array):
        """K and y = D^-1 right for contact or row i."""
        n = run.first + i
        if run.size == 1:
            low, high = _part(p.low, n, 1), _part(p.high, n, 1)
            inside = ((z > low) & (z < high)).astype(z.dtype)
            share = 1 / (1 - inside + inside * step * (damping + ridge))
            return (share * inside * step)[:, None], share * (jnp.clip(z, low, high) - own)
        barrier = None if p.barrier is None else _row(p.barrier, n)
        image = lambda z: contact_image(z, _row(p.friction, n), barrier, step[0])
        S = jax.jacfwd(image)(z)
        inverse = sm.inv3(jnp.asarray(np.eye(3), z.dtype) - S + S * step * (damping + ridge))
        return sm.matmul(inverse, S * step), sm.matvec(inverse, image(z) - own)

    def assemble(run: Run, values, i, state):
        M, f, dx, kept = state
        at, F = G.offset(run, run.first + i), columns(values, run, i)
        own, step, ridge, b = (_part(a, at, run.size) for a in (x, steps, G.ridge, p.b))
        z = own - step * (rates_of(point, run, F) + ridge * own + b)
        K, y = terms(run, i, z, own, step, ridge)
        padded = jnp.zeros((run.size, 3), z.dtype).at[:, : run.size].set(K)
        kept = jax.lax.dynamic_update_slice(kept, padded, (at, 0))
        M, f = plus_contact(M, G.pattern, run, F, K), scatter_add(f, run, [product(part, y) for part in F])
        return M, f, _put(dx, at, y), kept

    start = identity(G.pattern, x.dtype), jnp.zeros_like(point), jnp.zeros_like(x), jnp.zeros((len(x), 3), x.dtype)
    M, f, dx, kept = G.by_contacts(assemble, start)
    answer = factorized(M, G.pattern).solve(f)

    def back(run: Run, values, i, dx):
        at = G.offset(run, run.first + i)
        K = jax.lax.dynamic_slice(kept, (at, 0), (run.size, run.size))
        g = rates_of(answer, run, columns(values, run, i))
        return _put(dx, at, _part(dx, at, run.size) - product(K, g))

    return G.by_contacts(back, dx)
