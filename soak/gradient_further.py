"""Further shapes, contacts, steps and members of absolute coordinates at degenerate states, for `gradients.py`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import collisions, contact, control, groups, identification, maximal, shapes
from lgjax.multibody import conventions
from soak.gradient_drivers import ALONG_Y, H, _method, _numbers, _turned
from soak.gradient_mechanics import (
    SHORT,
    _stacked,
    _touching,
    _words,
    ball,
    cart,
    of_mechanism,
    of_shape,
    points,
    tree,
    turn,
)
from soak.gradient_subjects import Subject

STATES = 150

# ---- shapes
FURTHER_SHAPES: dict[str, Callable] = {
    "intersection": lambda s: shapes.intersection(shapes.box(s), shapes.sphere(0.6 * (s[0] + s[1]))),
    "difference": lambda s: shapes.intersection(
        shapes.ellipsoid(s), shapes.complement(shapes.sphere(0.5 * s[0], 0.7 * s))
    ),
    "implicit surface": lambda s: shapes.implicit(lambda p, s: jnp.sum((p / s) ** 4) - 1, jnp.zeros_like(s), (s,)),
    "support function": lambda s: shapes.support(lambda d, s: s * s * d / jnp.sqrt(jnp.sum((s * d) ** 2)), (s,)),
    "rounded cylinder": lambda s: shapes.rounded(shapes.cylinder(s[0], s[1]), 0.1 * s[2]),
    "recentered": lambda s: shapes.recentered(shapes.placed(shapes.box(s), lgjax.Pose(jnp.eye(3, dtype=s.dtype), s))),
}

# ---- contacts
CONTACTS: dict[str, Callable] = {
    "contact_points": lambda m, q, v, x: contact.contact_points(m, _touching(m), q)[:3],
    "contact_velocities": lambda m, q, v, x: contact.contact_velocities(m, _touching(m), q, v),
    "contact_torques": lambda m, q, v, x: contact.contact_torques(m, _touching(m), q, jnp.ones((2, 3), x.dtype)),
}


def of_landing(ground: str, seed: int) -> Subject:
    """Three steps of time stepping of a ball that bounces, slides, rolls, rests or flies, on a plane or on bumps.

    Finite is all that is asked of what grazes, rests or just lands: there the motion jumps, or one side differs.
    """
    rng, model = np.random.default_rng(seed), ball()
    cases = {
        "in the air": (0.5, (1, 2, 0, 1, 0, 0), 1), "landing": (0.104, (0, 0, 0, 0, 0, -1), 1),
        "landing, moving along": (0.104, (0, 0, 0, 1, 0.2, -1), 1), "inside": (0.095, (1, 0, 0, 1, 0.2, -0.1), 1),
        "sliding": (0.0999, (0, 0, 0, 1, 0.5, -0.01), 1), "sliding, turning": (0.0999, (1, 2, 0.5, 1, 0.5, -0.01), 1),
        "rolling": (0.1, (0, 1.0, 0, 0.1, 0, 0), 0), "resting": (0.1, (0, 0, 0, 0, 0, 0), 0),
        "grazing": (0.1, (0, 0, 0, 1, 0, 1e-12), 0), "hardly sliding": (0.0999, (0, 0, 0, 1e-12, 0, 0), 0),
        "just above": (0.1 + 1e-12, (0, 0, 0, 1, 0, 0), 0),
    }  # fmt: skip
    states, labels, distance = [], [], []
    for name, (z, v, far) in cases.items():
        for restitution in (0.0, 0.5, 1.0):
            for w in (np.zeros(3), turn(rng), turn(rng)):
                states.append((np.asarray(z), np.asarray(v, float), np.asarray(restitution), w))
                labels.append(f"{name}, restitution {restitution:g}, turned by {_words(w)}")
                distance.append(np.inf if far else 0.0)
    bumps = 0.01 * rng.normal(size=(4, 4)) if ground == "bumps" else None

    def function(state: Any, x: jax.Array) -> jax.Array:
        z, v, restitution, w = state
        m = model.astype(x.dtype)
        plane = shapes.Plane(jnp.asarray([0, 0, 1], x.dtype))
        terrain = plane if bumps is None else contact.HeightField(jnp.asarray(bumps, x.dtype), 1.0 + x[14])
        law = restitution + x[12] * restitution * (1 - restitution)
        touching = lgjax.Contacts(m, terrain, {"ball": shapes.sphere(jnp.asarray(0.1, x.dtype))},
                                  friction=0.5 + x[13], restitution=law)  # fmt: skip
        place = lgjax.Pose(groups.so3.exp(w), jnp.asarray([0.1, 0.2, 0.0], x.dtype).at[2].set(z))
        q = lgjax.retract(m, lgjax.configuration(m, place), x[:6])
        method = contact.TimeStepping(1e-14 if x.dtype == jnp.float64 else None)
        path = lgjax.rollout(m, q, v + x[6:12], None, H, 3, method, None, contacts=touching)
        return _numbers([path.q.free_poses.translation, path.q.free_poses.rotation, path.v])

    names, direction = ("place", "attitude", "velocity"), rng.normal(size=15) / 4
    return Subject(names, function, _stacked(states), tuple(labels), direction, SHORT, distance=np.asarray(distance))


# ---- absolute coordinates
VARIANTS: dict[str, dict] = {
    "geometric stiffness": {"geometric_stiffness": True},
    "without the tangent operator": {"tangent_operator": False},
    "predictor of zero": {"predictor": "zero"},
    "undamped": {"spectral_radius": 1.0},
}


def _angle(t: jax.Array) -> jax.Array:
    return 0.3 * jnp.sin(2.0 * t)


def of_driven(name: str, seed: int) -> Subject:
    """A driven arm with a bob on a ball joint, a user's force and constraint, and a vector beside them."""
    rng = np.random.default_rng(seed)
    states, labels = _turned(rng)

    def function(state: Any, x: jax.Array) -> jax.Array:
        turn, omega = state
        about_y = groups.so3.exp(jnp.asarray([0.0, 1.0, 0.0], x.dtype) * _angle(jnp.zeros((), x.dtype)))
        rotation = groups.so3.compose(groups.so3.exp(turn), groups.so3.exp(x[:3]))
        inertia = jnp.asarray([0.02, 0.02, 0.03], x.dtype)
        nodes = [maximal.Body("arm", 1.0 + x[3], inertia), maximal.Body("bob", 0.5 + x[4], inertia),
                 maximal.VectorNode("w", 2, 1.0 + x[5])]  # fmt: skip
        lever = jnp.asarray([0.0, 0.0, 0.2], x.dtype)
        joints = [
            maximal.Joint("motor", "revolute", "world", "arm", frame_a=ALONG_Y, frame_b=ALONG_Y, drive=_angle),
            maximal.Joint("ball", "spherical", "arm", "bob", (0.3, 0.0, 0.0), lever),
            maximal.UserConstraint("ratio", lambda t, q, p: q.coordinates[:1] - p * q.coordinates[1:], 1, 0.5 + x[6]),
        ]
        force = lambda t, q, v, p: -p * v + 0.1 * jnp.sin(v)
        system = maximal.System(nodes, joints, [maximal.Gravity(), maximal.UserForce(force, 0.2 + x[7])], dtype=x.dtype)
        pin = jnp.asarray([0.3, 0.0, 0.0], x.dtype)
        spin = jnp.stack([jnp.asarray([0.0, 0.6, 0.0], x.dtype), omega + x[8:11]])
        pin_rate = groups.so3.act(about_y, jnp.cross(spin[0], pin))
        places = jnp.stack([0 * pin, groups.so3.act(about_y, pin) - groups.so3.act(rotation, lever)])
        rates = jnp.stack([0 * pin, pin_rate - groups.so3.act(rotation, jnp.cross(spin[1], lever))])
        w = jnp.stack([0.5 + x[6], jnp.ones((), x.dtype)])
        q = system.configuration(jnp.stack([about_y, rotation]), places, w)
        v = system.velocity(q, spin, rates, 0 * w)
        found = maximal.integrate(system, q, v, 0.0, 2 * H, 2, _method(x.dtype, **VARIANTS[name]), save_every=None)
        end = jax.tree.map(lambda y: y[-1], (found.q, found.v, found.multipliers))
        return _numbers([end[0], end[1], 0.1 * end[2]])

    names = ("configuration", "velocity", "multipliers")
    return Subject(names, function, _stacked(states), tuple(labels), rng.normal(size=11) / 4, SHORT)


# ---- the Lagrangian form
def of_lagrangian(chart: str, seed: int) -> Subject:
    """The pose after two, and momenta of a step, of a body at rest, turned by pi, and with equal moments."""
    rng = np.random.default_rng(seed)
    states, labels = _turned(rng)
    moments = [np.full(3, 0.1) if i % 2 else np.asarray([0.1, 0.1, 0.15]) for i in range(len(states))]

    def function(state: Any, x: jax.Array) -> jax.Array:
        (turn, omega), moments = state
        array = lambda y: jnp.asarray(y, x.dtype)
        body = collisions.RigidBody(array(1.0), jnp.diag(moments), array([0, 0, -9.81]))
        start = lgjax.se3.compose(lgjax.Pose(groups.so3.exp(turn), jnp.zeros(3, x.dtype)), lgjax.se3.exp(x[:6]))
        step = lgjax.se3.exp(jnp.concatenate([0.01 * omega, jnp.zeros(3, x.dtype)]) + x[6:12])
        end, _ = collisions.lagrangian_step(body, start, lgjax.se3.compose(start, step), H, 0.5 * H, chart)
        return _numbers([end])

    placed = _stacked(list(zip(states, moments, strict=True)))
    return Subject(("pose",), function, placed, tuple(labels), rng.normal(size=12) / 40, SHORT)


# ---- functions of a mechanism
def _there_and_back(there: Callable, back: Callable) -> Callable:
    def function(m: lgjax.Model, q: Any, v: Any, x: jax.Array) -> Any:
        state = there(m, q, v, x)
        return back(m, state.q, state.v, state.vdot)

    return function


def _with_other_inertias(m: lgjax.Model, q: Any, v: Any, x: jax.Array) -> jax.Array:
    other = identification.inertial_parameters(m) * (1 + 0.1 * x[0])
    return lgjax.forward_dynamics(identification.with_inertial_parameters(m, other), q, v, x)


FURTHER: dict[str, Callable] = {
    "from_mujoco": _there_and_back(conventions.to_mujoco, conventions.from_mujoco),
    "from_pinocchio": _there_and_back(conventions.to_pinocchio, conventions.from_pinocchio),
    "with_inertial_parameters": _with_other_inertias,
    "cost of controls": lambda m, q, v, x: control.costs.control(0.1, 2.0)(0.0, (q, v), x),
}


ADDED: dict[str, Callable[[int], Subject]] = {
    **{f"shape: {name}": partial(of_shape, name, make, SHORT) for name, make in FURTHER_SHAPES.items()},
    **{f"{name} of a cart": partial(of_mechanism, cart, {name: f}, SHORT) for name, f in CONTACTS.items()},
    **{
        f"{name} of {where}": partial(of_mechanism, make, {name: f}, SHORT)
        for name, f in FURTHER.items()
        for where, make in (("a tree", tree), ("point masses", points))
    },
    **{f"time stepping on {ground}": partial(of_landing, ground) for ground in ("a plane", "bumps")},
    **{f"maximal: driven, {name}": partial(of_driven, name) for name in VARIANTS},
    **{f"Lagrangian step, {chart}": partial(of_lagrangian, chart) for chart in ("cayley", "exp")},
}
