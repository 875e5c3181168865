"""A step as the equations that its impulses solve; its derivatives are those of the implicit function.

With d, the change of velocity by all forces and by the impulses x, and with the displacement dq by impulses l:

    h (ID(q_m, w, d / h) - tau) = J^T x        momentum, from inverse dynamics
    x = F(x, J v'),  v' = v + h turning + d    the law, the natural map F of `cones/law.py`
    M dq = J^T l,  l = F(l, gap + J dq)        out of the ground

Loops and implicit forces let through a part of d and dq, see `bilateral.py`. Derivatives do not repeat the search for x
and l, nor do they pass through the articulated-body algorithm: its factors of M and Delassus' matrix are constants, by
which the linear equations of the derivatives are solved. Read first: `step.py`, and `coupled.py`, which finds the
solution.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact.bilateral import Bilateral
from lgjax.contact.bounded import Chosen
from lgjax.contact.cones.algebra import diagonal, solve
from lgjax.contact.cones.law import ConeProblem, image, largest_part, step_of_rows
from lgjax.contact.cones.newton import linearized, slope_at
from lgjax.contact.contacts import Contacts
from lgjax.contact.coupled import (
    Law,
    Solutions,
    barrier_of,
    dense_rows,
    in_blocks,
    joint_impulses,
    lift_problem,
    matrix_of,
    normals_of,
)
from lgjax.contact.demands import excess, joint_bounds, open_gap, rebound, shifted, spread
from lgjax.contact.geometry.detection import ContactPoints, detect
from lgjax.contact.responses import FactoredDynamics
from lgjax.contact.rows import Acting, joint_rows
from lgjax.dynamics.inverse import newton_euler
from lgjax.dynamics.kinematics import world_kinematics
from lgjax.dynamics.mass_solve import at_rest, mass_times
from lgjax.dynamics.spatial import Wrench
from lgjax.multibody.configuration import Configuration, join_velocity, split_velocity
from lgjax.multibody.model import Model
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.implicit import known_root

Array = jax.Array
Map = Callable[[Array], Array]


class Middle(NamedTuple):
    """A step at q, its middle. v: (nv,) before it. mean: (nv,) mean velocity of free flight. tau: (nv,).

    applied: wrenches in joint frames, or None. h: s. held: the rows of loops and implicit forces, or None.
    """

    model: Model
    contacts: Contacts
    q: Configuration
    v: Array
    mean: Array
    tau: Array
    applied: Wrench | None
    h: Array
    held: Bilateral | None

    def hold(self, v: Array) -> Array:
        """A velocity (nv,) after the impulses of loops and implicit forces."""
        return v if self.held is None else self.held.held(v)

    def allow(self, change: Array) -> Array:
        """The part of a change of velocity (nv,) that they let through."""
        return change if self.held is None else self.held.allowed(change)

    def coasting(self) -> Array:
        """The velocity (nv,) after the step without forces."""
        return self.v + self.h * without_turning(self.model, self.mean, jnp.zeros_like(self.v))

    def matrix(self, rows, contacts: int) -> Array:
        """Delassus' matrix of some rows."""
        return matrix_of(rows, None if self.held is None else (self.held.answers, self.held.inverse), contacts)

    def factored(self, from_rest: bool = False) -> FactoredDynamics:
        armature = self.model.armature
        return FactoredDynamics(self.model, self.q, self.mean, self.tau, self.applied, armature, from_rest)


class Bounced(NamedTuple):
    """Changes of velocity (nv,) that restitution needs: d with it, d without impulses, and that at rest."""

    change: Array
    free: Array
    rest: Array


class Known(NamedTuple):
    """What the search has found.

    solutions: of the contacts and joints that act. change: (nv,) d without restitution. lifted: (nv,) dq. bounced: None
    without restitution. chosen: the contacts that act, None where all do.
    """

    solutions: Solutions
    change: Array
    lifted: Array
    bounced: Bounced | None
    chosen: Chosen | None


class Outcome(NamedTuple):
    """What a step does. after, lift: (nv,), velocities and displacements. points: of all candidates. S: (nv, 6) joint
    motions in world axes. The others are those of `Coupled`.
    """

    after: Array
    lift: Array
    points: ContactPoints
    S: Array
    impulse: Array
    velocity: Array
    joint_impulse: Array
    excess: Array


def without_turning(model: Model, v, vdot):
    """Accelerations in which free bodies have the derivative of the world velocity of their origin, in body axes.

    The derivative of its components in the body frame lacks w x v, because these axes turn with the body.
    """
    frees, _, _ = split_velocity(model.tree, v)
    rates, joints, balls = split_velocity(model.tree, vdot)
    rates = sm.join(rates[:, :3], rates[:, 3:] + sm.cross(frees[:, :3], frees[:, 3:]))
    return join_velocity(model.tree, rates, joints, balls)


def at_solution(acting: Acting, known: Known, middle: Middle) -> Outcome:
    """The outcome with its derivatives, from what the search has found."""
    return _Equations(acting, known, middle).outcome()


class _Equations:
    """The equations at a known solution."""

    def __init__(self, acting: Acting, known: Known, middle: Middle):
        model, contacts, q, *_, h, held = middle
        world = world_kinematics(model, q)
        self.known, self.middle, self.S, self.coasting = known, middle, world.S, middle.coasting()
        self.candidates = detect(contacts, model, world.poses, world.origin)._replace(status=None)
        joints = joint_rows(contacts, model, q, h)
        law = Law(contacts.friction, contacts.restitution, h, contacts.smoothing)
        given, fixed = (self.candidates, joints, law), jax.lax.stop_gradient(middle)
        dynamics = fixed.factored()
        rows = partial(dense_rows, acting, chosen=known.chosen)
        still = rows(dynamics.columns, *jax.lax.stop_gradient(given))[1]
        self.acting, self.rows, points, self.law = rows(dynamics.columns._replace(S=world.S), *given)
        self.G, self.count = fixed.matrix(still, len(points.gap)), len(points.gap)
        # With a barrier, the solution depends on the diagonal of G.
        smooth = law.smoothing is not None
        sizes = diagonal(middle.matrix(rows(middle.factored().columns, *given)[1], self.count)) if smooth else None
        self.bounds = self.law.friction, *joint_bounds(joints), barrier_of(self.law, self.rows, self.G), None, sizes
        self.gap = jnp.concatenate([points.gap, joints.gap])
        self.opens = -2 / h * open_gap(self.gap, points, in_blocks(acting, held))
        self.normals = normals_of(self.count, self.acting.limited)
        self.push = _transposed(self.rows.rates, middle.v)
        response = lambda x: dynamics.respond(still.response(x))[0]
        self.linear = _Linear(dynamics.solve, still.rates, response, fixed.allow)

    def outcome(self) -> Outcome:
        h, n, known = self.middle.h, self.count, self.known
        x, change = self.balanced(self.opens, known.solutions.plain, known.change)
        after, u, before = self.velocity(change), None, None
        if known.bounced is not None:
            x, after, u, before = self.bouncing(known.bounced, x, after)
        at_rows = self.rows.rates(after)
        lift, pushed = self.lifted(self.gap + 0.5 * h * at_rows[self.normals])
        gained = jnp.zeros_like(h)[None]
        if u is not None:
            gained = excess(self.acting.islands, u, before, at_rows, x, pushed, h)
        impulse, velocity = (f[: 3 * n].reshape(n, 3) for f in (x, at_rows))
        if known.chosen is not None:
            impulse = known.chosen.among_all(impulse, len(self.candidates.gap))
            velocity = jnp.zeros_like(impulse)
        at_joints = joint_impulses(self.acting, self.rows, x[3 * n :], after)
        return Outcome(after, lift, self.candidates, self.S, impulse, velocity, at_joints, gained)

    def velocity(self, change: Array) -> Array:
        """The velocity (nv,) at the end of the step."""
        return self.middle.hold(self.coasting + change)

    def momentum(self, mean: Array, change: Array) -> Array:
        """h (ID(q, mean, change / h) - tau)."""
        m = self.middle
        return m.h * (newton_euler(m.model, m.q, mean, change / m.h, m.applied) - m.tau)

    def balanced(self, allowed: Array, x: Array, change: Array) -> tuple[Array, Array]:
        """Impulses and change of velocity, where normals and limits may have the velocities `allowed`, but no less."""
        problem = ConeProblem(self.G, x, *self.bounds)
        seen = lambda d: shifted(self.count, self.rows.rates(self.velocity(d)), allowed)
        lacking = lambda x, d: self.momentum(self.middle.mean, d) - self.push(x)
        return _balanced(problem, seen, lacking, self.linear, x, change)

    def bouncing(self, known: Bounced, x: Array, after: Array) -> tuple[Array, Array, Array, Array]:
        """Impulses and velocities with restitution, from those without, and the rows' velocities u and `before`."""
        n, h, law = self.count, self.middle.h, self.law
        free = _implied(partial(self.momentum, self.middle.mean), self.linear, known.free)
        rest = _implied(partial(self.momentum, jnp.zeros_like(free)), self.linear, known.rest)
        u, before = (self.rows.rates(self.velocity(d)) for d in (free, free - rest))
        opens, gap, normal = self.opens, self.gap[:n], slice(0, 3 * n, 3)
        bounces, allowed = rebound(before[normal], u[normal], opens[:n], gap, law.restitution, h)
        allowed = jnp.concatenate([allowed, opens[n:]])
        assert self.known.solutions.bouncing is not None
        further, change = self.balanced(allowed, self.known.solutions.bouncing, known.change)
        step = jnp.where(bounces, further - x, jnp.zeros_like(x))
        more = jnp.where(bounces, self.velocity(change) - after, jnp.zeros_like(after))
        pull, bend = self.rows.rates(after) - u, self.rows.rates(more)
        islands = [own for own, _ in self.acting.islands]
        part = largest_part(0.5 * (u + before), x, step, pull, bend, islands)
        return x + part * step, after + _of_velocities(self.acting, part, after) * more, u, before

    def lifted(self, left_open: Array) -> tuple[Array, Array]:
        """Displacements (nv,) out of the ground, and their impulses at all rows, where normals would leave a gap."""
        none, lift, m = jnp.zeros_like(self.middle.v), self.known.solutions.lift, self.middle
        if not len(left_open):
            return none, jnp.zeros_like(self.known.solutions.plain)
        own = self.normals
        at_all = lambda x: spread(own, x, self.known.solutions.plain)
        lacking = lambda x, d: mass_times(at_rest(m.model), m.q, d) - self.push(at_all(x))
        seen = lambda d: left_open + self.rows.rates(m.allow(d))[own]
        problem = lift_problem(self.G[own][:, own], left_open)
        lift, change = _balanced(problem, seen, lacking, self.linear.of(own, len(self.G)), lift, self.known.lifted)
        inside = jnp.min(left_open) < 0
        change, lift = jnp.where(inside, m.allow(change), none), jnp.where(inside, lift, jnp.zeros_like(lift))
        return change, at_all(lift)


class _Linear(NamedTuple):
    """What the equations are to first order, constants.

    solve: M^-1 f. rates: J v. response: M^-1 J^T x. allow: A d, the part of d that loops and implicit forces let
    through; A M^-1 is symmetric.
    """

    solve: Map
    rates: Map
    response: Map
    allow: Map

    def of(self, rows: np.ndarray, count: int) -> "_Linear":
        """The same for some of the rows, of `count`."""
        response = lambda x: self.response(spread(rows, x, jnp.zeros(count, x.dtype)))
        return self._replace(rates=lambda v: self.rates(v)[rows], response=response)


def _balanced(p: ConeProblem, seen: Map, lacking: Callable, linear: _Linear, x: Array, d: Array) -> tuple[Array, Array]:
    """The solution (x, d) of x = F(x, seen(d)) and lacking(x, d) = 0, which it is already, with its derivatives.

    With P, the derivative of the projection in F, s, its steps, and A, what loops let through, the solution of

        dx - P (dx - s J A dd) = r,  M dd - J^T dx = f    is    L dx = r - P s J A M^-1 f,  dd = M^-1 (f + J^T dx)

    with L = 1 - P (1 - s G), and that of the transposed equations is read off in the same way.
    """
    n, still = len(x), jax.lax.stop_gradient(p)  # of which the linear equations are made
    steps = step_of_rows(still.G, len(still.friction))
    slope = slope_at(still, x - steps * jax.lax.stop_gradient(seen(d)))
    matrix = linearized(still.G, steps, slope)

    def residual(z: Array) -> Array:
        x, d = z[:n], z[n:]
        return jnp.concatenate([x - image(p, x, seen(d)), lacking(x, d)])

    def forward(y: Array) -> Array:
        free = linear.solve(y[n:])
        dx = solve(matrix, y[:n] - slope.times(steps * linear.rates(linear.allow(free))))
        return jnp.concatenate([dx, free + linear.response(dx)])

    def transposed(y: Array) -> Array:
        free = linear.solve(y[n:])
        dx = solve(matrix.T, y[:n] + linear.rates(free))
        return jnp.concatenate([dx, free - linear.allow(linear.response(steps * slope.transposed(dx)))])

    z = known_root(residual, jnp.concatenate([x, d]), forward, transposed)
    return z[:n], z[n:]


def _implied(lacking: Map, linear: _Linear, d: Array) -> Array:
    """The solution of lacking(d) = 0, whose derivative is M, with its derivatives; d is the solution already."""
    return known_root(lacking, d, linear.solve, linear.solve)


def _transposed(linear: Map, like: Array) -> Map:
    shape = jax.ShapeDtypeStruct(like.shape, like.dtype)
    return lambda x: jax.linear_transpose(linear, shape)(x)[0]


def _of_velocities(acting: Acting, part: Array, like: Array) -> Array:
    """For velocities (nv,) what `part` says of rows: one number, or one for each row of their island."""
    if not jnp.ndim(part):
        return part
    parts = [jnp.ones_like(like[0])] * len(like)
    for rows, moved in acting.islands:
        parts = [part[rows[0]] if rows and i in moved else own for i, own in enumerate(parts)]
    return jnp.stack(parts)
