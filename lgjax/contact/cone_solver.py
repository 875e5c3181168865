"""Impulses at contacts by Coulomb's law with cones: block Gauss-Seidel, accelerated, with implicit derivatives.

Find impulses x with velocities u = G x + b such that for each contact, rows (normal, two tangents),

    0 <= x_n,  0 <= u_n,  x_n u_n = 0   and   |x_t| <= mu x_n,  x_t = -mu x_n u_t / |u_t| where u_t is not 0,

and for each further row  low <= x <= high  with u >= 0 at low, u <= 0 at high and u = 0 between.

This is the nonlinear complementarity problem of Coulomb friction (De Saxce's cone complementarity with his term
mu |u_t|), not its convex relaxation, in which sliding contacts lift off.

1. A sweep visits one contact after the other, with the latest impulses of all others. At a contact it repeats
   `LOCAL_STEPS` times: the normal impulse that the law asks for, then a gradient step of the tangential impulses and
   their projection onto the disc of radius mu x_n.
2. Anderson acceleration extrapolates from the first `ACCELERATED` sweeps. It helps most systems and keeps a few from
   converging. Later sweeps go without it; cycles of `CYCLE` full sweeps alternate with cycles of shortened ones, as
   full ones can repeat for ever and shortened ones are slow.
3. A system that has not converged at the end of a cycle tries Newton's method on the natural map, whose fixed points
   are the solutions. Where contacts share a load, its matrix is singular, so a part of the diagonal is added, which
   falls from step to step: first steps are short and safe, last ones nearly Newton's. The best point is taken where it
   is better by far; otherwise the sweeps go on.

A sweep needs only products with rows of G, so that a batch works on arrays with the batch last, and G is factored only
in step 3, which most systems never reach. Each system of a batch stops when it has converged.

Derivatives are those of the natural map's fixed point (implicit function theorem).
Sources: Acary and Brogliato, Numerical methods for nonsmooth dynamical systems (2008), chapter 13, for the problem and
the projections; Alart and Curnier (1991) for Newton's method, Levenberg's damping for its singular matrices; Walker and Ni, Anderson acceleration for fixed-point
iterations (2011).
"""

from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.responses import total
from lgjax.execution._jax import call_apart
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.fixed_point import GROWTH, MEMORY, REGULARIZATION
from lgjax.numerics.loops import iterate_while

Array = jax.Array

LOCAL_STEPS = 3  # of a contact in a sweep
CYCLE = 60  # sweeps between attempts of Newton's method
ACCELERATED = 40  # sweeps at the beginning that are accelerated
SHORTENED = 0.5  # part of a sweep's change that is made in every other cycle after the first
NEWTON_STEPS = 40  # at most, at the end of a cycle
DAMPING = 1e-2, 1e-6  # of Newton's first and last step, in units of the mean diagonal of G
BETTER = 0.1  # Newton's result is taken where it violates the law less by this factor
SMALL = 3600  # numbers in the matrices of all systems, up to which no library is called to solve with them
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
    moved = jnp.where(active, _solve_linearized(problem, found.x, change, 0), jnp.zeros_like(change))
    still: Any = jnp.zeros_like(found.residual), np.zeros(found.sweeps.shape, jax.dtypes.float0)
    return found, ConeSolution(moved, *still)


def _solve_linearized(p: ConeProblem, x: Array, y: Array, small: int = SMALL, damping: Any = 0.0) -> Array:
    """The dx (n, B) with (1 - dF/dx) dx = y for the natural map F at x; with more than `small` numbers by a library.

    damping () is added to the diagonal of G.
    """
    k, n, steps = len(p.friction), len(p.G), _step_of_rows(p.G, len(p.friction))
    z = x - steps * (times(p.G, x) + p.b)
    unit = jnp.eye(n, dtype=x.dtype)[..., None]
    inner = unit - steps[:, None] * (p.G + damping * unit)  # dz/dx
    # A row of a contact depends on the three of its z: one of them at a time, in all contacts.
    move = lambda c: jax.jvp(partial(_project, p), (z,), (_every_third(c, k, z),))[1]
    part = lambda c: inner[np.asarray([3 * (i // 3) + c if i < 3 * k else i for i in range(n)], int)]
    slope = total(move(c)[:, None] * part(c) for c in range(3 if k else 1))
    if slope.size <= small:
        return _eliminate(jnp.swapaxes(unit - slope, 0, 1), y)
    return jnp.linalg.solve(jnp.moveaxis(unit - slope, 2, 0), y.T[..., None])[..., 0].T


def _every_third(c: int, k: int, like: Array) -> Array:
    """One at row c of each of k contacts, and at all further rows where c is 0."""
    chosen = [i % 3 == c if i < 3 * k else c == 0 for i in range(len(like))]
    return jnp.broadcast_to(jnp.asarray(chosen, like.dtype)[:, None], like.shape)


def _eliminate(columns: Array, y: Array) -> Array:
    """The x (n, B) with sum_j columns[j] x_j = y, columns (n, n, B), by Gauss and Jordan with row pivots.

    A loop of elementwise work, which XLA can compile together with all that is around it; a library cannot be.
    """
    n = len(y)
    table = jnp.concatenate([columns, y[None]])  # (n + 1, n, B)
    places = jnp.arange(n, dtype=jnp.int32)[:, None]

    def turn(j, carry):
        """Row `best` of the rows that are left becomes the row of x_j."""
        table, row_of = carry
        own = jax.lax.dynamic_slice_in_dim(table, j, 1)[0]
        size = jnp.where(row_of < 0, jnp.abs(own), -jnp.ones_like(own))
        largest = reduce(jnp.maximum, size)
        best = reduce(jnp.minimum, jnp.where(size == largest, places, n))  # NaN: none
        here = places == jax.lax.optimization_barrier(best)

        def more(i, found):
            row = jax.lax.dynamic_slice_in_dim(table, i, 1, 1)[:, 0]
            return jnp.where(best == i, row, found)

        pivot = jax.lax.fori_loop(0, n, more, jnp.zeros_like(table[:, 0]))  # (n + 1, B)
        value = jax.lax.dynamic_slice_in_dim(pivot, j, 1)
        # Behind a barrier, or each entry of the table would compute it again.
        pivot = jax.lax.optimization_barrier(pivot / jnp.where(value == 0, jnp.ones_like(value), value))
        others = table - jnp.where(here, jnp.zeros_like(own), own) * pivot[:, None]
        return jnp.where(here, pivot[:, None], others), jnp.where(here, j, row_of)

    start = table, jnp.full(y.shape, -1, jnp.int32)
    table, row_of = jax.lax.fori_loop(0, n, turn, start)
    found = lambda j: total(jnp.where(row_of == j, table[n], jnp.zeros_like(y)))
    return jax.lax.map(found, jnp.arange(n, dtype=jnp.int32))


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
    # A disc without extent lets nothing move, so that of an open contact has no derivative even at its centre.
    outside = (square > radius * radius) | (radius <= 0)
    size = jnp.sqrt(jnp.where(outside & (square > 0), square, jnp.ones_like(square)))
    part = jnp.where(outside, radius / size, jnp.ones_like(size))
    return part * x0, part * x1


def natural_map(p: ConeProblem, x: Array) -> Array:
    """What the law makes of impulses (n, B), all contacts at once; impulses obey the law if they are a fixed point."""
    return _project(p, x - _step_of_rows(p.G, len(p.friction)) * (times(p.G, x) + p.b))


def _step_of_rows(G: Array, k: int) -> Array:
    """Impulses per velocity (n, B)."""
    normal, tangent, rows = _steps(G, k)
    return jnp.concatenate([jnp.stack([normal, tangent, tangent], 1).reshape(3 * k, G.shape[-1]), rows])


def _project(p: ConeProblem, z: Array) -> Array:
    """The impulses (n, B) that the law makes of x - step (G x + b)."""
    k = len(p.friction)
    normals = _steps(p.G, k)[0]
    Z = z[: 3 * k].reshape(k, 3, z.shape[-1])
    normal = _push(Z[:, 0], p.barrier * normals * normals)
    tangents = _disc(Z[:, 1], Z[:, 2], p.friction * normal)
    rows = jnp.clip(z[3 * k :], p.low, p.high)
    return jnp.concatenate([jnp.stack([normal, *tangents], 1).reshape(3 * k, z.shape[-1]), rows])


def times(G: Array, x: Array) -> Array:
    """G x (n, B). XLA for CPUs vectorises a sum of rows, but no reduction of an axis other than the last."""
    return total(G[:, j] * x[j] for j in range(len(x)))


def largest_part(G, u, x, step) -> Array:
    """The largest part s (B,), at most 1, of a change `step` (n, B) of impulses x (n, B) that adds no energy.

    u (n, B): velocities before the impulses; where other forces act in a step, half way between those with and without
    them. The energy that impulses add is x·(u + G x / 2), convex in s and not positive at s = 0.
    """
    dot = lambda a, b: total(a * b)
    bend, pull = call_apart(times)(G, step), call_apart(times)(G, x)
    start = jnp.minimum(dot(x, u + 0.5 * pull), 0)
    slope, curve = dot(step, u + pull), 0.5 * dot(step, bend)
    gains = (start + slope + curve > 0) & (curve > 0)
    one = jnp.ones_like(curve)
    root = jnp.sqrt(jnp.where(gains, slope * slope - 4 * curve * start, one))
    return jnp.where(gains, jnp.clip((root - slope) / jnp.where(gains, 2 * curve, one), 0 * one, one), one)


def _sweep(p: ConeProblem, steps: tuple, x: Array) -> Array:
    """One after the other, each with the impulses found so far."""
    k, n = len(p.friction), len(p.G)
    slices = lambda arrays, start, size: [jax.lax.dynamic_slice_in_dim(a, start, size) for a in arrays]

    def contact(i, x):
        own = slices((p.G, p.b, x), 3 * i, 3) + slices((*steps[:2], p.friction, p.barrier), i, 1)
        block = jax.lax.dynamic_slice_in_dim(own[0], 3 * i, 3, 1)
        return jax.lax.dynamic_update_slice_in_dim(x, call_apart(_contact)(x, block, *own), 3 * i, 0)

    def row(j, x):
        i = 3 * k + j
        own = slices((p.G, p.b, x), i, 1) + slices((steps[2], p.low, p.high), j, 1)
        return jax.lax.dynamic_update_slice_in_dim(x, call_apart(_row)(x, *own), i, 0)

    x = jax.lax.fori_loop(0, k, contact, x) if k else x
    return jax.lax.fori_loop(0, n - 3 * k, row, x) if n > 3 * k else x


def _contact(x, block, G, b, own, step_n, step_t, friction, barrier) -> Array:
    """Impulses (3, B) of one contact. block (3, 3, B): its part of G. G (3, n, B), b (3, B), own (3, B): its rows."""
    u = times(G, x) + b
    for _ in range(LOCAL_STEPS):
        normal = _push(own[:1] - step_n * u[:1], barrier * step_n * step_n)
        u = u + block[:, 0] * (normal - own[:1])
        t0, t1 = _disc(own[1:2] - step_t * u[1:2], own[2:] - step_t * u[2:], friction * normal)
        u = u + block[:, 1] * (t0 - own[1:2]) + block[:, 2] * (t1 - own[2:])
        own = jnp.concatenate([normal, t0, t1])
    return own


def _row(x, G, b, own, step, low, high) -> Array:
    """Impulse (1, B) of one further row."""
    return jnp.clip(own - step * (times(G, x) + b), low, high)


class _State(NamedTuple):
    """Of the iteration; the arrays of Anderson's acceleration as in `numerics/fixed_point.py`, with the batch last."""

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


def _iterate(tolerance: float, max_sweeps: int, p: ConeProblem, guess, active, scale) -> ConeSolution:
    k = len(p.friction)
    steps, stiffness = _steps(p.G, k), 1 / _step_of_rows(p.G, k)
    best, sweeps = guess, jnp.zeros(scale.shape, jnp.int32)
    if max_sweeps:
        best, sweeps = _sweeps(p, steps, stiffness, guess, active, tolerance * scale, max_sweeps)
    residual = reduce(jnp.maximum, jnp.abs(natural_map(p, best) - best) * stiffness)
    return ConeSolution(best, jnp.where(active, residual, jnp.zeros_like(residual)), sweeps)


def _sweeps(p: ConeProblem, steps, stiffness, guess: Array, active: Array, close: Array, max_sweeps: int):
    """The best impulses (n, B) and the sweeps (B,) done for them."""

    def turn(s: _State) -> _State:
        image = _sweep(p, steps, s.point)
        weighted, size, largest = call_apart(_change)(image, s.point, stiffness)
        cycle, phase = s.turn // CYCLE, s.turn % CYCLE
        anew = (size > GROWTH**2 * s.least) | (s.turn == 0)
        row = s.turn % MEMORY
        images = call_apart(_remember)(anew, row, s.images, image, s.image)
        residuals = call_apart(_remember)(anew, row, s.residuals, weighted, s.residual)
        faster = call_apart(_extrapolate)(image, images, *call_apart(_weights)(residuals, weighted))
        shortened = s.point + SHORTENED * (image - s.point)
        point = jnp.where(s.turn < ACCELERATED, faster, jnp.where((cycle > 0) & (cycle % 2 == 0), shortened, image))
        best, least_of_all = call_apart(_better)(
            s.going & (size <= s.least_of_all), image, size, s.best, s.least_of_all
        )
        going = s.going & (largest > close) & (s.sweeps + 1 < max_sweeps)
        newton = lambda x: _newton(p, stiffness, x, going, close)
        point = jax.lax.cond(phase == CYCLE - 1, newton, lambda x: x, point)
        least = jnp.where(anew, size, jnp.minimum(s.least, size))
        sweeps = s.sweeps + s.going.astype(jnp.int32)
        return _State(point, image, weighted, images, residuals, least, best, least_of_all, going, sweeps, s.turn + 1)

    zeros, few = jnp.zeros_like(guess), jnp.zeros_like(guess, shape=(MEMORY, *guess.shape))
    far, none = jnp.full_like(close, jnp.inf), jnp.zeros(close.shape, jnp.int32)
    start = jnp.zeros((), jnp.int32)
    first = _State(guess, zeros, zeros, few, few, far, guess, far, active, none, start)
    last = iterate_while(lambda s: jnp.any(s.going), turn, first)
    return last.best, last.sweeps


class _Trial(NamedTuple):
    """Of Newton's method: the point, the best so far, its violation of the law, and its largest velocity."""

    point: Array
    best: Array
    least: Array
    largest: Array
    step: Array


def _newton(p: ConeProblem, stiffness: Array, x: Array, going: Array, close: Array) -> Array:
    """Impulses (n, B) after steps of Newton's method where these are much better, otherwise x."""

    def violation(x):
        _, size, largest = call_apart(_change)(natural_map(p, x), x, stiffness)
        return size, largest

    def move(s: _Trial) -> _Trial:
        damping = DAMPING[0] * (DAMPING[1] / DAMPING[0]) ** (s.step / (NEWTON_STEPS - 1))
        change = _solve_linearized(p, s.point, s.point - natural_map(p, s.point), damping=damping * mean)
        point = s.point - change
        size, largest = violation(point)
        best, least = call_apart(_better)(size < s.least, point, size, s.best, s.least)
        return _Trial(point, best, least, jnp.where(size < s.least, largest, s.largest), s.step + 1)

    mean = total(p.G[i, i] for i in range(len(p.G))) / len(p.G)
    wanted = lambda s: (s.step < NEWTON_STEPS) & jnp.any(going & (s.largest > close))
    before = violation(x)
    found = iterate_while(wanted, move, _Trial(x, x, *before, jnp.zeros((), jnp.int32)))
    return jnp.where(found.least < BETTER**2 * before[0], found.best, x)


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
    """Least squares weights (B,) of the remembered residuals."""
    m = MEMORY
    inner = lambda i, j: total(residuals[max(i, j)] * residuals[min(i, j)])
    gram = jnp.stack([jnp.stack([inner(i, j) for j in range(m)], -1) for i in range(m)], -1)
    info = jnp.finfo(change.dtype)
    trace = total(gram[:, i, i] for i in range(m))
    floor = float(info.tiny) ** 0.5 + REGULARIZATION * float(info.eps) * trace
    gram = gram + floor[:, None, None] * jnp.eye(m, dtype=gram.dtype)
    weights = sm.ldl_solve(sm.ldl(gram), jnp.stack([total(residuals[i] * change) for i in range(m)], -1))
    return [weights[:, i] for i in range(m)]
