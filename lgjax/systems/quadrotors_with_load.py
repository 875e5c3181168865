"""Two quadrotors that carry a point mass on massless rigid links, with controllers that track a path.

Source: [celledoni2021] section 6, with controllers after Lee, Sreenath, Kumar, CDC 2013.  The z axes of the inertial
frame and of the bodies point up, against gravity: the source says so in words, while e_3 in its formulas points down.
Numbers that the source does not give are chosen here.

The action is that of section 6.1 but for the attitudes. They move from the right, R -> R exp(h Ω), where the source
moves them from the left by RΩ: so the algebra element is Ω itself, as in (36), and no stage turns it into the inertial
frame. The motion is the same, and so are the steps of `MuntheKaas` with all commutators, because
dexpinv_σ(Ad_exp(σ) Ω) = dexpinv_{-σ}(Ω); those of `CommutatorFree` differ within their order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups import SO3, TS2, power_space, product_space, right_translation, so3, vector_space
from lgjax.groups.ts2 import TangentPoint
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm
from lgjax.systems.problem import Problem, arrays, gravity_vector, not_negative

Array = jax.Array
Path = Callable[[Array], Array]

ATTITUDES = ("ideal", "controlled")
GAINS = {
    "load_position": 1.0,
    "load_velocity": 1.8,
    "link_position": 36.0,
    "link_velocity": 10.0,
    "attitude": 60.0,
    "attitude_velocity": 4.5,
}


class LoadState(NamedTuple):
    """Load position and velocity (3,), quadrotor attitudes (2, 3, 3) and body angular velocities (2, 3), links (2, 3).

    A link's q points from the quadrotor to the load, its omega is the angular velocity in the inertial frame.
    """

    position: Array
    velocity: Array
    attitude: Array
    angular_velocity: Array
    link: TangentPoint


def parabola(t: Array) -> Array:
    """The default path: 1 m/s along x, first rising, then falling."""
    return jnp.stack([t, jnp.zeros_like(t), 0.2 * t * (5.0 - t)])


def quadrotors_with_load(
    path: Path = parabola,
    attitude: str = "ideal",
    load_mass: Any = 0.5,
    masses: Any = (0.755, 0.755),
    lengths: Any = (1.0, 1.0),
    inertia: Any = (0.0820, 0.0845, 0.1377),
    spread: Any = 2.0,
    gains: dict[str, Any] | None = None,
    gravity: Any = 9.81,
    dtype: Any = None,
) -> Problem:
    """The system under tracking control, at rest with the load 0.3 m off the path and the links 0.3 rad off theirs.

    path       t -> desired load position (3,) m, smooth; its derivatives are taken from the function.
    attitude   "ideal": the quadrotors pull with the force that the load and link controllers ask for, as in the
               source's experiment; "controlled": thrust acts along the body's axis, which an attitude controller turns.
    spread     horizontal force (N) with which the links pull apart along ±y, which sets their desired directions.
    gains      any of load_position 1, load_velocity 1.8 (1/s², 1/s), link_position 36, link_velocity 10, attitude 60,
               attitude_velocity 4.5 (N m, N m s).
    masses, lengths of the two quadrotors and links (2,), load_mass kg, inertia (3,) of each quadrotor kg m².
    gravity    a vector (3,) m/s², or a number that pulls along -z.

    The state is a `LoadState` on R³ x R³ x SO(3)² x (R³)² x (TS²)².  There are no invariants but the space itself.
    Raises ValueError for masses, lengths or moments that are not positive, moments that break the triangle inequality,
    negative gains and a path whose points are not (3,).
    """
    checks.function("path", path)
    checks.choice("attitude", attitude, ATTITUDES)
    gains = checks.of_kind("gains", {} if gains is None else gains, dict)
    unknown = set(gains) - set(GAINS)
    if unknown:
        raise ValueError(f"unknown gains {sorted(unknown)}; there are {', '.join(GAINS)}")
    p = arrays(
        dtype,
        load_mass=(load_mass, (), checks.positive),
        masses=(masses, (2,), checks.positive),
        lengths=(lengths, (2,), checks.positive),
        inertia=(inertia, (3,), checks.principal_moments),
        spread=(spread, ()),
        gravity=(gravity_vector(gravity), (3,)),
        **{name: (gain, (), not_negative) for name, gain in (GAINS | gains).items()},
    )
    space = product_space(
        vector_space(3),
        vector_space(3),
        power_space(right_translation(SO3), 2),
        power_space(vector_space(3), 2),
        power_space(TS2, 2),
    )
    return Problem(p, space, partial(_field, p, path, attitude), tuple(_start(p, path)), {})


def _field(p: dict[str, Array], path: Path, attitude: str, t: Array, y: Any) -> Any:
    y = LoadState(*y)
    force = desired_forces(p, path, t, y)
    moments = jnp.zeros_like(y.angular_velocity)
    if attitude == "controlled":
        force, moments = attitude_control(p, y, force)
    return rates(p, y, force, moments)


def _start(p: dict[str, Array], path: Path) -> LoadState:
    """At rest, off the path and off the desired link directions."""
    dtype = p["gravity"].dtype
    t0, still = jnp.zeros((), dtype), jnp.zeros((3,), dtype)
    point = jax.eval_shape(path, t0)
    if getattr(point, "shape", None) != (3,):
        raise ValueError(f"path must give points (3,), got {point}")
    turn = so3.exp(jnp.asarray([[-0.3, 0.0, 0.0], [0.0, -0.3, 0.0]], dtype))
    q = so3.act(turn, _directions(p, path, _Tracking(t0, still, still)))
    position = path(t0) + jnp.asarray([0.2, -0.2, -0.1], dtype)
    zero = jnp.zeros((2, 3), dtype)
    return LoadState(position, zero[0], SO3.identity(dtype, (2,)), zero, TangentPoint(q, zero))


def rates(p: dict[str, Array], y: LoadState, force: Array, moments: Array) -> Any:
    """The algebra element of the motion under forces (2, 3) N, inertial frame, and moments (2, 3) N m, body frame.

    Source: [celledoni2021] eqs. (36)-(38) and section 6.1.
    """
    q, omega = y.link
    along = sm.scale(sm.dot(q, force), q)
    across = force - along
    mass = sm.diagonal(jnp.broadcast_to(p["load_mass"], (3,)))
    mass = mass + jnp.sum(p["masses"][:, None, None] * sm.outer(q, q), axis=0)
    swing = sm.scale(p["masses"] * p["lengths"] * sm.dot(omega, omega), q)
    free = sm.solve3(mass, jnp.sum(along - swing, axis=0))  # acceleration of the load less gravity
    h = sm.cross(q, free[None, :] - across / p["masses"][:, None]) / p["lengths"][:, None]
    angular = p["inertia"] * y.angular_velocity
    turn = (moments - sm.cross(y.angular_velocity, angular)) / p["inertia"]
    return y.velocity, free + p["gravity"], y.angular_velocity, turn, sm.join(omega, sm.cross(q, h))


def _derivative(f: Path) -> Path:
    return lambda t: jax.jvp(f, (t,), (jnp.ones_like(t),))[1]


class _Tracking(NamedTuple):
    """The load's motion as its controller wants it: time, deviation from the path and its rate."""

    t: Array
    error: Array
    rate: Array


def _wanted_acceleration(p: dict[str, Array], path: Path, s: _Tracking) -> Array:
    feedback = -p["load_velocity"] * s.rate - p["load_position"] * s.error
    return _derivative(_derivative(path))(s.t) + feedback


def _pulls(p: dict[str, Array], path: Path, s: _Tracking) -> Array:
    """Link forces on the load (2, 3) that give it the wanted acceleration, spread apart along y."""
    force = p["load_mass"] * (_wanted_acceleration(p, path, s) - p["gravity"])
    apart = jnp.asarray(np.array([[0.0, 1.0, 0.0], [0.0, -1.0, 0.0]]), force.dtype)
    return 0.5 * force[None, :] + p["spread"] * apart


def _directions(p: dict[str, Array], path: Path, s: _Tracking) -> Array:
    pulls = _pulls(p, path, s)
    return -pulls / norm(pulls)[:, None]


def _tracking(path: Path, t: Array, y: LoadState) -> _Tracking:
    return _Tracking(t, y.position - path(t), y.velocity - _derivative(path)(t))


def desired_directions(p: dict[str, Array], path: Path, t: Array, y: LoadState) -> Array:
    """Directions (2, 3) of links that pull with the forces that the load's controller wants."""
    return _directions(p, path, _tracking(path, t, y))


def desired_forces(p: dict[str, Array], path: Path, t: Array, y: LoadState) -> Array:
    """Forces (2, 3) of the quadrotors: parallel components move the load, normal components turn the links."""
    q, omega = y.link
    s = _tracking(path, t, y)
    pull = sm.scale(sm.dot(q, _pulls(p, path, s)), q)
    free = jnp.sum(pull, axis=0) / p["load_mass"]  # the load's acceleration less gravity under these pulls
    carried = sm.scale(p["masses"] * (sm.dot(q, free[None, :]) + p["lengths"] * sm.dot(omega, omega)), q)

    def along_motion(f: Any) -> Any:
        """Derivative in time while the deviation dies out as its controller wants."""

        def derivative(s: _Tracking) -> Array:
            decay = -p["load_velocity"] * s.rate - p["load_position"] * s.error
            return jax.jvp(f, (s,), (_Tracking(jnp.ones_like(s.t), s.rate, decay),))[1]

        return derivative

    # Links: follow the desired directions, with the load's motion compensated.
    directions = lambda s: _directions(p, path, s)
    spin = lambda s: sm.cross(directions(s), along_motion(directions)(s))
    q_d, omega_d, alpha_d = directions(s), spin(s), along_motion(spin)(s)
    across = lambda v: v - sm.scale(sm.dot(q, v), q)
    error, rate = sm.cross(q_d, q), omega - across(omega_d)
    transport = sm.scale(sm.dot(q, omega_d), sm.cross(omega, q))
    alpha = -p["link_position"] * error - p["link_velocity"] * rate + across(alpha_d) - transport
    turn = sm.cross(alpha, q) * p["lengths"][:, None]
    normal = p["masses"][:, None] * (across(jnp.broadcast_to(free, q.shape)) - turn)
    return pull + carried + normal


def attitude_control(p: dict[str, Array], y: LoadState, force: Array) -> tuple[Array, Array]:
    """Thrust along R e_3 as far as the attitude allows, and the moments that turn it; heading towards x."""
    third = force / norm(force)[:, None]
    ahead = jnp.zeros_like(third).at[:, 0].set(1.0)
    second = sm.cross(third, ahead)
    second = second / norm(second)[:, None]
    wanted = sm.transpose(sm.rows(sm.cross(second, third), second, third))
    axis = y.attitude[:, :, 2]
    thrust = sm.scale(sm.dot(force, axis), axis)
    error = sm.vee(sm.tmatmul(wanted, y.attitude))
    spin = y.angular_velocity
    moments = -p["attitude"] * error - p["attitude_velocity"] * spin + sm.cross(spin, p["inertia"] * spin)
    return thrust, moments
