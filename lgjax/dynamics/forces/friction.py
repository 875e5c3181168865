"""Friction at joints: viscous and dry; dampers that grow faster than the speed.

Read first: `force.py`. Model.damping is a damper that the dynamics themselves apply; these are in addition to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces.force import STATIC, Force, check_velocity, spread, vectors_of
from lgjax.dynamics.forces.laws import drag, drag_slope, dry_friction, dry_friction_slope
from lgjax.dynamics.joint_parameters import coordinates_of, parameter
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Friction(Force):
    """Viscous and dry friction, -viscous v - coulomb tanh(v / smoothing)."""

    viscous: jax.Array
    coulomb: jax.Array
    smoothing: jax.Array
    index: tuple[int, ...] = field(metadata=STATIC)
    of_model: bool = field(default=False, metadata=STATIC)  # whether coulomb is `Model.friction`

    def __call__(self, t, q, v):
        speed = v[np.asarray(self.index, int)]
        return spread(v, self.index, -self.viscous * speed - dry_friction(speed, self.coulomb, self.smoothing))

    def slopes(self, t, q, v):
        damping = self.viscous + dry_friction_slope(v[np.asarray(self.index, int)], self.coulomb, self.smoothing)
        return jnp.zeros_like(v), spread(v, self.index, jnp.maximum(damping, 0))

    def for_model(self, model):
        model = checked_model(model)
        return replace(self, coulomb=model.friction[np.asarray(self.index, int)]) if self.of_model else self


def friction(
    model: Model | Mechanism,
    viscous: Any = 0.0,
    coulomb: Any = None,
    smoothing: Any = 1e-2,
    joints: Sequence[str] | None = None,
) -> Friction:
    """Viscous and dry friction at joints: tau = -viscous v - coulomb tanh(v / smoothing).

    coulomb: None takes `Model.friction`. smoothing: the speed (rad/s or m/s) at which three quarters of it act;
    below it the joint creeps instead of sticking, and derivatives at rest are finite.
    """
    model = checked_model(model)
    names, index = coordinates_of(model, joints)
    dry = model.friction[np.asarray(index, int)] if coulomb is None else coulomb
    if coulomb is not None or checks.known(dry):
        dry = parameter("coulomb", dry, names, model.dtype)
    # Else the model's as it is: negative friction drives the joint, and a search for it may pass through such numbers.
    return Friction(
        parameter("viscous", viscous, names, model.dtype),
        dry,
        parameter("smoothing", smoothing, names, model.dtype, positive=True),
        tuple(index),
        coulomb is None,
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Damper(Force):
    """-(damping + quadratic |v| + cubic v^2) v of each speed v, of a free body's origin those in world axes."""

    damping: jax.Array
    quadratic: jax.Array | None
    cubic: jax.Array | None
    index: tuple[int, ...] = field(metadata=STATIC)
    free: tuple[tuple[int, int], ...] = field(metadata=STATIC)  # numbers of poses, where displacements begin

    def __call__(self, t, q, v):
        force = -drag(self._speeds(q, v), self._coefficients)
        for number, k in self.free:
            force = force.at[k : k + 3].set(sm.tmatvec(q.free_poses.rotation[number], force[k : k + 3]))
        return spread(v, self.index, force)

    def slopes(self, t, q, v):
        found = drag_slope(self._speeds(q, v), self._coefficients)
        for number, k in self.free:
            R = q.free_poses.rotation[number]
            found = found.at[k : k + 3].set(sm.tmatvec(R * R, found[k : k + 3]))
        return jnp.zeros_like(v), spread(v, self.index, jnp.maximum(found, 0))

    @property
    def _coefficients(self):
        return self.damping, self.quadratic, self.cubic

    def _speeds(self, q, v):
        check_velocity(v, 1 + max(self.index, default=-1))
        speed = v[np.asarray(self.index, int)]
        for number, k in self.free:
            speed = speed.at[k : k + 3].set(sm.matvec(q.free_poses.rotation[number], speed[k : k + 3]))
        return speed


def damper(
    model: Model | Mechanism,
    damping: Any,
    joints: Sequence[str] | None = None,
    quadratic: Any = None,
    cubic: Any = None,
) -> Damper:
    """Dampers at joints: tau = -(damping v + quadratic |v| v + cubic v^3).

    A free joint has dampers if it is named in `joints`: on the body's turning in its own axes, and on the velocity of
    its origin in world axes. quadratic, cubic: they may be negative; N s^2/m^2, N s^3/m^3, or
    N m s^2/rad^2, N m s^3/rad^3.
    """
    model = checked_model(model)
    names, index = coordinates_of(model, joints, free=True)
    _, translations = vectors_of(model, index)
    free = tuple((model.tree.q_start[model.tree.v_body[index[k]]], k) for k in translations)
    more = lambda what, value: None if value is None else parameter(what, value, names, model.dtype, -np.inf)
    return Damper(
        parameter("damping", damping, names, model.dtype),
        more("quadratic", quadratic),
        more("cubic", cubic),
        tuple(index),
        free,
    )
