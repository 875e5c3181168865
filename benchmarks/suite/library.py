"""The sweeps of this library: on groups, on trees, in absolute coordinates, variational.

Every maker takes the problem's numbers and gives a list of `Sweep`; `prepare` compiles, so that a call only runs.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from benchmarks.suite.mechanism import Mechanism
from benchmarks.suite.problem import Sweep, doubling, spread
from lgjax import CommutatorFree, GeneralizedAlpha, MuntheKaas, SymplecticLie, Taylor, integrators, maximal
from lgjax.multibody.configuration import mechanical_space
from lgjax.simulate.mechanism_field import mechanism_field

RKMK8 = MuntheKaas(integrators.DORMAND_PRINCE85, scan_stages=True)  # of fields that compile slowly
CHEAP8, CHEAP4 = (MuntheKaas(t, scan_stages=False) for t in (integrators.DORMAND_PRINCE85, lgjax.RK4))
RKMK4 = MuntheKaas(lgjax.RK4, scan_stages=True)
STAGES = {"RKMK 8": 12, "RKMK 8(5)": 12, "RKMK 4": 4, "CF 4": 4}
MAX_STEPS = 20_000
TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)


def _call(run: Callable, argument: Any, many: Any, batch: int | None) -> Callable[[], Any]:
    """The compiled call on one argument or on many."""
    program = jax.jit(jax.vmap(run) if batch else run).lower(many if batch else argument).compile()
    given = jax.device_put(many if batch else argument)
    return lambda: jax.block_until_ready(program(given))


def _tolerant(run: Callable, argument: Any, many: Any) -> Callable:
    """call(end, tolerance, batch): the compiled call, one program for all tolerances."""

    @cache
    def program(end: float, batch: int | None) -> Any:
        each = partial(run, end)
        mapped = jax.vmap(each, (0, None)) if batch else each
        return jax.jit(mapped).lower(many(batch) if batch else argument, jnp.ones(())).compile()

    def call(end: float, tolerance: float, batch: int | None) -> Callable[[], Any]:
        compiled, given = program(end, batch), jax.device_put(many(batch) if batch else argument)
        small = jnp.asarray(tolerance)
        return lambda: jax.block_until_ready(compiled(given, small))

    return call


def _in_legs(leg: Callable, start: Callable, argument: Any, many: Any, coarsest: int) -> Callable:
    """call(end, steps, batch) of leg(y, t, h, n): a loop over legs of n steps, one program for all numbers of legs."""

    @cache
    def program(n: int, batch: int | None) -> Any:
        def run(x: Any, h: Any, legs: Any) -> Any:
            following = lambda i, y: leg(y, h * n * i, h, n)
            return jax.lax.fori_loop(0, legs, following, start(x))

        mapped = jax.vmap(run, (0, None, None)) if batch else run
        return jax.jit(mapped).lower(many(batch) if batch else argument, jnp.ones(()), 1).compile()

    def call(end: float, steps: int, batch: int | None) -> Callable[[], Any]:
        n = max(d for d in range(1, coarsest + 1) if steps % d == 0)
        given = jax.device_put(many(batch) if batch else argument)
        compiled, h, legs = program(n, batch), jnp.asarray(end / steps), jnp.asarray(steps // n)
        return lambda: jax.block_until_ready(compiled(given, h, legs))

    return call


def _first(result: Any, batch: int | None) -> Any:
    return jax.tree.map(lambda x: np.asarray(x[0] if batch else x), result)


def _count(method: str, setting: Any, taken: Any) -> float | None:
    """Evaluations of the field."""
    if method not in STAGES:
        return float(taken) if method.startswith("Taylor") else None
    return float(STAGES[method] * taken)


def group_sweeps(
    name: str,
    system: Any,
    momentum: Callable,
    state: Callable,
    first: int,
    methods: Sequence[str],
    adaptive: bool = True,
) -> list[Sweep]:
    """Of a ready problem. momentum(y0, factor) gives the start with its momenta scaled; state(y) the suite's state."""
    plain = {
        "RKMK 8": (CHEAP8, doubling(max(2, first // 8), 6)),
        "RKMK 4": (CHEAP4, doubling(first, 5, 4)),
        "CF 4": (CommutatorFree(lgjax.CF4), doubling(first, 5, 4)),
        "symplectic 2": (SymplecticLie(0.5), doubling(4 * first, 4, 8)),
        "symplectic 6": (integrators.suzuki(SymplecticLie(0.5), 6), doubling(max(2, first // 4), 5)),
    }

    one, many = jnp.ones(()), lambda batch: jnp.asarray(spread(np.ones(1), batch)[:, 0])

    def fixed(method: Any, label: str, coarsest: int) -> Callable:
        def leg(y: Any, t: Any, h: Any, steps: int) -> Any:
            ys = lgjax.integrate(system.space, system.field, y, t, t + h * steps, steps, method, None).ys
            return jax.tree.map(lambda x: x[-1], ys)

        solve = _in_legs(leg, lambda factor: momentum(system.y0, factor), one, many, coarsest)

        def prepare(end: float, steps: int, batch: int | None) -> Any:
            return solve(end, steps, batch), lambda y: (state(_first(y, batch)), _count(label, steps, steps))

        return prepare

    def adapted(end: float, factor: Any, tolerance: Any) -> Any:
        y = momentum(system.y0, factor)
        s = lgjax.integrate_adaptive(
            system.space, system.field, y, 0.0, end, CHEAP8, tolerance, tolerance, MAX_STEPS,
            controller=integrators.PI_CONTROL,
        )  # fmt: skip
        return s.ys, s.accepted + s.rejected

    adapt = _tolerant(adapted, one, many)

    def controlled(end: float, tolerance: float, batch: int | None) -> Any:
        def finish(result: Any) -> Any:
            ys, taken = _first(result, batch)
            return state(jax.tree.map(lambda x: x[-1], ys)), _count("RKMK 8(5)", tolerance, taken)

        return adapt(end, tolerance, batch), finish

    found = [
        Sweep(
            "lgjax",
            f"{label} on {name}",
            fixed(method, label, settings[0]),
            settings,
            group=True,
            batched="symplectic" not in label,
        )
        for label, (method, settings) in plain.items()
        if label in methods
    ]
    if adaptive:
        label = f"RKMK 8(5) on {name}"
        found.append(Sweep("lgjax", label, controlled, TOLERANCES, group=True, steps=False, batched=True))
    return found


def tree_sweeps(
    m: Mechanism, first: int, taylor: int | None = 12, group: bool = True, loops: Any = None, torque: Any = None
) -> list[Sweep]:
    """Of the mechanism as a tree, by `rollout`; with loops, by projection after every step.

    loops: those, or True for the planar ones of the file. torque (nv,) is a constant force of the joints.
    """
    robot = lgjax.load_robot(m.xml)
    q, v, *_ = lgjax.conventions.from_mujoco(robot.model, np.array(m.qpos, float), np.array(m.qvel, float))
    label = "tree with loops" if loops else "tree"

    def state(s: Any) -> np.ndarray:
        q, v = s
        if np.size(q.free_poses.translation):
            qpos, qvel, *_ = lgjax.conventions.to_mujoco(robot.model, q, v)
            return m.state(np.asarray(qpos), np.asarray(qvel))
        return np.concatenate([q.ball_rotations.ravel(), q.joints.ravel(), v.ravel()])

    closed = _pins(m) if loops is True else loops
    many = lambda batch: jnp.asarray(spread(v, batch, bool(loops)))
    drive = None
    if robot.forces is not None or torque is not None:
        constant = jnp.zeros(robot.model.nv) if torque is None else jnp.asarray(torque)
        drive = lambda t, q, v: constant + (0.0 if robot.forces is None else robot.forces(t, q, v))

    def fixed(method: Any, name: str, coarsest: int) -> Callable:
        def leg(y: Any, t: Any, h: Any, steps: int) -> Any:
            done = lgjax.rollout(robot.model, *y, drive, h, steps, method, save_every=None, loops=closed)
            return jax.tree.map(lambda x: x[-1], (done.q, done.v))

        solve = _in_legs(leg, lambda v: (q, v), v, many, coarsest)

        def prepare(end: float, steps: int, batch: int | None) -> Any:
            return solve(end, steps, batch), lambda y: (state(_first(y, batch)), _count(name, steps, steps))

        return prepare

    def controlled(method: Any, name: str) -> Callable:
        space, series = mechanical_space(robot.model.tree), isinstance(method, Taylor)
        field = lgjax.time_derivatives.motion_series(robot.model) if series else mechanism_field(robot.model)

        def adapted(end: float, v: Any, tolerance: Any) -> Any:
            s = lgjax.integrate_adaptive(
                space, field, (q, v), 0.0, end, method, tolerance, tolerance, MAX_STEPS,
                controller=integrators.PI_CONTROL,
            )  # fmt: skip
            return s.ys, s.accepted + s.rejected

        adapt = _tolerant(adapted, v, many)

        def prepare(end: float, tolerance: float, batch: int | None) -> Any:
            def finish(result: Any) -> Any:
                ys, taken = _first(result, batch)
                return state(jax.tree.map(lambda x: x[-1], ys)), _count(name, tolerance, taken)

            return adapt(end, tolerance, batch), finish

        return prepare

    one = partial(Sweep, "lgjax", group=group, batched=True)
    found = [
        one(f"RKMK 8, {label}", fixed(RKMK8, "RKMK 8", max(2, first // 8)), doubling(max(2, first // 8), 6)),
        one(f"RKMK 4, {label}", fixed(RKMK4, "RKMK 4", first), doubling(first, 5, 4)),
    ]
    if taylor and not loops and robot.forces is None:
        name = f"Taylor {taylor}"
        found.append(one(f"{name}, {label}", controlled(Taylor(taylor), name), TOLERANCES, steps=False, batched=False))
    return found


def contact_sweeps(
    m: Mechanism, balls: dict[str, float], law: dict[str, Any], first: int, parts: int, each: Any = None
) -> list[Sweep]:
    """Of balls, {body: radius}, on the plane z = 0 with a law of contact, by `TimeStepping` and, in parts of the time,
    `EventDriven`.  each: a restitution for each of many copies, which `jax.vmap` moves.
    """
    model = lgjax.load_robot(m.xml).model
    q, v, *_ = lgjax.conventions.from_mujoco(model, np.array(m.qpos, float), np.array(m.qvel, float))
    ground = lgjax.shapes.Plane((0.0, 0.0, 1.0))
    contacts = lgjax.Contacts(model, ground, {b: lgjax.shapes.sphere(r) for b, r in balls.items()}, **law)
    many = lambda batch: jnp.asarray(spread(v, batch))

    copies = 1 if each is None else len(each)

    def roll(q: Any, v: Any, h: Any, steps: int, method: Any) -> Any:
        def one(q: Any, v: Any, law: Any) -> Any:
            s = lgjax.rollout(model, q, v, None, h, steps, method, save_every=None, contacts=contacts.replace(**law))
            return *jax.tree.map(lambda x: x[-1], (s.q, s.v)), s.status

        return one(q, v, {}) if each is None else jax.vmap(one)(q, v, {"restitution": each[:, None]})

    def start(v: Any) -> Any:
        return (q, v) if each is None else jax.tree.map(lambda x: jnp.stack([x] * copies), (q, v))

    def leg(y: Any, t: Any, h: Any, steps: int) -> Any:
        q, v, status = roll(*y[:2], h, steps, lgjax.contact.TimeStepping())
        return q, v, y[2] | status

    status = jnp.zeros(() if each is None else copies, jnp.int32)
    stepped = _in_legs(leg, lambda v: (*start(v), status), v, many, first)
    events = lambda end, v, small: roll(*start(v), end / parts, parts, lgjax.contact.EventDriven(small, small))
    adapted = _tolerant(events, v, many)

    def prepare(solve: Callable, end: float, setting: Any, batch: int | None) -> Any:
        def finish(result: Any) -> Any:
            q, v, status = _first(result, batch)
            if np.any(status):
                raise RuntimeError(f"status {status}")
            return np.concatenate([q.joints.ravel(), v.ravel()]), None

        return solve(end, setting, batch), finish

    return [
        Sweep("lgjax", "TimeStepping", partial(prepare, stepped), doubling(first, 4, 8), batched=copies == 1),
        Sweep("lgjax", "EventDriven", partial(prepare, adapted), TOLERANCES[1::2], steps=False, batched=copies == 1),
    ]


def _pins(m: Mechanism) -> tuple[Any, ...]:
    """The points that equalities hold together, of mechanisms that move in a plane."""
    from lgjax import Loop

    file, data, found = m.file, m.start(), []
    axes = _axes(np.array(m.links[0].axis))
    for e in range(file.neq):
        a, b = int(file.eq_obj1id[e]), int(file.eq_obj2id[e])
        bodies = [file.body(int(file.site_bodyid[s])) for s in (a, b)]
        turn = jnp.asarray(data.xmat[bodies[0].id].reshape(3, 3).T @ axes)
        frame = lgjax.Pose(turn, jnp.asarray(file.site_pos[a]))
        found.append(Loop("point_on_line", bodies[0].name, bodies[1].name, frame, file.site_pos[b].copy()))
    return tuple(found)


def absolute_sweeps(m: Mechanism, first: int, rho: float = 0.9, torque: Any = None) -> list[Sweep]:
    """Of the bodies on R³ x SO(3) with joints as constraints, by generalized-alpha.

    torque: of the first joint, which is at the ground.
    """
    parts, links, ties = m.parts, m.links, m.ties
    name = lambda i: "world" if i < 0 else parts[i].name
    bodies = [maximal.Body(p.name, p.mass, p.inertia) for p in parts]

    def at(i: int, point: Any) -> Any:
        return point if i < 0 else parts[i].rotation.T @ (point - parts[i].position)

    def frame(i: int, axes: Any) -> Any:
        return axes if i < 0 else parts[i].rotation.T @ axes

    joints = []
    for k, link in enumerate(links):
        axes = _axes(link.axis)
        if link.kind == "pin":
            joints.append(_pin(f"pin {k}", link, parts, at, axes))
            continue
        ends = [name(link.parent), name(link.child)]
        points = [at(link.parent, link.point), at(link.child, link.point)]
        frames = [frame(link.parent, axes), frame(link.child, axes)]
        joints.append(maximal.Joint(f"joint {k}", link.kind, *ends, *points, *frames))
    forces: list[Any] = [maximal.Gravity(m.gravity)]
    for tie in ties:
        ends = [name(tie.first), name(tie.second)]
        points = [at(tie.first, tie.points[0]), at(tie.second, tie.points[1])]
        forces.append(maximal.Spring(*ends, *points, tie.stiffness, tie.damping, tie.length))
    if torque is not None:
        forces.append(maximal.Load(name(0), torque_world=torque[0] * links[0].axis))
    system = maximal.System(bodies, joints, forces)
    q = system.configuration(np.array([p.rotation for p in parts]), np.array([p.position for p in parts]))
    spin = np.array([p.rotation.T @ p.omega for p in parts])
    v = system.velocity(q, spin, np.array([p.velocity for p in parts]))

    def prepare(end: float, steps: int, batch: int | None) -> Any:
        method = GeneralizedAlpha(rho, rtol=1e-10)

        def run(v: Any) -> Any:
            s = maximal.integrate(system, q, v, 0.0, end, steps, method, save_every=None)
            return *jax.tree.map(lambda x: x[-1], s.q.bodies), s.v[-1], s.iterations[-1]

        def finish(result: Any) -> Any:
            rotations, places, v, iterations = _first(result, batch)
            omega, velocities = np.split(v.reshape(-1, 6), 2, axis=1)
            turning = np.einsum("bij,bj->bi", rotations, omega)
            return m.from_bodies(rotations, turning, places, velocities), float(iterations)

        return _call(run, v, jnp.asarray(spread(v, batch)) if batch else v, batch), finish

    label = "generalized-alpha, absolute coordinates"
    return [Sweep("lgjax", label, prepare, doubling(first, 4, 4), group=True, batched=True)]


def _pin(name: str, link: Any, parts: Any, at: Any, axes: Any) -> Any:
    """The point of a plane at which two bodies meet; what they do across the plane is held by other joints."""

    def function(t: Any, q: Any, p: Any) -> Any:
        place = lambda i, x: x if i < 0 else q.bodies.translation[i] + q.bodies.rotation[i] @ x
        return p[2] @ (place(link.parent, p[0]) - place(link.child, p[1]))

    points = (at(link.parent, link.point), at(link.child, link.point), axes[:, :2].T)
    return maximal.UserConstraint(name, function, 2, tuple(jnp.asarray(x) for x in points))


def _axes(z: np.ndarray) -> np.ndarray:
    """A rotation whose third column is z."""
    x = np.cross(z, np.eye(3)[np.argmin(np.abs(z))])
    x = x / np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], axis=1)


def variational_sweeps(inertia: Sequence[float], omega: Sequence[float], first: int) -> list[Sweep]:
    """Of a free body, by the variational integrator on SE(3)."""
    from lgjax import collisions

    body = collisions.rigid_body(1.0, inertia, (0.0, 0.0, 0.0))
    spin = jnp.asarray(inertia) * jnp.asarray(omega)

    def prepare(end: float, steps: int, batch: int | None) -> Any:
        def run(spin: Any) -> Any:
            start = collisions.rigid_state(jnp.zeros(3))._replace(angular=spin)
            h = jnp.asarray(end / steps)
            step = lambda _, s: collisions.variational_step(body, s, h)[0]
            s = jax.lax.fori_loop(0, steps, step, start)
            return s.pose.rotation, s.angular

        def finish(result: Any) -> Any:
            rotation, momentum = _first(result, batch)
            return np.concatenate([rotation.ravel(), momentum / np.asarray(inertia)]), None

        return _call(run, spin, jnp.asarray(spread(spin, batch)) if batch else spin, batch), finish

    return [Sweep("lgjax", "variational on SE(3)", prepare, doubling(4 * first, 4, 8), group=True, batched=True)]
