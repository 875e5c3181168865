"""Calls outside jit: what the first one costs, which compiles, and what every other one does.

    python benchmarks/eager_calls.py [--only mass_matrix,bounce] [--dtype float32] [--repeats 20]

Every public pure function of the dynamics, of bodies in absolute coordinates, of collisions and of shapes, by the name
under which `lgjax` has it, and the rollouts. Mechanisms are the quadruped of `lgjax.models`, with 18 velocities. The
second call has other values of the same shapes. `tests/test_eager.py` holds the list against the public names, and that
second calls compile nothing.
"""

import argparse
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import collisions, forces, maximal, shapes
from lgjax.systems import slider_crank

STEPS = 10


class Call(NamedTuple):
    """A function and its arguments, of which there are as many as one likes, all of one structure: inputs(k)."""

    function: Callable
    inputs: Callable[[int], tuple]
    options: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    def __call__(self, inputs: tuple) -> Any:
        return jax.block_until_ready(self.function(*inputs, **self.options))


@cache
def robot(dtype: str) -> lgjax.Model:
    return lgjax.models.quadruped().astype(dtype)


@cache
def state(dtype: str, k: int) -> tuple:
    """The quadruped with another inertia, and q, v, x, wrenches."""
    model = robot(dtype)
    key = jax.random.key(k)
    q = lgjax.random_configuration(key, model)
    v, x = jax.random.normal(key, (2, model.nv), dtype)
    wrenches = jax.random.normal(key, (model.nbodies, 6), dtype)
    return model.replace(damping=model.damping + 0.1 * k), q, v, x, wrenches


@cache
def loops(dtype: str) -> tuple[lgjax.Loop, ...]:
    return (lgjax.Loop("distance", "FL_foot", "FR_foot", distance=np.asarray(0.3, dtype)),)


@cache
def closed(dtype: str, k: int) -> tuple:
    """A configuration at which the loops are closed."""
    model, _, v, *_ = state(dtype, k)
    near = lgjax.retract(model, lgjax.neutral(model), 0.1 * v)
    return model, loops(dtype), lgjax.project_positions(model, loops(dtype), near).q


def passive(t, q, v):
    return -0.1 * v


def of_the_tree(dtype: str) -> dict[str, Call]:
    """Functions of a model."""
    at = lambda *which: lambda k: tuple(state(dtype, k)[i] for i in which)
    stacks = lambda k: tuple(jnp.stack([x, 0.1 * x]) for x in state(dtype, k)[2:4])
    call = lambda name, *which, **options: Call(getattr(lgjax, name), at(0, *which), options)
    plain = ["forward_kinematics", "mass_matrix", "gravity_forces", "potential_energy", "center_of_mass",
             "centroidal_momentum_matrix"]  # fmt: skip
    moving = ["body_twists", "coriolis_matrix", "bias_forces", "kinetic_energy", "total_energy", "momentum"]
    forced = ["forward_dynamics", "inverse_dynamics", "forward_dynamics_partials", "inverse_dynamics_partials"]
    found = {name: call(name, 1) for name in plain} | {name: call(name, 1, 2) for name in moving}
    found |= {name: call(name, 1, 2, 3, 4) if name in forced[:2] else call(name, 1, 2, 3) for name in forced}
    found |= {
        "solve_mass_matrix": call("solve_mass_matrix", 1, 2),
        "frame_pose": Call(lgjax.frame_pose, at(0, 1), {"name": "FL_foot"}),
        "jacobian": call("jacobian", 1, body="FL_foot"),
        "jacobian_derivative": call("jacobian_derivative", 1, 2, body="FL_foot"),
        "hybrid_dynamics": call("hybrid_dynamics", 1, 2, 3, 3, prescribed=range(6, 18)),
        "hybrid_dynamics_partials": call("hybrid_dynamics_partials", 1, 2, 3, 3, prescribed=[6, 7]),
        "centroidal.centroidal_momentum_matrix": call("centroidal_momentum_matrix", 1),
        "centroidal.centroidal_momentum_derivative": Call(lgjax.centroidal.centroidal_momentum_derivative, at(0, 1, 2)),
        "centroidal.center_of_mass_velocity": Call(lgjax.centroidal.center_of_mass_velocity, at(0, 1, 2)),
        "time_derivatives.closed_form": Call(lgjax.time_derivatives.closed_form, at(0, 1, 2, 3)),
    }
    ten = lambda k: (lgjax.identification.inertial_parameters(state(dtype, k)[0]),)
    found |= {
        "linearize": Call(lgjax.linearize, lambda k: (*at(0, 1, 2, 3)(k), 1e-2 * (k + 1))),
        "identification.regressor": Call(lgjax.identification.regressor, at(0, 1, 2, 3)),
        "identification.inertial_parameters": Call(lgjax.identification.inertial_parameters, at(0)),
        "identification.with_inertial_parameters": Call(
            lgjax.identification.with_inertial_parameters, lambda k: (robot(dtype), *ten(k))
        ),
        "identification.log_cholesky": Call(lambda x: lgjax.identification.log_cholesky(x.reshape(-1, 10)), ten),
        "identification.from_log_cholesky": Call(
            lambda x: lgjax.identification.from_log_cholesky(0.1 * x.reshape(-1, 10)), ten
        ),
    }
    rates = {
        "forward_dynamics_time_derivatives": lambda k: (*state(dtype, k)[:3], stacks(k)[1]),
        "inverse_dynamics_time_derivatives": lambda k: (*state(dtype, k)[:2], stacks(k)[0], 0),
        "hybrid_dynamics_time_derivatives": lambda k: (*state(dtype, k)[:3], *stacks(k), (6, 7)),
    }
    for name, inputs in rates.items():
        found[name] = found[f"time_derivatives.{name}"] = Call(getattr(lgjax, name), inputs)
    found |= {
        "time_derivatives.inverse_dynamics_time_derivative_partials": Call(
            lgjax.time_derivatives.inverse_dynamics_time_derivative_partials,
            lambda k: (*state(dtype, k)[:2], stacks(k)[0], 0),
        ),
        "time_derivatives.forward_dynamics_time_derivative_partials": Call(
            lgjax.time_derivatives.forward_dynamics_time_derivative_partials,
            lambda k: (*state(dtype, k)[:3], stacks(k)[1][:1]),
        ),
    }
    pose = lambda k: jax.tree.map(lambda x: x[0], state(dtype, k)[1].free_poses)
    twists = lambda k: state(dtype, k)[4][:3]
    found["time_derivatives.pose_derivatives"] = Call(
        lgjax.time_derivatives.pose_derivatives, lambda k: (pose(k), twists(k))
    )
    found["time_derivatives.twist_derivatives"] = Call(
        lgjax.time_derivatives.twist_derivatives,
        lambda k: (lgjax.time_derivatives.pose_derivatives(pose(k), twists(k)),),
    )
    reached = lambda k: (state(dtype, k)[0], {"FL_foot": jnp.array([0.2, 0.1, -0.3]) + 0.01 * k}, state(dtype, k)[1])
    found["inverse_kinematics"] = Call(lambda *args: lgjax.inverse_kinematics(*args).q, reached)
    controlled = lambda k: (*state(dtype, k)[:3], passive, 1e-3 * (k + 1), STEPS)
    found["rollout"] = Call(lgjax.rollout, controlled)
    return found


def of_loops(dtype: str) -> dict[str, Call]:
    """Functions of a model with closed loops."""
    at = lambda *which: lambda k: (state(dtype, k)[0], loops(dtype), *(state(dtype, k)[i] for i in which))
    found = {
        "constrained_forward_dynamics": Call(lgjax.constrained_forward_dynamics, at(1, 2, 3)),
        "constrained_hybrid_dynamics": Call(lgjax.constrained_hybrid_dynamics, at(1, 2, 3, 3), {"prescribed": [6]}),
        "constrained_inverse_dynamics": Call(
            lgjax.constrained_inverse_dynamics, at(1, 2, 3), {"actuated": range(6, 18)}
        ),
        "project_positions": Call(lgjax.project_positions, at(1)),
        "project_velocity": Call(lgjax.project_velocity, at(1, 2)),
    }
    found |= {f"loops.{name}": call for name, call in found.items()}
    found["loops.loop_constraint"] = Call(lgjax.loops.loop_constraint, at(1, 2))
    found["loops.loop_residual"] = Call(lgjax.loops.loop_residual, at(1))
    start = lambda k: closed(dtype, k)[::2]
    controlled = lambda k: (*start(k), 0 * state(dtype, k)[2], passive, 1e-3 * (k + 1), STEPS)
    found["rollout(loops=)"] = Call(lgjax.rollout, controlled, {"loops": closed(dtype, 0)[1]})
    return found


def of_forces(dtype: str) -> dict[str, Call]:
    """Makers of forces, and a force."""
    number = lambda *rest: lambda k: (robot(dtype), *rest, 1.0 + k)
    feet = [(name, np.asarray([0.0, 0.0, 0.1], dtype)) for name in ("FL_foot", "FR_foot")]

    @cache
    def every():
        model = robot(dtype)
        return forces.spring(model, 2.0) + forces.point_spring(model, *feet, 3.0) + forces.friction(model, 0.1)

    floor = shapes.Plane(np.asarray([0.0, 0.0, 1.0], dtype))
    touching = cache(lambda: lgjax.Contacts(robot(dtype), floor, [name for name, _ in feet]))
    return {
        "forces.contact": Call(forces.contact, lambda k: (robot(dtype), touching(), 1e4 + k)),
        "forces.spring": Call(forces.spring, number()),
        "forces.damper": Call(forces.damper, number()),
        "forces.friction": Call(forces.friction, number()),
        "forces.limits": Call(forces.limits, number(), {"damping": 1.0}),
        "forces.motors": Call(forces.motors, number(passive)),
        "forces.point_spring": Call(forces.point_spring, number(*feet)),
        "a sum of forces": Call(lambda *x: every()(*x), lambda k: (0.0, *state(dtype, k)[1:3])),
        "its energy": Call(lambda q: every().energy(q), lambda k: state(dtype, k)[1:2]),
    }


def of_bodies(dtype: str) -> dict[str, Call]:
    """Collisions and bodies in absolute coordinates."""
    body = lambda k: collisions.rigid_body(1.0 + k, (0.1, 0.2, 0.25), dtype=dtype)
    high = lambda k: collisions.rigid_state((0.0, 0.0, 0.5 + 0.1 * k), angular_momentum=(0.1, 0.2, 0.0), dtype=dtype)
    sizes = np.asarray([0.1, 0.2, 0.3], dtype)
    floor = cache(lambda: shapes.Plane(np.asarray([0.0, 0.0, 1.0], dtype)))
    h = lambda k: jnp.asarray(1e-2 * (1 + k), dtype)
    later = lambda k: high(k).pose._replace(translation=high(k).pose.translation + 0.001)
    bounced = lambda k: (body(k), shapes.ellipsoid(sizes), floor(), high(k), 1e-2 * (1 + k), STEPS)
    flown = lambda k: (body(k), shapes.ellipsoid(sizes), floor(), high(k).pose, later(k), 1e-2, STEPS)
    touch = lambda k: collisions.impact.ContactPoint(
        jnp.zeros((), dtype), jnp.asarray([0.0, 0.0, -0.3], dtype), floor().normal, jnp.asarray(False), jnp.asarray(0)
    )
    laws = lambda: collisions.impact.Laws(jnp.ones((), dtype), None)
    struck = lambda k: (body(k), high(k).pose, later(k), h(k), h(k), touch(k), laws())
    crank = cache(lambda: slider_crank(dtype=dtype))
    cranked = lambda k: (crank().system, crank().q0, (1.0 + 0.1 * k) * crank().v0, 0.0, 1e-2, STEPS)
    turn = lambda k: jnp.asarray([0.1, 0.2, 0.3 + k], dtype)
    return {
        "collisions.bounce": Call(collisions.bounce, bounced, {"restitution": 0.5, "friction": 0.3}),
        "collisions.lagrangian_bounce": Call(collisions.lagrangian_bounce, flown),
        "collisions.lagrangian_impact": Call(collisions.lagrangian_impact, struck),
        "collisions.lagrangian_step": Call(
            collisions.lagrangian_step, lambda k: (body(k), high(k).pose, later(k), h(k), h(k))
        ),
        "collisions.variational_step": Call(collisions.variational_step, lambda k: (body(k), high(k), h(k))),
        "collisions.kinetic_energy": Call(collisions.kinetic_energy, lambda k: (body(k), high(k))),
        "collisions.potential_energy": Call(collisions.potential_energy, lambda k: (body(k), high(k).pose)),
        "collisions.total_energy": Call(collisions.total_energy, lambda k: (body(k), high(k))),
        "collisions.rigid_body": Call(collisions.rigid_body, lambda k: (1.0 + k, (0.1, 0.2, 0.25))),
        "collisions.rigid_state": Call(collisions.rigid_state, lambda k: ((0.0, 0.0, 1.0 + k),)),
        "maximal.integrate": Call(maximal.integrate, cranked),
        "maximal.compose_rotation_vectors": Call(maximal.compose_rotation_vectors, lambda k: (turn(k), turn(k + 1))),
        "maximal.compose_tait_bryan_angles": Call(maximal.compose_tait_bryan_angles, lambda k: (turn(k), turn(k + 1))),
    }


def bowl(z, size):
    return jnp.sum(z * z) / (size * size) - 1


def ball(direction, size):
    return size * direction


def of_shapes(dtype: str) -> dict[str, Call]:
    """Shapes: their makers and what is computed of them."""
    size = lambda k: jnp.asarray(0.5 + 0.1 * k, dtype)
    three = lambda k: jnp.asarray([0.1, 0.2, 0.3 + 0.1 * k], dtype)
    corners = lambda k: jnp.asarray(shapes.convex.cuboid_vertices((0.1, 0.2, 0.3 + 0.1 * k)), dtype)
    one, other = (lambda k: shapes.ellipsoid(three(k))), (lambda k: shapes.box(three(k)))
    pose = lambda k: jax.tree.map(lambda x: x[0], state(dtype, k)[1].free_poses)
    plane = lambda k: shapes.Plane(three(k), 0.1)
    pair = lambda k: (one(k), shapes.capsule(size(k) / 5, size(k)))
    found = {
        "box": Call(shapes.box, lambda k: (three(k),)),
        "capsule": Call(shapes.capsule, lambda k: (size(k), size(k))),
        "cylinder": Call(shapes.cylinder, lambda k: (size(k), size(k))),
        "ellipsoid": Call(shapes.ellipsoid, lambda k: (three(k),)),
        "sphere": Call(shapes.sphere, lambda k: (size(k),)),
        "polyhedron": Call(shapes.polyhedron, lambda k: (corners(k),)),
        "rounded": Call(shapes.rounded, lambda k: (other(k), size(k))),
        "placed": Call(shapes.placed, lambda k: (other(k), pose(k))),
        "union": Call(shapes.union, pair),
        "intersection": Call(shapes.intersection, pair),
        "complement": Call(shapes.complement, lambda k: (one(k),)),
        "implicit": Call(shapes.implicit, lambda k: (bowl, np.zeros(3, dtype), (size(k),))),
        "support": Call(shapes.support, lambda k: (ball, (size(k),))),
        "distance": Call(shapes.distance, lambda k: (one(k), pose(k), other(k), pose(k + 1))),
        "gap": Call(shapes.gap, lambda k: (one(k), plane(k), pose(k))),
        "gap_derivatives": Call(shapes.gap_derivatives, lambda k: (one(k), plane(k), pose(k))),
        "mass_properties": Call(shapes.mass_properties, lambda k: (shapes.union(*pair(k)),), {"rays": 20}),
        "recentered": Call(shapes.recentered, lambda k: (other(k),)),
    }
    return {f"shapes.{name}": call for name, call in found.items()}


def calls(dtype: str) -> dict[str, Call]:
    """All of them by name."""
    kinds = (of_the_tree, of_loops, of_forces, of_bodies, of_shapes)
    return {name: call for kind in kinds for name, call in kind(dtype).items()}


def row(name: str, call: Call, repeats: int) -> list[str]:
    inputs = [jax.block_until_ready(call.inputs(k)) for k in range(repeats + 2)]
    times = []
    for values in inputs:
        start = time.perf_counter()
        call(values)
        times.append(time.perf_counter() - start)
    return [name, f"{times[0]:.2f}", f"{1e3 * times[1]:.2f}", f"{1e3 * float(np.median(times[2:])):.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, or parts of them")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, {options.dtype}\n")
    print("| function | first call, s | second, ms | median of the others, ms |\n|---|---|---|---|")
    for name, call in calls(options.dtype).items():
        if any(part in name for part in options.only.split(",")):
            print(f"| {' | '.join(row(name, call, options.repeats))} |", flush=True)


if __name__ == "__main__":
    main()
