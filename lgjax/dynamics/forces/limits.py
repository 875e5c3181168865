"""Soft stops at the limits of joints.

Read first: `force.py`. Limits that never give are those of `Contacts(joint_limits=True)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces.force import STATIC, Force, spread
from lgjax.dynamics.forces.laws import stop_energy, stop_slopes, stops
from lgjax.dynamics.joint_parameters import parameter, scalars_of
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Limits(Force):
    """A one-sided spring and damper behind each limit, which begins as a parabola of length `width`."""

    lower: jax.Array
    upper: jax.Array
    stiffness: jax.Array
    damping: jax.Array
    width: jax.Array
    index: tuple[int, ...] = field(metadata=STATIC)
    start: tuple[int, ...] = field(metadata=STATIC)
    of_model: tuple[str, ...] = field(default=(), metadata=STATIC)  # which of lower and upper are the model's

    def __call__(self, t, q, v):
        return spread(v, self.index, -stops(*self._state(q, v), self.stiffness, self.damping, self.width))

    def energy(self, q):
        sides = self._depths(q.joints[np.asarray(self.start, int)])
        parts = [jnp.sum(stop_energy(depth, self.stiffness, self.width)) for _, depth in sides]
        return parts[0] + parts[1]

    def slopes(self, t, q, v):
        found = stop_slopes(*self._state(q, v), self.stiffness, self.damping, self.width)
        of_q, of_v = (spread(v, self.index, jnp.maximum(x, 0)) for x in found)
        return of_q, of_v

    def for_model(self, model):
        model = checked_model(model)
        return replace(self, **{name: getattr(model, name)[np.asarray(self.start, int)] for name in self.of_model})

    def _state(self, q, v):
        return self._depths(q.joints[np.asarray(self.start, int)]), v[np.asarray(self.index, int)]

    def _depths(self, x):
        """Signs of, and depths (n,) beyond, the upper and the lower limits."""
        return (1, x - self.upper), (-1, self.lower - x)


def limits(
    model: Model | Mechanism,
    stiffness: Any,
    damping: Any = 0.0,
    width: Any = 1e-2,
    lower: Any = None,
    upper: Any = None,
    joints: Sequence[str] | None = None,
) -> Limits:
    """Soft stops at the limits of scalar coordinates, by default those of the model; infinite ones never act.

    Nothing acts inside the limits. Behind one the force grows as stiffness depth^2 / (2 width) up to `width` (rad or
    m), then with slope `stiffness`, continuous with its first derivative; damping fades in over the same length.
    """
    model = checked_model(model)
    names, index, start = scalars_of(model, joints)
    taken = np.asarray(start, int)
    low = parameter("lower", model.lower[taken] if lower is None else lower, names, model.dtype, -np.inf, finite=False)
    high = parameter("upper", model.upper[taken] if upper is None else upper, names, model.dtype, -np.inf, finite=False)
    if checks.known(low, high):
        for name, a, b in zip(names, np.asarray(low).tolist(), np.asarray(high).tolist(), strict=True):
            if a > b:
                raise ValueError(f"the lower limit of {name!r} is {a:g}, above the upper one, {b:g}")
    else:
        low = jnp.where(low > high, jnp.nan, low)
    return Limits(
        low,
        high,
        parameter("stiffness", stiffness, names, model.dtype),
        parameter("damping", damping, names, model.dtype),
        parameter("width", width, names, model.dtype, positive=True),
        tuple(index),
        tuple(start),
        tuple(name for name, value in (("lower", lower), ("upper", upper)) if value is None),
    )
