"""The normal along which two cores overlap least.

Along a ray r the exit from the difference D is a linear program in the support points of D, whose dual is a normal n. A
pivot brings in the support point along n and drops another one. The exit along n is at least as near as that along r,
so r becomes n, until the conditions of the optimum hold; Newton's method on them makes the last digits quick. Each
optimum found so is a local one: the search starts from the best of some normals.

Source: Lipp and Boyd, Variations and extension of the convex-concave procedure (2016), for the sequence of rays.
Read first: `minkowski.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics import small_matrix as sm
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.small_angle import norm
from lgjax.shapes.contact import Array
from lgjax.shapes.minkowski import Difference, Found, is_better, judged, plane, polished, weighted

PIVOTS = 60  # along one ray
ROUNDS = 40  # rays
# By how much a ray is turned, so that it does not pass through an edge of D: an odd direction in the plane across it,
# and how far. Each further ray is turned less, to no less than a power of round-off: D may have small faces. The best
# normal of two polytopes is among the starts, and they begin with the least.
ASIDE = (0.9, 0.43)
FAR, LEAST = 2.5e-4, 0.8
SOME = 0.75  # a share of a point in another one is none below this power of round-off, relative to the largest
ARTIFICIAL = 1e3  # cost of the points with which a linear program begins, relative to the inverse of the margin


class _Search(NamedTuple):
    """The best optimum so far, the normal of the next ray, rounds so far, and whether there will be another one."""

    found: Found
    ray: Array
    rounds: Array
    going: Array


class _Exit(NamedTuple):
    """Points (3, 3) of D, their labels (3, k) and costs (3,), and the normal (3,) of the last pivot.

    pivots: so far. going: whether there will be another one.
    """

    points: Array
    labels: Array
    costs: Array
    normal: Array
    pivots: Array
    going: Array


def shallowest(D: Difference, starts: Array, count: int, size: Array, margin: Array, wanted: Array) -> Found:
    """The normal along which two cores overlap least, found from the best `count` of unit normals (m, 3).

    The origin is in D, or not farther from it than half the margin (): D is searched with a ball of the margin added.
    Where it is not wanted (), the result is of no use.
    """
    gaps = jax.vmap(D.gap)(starts)
    nothing = Found(starts[0], -jnp.inf * jnp.ones_like(size), jnp.stack([D.label(starts[0])] * 3), size)

    least = 64 * float(jnp.finfo(size.dtype).eps) * size

    def search(_, state):
        found, gaps = state
        first = jnp.argmax(gaps).astype(jnp.int32)
        near = jnp.max(gaps) <= 0.5 * margin  # or else the bodies are farther apart
        new = _from(D, starts[first], size, margin, wanted & (near | (not D.solid)))
        better = is_better(new, found, least) if count > 1 else new.gap > found.gap
        found = jax.tree.map(lambda x, y: jnp.where(better, x, y), new, found)
        return found, jnp.where(np.arange(len(starts), dtype=np.int32) == first, -jnp.inf, gaps)

    return jax.lax.fori_loop(0, count, search, (nothing, gaps))[0]


def _from(D: Difference, start: Array, size: Array, margin: Array, wanted: Array) -> Found:
    """The optimum reached from one normal."""
    eps = float(jnp.finfo(size.dtype).eps)

    def follow(state: _Search) -> _Search:
        # Curved bodies at first to a few digits: Newton's method finds the others, where the points on them move.
        tenths = jnp.where(D.polytope, 0.0, 0.1 ** state.rounds.astype(size.dtype))
        tolerance = jnp.maximum(64 * eps, 1e-3 * tenths)
        aside = jnp.maximum(FAR * tenths, eps**LEAST)
        normal, labels = _exit(D, state.ray, aside, margin, tolerance, state.going)
        new = judged(D, normal, labels, size)
        same = judged(D, state.ray, labels, size)
        # The ray of a polytope has fewer round-off errors; of others it is itself the optimum where it began as one.
        kept = same.error <= 64 * eps * size if D.solid else same.gap > new.gap + 64 * eps * size
        new = jax.tree.map(lambda x, y: jnp.where(kept, x, y), same, new)
        exact = new.error <= (64 * eps * size if D.solid else 0)
        new = jax.lax.cond(exact, lambda x: x, lambda x: polished(D, x, size), new)
        better = is_better(new, state.found, 64 * eps * size)
        found = jax.tree.map(lambda x, y: jnp.where(better, x, y), new, state.found)
        unfinished = (new.error > 64 * eps * size) & (better | (tolerance > 64 * eps))
        return _Search(found, found.normal, state.rounds + 1, unfinished & (state.rounds < ROUNDS))

    nothing = Found(start, -jnp.inf * jnp.ones_like(size), jnp.stack([D.label(start)] * 3), size)
    begin = _Search(nothing, start, jnp.zeros((), jnp.int32), wanted)
    return iterate_while(lambda state: state.going, follow, begin).found


def _exit(D: Difference, ray: Array, aside: Array, margin: Array, tolerance: Array, wanted) -> tuple[Array, Array]:
    """The normal where a ray leaves D, to a relative tolerance of the way, and the labels of three points around it.

    The ray is turned by `aside` () along `ASIDE`.
    """
    points, costs, ray = _around(ray, aside, margin)
    labels = jnp.stack([D.label(ray)] * 3)
    begin = _Exit(points, labels, costs, ray, jnp.zeros((), jnp.int32), wanted)
    turn = lambda state: _pivot(D, state, ray, margin, tolerance)
    end = iterate_while(lambda state: state.going, turn, begin)
    return end.normal, end.labels


def _around(normal: Array, aside: Array, margin: Array) -> tuple[Array, Array, Array]:
    """Points and costs with which a linear program begins, and its ray: a normal, turned aside a little."""
    t, u = plane(normal)
    turns = 2 * np.pi / 3 * np.arange(3.0)
    points = [normal + float(np.cos(k)) * t + float(np.sin(k)) * u for k in turns]
    costs = jnp.broadcast_to(ARTIFICIAL / margin, (3,))
    return jnp.stack(points), costs, normal + aside * (ASIDE[0] * t + ASIDE[1] * u)


def _pivot(D: Difference, state: _Exit, ray: Array, margin: Array, tolerance: Array) -> _Exit:
    """One pivot of the linear program along a ray: r = sum c_i w_i with the least cost of the c_i >= 0."""
    W = state.points
    c = [sm.cross(W[1], W[2]), sm.cross(W[2], W[0]), sm.cross(W[0], W[1])]  # W^-1 has the columns c_i / det
    det = sm.dot(W[0], c[0])
    flat = det == 0
    det = jnp.where(flat, jnp.ones_like(det), det)
    dual = weighted(list(state.costs / det), c)
    length = norm(dual)
    usable = ~flat & (length > 0) & (length < jnp.inf)
    normal = jnp.where(usable, dual / jnp.where(usable, length, jnp.ones_like(length)), state.normal)
    w, label = D.support(normal)
    outer = w + margin * normal
    gain = sm.dot(dual, outer) - 1
    genuine = jnp.max(state.costs) <= 1
    have, takes = (jnp.stack([sm.dot(x, y) / det for x in c]) for y in (ray, outer))
    # A point that coincides with one of the three must replace that one: the others keep what is round-off.
    some = takes > float(jnp.finfo(takes.dtype).eps) ** SOME * jnp.max(jnp.abs(takes))
    ratio = jnp.where(some, have / jnp.where(some, takes, jnp.ones_like(takes)), jnp.inf)
    enters = usable & (~genuine | (gain > tolerance)) & (jnp.min(ratio) < jnp.inf)
    leaves = enters & (np.arange(3, dtype=np.int32) == jnp.argmin(ratio).astype(jnp.int32))
    choose = lambda x, old: jnp.where(leaves.reshape(3, *[1] * (old.ndim - 1)), x, old)
    return _Exit(
        choose(outer, W),
        choose(label, state.labels),
        choose(jnp.ones_like(gain), state.costs),
        normal,
        state.pivots + 1,
        enters & (state.pivots < PIVOTS),
    )
