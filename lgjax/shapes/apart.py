"""The nearest points of two cores that are apart, by the method of Gilbert, Johnson and Keerthi.

A simplex of support points of the difference D comes ever nearer to the origin: its nearest point v gives a normal,
along which the next support point is found, and that one replaces a corner without which v is the same.

Source: Gilbert, Johnson, Keerthi, A fast procedure for computing the distance between complex objects (1988).
Read first: `minkowski.py`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from lgjax.numerics import small_matrix as sm
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.small_angle import norm
from lgjax.shapes.contact import Array
from lgjax.shapes.minkowski import Difference, Found, judged

STEPS = 60
STALLS = 8  # a small turn of v, which the gap needs, changes its length by less than round-off


class _Simplex(NamedTuple):
    """Points (3, 3) of D with labels (3, k) and weights (3,), 0 for none, and their point v (3,) nearest to 0.

    normal, gap: the best so far. steps, stalls: so far, and those of them that came no nearer. going: whether there
    will be another one.
    """

    points: Array
    labels: Array
    weights: Array
    v: Array
    normal: Array
    gap: Array
    steps: Array
    stalls: Array
    going: Array


def nearest(D: Difference, start: Array, size: Array, least: Array, wanted: Array) -> tuple[Found, Array]:
    """The nearest point of D to the origin, from a unit normal, and its distance (), to no less than `least`.

    Where it is not wanted (), the result is of no use.
    """
    w, label = D.support(start)
    zero = jnp.zeros_like(least)
    weights = sm.stack(zero + 1, zero, zero)
    count = jnp.zeros((), jnp.int32)
    points, labels = jnp.stack([w] * 3), jnp.stack([label] * 3)
    goes = wanted & (norm(w) > least)
    begin = _Simplex(points, labels, weights, w, start, -sm.dot(start, w), count, count, goes)
    end = iterate_while(lambda state: state.going, lambda state: _approach(D, state, least), begin)
    # Labels without weight are those of another point.
    none = end.weights[:, None] <= 0
    labels = jnp.where(none, end.labels[jnp.argmax(end.weights)], end.labels)
    return judged(D, end.normal, labels, size), norm(end.v)


def _approach(D: Difference, state: _Simplex, least: Array) -> _Simplex:
    eps = float(jnp.finfo(least.dtype).eps)
    length = norm(state.v)
    normal = -state.v / length
    w, label = D.support(normal)
    gap = -sm.dot(normal, w)
    points = jnp.concatenate([w[None], state.points])
    labels = jnp.concatenate([label[None], state.labels])
    v, weights, inside = _closest(w, state.points, state.weights > 0)
    nearer = norm(v) < length * (1 - 2 * eps)
    beyond = length - gap > 16 * eps * length
    turned = beyond & (norm(v) <= length * (1 + 4 * eps)) & (state.stalls < STALLS)
    # One of the four has no weight.
    dropped = jnp.argmin(weights).astype(jnp.int32)
    order = np.arange(3, dtype=np.int32)
    kept = jnp.where(order >= dropped, order + 1, order)
    taken = nearer | turned
    take = lambda x, old: jnp.where(taken, x[kept], old)
    better = gap > state.gap
    going = taken & ~inside & beyond & (norm(v) > least) & (state.steps < STEPS)
    return _Simplex(
        take(points, state.points),
        take(labels, state.labels),
        take(weights, state.weights),
        jnp.where(inside, jnp.zeros_like(v), jnp.where(taken, v, state.v)),
        jnp.where(better, normal, state.normal),
        jnp.where(better, gap, state.gap),
        state.steps + 1,
        state.stalls + jnp.where(nearer, 0, 1).astype(jnp.int32),
        going,
    )


def _closest(w: Array, others: Array, there: Array) -> tuple[Array, Array, Array]:
    """The point (3,) nearest to 0 of the simplex of w and up to three others, weights (4,), whether 0 is inside.

    w is one of its corners: all faces with w are tried, and of those in which 0 projects the nearest is taken.
    """
    e = [others[k] - w for k in range(3)]
    square = [sm.dot(x, x) for x in e]
    zero, one = jnp.zeros_like(square[0]), jnp.ones_like(square[0])
    eps = float(jnp.finfo(w.dtype).eps)
    tiny = eps**1.5
    best, least, weights = w, sm.dot(w, w), [zero] * 3

    def offer(state, valid, v, shares, slack=0.0):
        best, least, weights = state
        length = sm.dot(v, v)
        valid = valid & (length < least * (1 + slack))
        weights = [jnp.where(valid, x, y) for x, y in zip(shares, weights, strict=True)]
        return jnp.where(valid, v, best), jnp.where(valid, length, least), weights

    state = best, least, weights
    for k in range(3):
        full = there[k] & (square[k] > 0)
        share = -sm.dot(w, e[k]) / jnp.where(full, square[k], one)
        valid = full & (share > 0) & (share < 1)
        state = offer(state, valid, w + share * e[k], [share if i == k else zero for i in range(3)])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        # From the longer side: where both are nearly parallel, N and the weights are then true across and along it.
        turned = square[i] < square[j]
        pick = lambda x, y, turned=turned: (jnp.where(turned, y, x), jnp.where(turned, x, y))
        (long, other), length = pick(e[i], e[j]), jnp.maximum(square[i], square[j])
        along = 1 / jnp.where(length > 0, length, one)
        slope = sm.dot(long, other) * along
        beside = other - slope * long
        height = sm.dot(beside, beside)
        full = there[i] & there[j] & (height > tiny * jnp.minimum(square[i], square[j]))
        N = sm.cross(long, beside)
        v = N * (sm.dot(N, w) / jnp.where(full, length * height, one))
        second = -sm.dot(beside, w) / jnp.where(full, height, one)
        first = -sm.dot(long, w) * along - slope * second
        valid = full & (first > 0) & (second > 0) & (first + second < 1)
        first, second = pick(first, second)
        shares = [first if k == i else second if k == j else zero for k in range(3)]
        state = offer(state, valid, v, shares, 8 * eps)  # it is nearer than its sides, if by less than round-off
    c = [sm.cross(e[1], e[2]), sm.cross(e[2], e[0]), sm.cross(e[0], e[1])]
    volume = sm.dot(e[0], c[0])
    full = jnp.all(there) & (volume * volume > tiny * square[0] * square[1] * square[2])
    shares = [-sm.dot(w, x) / jnp.where(full, volume, one) for x in c]
    inside = full & (shares[0] > 0) & (shares[1] > 0) & (shares[2] > 0) & (shares[0] + shares[1] + shares[2] < 1)
    v, _, shares = state
    return v, sm.stack(1 - shares[0] - shares[1] - shares[2], *shares), inside
