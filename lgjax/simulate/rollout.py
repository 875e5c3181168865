"""Time stepping of one mechanism in one scan, to be mapped over a batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from lgjax.contact.contacts import Contacts
from lgjax.dynamics.loops.loop import Loop, as_loops
from lgjax.dynamics.loops.project import Metric
from lgjax.dynamics.loops.status import LoopStatus
from lgjax.dynamics.time_derivatives.taylor_series import motion_series
from lgjax.execution.call import one_kernel
from lgjax.execution.compiled import compiled
from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.integrators import RK4, Method, MuntheKaas, integrate
from lgjax.integrators.integrate import check_method
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration, mechanical_space
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.saving.checkpoint import Checkpoint
from lgjax.simulate.contact_rollout import ContactRecord, check_contacts, contact_report, with_contacts
from lgjax.simulate.held_control import ControllerWithMemory, ControlRecord, with_memory
from lgjax.simulate.loop_rollout import check_start, keep_closed, loop_report
from lgjax.simulate.mechanism_field import Controller, mechanism_field


class Trajectory(NamedTuple):
    """States at the saved times; every leaf but `status` has a leading time axis (T,).

    ts: (T,) s. q: Configuration. v: (T, nv), body frame. status: () int32, `LoopStatus`; without loops only NOT_FINITE
    can be set, if the last state is infinite or NaN. residual, rate: (T,), the largest length of phi(q) and of dphi/dt
    of the loops after any step so far; None without loops. With loops the status covers all steps: OPEN if a projection
    did not converge or the residual exceeded the square root of eps; SLIPPING if the rate did, relative to 1 + the
    largest entry of v. contacts: what happened at rigid contacts, and in the status `contact.ContactStatus`.
    control: what a controller with memory did.
    """

    ts: jax.Array
    q: Configuration
    v: jax.Array
    status: jax.Array
    residual: jax.Array | None = None
    rate: jax.Array | None = None
    contacts: ContactRecord | None = None
    control: ControlRecord | None = None

    @property
    def success(self) -> jax.Array:
        """() bool, whether the motion can be used: no flag is set, or only REDUNDANT."""
        return (self.status & ~int(LoopStatus.REDUNDANT)) == 0


@dataclass(frozen=True)
class StepInOneKernel(Method):
    """A method whose step is one kernel on a GPU, with the field in it; elsewhere it is the method itself."""

    method: Method

    @property
    def one_step_is_one_call(self) -> bool:
        """True: `step` does it."""
        return True

    def init(self, space: HomogeneousSpace, field: Callable[..., Any], t: jax.Array, y: Any) -> Any:
        return self.method.init(space, field, t, y)

    def step(
        self, space: HomogeneousSpace, field: Callable[..., Any], t: jax.Array, y: Any, h: jax.Array, carry: Any
    ) -> tuple[Any, Any]:
        following = lambda state, t, h: self.method.step(space, field, t, state[0], h, state[1])
        return one_kernel(following, in_place=True)((y, carry), t, h)


@checked_arguments("wrenches", compiles=False)
def rollout(
    model: Model,
    q: Configuration,
    v: jax.Array,
    controller: Controller | ControllerWithMemory | None,
    dt: ArrayLike,
    steps: int,
    method: Method = MuntheKaas(RK4),  # noqa: B008 (a hashable value)
    save_every: int | None = 1,
    wrenches: Controller | None = None,
    remat: bool | int = False,
    checkpoint: Checkpoint | None = None,
    *,
    loops: Loop | Sequence[Loop] | None = None,
    project: Metric | None = "mass",
    alpha: Any = 0.0,
    beta: Any = 0.0,
    tolerance: Any = None,
    contacts: Contacts | None = None,
) -> Trajectory:
    """Motion from (q, v) over `steps` steps of dt seconds; v: (nv,) body-frame velocities.

    controller(t, q, v) -> tau (nv,), evaluated at every stage of the method, not sampled and held; None applies no
    force. wrenches(t, q, v) -> (nbodies, 6), body frame, at the body origin. dt may be traced; steps, method and
    save_every (a divisor of steps, or None for the final state alone) are static. Differentiable in everything that is
    traced, in both modes. Forward mode (`jax.jacfwd`) suits few parameters. With `remat` reverse mode takes the memory
    of √steps steps only, see `integrate`; `rollout_memory` predicts it. `checkpoint`, a `lgjax.saving.Checkpoint`,
    writes a long run to a folder part by part, from which it can be resumed. Raises ValueError for a controller that
    returns the wrong shape.

    loops: closed loops of the mechanism. After every step positions and velocities are moved to the nearest ones that
    keep the loops closed, in the kinetic-energy metric (project="mass") or the plain one ("plain"); project=None relies
    on alpha and beta, 1/s, of `constrained_forward_dynamics`. tolerance: of the positions, see `project_positions`.
    Raises ValueError, where q and v are known, for a start at which loops are open or move apart: `project_positions`
    and `project_velocity` make a consistent start. Within jit the status reports it.

    contacts: rigid contacts with the ground and among links; dt > 0. method=contact.TimeStepping() evaluates the
    controller once a step, half way; or contact.EventDriven(). Compliant ones are a controller, `forces.contact`.

    A controller with memory, such as `control.PredictiveController`, acts at every step, or at one of `every` steps,
    and its controls, in `Trajectory.control`, are held in between. It takes neither loops nor contacts.

    Outside jit a call compiles once for each structure of its arguments. A controller belongs to it by its code and by
    the numbers and JAX arrays that it closes over and names. Pass numbers that change as leaves, for law(gain, t, q, v)
    as `jax.tree_util.Partial(law, gain)`. With a controller that reads what can change in place (lists, NumPy arrays,
    objects), and with `checkpoint`, every call compiles; a `forces.Force` never does. Source: that of the method.
    """
    check_contacts(contacts, method, loops)
    remembers = _remembers(controller, method, loops, contacts)
    dt, v, steps = checks.array("dt", dt, (), model.dtype), jnp.asarray(v), checks.integer("steps", steps)
    closed = () if loops is None else as_loops(model, loops)
    if closed:
        check_start(model, closed, q, v)
    run = compiled(_rollout) if checkpoint is None and not remembers else _rollout
    closing = closed, project, (alpha, beta), tolerance
    if contacts is not None:
        checks.positive("dt", dt)  # back in time, contacts would pull
        run = compiled(_contact_rollout) if checkpoint is None else _contact_rollout
        return run(model, q, v, (controller, wrenches), dt, steps, method, save_every, remat, checkpoint, contacts)
    return run(model, q, v, (controller, wrenches), dt, steps, method, save_every, remat, checkpoint, closing)


def _remembers(controller: Any, method: Any, loops: Any, contacts: Any) -> bool:
    """Whether it is a controller with memory; raises an error for a method or what else does not fit."""
    if contacts is None:
        check_method("rollout", method)
    remembers = isinstance(controller, ControllerWithMemory)
    if remembers and (loops is not None or contacts is not None or method.needs_series):
        raise ValueError("a controller with memory takes neither loops nor contacts nor the method Taylor")
    return remembers


def _rollout(model, q, v, applied, dt, steps, method, save_every, remat, checkpoint, closing) -> Trajectory:
    (controller, wrenches), (closed, project, (alpha, beta), tolerance) = applied, closing
    remembers = isinstance(controller, ControllerWithMemory)
    field = mechanism_field(model, None if remembers else controller, wrenches, closed, alpha=alpha, beta=beta)
    if method.needs_series:
        if controller is not None or wrenches is not None or closed:
            raise ValueError("rollout takes Taylor for a passive motion alone; for forces see motion_series")
        field = motion_series(model)
    # A mechanism compiles slowly: trace it once per step.
    problem = mechanical_space(model.tree), field, (q, v), method.with_scanned_stages()
    if remembers:
        problem = with_memory(model, (q, v), controller, wrenches, problem[3], dt)
    elif closed:
        problem = keep_closed(model, closed, *problem, project, tolerance)
    space, field, start, method = problem
    method = method if remembers else StepInOneKernel(method)
    path = integrate(space, field, start, jnp.zeros_like(dt), steps * dt, steps, method, save_every, remat, checkpoint)
    if remembers:
        (qs, vs), record = path.ys
        return Trajectory(path.ts, qs, vs, path.status, control=record)
    if not closed:
        qs, vs = path.ys
        return Trajectory(path.ts, qs, vs, path.status)
    (qs, vs), seen = path.ys
    residual, rate, status = loop_report(seen)
    return Trajectory(path.ts, qs, vs, status | path.status, residual, rate)


def _contact_rollout(model, q, v, applied, dt, steps, method, save_every, remat, checkpoint, contacts) -> Trajectory:
    start, stepper = with_contacts(model, contacts, (q, v), method, *applied)
    space, field = mechanical_space(model.tree), lambda t, y: y  # the steps move the state themselves
    zero = jnp.zeros_like(dt)
    stepper = StepInOneKernel(stepper)
    path = integrate(space, field, start, zero, steps * dt, steps, stepper, save_every, remat, checkpoint)
    (qs, vs), seen = path.ys
    record, status = contact_report(model, contacts, qs, vs, method, seen, dt)
    return Trajectory(path.ts, qs, vs, status | path.status, contacts=record)
