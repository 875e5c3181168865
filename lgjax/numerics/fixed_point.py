"""Fixed points of contractions, faster than by repetition, with derivatives by the implicit function theorem.

Read first: `loops.py`, which explains why a loop carries its own answer to whether it goes on.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lgjax.numerics import small_matrix as sm
from lgjax.numerics.implicit import implicit
from lgjax.numerics.loops import iterate_while

Array = jax.Array
Map = Callable[[Array], Array]

# Changes that are remembered.
MEMORY = 5
# Where the residual has grown by this factor over the least so far, they say nothing of what follows.
GROWTH = 2.0
# Derivatives are wrong by this power of round-off, relatively.
DAMPING = 0.6
# Of the least squares, in units of round-off: pivots stay positive.
REGULARIZATION = 64.0


class _Anderson(NamedTuple):
    """The point, the last image and residual, what they changed by, the least residual since the last restart; the
    image with the least residual of all, and that; whether it is done, and turns.
    """

    point: Array
    image: Array
    residual: Array
    images: Array
    residuals: Array
    least: Array
    best: Array
    least_of_all: Array
    done: Array
    turns: Array


def fixed_point(contraction: Map, start: Array, close: Array, max_turns: int, active: Array | bool = True) -> Array:
    """The point (n,) that a contraction of R^n maps to itself, by Anderson's acceleration.

    Where the map is linear of rank r near the point, about r turns are enough.  Directions in which it neither
    contracts nor moves the start are left alone.

    start      (n,) where to begin; it has no influence on derivatives.
    close      (n,) the iteration ends when no entry changes by more.
    max_turns  after so many turns the image that changed least is returned, close or not.
    active     whether to iterate at all, for batches in which some have nothing to do.

    Source: Walker and Ni, Anderson acceleration for fixed-point iterations (2011), with restarts.
    """
    going = jnp.asarray(active)
    ends = jax.lax.stop_gradient(close)

    def solve(linear: Map, y: Array) -> Array:
        """The x with G x - x = y, for G and for its transpose.

        Where G keeps a direction as it is, round-off of y along it would be blown up without the damping.
        """
        damping = 1.0 - float(jnp.finfo(y.dtype).eps) ** DAMPING
        size = jnp.max(jnp.abs(y), initial=0.0)
        limit = jnp.full_like(y, 16.0 * float(jnp.finfo(y.dtype).eps)) * size
        return _anderson(lambda x: damping * (linear(x) + x) - y, jnp.zeros_like(y), limit, max_turns, size > 0)

    find = lambda x: (_anderson(contraction, x, ends, max_turns, going), ())
    return implicit(lambda x: contraction(x) - x, find, start, lambda linear, x: (solve, solve))[0]


def _anderson(contraction: Map, start: Array, close: Array, max_turns: int, active: Array) -> Array:
    exact = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    unit = jnp.eye(MEMORY, dtype=start.dtype)
    tiny, eps = float(jnp.finfo(start.dtype).tiny) ** 0.5, float(jnp.finfo(start.dtype).eps)

    def turn(s: _Anderson) -> _Anderson:
        image = contraction(s.point)
        residual = image - s.point
        size = jnp.sum(residual * residual)
        anew = (size > GROWTH**2 * s.least) | (s.turns == 0)
        row = (jnp.arange(MEMORY, dtype=jnp.int32) == s.turns % MEMORY)[:, None]
        remember = lambda old, new: jnp.where(anew, jnp.zeros_like(old), jnp.where(row, new, old))
        images = remember(s.images, image - s.image)
        residuals = remember(s.residuals, residual - s.residual)
        gram = exact("ai,bi->ab", residuals, residuals)
        gram = gram + (tiny + REGULARIZATION * eps * jnp.trace(gram)) * unit
        weights = sm.ldl_solve(sm.ldl(gram), exact("ai,i->a", residuals, residual))
        done = jnp.max(jnp.abs(residual) - close, initial=-1.0) <= 0
        point = jnp.where(done, image, image - exact("ai,a->i", images, weights))
        least = jnp.where(anew, size, jnp.minimum(s.least, size))
        best = jnp.where(size <= s.least_of_all, image, s.best)
        least_of_all = jnp.minimum(s.least_of_all, size)
        return _Anderson(point, image, residual, images, residuals, least, best, least_of_all, done, s.turns + 1)

    none, zeros = jnp.zeros_like(start), jnp.zeros((MEMORY, *start.shape), start.dtype)
    infinite, no = jnp.full((), jnp.inf, start.dtype), jnp.zeros((), bool)
    first = _Anderson(start, start, none, zeros, zeros, infinite, start, infinite, no, jnp.zeros((), jnp.int32))
    return iterate_while(lambda s: active & ~s.done & (s.turns < max_turns), turn, first).best
