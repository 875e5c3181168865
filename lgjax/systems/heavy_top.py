"""The heavy top, a rigid body with a fixed point under gravity, in all formulations of one motion.

Source: [celledoni2021] section 3.4.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.groups import (
    SE3,
    SO3,
    Rn,
    coadjoint_orbit,
    cotangent_bundle,
    left_translation,
    product,
    product_space,
    right_translation,
    so3,
    two_sided_translation,
    vector_space,
)
from lgjax.groups.cotangent import Covector
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.systems.problem import Problem, arrays, gravity_vector

Array = jax.Array

FORMULATIONS = ("body", "spatial", "two_sided", "cotangent", "lie_poisson", "quadratic")
READINGS = ("benchmark", "printed", "printed_upright")


def heavy_top(
    formulation: str = "spatial",
    reading: str = "benchmark",
    mass: Any = 15.0,
    length: Any = None,
    inertia: Any = (0.234375, 0.46875, 0.234375),
    axis: Any = (0.0, 1.0, 0.0),
    gravity: Any = None,
    angular_velocity: Any = (0.0, 150.0, -4.61538),
    dtype: Any = None,
) -> Problem:
    """The heavy top with Q = I and body angular velocity (3,) rad/s at the start.

    Three readings of the published numbers, which a caller may override one by one:
    "benchmark"        the moments of inertia (3,) kg m² are about the center of mass, length = 1 m away from the fixed
                       point along the body's unit vector `axis`, and are moved to the fixed point; gravity points down.
    "printed"          the moments are about the fixed point, length = 2 and gravity = (0, 0, 9.81): the source prints
                       Γ_0 = (0, 0, -9.81), and its Γ_0 points against gravity.
    "printed_upright"  the same with gravity = (0, 0, -9.81).
    gravity is the vector (3,) m/s², or a number that pulls along -z: Γ_0 = -gravity, and the potential is
    mass length Γ_0·Qχ, χ the axis.

    "body"         y = (Q, Π) on SO(3) x R³ moved from the right.  Eqs. (19)-(20).
    "spatial"      y = (Q, π) on SO(3) x R³ moved from the left, π = QΠ.  For a fast top of two equal moments its field
                   changes only as fast as the axis turns, so the steps can be long.  Eqs. (21)-(22).
    "two_sided"    y = (Q, π) with Q moved from both sides.  The spin about χ, as far as it exceeds that of a body of
                   three equal moments, moves Q from the right, the rest from the left.  For two equal moments that rest
                   is π over the moment across the axis: no angle of a step is large however fast the top spins.
    "cotangent"    y = Covector(Q, π) on T*SO(3), for `SymplecticLie` or any other method.
    "lie_poisson"  y = [Π, Γ] (6,) on a coadjoint orbit of SE(3), Γ = QᵀΓ_0.  Eqs. (23)-(24).
    "quadratic"    y = Covector((Q, q), [π, p]) on T*(SO(3) x R³) with p = -mass length χ constant.  Eqs. (29)-(32).
                   q acts on nothing: on Q and π a method behaves as on "cotangent", to the last bits.
    Invariants: energy, and where the state contains them the momentum along Γ_0 times its length, |Γ|² and Π·Γ, p.
    Raises ValueError for a mass, length or moments that are not positive, moments that break the triangle inequality
    and an axis whose length is not 1.
    """
    checks.choice("formulation", formulation, FORMULATIONS)
    checks.choice("reading", reading, READINGS)
    benchmark = reading == "benchmark"
    if gravity is None:
        gravity = (0.0, 0.0, 9.81 if reading == "printed" else -9.81)
    p = arrays(
        dtype,
        mass=(mass, (), checks.positive),
        length=((1.0 if benchmark else 2.0) if length is None else length, (), checks.positive),
        inertia=(inertia, (3,), checks.principal_moments),
        axis=(axis, (3,), checks.unit_vector),
        gravity=(gravity_vector(gravity), (3,)),
        angular_velocity=(angular_velocity, (3,)),
    )
    p["lever"] = p["mass"] * p["length"] * p["axis"]
    tensor = sm.diagonal(p["inertia"])
    if benchmark:
        arm = p["length"] * p["axis"]
        tensor = tensor + p["mass"] * (sm.diagonal(jnp.broadcast_to(sm.dot(arm, arm), (3,))) - sm.outer(arm, arm))
    p["tensor"] = tensor
    return _MAKERS[formulation](p, sm.inv3(tensor), sm.matvec(tensor, p["angular_velocity"]))


def _energy(p: dict[str, Array], inverse: Array, momentum: Array, gamma: Array) -> Array:
    """Energy of the body momentum and Γ."""
    return 0.5 * sm.dot(momentum, sm.matvec(inverse, momentum)) + sm.dot(gamma, p["lever"])


def _rates(p: dict[str, Array], inverse: Array, q: Array, pi: Array) -> tuple[Array, Array]:
    """Spatial angular velocity and torque."""
    omega = so3.act(q, sm.matvec(inverse, so3.coAd(q, pi)))
    return omega, sm.cross(so3.act(q, p["lever"]), p["gravity"])


def _spatial_invariants(p: dict[str, Array], inverse: Array, parts: Any) -> dict[str, Any]:
    """Invariants of states y with (Q, π) = parts(y)."""
    return {"energy": partial(_spatial_energy, p, inverse, parts), "vertical_momentum": partial(_vertical, p, parts)}


def _spatial_energy(p: dict[str, Array], inverse: Array, parts: Any, y: Any) -> Array:
    q, pi = parts(y)
    return _energy(p, inverse, so3.coAd(q, pi), -so3.coAd(q, p["gravity"]))


def _vertical(p: dict[str, Array], parts: Any, y: Any) -> Array:
    return -sm.dot(parts(y)[1], p["gravity"])


def _body(p: dict[str, Array], inverse: Array, momentum: Array) -> Problem:
    space = product_space(right_translation(SO3), vector_space(3))
    y0 = SO3.identity(momentum.dtype), momentum
    return Problem(p, space, partial(_body_field, p, inverse), y0, _spatial_invariants(p, inverse, _turned))


def _body_field(p: dict[str, Array], inverse: Array, t: Array, y: Any) -> Any:
    q, pi = y
    omega = sm.matvec(inverse, pi)
    return omega, sm.cross(pi, omega) + sm.cross(p["lever"], so3.coAd(q, p["gravity"]))


def _turned(y: Any) -> tuple[Array, Array]:
    return y[0], so3.act(y[0], y[1])


def _spatial(p: dict[str, Array], inverse: Array, momentum: Array) -> Problem:
    space = product_space(left_translation(SO3), vector_space(3))
    y0 = SO3.identity(momentum.dtype), momentum
    return Problem(p, space, partial(_spatial_field, p, inverse), y0, _spatial_invariants(p, inverse, tuple))


def _spatial_field(p: dict[str, Array], inverse: Array, t: Array, y: Any) -> Any:
    return _rates(p, inverse, *y)


def _two_sided(p: dict[str, Array], inverse: Array, momentum: Array) -> Problem:
    axis = p["axis"] / jnp.sqrt(sm.dot(p["axis"], p["axis"]))
    along = sm.dot(axis, sm.matvec(inverse, axis))
    surplus = along - 0.5 * (sm.trace(inverse) - along)
    space = product_space(two_sided_translation(SO3), vector_space(3))
    y0 = SO3.identity(momentum.dtype), momentum
    field = partial(_two_sided_field, p, inverse, axis, surplus)
    return Problem(p, space, field, y0, _spatial_invariants(p, inverse, tuple))


def _two_sided_field(p: dict[str, Array], inverse: Array, axis: Array, surplus: Array, t: Array, y: Any) -> Any:
    q, pi = y
    body = so3.coAd(q, pi)
    spin = (surplus * sm.dot(axis, body))[..., None] * axis
    rest = so3.act(q, sm.matvec(inverse, body) - spin)
    return (rest, spin), sm.cross(so3.act(q, p["lever"]), p["gravity"])


def _cotangent(p: dict[str, Array], inverse: Array, momentum: Array) -> Problem:
    y0, field = Covector(SO3.identity(momentum.dtype), momentum), partial(_cotangent_field, p, inverse)
    return Problem(p, cotangent_bundle(SO3), field, y0, _spatial_invariants(p, inverse, tuple))


def _cotangent_field(p: dict[str, Array], inverse: Array, t: Array, y: Covector) -> Array:
    omega, torque = _rates(p, inverse, y.g, y.mu)
    return sm.join(omega, torque + so3.coad(omega, y.mu))


def _lie_poisson(p: dict[str, Array], inverse: Array, momentum: Array) -> Problem:
    invariants = {"energy": partial(_split_energy, p, inverse), "gravity": _gravity, "vertical_momentum": _product}
    field, y0 = partial(_lie_poisson_field, p, inverse), sm.join(momentum, -p["gravity"])
    return Problem(p, coadjoint_orbit(SE3), field, y0, invariants)


def _lie_poisson_field(p: dict[str, Array], inverse: Array, t: Array, y: Array) -> Array:
    return -sm.join(sm.matvec(inverse, y[..., :3]), jnp.broadcast_to(p["lever"], y[..., :3].shape))


def _split_energy(p: dict[str, Array], inverse: Array, y: Array) -> Array:
    return _energy(p, inverse, y[..., :3], y[..., 3:])


def _gravity(y: Array) -> Array:
    return sm.dot(y[..., 3:], y[..., 3:])


def _product(y: Array) -> Array:
    return sm.dot(y[..., :3], y[..., 3:])


def _quadratic(p: dict[str, Array], inverse: Array, momentum: Array) -> Problem:
    quadratic = {"energy": partial(_quadratic_energy, p, inverse), "p": _momenta}
    invariants = {**_spatial_invariants(p, inverse, _first), **quadratic}
    y0 = Covector((SO3.identity(momentum.dtype), jnp.zeros_like(momentum)), sm.join(momentum, -p["lever"]))
    return Problem(p, cotangent_bundle(product(SO3, Rn(3))), partial(_quadratic_field, p, inverse), y0, invariants)


def _first(y: Covector) -> tuple[Array, Array]:
    """The attitude and its momentum."""
    return y.g[0], y.mu[..., :3]


def _momenta(y: Covector) -> Array:
    """The momenta p, constant."""
    return y.mu[..., 3:]


def _quadratic_field(p: dict[str, Array], inverse: Array, t: Array, y: Covector) -> Array:
    (q, pi), momenta = _first(y), _momenta(y)
    omega = so3.act(q, sm.matvec(inverse, so3.coAd(q, pi)))
    force = so3.coad(omega, pi) - sm.cross(so3.act(q, momenta), p["gravity"])
    return sm.join(omega, momenta + so3.coAd(q, p["gravity"]), force, jnp.zeros_like(momenta))


def _quadratic_energy(p: dict[str, Array], inverse: Array, y: Covector) -> Array:
    """The quadratic Hamiltonian less the constant |p|²/2."""
    q, pi = _first(y)
    body = so3.coAd(q, pi)
    return 0.5 * sm.dot(body, sm.matvec(inverse, body)) + sm.dot(_momenta(y), so3.coAd(q, p["gravity"]))


_MAKERS = {
    "body": _body,
    "spatial": _spatial,
    "two_sided": _two_sided,
    "cotangent": _cotangent,
    "lie_poisson": _lie_poisson,
    "quadratic": _quadratic,
}
