"""Actuators of a robot, all in one record, in the order of the file."""

from functools import reduce
from itertools import groupby
from operator import add
from typing import Any

import numpy as np

from lgjax.multibody.importers.description import Description, Drive
from lgjax.multibody.model import Model
from lgjax.robots.actuators import Actuators, general
from lgjax.robots.assembly.transmissions import drive_lengths

EVERYWHERE = (-np.inf, np.inf)
SHORT = 1e-15  # s, MuJoCo's shortest time constant


def actuators(model: Model, description: Description) -> Actuators | None:
    """All actuators of the file; None if there are none."""
    if not description.drives:
        return None
    neighbours = groupby(description.drives, _kind)
    return _within(model, description, reduce(add, (_made(model, description, list(some)) for _, some in neighbours)))


def _kind(drive: Drive) -> Any:
    """Key of actuators that are built as one group: their dynamics, and whether force depends on length and speed."""
    gain, bias = _three(*drive.gain), _three(*drive.bias)
    return drive.dynamics[0], drive.early, tuple((gain != 0) | (bias != 0))[1:]


def _made(model: Model, description: Description, drives: list[Drive]) -> Actuators:
    lengths = drive_lengths(model, drives, description.tendons)
    return general(
        model,
        lengths,
        np.array([_three(*drive.gain) for drive in drives]),
        np.array([_three(*drive.bias) for drive in drives]),
        dynamics=drives[0].dynamics[0],  # type: ignore[arg-type]
        time_constant=np.array([_time_constant(drive) for drive in drives]),
        early=drives[0].early,
        activation_range=np.array([drive.activation_range or EVERYWHERE for drive in drives]),
        control_range=np.array([drive.control_range or EVERYWHERE for drive in drives]),
        force_range=np.array([drive.force_range or EVERYWHERE for drive in drives]),
        delay=np.array([drive.delay for drive in drives]),
        names=[drive.name for drive in drives],
    )


def _three(kind: str, values: tuple[float, ...]) -> np.ndarray:
    """Constant, and coefficients of the length and of its rate."""
    if kind == "none":
        return np.zeros(3)
    return np.array([*values, 0, 0, 0][:3] if kind == "affine" else [values[0], 0, 0])


def _time_constant(drive: Drive) -> float:
    return max(drive.dynamics[1][0], SHORT) if drive.dynamics[0].startswith("filter") else 1.0


def _within(model: Model, description: Description, found: Actuators) -> Actuators:
    """Clipped at joints whose total force the file limits."""
    kinds = dict(zip(model.tree.joint_names, model.tree.kinds, strict=True))
    limited = {name: limits for name, limits in description.joint_ranges if kinds[name].coordinates == "joints"}
    return found.within(model, tuple(limited), np.array(list(limited.values()))) if limited else found
