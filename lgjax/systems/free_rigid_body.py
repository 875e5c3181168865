"""The free rigid body about its center of mass.  Source: [celledoni2021] Example 1."""

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
    inertia = p["inertia"]
    identity = SO3.identity(inertia.dtype)

    def kinetic(body_momentum: Array) -> Array:
        return 0.5 * sm.dot(body_momentum, body_momentum / inertia)

    if formulation == "body":

        def body_field(t: Array, y: Any) -> Any:
            omega = y[1] / inertia
            return omega, sm.cross(y[1], omega)

        space = product_space(right_translation(SO3), vector_space(3))
        invariants = {"energy": lambda y: kinetic(y[1]), "momentum": lambda y: so3.act(y[0], y[1])}
        return Problem(p, space, body_field, (identity, p["momentum"]), invariants)
    if formulation == "spatial":

        def spatial_field(t: Array, y: Covector) -> Array:
            omega = so3.act(y.g, so3.coAd(y.g, y.mu) / inertia)
            return sm.join(omega, so3.coad(omega, y.mu))

        invariants = {"energy": lambda y: kinetic(so3.coAd(y.g, y.mu)), "momentum": lambda y: y.mu}
        return Problem(p, cotangent_bundle(SO3), spatial_field, Covector(identity, p["momentum"]), invariants)
    invariants = {"energy": kinetic, "momentum": lambda y: sm.dot(y, y)}
    return Problem(p, coadjoint_orbit(SO3), lambda t, y: -(y / inertia), p["momentum"], invariants)
