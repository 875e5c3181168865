"""The classical formulations: rotations as coordinates, Euler parameters with their constraint or Tait-Bryan angles.

The equations of a `System`, multiplied into the coordinates: M̂ = HᵀMH, ĝ = Hᵀ(g - M Ḣ q̇), B̂ = B H with v = H q̇.
Read first: `system.py`.
Source: [holzinger2024] section 2.1, classical formulation 2, eqs. (1)-(14).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.execution.compiled import compiled
from lgjax.groups import SE3, SO3, s3, second_kind_coordinates, so3
from lgjax.groups.arguments import takes
from lgjax.groups.r3_so3 import RotationTranslation
from lgjax.groups.se3 import Pose
from lgjax.maximal.generalized_alpha import ConstrainedProblem
from lgjax.maximal.system import AbsoluteConfiguration, System
from lgjax.numerics import small_matrix as sm

Array = jax.Array

ROTATIONS = ("group", "euler_parameters", "tait_bryan")
SIZES = {"euler_parameters": 4, "tait_bryan": 3}
TAIT_BRYAN = second_kind_coordinates(SO3)  # exp(a e_1) exp(b e_2) exp(c e_3)


@compiled
@takes(first=(3,), second=(3,))
def compose_tait_bryan_angles(first: Array, second: Array) -> Array:
    """Tait-Bryan angles (..., 3) of R(first) R(second), R(a, b, c) = R_x(a) R_y(b) R_z(c); b within ± π/2.

    Where b is ± π/2 only a ± c is known, and derivatives are infinite.
    Source: [holzinger2024] eq. (22) for Euler angles; `compose_rotation_vectors` and `s3.compose` are its others.
    """
    return TAIT_BRYAN.log(sm.matmul(TAIT_BRYAN.exp(first), TAIT_BRYAN.exp(second)))


class Coordinates(NamedTuple):
    """A system in coordinates: its equations, the start, and what coordinates and their rates mean.

    problem        for the steps of `GeneralizedAlpha`; with Euler parameters the unit constraints come last.
    q, rate        the start: per body position and rotation parameters, then the further coordinates; and its rates.
    configuration  q -> AbsoluteConfiguration.
    velocity       (q, rate) -> v (nv,).
    """

    problem: ConstrainedProblem
    q: Array
    rate: Array
    configuration: Callable[[Array], AbsoluteConfiguration]
    velocity: Callable[[Array, Array], Array]


def rotation_matrix(rotations: str, rho: Array) -> Array:
    """Rotation matrices (..., 3, 3) of Euler parameters (..., 4) or Tait-Bryan angles (..., 3)."""
    return so3.from_quaternion(rho) if rotations == "euler_parameters" else TAIT_BRYAN.exp(rho)


def body_rate(rotations: str, rho: Array, rate: Array) -> Array:
    """ω in body axes, G(ρ) ρ̇.  Source: [holzinger2024] eq. (7)."""
    if rotations == "euler_parameters":
        w, v, wdot, vdot = rho[..., :1], rho[..., 1:], rate[..., :1], rate[..., 1:]
        return 2.0 * (w * vdot - wdot * v - sm.cross(v, vdot))
    sb, cb, sc, cc = jnp.sin(rho[..., 1]), jnp.cos(rho[..., 1]), jnp.sin(rho[..., 2]), jnp.cos(rho[..., 2])
    a, b, c = rate[..., 0], rate[..., 1], rate[..., 2]
    return sm.stack(cb * cc * a + sc * b, -cb * sc * a + cc * b, sb * a + c)


def _parameters(rotations: str, turned: Array, omega: Array) -> tuple[Array, Array]:
    """Parameters and their rates of rotations (N, 3, 3) and body rates (N, 3); Euler parameters stay of length one."""
    if rotations == "euler_parameters":
        rho = so3.to_quaternion(turned)
        pure = jnp.concatenate([jnp.zeros_like(omega[..., :1]), omega], axis=-1)
        return rho, 0.5 * s3.compose(rho, pure)
    rho = TAIT_BRYAN.log(turned)
    columns = jax.vmap(lambda e: body_rate(rotations, rho, jnp.broadcast_to(e, rho.shape)), out_axes=-1)
    return rho, sm.solve3(columns(jnp.eye(3, dtype=rho.dtype)), omega)


def coordinate_problem(system: System, q: AbsoluteConfiguration, v: Array, rotations: str) -> Coordinates:
    """The same system and start in the coordinates of `rotations`, "euler_parameters" or "tait_bryan"."""
    n, size = system.nbodies, 3 + SIZES[rotations]
    cut, whole = n * size, system.structure.group is SE3
    unit_length = rotations == "euler_parameters"

    def split(x: Array) -> tuple[Array, Array, Array]:
        bodies = x[:cut].reshape(n, size)
        return bodies[:, :3], bodies[:, 3:], x[cut:]

    def configuration(x: Array) -> AbsoluteConfiguration:
        place, rho, rest = split(x)
        element = Pose if whole else RotationTranslation
        return AbsoluteConfiguration(element(rotation_matrix(rotations, rho), place), rest)

    def velocity(x: Array, rate: Array) -> Array:
        (_, rho, _), (linear, rho_dot, rest) = split(x), split(rate)
        if whole:
            linear = sm.tmatvec(rotation_matrix(rotations, rho), linear)
        return jnp.concatenate([sm.join(body_rate(rotations, rho, rho_dot), linear).reshape(-1), rest])

    def transposed(x: Array, f: Array) -> Array:
        return jax.linear_transpose(partial(velocity, x), x)(f)[0]

    def forces(t: Any, x: Array, rate: Array) -> Array:
        bend = jax.jvp(lambda x: velocity(x, rate), (x,), (rate,))[1]
        f = system.generalized_forces(t, configuration(x), velocity(x, rate)) - system.inertia_product(bend)
        return transposed(x, f)

    def unit(x: Array) -> Array:
        rho = split(x)[1]
        return sm.dot(rho, rho) - 1.0 if unit_length else jnp.zeros((0,), x.dtype)

    def jacobian(t: Any, x: Array) -> Array:
        rows = jax.vmap(partial(transposed, x))(system.jacobian(t, configuration(x)))
        return jnp.concatenate([rows, jax.jacfwd(unit)(x)]) if unit_length else rows

    rotation, place = q.bodies
    rho, rho_dot = _parameters(rotations, rotation, v[: 6 * n].reshape(n, 6)[:, :3])
    pack = lambda x, rho, rest: jnp.concatenate([jnp.concatenate([x, rho], axis=1).reshape(-1), rest])
    linear = system.motion(q, v).velocity[:-1]
    problem = ConstrainedProblem(
        move=lambda x, dx: x + dx,
        nudge=lambda x, d: d,
        push=lambda dx, y: y,
        pullback=lambda dx, rows: rows,
        inertia=lambda x, y: transposed(x, system.inertia_product(velocity(x, y))),
        forces=forces,
        constraints=lambda t, x: jnp.concatenate([system.constraints(t, configuration(x)), unit(x)]),
        jacobian=jacobian,
        scale=lambda x: system.scale(configuration(x)),
    )
    start, rate = pack(place, rho, q.coordinates), pack(linear, rho_dot, v[6 * n :])
    return Coordinates(problem, start, rate, configuration, velocity)
