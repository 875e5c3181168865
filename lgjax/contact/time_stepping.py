"""Time stepping of trees with rigid contacts and closed loops: the method, one step, and contacts at a state.

Read first: `contacts.py`. Next: `step.py`, which has the scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from lgjax.contact.bilateral import Implicit
from lgjax.contact.contacts import Contacts, in_range
from lgjax.contact.coupled import Guess, Settings
from lgjax.contact.geometry.detection import ContactPoints, detect, sides
from lgjax.contact.status import ContactStatus
from lgjax.contact.step import Forces, Impact, impact, move
from lgjax.dynamics.kinematics import ancestor_mask, world_kinematics
from lgjax.dynamics.loops import Loop, loop_constraint, loop_residual
from lgjax.dynamics.loops.loop import as_loops
from lgjax.dynamics.loops.status import LoopStatus
from lgjax.execution import batched
from lgjax.multibody.arguments import checked_arguments, checked_array
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.rank import product
from lgjax.numerics.small_angle import norm
from lgjax.numerics.status import flag

Array = jax.Array

# Sweeps end when no velocity changes by more than this fraction of the largest: round-off with some room.
TOLERANCE_EPS = 32.0
# A residual this many times the tolerance, and above the root of round-off, relative to 1 m/s and the fastest velocity,
# is reported.
UNSOLVED = 100.0
# Iterations that close the loops at the end of a step. Each divides what is open by the inverse of the angle by which
# the mechanism turns in half a step.
CLOSING_STEPS = 5


@dataclass(frozen=True)
class TimeStepping:
    """Time stepping with rigid contacts, for `rollout`, `ensemble` and `ControlSystem.of_model`; or without contacts.

    It suits many contacts, learning and large batches; see `EventDriven` for impacts at their own times. Its order is 1
    in time, and 2 where contacts neither open nor close. Damping acts at the end of a step, so stiff joints stay
    stable. Closed loops and contacts are one problem.

    A step has the status NOT_SOLVED if its residual (m/s), divided by 1 plus the largest entry of v, is above 100 times
    the tolerance and above the square root of round-off. So does a step in which a traced number is out of its range:
    dt, friction, restitution or smoothing of the contacts, or the model's friction and limits of joints that act.

    Args:
        tolerance: change of a contact's velocity in a sweep, as a fraction of the fastest, at which the solver ends;
            None takes 32 units of round-off. After 60, 120 and 180 sweeps it is 4, 16 and 64 times as much. A solver
            that stalls, and any after 60 sweeps, also ends below a tenth of the limit of NOT_SOLVED, and after 120
            sweeps below four tenths.
        max_sweeps: largest number of the solver's sweeps over the contacts.
        iterations: evaluations of the forward dynamics that find the mean velocity of free flight, at which
            velocity-dependent forces are taken. They keep the energy of fast rotations. None takes 8 for free bodies;
            for trees 0, the velocity before the step, so that the forces of a robot at rest are exact, and 1 where
            there are neither contacts nor joint limits.

    Source: that of `lgjax.contact.step`.
    """

    tolerance: float | None = None
    max_sweeps: int = 600
    iterations: int | None = None

    driver = "rollout"

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", checks.number("tolerance", self.tolerance, 0.0, 1.0))
        object.__setattr__(self, "max_sweeps", checks.integer("max_sweeps", self.max_sweeps))
        if self.iterations is not None:
            object.__setattr__(self, "iterations", checks.integer("iterations", self.iterations, 0))

    def settings(self, dtype: Any) -> Settings:
        """Its static numbers for a dtype."""
        tolerance = TOLERANCE_EPS * float(jnp.finfo(dtype).eps) if self.tolerance is None else self.tolerance
        limit = max(UNSOLVED * tolerance, float(jnp.finfo(dtype).eps) ** 0.5)
        return Settings(tolerance, self.max_sweeps, limit, iterations=self.iterations)


class ContactStep(NamedTuple):
    """Result of `contact_step` for n candidates.

    q, v: the state after the step. impulse: (n, 3) N s, in the contact frames: normal, two tangents. velocity: (n, 3)
    m/s of the contacts after the step, in the same frames. gap: (n,) m, halfway through the step. residual: () m/s, the
    largest violation of the law of contact. sweeps: () int32, of the solver. status: () int32, `ContactStatus` and
    `LoopStatus`. joint_impulse: (nv,) N m s or N s, of joint limits and dry joint friction. open: (), length of what is
    left of the loops' residual. slip: (), of its rate.
    """

    q: Configuration
    v: Array
    impulse: Array
    velocity: Array
    gap: Array
    residual: Array
    sweeps: Array
    status: Array
    joint_impulse: Array
    open: Array
    slip: Array


@checked_arguments("tau", "wrenches", compiles=False)
def contact_step(
    model: Model, contacts: Contacts | None, q: Configuration, v: Array, tau: Any, dt: ArrayLike,
    guess: Array | tuple[Array, Array] | None = None, wrenches: Any = None, loops: Loop | Sequence[Loop] | None = None,
    implicit: Implicit | Callable[[Configuration, Array], Implicit] | None = None, *,
    method: TimeStepping = TimeStepping(),
) -> ContactStep:  # fmt: skip
    """The state dt seconds after (q, v), and the impulses at the contacts.

    Derivatives are those of the implicit function. Contacts that are not closed yet have a part in them only with
    `Contacts(smoothing=)`. Inside `jit` nothing is raised for numbers: the status tells.

    Args:
        model: the mechanism.
        contacts: where it can touch, n candidates; None for none.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.
        tau: (nv,) forces, N m and N, or a function (q, v) -> (nv,) of the state halfway through the step.
        dt: length of the step, s, positive.
        guess: (n, 3) N s, impulses from which the solver starts, or a pair of them and of those of joint limits and dry
            joints (nv,), such as (last.impulse, last.joint_impulse); None for zero. They change the result within the
            tolerance. Where several sets of impulses obey the law (contacts that share a load, or much friction), they
            may also decide which of them is found.
        wrenches: (nbodies, 6), body frame, at the body origin, or such a function; None for none.
        loops: closed loops, which the step keeps closed.
        implicit: stiffness and damping of the forces in tau, an `Implicit` or a function (q, v) of the state halfway:
            the part of them that changes during the step acts at its end, so that stiff servos and springs stay stable.
        method: a `TimeStepping`.

    Returns:
        a `ContactStep`: the state after the step, impulses and status.

    Raises:
        ValueError: for a dt that is known and not positive.

    Source: that of `lgjax.contact.step`.
    """
    contacts = Contacts.none(model) if contacts is None else contacts
    _check_contacts(contacts)
    closed = () if loops is None else as_loops(model, loops)
    h = checks.scalar("dt", dt, model.dtype, positive=True)
    start = _checked_guess(model, contacts, guess)
    second_half = batched(partial(_second_half, method.settings(model.dtype)))

    def step(model, contacts, closed, q, v, h, guess) -> ContactStep:
        halfway = move(model, q, v, 0.5 * h * v)
        torque, pushes, gives = (cast(Any, f(*halfway) if callable(f) else f) for f in (tau, wrenches, implicit))
        torque = checked_array("tau", torque, (model.nv,), model.dtype, model=model)
        if pushes is not None:
            pushes = checked_array("wrenches", pushes, (model.nbodies, 6), model.dtype)
        forces = Forces(torque, pushes, closed, Implicit() if gives is None else gives)
        return second_half(model, contacts, *halfway, forces, h, guess)

    # The forces are in it; where they have no instructions, the second half alone is one kernel.
    return batched(step)(model, contacts, closed, q, v, h, start)


def _checked_guess(model: Model, contacts: Contacts, guess: Any) -> Guess:
    shape = len(contacts), 3
    impulse, joints = guess if isinstance(guess, tuple) else (guess, None)
    impulse = jnp.zeros(shape, model.dtype) if impulse is None else checked_array("guess", impulse, shape, model.dtype)
    if joints is not None:
        joints = checked_array("guess of joints", joints, (model.nv,), model.dtype, model=model)
    return Guess(impulse, joints if contacts.limited or contacts.dry else None)


def _second_half(settings: Settings, model: Model, contacts: Contacts, q, v, forces: Forces, h, guess) -> ContactStep:
    """From the state in the middle of the step."""
    found = impact(model, contacts, q, v, forces, h, guess, settings)
    displacement = 0.5 * h * found.v + found.lift
    if forces.loops:
        displacement = _closed(model, forces.loops, q, found, displacement)
    new, v = move(model, q, found.v, displacement)
    gap = slip = jnp.zeros((), v.dtype)
    if forces.loops:
        v, gap, slip = _at_rest(model, forces.loops, found, new, v)
    close = found.residual <= settings.limit * (1 + jnp.max(jnp.abs(found.v)))
    failed = ~(close & (h > 0) & in_range(contacts, model)) | found.inexact
    bad = ~jnp.isfinite(jnp.sum(v) + found.residual)
    status = flag(ContactStatus.NOT_SOLVED, failed) | flag(ContactStatus.NOT_FINITE, bad)
    status = status | flag(ContactStatus.AT_ONCE, found.passed_on)
    status = status | flag(ContactStatus.TOO_MANY_NEAR, found.left_out)
    if forces.loops:
        assert found.held is not None
        status = status | flag(LoopStatus.OPEN, gap > float(jnp.finfo(v.dtype).eps) ** 0.5)
        status = status | flag(LoopStatus.REDUNDANT, found.held.redundant)
    more = found.residual, found.sweeps, status, found.joint_impulse, gap, slip
    return ContactStep(new, v, found.impulse, found.velocity, found.gap, *more)


def _at_rest(model: Model, loops: tuple[Loop, ...], found: Impact, q: Configuration, v: Array):
    """The velocity at the end of the step without what is left of the loops' rates, which is of the order of h^2.

    And the lengths of their residual and rate. Contacts change by as little.
    """
    assert found.held is not None
    left = loop_constraint(model, loops, q)
    v = found.held.still(left.jacobian, v)
    return v, norm(left.residual), norm(product(left.jacobian, v))


def _closed(model: Model, loops: tuple[Loop, ...], q: Configuration, found: Impact, displacement: Array) -> Array:
    """The displacement from the middle of the step at whose end the loops are closed, by a few chord iterations."""
    assert found.held is not None
    held = found.held

    def closer(_, displacement: Array) -> Array:
        there, _ = move(model, q, found.v, displacement)
        return displacement + held.closing(loop_residual(model, loops, there))

    return jax.lax.fori_loop(0, CLOSING_STEPS, closer, displacement)


# ---- geometry of the contacts
@checked_arguments()
def contact_points(model: Model, contacts: Contacts, q: Configuration) -> ContactPoints:
    """Gaps, points and contact frames of all candidates at a configuration.

    Args:
        model: the mechanism.
        contacts: where it can touch, n candidates.
        q: its configuration.

    Returns:
        `ContactPoints`: gap (n,) m, point (n, 3) m and frame (n, 3, 3), world frame.
    """
    _check_contacts(contacts)
    world = world_kinematics(model, q)
    found = detect(contacts, model, world.poses, world.origin)
    return found._replace(point=found.point + world.origin)


@checked_arguments()
def contact_velocities(model: Model, contacts: Contacts, q: Configuration, v: Array) -> Array:
    """Velocities J v of the touching points relative to what they touch, in the contact frames.

    Args:
        model: the mechanism.
        contacts: where it can touch, n candidates.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.

    Returns:
        (n, 3) m/s: normal, two tangents.
    """
    _check_contacts(contacts)
    J, frame = _jacobian(model, contacts, q)
    return sm.matvec(frame, jnp.sum(J * v[None, :, None], 1))


@checked_arguments("forces")
def contact_torques(model: Model, contacts: Contacts, q: Configuration, forces: Array) -> Array:
    """Joint forces J^T f of contact forces.

    Args:
        model: the mechanism.
        contacts: where it can touch, n candidates.
        q: its configuration.
        forces: (n, 3) N, in the contact frames: normal, two tangents.

    Returns:
        (nv,), N m and N.

    Raises:
        ValueError: for another number of forces.
    """
    _check_contacts(contacts)
    forces = checks.array("forces", forces, (len(contacts), 3), model.dtype, exact=True)
    J, frame = _jacobian(model, contacts, q)
    return jnp.sum(J * sm.tmatvec(frame, forces)[:, None], (0, 2))


def _check_contacts(contacts: Any) -> None:
    if not isinstance(contacts, Contacts):
        raise TypeError(f"contacts must be Contacts, got {checks.shown(contacts)}")


def _jacobian(model: Model, contacts: Contacts, q: Configuration) -> tuple[Array, Array]:
    """Columns (n, nv, 3) of the velocities in world axes, and the contact frames."""
    world = world_kinematics(model, q)
    points = detect(contacts, model, world.poses, world.origin)
    return columns_at(contacts, model, world.S, points.point), points.frame


def columns_at(contacts: Contacts, model: Model, S: Array, point: Array) -> Array:
    """Columns (n, nv, 3) of the relative velocities at points (n, 3), from the motions S (nv, 6), in world axes."""
    bodies = model.tree.v_body
    mask = ancestor_mask(model.tree)[:, list(bodies)]
    on, under = (jnp.asarray(mask[side] & (side >= 0)[:, None]) for side in sides(contacts, model))
    sign = on.astype(S.dtype) - under.astype(S.dtype)
    return sign[..., None] * (S[None, :, 3:] + sm.cross(S[None, :, :3], point[:, None]))
