"""One step of a tree with rigid contacts: the Moreau-Jean scheme, with Newton's restitution and Coulomb's cones.

    q_m = q + h/2 v                            half a step with the old velocity
    w = v + h/2 vdot(q_m, w, tau)              mean velocity of free flight, by a few fixed-point iterations
    v_free = v + h vdot(q_m, w, tau)           without contacts; joint damping is implicit
    x                                          impulses at contacts, limits and dry joints, `cones/solver.py`
    v' = v_free + M^-1 J^T x                   velocities jump as a whole
    q' = q_m + h/2 v' + dq                     half a step with the new velocity, out of the ground

Contacts. One that is open at q_m may close by the end of the step, but go no further: u_n >= -gap / (h/2). A closed
one must not approach, u_n >= 0; with restitution e it leaves with u_n >= -e u_n(v_t). Here v_t is v after the
velocity-dependent forces alone, v_free - h M^-1 (other forces), so that an elastic bounce keeps the energy, including
gravity's. Joint limits are such gaps, without restitution. Dry friction of a joint is an impulse between -h f and h f
that opposes its velocity. The displacement dq removes the penetration that is left at the end. It comes from
nonnegative displacement impulses along the normals, by the same Delassus operator, and adds no velocity.

Motion. Rotations move by so3.exp and free bodies by the velocity of their origin in the world: steps on SO(3) x R^3.
Free flight is symmetric in time, and keeps the energy of a single body about its center of mass, as far as the
iterations have converged. Falling keeps the energy to round-off, and so does a bounce with e = 1.

Energy. Newton's restitution together with friction can create energy when several contacts close at once. Then the
step takes x + s (y - x) instead: x are the impulses without restitution, which never add energy, y those with
restitution, and s is the largest number in 0..1 for which the impulses add none. All of this is done for each part of
the mechanism that neither joints nor pairs couple with others. Moving out of the ground against gravity takes work.
Where the impulses have lost less energy than that, the rest is taken from the kinetic energy: v' is scaled down after
it has moved the bodies. This is done where restitution is given, 0 included; None saves its time. Without it the
impulses lose more than the lift takes on planes, except for bodies that begin inside the ground, which are lifted out.
Where bodies of a pair turn, their normal turns, too, which the linear gap does not see: a step may then gain weight
times what is missed, which is of order h^2. On a height field a ball touches one point at a time. It may move into
another face by up to h u, and lose only m u^2 / 2 where m g h u is needed to move it out: it gains m (g h)^2 / 2 in
such a step at most.

Derivatives are those of the implicit function, see `equations.py`.

Source: J. J. Moreau, Numerical aspects of the sweeping process (1999), for the scheme. The choice of s and the scaling
are not from the literature.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lgjax.contact.bilateral import Bilateral, Implicit, bilateral, joined, own_inertia
from lgjax.contact.block_rows import acting_in
from lgjax.contact.bounded import choose, velocities
from lgjax.contact.contacts import Contacts
from lgjax.contact.coupled import Guess, Law, Settings, Task, coupled
from lgjax.contact.equations import Bounced, Known, Middle, Outcome, at_solution, without_turning
from lgjax.contact.geometry.detection import detect
from lgjax.contact.rows import Acting, joint_rows
from lgjax.dynamics.energy import kinetic_energy
from lgjax.dynamics.forward import accelerations, articulated_body
from lgjax.dynamics.inverse import inverse_dynamics
from lgjax.dynamics.loops.loop import Loop
from lgjax.dynamics.spatial import applied_wrenches
from lgjax.execution import batched
from lgjax.execution.kept import keep, known
from lgjax.groups import so3
from lgjax.groups.se3 import Pose
from lgjax.multibody.configuration import Configuration, join_velocity, split_velocity
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.implicit import no_tangent
from lgjax.numerics.tangents import along_moving

Array = jax.Array

# Iterations for the mean velocity: for free bodies alone, and for other trees in contact. In trees, the mean velocity
# of free flight would bias the forces on a standing robot, by 2e-5 of its weight with steps of 2 ms, because contacts
# stop its fall. Without contacts one iteration gives order 2.
ITERATIONS_OF_BODIES, ITERATIONS = 8, 0


class Impact(NamedTuple):
    """Result of `impact`: what the contacts, joint limits and dry joints of a tree at q_m do in a step.

    v: (nv,) after the step. lift: (nv,) displacement out of the ground. impulse: (n, 3) N s and velocity: (n, 3) m/s
    after the impulses, both in the contact frames. gap: (n,) m, at q_m. joint_impulse: (nv,) N m s or N s, of joint
    limits and dry friction. residual: () m/s, the violation of the law. sweeps: () int32, sweeps of the solver.
    held: the rows of loops and implicit forces, None without any. passed_on: () bool, whether one impact set off
    another in the same step, see `coupled._passed_on`. inexact: () bool, whether the distance of a pair is inexact.
    left_out: () bool, whether bodies met at a contact beyond the `nearest` ones, see `bounded.py`.
    """

    v: Array
    lift: Array
    impulse: Array
    velocity: Array
    gap: Array
    joint_impulse: Array
    residual: Array
    sweeps: Array
    held: Bilateral | None
    passed_on: Array
    inexact: Array
    left_out: Array


def move(model: Model, q: Configuration, v: Array, displacement: Array) -> tuple[Configuration, Array]:
    """The configuration after a displacement (nv,), body frame, on SO(3) x R^3, and the velocity v (nv,) seen there.

    A free body keeps the velocity of its origin in the world frame, and its angular velocity in the body frame.
    """
    return batched(partial(_move, model.tree))(q, v, displacement)


def _move(tree, q: Configuration, v, displacement):
    frees, joints, balls = split_velocity(tree, displacement)
    R, p = q.free_poses
    turn = so3.exp(frees[:, :3])
    moved = Pose(sm.matmul(R, turn), p + sm.matvec(R, frees[:, 3:]))
    new = Configuration(moved, q.joints + joints, so3.compose(q.ball_rotations, so3.exp(balls)))
    own, rates, spins = split_velocity(tree, v)
    own = sm.join(own[:, :3], sm.tmatvec(turn, own[:, 3:]))
    return new, join_velocity(tree, own, rates, spins)


class Forces(NamedTuple):
    """Forces that act in the middle of a step.

    tau: (nv,). wrenches: (nbodies, 6), body frame, or None. loops: a tuple of `Loop`. implicit: see `Implicit`.
    """

    tau: Array
    wrenches: Array | None = None
    loops: tuple[Loop, ...] = ()
    implicit: Implicit = Implicit()


def impact(
    model: Model, contacts: Contacts, q: Configuration, v, forces: Forces, h, guess: Guess, settings: Settings
) -> Impact:
    """Velocities after a step of h s that has reached q, its middle, and its impulses. v: (nv,) before the step.

    guess: impulses at which the solver starts.
    """
    applied = None if forces.wrenches is None else applied_wrenches(model.links, forces.wrenches)
    # Joint damping acts at the velocity at the end of the step, v + h vdot: -d v is a force, -d h vdot an inertia h d.
    tau = forces.tau - model.damping * v
    inertia = model.armature + h * model.damping + own_inertia(forces.implicit, h)
    model = model.replace(armature=inertia, damping=jnp.zeros_like(model.damping))
    turning = -without_turning(model, v, jnp.zeros_like(v))
    held = bilateral(model, forces.loops, q, v, turning, h, forces.implicit)
    iterations = settings.iterations
    if iterations is None:
        bodies = model.nv == 6 * model.nbodies and held is None
        touching = len(contacts) or contacts.limited or contacts.dry
        iterations = ITERATIONS_OF_BODIES if bodies else ITERATIONS if touching else 1
    half = lambda w: without_turning(model, w, articulated_body(model, q, w, tau, applied))
    mean = _mean_velocity(half, v, h, held, iterations)
    # One kernel of its own where the whole step is too large for one.
    step = batched(partial(_impact, settings, joined(model, forces.loops)))
    return step(model, contacts, q, v, mean, tau, applied, h, guess, held)


def _mean_velocity(half, v, h, held: Bilateral | None, iterations: int) -> Array:
    """The mean velocity w = v + h/2 vdot(q, w) of free flight, by a fixed number of iterations that begin with v.

    half(w): the accelerations (nv,). With loops w is the mean of v and of the velocity that the loops allow.
    """
    if not iterations:
        return v
    ahead = lambda w: v + 0.5 * h * half(w) if held is None else 0.5 * (v + held.held(v + h * half(w)))
    return jax.lax.fori_loop(0, iterations, lambda _, w: ahead(w), v)


class _Found(NamedTuple):
    """Result of `_search`. before: (n,), normal velocities of all candidates in free flight, None where all act. The
    others are those of `Impact`.
    """

    outcome: Outcome
    known: Known
    residual: Array
    sweeps: Array
    passed_on: Array
    inexact: Array
    before: Array | None


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
@partial(jax.jit, static_argnums=(0, 1))  # one trace for a step and its derivative
def _search(settings: Settings, acting: Acting, middle: Middle, guess: Guess) -> _Found:
    """What the impulses do."""
    model, contacts, q, v, *_, h, held = middle
    bounces = contacts.restitution is not None and len(contacts) > 0
    free = middle.factored(bounces)
    v_free = middle.coasting() + h * free.vdot
    v_t = v if free.from_rest is None else v_free - h * free.from_rest
    v_free, v_t = middle.hold(v_free), middle.hold(v_t) if bounces else v_t
    points = detect(contacts, model, free.poses, free.origin)
    joints = joint_rows(contacts, model, q, h)
    law = Law(contacts.friction, contacts.restitution, h, contacts.smoothing)
    inexact, points = points.status != 0, points._replace(status=None)
    chosen = before = None
    if contacts.nearest is not None:
        before = velocities(contacts, model, free.columns.S, points, v_free)[:, 0]
        chosen = choose(contacts, model, points.gap + 0.5 * h * before)
    rows = None if held is None else (held.answers, held.inverse)
    found = coupled(settings, acting, Task(free.columns, v_t, v_free, points, joints, law, rows, chosen), guess)
    dv, dq = free.respond(*found.y)
    after, lift = v_free + middle.allow(dv), middle.allow(dq)
    outcome = Outcome(
        after, lift, points, free.columns.S, found.impulse, found.velocity, found.joint_impulse, found.excess
    )
    change, bounced = h * free.vdot + dv, None
    if found.apart is not None:
        assert free.from_rest is not None
        change, more = (h * free.vdot + dv for dv in free.respond(*found.apart))
        bounced = Bounced(more, h * free.vdot, h * free.from_rest)
    known = Known(found.solutions, change, dq, bounced, chosen)
    return _Found(outcome, _handed_on(known), found.residual, found.sweeps, found.passed_on, inexact, before)


@partial(_search.defjvp, symbolic_zeros=True)
def _(settings, acting, primals, tangents):
    """Derivatives of the equations at the solution: no iteration is differentiated or repeated."""
    found = _search(settings, acting, *primals)
    kept = _handed_on(found.known)
    at = lambda middle: at_solution(acting, kept, middle)
    outcome, along = along_moving(at, primals[:1], tangents[:1])
    still = jax.tree.map(no_tangent, found)
    return found._replace(outcome=known(found.outcome, outcome)), still._replace(outcome=along)


def _handed_on(found: Known) -> Known:
    """What derivatives read, as one array of numbers, and which contacts act."""
    flat, parts = ravel_pytree(found._replace(chosen=None))
    return parts(keep(flat))._replace(chosen=keep(found.chosen))


def _impact(
    settings: Settings, joined_bodies, model: Model, contacts: Contacts, q, v, mean, tau, applied, h, guess, held
) -> Impact:
    """`impact` once the mean velocity of free flight is known: one kernel. joined_bodies: sets that loops join."""
    middle = Middle(model, contacts, q, v, mean, tau, applied, h, held)
    acting = acting_in(contacts, model, joined_bodies)
    if not (len(contacts) or acting.joints):
        vdot = without_turning(model, mean, accelerations(model, q, mean, tau, applied))
        return _untouched(middle.hold(v + h * vdot), held)
    found = _search(settings, acting, middle, guess)
    after, lift, points, S, impulse, velocity, joint_impulse, excess = found.outcome
    if contacts.restitution is not None:
        kept = _energy_factors(acting.islands, model, q, after, excess)
        after, lift = kept * after, lift + 0.5 * h * (1 - kept) * after
    left_out = jnp.zeros((), bool)
    if found.before is not None:
        assert found.known.chosen is not None
        velocity = velocities(contacts, model, S, points, after)
        met = points.gap + 0.5 * h * jnp.minimum(found.before, velocity[:, 0]) < 0
        left_out = jnp.any(met & found.known.chosen.waiting)
    more = joint_impulse, found.residual, found.sweeps
    return Impact(after, lift, impulse, velocity, points.gap, *more, held, found.passed_on, found.inexact, left_out)


def _untouched(v, held) -> Impact:
    """The result of free flight, without contacts, limits and dry joints."""
    none, zero = jnp.zeros((0, 3), v.dtype), jnp.zeros_like(jnp.sum(v))
    still, never = jnp.zeros_like(v), jnp.zeros((), bool)
    return Impact(v, still, none, none, none[:, 0], still, zero, jnp.zeros((), jnp.int32), held, never, never, never)


def _energy_factors(islands, model: Model, q, v, excess) -> Array:
    """Factors (nv,) on the velocities that reduce the kinetic energy of each island by its excess (islands,), J."""
    if len(islands) == 1 and len(islands[0][1]) == model.nv:
        return _factor(kinetic_energy(model, q, v), excess[0])
    still = model.replace(gravity=jnp.zeros_like(model.gravity))
    twice = v * inverse_dynamics(still, q, jnp.zeros_like(v), v)  # without damping, which is part of the armature
    factors = [jnp.ones_like(excess[0])] * model.nv
    for n, (_, moved) in enumerate(islands):
        if moved:
            kept = _factor(0.5 * jnp.sum(twice[np.asarray(moved)]), excess[n])
            factors = [kept if i in moved else factor for i, factor in enumerate(factors)]
    return jnp.stack(factors)


def _factor(energy, excess) -> Array:
    """The factor sqrt(1 - excess / energy) on the velocities; 1 if the energy is less than the excess.

    Both are divided by a constant first, because the square of an energy can underflow. Below 2.4e-23 J in float32
    (1 kg at 7e-12 m/s) second derivatives would overflow: there the factor has first derivatives alone.
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
