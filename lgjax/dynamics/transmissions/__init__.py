"""Transmissions: scalar lengths of a configuration on which forces act, such as those of actuators and tendons."""

from lgjax.dynamics.transmissions.makers import (
    Pulley,
    balls,
    fixed_tendons,
    frees,
    joints,
    sites,
    slider_cranks,
    spatial_tendons,
)
from lgjax.dynamics.transmissions.transmissions import Transmissions, join

__all__ = [
    "Pulley",
    "Transmissions",
    "balls",
    "fixed_tendons",
    "frees",
    "join",
    "joints",
    "sites",
    "slider_cranks",
    "spatial_tendons",
]
