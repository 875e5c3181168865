"""Motors behind gears, commanded by a function.

Read first: `force.py`. Actuators of robot files, which have controls and activations, are `lgjax.actuators`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces.force import STATIC, Force, spread
from lgjax.dynamics.joint_parameters import parameter, scalars_of
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Motors(Force):
    """gear times the motors' torques, as commanded by `command(t, q, v)` within what their speed allows."""

    gear: jax.Array
    rotor_inertia: jax.Array
    torque: jax.Array
    speed: jax.Array
    index: tuple[int, ...] = field(metadata=STATIC)
    command: Callable = field(metadata=STATIC)

    def __call__(self, t, q, v):
        least, most, _ = self._range(v)
        return spread(v, self.index, self.gear * jnp.clip(self.command(t, q, v), least, most))

    def slopes(self, t, q, v):
        """Slope of the line of torque and speed where it limits a motor; slopes of the command count as zero."""
        least, most, turning = self._range(v)
        wanted = self.command(t, q, v)
        limited = (turning != 0) & (jnp.abs(turning) < 1) & jnp.where(turning > 0, wanted > most, wanted < least)
        line = jnp.where(limited, self.torque / self.speed, 0)
        return jnp.zeros_like(v), spread(v, self.index, self.gear * self.gear * line)

    def _range(self, v):
        """The least and the most torque, and the speed as a part of that without torque."""
        turning = self.gear * v[np.asarray(self.index, int)] / self.speed
        most = self.torque * jnp.clip(1 - turning, 0, 1)
        return -self.torque * jnp.clip(1 + turning, 0, 1), most, turning

    def with_rotors(self, model: Model | Mechanism) -> Model:
        """The model with the rotors' inertia, gear^2 rotor_inertia, added to its armature."""
        model = checked_model(model)
        reflected = self.gear * self.gear * self.rotor_inertia
        return model.replace(armature=model.armature + spread(model.armature, self.index, reflected))


def motors(
    model: Model | Mechanism,
    command: Callable,
    gear: Any = 1.0,
    rotor_inertia: Any = 0.0,
    torque: Any = np.inf,
    speed: Any = np.inf,
    joints: Sequence[str] | None = None,
) -> Motors:
    """Motors behind gears: command(t, q, v) -> (n,) torques of the n motors, one per coordinate; tau = gear torque.

    gear: turns of the rotor per turn of the joint (per meter: 1/m). rotor_inertia: kg m^2, for `with_rotors`. A motor
    gives at most `torque` (N m) at rest, which falls linearly to nothing at `speed` (rad/s of the rotor) in the
    direction of motion; braking it gives all of it.
    """
    model = checked_model(model)
    names, index, _ = scalars_of(model, joints)
    most = parameter("torque", torque, names, model.dtype, finite=False)
    return Motors(
        parameter("gear", gear, names, model.dtype, -np.inf),
        parameter("rotor_inertia", rotor_inertia, names, model.dtype),
        jnp.minimum(most, jnp.finfo(model.dtype).max ** 0.5),  # finite, as are its products with zero and with gears
        parameter("speed", speed, names, model.dtype, positive=True, finite=False),
        tuple(index),
        checks.function("command", command),
    )
