"""The spatial slider-crank mechanism of the IFToMM library: three rigid bodies, one degree of freedom.

Source: [holzinger2024] section 4.3.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from lgjax import maximal
from lgjax.groups import LieGroup, R3xSO3
from lgjax.multibody.build import rotation_to
from lgjax.numerics import checks
from lgjax.systems.maximal_problem import MaximalProblem, total_energy
from lgjax.systems.problem import arrays, gravity_vector

BODIES = ("crank", "rod", "slider")
# The crank turns about x at A, its pin B is 0.08 m above; the rod ends in the slider at C.
A, B, C = np.array([0.0, 0.1, 0.12]), np.array([0.0, 0.1, 0.2]), np.array([0.2, 0.0, 0.0])
CRANK, ROD = 0.08, 0.3
ALONG_X = rotation_to(np.array([1.0, 0.0, 0.0]))


def _rod_frame() -> np.ndarray:
    """Axes of the rod at the start: x from B to C, y the axis of the universal joint that is fixed in the rod."""
    x = (C - B) / ROD
    y = np.array([0.0, -2.0, 1.0]) / np.sqrt(5.0)
    return np.stack([x, y, np.cross(x, y)], axis=1)


def slider_crank(
    masses: Any = (0.12, 0.5, 2.0),
    inertias: Any = ((1e-4, 1e-4, 1e-5), (4e-4, 4e-3, 4e-3), (1e-4, 1e-4, 1e-4)),
    speed: Any = 6.0,
    gravity: Any = (0.0, 0.0, -9.81),
    group: LieGroup = R3xSO3,
    dtype: Any = None,
) -> MaximalProblem:
    """Crank, rod and slider with masses (3,) kg, inertias (3, 3), rows the principal moments about the centers of mass.

    speed is the crank's angular velocity at the start, rad/s, about x.  A revolute joint holds the crank at A, a
    spherical joint the rod at the crank's pin B, a universal joint the rod at the slider, which a prismatic joint lets
    move along x: 17 constraints on 18 velocities.  The center of the slider starts at (0.2, 0, 0).
    Invariant: energy.  gravity is a vector (3,) m/s², or a number that pulls along -z.
    Raises ValueError for masses and moments that are not positive and moments that break the triangle inequality.
    """
    p = arrays(
        dtype,
        masses=(masses, (3,), checks.positive),
        inertias=(inertias, (3, 3), checks.principal_moments),
        speed=(speed, ()),
        gravity=(gravity_vector(gravity), (3,)),
    )
    dtype = p["masses"].dtype
    rod = _rod_frame()
    bodies = [maximal.Body(name, p["masses"][i], p["inertias"][i]) for i, name in enumerate(BODIES)]
    half = {"crank": (0.0, 0.0, CRANK / 2), "rod": (ROD / 2, 0.0, 0.0)}
    minus = {name: tuple(-x for x in end) for name, end in half.items()}
    axis = rotation_to(np.array([0.0, 1.0, 0.0]))
    joints = [
        maximal.Joint("A", "revolute", "world", "crank", tuple(A), minus["crank"], ALONG_X, ALONG_X),
        maximal.Joint("B", "spherical", "crank", "rod", half["crank"], minus["rod"]),
        maximal.Joint("C", "universal", "slider", "rod", (0.0, 0.0, 0.0), half["rod"], ALONG_X, axis),
        maximal.Joint("D", "prismatic", "world", "slider", frame_a=ALONG_X, frame_b=ALONG_X),
    ]
    system = maximal.System(bodies, joints, [maximal.Gravity(p["gravity"])], group, dtype)
    centers = np.stack([A + np.array([0.0, 0.0, CRANK / 2]), (B + C) / 2, C])
    q0 = system.configuration(np.stack([np.eye(3), rod, np.eye(3)]), centers)
    # Velocities per rad/s of the crank; that of the rod in its own axes.
    omega = np.stack([[1.0, 0.0, 0.0], rod.T @ [0.32, -0.16, 0.08], [0.0, 0.0, 0.0]])
    velocity = np.array([[0.0, -CRANK / 2, 0.0], [0.02, -0.04, 0.0], [0.04, 0.0, 0.0]])
    v0 = system.velocity(q0, p["speed"] * jnp.asarray(omega, dtype), p["speed"] * jnp.asarray(velocity, dtype))
    return MaximalProblem(p, system, q0, v0, {"energy": total_energy(system)})


def crank_angle(q: Any) -> Any:
    """Angle of the crank about x from its start, radians between -π and π."""
    rotation = q.bodies.rotation[..., 0, :, :]
    return jnp.arctan2(rotation[..., 2, 1], rotation[..., 1, 1])


def slider_position(q: Any) -> Any:
    """Position of the slider along x, meters."""
    checks.of_kind("q", q, maximal.AbsoluteConfiguration)
    bodies = checks.floats("q.bodies.translation", q.bodies[1], (None, 3), checks.float_dtype(q.bodies[1]))
    if bodies.shape[-2:] != (3, 3):
        raise ValueError(f"q.bodies.translation has shape {bodies.shape}, expected (..., 3, 3)")
    return bodies[..., 2, 0]
