"""Time stepping of one mechanism in one scan, to be mapped over a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from lgjax.contact import ContactStatus, EventDriven, TimeStepping
from lgjax.contact.contacts import Contacts
from lgjax.dynamics.loops.loop import Loop
from lgjax.dynamics.loops.project import Metric, check_metric
from lgjax.dynamics.loops.status import LoopStatus
from lgjax.execution import batched
from lgjax.execution.compiled import compiled
from lgjax.integrators import RK4, Method, MuntheKaas
from lgjax.integrators.field import strong
from lgjax.integrators.integrate import check_method, finite_status
from lgjax.integrators.scan_saved import saved_steps, scan_saved
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.renamed import attributes
from lgjax.robots.robot import Robot
from lgjax.saving.checkpoint import Checkpoint
from lgjax.simulate.contact_rollout import ContactRecord, EventSteps, TimeSteps, check_contacts
from lgjax.simulate.drives import ControllerWithMemory, ControlRecord, check_period, drive_of
from lgjax.simulate.loop_rollout import ClosedSteps, check_start
from lgjax.simulate.mechanism_field import Controller, check_functions
from lgjax.simulate.robots import ActuatorRecord, RobotParts, as_controller, robot_drive, robot_parts, with_history
from lgjax.simulate.steppers import SmoothSteps, Stepper


class Trajectory(NamedTuple):
    """States at the saved times; every leaf but `status` has a leading time axis (T,).

    ts: (T,) s. q: Configuration. v: (T, nv), body frame. status: () int32, `LoopStatus`; without loops only NOT_FINITE
    can be set, if the last state is infinite or NaN. residual, rate: (T,), the largest length of phi(q) and of dphi/dt
    of the loops after any step so far; None without loops. With loops the status covers all steps: OPEN if a projection
    did not converge or the residual exceeded the square root of eps; SLIPPING if the rate did, relative to 1 + the
    largest entry of v. contacts: what happened at rigid contacts, and in the status `contact.ContactStatus`.
    control: what a controller with memory did; `control.OptimizeStatus.UNCHANGED` is in the status if more than a tenth
    of its searches ended NOT_FINITE, or all UNCHANGED or NOT_FINITE. actuators: the same of a robot's actuators with
    activations or delays.
    """

    ts: jax.Array
    q: Configuration
    v: jax.Array
    status: jax.Array
    residual: jax.Array | None = None
    rate: jax.Array | None = None
    contacts: ContactRecord | None = None
    control: ControlRecord | None = None
    actuators: ActuatorRecord | None = None

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(finite="status, with success")

    @property
    def success(self) -> jax.Array:
        """() bool, whether the motion can be used: no flag is set, or only REDUNDANT or AT_ONCE."""
        return (self.status & ~(int(LoopStatus.REDUNDANT) | int(ContactStatus.AT_ONCE))) == 0


@checked_arguments("wrenches", compiles=False, whole=True)
def rollout(
    model: Model | Robot, q: Configuration, v: jax.Array,
    controller: Controller | ControllerWithMemory | ArrayLike | None, dt: ArrayLike, steps: int,
    method: Method | TimeStepping | EventDriven = MuntheKaas(RK4),  # noqa: B008 (a hashable value)
    save_every: int | None = 1, wrenches: Controller | None = None, remat: bool | int = False,
    checkpoint: Checkpoint | None = None, *, loops: Loop | Sequence[Loop] | None = None,
    project: Metric | None = "mass", alpha: Any = 0.0, beta: Any = 0.0, tolerance: Any = None,
    contacts: Contacts | None = None,
) -> Trajectory:  # fmt: skip
    """Motion from (q, v) over `steps` steps of dt seconds, differentiable in everything that is traced, in both modes.

    A `Robot` brings its loops, forces and actuators. With activations or delays, controls are evaluated once a step and
    held. A controller with memory, such as `control.PredictiveController`, acts at every step, or at one of `every`
    steps.

    Outside jit a call compiles once for each structure of its arguments. A controller belongs to it by its code and the
    numbers and JAX arrays that it reads: pass numbers that change as leaves, `jax.tree_util.Partial(law, gain)`. If it
    reads what can change in place (global lists, dictionaries and NumPy arrays, objects), and with checkpoint, every
    call compiles.

    Args:
        model: a `Model` or a `Robot`.
        q: configuration at the start; loops must be closed in it, see `project_positions`.
        v: (nv,) velocities at the start, body frame, rad/s and m/s.
        controller: (t, q, v) -> tau (nv,), N m and N, evaluated at every stage of the method; None is no force. For a
            robot with actuators it returns their controls (n,), or is an array of constant controls.
        dt: length of a step, s; may be traced.
        steps: number of steps, static.
        method: integrator, static. `contact.TimeStepping()` evaluates the controller once a step, halfway, solves loops
            and contacts together, and takes damping of joints and the stiffness and damping of a `forces.Force` at the
            end of the step, so stiff ones stay stable. It also runs without contacts.
        save_every: a divisor of steps, or None for the final state alone, static.
        wrenches: (t, q, v) -> (nbodies, 6), body frame, at the body origin, N m and N.
        remat: True: reverse mode takes the memory of √steps steps only, see `integrate`, `control.rollout_memory`.
        checkpoint: a `lgjax.saving.Checkpoint`, which writes a long run to a folder part by part, to be resumed from
            there.
        loops: closed loops; None takes those of a robot, () none.
        project: after every step positions and velocities are moved to the nearest ones that keep loops closed, in the
            kinetic-energy metric, "mass", or the plain one, "plain"; None relies on alpha and beta.
        alpha, beta: 1/s, of `constrained_forward_dynamics`.
        tolerance: largest residual of closed loops, see `project_positions`.
        contacts: rigid contacts, for TimeStepping and `contact.EventDriven`, dt > 0; None takes those of a robot with
            the ground of its file, () none. Compliant contacts are a controller, `forces.contact`.

    Returns:
        a `Trajectory`: times, states and status.

    Raises:
        ValueError: for results of the wrong shape and for a known start at which loops are open.

    Source: that of the method.
    """
    parts = robot_parts(model, loops, contacts, method)
    dt, v, steps = checks.array("dt", dt, (), parts.model.dtype), jnp.asarray(v), checks.integer("steps", steps)
    parts = parts._replace(actuators=with_history(parts.actuators, dt))
    controller = as_controller(controller, parts.actuators)
    _check(parts, (q, v), controller, wrenches, dt, method)
    run = compiled(_rollout) if checkpoint is None else _rollout
    closing = project, (alpha, beta), tolerance
    return run(parts, q, v, (controller, wrenches), dt, steps, method, save_every, remat, checkpoint, closing)


def _check(parts: RobotParts, start: Any, controller: Any, wrenches: Any, dt: Any, method: Any) -> None:
    """Raise TypeError or ValueError for what does not go together."""
    check_contacts(parts.contacts, method, parts.loops)
    remembers = isinstance(controller, ControllerWithMemory)
    if remembers and (parts.actuators is not None or parts.forces is not None):
        raise ValueError("a controller with memory drives joints: give rollout the robot's model, or a function")
    check_functions(None if remembers else controller, wrenches)
    if isinstance(method, TimeStepping | EventDriven):
        checks.positive("dt", dt)  # back in time, contacts would pull
    else:
        check_method("rollout", method)
    if parts.loops:
        check_start(parts.model, parts.loops, *start)
    if remembers:
        check_period(controller, dt)


def stepper_of(parts: RobotParts, method: Any, closing: Any, forced: bool) -> Stepper:
    """The stepper of a method; ValueError for what does not go together. forced: whether anything acts."""
    (model, closed, contacts, *_), (project, gains, tolerance) = parts, closing
    if isinstance(method, TimeStepping | EventDriven):
        steps = EventSteps if isinstance(method, EventDriven) else TimeSteps
        return steps(model, Contacts.none(model) if contacts is None else contacts, method, closed)
    if project is not None:
        check_metric(project)
    if method.needs_series and (forced or closed):
        raise ValueError("rollout takes Taylor for a passive motion alone; for forces see motion_series")
    # A mechanism compiles slowly: trace it once per step.
    smooth = SmoothSteps(model, method.with_scanned_stages(), closed, gains)
    return ClosedSteps(smooth, closed, project, tolerance) if closed else smooth


def _rollout(parts, q, v, applied, dt, steps, method, save_every, remat, checkpoint, closing) -> Trajectory:
    forced = any(given is not None for given in (*applied, parts.forces))
    of_robot = parts.forces is not None or parts.actuators is not None
    drive = robot_drive(parts, *applied) if of_robot else drive_of(parts.model, *applied)
    stepper = stepper_of(parts, method, closing, forced)
    saves = saved_steps(steps, save_every, checkpoint)
    time = lambda i: dt * i.astype(dt.dtype)  # not a running sum, which would lose a digit every ten steps in float32
    record, memory = drive.start(q, v)
    carry = ()
    if not drive.remembers:
        forces, _, _ = drive.act(jnp.zeros_like(dt), q, v, dt, record, memory)
        carry = stepper.first_carry(forces, jnp.zeros_like(dt), q, v)
    start = strong(((q, v, stepper.first_seen(q, v), record), (carry, memory)))

    def following(state, t, h):
        (q, v, seen, record), (carry, memory) = state
        forces, record, memory = drive.act(t, q, v, h, record, memory)
        carry = stepper.first_carry(forces, t, q, v) if drive.remembers else carry
        q, v, seen, carry = stepper.step(forces, t, q, v, h, seen, carry)
        return (q, v, seen, record), (() if drive.remembers else carry, memory)

    one = batched(following, in_place=True) if drive.in_kernel else following
    step = lambda state, i: one(state, time(i), dt)
    _, kept = scan_saved(step, start, saves, lambda state: state[0], remat=remat, checkpoint=checkpoint)
    qs, vs, seen, record = saves.with_start(start[0], kept)
    last_seen, last_record = jax.tree.map(lambda x: x[-1], (seen, record))
    status = stepper.status(last_seen) | finite_status((qs, vs, seen)) | drive.status(last_record)
    found = stepper.report(qs, vs, seen, dt) | drive.report(record)
    return Trajectory(time(saves.counts()), qs, vs, status, **found)
