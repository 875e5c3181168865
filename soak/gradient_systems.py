"""Ready systems, frames, reversible steps, loops and other functions at degenerate states, for `gradients.py`."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import collisions, groups, identification, integrators, maximal, systems, time_derivatives
from lgjax.collisions.impact import ContactPoint, Laws
from lgjax.groups import so3
from soak.gradient_drivers import H, _numbers, _placed, _record, _turned, _unknowns, rods
from soak.gradient_mechanics import SHORT, _stacked, cart, degenerate, of_mechanism, points, speed, turn
from soak.gradient_rates import shoulder
from soak.gradient_steps import INERTIA, MK
from soak.gradient_subjects import Subject, weigh

STATES = 150


def _made(names: tuple, function: Callable, states: list, labels: Any, size: int, second: bool | str, rng: Any,
          **more: Any) -> Subject:  # fmt: skip
    direction = rng.normal(size=size) / size**0.5
    return Subject(names, function, _stacked(states), tuple(labels), direction, second, **more)


# ---- conversions, and the sphere
def of_conversions(seed: int) -> Subject:
    """Between matrices, quaternions and pairs at rotations of every size; points of TS², moved."""
    rng = np.random.default_rng(seed)
    states, labels = _turned(rng)
    s3, se3, r3_so3, ts2 = groups.s3, groups.se3, groups.r3_so3, groups.ts2

    def function(state: Any, x: jax.Array) -> jax.Array:
        turn, v = state
        pose = se3.compose(lgjax.Pose(so3.exp(turn), v), se3.exp(x[:6]))
        still = lgjax.Pose(so3.exp(turn), v)
        point = ts2.project(v + jnp.asarray([0.0, 0.0, 1.5], x.dtype) + x[:3], x[3:6])
        u = jnp.concatenate([turn, v]) + x[:6]
        return _numbers([
            se3.to_matrix(pose), se3.from_matrix(se3.to_matrix(pose)), s3.to_rotation(s3.from_rotation(pose.rotation)),
            so3.log_quaternion(s3.exp(0.5 * turn + x[:3])), r3_so3.to_pose(r3_so3.from_pose(pose)), point,
            ts2.act(pose, point), ts2.generator(x[:6] + 1.0, point), ts2.cayley_act(u, point),
            ts2.distance(ts2.act(pose, point), ts2.act(still, point)), groups.TS2.move(u, point),
        ])  # fmt: skip

    names = ("to_matrix", "from_matrix", "to_rotation of from_rotation", "log_quaternion", "to_pose of from_pose",
             "project", "act", "generator", "cayley_act", "distance", "move")  # fmt: skip
    return _made(names, function, states, labels, 6, True, rng)


# ---- systems
def _end(problem: Any, y: Any, method: Any, span: float = 0.1) -> Any:
    return integrators.integrate(problem.space, problem.field, y, 0.0, span, 2, method, save_every=None).ys


def of_free_rotation(form: str, seed: int) -> Subject:
    """Two steps of a free body at rest, slow, turned by pi and with equal moments; x displaces all of it."""
    rng = np.random.default_rng(seed)
    states, labels = _turned(rng)
    moments = [np.full(3, 1.0) if i % 2 else np.asarray([1.0, 2.0, 2.5]) for i in range(len(states))]

    def function(state: Any, x: jax.Array) -> jax.Array:
        (turn, momentum), moments = state
        formulation = "body" if form == "coordinates" else form
        body = systems.free_rigid_body(formulation, moments * (1 + 0.1 * x[6:9]), momentum + x[3:6], dtype=x.dtype)
        q, momentum = so3.compose(so3.exp(turn), so3.exp(x[:3])), body.parameters["momentum"]
        y = {"lie_poisson": momentum, "spatial": groups.Covector(q, so3.act(q, momentum))}.get(form, (q, momentum))
        if form == "coordinates":
            body = systems.in_coordinates(body)
        method = integrators.SymplecticLie() if form == "spatial" else MK(integrators.RK4)
        return _numbers([_end(body, y, method), [f(y) for f in body.invariants.values()]])

    placed = list(zip(states, moments, strict=True))
    return _made(("state", "invariants"), function, placed, labels, 9, SHORT, rng)


def of_top_with_force(seed: int) -> Subject:
    """Two steps of a top on T*(SO(3) x R³), whose second part carries its weight."""
    rng = np.random.default_rng(seed)
    states, labels = _turned(rng)

    def function(state: Any, x: jax.Array) -> jax.Array:
        turn, momentum = state
        top = systems.heavy_top("quadratic", "printed", mass=1.0 + x[6], length=0.3 + x[7], dtype=x.dtype,
                                inertia=jnp.asarray([0.1, 0.1, 0.15], x.dtype) * (1 + x[8]))  # fmt: skip
        q = so3.compose(so3.exp(turn), so3.exp(x[:3]))
        y = top.y0._replace(g=(q, top.y0.g[1]), mu=top.y0.mu.at[:3].set(momentum + x[3:6]))
        return _numbers([_end(top, y, integrators.SymplecticLie()), [f(y) for f in top.invariants.values()]])

    return _made(("state", "invariants"), function, states, labels, 9, SHORT, rng)


def of_momenta(chart: str, seed: int) -> Subject:
    """Two steps of two spherical pendulums with momenta, hanging, standing or folded; x moves the state."""
    rng = np.random.default_rng(seed)
    states = [(np.zeros((2, 3)), np.zeros((2, 3)))]
    states += [(np.stack([turn(rng), turn(rng)]), np.stack([speed(rng, 3), speed(rng, 3)])) for _ in range(STATES)]
    labels = [f"turned by {w.ravel()}, turning by {v.ravel()}" for w, v in states]

    def function(state: Any, x: jax.Array) -> jax.Array:
        turns, rates = state
        made = systems.spherical_pendulum(2, "hamiltonian", 1.0 + x[12], 1.0 + x[13], chart=chart, dtype=x.dtype)
        q = so3.exp(turns)[..., 2]
        momenta = rates - jnp.sum(rates * q, -1, keepdims=True) * q
        y = made.space.move(jnp.reshape(x[:12], (2, 6)), groups.TangentPoint(q, momenta))
        return _numbers([_end(made, y, MK(integrators.HEUN2)), [f(y) for f in made.invariants.values()]])

    return _made(("state", "invariants"), function, states, labels, 14, SHORT, rng)


def of_quadrotors(attitude: str, seed: int) -> Subject:
    """The field of the quadrotors with a load, and a step; links up, down or along, at rest or turning."""
    rng = np.random.default_rng(seed)
    states = [(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((3, 3)))]
    for _ in range(STATES):
        two = lambda make: np.stack([make(), make()])
        states.append((two(lambda: turn(rng)), two(lambda: turn(rng)), two(lambda: speed(rng, 3)),
                       np.stack([speed(rng, 3) for _ in range(3)])))  # fmt: skip
    labels = [f"attitudes {a.ravel()}, links {w.ravel()} turning by {v.ravel()}, {u.ravel()}" for a, w, v, u in states]

    def function(state: Any, x: jax.Array) -> jax.Array:
        attitudes, links, turning, rest = state
        made = systems.quadrotors_with_load(
            attitude=attitude, load_mass=0.5 + 0.1 * x[30], masses=0.755 + 0.1 * x[31:33], dtype=x.dtype
        )
        q = so3.exp(links)[..., 2]
        y = (rest[0], rest[1], so3.exp(attitudes), jnp.stack([rest[2], rest[2]]),
             groups.TangentPoint(q, turning - jnp.sum(turning * q, -1, keepdims=True) * q))  # fmt: skip
        move = x[:3], x[3:6], x[6:12].reshape(2, 3), x[12:18].reshape(2, 3), x[18:30].reshape(2, 6)
        y = made.space.move(move, y)
        field = made.field(jnp.asarray(0.2, x.dtype), y)
        return _numbers([[0.01 * f for f in field], _end(made, y, integrators.CommutatorFree(integrators.CF4), 2 * H)])

    return _made(("field", "state"), function, states, labels, 33, SHORT, rng)


def of_reference(seed: int) -> Subject:
    """The reference of the aerial manipulator at the ends of its motion, within and beyond, and its propellers."""
    rng = np.random.default_rng(seed)
    times = (0.0, 1e-30, 1e-6, 1e-3, 2.5, 5.0, 7.0, 10.0 - 1e-6, 10.0, 12.0, *rng.uniform(0, 10, 40))
    states = [(np.asarray(t), rng.normal(size=6)) for t in times]
    made = {dtype: systems.aerial_manipulator(dtype=dtype) for dtype in ("float64", "float32")}

    def function(state: Any, x: jax.Array) -> jax.Array:
        one = made[str(x.dtype)]
        (t, wrench), parts = state, []
        for frame in ("body", "spatial"):
            parts += one.reference(t + x[0], 2, frame)
        squares = 1e-6 * one.squared_speeds(wrench + x[1:])
        return _numbers([*parts, squares, one.wrench(1e6 * squares)])

    names = ("place, body", "rates, body", "place, spatial", "rates, spatial", "squared_speeds", "wrench")
    return _made(names, function, states, [f"at {t:g} s" for t in times], 7, True, rng)


# ---- absolute coordinates without constraints
def of_unconstrained(name: str, seed: int) -> Subject:
    """Two steps of `unconstrained_problem`: a top and a rotor, at rotations and speeds of every size."""
    rng = np.random.default_rng(seed)
    states, labels = _turned(rng)

    def function(state: Any, x: jax.Array) -> jax.Array:
        turn, omega = state
        if name == "rotor":
            made = systems.rotor(2.0 + x[9], left=0.2 + x[10], stiffness=900.0 * (1 + x[11]), dtype=x.dtype)
        else:
            made = systems.heavy_top_maximal(False, 15.0 + x[9], 1.0 + x[10], dtype=x.dtype,
                                             inertia=jnp.asarray([0.3, 0.4, 0.3], x.dtype) * (1 + x[11]))  # fmt: skip
        system, rotation = made.system, so3.compose(so3.exp(turn), so3.exp(x[:3]))
        place = 0.1 * x[6:9] if name == "rotor" else 0 * x[6:9]
        q = system.configuration(rotation[None], place[None])
        v = system.velocity(q, (omega + x[3:6])[None], 0 * place[None])
        space, field, start = maximal.unconstrained_problem(system, q, v)
        end = integrators.integrate(space, field, start, 0.0, 2 * H, 2, MK(integrators.RK4), save_every=None).ys
        return _numbers([end[0], end[1], system.potential_energy(q)])

    return _made(("place", "velocity", "energy"), function, states, labels, 12, SHORT, rng)


# ---- bodies
def _potential(pose: lgjax.Pose) -> jax.Array:
    return jnp.sum(pose.translation**2) * pose.rotation[0, 0] + 0.1 * pose.rotation[2, 1]


def of_flight(back: bool, seed: int) -> Subject:
    """Three variational steps of a body in a user's potential; with `back` by `reversible_steps`, in reverse mode."""
    rng = np.random.default_rng(seed)
    states, labels = _turned(rng)

    def function(state: Any, x: jax.Array) -> jax.Array:
        turn, momentum = state
        start = collisions.rigid_state(jnp.asarray([1.0, 0.0, 2.0], x.dtype) + x[:3], x[3:6], 0.1 * momentum + x[6:9],
                                       so3.compose(so3.exp(turn), so3.exp(x[9:12])), x.dtype)  # fmt: skip
        arguments = 1.0 + x[12], jnp.asarray(10 * INERTIA, x.dtype) + 0.1 * x[13:]
        of = lambda mass, inertia: collisions.rigid_body(mass, inertia, potential=_potential, dtype=x.dtype)
        if back:
            step = lambda args, t, y, h, carry: (collisions.variational_step(of(*args), y, h)[0], carry)
            end = integrators.reversible_steps(step, arguments, start, 0.0, 3 * H, 3, None).ys
        else:
            body, end = of(*arguments), start
            for _ in range(3):
                end = collisions.variational_step(body, end, jnp.asarray(H, x.dtype))[0]
        return _numbers([end.pose, (end.angular, end.linear), collisions.potential_energy(of(*arguments), start.pose)])

    names, second = ("pose", "momenta", "potential energy"), "reverse alone" if back else SHORT
    return _made(names, function, states, labels, 16, second, rng)


def of_impact(friction: bool, seed: int) -> Subject:
    """`lagrangian_impact` of a body that approaches, recedes, slides or rolls, at rotations of every size.

    Finite is all that is asked of a body that does not approach, and of one that barely does.
    """
    rng = np.random.default_rng(seed)
    states, labels, distance = [], [], []
    for _ in range(2 * STATES):
        w, omega, along = turn(rng), speed(rng, 3), speed(rng, 2)
        down, restitution = rng.choice((-1.0, -0.3, 0.0, 1e-12, 0.5)), rng.choice((0.0, 0.5, 1.0))
        states.append((w, omega, np.asarray([*along, down]), np.asarray(restitution)))
        labels.append(f"turned by {w}, turning by {omega}, moving by {along}, {down:g}, restitution {restitution:g}")
        distance.append(np.inf if down <= -0.3 else 0.0)

    def function(state: Any, x: jax.Array) -> jax.Array:
        turn, omega, velocity, restitution = state
        array = lambda y: jnp.asarray(y, x.dtype)
        body = collisions.rigid_body(1.0 + x[12], array(10 * INERTIA), dtype=x.dtype)
        start = lgjax.se3.compose(lgjax.Pose(so3.exp(turn), 0 * omega), lgjax.se3.exp(x[:6]))
        step = jnp.concatenate([H * omega, H * so3.act(so3.exp(-turn), velocity)]) + H * x[6:12]
        contact = ContactPoint(array(0.0), so3.act(so3.exp(-turn), array([0.01, 0.0, -0.2])) + x[13:16],
                               array([0, 0, 1]), jnp.zeros((), bool), jnp.zeros((), jnp.int32))  # fmt: skip
        laws = Laws(restitution + x[16], 0.3 + x[17] if friction else None)
        end, impulse = collisions.lagrangian_impact(
            body, start, lgjax.se3.compose(start, lgjax.se3.exp(step)), array(H), array(0.5 * H), contact, laws
        )
        return _numbers([end, impulse])

    names = ("pose", "impulse")
    return _made(names, function, states, labels, 18, SHORT, rng, distance=np.asarray(distance))


# ---- a user's joint, and loops of all kinds
def _cam(q: jax.Array) -> lgjax.Pose:
    """About z by q + 0.3 sin q while it moves along z and, with the square of q, along x."""
    zero = jnp.zeros_like(q[0])
    turned = so3.exp(jnp.stack([zero, zero, q[0] + 0.3 * jnp.sin(q[0])]))
    return lgjax.Pose(turned, jnp.stack([0.1 * q[0] ** 2, zero, 0.2 * q[0]]))


def _cam_motion(q: jax.Array) -> jax.Array:
    zero = jnp.zeros_like(q[0])
    linear = so3.act(_cam(q).rotation.T, jnp.stack([0.2 * q[0], zero, zero + 0.2]))
    return jnp.concatenate([jnp.stack([zero, zero, 1 + 0.3 * jnp.cos(q[0])]), linear])[:, None]


@cache
def cam() -> lgjax.Model:
    """A user's joint that carries a ball joint."""
    kind = lgjax.joint_kind("cam", _cam, _cam_motion, 1)
    body = lambda name, parent, joint: lgjax.Body(
        name, parent, joint, position=np.asarray([0.0, 0.0, 0.3 if parent else 0.0]), mass=1.0,
        com=np.asarray([0.1, 0.0, 0.1]), inertia=np.diag([0.02, 0.03, 0.04]),
    )  # fmt: skip
    return lgjax.build(
        [body("cam", None, lgjax.Joint("slide", kind)), body("bob", "cam", lgjax.Joint("b", "spherical"))]
    )


CAM: dict[str, Callable] = {
    "jacobian": lambda m, q, v, x: lgjax.jacobian(m, q, "bob", "world"),
    "jacobian_derivative": lambda m, q, v, x: lgjax.jacobian_derivative(m, q, v, "bob", "world"),
    "forward_dynamics": lambda m, q, v, x: lgjax.forward_dynamics(m, q, v, x),
    "inverse_dynamics": lambda m, q, v, x: lgjax.inverse_dynamics(m, q, v, x),
}
CLOSURES = ("weld", "revolute", "helical", "universal", "distance")  # the other kinds have rows of these alone


@cache
def camera() -> lgjax.Model:
    """A ball joint that carries a camera, which is a frame."""
    arm = lgjax.Body("arm", None, lgjax.Joint("ball", "spherical"), mass=1.0, inertia=0.1 * np.eye(3))
    fixed = lgjax.Body("camera", "arm", lgjax.Joint("screw", "fixed"), position=np.asarray([0.1, 0.0, 0.3]))
    return lgjax.build([arm, fixed])


def of_closures(seed: int) -> Subject:
    """Constraints of loops from a camera to the ground, at most 0.7 m away; x displaces q and v."""
    rng, model = np.random.default_rng(seed), camera()
    (states, labels), n = degenerate(model, rng), model.nv

    def constraints(state: Any, x: jax.Array) -> list:
        m = model.astype(x.dtype)
        pose = lambda *p: lgjax.Pose(jnp.eye(3, dtype=x.dtype), jnp.asarray(p, x.dtype))
        numbers: dict[str, Any] = {"distance": {"distance": 0.3}, "helical": {"pitch": 0.1}}
        loops = [lgjax.Loop(kind, None, "camera", pose(0.25, 0.0, 0.5), pose(0.0, 0.0, 0.2), **numbers.get(kind, {}))
                 for kind in CLOSURES]  # fmt: skip
        q = lgjax.retract(m, lgjax.retract(m, lgjax.neutral(m), state[0]), x[:n])
        found = lgjax.loops.loop_constraint(m, loops, q, state[1] + x[n:])
        ends = np.cumsum([loop.rows(m, q) for loop in loops])[:-1]
        return [list(parts) for parts in zip(*(jnp.split(part, ends) for part in found), strict=True)]

    first = tuple(jnp.asarray(y) for y in states[0])
    weights = [weigh(rng, part) for part in jax.eval_shape(constraints, first, jnp.zeros(2 * n))]

    def function(state: Any, x: jax.Array) -> jax.Array:
        return jnp.stack([weigh(part) for weigh, part in zip(weights, constraints(state, x), strict=True)])

    # where the axes are opposite, the way between them jumps
    z = [np.asarray(so3.exp(jnp.asarray(state[0])))[:, 2] for state in states]
    distance = np.array([np.arctan2(np.hypot(x[0], x[1]), -x[2]) for x in z])
    return _made(CLOSURES, function, states, labels, 2 * n, SHORT, rng, distance=distance)


# ---- further functions of a mechanism
def _closed_form(frame: Any, m: lgjax.Model, q: Any, v: jax.Array, x: jax.Array) -> Any:
    return time_derivatives.closed_form(m, q, v, x, frame)


# ---- identification
def of_frames(seed: int) -> Subject:
    """The likelihood of poses of a displaced frame, that was placed right or turned by up to pi."""
    rng, model = np.random.default_rng(seed), camera()
    states, labels = _turned(rng)

    def function(state: Any, x: jax.Array) -> jax.Array:
        m, (turn, wrong) = model.astype(x.dtype), state
        q = lgjax.retract(m, lgjax.neutral(m), turn)
        seen = lgjax.se3.compose(lgjax.frame_pose(m, q, "camera"), lgjax.Pose(so3.exp(wrong), jnp.zeros(3, x.dtype)))
        q, seen = jax.tree.map(lambda y: y[None], (lgjax.retract(m, q, x[:3]), seen))
        record = identification.PoseRecord(q, seen, 0.1 + 0.1 * x[9], "camera")
        return identification.log_likelihood(m, record, identification.frames(m, ["camera"]))(x[3:9])[None]

    return _made(("likelihood of poses of a frame",), function, states, labels, 10, SHORT, rng)


def of_batch(seed: int) -> Subject:
    """The likelihood of two short motions with the physical parameters themselves; half of them do not fit."""
    rng, (states, labels) = np.random.default_rng(seed), _placed(seed)
    misfits = [np.asarray(0.3 * (i % 2)) for i in range(len(states))]
    unknowns = lambda m: identification.inertias(m, ["far"], physical=False) + _unknowns(m)
    p = len(unknowns(rods()))

    def function(state: Any, x: jax.Array) -> jax.Array:
        m, record = _record("motions", state[0], x[p:], state[1])
        two = jax.tree.map(lambda y: jnp.stack([jnp.asarray(y), jnp.asarray(y)]), record)
        return identification.log_likelihood(m, identification.BatchedRecord(two), unknowns(m))(x[:p])[None]

    placed = list(zip(states, misfits, strict=True))
    return _made(("likelihood of batched motions",), function, placed, labels, p + 4 * 2 + 1, SHORT, rng)


def _of(where: str, make: Callable, functions: dict, second: bool | str) -> dict[str, Callable[[int], Subject]]:
    return {f"{name} of {where}": partial(of_mechanism, make, {name: f}, second) for name, f in functions.items()}


READY: dict[str, Callable[[int], Subject]] = {
    "conversions and TS2": of_conversions,
    **{f"free rotation, {form}": partial(of_free_rotation, form)
       for form in ("body", "spatial", "lie_poisson", "coordinates")},
    "top with its weight as a momentum": of_top_with_force,
    **{f"momenta of a chain, {chart}": partial(of_momenta, chart) for chart in ("exp", "cayley")},
    **{f"quadrotors with a load, {attitude}": partial(of_quadrotors, attitude) for attitude in ("ideal", "controlled")},
    "reference of the aerial manipulator": of_reference,
    **{f"unconstrained {name}": partial(of_unconstrained, name) for name in ("top", "rotor")},
    "flight in a potential": partial(of_flight, False),
    "flight in a potential, reversible steps": partial(of_flight, True),
    "Lagrangian impact": partial(of_impact, False),
    "Lagrangian impact with friction": partial(of_impact, True),
    "a user's joint": partial(of_mechanism, cam, CAM, SHORT),
    "loop_constraint": of_closures,
    **_of("a shoulder", shoulder, {"closed form": partial(_closed_form, "body")}, SHORT),
    **_of("point masses", points, {"closed form": partial(_closed_form, "body")}, SHORT),
    **_of("a cart", cart, {"closed form, spatial": partial(_closed_form, "spatial")}, SHORT),
    "likelihood of poses of a frame": of_frames,
    "likelihood of batched motions": of_batch,
}  # fmt: skip
