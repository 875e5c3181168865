"""Records of measurements with Gaussian errors: each compares itself with the prediction of a plant.

A record is anything with `residual(plant) -> (n,)`, the errors in units of their standard deviations, and
`log_scale() -> ()`, the sum of the logarithms of these. Differences of configurations and poses are those of their
groups. Read next: `identify.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from lgjax.dynamics.forces import friction
from lgjax.dynamics.inverse import inverse_dynamics
from lgjax.dynamics.kinematics import frame_pose
from lgjax.groups import se3
from lgjax.groups.se3 import Pose
from lgjax.integrators import RK4, Method, MuntheKaas
from lgjax.integrators.field import strong
from lgjax.multibody.configuration import Configuration, difference, mechanical_space
from lgjax.multibody.model import Model
from lgjax.robots.robot import Robot
from lgjax.simulate.identification.unknowns import Plant
from lgjax.simulate.mechanism_field import Controller, mechanism_field
from lgjax.simulate.robots import RobotParts, constant_control, robot_drive, with_history
from lgjax.simulate.rollout import stepper_of

Array = jax.Array
STATIC: dict[str, Any] = {"static": True}
SMOOTHING = 1e-2  # rad/s or m/s, of dry friction, as in `forces.friction`


class Record(Protocol):
    """Measurements that can be compared with a plant."""

    def residual(self, plant: Plant) -> Array:
        """Errors (n,) in units of their standard deviations."""
        ...

    def log_scale(self) -> Array:
        """Sum () of the logarithms of the n standard deviations."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TorqueRecord:
    """Commands at measured motions, by inverse dynamics; leaves have a leading axis (T,).

    q: Configuration. v, vdot: (T, nv). command: (T, nv); gear * command is the force of the joints. sigma: (nv,) or a
    number, standard deviation of the command, in its unit; of the force, N m or N, where the gear is 0 or 1. The motion
    counts as known. A robot's passive forces act; actuators and loops, whose forces the motion alone does not tell, are
    not taken.
    smoothing: speed of dry friction, see `forces.friction`.
    """

    q: Configuration
    v: Array
    vdot: Array
    command: Array
    sigma: ArrayLike
    smoothing: float = field(default=SMOOTHING, metadata=STATIC)

    def residual(self, plant: Plant) -> Array:
        dry, driven = dry_friction(plant.model, self.smoothing), plant.gear != 0
        if plant.robot is not None and plant.robot.forces is not None:
            dry = dry + plant.robot.forces.for_model(plant.model)
        gear = jnp.where(driven, plant.gear, 1)

        def one(q: Configuration, v: Array, vdot: Array, command: Array) -> Array:
            needed = inverse_dynamics(plant.model, q, v, vdot) - dry(0.0, q, v)
            # in units of the command, whose errors do not depend on what is looked for
            return (jnp.where(driven, command, 0) - needed / gear) / self.sigma

        return jax.vmap(one)(self.q, self.v, self.vdot, self.command).reshape(-1)

    def log_scale(self) -> Array:
        return jnp.sum(jnp.log(jnp.broadcast_to(self.sigma, self.v.shape)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MotionRecord:
    """Configurations after steps of dt seconds from a known state, each with a command that is held.

    start: (q, v) at the beginning. command: (T, nv), of a robot (T, n), controls of its actuators, which begin with
    activations and earlier controls of zero. q: Configuration (T,), measured after each step; None serves `predicted`.
    sigma: (nv,) or a number, standard deviation of the body-frame displacement of q, rad and m. v: (T, nv), measured
    too, or None; sigma_v: of v. method: its steps, `substeps` for each command.
    """

    start: tuple[Configuration, Array]
    command: Array
    q: Configuration | None
    dt: ArrayLike
    sigma: ArrayLike
    v: Array | None = None
    sigma_v: ArrayLike = 1.0
    method: Method = field(default=MuntheKaas(RK4), metadata=STATIC)
    substeps: int = field(default=1, metadata=STATIC)
    smoothing: float = field(default=SMOOTHING, metadata=STATIC)

    def predicted(self, plant: Plant) -> tuple[Configuration, Array]:
        """The motion (q, v) of the plant after each step, leaves (T, ...)."""
        if plant.robot is not None:
            return self._driven(plant.robot.replace(model=plant.model), plant.gear)
        model, method = plant.model, self.method.with_scanned_stages()
        space, dry = mechanical_space(model.tree), dry_friction(model, self.smoothing)
        h = jnp.asarray(self.dt, model.dtype) / float(self.substeps)

        def step(state: Any, command: Array) -> tuple[Any, Any]:
            field = mechanism_field(model, lambda t, q, v: plant.gear * command + dry(t, q, v))
            zero = jnp.zeros_like(h)
            carry = method.init(space, field, zero, state)
            for _ in range(self.substeps):
                state, carry = method.step(space, field, zero, state, h, carry)
            return state, state

        return jax.lax.scan(step, self.start, self.command)[1]

    def _driven(self, robot: Robot, gear: Array) -> tuple[Configuration, Array]:
        """The motion of a robot under controls of its actuators, or under forces gear * command without any."""
        actuators = with_history(robot.actuators, self.dt)
        parts = RobotParts(robot.model, robot.loops, None, robot.forces, actuators)
        stepper = stepper_of(parts, self.method, ("mass", (0.0, 0.0), None), True)
        zero, period = jnp.zeros((), robot.model.dtype), jnp.asarray(self.dt, robot.model.dtype)
        h, dry = period / float(self.substeps), dry_friction(robot.model, self.smoothing)

        def step(state: Any, command: Array) -> tuple[Any, Any]:
            q, v, seen, record, memory = state
            given = command if actuators is not None else gear * command
            drive = robot_drive(parts, jax.tree_util.Partial(constant_control, given), None)
            forces, record, memory = drive.act(zero, q, v, period, record, memory)
            acting = cast(Controller, forces.tau)
            rubbed = forces._replace(tau=lambda t, q, v: acting(t, q, v) + dry(t, q, v))
            carry = stepper.first_carry(rubbed, zero, q, v)
            for k in range(self.substeps):
                q, v, seen, carry = stepper.step(rubbed, k * h, q, v, h, seen, carry)
            return (q, v, seen, record, memory), (q, v)

        first = robot_drive(parts, None, None).start(*self.start)
        state = strong((*self.start, stepper.first_seen(*self.start), *first))
        return jax.lax.scan(step, state, self.command)[1]

    def residual(self, plant: Plant) -> Array:
        q, v = self.predicted(plant)
        gap = jax.vmap(lambda a, b: difference(plant.model, a, b))(q, self.q) / self.sigma
        gaps = [gap] if self.v is None else [gap, (self.v - v) / self.sigma_v]
        return jnp.concatenate(gaps, -1).reshape(-1)

    def log_scale(self) -> Array:
        steps, nv = len(self.command), self.start[1].shape[-1]
        log = lambda sigma: jnp.sum(jnp.log(jnp.broadcast_to(sigma, (steps, nv))))
        return log(self.sigma) if self.v is None else log(self.sigma) + log(self.sigma_v)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PoseRecord:
    """World poses of a named frame at known configurations, from a camera for instance; leaves (T, ...).

    q: Configuration. poses: Pose. sigma: (6,) or a number, standard deviation of the displacement of the frame as a
    twist in it, rad and m.
    """

    q: Configuration
    poses: Pose
    sigma: ArrayLike
    frame: str = field(metadata=STATIC)

    def residual(self, plant: Plant) -> Array:
        def one(q: Configuration, measured: Pose) -> Array:
            predicted = frame_pose(plant.model, q, self.frame)
            return se3.log(se3.compose(se3.inverse(predicted), measured)) / self.sigma

        return jax.vmap(one)(self.q, self.poses).reshape(-1)

    def log_scale(self) -> Array:
        return jnp.sum(jnp.log(jnp.broadcast_to(self.sigma, (*self.poses.translation.shape[:1], 6))))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BatchedRecord:
    """Many records of one form: `record` with a further leading axis of all its arrays, as `jax.vmap` returns it.

    Plain numbers, such as one `sigma`, are those of all; arrays always have that axis first, so `sigma` is (batch,) or
    (batch, nv).
    Short motions from many known states tell as much as a long one, without its growing errors of bad guesses.
    """

    record: Any

    def residual(self, plant: Plant) -> Array:
        return self._each(lambda record: record.residual(plant)).reshape(-1)

    def log_scale(self) -> Array:
        return jnp.sum(self._each(lambda record: record.log_scale()))

    def _each(self, function: Callable[[Any], Array]) -> Array:
        axes = jax.tree.map(lambda x: 0 if jnp.ndim(x) else None, self.record)
        return jax.vmap(function, (axes,))(self.record)


def dry_friction(model: Model, smoothing: float) -> Any:
    """The force of `Model.friction` at the joints."""
    return friction(model, 0.0, smoothing=smoothing)
