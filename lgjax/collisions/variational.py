"""The Lie group variational integrator of one rigid body: symplectic, momentum preserving, of order 2.

The discrete Lagrangian is that of the trapezoidal rule with velocities (x₁ - x₀)/h and (F - I)/h, F = R₀ᵀ R₁.  All a
step has to solve is one equation for the rotation F, the same for both of its coordinates here.
Source: [tran2024] section 5.1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.execution.compiled import compiled
from lgjax.groups import so3
from lgjax.groups.arguments import Fields, Record, takes
from lgjax.groups.se3 import Pose
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.implicit import by_columns, implicit
from lgjax.numerics.loops import iterate_while
from lgjax.numerics.small_angle import stumpff, stumpff_rate

Array = jax.Array

MAX_ITERATIONS = 30


class RigidState(NamedTuple):
    """Pose and momenta of one rigid body.

    pose      Pose of the body frame, whose origin is the center of mass, in the world.
    angular   (3,) angular momentum about the center of mass, body frame, kg m²/s.
    linear    (3,) linear momentum, world frame, kg m/s.
    """

    pose: Pose
    angular: Array
    linear: Array


@partial(jax.tree_util.register_dataclass, data_fields=("mass", "inertia", "gravity"), meta_fields=("potential",))
@dataclass(frozen=True)
class RigidBody:
    """One rigid body and the potential that it moves in.

    mass       (), kg.
    inertia    (3, 3) about the center of mass, body frame, kg m².
    gravity    (3,), world frame, m/s².
    potential  further potential energy, pose -> joules, or None; differentiated by JAX.  A function that is static: two
               that are not the same object compile twice.
    Arrays may be traced, batched and differentiated.  `rigid_body` makes one of plain numbers and checks them.
    """

    mass: Array
    inertia: Array
    gravity: Array
    potential: Callable[[Pose], Array] | None = None


# Forms of arguments.
POSE = Fields(Pose, ((3, 3), (3,)))
STATE = Fields(RigidState, (POSE, (3,), (3,)))
BODY = Record(RigidBody, (("mass", ()), ("inertia", (3, 3)), ("gravity", (3,))))


def rigid_body(
    mass: Any,
    inertia: Any,
    gravity: Any = (0.0, 0.0, -9.81),
    potential: Callable[[Pose], Array] | None = None,
    dtype: Any = None,
) -> RigidBody:
    """A `RigidBody` of numbers or arrays; inertia (3,) is the diagonal of the matrix.

    Values that are not traced are checked: raises ValueError for a wrong shape, a mass that is not positive, an inertia
    that is not symmetric and positive definite or breaks the triangle inequality, and anything that is not finite.
    """
    dtype = jnp.result_type(float) if dtype is None else jnp.dtype(dtype)
    m = checks.positive("mass", checks.array("mass", mass, (), dtype))
    g = checks.array("gravity", gravity, (3,), dtype, exact=True)
    j = checks.floats("inertia", inertia, (3, 3), dtype)
    j = checks.array("inertia", j, (3,) if j.ndim == 1 else (3, 3), dtype, exact=True)
    j = checks.inertia("inertia", sm.diagonal(j) if j.ndim == 1 else j)
    return RigidBody(m, j, g, potential)


def rigid_state(
    position: Any,
    linear_momentum: Any = (0.0, 0.0, 0.0),
    angular_momentum: Any = (0.0, 0.0, 0.0),
    rotation: Any = None,
    dtype: Any = None,
) -> RigidState:
    """A `RigidState` of numbers: position and linear momentum in the world, angular momentum in the body frame.

    Values that are not traced are checked: raises ValueError for a shape that is not (3,), or (3, 3) for the rotation,
    for values that are not finite, and for a matrix that is not a rotation.
    """
    dtype = jnp.result_type(float) if dtype is None else jnp.dtype(dtype)
    vector = lambda name, value: checks.array(name, value, (3,), dtype, exact=True)
    x = vector("position", position)
    linear, angular = vector("linear_momentum", linear_momentum), vector("angular_momentum", angular_momentum)
    turn = so3.identity(dtype) if rotation is None else jnp.asarray(rotation, dtype)
    turn = checks.rotation("rotation", checks.array("rotation", turn, (3, 3), dtype, exact=True))
    return RigidState(Pose(turn, x), angular, linear)


@compiled
@takes(body=BODY, pose=POSE)
def potential_energy(body: RigidBody, pose: Pose) -> Array:
    """Energy () of gravity and of the body's own potential, joules; zero at the world's origin for gravity."""
    gravity = -body.mass * sm.dot(body.gravity, pose.translation)
    return gravity if body.potential is None else gravity + body.potential(pose)


@compiled
@takes(body=BODY, state=STATE)
def kinetic_energy(body: RigidBody, state: RigidState) -> Array:
    """½ Π·J⁻¹Π + |γ|²/(2m), joules."""
    spin = sm.dot(state.angular, sm.solve3(body.inertia, state.angular))
    return 0.5 * (spin + sm.dot(state.linear, state.linear) / body.mass)


@compiled
@takes(body=BODY, state=STATE)
def total_energy(body: RigidBody, state: RigidState) -> Array:
    """The Hamiltonian (), joules."""
    return kinetic_energy(body, state) + potential_energy(body, state.pose)


def forces(body: RigidBody, pose: Pose) -> tuple[Array, Array]:
    """Moment (3,) in the body frame about the center of mass and force (3,) in the world frame of all potentials."""
    force = body.mass * body.gravity
    if body.potential is None:
        return jnp.zeros_like(force), force
    potential = body.potential

    def displaced(turn: Array, shift: Array) -> Array:
        return potential(Pose(so3.compose(pose.rotation, so3.exp(turn)), pose.translation + shift))

    zero = jnp.zeros_like(force)
    along_turn, along_shift = jax.grad(displaced, (0, 1))(zero, zero)
    return -along_turn, force - along_shift


class Chart(NamedTuple):
    """Coordinates of the rotation F of a step, and value and derivative of the equation that it satisfies.

    increment(z)        F - I (3, 3).  Added to what it turns, it leaves the round-off of a small change, where F would
                        leave that of the whole, at every step alike.
    equation(J, z, a)   (3,) zero where F J_d - J_d Fᵀ = hat(a), J_d = tr(J)/2 - J, and its (3, 3) derivative with
                        respect to z.
    """

    increment: Callable[[Array], Array]
    equation: Callable[[Array, Array, Array], tuple[Array, Array]]


def _increment(z: Array, first: Array, second: Array) -> Array:
    """first hat(z) + second hat(z)²."""
    square = sm.outer(z, z) - sm.dot(z, z) * sm.identity(3, z.dtype)
    return first * sm.hat(z) + second * square


def _exponential_increment(z: Array) -> Array:
    s = sm.dot(z, z)
    return _increment(z, stumpff(1, s), stumpff(2, s))


def _cayley_increment(z: Array) -> Array:
    second = 2.0 / (4.0 + sm.dot(z, z))
    return _increment(z, 2.0 * second, second)


def _exponential_equation(inertia: Array, z: Array, a: Array) -> tuple[Array, Array]:
    s = sm.dot(z, z)
    momentum = sm.matvec(inertia, z)
    gyroscopic = sm.cross(z, momentum)
    c1, c2 = stumpff(1, s), stumpff(2, s)
    value = c1 * momentum + c2 * gyroscopic - a
    rate = stumpff_rate(1, s) * momentum + stumpff_rate(2, s) * gyroscopic
    skew = sm.matmul(sm.hat(z), inertia) - sm.hat(momentum)
    return value, c1 * inertia + c2 * skew + sm.outer(rate, z)


def _cayley_equation(inertia: Array, z: Array, a: Array) -> tuple[Array, Array]:
    momentum = sm.matvec(inertia, z)
    value = momentum + 0.5 * sm.cross(z, momentum) - (1.0 + 0.25 * sm.dot(z, z)) * a
    skew = sm.matmul(sm.hat(z), inertia) - sm.hat(momentum)
    return value, inertia + 0.5 * (skew - sm.outer(a, z))


CHARTS = {
    "cayley": Chart(_cayley_increment, _cayley_equation),
    "exp": Chart(_exponential_increment, _exponential_equation),
}


def solve_rotation(inertia: Array, a: Array, chart: str = "cayley") -> tuple[Array, Array]:
    """The coordinates z (3,) of the F in SO(3) next to I with F J_d - J_d Fᵀ = hat(a), and whether they were found.

    Newton's method to round-off in at most 30 iterations; there is no solution when a step turns the body too far.
    Derivatives are those of the implicit function: see `numerics/implicit.py`.  The charts give the same F:
    "cayley" solves a quadratic equation, without a sine.  Source: [tran2024] Table 1, third row of F̃.
    """
    equation = CHARTS[checks.choice("chart", chart, tuple(CHARTS))].equation
    done = 0.1 * float(jnp.finfo(a.dtype).eps) ** 0.5  # an iteration this short leaves an error of round-off

    def find(guess: Array) -> tuple[Array, tuple]:
        def unfinished(carry: Any) -> Array:
            z, change, i = carry
            return (change > done * jnp.max(jnp.abs(z))) & (i < MAX_ITERATIONS)

        def iterate(carry: Any) -> Any:
            z, _, i = carry
            value, slope = equation(inertia, z, a)
            step = sm.solve3(slope, value)
            return z - step, jnp.max(jnp.abs(step)), i + 1

        start = (guess, jnp.full((), jnp.inf, a.dtype), jnp.zeros((), jnp.int32))
        return iterate_while(unfinished, iterate, start)[0], ()

    root, _ = implicit(lambda z: equation(inertia, z, a)[0], find, sm.solve3(inertia, a), by_columns(sm.inv3))
    error = jnp.max(jnp.abs(equation(inertia, root, a)[0]))
    # The Cayley equation is multiplied by 1 + |z|²/4; coordinates that have run away must not excuse an error.
    scale = jnp.max(jnp.abs(a)) * (1.0 + jnp.minimum(sm.dot(root, root), 40.0))
    # Below `least` products with the inertia underflow: no digit of so small a momentum is kept, and none is needed.
    eps, least = float(jnp.finfo(a.dtype).eps), float(jnp.finfo(a.dtype).tiny) / float(jnp.finfo(a.dtype).eps)
    return root, error <= 100.0 * eps * scale + least


class Increment(NamedTuple):
    """Increment of a pose in a step: F - I (3, 3), F = R₀ᵀ R₁, and x₁ - x₀ (3,), m.

    Two poses that are close lose the digits of their difference; a step that finds the difference keeps them.
    """

    turn: Array
    shift: Array


def between(start: Pose, end: Pose) -> Increment:
    """The increment from one pose to another."""
    turn = so3.compose(so3.inverse(start.rotation), end.rotation)
    return Increment(turn - sm.identity(3, turn.dtype), end.translation - start.translation)


def advance(pose: Pose, increment: Increment) -> Pose:
    """The pose at the end of an increment."""
    rotation = pose.rotation + sm.matmul(pose.rotation, increment.turn)
    return Pose(rotation, pose.translation + increment.shift)


@compiled
@takes(True, body=BODY, state=STATE, h=())
def variational_step(body: RigidBody, state: RigidState, h: Array, chart: str = "cayley") -> tuple[RigidState, Array]:
    """One step of size h in Hamiltonian form, and whether its rotation was found; h may be zero or negative.

    Keeps the momentum map of every symmetry of the potential to round-off, is time-reversible, and is exact for the
    translation in uniform gravity.  Source: [tran2024] eqs. (45), (46), with a half kick of the moment at both ends.
    """
    moment, force = forces(body, state.pose)
    kicked, increment, found = _depart(body, state, moment, force, h, chart)
    half = 0.5 * h
    pose = advance(state.pose, increment)
    moment_after, force_after = (moment, force) if body.potential is None else forces(body, pose)
    angular = kicked + (sm.tmatvec(increment.turn, kicked) + half * moment_after)
    return RigidState(pose, angular, state.linear + half * (force + force_after)), found


def _depart(
    body: RigidBody, state: RigidState, moment: Array, force: Array, h: Array, chart: str
) -> tuple[Array, Increment, Array]:
    """The angular momentum after the half kick, the increment of a step, and whether its rotation was found."""
    half = 0.5 * h
    kicked = state.angular + half * moment
    z, found = solve_rotation(body.inertia, h * kicked, chart)
    shift = h / body.mass * (state.linear + half * force)
    return kicked, Increment(CHARTS[chart].increment(z), shift), found


def departure(body: RigidBody, state: RigidState, h: Array, chart: str = "cayley") -> tuple[Increment, Array]:
    """The increment of a step that starts with the momenta of `state`, and whether its rotation was found.

    The inverse of a discrete Legendre transform.  Source: [tran2024] eq. (45).
    """
    return _depart(body, state, *forces(body, state.pose), h, chart)[1:]


def _momenta(body: RigidBody, pose: Pose, increment: Increment, h: Array, side: float) -> RigidState:
    """The state, with its momenta, at the end of a step for side 1, at its start for side -1."""
    moment, force = forces(body, pose)
    kick = side * 0.5 * h
    # The axial vector of J_d F - Fᵀ J_d by J itself: the rounding of J_d would be the same at every step, a drift.
    even = 0.5 * (increment.turn + sm.transpose(increment.turn))
    turned = sm.matvec(body.inertia, sm.vee(increment.turn)) - side * 2.0 * sm.vee(sm.matmul(body.inertia, even))
    # Divided by what the increment was multiplied by, for the same reason.
    return RigidState(pose, turned / h + kick * moment, increment.shift / (h / body.mass) + kick * force)


def arrival(body: RigidBody, end: Pose, increment: Increment, h: Array) -> RigidState:
    """The state at the end of a step, a discrete Legendre transform.  Source: [tran2024] eq. (46)."""
    return _momenta(body, end, increment, h, 1.0)


def start_momenta(body: RigidBody, start: Pose, end: Pose, h: Array) -> RigidState:
    """The state at the start of a step between two poses, a discrete Legendre transform.

    Source: [tran2024] eq. (45).
    """
    return _momenta(body, start, between(start, end), h, -1.0)


def end_momenta(body: RigidBody, start: Pose, end: Pose, h: Array) -> RigidState:
    """The state at the end of a step between two poses, a discrete Legendre transform.  Source: [tran2024] eq. (46)."""
    return arrival(body, end, between(start, end), h)


def discrete_lagrangian(body: RigidBody, start: Pose, end: Pose, h: Array) -> Array:
    """L_d (), the approximate action of a step, J s.  Source: [tran2024] eq. (42)."""
    potential = 0.5 * (potential_energy(body, start) + potential_energy(body, end))
    return _discrete_kinetic(body, between(start, end)) / h - h * potential


def discrete_energy(body: RigidBody, start: Pose, end: Pose, h: Array) -> Array:
    """E_d = -∂L_d/∂h (), joules, the energy that the discrete Lagrangian gives to a step.

    Source: [tran2024] eqs. (23), (47).
    """
    return step_energy(body, start, end, between(start, end), h)


def step_energy(body: RigidBody, start: Pose, end: Pose, increment: Increment, h: Array) -> Array:
    """E_d () of a step whose increment is known, joules; it keeps its digits where the step is short."""
    potential = 0.5 * (potential_energy(body, start) + potential_energy(body, end))
    return _discrete_kinetic(body, increment) / h / h + potential


def _discrete_kinetic(body: RigidBody, increment: Increment) -> Array:
    """½ m |x₁ - x₀|² + tr((I - F) J_d), J s²."""
    turning = -sm.trace(sm.matmul(increment.turn, _nonstandard(body.inertia)))
    return 0.5 * body.mass * sm.dot(increment.shift, increment.shift) + turning


def _nonstandard(inertia: Array) -> Array:
    """½ tr(J) I - J, the second moment of mass."""
    return 0.5 * sm.trace(inertia)[..., None, None] * sm.identity(3, inertia.dtype) - inertia


@compiled
@takes(True, body=BODY, start=POSE, end=POSE, h=(), next_h=())
def lagrangian_step(
    body: RigidBody, start: Pose, end: Pose, h: Array, next_h: Array, chart: str = "cayley"
) -> tuple[Pose, Array]:
    """The pose after (start, end), h before and next_h after `end`: the discrete Euler-Lagrange equations.

    Equal to the Hamiltonian form behind the Legendre transform; momenta are quotients of differences here and lose the
    digits that those lose.  Source: [tran2024] Table 1 (a), F_Ld, F^Imp and F^(i+1), which differ only in their steps.
    """
    increment, found = departure(body, end_momenta(body, start, end, h), next_h, chart)
    return advance(end, increment), found
