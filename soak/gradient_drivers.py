"""Bounces, absolute coordinates and identification at degenerate states, for `gradients.py`."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import collisions, identification, maximal, shapes
from lgjax.groups import SE3, LieGroup, R3xSO3, so3
from lgjax.multibody.build import rotation_to
from soak.gradient_mechanics import PI, SHORT, SIZES, SPEEDS, _stacked, _words, speed, tree, turn
from soak.gradient_subjects import Subject

STATES = 150


def _numbers(parts: list) -> jax.Array:
    """One number of each pytree; its leaves are of the size of one."""
    return jnp.stack([sum(jnp.sum(jnp.sin(1.0 + i + y)) for i, y in enumerate(jax.tree.leaves(p))) for p in parts])


# ---- bounces
H = 0.01
SHAPES = {"sphere": lambda s: shapes.sphere(s[0]), "ellipsoid": shapes.ellipsoid}


def of_bounce(name: str, friction: bool, seed: int) -> Subject:
    """Two steps of a body that falls, lands, grazes, rests, slides or leaves the ground; x displaces everything.

    Finite is all that is asked of an impact within round-off of the end of a step, whose part of a step has no digits,
    and of a restitution of 0, after which a body that hardly slides is held: there the motion jumps.
    """
    rng = np.random.default_rng(seed)
    fall = 0.5 * 9.81 * H * H  # in a step from rest
    heights = (0.0, 1e-12, 1e-6, 1e-3, fall, 0.5 * fall, 3 * fall, 0.02, 0.5)
    states, labels, distance = [], [], []
    for i in range(2 * STATES):
        w, momentum = turn(rng), speed(rng, 6) if i % 2 else speed(rng, 6) - np.asarray([0, 0, 0, 0, 0, 1.0])
        sizes = np.asarray([0.2, 0.2, 0.2] if name == "sphere" or i % 3 == 0 else [0.2, 0.25, 0.3])
        lowest = np.linalg.norm(sizes * np.asarray(so3.exp(jnp.asarray(w)))[2])
        height, restitution = rng.choice(heights), rng.choice((0.0, 0.5, 1.0))
        states.append((lowest + height, w, momentum, restitution, sizes))
        distance.append(0.0 if height == fall or restitution == 0 else np.inf)
        labels.append(f"{height:g} m high, restitution {restitution:g}, turned by {_words(w)}, sizes {_words(sizes)}, "
                      f"momentum {_words(momentum)}")  # fmt: skip

    def function(state: Any, x: jax.Array) -> jax.Array:
        z, w, momentum, restitution, sizes = state
        array = lambda y: jnp.asarray(y, x.dtype)
        body = collisions.RigidBody(array(1.0), jnp.diag(array([0.02, 0.02, 0.03])), array([0, 0, -9.81]))
        law = restitution + x[15] * restitution * (1 - restitution)  # between 0 and 1 whatever x
        place = lgjax.Pose(so3.exp(w), jnp.zeros(3, x.dtype).at[2].set(z))
        pose, momentum = lgjax.se3.compose(place, lgjax.se3.exp(x[:6])), momentum + x[6:12]
        found = collisions.bounce(
            body, SHAPES[name](sizes + x[12:15]), shapes.Plane(array([0, 0, 1])),
            collisions.RigidState(pose, momentum[:3], momentum[3:]), H, 2, 3, law,
            array(0.3) if friction else 0.0, save_every=None, record=16, check_center="ignore",
        )  # fmt: skip
        end = found.states
        return _numbers([end.pose.translation, end.pose.rotation, (end.angular, end.linear), found.events[2:]])

    names, direction = ("place", "attitude", "momenta", "impacts"), rng.normal(size=16) / 4
    return Subject(names, function, _stacked(states), tuple(labels), direction, SHORT, distance=np.asarray(distance))


# ---- absolute coordinates
def _method(dtype: Any, **more: Any) -> maximal.GeneralizedAlpha:
    """With a residual so small that differences can be taken."""
    return maximal.GeneralizedAlpha(rtol=1e-13 if dtype == jnp.float64 else None, **more)


def _moved(system: maximal.System, q: Any, v: jax.Array, **more: Any) -> list:
    """Two steps from a start that keeps the constraints; multipliers with the size of one."""
    found = maximal.integrate(system, q, v, 0.0, 2 * H, 2, _method(system.dtype, **more), save_every=None)
    end = jax.tree.map(lambda y: y[-1], (found.q, found.v, found.multipliers))
    return [end[0], end[1], 0.1 * end[2]]


def _turned(rng: np.random.Generator) -> tuple[list, list[str]]:
    """Rotation vectors and angular velocities, with their labels."""
    states = [(np.zeros(3), np.zeros(3)), *((turn(rng), speed(rng, 3)) for _ in range(2 * STATES))]
    return states, [f"turned by {_words(w)}, turning by {_words(v)}" for w, v in states]


def of_pendulum(group: LieGroup, more: dict, seed: int) -> Subject:
    """A body on a ball joint, which hangs or stands upside down at rest, with a spring."""
    rng = np.random.default_rng(seed)
    states, labels = _turned(rng)

    def function(state: Any, x: jax.Array) -> jax.Array:
        turn, omega = state
        rotation, omega = so3.compose(so3.exp(turn), so3.exp(x[:3])), omega + x[3:6]
        pivot = jnp.asarray([0.0, 0.0, 0.5], x.dtype) + x[6:9]
        bob = maximal.Body("bob", 1.0 + x[9], jnp.asarray([0.02, 0.02, 0.03], x.dtype) + x[10])
        hinge = maximal.Joint("hinge", "spherical", "world", "bob", origin_b=pivot)
        spring = maximal.Spring("world", "bob", (0.3, 0.0, -0.6), stiffness=3.0 + x[11], damping=0.1, length=0.2)
        system = maximal.System([bob], [hinge], [maximal.Gravity(), spring], group, x.dtype)
        q = system.configuration(rotation[None], -so3.act(rotation, pivot)[None])
        v = system.velocity(q, omega[None], -so3.act(rotation, jnp.cross(omega, pivot))[None])
        return _numbers(
            [*_moved(system, q, v, **more), system.potential_energy(q), system.generalized_forces(0.0, q, v)]
        )

    names = ("configuration", "velocity", "multipliers", "energy", "forces")
    return Subject(names, function, _stacked(states), tuple(labels), rng.normal(size=12) / 4, SHORT)


ALONG_X, ALONG_Y = (rotation_to(np.eye(3)[i]) for i in (0, 1))
CRANK, ROD = 0.3, 0.8


def of_slider_crank(group: LieGroup, rolls: bool, seed: int) -> Subject:
    """Crank and rod are in line at 0 and pi, the dead centers; there a rod that `rolls` is free to turn about itself.

    Where it is, accelerations are not unique, and the states are NaN, as the status says.
    """
    rng = np.random.default_rng(seed)
    angles = [a for a in (*SIZES, -PI / 2, *rng.uniform(-PI, PI, 50)) if not rolls or abs(np.sin(a)) > 1e-2]
    states = [(np.asarray(a), np.asarray(v)) for a in angles for v in SPEEDS]
    labels = tuple(f"crank at {a:.9g}, moving by {v:g}" for a, v in states)

    def place(crank: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Rotations and centers of crank, rod and slider in the xz plane; angles about y."""
        rod = jnp.arcsin(-CRANK * jnp.sin(crank) / ROD)
        zero = jnp.zeros_like(crank)
        about_y = lambda a: so3.exp(jnp.stack([zero, a, zero]))
        way = lambda a, length: length * jnp.stack([jnp.cos(a), zero, -jnp.sin(a)])
        pin, slider = way(crank, CRANK), way(crank, CRANK) + way(rod, ROD)
        rotations = jnp.stack([about_y(crank), about_y(rod), about_y(zero)])
        return rotations, jnp.stack([0.5 * pin, 0.5 * (pin + slider), slider])

    def function(state: Any, x: jax.Array) -> jax.Array:
        crank, rate = state[0] + x[0], state[1] + x[1]
        bodies = [maximal.Body(n, 1.0 + x[2 + i], 0.02 * jnp.ones(3, x.dtype)) for i, n in enumerate("abc")]
        axes = (ALONG_X, ALONG_Y) if rolls else (ALONG_Y, np.eye(3))
        end = lambda length: (length / 2, 0.0, 0.0)
        joints = [
            maximal.Joint("A", "revolute", "world", "a", (0.0, 0.0, 0.0), end(-CRANK), ALONG_Y, ALONG_Y),
            maximal.Joint("B", "spherical", "a", "b", end(CRANK), end(-ROD)),
            maximal.Joint("C", "universal", "c", "b", (0.0, 0.0, 0.0), end(ROD), *axes),
            maximal.Joint("D", "prismatic", "world", "c", frame_a=ALONG_X, frame_b=ALONG_X),
        ]
        turning = maximal.TorsionSpring("world", "a", ALONG_Y, ALONG_Y, 0.5 + x[5], 0.1)
        system = maximal.System(bodies, joints, [maximal.Gravity(), turning], group, x.dtype)
        (rotations, centers), (turned, velocities) = jax.jvp(place, (crank,), (rate,))
        spin = so3.vee(jnp.swapaxes(rotations, -1, -2) @ turned)
        q = system.configuration(rotations, centers)
        return _numbers(_moved(system, q, system.velocity(q, spin, velocities)))

    names = ("configuration", "velocity", "multipliers")
    return Subject(names, function, _stacked(states), labels, rng.normal(size=6) / 2, SHORT)


def of_free_body(rest: bool, seed: int) -> Subject:
    """A body without joints whose springs hold points that coincide at zero, and vectors that compose to pi.

    With `rest`, points that coincide where the body is not turned, or is turned about z, are held by a spring that has
    a rest length and a damper. Where they meet, its force has no derivative: finite is all that is asked there. Near
    it the derivative grows with the inverse of the distance.
    """
    rng = np.random.default_rng(seed)
    states, labels = _turned(rng)
    end = np.asarray([0.0, 0.0, 0.3])
    distance = np.asarray([np.linalg.norm(so3.exp(jnp.asarray(w)) @ end - end) for w, _ in states]) if rest else np.inf

    def function(state: Any, x: jax.Array) -> jax.Array:
        turn, omega = state
        rotation = so3.compose(so3.exp(turn), so3.exp(x[:3]))
        forces = [
            maximal.Spring("world", "b", stiffness=3.0),  # with a damper there is no derivative where the points meet
            maximal.Spring("world", "b", end, end, 3.0, *((0.1, 0.2) if rest else (0.0, 0.0))),
            maximal.Bushing("world", "b", stiffness=(1.0, 2.0, 3.0), damping=(0.1, 0.1, 0.1)),
            maximal.Load("b", (0.1, 0.0, 0.0), force_world=(0.0, 0.0, 1.0), torque_body=(1.0, 0.0, 0.0)),
        ]
        body = maximal.Body("b", 1.0 + x[9], jnp.asarray([0.02, 0.02, 0.03], x.dtype))
        system = maximal.System([body], [], forces, R3xSO3, x.dtype)
        q = system.configuration(rotation[None], x[None, 6:9])
        v = system.velocity(q, omega[None] + x[None, 3:6], x[None, 10:])
        vectors = maximal.compose_rotation_vectors(turn, x[:3])
        return _numbers([*_moved(system, q, v)[:2], system.potential_energy(q), vectors])

    names = ("configuration", "velocity", "energy", "compose_rotation_vectors")
    return Subject(names, function, _stacked(states), tuple(labels), rng.normal(size=13) / 4, SHORT, distance=distance)


# ---- identification
TIMES = 3


@cache
def rods() -> lgjax.Model:
    """Two rods, straight at zero, without friction, damping or armature."""
    body = lambda name, parent: lgjax.Body(
        name, parent, lgjax.Joint(f"to {name}", "revolute", axis=(0.0, 1.0, 0.0)), mass=1.0,
        position=np.asarray([0.0, 0.0, -1.0 if parent else 0.0]), com=np.asarray([0.0, 0.0, -0.5]),
        inertia=0.1 * np.eye(3),
    )  # fmt: skip
    return lgjax.build([body("near", None), body("far", "near")])


def _unknowns(m: lgjax.Model) -> Any:
    idn = identification
    return (idn.inertias(m, ["far"]) + idn.masses(m, ["near"]) + idn.viscous(m) + idn.coulomb(m) + idn.armature(m)
            + idn.gear(m))  # fmt: skip


def _torques(m: lgjax.Model, q: jax.Array, v: jax.Array, a: jax.Array, shifts: Any, sigma: Any) -> Any:
    """Commands that the model explains where nothing is shifted."""
    dq, dv, da, noise = shifts
    command = jax.vmap(lambda *s: lgjax.inverse_dynamics(m, *s))(_configurations(m, q), v, a)
    return identification.TorqueRecord(_configurations(m, q + dq), v + dv, a + da, command + noise, sigma)


def _motions(m: lgjax.Model, q: jax.Array, v: jax.Array, a: jax.Array, shifts: Any, sigma: Any) -> Any:
    """A motion under the forces `a` from the first state, which the model explains where nothing is shifted."""
    dq, dv, da, noise = shifts
    start = lambda q, v: jax.tree.map(lambda y: y[0], (_configurations(m, q), v))
    record = identification.MotionRecord(start(q, v), a, _configurations(m, q), H, sigma, v, sigma)
    seen, rates = record.predicted(identification.plant_of(m))
    return identification.MotionRecord(
        start(q + dq, v + dv), a + da, _configurations(m, seen.joints + noise), H, sigma, rates + noise, sigma
    )


RECORDS = {"torques": _torques, "motions": _motions}


def _configurations(m: lgjax.Model, q: jax.Array) -> Any:
    """(TIMES, ...) of joint angles."""
    return jax.vmap(lambda y: lgjax.neutral(m)._replace(joints=y))(q)


def _record(kind: str, state: Any, x: jax.Array, misfit: Any = 0.0) -> tuple[lgjax.Model, Any]:
    """The model, and a record whose first row and standard deviation x displaces, and which is off by `misfit`."""
    m = rods().astype(x.dtype)
    shifts = [jnp.zeros_like(state[0]).at[0].set(d) for d in jnp.split(x[:-1], 4)]
    q, v, a = state
    shifts[3] = shifts[3] + misfit
    return m, RECORDS[kind](m, q, v, a, shifts, 0.5 + x[-1])


def _placed(seed: int) -> tuple[list, list[str]]:
    rng = np.random.default_rng(seed)
    states = [(np.zeros((TIMES, 2)),) * 3]
    for _ in range(2 * STATES):
        q = rng.choice(SIZES, (TIMES, 2)) * rng.choice((-1, 1), (TIMES, 2))
        states.append(
            (q, np.stack([speed(rng, 2) for _ in range(TIMES)]), np.stack([speed(rng, 2) for _ in range(TIMES)]))
        )
    return states, [f"at {_words(q.ravel())} moving by {_words(v.ravel())}, {_words(a.ravel())}" for q, v, a in states]


def of_likelihood(kind: str, seed: int) -> Subject:
    """The likelihood of records, half of them at the parameters that made them; x displaces parameters and records."""
    rng, (states, labels) = np.random.default_rng(seed), _placed(seed)
    misfits = [np.asarray(0.3 * (i % 2)) for i in range(len(states))]
    labels = [f"{label}, off by {misfit:g}" for label, misfit in zip(labels, misfits, strict=True)]
    rods()  # outside of a trace, for it is kept
    p = len(_unknowns(rods()))

    def function(state: Any, x: jax.Array) -> jax.Array:
        m, record = _record(kind, state[0], x[p:], state[1])
        return identification.log_likelihood(m, record, _unknowns(m))(x[:p])[None]

    size = p + 4 * 2 + 1
    placed, direction = _stacked(list(zip(states, misfits, strict=True))), rng.normal(size=size) / size**0.5
    return Subject((f"likelihood of {kind}",), function, placed, tuple(labels), direction, SHORT)


def of_poses(seed: int) -> Subject:
    """The likelihood of poses of a camera that was placed right, and of one that was turned by up to pi."""
    rng = np.random.default_rng(seed)
    states, labels = _turned(rng)
    model = tree()

    def function(state: Any, x: jax.Array) -> jax.Array:
        m = model.astype(x.dtype)
        turn, wrong = state
        q = lgjax.retract(m, lgjax.neutral(m), jnp.zeros(m.nv, x.dtype).at[:3].set(turn))
        name = m.tree.body_names[-1]
        seen = lgjax.se3.compose(lgjax.frame_pose(m, q, name), lgjax.Pose(so3.exp(wrong), jnp.zeros(3, x.dtype)))
        q = lgjax.retract(m, q, x[: m.nv])
        q, seen = jax.tree.map(lambda y: y[None], (q, seen))
        record = identification.PoseRecord(q, seen, 0.1, name)
        unknowns = identification.placements(m, [name])
        return identification.log_likelihood(m, record, unknowns)(x[m.nv :])[None]

    n = model.nv + 6
    return Subject(
        ("likelihood of poses",), function, _stacked(states), tuple(labels), rng.normal(size=n) / n**0.5, SHORT
    )


def of_estimate(prior: float | None, seed: int) -> Subject:
    """What `identify` finds from torques that the guess explains already; x displaces record, guess and deviations.

    Without a prior, what is hardly seen has derivatives as large as one likes: finite is all that is asked.
    """
    rng, (states, labels) = np.random.default_rng(seed), _placed(seed)
    rods()  # outside of a trace, for it is kept
    size = 4 * 2 + 1

    def function(state: Any, x: jax.Array) -> jax.Array:
        m, record = _record("torques", state, x)
        unknowns = identification.masses(m, ["near"]) + identification.viscous(m) + identification.gear(m)
        tolerance = 1e-13 if x.dtype == jnp.float64 else None
        found = identification.identify(m, record, unknowns, prior=prior, tolerance=tolerance)
        return _numbers([found.x, found.covariance, found.cost])

    names = ("estimate", "covariance", "cost")
    distance = 0.0 if prior is None else np.inf
    direction = rng.normal(size=size) / 3
    return Subject(names, function, _stacked(states), tuple(labels), direction, SHORT, distance=distance)


DRIVERS: dict[str, Callable[[int], Subject]] = {
    "bounce of a sphere": partial(of_bounce, "sphere", False),
    "bounce of an ellipsoid": partial(of_bounce, "ellipsoid", False),
    "bounce of a sphere with friction": partial(of_bounce, "sphere", True),
    "maximal: pendulum": partial(of_pendulum, R3xSO3, {}),
    "maximal: pendulum on SE(3)": partial(of_pendulum, SE3, {"variant": "sigma_modified"}),
    "maximal: slider-crank": partial(of_slider_crank, R3xSO3, False),
    "maximal: slider-crank on SE(3), with a rod that rolls": partial(of_slider_crank, SE3, True),
    "maximal: free body": partial(of_free_body, False),
    "maximal: free body, a spring with a rest length": partial(of_free_body, True),
    **{f"likelihood of {kind}": partial(of_likelihood, kind) for kind in RECORDS},
    "likelihood of poses": of_poses,
    "identify with a prior": partial(of_estimate, 0.5),
    "identify": partial(of_estimate, None),
}
