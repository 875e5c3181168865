"""Passive forces of a robot that are not in its model: springs, dampers, tendons, gravity compensation, fluid."""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces import Force, damper, spring
from lgjax.dynamics.transmissions import Transmissions
from lgjax.multibody.conventions import from_mujoco
from lgjax.multibody.importers.description import Description
from lgjax.multibody.model import Configuration, Model


def forces(model: Model, description: Description, tendons: Transmissions | None) -> Force | None:
    """The sum of all that there is; None if there is nothing."""
    found: list[Force] = []
    if description.springs:
        found.append(_springs(model, description))
    if description.dampers:
        found.append(_dampers(model, description))
    return reduce(add, found) if found else None


def _springs(model: Model, description: Description) -> Force:
    names = tuple(spring.joint for spring in description.springs)
    columns = _columns(model, names, [spring.stiffness for spring in description.springs], 3)
    rest = None if description.rest is None else flat_configuration(model, description, description.rest)
    return spring(model, columns[0], rest, names, *_higher(columns))


def _dampers(model: Model, description: Description) -> Force:
    names = tuple(part.joint for part in description.dampers)
    columns = _columns(model, names, [(0.0, *part.coefficients) for part in description.dampers], 3)
    return damper(model, columns[0], names, *_higher(columns))


def _higher(columns: np.ndarray) -> list[np.ndarray | None]:
    """Coefficients of higher order, None where all are zero."""
    return [column if column.any() else None for column in columns[1:]]


def _columns(model: Model, joints: Sequence[str], values: Sequence[Sequence[float]], count: int) -> np.ndarray:
    """Numbers of joints for each of their velocities, in body order: (count, n)."""
    by_name = dict(zip(joints, values, strict=True))
    rows = [
        ([*by_name[name]] + [0.0] * count)[:count]
        for name, kind in zip(model.tree.joint_names, model.tree.kinds, strict=True)
        if name in by_name
        for _ in range(kind.nv)
    ]
    return np.array(rows, float).T


def flat_configuration(model: Model, description: Description, q: Any) -> Configuration:
    """A Configuration from flat coordinates of the file."""
    return jax.tree.map(lambda x: jnp.asarray(x, model.dtype), from_mujoco(model, q, order=description.order).q)
