"""Actuators: controls become forces on joints, tendons and sites, with delays, activations and limits.

`motor`, `position`, `velocity`, `intvelocity`, `damper`, `dc_motor` and `general` return `Actuators`; a + b joins two
records. `motor` documents the arguments that all share. They act on joints by name, or on a transmission: `joints` with
gears, `balls`, `frees`, `fixed_tendons`, `spatial_tendons`, `sites`, `slider_cranks`.

Read first: `record.py`, then `delays.py` for the memory of controls that act later.
"""

from lgjax.dynamics.transmissions import (
    Pulley,
    Transmissions,
    balls,
    fixed_tendons,
    frees,
    join,
    joints,
    sites,
    slider_cranks,
    spatial_tendons,
)
from lgjax.robots.actuators.force import ActuatorForce
from lgjax.robots.actuators.makers import damper, dc_motor, general, intvelocity, motor, position, velocity
from lgjax.robots.actuators.record import Actuators, ActuatorState

__all__ = [
    "ActuatorForce",
    "ActuatorState",
    "Actuators",
    "Pulley",
    "Transmissions",
    "balls",
    "damper",
    "dc_motor",
    "fixed_tendons",
    "frees",
    "general",
    "intvelocity",
    "join",
    "joints",
    "motor",
    "position",
    "sites",
    "slider_cranks",
    "spatial_tendons",
    "velocity",
]
