"""Integrators, events and further functions at degenerate states, for `gradients.py`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import collisions, contact, forces, groups, identification, integrators, shapes, systems
from lgjax.multibody import conventions, mechanical_space
from soak.gradient_drivers import H, _numbers
from soak.gradient_mechanics import (
    SHORT,
    SIZES,
    _stacked,
    _words,
    ball,
    of_mechanism,
    points,
    speed,
    tree,
    turn,
)
from soak.gradient_rates import shoulder
from soak.gradient_subjects import Subject

STATES = 150
MOMENTS = {"equal moments": (0.1, 0.1, 0.1), "two equal moments": (0.1, 0.1, 0.15), "uneven": (0.1, 0.15, 0.2)}


# ---- integrators of a top
def _steps(method: Any, end: float = 0.2) -> Callable:
    """Two steps."""
    return lambda space, field, y, dtype: (
        integrators.integrate(space, field, y, 0.0, end, 2, method, save_every=None).ys
    )


def _adaptive(method: Any) -> Callable:
    """A tenth of a second with error control; its derivatives hold the lengths of the steps."""

    def run(space: Any, field: Callable, y: Any, dtype: Any) -> Any:
        tolerance = 1e-12 if dtype == jnp.float64 else 1e-5
        return integrators.integrate_adaptive(
            space, field, y, 0.0, 0.1, method, tolerance, tolerance, 100, jnp.asarray([0.03, 0.1], dtype)
        ).ys

    return run


def _reversible(space: Any, field: Callable, y: Any, dtype: Any) -> Any:
    """Two steps whose reverse mode goes back along them."""
    return integrators.integrate_reversible(space, field, y, 0.0, 0.2, 2, integrators.SymplecticLie(), None).ys


FRAME = groups.frame_space("turns", 3, lambda xi, y: groups.so3.compose(groups.so3.exp(xi), y), groups.so3.distance)


def _on_frame(space: Any, field: Callable, y: Any, dtype: Any) -> Any:
    """Two steps with the fields that turn about the axes of space, as of a manifold without a group."""
    space = groups.product_space(FRAME, groups.vector_space(3))
    return integrators.integrate(space, field, y, 0.0, 0.2, 2, CF(integrators.CF4), save_every=None).ys


MK, CF = integrators.MuntheKaas, integrators.CommutatorFree
METHODS: dict[str, tuple[str, Callable, bool | str]] = {
    "Munthe-Kaas": ("spatial", _steps(MK(integrators.RK4)), SHORT),
    "Munthe-Kaas, body": ("body", _steps(MK(integrators.DORMAND_PRINCE54)), SHORT),
    "Munthe-Kaas, both sides": ("two_sided", _steps(MK(integrators.RK4)), SHORT),
    "Crouch-Grossman": ("spatial", _steps(CF(integrators.CROUCH_GROSSMAN3)), SHORT),
    "commutator-free": ("spatial", _steps(CF(integrators.CF4)), SHORT),
    "order 8": ("spatial", _steps(MK(integrators.DORMAND_PRINCE85)), SHORT),
    "symplectic": ("cotangent", _steps(integrators.SymplecticLie()), SHORT),
    # A jump is longer than the step: turns by more than 5 rad have no solution.
    "symplectic, composed": ("cotangent", _steps(integrators.triple_jump(integrators.SymplecticLie()), 0.05), SHORT),
    "symplectic, Suzuki": ("cotangent", _steps(integrators.suzuki(integrators.SymplecticLie()), 0.05), SHORT),
    "reversible": ("cotangent", _reversible, "reverse alone"),
    "frame": ("spatial", _on_frame, SHORT),
    "coadjoint orbit": ("lie_poisson", _steps(MK(integrators.RK4)), SHORT),
    "adaptive": ("spatial", _adaptive(MK(integrators.DORMAND_PRINCE54)), SHORT),
}


def of_top(name: str, seed: int) -> Subject:
    """A top that hangs, stands, rests or spins slowly; x displaces the state, the moments and the lever."""
    rng, (form, run, second) = np.random.default_rng(seed), METHODS[name]
    states, labels = [(np.asarray(MOMENTS["equal moments"]), np.zeros(3), np.zeros(3))], ["hanging at rest"]
    for i in range(2 * STATES):
        kind = list(MOMENTS)[i % 3]
        states.append((np.asarray(MOMENTS[kind]), turn(rng), speed(rng, 3)))
        labels.append(f"{kind}, turned by {_words(states[-1][1])}, momentum {_words(states[-1][2])}")

    def function(state: Any, x: jax.Array) -> jax.Array:
        moments, turn, momentum = state
        top = systems.heavy_top(
            form, inertia=moments * (1 + 0.1 * x[6:9]), mass=1.0 + x[9], length=0.3 + x[10], axis=(0.0, 0.0, 1.0),
            angular_velocity=(0.0, 0.0, 0.0), dtype=x.dtype,
        )  # fmt: skip
        q, momentum = groups.so3.compose(groups.so3.exp(turn), groups.so3.exp(x[:3])), momentum + x[3:6]
        body = groups.so3.coAd(q, momentum)
        if form == "lie_poisson":
            y = jnp.concatenate([body, -groups.so3.coAd(q, jnp.asarray([0, 0, -9.81], x.dtype))])
        else:
            y = (q, body if form == "body" else momentum)
            y = groups.Covector(*y) if form == "cotangent" else y
        return _numbers([run(top.space, top.field, y, x.dtype), [top.invariants["energy"](y)]])

    direction = rng.normal(size=11) / 3
    return Subject((name, "energy"), function, _stacked(states), tuple(labels), direction, second)


def of_chain(form: str, seed: int) -> Subject:
    """A step of two masses that hang or stand in line, or nearly, at rest or moving; x moves the state."""
    rng = np.random.default_rng(seed)
    states = [(np.zeros((2, 3)), np.zeros((2, 3)))]
    states += [(np.stack([turn(rng), turn(rng)]), np.stack([speed(rng, 3), speed(rng, 3)])) for _ in range(2 * STATES)]
    labels = tuple(f"turned by {_words(w.ravel())}, turning by {_words(v.ravel())}" for w, v in states)

    def function(state: Any, x: jax.Array) -> jax.Array:
        turns, rates = state
        made = systems.spherical_pendulum(2, form, 1.0 + x[12], 1.0 + x[13], dtype=x.dtype)
        q = groups.so3.exp(turns)[..., 2]
        rates = rates - jnp.sum(rates * q, -1, keepdims=True) * q
        y = made.space.move(jnp.reshape(x[:12], (2, 6)), groups.TangentPoint(q, rates))
        end = integrators.integrate(made.space, made.field, y, 0.0, 0.1, 1, MK(integrators.HEUN2), save_every=None).ys
        return _numbers([end, [made.invariants["energy"](y)]])

    direction = rng.normal(size=14) / 4
    return Subject(("state", "energy"), function, _stacked(states), labels, direction, SHORT)


# ---- functions of a mechanism
def _taylor(m, q, v, x):
    run = integrators.integrate(mechanical_space(m.tree), lgjax.time_derivatives.motion_series(m), (q, v), 0.0, 0.02, 2,
                                integrators.Taylor(4), save_every=None)  # fmt: skip
    return run.ys, x


def _adaptive_rollout(m, q, v, x):
    tolerance = 1e-12 if x.dtype == jnp.float64 else 1e-5
    field = lambda t, y: (y[1], lgjax.forward_dynamics(m, *y, x))
    run = integrators.integrate_adaptive(mechanical_space(m.tree), field, (q, v), 0.0, 0.05,
                                         MK(integrators.DORMAND_PRINCE54), tolerance, tolerance, 20)  # fmt: skip
    return run.ys


FURTHER: dict[str, Callable] = {
    "bias_forces": lambda m, q, v, x: lgjax.bias_forces(m, q, v),
    "total_energy": lambda m, q, v, x: lgjax.dynamics.energy.total_energy(m, q, v),
    "centroidal_momentum_derivative": lambda m, q, v, x: lgjax.centroidal.centroidal_momentum_derivative(m, q, v),
    "center_of_mass_velocity": lambda m, q, v, x: lgjax.centroidal.center_of_mass_velocity(m, q, v),
    "retract": lambda m, q, v, x: lgjax.retract(m, q, v),
    "to_mujoco": lambda m, q, v, x: conventions.to_mujoco(m, q, v),
    "to_pinocchio": lambda m, q, v, x: conventions.to_pinocchio(m, q, v),
    "sum of forces": lambda m, q, v, x: (forces.spring(m, 2.0) + forces.damper(m, 0.3))(0.0, q, v),
}
LONG: dict[str, Callable] = {"Taylor series": _taylor, "adaptive rollout": _adaptive_rollout}


# ---- inertial parameters and shapes
def of_parameters(seed: int) -> Subject:
    """Coordinates of inertial parameters, and back, of balls, discs and bodies that are nearly flat."""
    rng = np.random.default_rng(seed)
    states, labels = [], []
    for i in range(STATES):
        squares = np.asarray([(1.0, 1.0, 1.0), (1.0, 1.0, 0.5), (1.0, 0.6, 1e-3), (1.0, 1.0, 1e-3)][i % 4])
        states.append((squares, turn(rng), rng.choice((0.0, 1.0)) * rng.normal(size=3)))
        labels.append(f"second moments {_words(squares)} turned by {_words(states[-1][1])}, center {states[-1][2]}")

    def function(state: Any, x: jax.Array) -> jax.Array:
        squares, turn, center = state
        turned = groups.so3.compose(groups.so3.exp(turn), groups.so3.exp(x[:3]))
        second = turned @ jnp.diag(squares * (1 + 0.1 * x[3:6])) @ turned.T
        mass, center = 1.0 + x[6], center + x[7:10]
        second = second + mass * jnp.outer(center, center)
        inertia = jnp.trace(second) * jnp.eye(3, dtype=x.dtype) - second
        ten = jnp.concatenate([jnp.stack([mass, *(mass * center)]), inertia[np.tril_indices(3)]])
        theta = identification.log_cholesky(ten)
        return _numbers(
            [theta, identification.from_log_cholesky(theta + 0.1), identification.from_log_cholesky(x[:10])]
        )

    names, direction = ("log_cholesky", "there and back", "from_log_cholesky"), rng.normal(size=10) / 3
    return Subject(names, function, _stacked(states), tuple(labels), direction, True)


MASSES: dict[str, Callable] = {
    "sphere": lambda s: shapes.sphere(s[0]),
    "ellipsoid": lambda s: shapes.ellipsoid(s),
    "box": lambda s: shapes.box(s),
    "capsule": lambda s: shapes.capsule(s[0], s[1]),
    "cylinder": lambda s: shapes.cylinder(s[0], s[1]),
}


def of_masses(seed: int) -> Subject:
    """Mass properties of placed shapes of even and uneven sizes."""
    rng = np.random.default_rng(seed)
    states = [(turn(rng), np.full(3, 0.2) if i % 2 else np.asarray([0.1, 0.2, 0.3])) for i in range(STATES)]
    labels = tuple(f"turned by {_words(w)}, sizes {_words(s)}" for w, s in states)

    def function(state: Any, x: jax.Array) -> jax.Array:
        pose = lgjax.se3.compose(lgjax.Pose(groups.so3.exp(state[0]), jnp.zeros(3, x.dtype)), lgjax.se3.exp(x[:6]))
        put = lambda make: shapes.placed(make(state[1] + x[6:9]), pose)
        return _numbers([shapes.mass_properties(put(make), 1.0 + x[9]) for make in MASSES.values()])

    return Subject(tuple(MASSES), function, _stacked(states), labels, rng.normal(size=10) / 3, True)


def of_gap_derivatives(name: str, seed: int) -> Subject:
    """First and second derivatives of gaps that the library offers, differentiated once more."""
    rng = np.random.default_rng(seed)
    states = [(turn(rng), np.full(3, 0.2) if i % 2 else np.asarray([0.1, 0.2, 0.3])) for i in range(2 * STATES)]
    labels = tuple(f"turned by {_words(w)}, sizes {_words(s)}" for w, s in states)

    def function(state: Any, x: jax.Array) -> jax.Array:
        place = lgjax.Pose(groups.so3.exp(state[0]), jnp.asarray([0.0, 0.0, 0.5], x.dtype))
        plane = shapes.Plane(jnp.asarray([0.0, 0.0, 1.0], x.dtype))
        pose = lgjax.se3.compose(place, lgjax.se3.exp(x[:6]))
        return _numbers([*shapes.gap_derivatives(MASSES[name](state[1] + x[6:9]), plane, pose)])

    # Where an edge lies flat, the farthest point jumps from one end to the other; to round-off it is the middle.
    heights = np.stack([np.asarray(groups.so3.exp(jnp.asarray(w)))[2] for w, _ in states])
    edges = {"capsule": [2], "cylinder": [2]}.get(name, [])
    distance = np.min(np.abs(heights[:, edges]), -1, initial=np.inf)
    names = ("gap's gradient", "second derivatives of the gap")
    direction = rng.normal(size=9) / 3
    return Subject(names, function, _stacked(states), labels, direction, SHORT, distance=distance)


# ---- events and impacts
INERTIA = np.asarray([0.02, 0.02, 0.03])  # kg m^2


def of_lagrangian_bounce(chart: str, seed: int) -> Subject:
    """Two steps from two poses, of an ellipsoid that falls, lands, grazes or flies; elastic.

    Finite is all that is asked of a body that grazes the ground, or lands within round-off of the end of a step, or
    turns so fast that no step has its momentum; in float32 also of one that is 1e-6 m above the ground.
    """
    rng = np.random.default_rng(seed)
    states, labels, distance = [], [], []
    for i in range(STATES):
        w, momentum = turn(rng), speed(rng, 6) if i % 2 else speed(rng, 6) - np.asarray([0, 0, 0, 0, 0, 1.0])
        sizes = np.asarray([0.2, 0.2, 0.2] if i % 3 == 0 else [0.2, 0.25, 0.3])
        lowest = np.linalg.norm(sizes * np.asarray(groups.so3.exp(jnp.asarray(w)))[2])
        height = rng.choice((1e-6, 1e-3, 5e-3, 0.012, 0.5))
        states.append((lowest + height, w, momentum, sizes))
        fast = H * np.max(np.abs(momentum[:3]) / INERTIA) > 0.9
        distance.append(0.0 if fast or (i % 2 and height < 0.1) else 1e-4 if height == 1e-6 else np.inf)
        labels.append(f"{height:g} m high, turned by {_words(w)}, sizes {_words(sizes)}, momentum {_words(momentum)}")

    def function(state: Any, x: jax.Array) -> jax.Array:
        z, w, momentum, sizes = state
        array = lambda y: jnp.asarray(y, x.dtype)
        body = collisions.RigidBody(array(1.0), jnp.diag(array(INERTIA)), array([0, 0, -9.81]))
        place = lgjax.Pose(groups.so3.exp(w), jnp.zeros(3, x.dtype).at[2].set(z))
        pose, momentum = lgjax.se3.compose(place, lgjax.se3.exp(x[:6])), momentum + x[6:12]
        now = collisions.RigidState(pose, momentum[:3], momentum[3:])
        before = collisions.variational_step(body, now, array(-H), chart)[0].pose
        found = collisions.lagrangian_bounce(
            body, shapes.ellipsoid(sizes + x[12:15]), shapes.Plane(array([0, 0, 1])), before, pose, H, 2, 3,
            save_every=None, record=4, chart=chart,
        )  # fmt: skip
        end = found.states
        return _numbers([end.pose.translation, end.pose.rotation, (end.angular, end.linear), found.energies])

    names, direction = ("place", "attitude", "momenta", "energies"), rng.normal(size=15) / 4
    return Subject(names, function, _stacked(states), tuple(labels), direction, SHORT, distance=np.asarray(distance))


def of_events(seed: int) -> Subject:
    """Three steps of a ball with rigid contacts by events: in the air, landing well within a step, sliding, rolling.

    Finite is all that is asked at rest, grazing, and where sliding ends at once.
    """
    rng, model = np.random.default_rng(seed), ball()
    cases = {
        "in the air": (0.5, (0, 0, 0, 0, 0, 0), 1), "in the air, turning": (0.5, (1, 2, 0, 1, 0, 0), 1),
        "landing": (0.104, (0, 0, 0, 0, 0, -1), 1), "landing, moving along": (0.104, (0, 0, 0, 1, 0.2, -1), 1),
        "landing, turning": (0.113, (1, 2, 0.5, 1, 0.3, -1), 1), "sliding": (0.1, (0, 0, 0, 1, 0.5, 0), 1),
        "resting": (0.1, (0, 0, 0, 0, 0, 0), 0), "grazing": (0.1, (0, 0, 0, 1, 0, 1e-12), 0),
        "rolling": (0.1, (0, 1.0, 0, 0.1, 0, 0), 0), "leaving": (0.1, (0, 0, 0, 1, 0, 0.5), 0),
        "hardly sliding": (0.1, (0, 0, 0, 1e-12, 0, 0), 0), "just above": (0.1 + 1e-12, (0, 0, 0, 1, 0, 0), 0),
        "just landing": (0.1 + 1e-6, (0, 0, 0, 0, 0, -1e-6), 0),
    }  # fmt: skip
    states, labels, distance = [], [], []
    for name, (z, v, far) in cases.items():
        for restitution in (0.0, 0.5, 1.0):
            for w in (np.zeros(3), turn(rng)):
                states.append((np.asarray(z), np.asarray(v, float), np.asarray(restitution), w))
                labels.append(f"{name}, restitution {restitution:g}, turned by {_words(w)}")
                distance.append(np.inf if far else 0.0)

    def function(state: Any, x: jax.Array) -> jax.Array:
        z, v, restitution, w = state
        m = model.astype(x.dtype)
        ground = shapes.Plane(jnp.asarray([0, 0, 1], x.dtype))
        law = restitution + x[12] * restitution * (1 - restitution)
        touching = lgjax.Contacts(m, ground, {"ball": shapes.sphere(jnp.asarray(0.1, x.dtype))},
                                  friction=0.5 + x[13], restitution=law)  # fmt: skip
        place = lgjax.Pose(groups.so3.exp(w), jnp.zeros(3, x.dtype).at[2].set(z))
        q = lgjax.retract(m, lgjax.configuration(m, place), x[:6])
        tolerance = (1e-11, 1e-13) if x.dtype == jnp.float64 else (1e-5, 1e-6)
        path = lgjax.rollout(m, q, v + x[6:12], None, H, 3, contact.EventDriven(*tolerance), None, contacts=touching)
        return _numbers([path.q.free_poses.translation, path.q.free_poses.rotation, path.v])

    names, direction = ("place", "attitude", "velocity"), rng.normal(size=14) / 4
    # False: there are no second derivatives
    return Subject(names, function, _stacked(states), tuple(labels), direction, False, distance=np.asarray(distance))


def of_stop(seed: int) -> Subject:
    """A pendulum stopped where it passes a given angle, by `integrate_adaptive(event=)`."""
    rng = np.random.default_rng(seed)
    states = [(np.asarray(s * a), np.asarray(v)) for s in (1, -1) for a in SIZES for v in (0.5, 1.0, -1.0)]
    labels = tuple(f"at {a:.9g} moving by {v:g}" for a, v in states)

    def function(state: Any, x: jax.Array) -> jax.Array:
        angle, rate = state[0] + x[0], state[1] + x[1]
        field = lambda t, y: (jnp.stack([0 * y[1][0], y[1][0], 0 * y[1][0]]), -(1 + x[2]) * jnp.stack([y[0][0, 2]]))
        space = groups.product_space(groups.right_translation(groups.SO3), groups.vector_space(1))
        y0 = (groups.so3.exp(jnp.stack([0 * angle, angle, 0 * angle])), rate[None])
        goal = 0.02 * jnp.sign(state[1]) + x[3]
        passed = lambda t, y: groups.so3.log(y0[0].T @ y[0])[1] - goal
        tolerance = 1e-12 if x.dtype == jnp.float64 else 1e-5
        run = integrators.integrate_adaptive(space, field, y0, 0.0, 1.0, MK(integrators.DORMAND_PRINCE54), tolerance,
                                             tolerance, 60, event=passed)  # fmt: skip
        return _numbers([run.ys, [run.ts]])

    direction = rng.normal(size=4) / 2
    return Subject(("state", "time"), function, _stacked(states), labels, direction, SHORT)


STEPS: dict[str, Callable[[int], Subject]] = {
    **{f"top, {name}": partial(of_top, name) for name in METHODS},
    **{f"chain of two masses, {form}": partial(of_chain, form) for form in ("chain", "dense")},
    **{
        f"{name} of {where}": partial(of_mechanism, make, {name: f}, SHORT)
        for name, f in FURTHER.items()
        for where, make in (("a tree", tree), ("point masses", points))
    },
    **{
        f"{name} of {where}": partial(of_mechanism, make, {name: f}, name == "Taylor series" and SHORT)
        for name, f in LONG.items()  # near rest, lengths of steps that are held fixed change second derivatives
        for where, make in (("a shoulder", shoulder), ("point masses", points))
    },
    "inertial parameters": of_parameters,
    "mass properties": of_masses,
    **{f"gap derivatives: {name}": partial(of_gap_derivatives, name) for name in MASSES},
    **{f"Lagrangian bounce, {chart}": partial(of_lagrangian_bounce, chart) for chart in ("cayley", "exp")},
    "contacts by events": of_events,
    "stopped by an event": of_stop,
}
