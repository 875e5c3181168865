"""The heavy top in absolute coordinates, with its tip held by a joint or as a body that only turns.

Source: [holzinger2024] section 4.1.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lgjax import maximal
from lgjax.groups import LieGroup, R3xSO3, so3
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.systems.maximal_problem import MaximalProblem, total_energy
from lgjax.systems.problem import arrays, gravity_vector

Array = jax.Array


def _weight(t: Any, q: Any, v: Array, p: dict[str, Array]) -> Array:
    """The moment of the weight about the fixed point, in body axes; no force on the point."""
    del t
    moment = sm.cross(p["lever"], so3.coAd(q.bodies.rotation[0], p["gravity"]))
    return jnp.concatenate([moment, jnp.zeros_like(moment)])


def heavy_top_maximal(
    constrained: bool = True,
    mass: Any = 15.0,
    length: Any = 1.0,
    inertia: Any = (0.234375, 0.46875, 0.234375),
    gravity: Any = (0.0, 0.0, -9.81),
    angular_velocity: Any = (0.0, 150.0, -4.61538),
    group: LieGroup = R3xSO3,
    dtype: Any = None,
) -> MaximalProblem:
    """The heavy top of the benchmark: center of mass `length` along body y from the fixed point, the world's origin.

    inertia (3,) is about the center of mass, angular_velocity (3,) in body axes, and the axes start as the world's.
    gravity is a vector (3,) m/s², or a number that pulls along -z.
    With `constrained` the body frame is at the center of mass and a spherical joint holds the tip (3 constraints).
    Without, it is at the fixed point, its inertia moved there, and only its rotation takes part in the motion.
    Invariants: energy and, but for round-off, the momentum about the vertical.
    Raises ValueError for a mass, length or moments that are not positive, and moments that break the triangle
    inequality.
    """
    p = arrays(
        dtype,
        mass=(mass, (), checks.positive),
        length=(length, (), checks.positive),
        inertia=(inertia, (3,), checks.principal_moments),
        gravity=(gravity_vector(gravity), (3,)),
        angular_velocity=(angular_velocity, (3,)),
    )
    dtype = p["mass"].dtype
    arm = p["length"] * jnp.asarray((0.0, 1.0, 0.0), dtype)
    tensor = sm.diagonal(p["inertia"])
    about_tip = tensor + p["mass"] * (sm.diagonal(jnp.broadcast_to(sm.dot(arm, arm), (3,))) - sm.outer(arm, arm))
    if checks.truth("constrained", constrained):
        tip = maximal.Joint("tip", "spherical", "world", "top", origin_b=-arm)
        forces = [maximal.Gravity(p["gravity"])]
        system = maximal.System([maximal.Body("top", p["mass"], tensor)], [tip], forces, group, dtype)
        q0 = system.configuration(jnp.eye(3, dtype=dtype)[None], arm[None])
        v0 = system.velocity(q0, p["angular_velocity"][None], sm.cross(p["angular_velocity"], arm)[None])
        return MaximalProblem(p, system, q0, v0, {"energy": total_energy(system)})
    weight = maximal.UserForce(_weight, {"lever": p["mass"] * arm, "gravity": p["gravity"]}, couples=False)
    system = maximal.System([maximal.Body("top", p["mass"], about_tip)], [], [weight], group, dtype)
    q0 = system.configuration(jnp.eye(3, dtype=dtype)[None], jnp.zeros((1, 3), dtype))
    v0 = system.velocity(q0, p["angular_velocity"][None], jnp.zeros((1, 3), dtype))
    return MaximalProblem(p, system, q0, v0, {"energy": partial(_energy, system, p["mass"], p["gravity"], arm)})


def _energy(system: maximal.System, mass: Array, gravity: Array, arm: Array, q: Any, v: Array) -> Array:
    """The energy of a body that only turns, its center of mass at `arm` in its own axes."""
    height = sm.dot(gravity, so3.act(q.bodies.rotation[0], arm))
    return system.kinetic_energy(q, v) - mass * height
