"""The force of actuators with a constant control, to be added to other forces. Read `record.py` first."""

from dataclasses import dataclass, replace
from typing import Any

import jax

from lgjax.dynamics.forces import Force


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ActuatorForce(Force):
    """Generalized forces (nv,) of actuators under a constant control (n,), without delay, and activation (na,)."""

    actuators: Any  # an `Actuators`, which makes this
    control: jax.Array
    activation: Any = None

    def __call__(self, t, q, v):
        return self.actuators.torque(q, v, self.control, self.activation)

    def slopes(self, t, q, v):
        found = self.actuators.implicit(q, v, self.control, self.activation)
        return found.stiffness, found.damping

    def rows(self, t, q, v):
        found = self.actuators.implicit(q, v, self.control, self.activation)
        return found.rows, found.row_stiffness, found.row_damping

    def for_model(self, model):
        return replace(self, actuators=self.actuators.for_model(model))
