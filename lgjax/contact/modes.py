"""A tree with contacts as a hybrid system: modes of motion, guards that end them, and resets between them.

A contact is open, sticks, or slides; these together are the *mode*. In a mode the tree moves by ordinary differential
equations: closed contacts are constraints on accelerations, J vdot + dJ/dt v = 0 along the normal and, where they
stick, along the tangents; where they slide, friction is mu times the normal force against the slip. *Guards* are
functions of the state that are positive as long as the mode lasts. At a *reset* velocities may jump (an impact), and
the law of contact, solved for accelerations, says which mode follows.

Read first: `contacts.py`. Next: `event_driven.py`, which runs the system. Source: F. Pfeiffer, C. Glocker, Multibody
dynamics with unilateral contacts (1996), chapters 5 and 8, with Coulomb's cones for their pyramids.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.cones.law import ConeProblem, largest_part
from lgjax.contact.cones.solver import solve_cones
from lgjax.contact.contacts import Contacts
from lgjax.contact.geometry.detection import detect
from lgjax.contact.time_stepping import columns_at
from lgjax.dynamics.inverse import bias_forces
from lgjax.dynamics.kinematics import world_kinematics
from lgjax.dynamics.mass_matrix import mass_matrix
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.multibody.configuration import Configuration, retract
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.rank import product, regular_inverse
from lgjax.numerics.saddle_point import inverse

Array = jax.Array

HIT, RELEASE, SLIP, STOP = range(4)  # the guards of a contact, see `Motion.guards`
REFINEMENTS = 4  # of the linear systems, whose matrices may be singular
LESS = 1e-3  # of friction, by which a contact that begins to slip has to miss the forces of sticking
STIFF = 3  # rad that friction turns a slow slip by in a step, from which explicit steps cannot follow
BALANCE = 0.03  # of friction: where less than this accelerates a slip along its line, it stays slow for many steps
NEAR = 0.01  # of a step: in the last of a slip its direction has no derivative
FAST = 1e6  # of a sliding contact, as a multiple of accelerations: they do not change where it slides to


class Mode(NamedTuple):
    """closed, slides: (n,) bool; an open contact does not slide. direction: (n, 2) unit vectors in the tangent plane,
    along which contacts began to slide. force: (3 n,) N at the beginning; of forces that balance, where contacts are
    redundant, those next to it are chosen.
    """

    closed: Array
    slides: Array
    direction: Array
    force: Array


class Tolerances(NamedTuple):
    """Sizes below which something counts as zero, (): gaps, m; velocities, m/s, per 1 + the fastest coordinate;
    accelerations and forces, per 1 + the largest.
    """

    gap: float
    velocity: float
    force: float

    @classmethod
    def of(cls, dtype: Any) -> "Tolerances":
        half = float(jnp.finfo(dtype).eps) ** 0.5  # half of the digits
        return cls(0.01 * half, 0.1 * half, 0.1 * half)


class Instant(NamedTuple):
    """The tree at one state without forces at its contacts, and what they see of it. gap: (n,) m. u: (3 n,) m/s, their
    velocities, contact by contact: normal, two tangents. vdot: (nv,). a: (3 n,) m/s^2, their accelerations.
    W: (3 n, nv) J M^-1. G: (3 n, 3 n) J M^-1 J^T. inexact: () 1 where the distance of a pair that is near is not found.
    """

    gap: Array
    u: Array
    vdot: Array
    a: Array
    W: Array
    G: Array
    inexact: Array


class Motion(NamedTuple):
    """How a state moves on in a mode. line: (n,) bool, slow slips that friction keeps on a line, see `_heading`.
    vdot: (nv,). force: (3 n,) N. a: (3 n,) m/s^2, accelerations of the contacts. guards: (n, 4), see `_guards`.
    """

    now: Instant
    line: Array
    vdot: Array
    force: Array
    a: Array
    guards: Array


def instant(
    model: Model, contacts: Contacts, q: Configuration, v: Array, tau: Array, wrenches: Array | None
) -> Instant:
    """The equations of motion with M^-1 as a matrix: few contacts and small trees need no recursion."""
    mass, world = mass_matrix(model, q), world_kinematics(model, q, v, rates=[v])
    force = tau - bias_forces(model, q, v, wrenches)

    def seen(poses: Pose, S: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        points = detect(contacts, model, poses, world.origin)
        J = sm.matmult(points.frame, columns_at(contacts, model, S, points.point)).reshape(-1, model.nv)
        return sm.matvec(J, v), (points.gap, J, (points.status != 0).astype(v.dtype))

    w, p = se3.split(world.twists)
    R, x = world.poses
    turned = se3.ad(world.twists[np.asarray(model.tree.v_body)], world.S)
    rates = Pose(sm.matmul(sm.hat(w), R), p + sm.cross(w, x)), turned if world.bend is None else turned + world.bend[0]
    u, drift, (gap, J, inexact) = jax.jvp(seen, (world.poses, world.S), rates, has_aux=True)
    both = _by_mass(jnp.concatenate([J, force[None]]), mass)
    W, vdot = both[:-1], both[-1]
    return Instant(gap, u, vdot, sm.matvec(J, vdot) + drift, W, product(W, J.T), inexact)


@jax.custom_jvp
def _by_mass(rows: Array, mass: Array) -> Array:
    """rows M^-1 for rows (k, nv) and M (nv, nv), positive definite."""
    return product(rows, inverse(mass))


@_by_mass.defjvp
def _(primals, tangents):
    """X M = rows, so dX M = d rows - X dM."""
    (_, mass), (d_rows, d_mass) = primals, tangents
    found = _by_mass(*primals)
    return found, _by_mass(d_rows - product(found, d_mass), mass)


def _rows(normal: Array, tangents: Array) -> Array:
    """(3 n,) from values (n,) of normals and of both tangents."""
    return jnp.stack([normal, tangents, tangents], 1).reshape(-1)


def constrain(G: Array, b: Array, rows: Array, guess: Array, across: Array, pull: Array | None = None) -> Array:
    """Forces x (3 n, k) with (G x + b)_i = 0 for the rows (3 n,) that are true, and x_i = 0 for the others.

    across: (n, 2) the direction of the first tangential row of each contact. pull: (n, 2) friction per normal force.
    Where rows depend on one another, the solution next to the guess (3 n, k) is found: the matrix is shifted by a
    little, and what the shift changes is removed by iteration. The inverse shift enlarges round-off where the matrix
    has no range; one more product removes that.
    """
    n, dtype = len(G), G.dtype
    eye = jnp.eye(n, dtype=dtype)
    aside = jnp.concatenate([jnp.zeros_like(across[:, :1]), across - jnp.asarray([1.0, 0.0], dtype)], 1)
    B = eye + _columns(1, aside)
    if pull is not None:
        B = B + _columns(0, jnp.concatenate([jnp.zeros_like(pull[:, :1]), pull], 1))
    A, b, guess = _along(across, product(G, B)), _along(across, b), _along(across, guess)
    size = jnp.sum(jnp.diagonal(G)) / n
    shift = 0.1 * float(jnp.finfo(dtype).eps) ** 0.5 * size
    both = rows[:, None] & rows[None]
    inverse = regular_inverse(jnp.where(both, A, 0 * A) + jnp.where(rows, shift, size) * eye)
    x = jnp.where(rows[:, None], guess, jnp.zeros_like(b))
    part = lambda x: jnp.where(rows[:, None], x, jnp.zeros_like(x))
    times = lambda A, x: jnp.sum(A[:, :, None] * x[None], 1)  # few columns: a loop, where XLA would call a routine
    for _ in range(REFINEMENTS):
        missed = part(times(A, x) + b)
        x = x - times(inverse, part(times(A, times(inverse, missed))))
    return product(B, x)


def _columns(place: int, x: Array) -> Array:
    """(3 n, 3 n) with x (n, 3) in the columns of each contact's normal, place 0, or first tangent, place 1."""
    n = 3 * len(x)
    here = (jnp.arange(n) % 3 == place)[None] & (jnp.arange(n)[:, None] // 3 == jnp.arange(n)[None] // 3)
    return jnp.where(here, x.reshape(-1)[:, None], jnp.zeros((), x.dtype))


def _along(across: Array, x: Array) -> Array:
    """x (3 n, k) with the first tangential row of each contact replaced by that in a direction (n, 2)."""
    normal, first, second = jnp.moveaxis(x.reshape(len(across), 3, -1), 1, 0)
    first = across[:, :1] * first + across[:, 1:] * second
    return jnp.stack([normal, first, second], 1).reshape(x.shape)


def length(x: Array) -> Array:
    """|x| (n,) of x (n, 2), with derivative 0 at 0."""
    square = jnp.sum(x * x, -1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, jnp.ones_like(square))), jnp.zeros_like(square))


def unit(x: Array, otherwise: Array) -> Array:
    """x / |x| (n, 2), or `otherwise` where x is zero."""
    size = length(x)[:, None]
    return jnp.where(size > 0, x / jnp.where(size > 0, size, jnp.ones_like(size)), otherwise)


def tangents(x: Array) -> Array:
    """(n, 2) of (3 n,)."""
    return x.reshape(-1, 3)[:, 1:]


def motion(model: Model, contacts: Contacts, mode: Mode, q: Configuration, v: Array, tau, wrenches, dt) -> Motion:
    """Accelerations and contact forces in a mode, within a step of dt."""
    now = instant(model, contacts, q, v, tau, wrenches)
    heading, line = _heading(contacts, mode, now, v, dt)
    pull = jnp.where(mode.slides[:, None], -contacts.friction[:, None] * heading, jnp.zeros_like(heading))
    rows, across = _constraints(mode, line)
    force = constrain(now.G, now.a[:, None], rows, mode.force[:, None], across, pull)[:, 0]
    vdot, a = now.vdot + sm.matvec(now.W.T, force), now.a + sm.matvec(now.G, force)
    return Motion(now, line, vdot, force, a, _guards(contacts, mode, now, force))


def _constraints(mode: Mode, line: Array) -> tuple[Array, Array]:
    """The rows (3 n,) bool that are constrained, and directions (n, 2) of the first tangential ones."""
    sticks = mode.closed & ~mode.slides
    rows = jnp.stack([mode.closed, sticks | line, sticks], 1).reshape(-1)
    x, y = mode.direction.T
    return rows, jnp.where(line[:, None], jnp.stack([-y, x], 1), jnp.asarray([1.0, 0.0], x.dtype))


def _heading(contacts: Contacts, mode: Mode, now: Instant, v: Array, dt: Array) -> tuple[Array, Array]:
    """Unit vectors (n, 2) of the slip, and whether (n,) friction keeps it on its line.

    Friction turns a slow slip fast into its direction, at the rate mu F G / |u|, which would force small steps where
    nothing turns. So a slip that keeps its direction to half of the digits is taken to keep it, also past its end,
    where the motion is then smooth. One that is round-off has the direction in which it began.

    Where friction and load nearly balance, that rate is fast for long, and what is round-off across the slip grows by
    it in each explicit step. So where it is too fast for them, and nothing but round-off pulls across the slip, the
    contact is held across: the limit of an infinite rate.

    The derivative is that of the slip, but where a slip that becomes faster would turn more than an explicit step can
    follow, and at the end of a slip, where a small change turns it by any angle: what that leaves out is as small as
    the square of the time that is left.
    """
    slip, d, some = tangents(now.u), mode.direction, Tolerances.of(now.u.dtype)
    along = jnp.sum(slip * d, 1)
    straight = length(slip - along[:, None] * d) <= some.force * along
    moves = along > 0.1 * some.velocity * (1 + jnp.max(jnp.abs(v)))
    true = unit(jnp.where(moves[:, None], slip, jnp.zeros_like(slip)), d)
    a = tangents(now.a + sm.matvec(now.G, mode.force))
    gain = jnp.sum(a * d, 1)
    drag = contacts.friction * mode.force[::3] * tangents(jnp.diagonal(now.G))[:, 0]
    fast = drag * dt >= STIFF * along
    balanced = (jnp.abs(gain) <= BALANCE * drag) & (length(a - gain[:, None] * d) <= some.force * drag)
    line = mode.slides & straight & fast & balanced
    followed = jnp.where(gain < 0, along > -NEAR * gain * dt, ~fast)[:, None]
    fixed = jax.lax.stop_gradient(true)
    held = d + jnp.where(followed, true - fixed, jnp.zeros_like(true))
    return jnp.where(straight[:, None], held, jnp.where(followed | (gain >= 0)[:, None], true, fixed)), line


def _guards(contacts: Contacts, mode: Mode, now: Instant, force: Array) -> Array:
    """(n, 4), positive while the mode lasts: the gap of open contacts; the normal force of closed ones; of those that
    stick how far friction is inside its cone; of those that slide the slip velocity along its direction.
    """
    push, drag = force[::3], length(tangents(force))
    some = Tolerances.of(force.dtype).force * (1 + jnp.max(jnp.abs(force)))
    ahead = jnp.sum(tangents(now.u) * mode.direction, 1)
    values = now.gap, push + some, contacts.friction * push - drag + some, ahead
    watched = ~mode.closed, mode.closed, mode.closed & ~mode.slides, mode.slides
    return jnp.stack([jnp.where(w, x, jnp.full_like(x, jnp.inf)) for w, x in zip(watched, values, strict=True)], 1)


def settle(
    model: Model, mode: Mode, line: Array, now: Instant, q: Configuration, v: Array
) -> tuple[Configuration, Array]:
    """The state moved onto the constraints of its mode: closed gaps are zero and do not change, what sticks is at rest.

    line: (n,) as in `Motion`.

    First order in what is wrong, which is what a step of the integrator left: nearest in the metric of the masses.
    """
    rows, across = _constraints(mode, line)
    wrong = jnp.stack([now.u, _rows(now.gap, jnp.zeros_like(now.gap))], 1)
    dv, dq = product(now.W.T, constrain(now.G, wrong, rows, jnp.zeros_like(wrong), across)).T
    return retract(model, q, dq), v + dv


# ---- resets
class Law(NamedTuple):
    """Problem of the law of contact at a reset. b: (3 n, 2) velocities or accelerations of the contacts without the
    unknown impulses or forces. friction: (n,). touching: (n,) bool, contacts that may push. scale: () what G x + b
    compare with.
    """

    b: Array
    friction: Array
    touching: Array
    scale: Array

    def solution(self, G: Array, settings, guess: Array, max_sweeps: int) -> tuple[Array, Array]:
        """The x (3 n, 2) with G x + b by Coulomb's law at the contacts that touch, and by how much it is missed.

        With max_sweeps 0 it is the guess, and serves to be differentiated.
        """
        on = _rows(self.touching, self.touching)
        size = jnp.sum(jnp.diagonal(G)) / len(G)
        eye = jnp.eye(len(G), dtype=G.dtype)
        G = jnp.where(on[:, None] & on[None], G, 0 * G) + jnp.where(on, 0 * size, size) * eye
        above = _rows(jnp.ones_like(self.friction), jnp.zeros_like(self.friction))[:, None]
        b = jnp.where(on[:, None], self.b, above)
        mu = jnp.where(self.touching, self.friction, jnp.zeros_like(self.friction))

        def one(task: tuple[Array, Array]):
            problem = ConeProblem(G, task[0], mu, b[:0, 0], b[:0, 0], jnp.zeros_like(mu))
            return solve_cones(problem, task[1], jnp.ones((), bool), self.scale, settings.tolerance, max_sweeps)

        found = jax.lax.map(one, (b.T, guess.T))  # one after the other: under vmap all attempts would be computed
        return found.x.T, jnp.max(found.residual) / self.scale


def law_of_impact(now: Instant, contacts: Contacts, touching: Array, restitution: Array) -> Law:
    """Law of impulses (N s), without and with Newton's restitution (n,) along normals."""
    u = now.u
    back = _rows(restitution * jnp.minimum(u[::3], 0), jnp.zeros_like(restitution))
    scale = jax.lax.stop_gradient(1e-6 + jnp.max(jnp.abs(u)))
    return Law(jnp.stack([u, u + back], 1), contacts.friction, touching, scale)


def impulses(now: Instant, x: Array) -> Array:
    """Impulses (3 n,) of an impact, from those without and with restitution (3 n, 2).

    Where restitution would add energy, they are taken back towards those without, which never do.
    """
    plain, change = x[:, 0], x[:, 1] - x[:, 0]
    return plain + largest_part(now.u, plain, change, product(now.G, plain), product(now.G, change)) * change


class Choice(NamedTuple):
    """Candidates for the next mode, before the law of contact decides.

    can: (n,) bool, contacts that may be closed. rests: (n,) bool, those that do not slide now. law: of forces (N) and
    accelerations.
    """

    can: Array
    rests: Array
    law: Law


def choice(contacts: Contacts, mode: Mode, m: Motion, v: Array, event: Array) -> Choice:
    """event: (n, 4) bool, the guard that ended the mode before, if one did. Contacts that slide have friction against
    their slip, whatever the accelerations. Where friction was at its cone, a little less of it decides: either other
    contacts can take the load, or the contact begins to slip. Otherwise forces are half of the digits inside their
    cones, so that round-off alone ends no rest.
    """
    slow, slip = Tolerances.of(v.dtype).velocity * (1 + jnp.max(jnp.abs(v))), tangents(m.now.u)
    can = touching(m.now) & (jnp.abs(m.now.u[::3]) <= slow) & ~event[:, RELEASE]
    rests = (length(slip) <= slow) | event[:, STOP]
    scale = 1 + jnp.max(jnp.abs(m.now.a))
    moving = jnp.where(rests[:, None], jnp.zeros_like(slip), FAST * scale * unit(slip, mode.direction))
    b = m.now.a + jnp.concatenate([jnp.zeros_like(moving[:, :1]), moving], 1).reshape(-1)
    less = jnp.where(jnp.any(event[:, SLIP]), LESS, 10 * Tolerances.of(v.dtype).force)
    friction = contacts.friction * (1 - less).astype(v.dtype)
    return Choice(can, rests, Law(jnp.stack([b, b], 1), friction, can, scale))


def next_mode(chosen: Choice, mode: Mode, m: Motion, x: Array) -> Mode:
    """The mode in which a state moves on, from the forces x (3 n,) that the law of contact asks for."""
    a = m.now.a + sm.matvec(m.now.G, x)
    enough = 10 * Tolerances.of(x.dtype).force * chosen.law.scale
    closed = chosen.can & (a[::3] <= enough)
    slips = length(tangents(a)) > enough
    direction = unit(jnp.where(chosen.rests[:, None], tangents(a), tangents(m.now.u)), mode.direction)
    return Mode(closed, closed & (slips | ~chosen.rests), direction, jnp.where(_rows(closed, closed), x, 0 * x))


def touching(now: Instant) -> Array:
    """(n,) bool, contacts without a gap."""
    return now.gap <= Tolerances.of(now.gap.dtype).gap
