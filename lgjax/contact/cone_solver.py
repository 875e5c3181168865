"""Impulses at contacts by Coulomb's law with cones: block Gauss-Seidel, accelerated, with implicit derivatives.

Find impulses x with velocities u = G x + b such that for each contact, rows (normal, two tangents),

    0 <= x_n,  0 <= u_n,  x_n u_n = 0   and   |x_t| <= mu x_n,  x_t = -mu x_n u_t / |u_t| where u_t is not 0,

and for each further row  low <= x <= high  with u >= 0 at low, u <= 0 at high and u = 0 between. One sweep goes from
contact to contact: it solves the normal exactly, then moves the tangents down the slope and back into the disc;
Anderson's acceleration extrapolates what couples the contacts. A sweep takes only products of rows, so a batch works on
arrays with the batch last, each system stops when it is done, and no matrix is factored. Why not others: an alternating
direction method or an interior point method factors G for each system, a semismooth Newton method needs a safeguard
that is this iteration.

The law itself is solved, not its convex relaxation. Derivatives are those of the solution's natural equations.
Source: the problem is that of Moreau and Alart-Curnier; Walker and Ni, Anderson acceleration for fixed-point iterations
(2011).
"""

from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.responses import total
from lgjax.execution._jax import call_apart
from lgjax.numerics.loops import iterate_while

Array = jax.Array

MEMORY = 5  # sweeps that the acceleration remembers
GROWTH = 2.0  # it starts anew where a sweep changes this many times more than the best since it began
REGULARIZATION = 64.0  # of its least squares, in units of round-off
RIDGE = 4.0  # added to G in units of round-off of its mean diagonal: dependent contacts share their load


class ConeProblem(NamedTuple):
    """Problems with k contacts and r further rows, n = 3 k + r, side by side: every array has a last axis B.

    G: (n, n) symmetric, positive semi-definite with positive diagonal. b: (n,). friction: (k,). low, high: (r,), may be
    infinite. barrier: (k,) >= 0: 0 is the law; otherwise x_n u_n = barrier / G_nn, which is smooth.
    """

    G: Array
    b: Array
    friction: Array
    low: Array
    high: Array
    barrier: Array


class ConeSolution(NamedTuple):
    """x: (n, B) impulses. residual: (B,) m/s, the largest violation of the law. sweeps: (B,) int32."""

    x: Array
    residual: Array
    sweeps: Array


def solve_cones(
    problem: ConeProblem, guess: Array, active: Array, scale: Array, tolerance: float, max_sweeps: int
) -> ConeSolution:
    """The impulses, from a guess (n, B), which stays as it is where `active` (B,) is false. All arrays have the batch
    last.

    A system ends when no velocity changes by more than tolerance times `scale` (B,), or after max_sweeps. With
    max_sweeps 0 the guess is taken as the solution; this serves to differentiate a solution that is known.
    """
    n = len(problem.G)
    diagonal = total(problem.G[i, i] for i in range(n))
    ridge = RIDGE * float(jnp.finfo(diagonal.dtype).eps) / n * diagonal
    problem = problem._replace(G=problem.G + ridge * jnp.eye(n, dtype=diagonal.dtype)[..., None])
    return _solution(tolerance, max_sweeps, problem, *jax.lax.stop_gradient((guess, active, scale)))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _solution(tolerance: float, max_sweeps: int, problem: ConeProblem, guess, active, scale) -> ConeSolution:
    return _iterate(tolerance, max_sweeps, problem, guess, active, scale)


@_solution.defjvp
def _rule(tolerance, max_sweeps, primals, tangents):
    """(1 - dF/dx) dx = dF/dproblem for the natural map F of the law, whose fixed point x is."""
    problem, _, active, _ = primals
    found = _solution(tolerance, max_sweeps, *primals)
    change = jax.jvp(lambda p: natural_map(p, found.x), (problem,), (tangents[0],))[1]
    n = len(found.x)
    unit = jnp.broadcast_to(jnp.eye(n, dtype=change.dtype)[..., None], (n, *found.x.shape))
    push = lambda direction: jax.jvp(lambda x: natural_map(problem, x), (found.x,), (direction,))[1]
    slope = jnp.moveaxis(unit - jax.vmap(push)(unit), (0, 1, 2), (2, 1, 0))  # (B, n, n)
    moved = jnp.linalg.solve(slope, change.T[..., None])[..., 0].T
    moved = jnp.where(active, moved, jnp.zeros_like(moved))
    still: Any = jnp.zeros_like(found.residual), np.zeros(found.sweeps.shape, jax.dtypes.float0)
    return found, ConeSolution(moved, *still)


def _steps(G: Array, k: int) -> tuple[Array, Array, Array]:
    """Impulses per velocity: (k, B) of normals, (k, B) of tangents, (r, B) of further rows."""
    diagonal = jnp.stack([G[i, i] for i in range(len(G))])
    blocks = diagonal[: 3 * k].reshape(k, 3, G.shape[-1])
    return 1 / blocks[:, 0], 2 / (blocks[:, 1] + blocks[:, 2]), 1 / diagonal[3 * k :]


def _push(x: Array, barrier: Array) -> Array:
    """The impulse >= 0 nearest to x, or on the smooth curve x_n (x_n - x) = barrier."""
    smooth = barrier > 0
    root = jnp.sqrt(jnp.where(smooth, x * x + 4 * barrier, jnp.ones_like(x)))
    # Without cancellation where x < 0.
    rising = 0.5 * (x + root)
    falling = 2 * barrier / jnp.where(smooth, root - x, jnp.ones_like(x))
    soft = jnp.where(x > 0, rising, falling)
    return jnp.where(smooth, soft, jnp.maximum(x, jnp.zeros_like(x)))


def _disc(x0: Array, x1: Array, radius: Array) -> tuple[Array, Array]:
    """The point of the disc nearest to (x0, x1)."""
    square = x0 * x0 + x1 * x1
    outside = square > radius * radius
    size = jnp.sqrt(jnp.where(outside, square, jnp.ones_like(square)))
    part = jnp.where(outside, radius / size, jnp.ones_like(size))
    return part * x0, part * x1


def natural_map(p: ConeProblem, x: Array) -> Array:
    """What the law makes of impulses (n, B), all contacts at once; impulses obey the law if they are a fixed point."""
    k = len(p.friction)
    steps = _steps(p.G, k)
    u = times(p.G, x) + p.b
    X, V = x[: 3 * k].reshape(k, 3, p.G.shape[-1]), u[: 3 * k].reshape(k, 3, p.G.shape[-1])
    normal = _push(X[:, 0] - steps[0] * V[:, 0], p.barrier * steps[0] * steps[0])
    tangents = _disc(X[:, 1] - steps[1] * V[:, 1], X[:, 2] - steps[1] * V[:, 2], p.friction * normal)
    rows = jnp.clip(x[3 * k :] - steps[2] * u[3 * k :], p.low, p.high)
    return jnp.concatenate([jnp.stack([normal, *tangents], 1).reshape(3 * k, p.G.shape[-1]), rows])


def times(G: Array, x: Array) -> Array:
    """G x (n, B). XLA for CPUs vectorises a sum of rows, but no reduction of an axis other than the last."""
    return total(G[:, j] * x[j] for j in range(len(x)))


def _sweep(p: ConeProblem, steps: tuple, x: Array) -> Array:
    """One after the other, each with the impulses found so far."""
    k, n = len(p.friction), len(p.G)
    slices = lambda arrays, start, size: [jax.lax.dynamic_slice_in_dim(a, start, size) for a in arrays]

    def contact(i, x):
        own = slices((p.G, p.b, x), 3 * i, 3) + slices((*steps[:2], p.friction, p.barrier), i, 1)
        coupling = jax.lax.dynamic_slice_in_dim(own[0], 3 * i, 1, 1)[1:, 0]
        return jax.lax.dynamic_update_slice_in_dim(x, call_apart(_contact)(x, coupling, *own), 3 * i, 0)

    def row(j, x):
        i = 3 * k + j
        own = slices((p.G, p.b, x), i, 1) + slices((steps[2], p.low, p.high), j, 1)
        return jax.lax.dynamic_update_slice_in_dim(x, call_apart(_row)(x, *own), i, 0)

    x = jax.lax.fori_loop(0, k, contact, x) if k else x
    return jax.lax.fori_loop(0, n - 3 * k, row, x) if n > 3 * k else x


def _contact(x, coupling, G, b, own, step_n, step_t, friction, barrier) -> Array:
    """Impulses (3, B) of one contact. coupling (2, B): velocities of the tangents per normal impulse."""
    u = times(G, x) + b
    normal = _push(own[:1] - step_n * u[:1], barrier * step_n * step_n)
    u = u[1:] + coupling * (normal - own[:1])
    t0, t1 = _disc(own[1:2] - step_t * u[:1], own[2:] - step_t * u[1:], friction * normal)
    return jnp.concatenate([normal, t0, t1])


def _row(x, G, b, own, step, low, high) -> Array:
    """Impulse (1, B) of one further row."""
    return jnp.clip(own - step * (times(G, x) + b), low, high)


class _State(NamedTuple):
    """Of the iteration; the arrays of Anderson's acceleration as in `numerics/fixed_point.py`."""

    point: Array
    image: Array
    residual: Array
    images: Array
    residuals: Array
    least: Array
    best: Array
    least_of_all: Array
    going: Array
    sweeps: Array
    turn: Array


def _iterate(tolerance: float, max_sweeps: int, p: ConeProblem, guess: Array, active: Array, scale) -> ConeSolution:
    k = len(p.friction)
    steps = _steps(p.G, k)
    stiffness = 1 / jnp.concatenate(
        [jnp.stack([steps[0], steps[1], steps[1]], 1).reshape(3 * k, p.G.shape[-1]), steps[2]]
    )
    close = tolerance * scale

    def turn(s: _State) -> _State:
        image = _sweep(p, steps, s.point)
        weighted, size, largest = call_apart(_change)(image, s.point, stiffness)
        anew = (size > GROWTH**2 * s.least) | (s.sweeps == 0)
        row = s.turn % MEMORY
        images = call_apart(_remember)(anew, row, s.images, image, s.image)
        residuals = call_apart(_remember)(anew, row, s.residuals, weighted, s.residual)
        point = call_apart(_extrapolate)(image, images, *call_apart(_weights)(residuals, weighted))
        best, least_of_all = call_apart(_better)(
            s.going & (size <= s.least_of_all), image, size, s.best, s.least_of_all
        )
        going = s.going & (largest > close) & (s.sweeps + 1 < max_sweeps)
        least = jnp.where(anew, size, jnp.minimum(s.least, size))
        sweeps = s.sweeps + s.going.astype(jnp.int32)
        return _State(point, image, weighted, images, residuals, least, best, least_of_all, going, sweeps, s.turn + 1)

    zeros, few = jnp.zeros_like(guess), jnp.zeros_like(guess, shape=(MEMORY, *guess.shape))
    far, none = jnp.full_like(close, jnp.inf), jnp.zeros(close.shape, jnp.int32)
    going = active & (max_sweeps > 0)
    start = jnp.zeros((), jnp.int32)
    first = _State(guess, zeros, zeros, few, few, far, guess, far, going, none, start)
    last = iterate_while(lambda s: jnp.any(s.going), turn, first)
    x = last.best
    residual = reduce(jnp.maximum, jnp.abs(natural_map(p, x) - x) * stiffness)
    return ConeSolution(x, jnp.where(active, residual, jnp.zeros_like(residual)), last.sweeps)


# ---- what a sweep is followed by, each compiled apart: fused, every number would be computed again where it is used
def _change(image: Array, point: Array, stiffness: Array) -> tuple[Array, Array, Array]:
    """The change in a metric in which contacts of light and heavy bodies compare, its square, its largest velocity."""
    change = image - point
    weighted = change * jnp.sqrt(stiffness)
    return weighted, total(weighted * weighted), reduce(jnp.maximum, jnp.abs(change) * stiffness)


def _remember(anew: Array, row: Array, memory: Array, new: Array, old: Array) -> Array:
    """The memory (MEMORY, n, B) with what has changed in one of its rows, or empty."""
    memory = jnp.where(anew, jnp.zeros_like(memory), memory)
    change = jnp.where(anew, jnp.zeros_like(new), new - old)
    return jax.lax.dynamic_update_slice_in_dim(memory, change[None], row, 0)


def _extrapolate(image: Array, images: Array, *weights: Array) -> Array:
    return image - total(map(jnp.multiply, weights, images))


def _better(chosen, image, size, best, least) -> tuple[Array, Array]:
    return jnp.where(chosen, image, best), jnp.where(chosen, size, least)


def _weights(residuals: Array, change: Array) -> list[Array]:
    """Least squares weights (B,) of the remembered residuals, by Cholesky's method without roots."""
    m = MEMORY
    gram = [[total(residuals[i] * residuals[j]) for j in range(i + 1)] for i in range(m)]
    x = [total(residuals[i] * change) for i in range(m)]
    info = jnp.finfo(change.dtype)
    floor = float(info.tiny) ** 0.5 + REGULARIZATION * float(info.eps) * total(gram[i][i] for i in range(m))
    lower: list[list[Array]] = []
    pivots: list[Array] = []
    for i in range(m):
        lower.append([])
        for j in range(i):
            inner = sum(lower[i][a] * lower[j][a] * pivots[a] for a in range(j))
            lower[i].append((gram[i][j] - inner) / pivots[j])
        pivots.append(gram[i][i] + floor - sum(lower[i][a] ** 2 * pivots[a] for a in range(i)))
    for i in range(m):
        x[i] = x[i] - sum(lower[i][a] * x[a] for a in range(i))
    x = [a / p for a, p in zip(x, pivots, strict=True)]
    for i in reversed(range(m)):
        x[i] = x[i] - sum(lower[a][i] * x[a] for a in range(i + 1, m))
    return x
