"""One step of a tree with rigid contacts: the Moreau-Jean scheme, with Newton's restitution and Coulomb's cones.

    q_m = q + h/2 v                            half a step with the old velocity
    w = v + h/2 vdot(q_m, w, tau)              mean velocity of free flight, by a few fixed-point iterations
    v_free = v + h vdot(q_m, w, tau)           without contacts; joint damping is implicit
    x                                          impulses at contacts, limits and dry joints, `cones/solver.py`
    v' = v_free + M^-1 J^T x                   velocities jump as a whole
    q' = q_m + h/2 v' + dq                     half a step with the new velocity, out of the ground

A contact that is open at q_m may close by the end of the step, but go no further: u_n >= -gap / (h/2). A closed one
must not approach, u_n >= 0; with restitution e it leaves with u_n >= -e u_n(v_t). Here v_t is v after the
velocity-dependent forces alone, v_free - h M^-1 (other forces), so that an elastic bounce keeps the energy, including
gravity's. Joint limits are such gaps, without restitution. Dry friction of a joint is an impulse between -h f and h f
that opposes its velocity. The displacement dq removes the penetration that is left at the end. It comes from
nonnegative displacement impulses along the normals, by the same Delassus operator, and adds no velocity.

Rotations move by so3.exp and free bodies by the velocity of their origin in the world: steps on SO(3) x R^3. Free
flight is symmetric in time, and keeps the energy of a single body about its center of mass, as far as the iterations
have converged. Falling keeps the energy to round-off, and so does a bounce with e = 1.

Newton's restitution together with friction can create energy when several contacts close at once. Then the step takes
x + s (y - x) instead: x are the impulses without restitution, which never add energy, y those with restitution, and s
is the largest number in 0..1 for which the impulses add none. All of this is done for each part of the mechanism that
neither joints nor pairs couple with others. Moving out of the ground against gravity takes work.
Where the impulses have lost less energy than that, the rest is taken from the kinetic energy: v' is scaled down after
it has moved the bodies. Where no contact has restitution, v' is not scaled. On planes the impulses then lose more than
that, except for bodies that begin inside the ground, which are lifted out. On a height field a ball touches one point
at a time. It may move into another face by up to h u, and lose only m u^2 / 2 where m g h u is needed to move it out:
it gains m (g h)^2 / 2 in such a step at most.

Source: J. J. Moreau, Numerical aspects of the sweeping process (1999), for the scheme. The choice of s and the scaling
are not from the literature.
"""

import math
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from lgjax.contact.cones.algebra import largest, least, times, total
from lgjax.contact.cones.law import ConeProblem, largest_part
from lgjax.contact.cones.solver import in_turn, solve_cones
from lgjax.contact.contacts import Contacts
from lgjax.contact.detection import detect
from lgjax.contact.responses import (
    FactoredDynamics,
    delassus,
    impulses,
    joint_impulses,
    response,
    twists,
)
from lgjax.contact.rows import Acting, joint_rows
from lgjax.dynamics.energy import kinetic_energy
from lgjax.dynamics.forward import articulated_body
from lgjax.dynamics.inverse import inverse_dynamics
from lgjax.dynamics.spatial import applied_wrenches
from lgjax.execution._jax import call_apart
from lgjax.execution.call import batch_behind
from lgjax.execution.kept import keep
from lgjax.groups import so3
from lgjax.groups.se3 import Pose
from lgjax.multibody.configuration import Configuration, join_velocity, split_velocity
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm

Array = jax.Array

# m/s^2. `Contacts(smoothing=)` is the gap at which a smoothed contact pushes as hard as this gravity pulls on the mass
# that the contact moves.
STANDARD_GRAVITY = 9.81
# Iterations for the mean velocity: for free bodies alone, and for other trees. In trees, the mean velocity of free
# flight would bias the forces on a standing robot, by 2e-5 of its weight with steps of 2 ms, because contacts stop its
# fall.
TURNS_OF_BODIES, TURNS = 8, 0
# Part of `Settings.limit` at which a solver that stalls is done. Its sweeps measure another change than the residual.
ENOUGH = 0.1


class Settings(NamedTuple):
    """Static numbers of `TimeStepping`. limit: m/s, the residual above which a system at rest is not solved."""

    tolerance: float
    max_sweeps: int
    limit: float
    execution: Any = "scalarized"
    turns: int | None = None


class Impact(NamedTuple):
    """What a step does to a tree at q_m.

    v: (nv,) after the step. lift: (nv,) displacement out of the ground. impulse: (n, 3) N s and velocity: (n, 3) m/s
    after the impulses, both in the contact frames. gap: (n,) m, at q_m. joint_impulse: (nv,) N m s or N s, of joint
    limits and dry friction. residual: () m/s, the violation of the law. sweeps: () of the solver.
    """

    v: Array
    lift: Array
    impulse: Array
    velocity: Array
    gap: Array
    joint_impulse: Array
    residual: Array
    sweeps: Array


def move(model: Model, q: Configuration, v: Array, displacement: Array) -> tuple[Configuration, Array]:
    """The configuration after a displacement (nv,), body frame, on SO(3) x R^3, and the velocity v (nv,) seen there.

    A free body keeps the velocity of its origin in the world frame, and its angular velocity in the body frame.
    """
    return batch_behind(partial(_move, model.tree))(q, v, displacement)


def _move(tree, q: Configuration, v, displacement):
    frees, joints, balls = split_velocity(tree, displacement)
    R, p = q.free_poses
    turn = so3.exp(frees[:, :3])
    moved = Pose(sm.matmul(R, turn), p + sm.matvec(R, frees[:, 3:]))
    new = Configuration(moved, q.joints + joints, so3.compose(q.ball_rotations, so3.exp(balls)))
    own, rates, spins = split_velocity(tree, v)
    own = sm.join(own[:, :3], sm.tmatvec(turn, own[:, 3:]))
    return new, join_velocity(tree, own, rates, spins)


def impact(
    model: Model, contacts: Contacts, q: Configuration, v, tau, wrenches, h, smoothing, guess, settings: Settings
) -> Impact:
    """The velocities after a step of h that has reached q at its middle, and everything about its contacts."""
    applied = None if wrenches is None else applied_wrenches(model.links, wrenches)
    # Joint damping at the end of the step, at v + h vdot: the part of h vdot acts as inertia, that of v is known.
    tau = tau - model.damping * v
    model = model.replace(armature=model.armature + h * model.damping, damping=jnp.zeros_like(model.damping))
    mean = _mean_velocity(model, q, v, tau, applied, h, settings)
    rest = None
    if contacts.restitution is not None:
        rest = articulated_body(settings.execution, model, q, jnp.zeros_like(v), tau, applied)
    step = batch_behind(partial(_impact, settings), settings.execution)
    return step(model, contacts, q, v, mean, rest, tau, applied, h, smoothing, guess)


def _mean_velocity(model: Model, q: Configuration, v, tau, applied, h, settings: Settings) -> Array:
    """The w = v + h/2 vdot(q, w) of free flight, after a fixed number of iterations that begin with v."""
    turns = settings.turns
    if turns is None:
        turns = TURNS_OF_BODIES if model.nv == 6 * model.nbodies else TURNS
    half = lambda w: _without_turning(model, w, articulated_body(settings.execution, model, q, w, tau, applied))
    return jax.lax.fori_loop(0, turns, lambda _, w: v + 0.5 * h * half(w), v) if turns else v


def _impact(settings: Settings, model: Model, contacts: Contacts, q, v, mean, rest, tau, applied, h, smoothing, guess):
    free = FactoredDynamics(model, q, mean, tau, applied, model.armature, settings.execution)
    v_free = v + h * _without_turning(model, mean, free.vdot)
    turned = v if rest is None else v_free - h * rest
    points = detect(contacts, model, free.poses, free.origin)
    joints = joint_rows(contacts, model, q, h)
    laws = contacts.friction, contacts.restitution, h, smoothing
    acting = Acting.of(contacts, model)
    full = jnp.concatenate([guess.reshape(-1), jnp.zeros(len(acting.joints), guess.dtype)])
    none = jnp.zeros(len(contacts) + len(joints.gap), guess.dtype)
    found = _coupled(settings, acting, (free.columns, turned, v_free, points, joints, laws), (full, full, none))
    dv, dq = free.respond(found.y)
    after, lift = v_free + dv, dq
    if rest is not None:
        kept = _kept(acting.islands, model, q, after, found.excess)
        after, lift = kept * after, dq + 0.5 * h * (1 - kept) * after
    more = found.joint_impulse, found.residual, found.sweeps
    return Impact(after, lift, found.impulse, found.velocity, points.gap, *more)


def _kept(islands, model: Model, q, v, excess) -> Array:
    """The factors (nv,) on the velocities that take the excesses (islands,) from the kinetic energies."""
    if len(islands) == 1 and len(islands[0][1]) == model.nv:
        return _kept_part(kinetic_energy(model, q, v), excess[0])
    still = model.replace(gravity=jnp.zeros_like(model.gravity))
    twice = v * inverse_dynamics(still, q, jnp.zeros_like(v), v)  # without damping, which is part of the armature
    factors = [jnp.ones_like(excess[0])] * model.nv
    for n, (_, moved) in enumerate(islands):
        if moved:
            kept = _kept_part(0.5 * total(twice[i] for i in moved), excess[n])
            factors = [kept if i in moved else factor for i, factor in enumerate(factors)]
    return jnp.stack(factors)


def _kept_part(energy, excess) -> Array:
    """The factor on the velocities that takes an excess from the kinetic energy; 1 if there is less than that.

    Both are divided by a constant first, for the square of an energy may underflow. Below 2.4e-23 J in float32 (1 kg at
    7e-12 m/s) the way back would meet numbers that are too large: there the factor has its slopes and no curvature.
    """
    enough = (energy > excess) & (energy < jnp.inf)
    size = jnp.where(enough, jax.lax.stop_gradient(energy), jnp.ones_like(energy))
    bends = enough & (size > (1e4 * float(jnp.finfo(size.dtype).tiny)) ** (2 / 3))  # so that size^-1.5 is a number
    part = jnp.where(enough, excess, jnp.zeros_like(size)) / size
    whole = jnp.where(enough, energy, jnp.ones_like(size)) / size
    start = jax.lax.stop_gradient(part)
    kept = jnp.sqrt(1 - jnp.where(bends, part, start) / jnp.where(bends, whole, jnp.ones_like(whole)))
    slope = 0.5 / jax.lax.stop_gradient(jnp.where(bends, jnp.ones_like(kept), kept))
    change = jnp.where(bends, jnp.zeros_like(part), part - start * whole)
    return kept - slope * (change - jax.lax.stop_gradient(change))


class Coupled(NamedTuple):
    """What all contacts and joints do together.

    y: (nv, 2) of impulses and displacements, as `FactoredDynamics.respond` takes it. impulse: (n, 3). velocity: (n, 3)
    after the impulses. joint_impulse: (nv,). residual, sweeps: as in `Impact`. guesses: the solutions, from which
    derivatives start: impulses of all rows without and with restitution, and displacements of normals and limits.
    excess: of each island, J, the work of the displacements minus the energy that the impulses have lost, where bodies
    bounce.
    """

    y: Array
    impulse: Array
    velocity: Array
    joint_impulse: Array
    residual: Array
    sweeps: Array
    guesses: Any
    excess: Array


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _coupled(settings: Settings, acting: Acting, data, start) -> Coupled:
    found = _together(settings, acting)(data, start)
    return found._replace(guesses=keep(found.guesses))


@_coupled.defjvp
def _(settings, acting, primals, tangents):
    """The same operations, from the known solutions: no iteration is differentiated or, for a way back, repeated."""
    found = _coupled(settings, acting, *primals)
    known, guesses = settings._replace(max_sweeps=0), keep(found.guesses)
    single = lambda data: _alone(known, acting, data, guesses)
    same, along = jax.jvp(single, (primals[0],), (tangents[0],))
    return same._replace(sweeps=found.sweeps), along


def _alone(settings: Settings, acting: Acting, data, start) -> Coupled:
    """For one system: a batch of one."""
    data, start = jax.tree.map(lambda x: x[..., None], (data, start))
    return jax.tree.map(lambda x: x[..., 0], _contact_problem(settings, acting, data, start))


def _together(settings: Settings, acting: Acting):
    """The function of (data, start) that puts the batch axis last, however often `jax.vmap` is applied to it."""

    def at(depth: int):
        @custom_vmap
        def solve(data, start):
            if not depth:
                return _alone(settings, acting, data, start)
            shape = start[2].shape[1:]
            flat = lambda x: x.reshape(*x.shape[: x.ndim - depth], math.prod(shape))
            found = _contact_problem(settings, acting, *jax.tree.map(flat, (data, start)))
            return jax.tree.map(lambda x: x.reshape(*x.shape[:-1], *shape), found)

        @solve.def_vmap
        def _(size, batched, data, start):
            widen = lambda x, b: jnp.moveaxis(x, 0, -1) if b else jnp.broadcast_to(x[..., None], (*x.shape, size))
            out = at(depth + 1)(*jax.tree.map(widen, (data, start), tuple(batched)))
            return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), out), jax.tree.map(lambda _: True, out)

        return solve

    return at(0)


def _without_turning(model: Model, v, vdot):
    """Accelerations in which free bodies have the derivative of the world velocity of their origin, in body axes.

    The derivative of its components in the body frame lacks w x v, because these axes turn with the body.
    """
    frees, _, _ = split_velocity(model.tree, v)
    rates, joints, balls = split_velocity(model.tree, vdot)
    rates = sm.join(rates[:, :3], rates[:, 3:] + sm.cross(frees[:, :3], frees[:, 3:]))
    return join_velocity(model.tree, rates, joints, balls)


# ---- all rows of a batch of systems: arrays with the batch as their last axis
def _contact_problem(settings: Settings, acting: Acting, data, start) -> Coupled:
    columns, turned, v_free, points, joints, (friction, restitution, h, smoothing) = data
    n, nv, limited = len(points.gap), len(v_free), acting.limited
    wrenches = call_apart(acting.wrenches)(points) if n else []
    signs = jnp.concatenate([joints.side, jnp.ones_like(joints.dry)])
    moving = lambda v: call_apart(lambda columns, v: twists(columns, acting.ways, v, len(acting.sides)))(columns, v)
    turning = lambda v: signs * v[np.asarray(acting.joints, int)]
    rates = lambda v: call_apart(acting.rates)(wrenches, moving(v) if n else [], turning(v))
    y = impulses(columns, acting.ways, wrenches)
    if acting.joints:
        y = [*y, joint_impulses(columns, acting.ways, signs)]
    G = delassus(columns, acting.ways, y)
    G = acting.gathered(jnp.swapaxes(acting.gathered(G), 0, 1))
    u = rates(v_free)
    fastest = largest(jnp.abs(u))
    gap = jnp.concatenate([points.gap, joints.gap])
    opens = -2 / h * jnp.maximum(gap, jnp.zeros_like(gap))
    barrier = jnp.broadcast_to(2 * STANDARD_GRAVITY * smoothing, points.gap.shape)
    high = jnp.concatenate([jnp.full_like(joints.gap, jnp.inf), joints.dry])
    low = jnp.concatenate([jnp.zeros_like(joints.gap), -joints.dry])

    def solve(allowed, guess, active):
        b = call_apart(partial(_shifted, n))(u, allowed)
        problem = ConeProblem(G, b, friction, low, high, barrier)
        enough = ENOUGH * settings.limit
        return solve_cones(problem, guess, active, fastest, settings.tolerance, settings.max_sweeps, enough)

    always = jnp.ones(h.shape, bool)
    bouncing, before = restitution is not None and n, u
    if bouncing:
        before = rates(turned)
        bounces, allowed = _rebound(before[: 3 * n : 3], u[: 3 * n : 3], opens[:n], points.gap, restitution, h)
        tasks = (opens, always), (jnp.concatenate([allowed, opens[n:]]), bounces)
        if settings.max_sweeps:
            found, again = in_turn(solve, start[0], tasks)
        else:
            found, again = (solve(low, guess, active) for guess, (low, active) in zip(start[:2], tasks, strict=True))
        plain = found.x
        further = jnp.where(bounces, again.x, plain)
        change, islands = further - plain, [rows for rows, _ in acting.islands]
        x = plain + largest_part(G, 0.5 * (u + before), plain, change, islands) * change
        residual, sweeps = jnp.maximum(found.residual, again.residual), found.sweeps + again.sweeps
    else:
        found = solve(opens, start[0], always)
        plain = further = x = found.x
        residual, sweeps = found.residual, found.sweeps
    after = u + call_apart(times)(G, x)
    normals = np.asarray([*range(0, 3 * n, 3), *range(3 * n, 3 * n + limited)], int)
    lift, left = _lift(settings, G[normals][:, normals], gap + 0.5 * h * after[normals], start[2], h)
    pushed = _spread(normals, lift, x)
    answer = call_apart(lambda y, f: response(acting.ways, y, f, nv))
    both = [answer(y, acting.spread(f)) for f in (x, pushed)]
    at_joints = jnp.zeros_like(v_free).at[np.asarray(acting.joints, int)].add(signs * x[3 * n :])
    cube = lambda x: x[: 3 * n].reshape(n, 3, x.shape[-1])
    residual = jnp.maximum(residual, left / h)
    solutions = plain, further, lift
    excess = jnp.zeros_like(residual)[None]
    if bouncing:
        excess = _excess(acting.islands, restitution, u, before, after, x, pushed, h)
    return Coupled(jnp.stack(both, 1), cube(x), cube(after), at_joints, residual, sweeps, solutions, excess)


def _excess(islands, restitution, u, before, after, x, pushed, h) -> Array:
    """Work, J, of the displacements beyond the energy that the impulses x have lost; (islands, B).

    0 without restitution (n, B). pushed: impulses of the displacements, as x. Gravity and motors change the velocities
    from `before` to u.
    """

    def one(rows) -> Array:
        gained = 0.5 * total(x[k] * (before[k] + after[k]) for k in rows)
        work = total(pushed[k] * (before[k] - u[k]) for k in rows) / h
        excess = jnp.maximum(work + jnp.minimum(gained, jnp.zeros_like(work)), jnp.zeros_like(work))
        bouncing = [restitution[k // 3] > 0 for k in rows[::3] if k < 3 * len(restitution)]
        return jnp.where(reduce(jnp.logical_or, bouncing), excess, 0 * excess) if bouncing else 0 * excess

    return jnp.stack([one(rows) for rows, _ in islands])


def _spread(rows, values, like):
    """Values in some rows, zeros in the others."""
    place = {k: i for i, k in enumerate(rows.tolist())}
    none = jnp.zeros_like(like[0])
    return jnp.stack([values[place[k]] if k in place else none for k in range(len(like))])


def _shifted(n: int, u, allowed):
    """Velocities minus the least ones that are allowed, along the normals of n contacts and at the limits."""
    normals = jnp.stack([allowed[:n], *jnp.zeros((2, n, *u.shape[1:]), u.dtype)], 1).reshape(3 * n, *u.shape[1:])
    rest = jnp.zeros((len(u) - 3 * n - len(allowed) + n, *u.shape[1:]), u.dtype)
    return u - jnp.concatenate([normals, allowed[n:], rest])


def _rebound(before, u, opens, gap, restitution, h) -> tuple[Array, Array]:
    """Whether any contact bounces (B,), and the least normal velocities (n, B) that restitution demands."""
    closing = (gap + 0.5 * h * u < 0) & (before < 0)
    demanded = -restitution * before
    bounces = reduce(jnp.logical_or, closing & (demanded > 0))
    return jax.lax.stop_gradient(bounces), jnp.where(closing, jnp.maximum(demanded, opens), opens)


def _lift(settings: Settings, G, gap, guess, h) -> tuple[Array, Array]:
    """Displacement impulses (n, B) along normals and limits that leave no gap negative, and the error left (B,), m."""
    none = jnp.zeros_like(gap)
    if not len(gap):
        return none, jnp.zeros(gap.shape[1:], gap.dtype)
    problem = ConeProblem(G, gap, none[:0], none, jnp.full_like(gap, jnp.inf), none[:0])
    deepest = -least(gap)
    inside = jax.lax.stop_gradient(deepest > 0)
    enough = ENOUGH * settings.limit * h
    found = solve_cones(problem, guess, inside, deepest, settings.tolerance, settings.max_sweeps, enough)
    return jnp.where(inside, found.x, none), found.residual
