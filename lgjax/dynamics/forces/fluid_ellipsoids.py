"""Forces of a fluid on ellipsoids: added mass, drag, viscous resistance, lift.

Read first: `fluid.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.forces.fluid import Immersed, Medium, medium_of, places_of
from lgjax.dynamics.forces.force import STATIC
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import length_and_direction, norm

ROUNDS = 12  # of Carlson's duplication, which divide the differences of its arguments by 4 each


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FluidEllipsoids(Immersed):
    """Added mass, drag, viscous resistance and lift of ellipsoids; see `fluid_ellipsoids`."""

    model: Model
    medium: Medium
    frames: Pose
    half_axes: jax.Array
    coefficients: jax.Array  # (n, 5)
    virtual: jax.Array  # (n, 6): inertia and mass of the fluid that moves, for a density of 1
    bodies: tuple[str | int, ...] = field(metadata=STATIC)

    def wrenches(self, twists):
        density, viscosity, r = self.medium.density, self.medium.viscosity, self.half_axes
        w, v = twists[:, :3], twists[:, 3:]
        blunt, slender, angular, kutta, magnus = (x[:, None] for x in self.coefficients.T)
        speed, along = length_and_direction(v)
        area, normal = _shadow(r, along)
        largest = np.pi * jnp.max(r, 1, keepdims=True) * _middle(r)
        swept = 8 * np.pi / 15 * r * _larger_of_others(r) ** 4
        turning = norm((angular * swept + slender * (jnp.max(swept, 1, keepdims=True) - swept)) * w)[:, None]
        radius, volume = jnp.mean(r, 1, keepdims=True), 4 / 3 * np.pi * jnp.prod(r, 1, keepdims=True)
        linear, rotary = self.virtual[:, 3:] * v, self.virtual[:, :3] * w
        lean = sm.dot(along, normal)[:, None]
        f = (
            sm.cross(linear, w)
            - (blunt * area + slender * (largest - area)) * speed[:, None] * v
            + magnus * volume * sm.cross(w, v)
            + kutta * area * lean * sm.cross(sm.cross(normal, v), v)
        )
        n = sm.cross(linear, v) + sm.cross(rotary, w) - turning * w
        resistance = 6 * np.pi * viscosity * radius * jnp.concatenate([4 / 3 * radius**2 * w, v], 1)
        return density * jnp.concatenate([n, f], 1) - resistance


def _shadow(r, along):
    """(area (n, 1) of ellipsoids seen along unit vectors (n, 3), normal (n, 3) of the section with that shadow)."""
    faces = jnp.prod(r, 1, keepdims=True) / r
    spread = faces * faces * along
    _, normal = length_and_direction(spread)
    above, below = sm.dot(spread, spread), sm.dot(spread, along)
    still = below == 0
    ratio = jnp.where(still, 1, above) / jnp.where(still, 1, below)
    return np.pi * jnp.sqrt(ratio)[:, None], normal


def _middle(r):
    return jnp.sum(r, 1, keepdims=True) - jnp.max(r, 1, keepdims=True) - jnp.min(r, 1, keepdims=True)


def _larger_of_others(r):
    x, y, z = r[:, 0], r[:, 1], r[:, 2]
    return jnp.stack([jnp.maximum(y, z), jnp.maximum(z, x), jnp.maximum(x, y)], 1)


def fluid_ellipsoids(
    model: Model | Mechanism,
    bodies: Sequence[str | int],
    half_axes: Any,
    density: Any = 0.0,
    viscosity: Any = 0.0,
    wind: Any = (0.0, 0.0, 0.0),
    frames: Pose | None = None,
    coefficients: Any = (0.5, 0.25, 1.5, 1.0, 1.0),
    virtual: Any = None,
) -> FluidEllipsoids:
    """Fluid forces on bodies as ellipsoids, MuJoCo's ellipsoid model: added mass, drag, viscous resistance, lift.

    As in MuJoCo, the added mass acts by its velocity-dependent (gyroscopic) terms only, not as inertia. half_axes:
    (n, 3) m. coefficients: (5,) or (n, 5), of blunt drag, slender drag, angular drag, Kutta lift and Magnus lift.
    virtual: (n, 6), added inertia (m^5) and added mass (m^3) at a density of 1, from the half axes by default. Other
    arguments and errors: as in `fluid_boxes`. Source: MuJoCo's page on fluid forces, ellipsoid model.
    """
    model = checked_model(model)
    names, frames = places_of(model, bodies, frames)
    axes = checks.positive("half_axes", checks.array("half_axes", half_axes, (len(names), 3), model.dtype, exact=True))
    five = checks.floats("coefficients", coefficients, (len(names), 5), model.dtype)
    if five.shape not in ((5,), (len(names), 5)):
        raise ValueError(f"coefficients have shape {five.shape}, expected (5,) or ({len(names)}, 5)")
    given = added_inertia(axes) if virtual is None else virtual
    return FluidEllipsoids(
        model,
        medium_of(model, density, viscosity, wind),
        frames,
        axes,
        jnp.broadcast_to(checks.finite("coefficients", five), (len(names), 5)),
        checks.array("virtual", given, (len(names), 6), model.dtype, exact=True),
        names,
    )


# ---- added mass
def added_inertia(half_axes: jax.Array) -> jax.Array:
    """Moments of inertia and masses (n, 6) of a fluid of density 1 that moves with ellipsoids (n, 3), about each axis.

    m_i = V k_i / (2 - k_i), I_i = V/5 (a - b)^2 (k_k - k_j) / (2 (a - b) + (a + b) (k_j - k_k)), with the squares a, b
    of the other half axes j and k, and k_i = 2/3 r_x r_y r_z R_D(r_j^2, r_k^2, r_i^2).
    Source: Tuckerman, Inertia factors of ellipsoids for use in airship design (1925); Carlson, Computing elliptic
    integrals by duplication (1979).
    """
    square, product = half_axes * half_axes, jnp.prod(half_axes, -1)
    after, before = (1, 2, 0), (2, 0, 1)
    kappa = 2 / 3 * product[:, None] * _carlson_d(square[:, after], square[:, before], square)
    volume = 4 / 3 * np.pi * product[:, None]
    a, b, k_j, k_k = square[:, after], square[:, before], kappa[:, after], kappa[:, before]
    below = 2 * (a - b) + (a + b) * (k_j - k_k)
    small = float(jnp.finfo(a.dtype).eps) ** 0.5
    round_axis = jnp.abs(a - b) < small * (a + b)  # the ratio goes to zero with the difference
    inertia = volume / 5 * (a - b) ** 2 * (k_k - k_j) / jnp.where(round_axis, 1, below)
    return jnp.concatenate([jnp.where(round_axis, 0, inertia), volume * kappa / (2 - kappa)], 1)


def _carlson_d(x, y, z):
    """R_D(x, y, z) of positive numbers: 3/2 times the integral of 1 / (sqrt(t + x) sqrt(t + y) sqrt(t + z)^3)."""
    total, power = jnp.zeros_like(z), 1.0
    for _ in range(ROUNDS):
        p, q, r = jnp.sqrt(x), jnp.sqrt(y), jnp.sqrt(z)
        shift = p * q + q * r + r * p
        total, power = total + power / (r * (z + shift)), power / 4
        x, y, z = (x + shift) / 4, (y + shift) / 4, (z + shift) / 4
    mean = (x + y + 3 * z) / 5
    return 3 * total + power / (mean * jnp.sqrt(mean))
