"""Mechanisms, forces, shapes and steps at degenerate states, for `gradients.py`.

A subject is one function, for compiling costs more than anything else: some seconds for a function, however many the
states are, and minutes for all functions of a mechanism in one program.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import collisions, contact, control, forces, integrators, shapes
from soak.gradient_subjects import Subject, weigh

PI = np.pi
SHORT = "forward over reverse"


# ---- mechanisms
@cache
def tree() -> lgjax.Model:
    """A floating base with a universal and a spherical joint; two of the bodies are balls."""
    even, uneven = 0.02 * np.eye(3), np.diag([0.02, 0.03, 0.04])
    body = lambda name, parent, joint, inertia, **more: lgjax.Body(
        name, parent, joint, position=np.asarray([0.0, 0.0, 0.0 if parent is None else 0.3]), mass=1.0,
        com=np.asarray([0.0, 0.0, 0.1]), inertia=inertia, **more
    )  # fmt: skip
    joint = lambda kind, **more: lgjax.Joint(f"{kind} joint", kind, **more)
    return lgjax.build([
        body("base", None, joint("free"), even),
        body("cross", "base", joint("universal", axis=(1.0, 0.0, 0.0), second_axis=(0.0, 1.0, 0.0)), uneven),
        body("ball", "cross", joint("spherical"), even),
    ])  # fmt: skip


@cache
def cart() -> lgjax.Model:
    """A floating base with a revolute and a prismatic joint."""
    inertia = 0.02 * np.eye(3)
    body = lambda name, parent, joint: lgjax.Body(
        name, parent, joint, position=np.asarray([0.0, 0.0, 0.3 if parent else 0.0]), mass=1.0, inertia=inertia
    )
    return lgjax.build([
        body("base", None, lgjax.Joint("free joint", "free")),
        body("arm", "base", lgjax.Joint("revolute joint", "revolute", axis=(0.0, 1.0, 0.0), lower=-1.0, upper=1.0)),
        body("slide", "arm", lgjax.Joint("prismatic joint", "prismatic", lower=-0.5, upper=0.5)),
    ])  # fmt: skip


@cache
def points() -> lgjax.Model:
    """Two point masses on massless rods, straight at zero: no inertia about their own centers."""
    body = lambda name, parent: lgjax.Body(
        name, parent, lgjax.Joint(f"to {name}", "revolute", axis=(0.0, 1.0, 0.0)), mass=1.0,
        position=np.asarray([0.0, 0.0, -1.0 if parent else 0.0]), com=np.asarray([0.0, 0.0, -1.0]),
    )  # fmt: skip
    return lgjax.build([body("near", None), body("far", "near")])


SIZES = (0.0, 1e-30, 1e-12, 1e-9, 1e-6, 1e-3, 0.7, PI / 2 - 1e-6, PI / 2, PI - 1e-3, PI - 1e-6, PI)
SPEEDS = (0.0, 1e-30, 1e-12, 1e-6, 1e-2, 1.0)  # 1e-2: where tanh(100 v) bends
STATES = 500  # of a mechanism


def turn(rng: np.random.Generator) -> np.ndarray:
    """A rotation vector about an axis of the frame or another."""
    axis = rng.normal(size=3) if rng.random() < 0.5 else np.eye(3)[rng.integers(3)]
    return rng.choice((-1, 1)) * rng.choice(SIZES) * axis / np.linalg.norm(axis)


def speed(rng: np.random.Generator, n: int) -> np.ndarray:
    """A velocity in all directions or along one."""
    return rng.choice(SPEEDS) * (rng.normal(size=n) if rng.random() < 0.5 else np.eye(n)[rng.integers(n)])


def degenerate(model: lgjax.Model, rng: np.random.Generator) -> tuple[list, list[str]]:
    """(displacement from neutral, velocity): the neutral one at rest, then joints at degenerate places by chance."""
    limits = np.asarray([*model.lower, *model.upper])
    angles = [*SIZES, *(x for x in limits if np.isfinite(x))]
    one = lambda: rng.choice((-1, 1)) * rng.choice(angles)
    place = {
        "free": lambda: [*turn(rng), 0.0, 0.0, 0.0],
        "spherical": lambda: turn(rng),
        "universal": lambda: [one(), one()],
        "revolute": lambda: [one()],
        "prismatic": lambda: [one()],
    }
    states = [(np.zeros(model.nv), np.zeros(model.nv))]
    makers = [place.get(kind.name, place["revolute"]) for kind in model.tree.kinds]  # a user's kind has one coordinate
    while len(states) < STATES:
        states.append((np.concatenate([make() for make in makers]), speed(rng, model.nv)))
    return states, [f"at {_words(x)} moving by {_words(v)}" for x, v in states]


def _words(x: np.ndarray) -> str:
    return "(" + ", ".join(f"{float(y):.9g}" for y in x) + ")"


def of_mechanism(make: Callable, functions: dict[str, Callable], second: bool | str, seed: int) -> Subject:
    """Functions (model, q, v, x) at displaced states; x displaces q and v, and is the force."""
    rng, model = np.random.default_rng(seed), make()
    states, labels = degenerate(model, rng)
    n = model.nv

    def results(state: Any, x: jax.Array) -> dict[str, Any]:
        m = model.astype(x.dtype)
        start = lgjax.retract(m, lgjax.neutral(m), state[0])
        q, v = lgjax.retract(m, start, x[:n]), state[1] + x[n : 2 * n]
        found = {name: f(m, q, v, x[2 * n :]) for name, f in functions.items()}
        return found | ({"difference from itself": lgjax.difference(m, start, q)} if "difference" in found else {})

    first = tuple(jnp.asarray(x) for x in states[0])
    weights = {name: weigh(rng, tree) for name, tree in jax.eval_shape(results, first, jnp.zeros(3 * n)).items()}

    def function(state: Any, x: jax.Array) -> jax.Array:
        found = results(state, x)
        return jnp.stack([weigh(found[name]) for name, weigh in weights.items()])

    d = rng.normal(size=3 * n) / np.sqrt(3 * n)
    return Subject(tuple(weights), function, _stacked(states), tuple(labels), d, second)


def _stacked(states: list) -> Any:
    return jax.tree.map(lambda *x: np.stack(x), *states)


def _at_rest(m: lgjax.Model) -> lgjax.Pose:
    """Of the last body in the neutral configuration: what a cost asks for is reached at some states."""
    return lgjax.frame_pose(m, lgjax.neutral(m), m.tree.body_names[-1])


PLACES = {
    "forward_kinematics": lambda m, q, v, x: lgjax.forward_kinematics(m, q),
    "body_twists": lambda m, q, v, x: lgjax.body_twists(m, q, v),
    "jacobian": lambda m, q, v, x: lgjax.jacobian(m, q, m.tree.body_names[-1], "world"),
    "jacobian_derivative": lambda m, q, v, x: lgjax.jacobian_derivative(m, q, v, m.tree.body_names[-1], "world"),
    "center_of_mass": lambda m, q, v, x: lgjax.center_of_mass(m, q),
    "difference": lambda m, q, v, x: lgjax.difference(m, lgjax.neutral(m), q),
}
ENERGIES = {
    "kinetic_energy": lambda m, q, v, x: lgjax.kinetic_energy(m, q, v),
    "potential_energy": lambda m, q, v, x: lgjax.potential_energy(m, q),
    "momentum": lambda m, q, v, x: lgjax.momentum(m, q, v),
    "centroidal_momentum_matrix": lambda m, q, v, x: lgjax.centroidal_momentum_matrix(m, q),
    "mass_matrix": lambda m, q, v, x: lgjax.mass_matrix(m, q),
    "coriolis_matrix": lambda m, q, v, x: lgjax.coriolis_matrix(m, q, v),
}
DYNAMICS = {
    "forward_dynamics": lambda m, q, v, x: lgjax.forward_dynamics(m, q, v, x),
    "inverse_dynamics": lambda m, q, v, x: lgjax.inverse_dynamics(m, q, v, x),
    "gravity_forces": lambda m, q, v, x: lgjax.gravity_forces(m, q),
    "solve_mass_matrix": lambda m, q, v, x: lgjax.solve_mass_matrix(m, q, x + 1),
}
HYBRID = {
    "hybrid_dynamics": lambda m, q, v, x: lgjax.hybrid_dynamics(m, q, v, x, x, prescribed=(0,)),
}
FURTHER = {
    "regressor": lambda m, q, v, x: lgjax.identification.regressor(m, q, v, x),
    "cost of a frame": lambda m, q, v, x: control.costs.frame(m, m.tree.body_names[-1], _at_rest(m))((q, v)),
    "cost of a frame's place": lambda m, q, v, x: control.costs.frame_position(
        m, m.tree.body_names[-1], _at_rest(m).translation
    )((q, v)),
    "cost of momentum": lambda m, q, v, x: control.costs.momentum(m)((q, v)),
    "cost of a state": lambda m, q, v, x: control.costs.state(m, (lgjax.neutral(m), jnp.zeros_like(v)))((q, v)),
    "cost of forces": lambda m, q, v, x: control.costs.forces(m)(0.0, (q, v), x),
}
STEPS = {
    "rollout": lambda m, q, v, x: lgjax.rollout(m, q, v, lambda t, q, v: x, 0.01, 1, save_every=None)[1:3],
}


# ---- forces
def _touching(m: lgjax.Model) -> lgjax.Contacts:
    arm = shapes.sphere(0.05, (0.0, 0.0, 0.2))
    return lgjax.Contacts(m, shapes.Plane((0.0, 0.0, 1.0), 0.0), {"arm": arm, "base": shapes.sphere(0.1)})


BASE, MOVED = ("base", np.zeros(3)), ("revolute joint", "prismatic joint")
FORCES: dict[str, Callable] = {
    "spring": lambda m: forces.spring(m, 2.0),
    "damper": lambda m: forces.damper(m, 0.3),
    "dry friction": lambda m: forces.friction(m, 0.1, 0.5, 0.01),
    "limits": lambda m: forces.limits(m, 10.0, 0.2, 0.01),
    "limits at zero": lambda m: forces.limits(m, 10.0, 0.2, 0.01, lower=0.0, upper=0.0, joints=MOVED),
    "motors": lambda m: forces.motors(m, lambda t, q, v: 0.1 * v[-2:], 2.0, 0.1, 3.0, 5.0, joints=MOVED),
    "spring of points that coincide": lambda m: forces.point_spring(m, BASE, BASE, 3.0, 0.5, 0.2),
    "spring of points": lambda m: forces.point_spring(m, BASE, (None, np.zeros(3)), 3.0, 0.5, 0.2),
    "spring without length": lambda m: forces.point_spring(m, ("arm", np.zeros(3)), (None, np.zeros(3)), 3.0),
    "spring without length of points that meet": lambda m: forces.point_spring(m, BASE, (None, np.zeros(3)), 3.0),
    "contact": lambda m: forces.contact(m, _touching(m), 100.0, 0.1, 1.0),
    "contact of balls": lambda m: forces.contact(m, _touching(m), 100.0, 0.1, 1.5),
}
DISSIPATIVE = ("damper", "dry friction", "motors")


def of_force(name: str, second: bool | str, seed: int) -> Subject:
    """A force; one of contacts also at a base that is lifted so that its ball just touches the ground."""

    def lifted(m: lgjax.Model, q: Any, v: Any, x: Any) -> Any:
        up = q._replace(free_poses=q.free_poses._replace(translation=q.free_poses.translation.at[..., 2].add(0.1)))
        return FORCES[name](m)(0.0, up, v)

    functions = {name: lambda m, q, v, x: FORCES[name](m)(0.0, q, v)}
    if name not in DISSIPATIVE:
        functions["its energy"] = lambda m, q, v, x: FORCES[name](m).energy(q)
    if name.startswith("contact"):
        functions["grazing"] = lifted
    return of_mechanism(cart, functions, second, seed)


# ---- shapes
SHAPES: dict[str, Callable] = {
    "sphere": lambda s: shapes.sphere(s[0]),
    "ellipsoid": lambda s: shapes.ellipsoid(s),
    "capsule": lambda s: shapes.capsule(s[0], s[1]),
    "cylinder": lambda s: shapes.cylinder(s[0], s[1]),
    "box": lambda s: shapes.box(s),
    "rounded box": lambda s: shapes.box(s, rounding=0.1 * s[0]),
    "polyhedron": lambda s: shapes.polyhedron(jnp.concatenate([jnp.diag(s), -jnp.ones((1, 3), s.dtype) * s])),
    "union": lambda s: shapes.union(shapes.sphere(s[0]), shapes.box(s)),
    "placed": lambda s: shapes.placed(shapes.cylinder(s[0], s[1]), lgjax.Pose(jnp.eye(3, dtype=s.dtype), 0.1 * s)),
}


def of_shape(name: str, make: Callable, second: bool | str, seed: int) -> Subject:
    """Gap over a plane of a shape that stands on faces, edges, corners and axes; x displaces the pose and the sizes."""
    rng = np.random.default_rng(seed)
    turns = [np.zeros(3), *(turn(rng) for _ in range(299)), np.asarray([PI / 4, 0.0, 0.0])]
    sizes = [np.asarray([0.1, 0.2, 0.3]), np.full(3, 0.2)]  # uneven and even
    states = [(w, sizes[i % 2]) for i, w in enumerate(turns)]

    def function(state: Any, x: jax.Array) -> jax.Array:
        w, sizes = state
        pose = lgjax.se3.compose(
            lgjax.Pose(lgjax.so3.exp(w), jnp.asarray([0.0, 0.0, 0.5], x.dtype)), lgjax.se3.exp(x[:6])
        )
        plane = shapes.Plane(jnp.asarray([0.0, 0.0, 1.0], x.dtype))
        return jnp.sum(shapes.gap(make(sizes + x[6:]), plane, pose).gap)[None]

    labels = tuple(f"turned by {_words(w)}, sizes {_words(s)}" for w, s in states)
    return Subject((name,), function, _stacked(states), labels, rng.normal(size=9) / 3, second)


# ---- steps of bodies and contacts
def of_bodies(chart: str, seed: int) -> Subject:
    """Variational steps and energies of a body at rest, turned by pi, and with equal moments."""
    rng = np.random.default_rng(seed)
    inertias = {"equal moments": (0.1, 0.1, 0.1), "two equal moments": (0.1, 0.1, 0.15), "flat": (0.1, 0.1, 0.2)}
    states, labels = [], []
    for i in range(300):
        name = list(inertias)[i % 3]
        states.append((np.asarray(inertias[name]), turn(rng), speed(rng, 6)))
        labels.append(f"{name}, turned by {_words(states[-1][1])}, momentum {_words(states[-1][2])}")

    def function(state: Any, x: jax.Array) -> jax.Array:
        moments, turn, momentum = state
        zero = jnp.zeros(3, x.dtype)
        body = collisions.RigidBody(jnp.ones((), x.dtype), jnp.diag(moments), jnp.asarray([0, 0, -9.81], x.dtype))
        pose = lgjax.se3.compose(lgjax.Pose(lgjax.so3.exp(turn), zero), lgjax.se3.exp(x[:6]))
        momentum = momentum + x[6:12]
        start = collisions.RigidState(pose, momentum[:3], momentum[3:])
        after, _ = collisions.variational_step(body, start, jnp.asarray(0.01, x.dtype), chart)
        found = sum(jnp.sum(jnp.sin(k + y)) for k, y in enumerate(jax.tree.leaves(after)))
        return jnp.stack([found, collisions.total_energy(body, start)])

    names = ("variational step", "total energy")
    return Subject(names, function, _stacked(states), tuple(labels), rng.normal(size=12) / 4, SHORT)


@cache
def ball() -> lgjax.Model:
    return lgjax.build([lgjax.Body("ball", None, lgjax.Joint("free", "free"), mass=1.0, inertia=0.1 * np.eye(3))])


def of_contact_step(smoothing: float, seed: int) -> Subject:
    """A step of a ball that rests, grazes, slides, sticks, or has left the ground."""
    rng = np.random.default_rng(seed)
    cases = {
        "resting": (0.1, (0, 0, 0), 0), "just touching, moving along": (0.1, (1, 0, 0), 0),
        "grazing": (0.1 + 0.01 * 9.81 * 0.01, (1, 0, 0), 0), "sliding": (0.099, (1, 0.5, 0), 0),
        "landing": (0.101, (0, 0, -1), 0), "in the air": (0.5, (0, 0, 0), 0), "rolling": (0.1, (0.1, 0, 0), 1.0),
        "leaving": (0.1, (0, 0, 1), 0), "hardly sliding": (0.0999, (1e-12, 0, 0), 0),
    }  # fmt: skip
    states = [(np.asarray(z), np.asarray([0, spin, 0, *v], float)) for z, v, spin in cases.values()]
    heights = [0.1 + x for x in (0.0, 1e-12, -1e-12, 1e-6, -1e-6, 0.01 * 9.81 * 0.01, -1e-3, 1e-3)]
    states += [(np.asarray(rng.choice(heights)), speed(rng, 6)) for _ in range(300)]
    labels = (*cases, *(f"at {z:.15g}, moving by {_words(v)}" for z, v in states[len(cases) :]))

    model = ball()  # outside of a trace, for it is kept

    def function(state: Any, x: jax.Array) -> jax.Array:
        z, v = state
        m = model.astype(x.dtype)
        ground = shapes.Plane(jnp.asarray([0, 0, 1], x.dtype))
        touching = lgjax.Contacts(m, ground, {"ball": shapes.sphere(jnp.asarray(0.1, x.dtype))}, friction=0.5,
                                  smoothing=smoothing)  # fmt: skip
        q = lgjax.neutral(m)
        q = q._replace(free_poses=q.free_poses._replace(translation=q.free_poses.translation.at[0, 2].set(z)))
        q = lgjax.retract(m, q, x[:6])
        found = contact.contact_step(m, touching, q, v + x[6:12], x[12:], 0.01)
        parts = (found.q.free_poses.translation, found.q.free_poses.rotation, found.v, found.impulse)
        return jnp.stack([jnp.sum(jnp.sin(1.0 + part)) for part in parts])

    names = ("place", "attitude", "velocity", "impulse")
    return Subject(names, function, _stacked(states), labels, rng.normal(size=18) / 4, SHORT)


# ---- loops
@cache
def parallelogram() -> tuple:
    """A four-bar linkage whose bars all lie in one line at zero, where its rank falls."""
    bar = lambda name, parent, length, place: lgjax.Body(
        name, parent, lgjax.Joint(f"to {name}", "revolute", axis=(0.0, 1.0, 0.0)), mass=1.0,
        position=np.asarray([place, 0.0, 0.0]), com=np.asarray([length / 2, 0.0, 0.0]), inertia=0.01 * np.eye(3),
    )  # fmt: skip
    model = lgjax.build(
        [bar("crank", None, 1.0, 0.0), bar("coupler", "crank", 2.0, 1.0), bar("rocker", None, 1.0, 2.0)]
    )
    loops = (lgjax.Loop("point", "coupler", "rocker", (2.0, 0.0, 0.0), (1.0, 0.0, 0.0)),)
    return model, loops


def _rolled(m: lgjax.Model, loops: Any, q: Any, v: jax.Array, tau: jax.Array) -> jax.Array:
    euler = lgjax.MuntheKaas(integrators.LIE_EULER)  # each stage has to be compiled
    path = lgjax.rollout(m, q, v, lambda t, q, v: tau, 0.01, 2, method=euler, save_every=None, loops=loops)
    return path.q.joints[0] + path.v[0]


LOOPS: dict[str, Callable] = {
    "constrained_forward_dynamics": lambda *s: lgjax.constrained_forward_dynamics(*s).vdot,
    "constrained_inverse_dynamics": lambda *s: lgjax.constrained_inverse_dynamics(*s, actuated=(0,)).tau,
    "constrained_hybrid_dynamics": lambda *s: lgjax.constrained_hybrid_dynamics(*s, s[-1], (0,)).vdot,
    "loop_residual": lambda *s: lgjax.loops.loop_residual(*s[:-2]),
    "project_velocity": lambda *s: lgjax.project_velocity(*s[:-1]),
    "project_positions": lambda *s: lgjax.project_positions(*s[:-2]).q.joints,
    "rollout": _rolled,
}


def of_loops(name: str, seed: int) -> Subject:
    """Constrained dynamics of the parallelogram: in line, nearly so, and open.

    In line there are no derivatives: the rank of the loop falls, and results jump. Near it they have the size of the
    inverse of the distance, and round-off that of its square.
    """
    rng, (model, made) = np.random.default_rng(seed), parallelogram()
    states, labels = [], []
    for a in (*SIZES, *rng.uniform(-PI, PI, 20)):  # in line at 0 and pi
        for v in SPEEDS:
            states.append((np.asarray([a, -a, a]), v * np.asarray([1.0, -1.0, 1.0])))
            labels.append(f"crank at {a:.9g}, moving by {v:g}")

    def function(state: Any, x: jax.Array) -> jax.Array:
        m, loops = model.astype(x.dtype), jax.tree.map(lambda y: jnp.asarray(y, x.dtype), made)
        q = lgjax.retract(m, lgjax.neutral(m), state[0] + x[:3])
        v = state[1] + x[3:6]
        found = LOOPS[name](m, loops, q, v, x[6:])
        return jnp.sum(jnp.asarray([1.0, 0.3, -0.7], x.dtype) * found)[None]

    distance = np.abs(np.sin(np.stack([a for a, _ in states])[:, 0]))
    direction = rng.normal(size=9) / 3
    return Subject((name,), function, _stacked(states), tuple(labels), direction, SHORT, distance=distance)


MECHANICS: dict[str, Callable[[int], Subject]] = {
    **{
        f"{function} of {name}": partial(of_mechanism, make, {function: f}, SHORT)
        for function, f in (PLACES | ENERGIES | DYNAMICS | HYBRID | FURTHER).items()
        for name, make in (("a tree", tree), ("point masses", points))
    },
    "rollout of a tree": partial(of_mechanism, tree, STEPS, SHORT),
    "rollout of point masses": partial(of_mechanism, points, STEPS, SHORT),
    **{f"force: {name}": partial(of_force, name, SHORT) for name in FORCES},
    **{f"shape: {name}": partial(of_shape, name, make, SHORT) for name, make in SHAPES.items()},
    **{f"variational step, {chart}": partial(of_bodies, chart) for chart in ("cayley", "exp")},
    "contact step": partial(of_contact_step, 0.0),
    "smoothed contact step": partial(of_contact_step, 1e-2),
    **{f"loop: {name}": partial(of_loops, name) for name in LOOPS},
}
