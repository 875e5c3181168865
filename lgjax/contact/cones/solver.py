"""Impulses at contacts by Coulomb's law with cones: block Gauss-Seidel, accelerated, with implicit derivatives.

Read first: `law.py`, the problem.

1. A sweep visits one contact after the other, with the latest impulses of all others. At a contact it takes
   `LOCAL_STEPS` local steps. Each finds the normal impulse that the law asks for, then takes a gradient step of the
   tangential impulses and projects them onto the disc of radius mu x_n.
2. Anderson acceleration extrapolates in the first `ACCELERATED` sweeps. It helps most systems and keeps a few from
   converging. Later sweeps go without it. Cycles of `CYCLE` full sweeps alternate with cycles of shortened ones,
   because full sweeps can repeat forever and shortened ones are slow.
3. At the end of a cycle, systems that have not converged try an interior-point method or Newton's (`attempts.py`).
   The sweeps go on from the best point found if it is far better, or else from their own.
   Where G comes with a factor F of fewer rows, G = F^T F, because contacts share loads (the corners of a face), sweeps
   are slow and interior points cheap: their steps solve systems of the size of F F^T. Then systems try them after
   `EARLY` sweeps, the first time where no sweep has come within the limit.

   With a `BlockMatrix` (`blocks.py`) whose contacts share loads, attempts cost no more than a few sweeps, and come
   after two of them, without acceleration.

4. A system that stalls is done if the law holds within a limit. Below a robot that lies, contacts share the load in
   many ways. If their velocities contradict each other, be it by 1e-12 m/s, only a few of them can carry it all, and
   each sweep shifts the load by no more than this contradiction.

A sweep needs only products with rows of G. Only step 3 factors a matrix, and most systems never reach it.

Derivatives are those of the natural map's fixed point (implicit function theorem).
Source: Walker and Ni, Anderson acceleration for fixed-point iterations (2011).
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.algebra import diagonal, plus_diagonal
from lgjax.contact.cones.attempts import BRIEF, attempt, early_attempt, face_attempt
from lgjax.contact.cones.blocks import BlockMatrix, sweep
from lgjax.contact.cones.law import ConeProblem, disc, natural_map, push, step_of_rows, steps_of_parts
from lgjax.contact.cones.newton import solve_linearized
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.fixed_point import GROWTH, MEMORY, REGULARIZATION
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.rank import product

Array = jax.Array

LOCAL_STEPS = 3  # at a contact in a sweep
CYCLE = 60  # sweeps between attempts of other methods
EARLY = 10, 25  # sweeps before the early attempts of problems with a factor
ACCELERATED = 40  # the first sweeps, which are accelerated
EASIER = 1.0, 4.0, 16.0, 64.0  # factors on the tolerance in successive cycles: some systems have more round-off
STALL_SWEEPS, STALL_PART = 5, 0.5  # a system stalls if so many sweeps leave more than this part of the least change
FACE_SWEEPS = 2  # before an attempt for faces, and between the first ones
PAUSE = 30  # sweeps between later ones
LATER = 4.0  # factor on the limit from the third cycle on
SHORTENED = 0.5  # part of a sweep's change that is applied, in every other cycle after the first
RIDGE = 4.0  # added to the diagonal of G, in units of its round-off: redundant contacts share their load


class ConeSolution(NamedTuple):
    """x: (n,) impulses. residual: () m/s, the largest violation of the law. sweeps: () int32."""

    x: Array
    residual: Array
    sweeps: Array


def solve_cones(
    problem: ConeProblem,
    guess: Array,
    active: Array,
    scale: Array,
    tolerance: float,
    max_sweeps: int,
    limit: Array | float = 0.0,
    ridge: bool = True,
) -> ConeSolution:
    """The impulses, from a guess (n,), which stays as it is where `active` () is false.

    The iteration stops when no velocity changes by more than tolerance times `scale` () (more in later cycles, see
    `EASIER`), or after max_sweeps. If it stalls, and after the first cycle, a change of `limit` () m/s is enough, from
    the third cycle on `LATER` times that. If max_sweeps is 0, the guess is taken as the solution; this serves to
    differentiate a known solution. ridge: whether `ridge_of` is still to be added to the diagonal of G, a copy of it.
    """
    more = ridge_of(problem.G, len(problem.friction))
    factor = None if problem.factor is None else jax.lax.stop_gradient((problem.factor, more))
    problem = problem._replace(G=plus_diagonal(problem.G, more) if ridge else problem.G, factor=factor)
    limit = jnp.asarray(limit, scale.dtype)
    return _solution(tolerance, max_sweeps, problem, *jax.lax.stop_gradient((guess, active, scale, limit)))


def in_turn(solve: Callable, guess: Array, tasks: Sequence) -> list[ConeSolution]:
    """Solves tasks (allowed, active) one after the other, each from the impulses of the one before.

    It is a scan, so that `solve`, a function of (allowed, guess, active), is compiled once.
    """

    def turn(x, task):
        found = solve(task[0], x, task[1])
        return found.x, found

    _, found = jax.lax.scan(turn, guess, jax.tree.map(lambda *parts: jnp.stack(parts), *tasks))
    return [jax.tree.map(itemgetter(i), found) for i in range(len(tasks))]


def ridge_of(G: Array, contacts: int) -> Array:
    """Regularization (n,) of the diagonal of G: equal for the three rows of a contact, in proportion to their mean."""
    k, own = contacts, diagonal(G)
    blocks = own[: 3 * k].reshape(k, 3)
    of_contacts = jnp.repeat((blocks[:, 0] + blocks[:, 1] + blocks[:, 2]) / 3, 3, 0)
    sizes, mean = jnp.concatenate([of_contacts, own[3 * k :]]), jnp.mean(own)
    # Rows on which impulses have no effect get any positive number.
    return RIDGE * float(jnp.finfo(G.dtype).eps) * jnp.where(sizes > 0, sizes, jnp.where(mean > 0, mean, 1))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _solution(tolerance: float, max_sweeps: int, problem: ConeProblem, guess, active, scale, limit) -> ConeSolution:
    return _iterate(tolerance, max_sweeps, problem, guess, active, scale, limit)


@_solution.defjvp
def _rule(tolerance, max_sweeps, primals, tangents):
    """(1 - dF/dx) dx = dF/dproblem for the natural map F of the law, whose fixed point x is."""
    problem, _, active, _, _ = primals
    found = _solution(tolerance, max_sweeps, *primals)
    change = jax.jvp(lambda p: natural_map(p, found.x), (problem,), (tangents[0],))[1]
    moved = jnp.where(active, solve_linearized(problem, found.x, change), jnp.zeros_like(change))
    still: Any = jnp.zeros_like(found.residual), np.zeros(found.sweeps.shape, jax.dtypes.float0)
    return found, ConeSolution(moved, *still)


def _sweep(p: ConeProblem, steps: tuple, x: Array) -> tuple[Array, Array]:
    """A block Gauss-Seidel sweep: impulses (n,), and the largest change of a velocity (), m/s.

    The change is measured in the first local step at each contact: several steps can go in a circle and end with the
    impulses that they began with, although these break the law.
    """
    k, n = len(p.friction), len(x)
    slices = lambda arrays, start, size: [jax.lax.dynamic_slice_in_dim(a, start, size) for a in arrays]

    def take(found, i, x, change):
        x = jax.lax.dynamic_update_slice_in_dim(x, found[:-1], i, 0)
        return x, jnp.maximum(change, found[-1])

    def contact(i, state):
        G, b, own = slices((p.G, p.b, state[0]), 3 * i, 3)
        block = jax.lax.dynamic_slice_in_dim(G, 3 * i, 3, 1)
        found = _contact(block, product(G, state[0]) + b, own, *_own_law(p, steps, i))
        return take(found, 3 * i, *state)

    def row(j, state):
        i = 3 * k + j
        G, b, own = slices((p.G, p.b, state[0]), i, 1)
        found = _row(product(G, state[0]) + b, own, *slices((steps[2], p.low, p.high), j, 1))
        return take(found, i, *state)

    if isinstance(p.G, BlockMatrix):
        return _block_sweep(p, steps, x)
    state = x, jnp.zeros_like(x[0])
    state = jax.lax.fori_loop(0, k, contact, state) if k else state
    return jax.lax.fori_loop(0, n - 3 * k, row, state) if n > 3 * k else state


def _block_sweep(p: ConeProblem, steps: tuple, x: Array) -> tuple[Array, Array]:
    """`_sweep` for a `BlockMatrix`."""
    slices = lambda arrays, start, size: [jax.lax.dynamic_slice_in_dim(a, start, size) for a in arrays]

    def contact(i, u, own):
        (block,) = slices((p.G.own,), i, 1)
        (b,) = slices((p.b,), 3 * i, 3)
        return _contact(block[0], u + b, own, *_own_law(p, steps, i))

    def row(j, u, own):
        (b,) = slices((p.b,), 3 * len(p.friction) + j, 1)
        return _row(u + b, own, *slices((steps[2], p.low, p.high), j, 1))

    return sweep(p.G, contact, row, x)


def _own_law(p: ConeProblem, steps: tuple, i) -> list[Array | None]:
    """Step sizes, friction and barrier of contact i, (1,) each."""
    own = [jax.lax.dynamic_slice_in_dim(a, i, 1) for a in (*steps[:2], p.friction)]
    return [*own, None if p.barrier is None else jax.lax.dynamic_slice_in_dim(p.barrier, i, 1)]


def _contact(block, u, own, step_n, step_t, friction, barrier) -> Array:
    """Impulses (3,) of one contact and, as a last entry, the change in the first local step, m/s.

    block (3, 3): its diagonal block of G. u (3,), own (3,): its velocities and impulses.
    """
    change = jnp.zeros_like(own[:1])
    for turn in range(LOCAL_STEPS):
        normal = push(own[:1] - step_n * u[:1], barrier, step_n)
        d_n = normal - own[:1]
        u = u + block[:, 0] * d_n
        t0, t1 = disc(own[1:2] - step_t * u[1:2], own[2:] - step_t * u[2:], friction * normal)
        d_0, d_1 = t0 - own[1:2], t1 - own[2:]
        u = u + block[:, 1] * d_0 + block[:, 2] * d_1
        own = jnp.concatenate([normal, t0, t1])
        if turn == 0:
            change = jnp.maximum(jnp.abs(d_n) / step_n, jnp.maximum(jnp.abs(d_0), jnp.abs(d_1)) / step_t)
    return jnp.concatenate([own, change])


def _row(u, own, step, low, high) -> Array:
    """Impulse of one further row and its change, m/s (2,)."""
    found = jnp.clip(own - step * u, low, high)
    return jnp.concatenate([found, jnp.abs(found - own) / step])


class _State(NamedTuple):
    """State of the iteration, Anderson's arrays as in `numerics/fixed_point.py`. steady: turns since they began."""

    point: Array
    image: Array
    residual: Array
    images: Array
    residuals: Array
    gram: Array
    steady: Array
    least: Array
    best: Array
    least_of_all: Array
    compared: Array
    going: Array
    sweeps: Array
    turn: Array


@partial(jax.jit, static_argnums=(0, 1))  # one trace for a step and its derivative
def _iterate(tolerance: float, max_sweeps: int, p: ConeProblem, guess, active, scale, limit) -> ConeSolution:
    k = len(p.friction)
    steps, stiffness = steps_of_parts(p.G, k), 1 / step_of_rows(p.G, k)
    best, sweeps = guess, jnp.zeros((), jnp.int32)
    if max_sweeps:
        best, sweeps = _sweeps(p, steps, stiffness, guess, active, tolerance * scale, limit, max_sweeps)
    # Impulses without bound, which nothing satisfies, round what they leave to zero: it is not known better than they.
    unknown = float(jnp.finfo(best.dtype).eps) * jnp.abs(best)
    residual = jnp.max(jnp.maximum(jnp.abs(natural_map(p, best) - best), unknown) * stiffness)
    return ConeSolution(best, jnp.where(active, residual, jnp.zeros_like(residual)), sweeps)


def _sweeps(p: ConeProblem, steps, stiffness, guess, active, close: Array, limit: Array, max_sweeps: int):
    """The best impulses (n,) and the sweeps () done for them."""
    if isinstance(p.G, BlockMatrix) and p.G.shares:
        return _sweeps_of_faces(p, steps, stiffness, guess, active, close, limit, max_sweeps)
    early = p.factor is not None

    def turn(s: _State) -> _State:
        image, largest = _sweep(p, steps, s.point)
        weighted, size = _change(image, s.point, stiffness)
        cycle, phase = s.turn // CYCLE, s.turn % CYCLE
        anew = (size > GROWTH**2 * s.least) | (s.turn == 0)
        if early:  # an attempt may have led elsewhere
            anew = anew | (s.turn == EARLY[0]) | (s.turn == EARLY[1])
        row = s.turn % MEMORY
        steady = jnp.where(anew, 0, s.steady + 1)
        known = _since(row) <= steady
        images, _ = _remember(anew, row, s.images, image, s.image)
        residuals, latest = _remember(anew, row, s.residuals, weighted, s.residual)
        gram = _gram(anew, row, s.gram, _of_known(known, residuals, latest))
        faster = image - product(_weights(gram, _of_known(known, residuals, weighted)), images)
        shortened = s.point + SHORTENED * (image - s.point)
        point = jnp.where(s.turn < ACCELERATED, faster, jnp.where((cycle > 0) & (cycle % 2 == 0), shortened, image))
        better = s.going & (largest <= s.least_of_all)
        best, least_of_all = jnp.where(better, image, s.best), jnp.where(better, largest, s.least_of_all)
        enough = close * jnp.asarray(EASIER, close.dtype)[jnp.minimum(cycle, len(EASIER) - 1)]
        compares = s.turn % STALL_SWEEPS == STALL_SWEEPS - 1
        stalls = compares & (least_of_all > STALL_PART * s.compared) | (cycle > 0)
        solved = stalls & (least_of_all <= jnp.where(cycle > 1, LATER * limit, limit))
        going = s.going & (largest > enough) & ~solved & (s.sweeps + 1 < max_sweeps)
        compared = jnp.where(compares, least_of_all, s.compared)
        due = phase == CYCLE - 1
        # Under a plain vmap both branches are computed: then `due` ends the attempt at once.
        finish = lambda x: attempt(p, stiffness, x, going & due, enough, cycle)
        point = jax.lax.cond(due, finish, lambda x: x, point)
        if early:
            again = s.turn == EARLY[1] - 1
            due = (s.turn == EARLY[0] - 1) & (least_of_all > limit) | again
            finish = lambda x: early_attempt(p, stiffness, x, going & due, enough, limit, again)
            point = jax.lax.cond(due, finish, lambda x: x, point)
        least = jnp.where(anew, size, jnp.minimum(s.least, size))
        sweeps = s.sweeps + s.going.astype(jnp.int32)
        seen = image, weighted, images, residuals, gram, steady, least, best, least_of_all, compared
        return _State(point, *seen, going, sweeps, s.turn + 1)

    zeros, few = jnp.zeros_like(guess), jnp.zeros_like(guess, shape=(MEMORY, len(guess)))
    far, none = jnp.full_like(close, jnp.inf), jnp.zeros((), jnp.int32)
    square = jnp.zeros_like(guess, shape=(MEMORY, MEMORY))
    first = _State(guess, zeros, zeros, few, few, square, none, far, guess, far, far, active, none, none)
    last = iterate_while(lambda s: s.going, turn, first)
    return last.best, last.sweeps


class _Few(NamedTuple):
    """State of `_sweeps_of_faces`. tried: whether there was an attempt; the others as in `_State`."""

    point: Array
    best: Array
    least_of_all: Array
    compared: Array
    tried: Array
    going: Array
    sweeps: Array
    turn: Array


def _sweeps_of_faces(p: ConeProblem, steps, stiffness, guess, active, close: Array, limit: Array, max_sweeps: int):
    """`_sweeps` for a `BlockMatrix` whose contacts share loads: a few, then an attempt, and so on, until the law holds
    within the tolerance, or, after an attempt or a stall, within the limit."""

    def turn(s: _Few) -> _Few:
        image, largest = _sweep(p, steps, s.point)
        better = s.going & (largest <= s.least_of_all)
        best, least_of_all = jnp.where(better, image, s.best), jnp.where(better, largest, s.least_of_all)
        cycle = s.turn // CYCLE
        enough = close * jnp.asarray(EASIER, close.dtype)[jnp.minimum(cycle, len(EASIER) - 1)]
        compares = s.turn % FACE_SWEEPS == FACE_SWEEPS - 1
        stalls = compares & (least_of_all > STALL_PART * s.compared) | s.tried
        solved = stalls & (least_of_all <= jnp.where(cycle > 1, LATER * limit, limit))
        going = s.going & (largest > enough) & ~solved & (s.sweeps + 1 < max_sweeps)
        first, number = s.turn == FACE_SWEEPS - 1, s.turn // FACE_SWEEPS
        again = (number < BRIEF) | (s.turn % PAUSE == PAUSE - 1)
        due = first | (compares & (least_of_all > limit) & again)
        finish = lambda x: face_attempt(p, stiffness, x, going & due, enough, limit, number)
        point = jax.lax.cond(due, finish, lambda x: x, image)
        compared, sweeps = jnp.where(compares, least_of_all, s.compared), s.sweeps + s.going.astype(jnp.int32)
        return _Few(point, best, least_of_all, compared, s.tried | due, going, sweeps, s.turn + 1)

    far, none = jnp.full_like(close, jnp.inf), jnp.zeros((), jnp.int32)
    first = _Few(guess, guess, far, far, jnp.zeros((), bool), active, none, none)
    last = iterate_while(lambda s: s.going, turn, first)
    return last.best, last.sweeps


# ---- what follows a sweep
def _change(image: Array, point: Array, stiffness: Array) -> tuple[Array, Array]:
    """The change, in a metric in which contacts of light and heavy bodies are comparable, and its squared norm."""
    weighted = (image - point) * jnp.sqrt(stiffness)
    return weighted, jnp.sum(weighted * weighted)


def _since(row: Array) -> Array:
    """How many turns ago (MEMORY,) each row of the memory was written, if `row` is written now."""
    ago = row - jnp.arange(MEMORY, dtype=jnp.int32)
    return jnp.where(ago < 0, ago + MEMORY, ago)


def _remember(anew: Array, row: Array, memory: Array, new: Array, old: Array) -> tuple[Array, Array]:
    """The memory (MEMORY, n) with the latest change, new - old, in one of its rows, and the change; none to start anew.

    Rows from before are not emptied: they are left out by `_of_known`.
    """
    change = jnp.where(anew, jnp.zeros_like(new), new - old)
    return jax.lax.dynamic_update_slice_in_dim(memory, change[None], row, 0), change


def _of_known(known: Array, rows: Array, x: Array) -> Array:
    """Inner products (m,) of rows (m, n) and x, 0 for those that are not known."""
    return jnp.where(known, product(rows, x), jnp.zeros_like(x[:1]))


def _gram(anew: Array, row: Array, gram: Array, new: Array) -> Array:
    """(m, m) of the inner products of what is remembered, with the `new` ones (m,) of the row that has changed."""
    gram = jnp.where(anew, jnp.zeros_like(gram), gram)
    here = jnp.arange(MEMORY, dtype=jnp.int32) == row
    return jnp.where(here[:, None], new, jnp.where(here, new[:, None], gram))


def _weights(gram: Array, change: Array) -> Array:
    """Least-squares weights (MEMORY,) of the remembered changes; `change`: the products of the latest residual with
    those of the residuals."""
    info = jnp.finfo(change.dtype)
    floor = float(info.tiny) ** 0.5 + REGULARIZATION * float(info.eps) * jnp.trace(gram)
    gram = gram + floor * jnp.eye(MEMORY, dtype=gram.dtype)
    return sm.ldl_solve(sm.ldl(gram), change)
