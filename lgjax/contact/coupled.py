"""All rows of a step at once: the impulses at contacts, limits and dry joints, and the displacements out of the ground.

Read first: `step.py`, the scheme, and `rows.py`.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.block_rows import BlockRows
from lgjax.contact.bounded import Chosen, ChosenRows
from lgjax.contact.cones.algebra import diagonal, own_blocks, plus_diagonal, times
from lgjax.contact.cones.law import ConeProblem, largest_part
from lgjax.contact.cones.solver import in_turn, ridge_of, solve_cones
from lgjax.contact.demands import excess, extent, joint_bounds, open_gap, rebound, shifted, spread
from lgjax.contact.geometry.detection import ContactPoints
from lgjax.contact.responses import Columns
from lgjax.contact.rows import Acting, BodyRows, JointRows

Array = jax.Array

# m/s^2. `Contacts(smoothing=)` is the gap at which a smoothed contact pushes as hard as this gravity pulls on the mass
# that the contact moves.
STANDARD_GRAVITY = 9.81
# Units of round-off of the largest response among the normals below which a contact counts as one that cannot move.
IMMOVABLE = 64
# Part of `Settings.limit` at which a solver that stalls is done. Its sweeps measure another change than the residual.
ENOUGH = 0.1
# Units of round-off of its own response that a row keeps which loops hold entirely.
TRACE_EPS = 8
# Units of round-off by which a position is rounded: a displacement is not known better.
HALF = 0.5
# Contacts at rest push each other by up to this many times the velocity change from a step's forces: no impact.
MANY_TIMES = 10


class Settings(NamedTuple):
    """Static numbers of `TimeStepping`. limit: m/s, the residual above which a system at rest is not solved."""

    tolerance: float
    max_sweeps: int
    limit: float
    iterations: int | None = None


class Law(NamedTuple):
    """Parameters of the law; h: s. friction, restitution: (n,), see `Contacts`; smoothing: (), m, or None."""

    friction: Array
    restitution: Array | None
    h: Array
    smoothing: Array | None


class Guess(NamedTuple):
    """Impulses at which the solver starts, N s: (n, 3) of contacts, (nv,) of joint limits and dry joints or None."""

    impulse: Array
    joint_impulse: Array | None


class Task(NamedTuple):
    """Inputs of the contact problem of a step.

    columns: how the tree responds. v_t, v_free: (nv,), see `step.py`. points, law: of all candidates. held: answers (m,
    nv) and inverse (m, m) of bilateral rows, None without any. chosen: those that act, None where all do.
    """

    columns: Columns
    v_t: Array
    v_free: Array
    points: ContactPoints
    joints: JointRows
    law: Law
    held: tuple[Array, Array] | None
    chosen: Chosen | None


class Solutions(NamedTuple):
    """What the solver finds for the rows of the contacts that act, of joint limits and dry joints.

    plain: impulses without restitution, bouncing: with it, None where there is none. lift: displacements of normals and
    limits.
    """

    plain: Array
    bouncing: Array | None
    lift: Array


class Coupled(NamedTuple):
    """Solution of all contacts and joints together.

    y: (nv,) of impulses and of displacements, as `FactoredDynamics.respond` takes it. apart: the same of the impulses
    without and with restitution, None where there is none. impulse: (n, 3). velocity: (n, 3) after the impulses, where
    all contacts act. joint_impulse: (nv,). residual, sweeps: as in `Impact`. solutions: those that derivatives start
    from. excess: of each island, J, the work of the displacements minus the energy that the impulses have lost, where
    restitution is given. passed_on: () bool, see `_passed_on`.
    """

    y: tuple[Array, Array]
    apart: tuple[Array, Array] | None
    impulse: Array
    velocity: Array
    joint_impulse: Array
    residual: Array
    sweeps: Array
    solutions: Solutions
    excess: Array
    passed_on: Array


def coupled(settings: Settings, acting: Acting, task: Task, guess: Guess) -> Coupled:
    """The impulses, from a guess for all candidates. Derivatives do not pass through: see `equations.py`.

    Chooses the matrix: in blocks for all candidates if `acting` has a pattern, else dense for those that act.
    """
    points, joints, law, chosen = task.points, task.joints, task.law, task.chosen
    if chosen is not None:
        still = jnp.zeros_like(guess.impulse)
        guess = guess._replace(impulse=jnp.where(chosen.waiting[:, None], still, guess.impulse))
    if in_blocks(acting, task.held):
        acts = jnp.ones(len(points.gap), bool) if chosen is None else ~chosen.waiting
        found = _solved(settings, acting, BlockRows(acting, task.columns, points, joints, acts), task, guess)
        if chosen is None:
            return found
        solutions = _of_chosen(chosen, found.solutions, len(acts))
        return found._replace(solutions=solutions, velocity=jnp.zeros_like(found.velocity))
    acting, rows, points, law = dense_rows(acting, task.columns, points, joints, law, chosen)
    task = task._replace(points=points, law=law)
    found = _solved(
        settings, acting, rows, task, guess if chosen is None else guess._replace(impulse=chosen.of(guess.impulse))
    )
    if chosen is None:
        return found
    impulse = chosen.among_all(found.impulse, len(guess.impulse))
    return found._replace(impulse=impulse, velocity=jnp.zeros_like(impulse))


def in_blocks(acting: Acting, held: Any) -> bool:
    """Whether the matrix is in blocks; then contacts whose gap is round-off are closed, see `demands.open_gap`."""
    return acting.pattern is not None and held is None


def dense_rows(
    acting: Acting, columns: Columns, points: ContactPoints, joints: JointRows, law: Law, chosen: Chosen | None
) -> tuple[Acting, Any, ContactPoints, Law]:
    """Rows for a dense matrix, of the contacts that act, with what is static about them, their points and their law."""
    if chosen is None:
        return acting, BodyRows(acting, columns, points, joints), points, law
    assert acting.bounded is not None
    points, friction, restitution = jax.tree.map(chosen.of, (points, *law[:2]))
    rows = ChosenRows(acting.bounded, columns, points, joints, chosen.moved)
    return acting.bounded, rows, points, law._replace(friction=friction, restitution=restitution)


def _of_chosen(chosen: Chosen, all_of: Solutions, count: int) -> Solutions:
    """The solutions of those that act, of `count` candidates."""
    rows = lambda x: jnp.concatenate([chosen.of(x[: 3 * count].reshape(count, 3)).reshape(-1), x[3 * count :]])
    normals = jnp.concatenate([chosen.of(all_of.lift[:count]), all_of.lift[count:]])
    return Solutions(rows(all_of.plain), None if all_of.bouncing is None else rows(all_of.bouncing), normals)


def _solved(settings: Settings, acting: Acting, rows: Any, task: Task, guess: Guess) -> Coupled:
    """The impulses and displacements of rows, and what they change."""
    points, joints, law, v_free = task.points, task.joints, task.law, task.v_free
    n, limited, rates = len(points.gap), acting.limited, rows.rates
    G, dense = matrix_of(rows, task.held, n), not isinstance(rows, BlockRows)
    # Points of a face can share a load in many ways: the solver then takes the smaller matrices of the velocities.
    shared = acting.faces and task.held is None and 3 * n + len(acting.joints) > len(v_free)
    factor = rows.factor() if shared and dense else None
    u = rates(v_free)
    fastest = jnp.max(jnp.abs(u))
    gap = jnp.concatenate([rows.masked(points.gap), joints.gap])
    opens = -2 / law.h * open_gap(gap, points, in_blocks(acting, task.held))
    barrier = barrier_of(law, rows, G)

    def solve(allowed, guess, active):
        problem = ConeProblem(G, shifted(n, u, allowed), law.friction, *joint_bounds(joints), barrier, factor)
        enough = ENOUGH * settings.limit
        return solve_cones(
            problem, guess, active, fastest, settings.tolerance, settings.max_sweeps, enough, ridge=not dense
        )

    bouncing, before, further, apart = law.restitution is not None and n > 0, u, None, None
    start = jnp.concatenate([guess.impulse.reshape(-1), _start_of_joints(acting, joints, guess.joint_impulse)])
    if bouncing:
        before = rates(task.v_t)
        bounces, allowed = rebound(before[: 3 * n : 3], u[: 3 * n : 3], opens[:n], gap[:n], law.restitution, law.h)
        tasks = (opens, jnp.ones((), bool)), (jnp.concatenate([allowed, opens[n:]]), bounces)
        found, again = in_turn(solve, start, tasks)
        plain, further = found.x, jnp.where(bounces, again.x, found.x)
        residual, sweeps = jnp.maximum(found.residual, again.residual), found.sweeps + again.sweeps
        change, islands = further - plain, [own for own, _ in acting.islands]
        pull, bend = times(G, plain), times(G, change)
        x = plain + largest_part(0.5 * (u + before), plain, change, pull, bend, islands) * change
        apart = rows.response(plain), rows.response(further)
    else:
        found = solve(opens, start, jnp.ones((), bool))
        x = plain = found.x
        residual, sweeps = found.residual, found.sweeps
    after = u + times(G, x)
    normals = normals_of(n, limited)
    least = G[normals][:, normals] if dense else G.normals(limited)
    left_open = gap + 0.5 * law.h * after[normals]
    lift, left = _lift(settings, least, dense, left_open, law.h, fastest, extent(points))
    pushed = spread(normals, lift, x)
    y = rows.response(x), rows.response(pushed)
    at_joints = joint_impulses(acting, rows, x[3 * n :], v_free)
    residual = jnp.maximum(residual, left / law.h)
    gained, passed_on = jnp.zeros_like(residual)[None], jnp.zeros((), bool)
    if bouncing:
        gained = excess(acting.islands, u, before, after, x, pushed, law.h)
        passed_on = _passed_on(G, plain, before[: 3 * n : 3], u[: 3 * n : 3], law.restitution)
    impulse, velocity = (f[: 3 * n].reshape(n, 3) for f in (x, after))
    solutions = Solutions(plain, further, lift)
    return Coupled(y, apart, impulse, velocity, at_joints, residual, sweeps, solutions, gained, passed_on)


def _start_of_joints(acting: Acting, joints: JointRows, impulse: Array | None) -> Array:
    """Impulses of the rows of limits and of dry friction, of which joints have the sums (nv,); None is zero."""
    if impulse is None:
        return jnp.zeros(len(acting.joints), joints.gap.dtype)
    own, limited = np.asarray(acting.joints, int), acting.limited
    dry = jnp.clip(impulse[own[limited:]], -joints.dry, joints.dry)
    left = impulse.at[own[limited:]].add(-dry, unique_indices=True)[own[:limited]]
    return jnp.concatenate([jnp.maximum(joints.side * left, jnp.zeros_like(left)), dry])


def normals_of(contacts: int, limited: int) -> np.ndarray:
    """The rows of normals and of joint limits."""
    return np.asarray([*range(0, 3 * contacts, 3), *range(3 * contacts, 3 * contacts + limited)], int)


def joint_impulses(acting: Acting, rows: Any, x: Array, like: Array) -> Array:
    """Impulses (nv,) of joint limits and dry joints, from those of their rows."""
    return jnp.zeros_like(like).at[np.asarray(acting.joints, int)].add(rows.signs * x)


def barrier_of(law: Law, rows: Any, G: Any) -> Array | None:
    """`ConeProblem.barrier`: 0 for contacts whose normal the mechanism cannot move, where it would be without bound."""
    if law.smoothing is None:
        return None
    sizes = jax.lax.stop_gradient(diagonal(G)[: 3 * len(law.friction) : 3])
    moves = sizes > IMMOVABLE * float(jnp.finfo(sizes.dtype).eps) * jnp.max(sizes, initial=0.0)
    return rows.masked(jnp.where(moves, 2 * STANDARD_GRAVITY * law.smoothing, jnp.zeros_like(sizes)))


def matrix_of(rows: Any, held: Any, contacts: int) -> Any:
    """Delassus' matrix, `ConeProblem.G`; a dense one has the solver's ridge already.

    What bilateral rows hold entirely keeps a trace of its own response, so that the solver can divide by it.
    """
    if isinstance(rows, BlockRows):
        return rows.matrix()
    operator, trace = rows.operator(), 0.0
    if held is not None:
        answers, inverse = held
        trace = TRACE_EPS * float(jnp.finfo(answers.dtype).eps) * operator.diagonal()
        operator = replace(operator, held=(jnp.stack([rows.rates(answer) for answer in answers]), inverse))
    G = operator.matrix()
    return plus_diagonal(G, trace + ridge_of(G, contacts))


def _passed_on(G, x, before, u, restitution) -> Array:
    """Whether other impacts of the same step drive a bouncing contact together faster than its own motion does.

    In a sequence of impacts it would bounce at that speed. before (n,): normal velocities at the start of the step.
    u (n,): with the step's forces. Contacts at rest drive each other at a few times that change; this does not count.
    """
    n = len(before)
    impulse = x[: 3 * n].reshape(n, 3)
    driven = -(times(G, x)[: 3 * n : 3] - jnp.sum(own_blocks(G, n)[:, 0] * impulse, 1))
    noise = MANY_TIMES * jnp.max(jnp.abs(u - before)) + TRACE_EPS * float(jnp.finfo(u.dtype).eps) * jnp.max(jnp.abs(u))
    return jnp.any((restitution > 0) & (impulse[:, 0] > 0) & (driven > jnp.maximum(noise, -before)))


def _lift(settings: Settings, G, dense: bool, gap, h, fastest, size) -> tuple[Array, Array]:
    """Displacement impulses (n,) along normals and limits that leave no gap negative, and the error left (), m.

    Their tolerance is that of the displacements of a step, at the fastest velocity, or what positions round off.
    """
    none = jnp.zeros_like(gap)
    if not len(gap):
        return none, jnp.zeros((), gap.dtype)
    deepest = -jnp.min(gap)
    inside = deepest > 0
    enough = ENOUGH * settings.limit * h
    scale = jnp.maximum(deepest, h * fastest)
    if settings.tolerance:
        scale = jnp.maximum(scale, HALF * float(jnp.finfo(gap.dtype).eps) * size / settings.tolerance)
    problem = lift_problem(G, gap)
    found = solve_cones(problem, none, inside, scale, settings.tolerance, settings.max_sweeps, enough, ridge=not dense)
    return jnp.where(inside, found.x, none), found.residual


def lift_problem(G, gap) -> ConeProblem:
    """Displacement impulses along normals are those of rows that only push."""
    none = jnp.zeros_like(gap)
    return ConeProblem(G, gap, none[:0], none, jnp.full_like(gap, jnp.inf), None)
