"""Analytic functions of ad: φ(ad_u) v on any group, on SO(3) and SE(3) by cross products.

Source: [celledoni2021] section 2.3.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups import se3, so3
from lgjax.groups.ad_by_cross_products import by_cross_products
from lgjax.groups.lie_group import LieGroup
from lgjax.groups.se3 import SE3
from lgjax.groups.so3 import SO3
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm

Array = jax.Array


def function_of_ad(group: LieGroup, coefficients: Sequence[float], u: Any, v: Any) -> Array:
    """φ(ad_u) v (..., dim) for φ(z) = Σ_k coefficients[k] z^k and u, v (..., dim).

    coefficients are static numbers, as many as the accuracy needs: within the radius of convergence in |angular part
    of u|, and where that is large in units of the radius, with the cancellation of the series.  1/(k + 1)! gives
    `dexp`, B_k / k! `dexpinv`.  On SO(3) and SE(3) these are the functions g_1, g_2 of the squared angle and their
    derivatives, exact for every u; on other groups it is the sum of nested brackets.
    Raises ValueError for vectors that do not fit the group and numbers that are not finite.
    """
    checks.of_kind("group", group, LieGroup)
    row = checks.numbers("coefficients", coefficients, (np.size(coefficients),)).tolist()
    u, v = jnp.asarray(u), jnp.asarray(v)
    for name, x in (("u", u), ("v", v)):
        if x.ndim == 0 or x.shape[-1] != group.dim:
            raise ValueError(f"{name} has shape {x.shape}, the algebra of {group} takes (..., {group.dim})")
    if group is SO3 or group is SE3:
        s = sm.dot(u[..., :3], u[..., :3])
        first, second = _even(row[1::2], s), _even(row[2::2], s)
        if group is SO3:
            turned = so3.ad(u, v)
            return row[0] * v + sm.scale(first[0], turned) + sm.scale(second[0], so3.ad(u, turned))
        return sm.join(*by_cross_products(se3.split(u), se3.split(v), first[0], second[0], first[1], second[1], row[0]))
    total = row[-1] * v
    for coefficient in reversed(row[:-1]):
        total = coefficient * v + group.ad(u, total)
    return total


def _even(row: Sequence[float], s: Array) -> tuple[Array, Array]:
    """g(s) = Σ_j (-1)^j row[j] s^j, and (1/z) dg/dz = 2 dg/ds for s = z², by Horner's rule."""
    value, slope = jnp.zeros_like(s), jnp.zeros_like(s)
    for j in reversed(range(len(row))):
        slope = slope * s + value
        value = value * s + (-1.0) ** j * row[j]
    return value, 2.0 * slope
