"""Inertial parameters of a rigid body: ten numbers in which the dynamics are linear."""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.numerics import small_matrix as sm
from lgjax.numerics.renamed import attributes


class Inertia(NamedTuple):
    """Mass, first moment and rotational inertia of a body about the origin of its frame.

    The momentum of twist [w, v] is [rotational w + moment x v, mass v - moment x w]. Scaling all three at once changes
    the density; the dynamics are linear in them, which identification and randomization rely on.

    mass: (...,) kg. moment: (..., 3) kg m, mass times the center of mass. rotational: (..., 3, 3) kg m^2,
    about the origin.
    """

    mass: jax.Array
    moment: jax.Array
    rotational: jax.Array

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(second="rotational")

    @property
    def com(self) -> jax.Array:
        """Center of mass (..., 3) in the body frame, meters; the origin for a massless body."""
        each = 1 / jnp.where(self.mass > 0, self.mass, jnp.inf)  # one division for three components
        return self.moment * each[..., None]

    def scaled(self, factor) -> "Inertia":
        """The same body `factor` times as dense; factor broadcasts against mass, else ValueError."""
        factor = jnp.asarray(factor, self.mass.dtype)
        try:
            jnp.broadcast_shapes(factor.shape, self.mass.shape)
        except ValueError:
            sizes = f"factor has shape {factor.shape}, mass {self.mass.shape}"
            raise ValueError(f"{sizes}: give one number, or one for each body") from None
        return Inertia(factor * self.mass, factor[..., None] * self.moment, factor[..., None, None] * self.rotational)

    def momentum(self, w, v):
        """Momentum (angular about the origin, linear) of the twist (w, v), body frame."""
        h, m = self.moment, self.mass
        return sm.matvec(self.rotational, w) + sm.cross(h, v), m[..., None] * v - sm.cross(h, w)
