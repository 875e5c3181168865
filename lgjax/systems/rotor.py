"""A disc on a rigid shaft that spins fast on two flexible supports.

Source: [holzinger2024] section 4.2, whose table of numbers is lost: those here are chosen.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from lgjax import maximal
from lgjax.groups import LieGroup, R3xSO3
from lgjax.numerics import checks
from lgjax.systems.maximal_problem import MaximalProblem
from lgjax.systems.problem import arrays, gravity_vector, not_negative


def rotor(
    mass: Any = 2.0,
    inertia: Any = (0.09, 0.046, 0.046),
    length: Any = 0.5,
    left: Any = 0.2,
    stiffness: Any = (900.0, 900.0, 900.0),
    damping: Any = (0.5, 0.5, 0.5),
    speed: Any = 500.0,
    gravity: Any = (0.0, 0.0, -9.81),
    group: LieGroup = R3xSO3,
    dtype: Any = None,
) -> MaximalProblem:
    """The rotor along x, its center of mass `left` meters from the left support of a shaft of `length` meters.

    inertia (3,): principal moments about the center of mass, x the shaft; stiffness (3,) N/m and damping (3,) N s/m of
    each support along the world axes; speed rad/s about the shaft at the start.  A torque (length / 2 - left) m g about
    the world's z drives the precession (44).  Unconstrained; forces do not couple bodies.  With the
    numbers given, a disc of 0.3 m radius, the shaft precesses in about 2.5 s.
    gravity is a vector (3,) m/s², or a number that pulls along -z.
    Raises ValueError for a mass, length or moments that are not positive, moments that break the triangle inequality,
    and negative stiffness or damping.
    """
    p = arrays(
        dtype,
        mass=(mass, (), checks.positive),
        inertia=(inertia, (3,), checks.principal_moments),
        length=(length, (), checks.positive),
        left=(left, ()),
        stiffness=(stiffness, (3,), not_negative),
        damping=(damping, (3,), not_negative),
        speed=(speed, ()),
        gravity=(gravity_vector(gravity), (3,)),
    )
    dtype, zero = p["mass"].dtype, jnp.zeros_like(p["mass"])
    ends = [jnp.stack([x, zero, zero]) for x in (-p["left"], p["length"] - p["left"])]
    torque = (0.5 * p["length"] - p["left"]) * p["mass"] * jnp.sqrt(jnp.sum(p["gravity"] ** 2))
    # The supports stand where the ends of the undeflected shaft are.
    supports = [maximal.Bushing("world", "rotor", end, end, p["stiffness"], p["damping"]) for end in ends]
    forces = [
        maximal.Gravity(p["gravity"]),
        *supports,
        maximal.Load("rotor", torque_world=jnp.stack([zero, zero, torque])),
    ]
    system = maximal.System([maximal.Body("rotor", p["mass"], p["inertia"])], [], forces, group, dtype)
    q0 = system.configuration(np.eye(3)[None], np.zeros((1, 3)))
    v0 = system.velocity(q0, jnp.stack([p["speed"], zero, zero])[None], np.zeros((1, 3)))
    return MaximalProblem(p, system, q0, v0, {})


def left_end(q: Any, p: dict[str, Any]) -> Any:
    """World position (..., 3) of the left end of the shaft, the point whose path the source shows."""
    return q.bodies.translation[..., 0, :] - p["left"] * q.bodies.rotation[..., 0, :, 0]
