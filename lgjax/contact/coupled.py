"""All rows of a step at once: the impulses at contacts, limits and dry joints, and the displacements out of the ground.

Read first: `step.py`, the scheme, and `rows.py`.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.block_rows import BlockRows
from lgjax.contact.bounded import Chosen, ChosenRows
from lgjax.contact.cones.algebra import own_blocks, plus_diagonal
from lgjax.contact.cones.factors import Factors, times
from lgjax.contact.cones.law import ConeProblem, largest_part
from lgjax.contact.cones.solver import in_turn, ridge_of, solve_cones
from lgjax.contact.geometry.detection import ContactPoints
from lgjax.contact.responses import Columns
from lgjax.contact.rows import Acting, BodyRows, JointRows
from lgjax.execution.kept import keep, known

Array = jax.Array

# m/s^2. `Contacts(smoothing=)` is the gap at which a smoothed contact pushes as hard as this gravity pulls on the mass
# that the contact moves.
STANDARD_GRAVITY = 9.81
# Part of `Settings.limit` at which a solver that stalls is done. Its sweeps measure another change than the residual.
ENOUGH = 0.1
# Units of round-off of its own response that a row keeps which loops hold entirely.
TRACE_EPS = 8
# Units of round-off of the largest coordinate of a contact below which a gap counts as closed.
GAP_EPS = 16
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
    """Start and result of the solver.

    plain: impulses of all rows without restitution, bouncing: with it. lift: displacements of normals and limits.
    """

    plain: Array
    bouncing: Array
    lift: Array


class Coupled(NamedTuple):
    """Solution of all contacts and joints together.

    y: (nv, 2) of impulses and displacements, as `FactoredDynamics.respond` takes it. impulse: (n, 3). velocity: (n, 3)
    after the impulses, where all contacts act. joint_impulse: (nv,). residual, sweeps: as in `Impact`. solutions: those
    that derivatives start from. excess: of each island, J, the work of the displacements minus the energy that the
    impulses have lost, where restitution is given. passed_on: () bool, see `_passed_on`.
    """

    y: Array
    impulse: Array
    velocity: Array
    joint_impulse: Array
    residual: Array
    sweeps: Array
    solutions: Solutions
    excess: Array
    passed_on: Array


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def coupled(settings: Settings, acting: Acting, task: Task, start: Solutions) -> Coupled:
    found = _coupled(settings, acting, task, start)
    return found._replace(solutions=keep(found.solutions))  # says that the derivative has something to read


@coupled.defjvp
def _(settings, acting, primals, tangents):
    """Derivatives of the same operations at the known solutions: no iteration is differentiated or repeated."""
    found = coupled(settings, acting, *primals)
    # Without sweeps, what is given is taken as the solution.
    without, solutions = settings._replace(max_sweeps=0), keep(found.solutions)
    again = lambda task: _coupled(without, acting, task, solutions)
    same, along = jax.jvp(again, (primals[0],), (tangents[0],))
    return known(found, same._replace(sweeps=found.sweeps)), along


def _coupled(settings: Settings, acting: Acting, task: Task, start: Solutions) -> Coupled:
    """Choose the matrix: in blocks for all candidates if `acting` has a pattern, else dense for those that act.

    Solutions belong to the contacts that act; the start belongs to all candidates, except where it is a known solution.
    """
    columns, points, joints, law, chosen = task.columns, task.points, task.joints, task.law, task.chosen
    blocks = acting.pattern is not None and task.held is None
    if blocks and settings.max_sweeps:
        acts = jnp.ones(len(points.gap), bool) if chosen is None else ~chosen.waiting
        rows = BlockRows(acting, columns, points, joints, acts)
        found = _solved(settings, acting, rows, task, start, True)
        if chosen is None:
            return found
        solutions = _of_chosen(chosen, found.solutions, len(acts))
        return found._replace(solutions=solutions, velocity=jnp.zeros_like(found.velocity))
    if chosen is None:
        return _solved(settings, acting, BodyRows(acting, columns, points, joints), task, start, blocks)
    assert acting.bounded is not None
    count, acting = len(points.gap), acting.bounded
    start = _of_chosen(chosen, start, count) if settings.max_sweeps else start
    points, friction, restitution = jax.tree.map(chosen.of, (points, *law[:2]))
    task = task._replace(points=points, law=law._replace(friction=friction, restitution=restitution))
    found = _solved(settings, acting, ChosenRows(acting, columns, points, joints, chosen.moved), task, start, blocks)
    impulse = chosen.among_all(found.impulse, count)
    return found._replace(impulse=impulse, velocity=jnp.zeros_like(impulse))


def _of_chosen(chosen: Chosen, all_of: Solutions, count: int) -> Solutions:
    """The solutions of those that act, of `count` candidates."""
    rows = lambda x: jnp.concatenate([chosen.of(x[: 3 * count].reshape(count, 3)).reshape(-1), x[3 * count :]])
    normals = jnp.concatenate([chosen.of(all_of.lift[:count]), all_of.lift[count:]])
    return Solutions(rows(all_of.plain), rows(all_of.bouncing), normals)


def _solved(settings: Settings, acting: Acting, rows: Any, task: Task, start: Solutions, closes: bool) -> Coupled:
    """The impulses and displacements of rows, and what they change. closes: as in `_open`."""
    points, joints, law, v_free = task.points, task.joints, task.law, task.v_free
    n, limited = len(points.gap), acting.limited
    rates = rows.rates
    G, operator = _matrix(rows, task, n)
    # Points of a face can share a load in many ways: the solver then takes the smaller matrices of the velocities.
    shared = acting.faces and task.held is None and 3 * n + len(acting.joints) > len(v_free)
    factor = rows.factor() if shared and not isinstance(rows, BlockRows) else None
    u = rates(v_free)
    fastest = jnp.max(jnp.abs(u))
    gap = jnp.concatenate([rows.masked(points.gap), joints.gap])
    opens = -2 / law.h * _open(gap, points, closes)
    smooth = law.smoothing
    barrier = None if smooth is None else rows.masked(jnp.broadcast_to(2 * STANDARD_GRAVITY * smooth, points.gap.shape))

    def solve(allowed, guess, active):
        problem = ConeProblem(
            G, _shifted(n, u, allowed), law.friction, *_joint_bounds(joints), barrier, factor, operator
        )
        enough = ENOUGH * settings.limit
        return solve_cones(problem, guess, active, fastest, settings.tolerance, settings.max_sweeps, enough)

    bouncing = law.restitution is not None and n > 0
    before = rates(task.v_t) if bouncing else u
    if bouncing:
        bounces, allowed = _rebound(before[: 3 * n : 3], u[: 3 * n : 3], opens[:n], gap[:n], law.restitution, law.h)
        found = _bouncing(settings, solve, start, opens, jnp.concatenate([allowed, opens[n:]]), bounces)
        plain, further, residual, sweeps = found
        islands = [own for own, _ in acting.islands]
        change = further - plain
        x = plain + largest_part(partial(times, G, operator), 0.5 * (u + before), plain, change, islands) * change
    else:
        found = solve(opens, start.plain, jnp.ones((), bool))
        plain = further = x = found.x
        residual, sweeps = found.residual, found.sweeps
    after = u + times(G, operator, x)
    normals = np.asarray([*range(0, 3 * n, 3), *range(3 * n, 3 * n + limited)], int)
    left_open = gap + 0.5 * law.h * after[normals]
    least = (
        (G.normals(limited), None) if operator is None else (G[normals][:, normals], operator.between(normals.tolist()))
    )
    lift, left = _lift(settings, *least, left_open, start.lift, law.h, fastest, _extent(points))
    pushed = _spread(normals, lift, x)
    y = jnp.stack([rows.response(f) for f in (x, pushed)], 1)
    at_joints = jnp.zeros_like(v_free).at[np.asarray(acting.joints, int)].add(rows.signs * x[3 * n :])
    residual = jnp.maximum(residual, left / law.h)
    excess, passed_on = jnp.zeros_like(residual)[None], jnp.zeros((), bool)
    if bouncing:
        excess = _excess(acting.islands, u, before, after, x, pushed, law.h)
        passed_on = _passed_on(G, plain, before[: 3 * n : 3], u[: 3 * n : 3], law.restitution)
    impulse, velocity = (f[: 3 * n].reshape(n, 3) for f in (x, after))
    solutions = Solutions(plain, further, lift)
    return Coupled(y, impulse, velocity, at_joints, residual, sweeps, solutions, excess, passed_on)


def _bouncing(settings: Settings, solve, start: Solutions, opens, allowed, bounces):
    """Impulses without and with restitution, the larger residual, and all sweeps.

    solve(allowed, guess, active); opens, allowed: the least velocities without and with restitution; bounces: whether
    there is any.
    """
    tasks = (opens, jnp.ones((), bool)), (allowed, bounces)
    if settings.max_sweeps:
        found, again = in_turn(solve, start.plain, tasks)
    else:
        found, again = (solve(low, guess, active) for guess, (low, active) in zip(start[:2], tasks, strict=True))
    bouncing = jnp.where(bounces, again.x, found.x)
    return found.x, bouncing, jnp.maximum(found.residual, again.residual), found.sweeps + again.sweeps


def _joint_bounds(joints):
    """Least and largest impulses of limits and of dry friction."""
    high = jnp.concatenate([jnp.full_like(joints.gap, jnp.inf), joints.dry])
    return jnp.concatenate([jnp.zeros_like(joints.gap), -joints.dry]), high


def _entries(operator: Factors, contacts: int) -> Array:
    """Delassus' matrix (n, n) with the ridge that the solver wants, a constant to derivatives.

    What bilateral rows hold entirely keeps a trace of its own response, so that the solver can divide by it.
    """
    operator = jax.lax.stop_gradient(operator)
    G = operator.matrix()
    more = ridge_of(G, contacts)
    if operator.held is not None:
        more = more + TRACE_EPS * float(jnp.finfo(G.dtype).eps) * replace(operator, held=None).diagonal()
    return plus_diagonal(G, more)


def _matrix(rows: Any, task: Task, contacts: int) -> tuple[Any, Factors | None]:
    """`ConeProblem.G`, and its operator where it is not by blocks."""
    if isinstance(rows, BlockRows):
        return rows.matrix(), None
    operator = rows.operator()
    if task.held is not None:
        answers, inverse = task.held
        operator = replace(operator, held=(jnp.stack([rows.rates(answer) for answer in answers]), inverse))
    return _entries(operator, contacts), operator


def _extent(points: ContactPoints) -> Array:
    """The largest coordinate () of a contact, m, a constant to derivatives."""
    return jax.lax.stop_gradient(jnp.max(jnp.abs(points.point), initial=0.0))


def _open(gap, points: ContactPoints, closes: bool):
    """Gaps, 0 where they are closed. closes: whether gaps count as closed that are round-off of positions.

    By them the points of a face would seem to contradict each other.
    """
    if not closes:
        return jnp.maximum(gap, jnp.zeros_like(gap))
    least = GAP_EPS * float(jnp.finfo(gap.dtype).eps) * _extent(points)
    return jnp.where(gap > least, gap, jnp.zeros_like(gap))


def _excess(islands, u, before, after, x, pushed, h) -> Array:
    """Work, J, of the displacements and impulses x together, where it is positive; (islands,).

    Impulses do positive work at a point that first separates and is then pressed together, as when a body turns.

    pushed: impulses of the displacements, as x. Gravity and motors change the velocities from `before` to u.
    """

    def one(rows) -> Array:
        own = np.asarray(rows, int)
        gained = 0.5 * jnp.sum(x[own] * (before[own] + after[own]))
        work = jnp.sum(pushed[own] * (before[own] - u[own])) / h
        return jnp.maximum(work + gained, jnp.zeros_like(work))

    return jnp.stack([one(rows) for rows, _ in islands])


def _passed_on(G, x, before, u, restitution) -> Array:
    """Whether other impacts of the same step drive a bouncing contact together faster than its own motion does.

    In a sequence of impacts it would bounce at that speed. before (n,): normal velocities at the start of the step.
    u (n,): with the step's forces. Contacts at rest drive each other at a few times that change; this does not count.
    """
    n = len(before)
    impulse = x[: 3 * n].reshape(n, 3)
    driven = -(times(G, None, x)[: 3 * n : 3] - jnp.sum(own_blocks(G, n)[:, 0] * impulse, 1))
    noise = MANY_TIMES * jnp.max(jnp.abs(u - before)) + TRACE_EPS * float(jnp.finfo(u.dtype).eps) * jnp.max(jnp.abs(u))
    return jnp.any((restitution > 0) & (impulse[:, 0] > 0) & (driven > jnp.maximum(noise, -before)))


def _spread(rows, values, like):
    """Values in some rows, zeros in the others."""
    return jnp.zeros_like(like).at[rows].set(values, unique_indices=True)


def _shifted(n: int, u, allowed):
    """Velocities minus the least ones that are allowed, along the normals of n contacts and at the limits."""
    rows = np.asarray([*range(0, 3 * n, 3), *range(3 * n, 2 * n + len(allowed))], int)
    return u.at[rows].add(-allowed, unique_indices=True)


def _rebound(before, u, opens, gap, restitution, h) -> tuple[Array, Array]:
    """Whether any contact bounces (), and the least normal velocities (n,) that restitution demands."""
    closing = (gap + 0.5 * h * u < 0) & (before < 0)
    demanded = -restitution * before
    bounces = jnp.any(closing & (demanded > 0))
    return jax.lax.stop_gradient(bounces), jnp.where(closing, jnp.maximum(demanded, opens), opens)


def _lift(settings: Settings, G, operator: Factors | None, gap, guess, h, fastest, extent) -> tuple[Array, Array]:
    """Displacement impulses (n,) along normals and limits that leave no gap negative, and the error left (), m.

    Their tolerance is that of the displacements of a step, at the fastest velocity, or what positions round off.
    """
    none = jnp.zeros_like(gap)
    if not len(gap):
        return none, jnp.zeros((), gap.dtype)
    problem = ConeProblem(G, gap, none[:0], none, jnp.full_like(gap, jnp.inf), None, None, operator)
    deepest = -jnp.min(gap)
    inside = jax.lax.stop_gradient(deepest > 0)
    enough = ENOUGH * settings.limit * h
    scale = jnp.maximum(deepest, h * fastest)
    if settings.tolerance:
        scale = jnp.maximum(scale, HALF * float(jnp.finfo(gap.dtype).eps) * extent / settings.tolerance)
    found = solve_cones(problem, guess, inside, scale, settings.tolerance, settings.max_sweeps, enough)
    return jnp.where(inside, found.x, none), found.residual
