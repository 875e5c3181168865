"""One step of a tree with rigid contacts: the scheme of Moreau and Jean, with Newton's restitution and Coulomb's cones.

    q_m = q + h/2 v                            half a step with the old velocity
    v_free = v + h vdot(q_m, v, tau)           without contacts; joint damping is implicit
    x                                          impulses at the contacts, `cone_solver.py`
    v' = v_free + M^-1 J^T x                   velocities jump as a whole
    q' = q_m + h/2 v' + dq                     half a step with the new velocity, out of the ground

A contact that is open at q_m may close by the end of the step, u_n >= -gap / (h/2), but go no further; a closed one
must not approach, u_n >= 0, or, with restitution e, leaves with u_n >= -e u_n(v). dq >= 0 along the normals removes
what is left of penetration at the end, by the same Delassus operator, without velocity. Rotations move by so3.exp and
free bodies by the velocity of their origin in the world: steps on SO(3) x R^3, on which free flight is exact but for
the gyroscopic terms. Falling keeps the energy to round-off, and so does a bounce with e = 1. The impulses never add
energy: where Newton's law would (several contacts with friction), they are taken back towards those without
restitution.

Source: J. J. Moreau, Numerical aspects of the sweeping process (1999), for the scheme; the convex combination is ours.
"""

import math
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from lgjax.contact.cone_solver import ConeProblem, solve_cones, times
from lgjax.contact.contacts import Contacts
from lgjax.contact.detection import ContactPoints, detect, sides
from lgjax.contact.responses import FactoredDynamics, Ways, delassus, impulses, response, total, twists, ways
from lgjax.dynamics.spatial import applied_wrenches
from lgjax.execution._jax import call_apart
from lgjax.execution.call import batch_behind
from lgjax.groups import so3
from lgjax.groups.se3 import Pose
from lgjax.multibody.configuration import Configuration, join_velocity, split_velocity
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm

Array = jax.Array

STANDARD_GRAVITY = 9.81  # m/s^2: at the smoothing radius a contact carries the weight of what it moves


class Settings(NamedTuple):
    """Static numbers of `TimeStepping`."""

    tolerance: float
    max_sweeps: int
    execution: Any = "scalarized"


class Impact(NamedTuple):
    """What a step does to a tree at q_m: velocity after it (nv,), displacement out of the ground (nv,), impulses (n, 3)
    in the contact frames, N s, slip velocities (n, 3) there, gaps (n,) at q_m, residual () m/s of the law and sweeps.
    """

    v: Array
    lift: Array
    impulse: Array
    velocity: Array
    gap: Array
    residual: Array
    sweeps: Array


def move(model: Model, q: Configuration, v: Array, displacement: Array) -> tuple[Configuration, Array]:
    """Configuration moved by a displacement (nv,), body frame, on SO(3) x R^3, and the velocity v (nv,) seen there.

    The velocity of the origin of a free body stays the same in the world, its angular one in the body.
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
    """The velocities after a step of h that has reached q half way, and everything about its contacts."""
    step = batch_behind(partial(_impact, settings), settings.execution)
    return step(model, contacts, q, v, tau, wrenches, h, smoothing, guess)


def _impact(settings: Settings, model: Model, contacts: Contacts, q, v, tau, wrenches, h, smoothing, guess) -> Impact:
    applied = None if wrenches is None else applied_wrenches(model.links, wrenches)
    armature = model.armature + h * model.damping
    free = FactoredDynamics(model, q, v, tau, applied, armature, settings.execution)
    v_free = v + h * _without_turning(model, v, free.vdot)
    points = detect(contacts, model, free.poses, free.origin)
    laws = contacts.friction, contacts.restitution, h, smoothing
    start = guess, guess, jnp.zeros_like(points.gap)
    acting = Acting.of(contacts, model)
    found = _coupled(settings, acting, (free.columns, v, v_free, points, laws), start)
    dv, dq = free.respond(found.y)
    return Impact(v_free + dv, dq, found.impulse, found.velocity, points.gap, found.residual, found.sweeps)


class Coupled(NamedTuple):
    """What all contacts do together: y (nv, 2) of impulses and displacements, impulses (n, 3), velocities (n, 3) after
    them, residual and sweeps, and the solutions: impulses (n, 3) without and with restitution, displacements (n,).
    """

    y: Array
    impulse: Array
    velocity: Array
    residual: Array
    sweeps: Array
    guesses: Any


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _coupled(settings: Settings, acting: "Acting", data, start) -> Coupled:
    return _together(settings, acting)(data, start)


@_coupled.defjvp
def _(settings, acting, primals, tangents):
    """The same operations, with the solutions that are known: no iteration is differentiated, or done again."""
    found = _coupled(settings, acting, *primals)
    known = settings._replace(max_sweeps=0)
    single = lambda data: _alone(known, acting, data, jax.lax.stop_gradient(found.guesses))
    return found, jax.jvp(single, (primals[0],), (tangents[0],))[1]


def _alone(settings: Settings, acting: "Acting", data, start) -> Coupled:
    """For one system: a batch of one."""
    data, start = jax.tree.map(lambda x: x[..., None], (data, start))
    return jax.tree.map(lambda x: x[..., 0], _contact_problem(settings, acting, data, start))


def _together(settings: Settings, acting: "Acting"):
    """The function of (data, start) that puts the batch last, however many times `jax.vmap` is applied to it."""

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


class Acting(NamedTuple):
    """Which contacts act on which bodies, static. ways: of those bodies. sides: for each the (contact, sign)."""

    ways: Ways
    sides: tuple[tuple[tuple[int, int], ...], ...]

    @classmethod
    def of(cls, contacts: Contacts, model: Model) -> "Acting":
        on: dict[int, list] = {}
        for bodies, sign in zip(sides(contacts, model), (1, -1), strict=True):
            for contact, body in enumerate(bodies.tolist()):
                if body >= 0:
                    on.setdefault(body, []).append((contact, sign))
        return cls(ways(model.tree, tuple(on)), tuple(map(tuple, on.values())))

    def wrenches(self, points: ContactPoints) -> list[Array]:
        """(3 k, 6, B) for each body: unit forces along the frames of its contacts."""
        point, frame = points.point[:, None], points.frame
        lever = lambda i, j: point[:, :, i] * frame[:, :, j] - point[:, :, j] * frame[:, :, i]
        moment = jnp.stack([lever(1, 2), lever(2, 0), lever(0, 1)], 2)
        P = jnp.concatenate([moment, frame], 2)
        return [jnp.concatenate([P[c] if sign > 0 else -P[c] for c, sign in own]) for own in self.sides]

    def rates(self, wrenches: list[Array], twists: list[Array]) -> Array:
        """Velocities (3 n, B) of the contacts in their frames."""
        each = [total(P[:, c] * V[c] for c in range(6)) for P, V in zip(wrenches, twists, strict=True)]
        return self.gathered(jnp.concatenate(each))

    def gathered(self, rows: Array) -> Array:
        """Rows (3 n, ...) of the contacts from those of the bodies, one body after the other; the sums of a pair's."""
        order = [contact for own in self.sides for contact, _ in own]
        if order == sorted(set(order)):
            return rows
        lanes: dict[int, list[int]] = {}
        for lane, contact in enumerate(order):
            lanes.setdefault(contact, []).append(lane)
        of = lambda lane: rows[3 * lane : 3 * lane + 3]
        return jnp.concatenate([total(of(lane) for lane in some) for _, some in sorted(lanes.items())])

    def spread(self, forces: Array) -> list[Array]:
        """Forces (3 k, B) on each body from those of the contacts (3 n, B)."""
        return [jnp.concatenate([forces[3 * c : 3 * c + 3] for c, _ in own]) for own in self.sides]


def _without_turning(model: Model, v, vdot):
    """Accelerations whose free bodies have d/dt of the velocity in the world: those in the body turn with it."""
    frees, _, _ = split_velocity(model.tree, v)
    rates, joints, balls = split_velocity(model.tree, vdot)
    rates = sm.join(rates[:, :3], rates[:, 3:] + sm.cross(frees[:, :3], frees[:, 3:]))
    return join_velocity(model.tree, rates, joints, balls)


# ---- all contacts of a batch of systems: arrays with the batch behind all other axes
def _contact_problem(settings: Settings, acting: Acting, data, start) -> Coupled:
    columns, v, v_free, points, (friction, restitution, h, smoothing) = data
    n, nv = len(points.gap), len(v)
    P = call_apart(acting.wrenches)(points)
    moving = lambda v: call_apart(lambda columns, v: twists(columns, acting.ways, v))(columns, v)
    rates = lambda v: call_apart(acting.rates)(P, moving(v))
    y = impulses(columns, acting.ways, P)
    G = delassus(columns, acting.ways, y)
    G = acting.gathered(jnp.swapaxes(acting.gathered(G), 0, 1))
    u = rates(v_free)
    fastest = reduce(jnp.maximum, jnp.abs(u))
    none, opens = jnp.zeros_like(points.gap), -2 / h * jnp.maximum(points.gap, jnp.zeros_like(points.gap))
    barrier = jnp.broadcast_to(2 * STANDARD_GRAVITY * smoothing, none.shape)

    def solve(allowed, guess, active):
        b = call_apart(_shifted)(u, allowed)
        problem = ConeProblem(G, b, friction, none[:0], none[:0], barrier)
        return solve_cones(problem, guess.reshape(3 * n, -1), active, fastest, settings.tolerance, settings.max_sweeps)

    found = solve(opens, start[0], jnp.ones(h.shape, bool))
    plain = x = further = found.x
    residual, sweeps = found.residual, found.sweeps
    if restitution is not None:
        bounces, allowed = _rebound(rates(v).reshape(n, 3, -1)[:, 0], u[::3], opens, points.gap, restitution, h)
        again = solve(allowed, start[1] if not settings.max_sweeps else plain, bounces)
        further = jnp.where(bounces, again.x, x)
        change = further - x
        x = x + _part(G, u, x, change) * change
        residual, sweeps = jnp.maximum(residual, again.residual), sweeps + again.sweeps
    after = u + call_apart(times)(G, x)
    lift, left = _lift(settings, G, points.gap + 0.5 * h * after[::3], start[2])
    pushed = jnp.stack([lift, none, none], 1).reshape(3 * n, -1)
    answer = call_apart(lambda y, f: response(acting.ways, y, f, nv))
    both = [answer(y, acting.spread(f)) for f in (x, pushed)]
    cube = lambda x: x.reshape(n, 3, -1)
    residual = jnp.maximum(residual, left / h)
    return Coupled(jnp.stack(both, 1), cube(x), cube(after), residual, sweeps, (cube(plain), cube(further), lift))


def _shifted(u, allowed):
    """Velocities less those that normals are allowed."""
    return u - jnp.stack([allowed, *jnp.zeros((2, *allowed.shape), u.dtype)], 1).reshape(u.shape)


def _rebound(before, u, opens, gap, restitution, h) -> tuple[Array, Array]:
    """Whether any contact bounces (B,), and the least normal velocities (n, B) that restitution demands."""
    closing = (gap + 0.5 * h * u < 0) & (before < 0)
    demanded = -restitution * before
    bounces = reduce(jnp.logical_or, closing & (demanded > 0))
    return jax.lax.stop_gradient(bounces), jnp.where(closing, jnp.maximum(demanded, opens), opens)


def _part(G, u, x, step) -> Array:
    """The largest part s (B,) of a step of the impulses, at most 1, after which they add no energy.

    The energy that impulses add is x·(u + G x / 2), convex, and not positive at s = 0.
    """
    dot = lambda a, b: total(a * b)
    bend, pull = call_apart(times)(G, step), call_apart(times)(G, x)
    start = jnp.minimum(dot(x, u + 0.5 * pull), 0)
    slope, curve = dot(step, u + pull), 0.5 * dot(step, bend)
    gains = (start + slope + curve > 0) & (curve > 0)
    one = jnp.ones_like(curve)
    root = jnp.sqrt(jnp.where(gains, slope * slope - 4 * curve * start, one))
    return jnp.where(gains, jnp.clip((root - slope) / jnp.where(gains, 2 * curve, one), 0 * one, one), one)


def _lift(settings: Settings, G, gap, guess) -> tuple[Array, Array]:
    """Displacement impulses (n, B) along the normals that leave no gap negative, and what remains (B,), m."""
    none = jnp.zeros_like(gap)
    problem = ConeProblem(G[::3, ::3], gap, none[:0], none, jnp.full_like(gap, jnp.inf), none[:0])
    deepest = -reduce(jnp.minimum, gap)
    inside = jax.lax.stop_gradient(deepest > 0)
    found = solve_cones(problem, guess, inside, deepest, settings.tolerance, settings.max_sweeps)
    return jnp.where(inside, found.x, none), found.residual
