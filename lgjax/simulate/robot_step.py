"""One step of a robot under controls that are held: its actuators, passive forces, loops and contacts.

Read first: `lgjax/simulate/robots.py`. States are (q, v), or (q, v, activation (na,)) if actuators have activations.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.simulate.drives import Drive
from lgjax.simulate.robots import (
    Actuated,
    ActuatedWithMemory,
    ActuatorRecord,
    Passive,
    RobotParts,
    constant_control,
    driven_velocities,
)
from lgjax.simulate.rollout import stepper_of

Array = jax.Array


def robot_steps(parts: RobotParts, method: Any, substeps: int) -> Callable[..., Any]:
    """The function step(state, control (controls,), dt) -> state after dt seconds, and the status () int32.

    controls are those of the actuators, or without any the forces of all joints but the free ones. Raises ValueError
    for delays: a state holds no history.
    """
    actuators = parts.actuators
    if actuators is not None and actuators.samples != 1:
        raise ValueError("a system takes actuators without delay: robot.actuators.replace(delay=0 * delay, samples=1)")
    stepper = stepper_of(parts, method, ("mass", (0.0, 0.0), None), True)

    def step(state: Any, control: Array, dt: Any) -> tuple[Any, Array]:
        q, v, *activation = state
        h = jnp.asarray(dt / substeps, v.dtype)
        drive, record, memory = _drive(parts, control, activation)
        zero = jnp.zeros((), v.dtype)

        def once(now: Any, _: None) -> Any:
            q, v, seen, record = now
            forces, record, _ = drive.act(zero, q, v, h, record, memory)
            carry = stepper.first_carry(forces, zero, q, v)
            q, v, seen, _ = stepper.step(forces, zero, q, v, h, seen, carry)
            return (q, v, seen, record), None

        start = q, v, stepper.first_seen(q, v), record
        (q, v, seen, record), _ = jax.lax.scan(once, start, None, length=substeps)
        status = stepper.status(seen)
        return ((q, v, record.activation) if activation else (q, v)), status

    return step


def _drive(parts: RobotParts, control: Array, activation: list[Array]) -> tuple[Drive, Any, Any]:
    """The drive of held controls, its record and its memory."""
    law = jax.tree_util.Partial(constant_control, control)
    if parts.actuators is None:
        at = jnp.asarray(driven_velocities(parts.model))
        law = jax.tree_util.Partial(constant_control, jnp.zeros(parts.model.nv, control.dtype).at[at].set(control))
        return (Drive(law) if parts.forces is None else Passive(law, None, parts.forces)), (), ()
    if not activation:
        return Actuated(law, None, parts.actuators, parts.forces), (), ()
    memory = parts.actuators.start().history
    return ActuatedWithMemory(law, None, parts.actuators, parts.forces), ActuatorRecord(control, activation[0]), memory
