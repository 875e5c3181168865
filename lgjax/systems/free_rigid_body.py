"""The free rigid body about its center of mass.  Source: [celledoni2021] Example 1."""

from functools import partial
from operator import attrgetter
from typing import Any

import jax

from lgjax.groups import SO3, coadjoint_orbit, cotangent_bundle, product_space, right_translation, so3, vector_space
from lgjax.groups.cotangent import Covector
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.systems.problem import Problem, arrays

Array = jax.Array

FORMULATIONS = ("body", "spatial", "lie_poisson")


def free_rigid_body(
    formulation: str = "body", inertia: Any = (1.0, 2.0, 2.5), momentum: Any = (0.9, -1.6, 1.1), dtype: Any = None
) -> Problem:
    """A body with principal moments of inertia (3,), R = I and body momentum Π (3,) at the start.

    "body"         y = (R, Π) on SO(3) x R³, moved from the right by the body velocity.
    "spatial"      y = Covector(R, π) on T*SO(3), for `SymplecticLie`; π stays constant.
    "lie_poisson"  y = Π on its coadjoint orbit, a sphere.
    Invariants: energy, the spatial momentum or for the last the squared length of Π.
    Raises ValueError for moments that are not positive or break the triangle inequality.
    """
    checks.choice("formulation", formulation, FORMULATIONS)
    p = arrays(dtype, inertia=(inertia, (3,), checks.principal_moments), momentum=(momentum, (3,)))
    identity = SO3.identity(p["momentum"].dtype)
    with_inertia = lambda *functions: [partial(function, p["inertia"]) for function in functions]
    if formulation == "body":
        field, energy = with_inertia(_body_field, _body_energy)
        space = product_space(right_translation(SO3), vector_space(3))
        return Problem(p, space, field, (identity, p["momentum"]), {"energy": energy, "momentum": _turned})
    if formulation == "spatial":
        field, energy = with_inertia(_spatial_field, _spatial_energy)
        y0 = Covector(identity, p["momentum"])
        return Problem(p, cotangent_bundle(SO3), field, y0, {"energy": energy, "momentum": attrgetter("mu")})
    field, energy = with_inertia(_lie_poisson_field, _kinetic)
    return Problem(p, coadjoint_orbit(SO3), field, p["momentum"], {"energy": energy, "momentum": _squared})


def _kinetic(inertia: Array, body_momentum: Array) -> Array:
    return 0.5 * sm.dot(body_momentum, body_momentum / inertia)


def _body_field(inertia: Array, t: Array, y: Any) -> Any:
    omega = y[1] / inertia
    return omega, sm.cross(y[1], omega)


def _body_energy(inertia: Array, y: Any) -> Array:
    return _kinetic(inertia, y[1])


def _turned(y: Any) -> Array:
    """The spatial momentum."""
    return so3.act(y[0], y[1])


def _spatial_field(inertia: Array, t: Array, y: Covector) -> Array:
    omega = so3.act(y.g, so3.coAd(y.g, y.mu) / inertia)
    return sm.join(omega, so3.coad(omega, y.mu))


def _spatial_energy(inertia: Array, y: Covector) -> Array:
    return _kinetic(inertia, so3.coAd(y.g, y.mu))


def _lie_poisson_field(inertia: Array, t: Array, y: Array) -> Array:
    return -(y / inertia)


def _squared(y: Array) -> Array:
    return sm.dot(y, y)
