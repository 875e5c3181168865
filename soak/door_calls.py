"""Valid calls of the public functions, by name, for `doors.py`: small mechanisms, so that tracing them is cheap."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from benchmarks import eager_calls
from lgjax import collisions, contact, forces, groups, identification, integrators, maximal, shapes
from tests.dynamics import trees

D = jnp.float64


@cache
def robot() -> lgjax.Model:
    """A floating base with an arm and a ball: nv = 11."""
    chain = (
        ("base", None, "free"),
        ("arm", "base", "revolute"),
        ("hand", "arm", "prismatic"),
        ("eye", "hand", "spherical"),
    )
    return lgjax.build([trees.body(*body, i) for i, body in enumerate(chain, 1)])


def vector(n: int) -> jax.Array:
    return jnp.linspace(0.1, 0.6, n, dtype=D)


def stack(k: int, n: int) -> jax.Array:
    return jnp.stack([vector(n)] * k)


def rotation() -> jax.Array:
    return lgjax.so3.exp(vector(3))


def element(name: str) -> Any:
    return {
        "so3": rotation,
        "s3": lambda: lgjax.s3.exp(vector(3)),
        "se3": lambda: lgjax.se3.exp(vector(6)),
        "r3_so3": lambda: lgjax.r3_so3.exp(vector(6)),
        "vector": lambda: vector(4),
    }[name]()


# ---- groups: the functions of the modules by the form of their arguments
FORMS = {
    "compose": "ee", "inverse": "e", "exp": "v", "log": "e", "Ad": "ev", "ad": "vv", "coAd": "ev", "coad": "vv",
    "dexp": "vv", "dexpinv": "vv", "codexp": "vv", "codexpinv": "vv", "hat": "v", "cay": "v", "cayinv": "e",
    "dcay": "vv", "dcayinv": "vv", "distance": "ee", "normalize": "e", "act": "ep", "to_matrix": "e",
}  # fmt: skip
SIZES = {"so3": (3, 3), "s3": (3, 3), "se3": (6, 3), "r3_so3": (6, 3), "vector": (4, 4)}


def of_groups() -> dict[str, tuple[Callable, tuple]]:
    found: dict[str, tuple[Callable, tuple]] = {}
    for name, (dim, point) in SIZES.items():
        module = getattr(groups, name)
        forms = {"e": element(name), "v": vector(dim), "p": vector(point)}
        for function, form in FORMS.items():
            if hasattr(module, function):
                found[f"{name}.{function}"] = (getattr(module, function), tuple(forms[x] for x in form))
        found[f"{name}.vee"] = (module.vee, (module.hat(vector(dim)),))
        if hasattr(module, "identity"):
            found[f"{name}.identity"] = (module.identity, (D, (2,)))
    pose, y = element("se3"), groups.TangentPoint(jnp.asarray([0.0, 0.6, 0.8]), jnp.asarray([0.5, 0.0, 0.0]))
    found |= {
        "so3.to_quaternion": (lgjax.so3.to_quaternion, (rotation(),)),
        "so3.from_quaternion": (lgjax.so3.from_quaternion, (element("s3"),)),
        "s3.to_rotation": (lgjax.s3.to_rotation, (element("s3"),)),
        "s3.from_rotation": (lgjax.s3.from_rotation, (rotation(),)),
        "se3.from_matrix": (lgjax.se3.from_matrix, (lgjax.se3.to_matrix(pose),)),
        "se3.split": (lgjax.se3.split, (vector(6),)),
        "r3_so3.to_pose": (lgjax.r3_so3.to_pose, (element("r3_so3"),)),
        "r3_so3.from_pose": (lgjax.r3_so3.from_pose, (pose,)),
        "ts2.act": (lgjax.ts2.act, (pose, y)),
        "ts2.generator": (lgjax.ts2.generator, (vector(6), y)),
        "ts2.project": (lgjax.ts2.project, (vector(3), 2 * vector(3))),
        "ts2.distance": (lgjax.ts2.distance, (y, y)),
        "ts2.cayley_act": (lgjax.ts2.cayley_act, (vector(6), y)),
        "Rn": (groups.Rn, (3,)),
        "vector_space": (groups.vector_space, (3,)),
        "product": (groups.product, (groups.SO3, groups.SE3)),
        "product_space": (groups.product_space, (groups.TS2, groups.vector_space(2))),
        "power_space": (groups.power_space, (groups.TS2, 3)),
        "function_of_ad": (groups.function_of_ad, (groups.SE3, (1.0, 0.5), vector(6), vector(6))),
        "frame_space": (groups.frame_space, ("frame", 2, lambda xi, y: y + xi, lambda a, b: jnp.sum(a - b))),
    }
    for name in (
        "left_translation", "right_translation", "two_sided_translation", "cayley_coordinates", "cotangent_group",
        "second_kind_coordinates", "coadjoint_orbit", "cotangent_bundle", "tangent_sphere",
    ):  # fmt: skip
        found[name] = (getattr(groups, name), (groups.SE3,))
    derived = {
        "product()": groups.product(groups.SO3, groups.SE3),
        "cotangent()": groups.cotangent_group(groups.SO3),
        "cayley()": groups.cayley_coordinates(groups.SE3),
        "second_kind()": groups.second_kind_coordinates(groups.SE3),
    }
    for name, group in derived.items():
        u = vector(group.dim)
        g = group.exp(u)
        for function in ("exp", "dexp", "ad", "coAd", "compose", "log", "distance"):
            given = {"e": g, "v": u}
            found[f"{name}.{function}"] = (getattr(group, function), tuple(given[x] for x in FORMS[function]))
    spaces = {
        "TS2": (groups.TS2, vector(6), y),
        "left()": (lgjax.left_translation(groups.SE3), vector(6), pose),
        "right()": (lgjax.right_translation(groups.SO3), vector(3), rotation()),
        "two_sided()": (groups.two_sided_translation(groups.SO3), (vector(3), vector(3)), rotation()),
        "orbit()": (groups.coadjoint_orbit(groups.SO3), vector(3), vector(3)),
        "bundle()": (groups.cotangent_bundle(groups.SO3), vector(6), groups.Covector(rotation(), vector(3))),
        "power()": (groups.power_space(groups.TS2, 3), stack(3, 6), jax.tree.map(lambda x: jnp.stack([x] * 3), y)),
        "vector()": (groups.vector_space(4), vector(4), vector(4)),
    }
    for name, (space, xi, point) in spaces.items():
        found[f"{name}.move"] = (space.move, (xi, point))
        found[f"{name}.dexpinv"] = (space.dexpinv, (xi, xi))
        found[f"{name}.distance"] = (space.distance, (point, point))
    return found


# ---- integrators
def of_integrators() -> dict[str, tuple[Callable, tuple, dict]]:
    space, y0 = lgjax.right_translation(groups.SO3), rotation()
    field = lambda t, y: vector(3)  # which raises no error of its own
    run = (space, field, y0, 0.0, 1.0, 4)
    method = lgjax.MuntheKaas(lgjax.RK4)
    step = lambda args, t, y, h, carry: (jax.tree.map(lambda x: x + h, y), carry)
    covector, momenta = groups.Covector(y0, vector(3)), lambda t, y: vector(6)
    return {
        "integrate": (lgjax.integrate, (*run, method), {"save_every": 2}),
        "integrate_reversible": (
            integrators.integrate_reversible,
            (groups.cotangent_bundle(groups.SO3), momenta, covector, 0.0, 1.0, 4, integrators.SymplecticLie()),
            {"save_every": 2},
        ),
        "integrate_adaptive": (
            lgjax.integrate_adaptive,
            (*run[:-1], lgjax.MuntheKaas(lgjax.DORMAND_PRINCE54), 1e-6, 1e-6, 50),
            {"save_at": jnp.asarray([0.3, 0.7])},
        ),
        "reversible_steps": (integrators.reversible_steps, (step, vector(2), vector(2), 0.0, 1.0, 4), {}),
        "triple_jump": (integrators.triple_jump, (lgjax.SymplecticLie(),), {"order": 4}),
        "suzuki": (integrators.suzuki, (lgjax.SymplecticLie(),), {"order": 4}),
        "MuntheKaas": (lgjax.MuntheKaas, (lgjax.RK4, 1, False), {}),
        "CommutatorFree": (lgjax.CommutatorFree, (lgjax.CF4,), {}),
        "SymplecticLie": (lgjax.SymplecticLie, (0.5,), {}),
        "Taylor": (lgjax.Taylor, (3, 8), {}),
        "StepSizeController": (integrators.StepSizeController, (0.7, 0.4, 0.9, 0.2, 5.0), {}),
        "GeneralizedAlpha": (
            lgjax.GeneralizedAlpha,
            (),
            {"spectral_radius": 0.9, "predictor": "constant", "variant": "standard", "rtol": 1e-6},
        ),
        "NewtonRule": (
            maximal.NewtonRule,
            (),
            {"mode": "full", "max_iterations": 30, "max_age": 8, "contractivity": 0.5},
        ),
    }


# ---- multibody
def of_multibody() -> dict[str, tuple[Callable, tuple, dict]]:
    model = robot()
    q = lgjax.neutral(model)
    m = lgjax.conventions.to_mujoco(model, q, vector(model.nv))
    p = lgjax.conventions.to_pinocchio(model, q, vector(model.nv))
    x = vector(model.nv)
    more = {"v": x, "vdot": x, "tau": x}
    body = lgjax.Body("b", None, lgjax.Joint("j", "revolute"), mass=1.0, inertia=0.1 * np.eye(3))
    return {
        "configuration": (lgjax.configuration, (model,), {
            "base": element("se3"), "joints": vector(2), "ball_rotations": rotation()[None],
        }),
        "neutral": (lgjax.neutral, (model,), {}),
        "random_configuration": (lgjax.random_configuration, (jax.random.key(0), model), {}),
        "retract": (lgjax.retract, (model, q, x), {}),
        "difference": (lgjax.difference, (model, q, q), {}),
        "specialize": (lgjax.specialize, (model,), {}),
        "conventions.to_mujoco": (lgjax.conventions.to_mujoco, (model, q), more),
        "conventions.to_pinocchio": (lgjax.conventions.to_pinocchio, (model, q), more),
        "conventions.from_mujoco": (lgjax.conventions.from_mujoco, (model, m.q), more),
        "conventions.from_pinocchio": (lgjax.conventions.from_pinocchio, (model, p.q), more),
        "Joint": (lambda **given: lgjax.build([replace(body, joint=lgjax.Joint(**given))]), (), {
            "name": "j", "kind": "revolute", "axis": (0.0, 0.0, 1.0), "origin": (0.0, 0.1, 0.0),
            "lower": -1.0, "upper": 1.0, "effort": 2.0,
        }),
        "Body": (lambda **given: lgjax.build([lgjax.Body(**given)]), (), {
            "name": "b", "parent": None, "joint": lgjax.Joint("j", "revolute"),
            "rotation": np.eye(3), "position": np.zeros(3), "mass": 1.0, "com": np.zeros(3), "inertia": 0.1 * np.eye(3),
        }),
        "build": (lgjax.build, ([body],), {"name": "m", "gravity": (0.0, 0.0, -9.81), "check_inertia": "error"}),
        "load_urdf": (lgjax.load_urdf, (lgjax.models.urdf("arm"),), {"floating_base": False, "mimic": "error"}),
        "models.chain": (lgjax.models.chain, (2, False), {}),
        "models.branched_tree": (lgjax.models.branched_tree, (2, 2), {}),
        "models.by_name": (lgjax.models.by_name, ("arm",), {}),
        "models.urdf": (lgjax.models.urdf, ("arm",), {}),
        "models.random_tree": (lgjax.models.random_tree, (0, 3), {"armature": 0.1, "damping": 0.1}),
        "mechanical_space": (lgjax.multibody.mechanical_space, (model.tree,), {}),
    }  # fmt: skip


# ---- contact, forces, loops, control, identification, ensembles
def of_contact() -> dict[str, tuple[Callable, tuple, dict]]:
    model = robot()
    q, v = lgjax.neutral(model), vector(model.nv)
    ground = shapes.Plane((0.0, 0.0, 1.0))
    touching = lgjax.Contacts(model, [ground], {"hand": shapes.sphere(0.1), "arm": shapes.sphere(0.1)})
    n = len(touching)
    return {
        "Contacts": (lgjax.Contacts, (model, [ground], {"hand": shapes.sphere(0.1)}), {
            "friction": 0.5, "restitution": 0.1, "pairs": (),
        }),
        "contact_points": (contact.contact_points, (model, touching, q), {}),
        "contact_velocities": (contact.contact_velocities, (model, touching, q, v), {}),
        "contact_torques": (contact.contact_torques, (model, touching, q, stack(n, 3)), {}),
        "contact_step": (contact.contact_step, (model, touching, q, v, v, 0.01), {
            "guess": stack(n, 3), "wrenches": stack(model.nbodies, 6),
        }),
        "EventDriven": (contact.EventDriven, (1e-8, 1e-8, 16), {"max_sweeps": 20}),
        "TimeStepping": (contact.TimeStepping, (1e-8, 100, 3), {}),
        "HeightField": (contact.HeightField, (np.zeros((3, 3)), (0.5, 0.5), (0.0, 0.0)), {}),
        "forces.contact": (forces.contact, (model, touching, 1e4), {"damping": 1.0, "exponent": 1.5}),
        "forces.spring": (forces.spring, (model, 2.0, q), {"joints": ["arm_joint"]}),
        "forces.damper": (forces.damper, (model, 0.1), {}),
        "forces.friction": (forces.friction, (model,), {"viscous": 0.1, "coulomb": 0.2, "smoothing": 0.01}),
        "forces.limits": (forces.limits, (model, 10.0), {
            "damping": 0.1, "width": 0.01, "lower": -jnp.ones(2), "upper": jnp.ones(2),
            "joints": ["arm_joint", "hand_joint"],
        }),
        "forces.motors": (forces.motors, (model, lambda t, q, v: jnp.zeros(11)), {
            "gear": 2.0, "rotor_inertia": 0.1, "torque": 3.0, "speed": 10.0,
        }),
        "forces.point_spring": (
            forces.point_spring,
            (model, ("arm", np.zeros(3)), ("hand", (0.0, 0.0, 0.1)), 5.0),
            {"length": 0.1, "damping": 0.2},
        ),
        "a force": (forces.spring(model, 2.0), (0.0, q, v), {}),
        "energy of a force": (forces.spring(model, 2.0).energy, (q,), {}),
        "Loop": (lgjax.Loop, ("distance", "arm", "hand"), {"distance": 0.3, "frame_a": np.zeros(3)}),
        "rollout": (lgjax.rollout, (model, q, v, None, 0.01, 2), {
            "wrenches": lambda t, q, v: stack(model.nbodies, 6), "save_every": 1, "remat": False,
        }),
        "rollout(contacts=)": (lgjax.rollout, (model, q, v, None, 0.01, 2), {
            "contacts": touching, "method": contact.TimeStepping(),
        }),
        "jacobian": (lgjax.jacobian, (model, q, "hand"), {"frame": "world"}),
        "frame_pose": (lgjax.frame_pose, (model, q, "hand"), {}),
        "linearize": (lgjax.linearize, (model, q, v, v, 0.01), {}),
        "rollout_memory": (lgjax.control.rollout_memory, (model, 4), {"batch": 2}),
    }  # fmt: skip


def of_identification() -> dict[str, tuple[Callable, tuple, dict]]:
    model = lgjax.models.chain(2)
    qs = jax.tree.map(lambda x: jnp.stack([x] * 4), lgjax.neutral(model))
    record = identification.TorqueRecord(qs, stack(4, 2), stack(4, 2), stack(4, 2), vector(2))
    unknowns = identification.viscous(model)
    poses = jax.tree.map(lambda x: jnp.stack([x] * 4), element("se3"))
    q0 = (lgjax.neutral(model), vector(2))
    frame = model.tree.body_names[-1]
    likely = lambda record: identification.log_likelihood(model, record, unknowns)(jnp.zeros(2))
    makers = ("armature", "coulomb", "gear", "viscous")
    bodies = ("inertias", "masses", "placements")
    return {
        **{f"identification.{x}": (getattr(identification, x), (model,), {"joints": None}) for x in makers},
        **{f"identification.{x}": (getattr(identification, x), (model,), {"bodies": [frame]}) for x in bodies},
        "identification.frames": (identification.frames, (lgjax.models.quadruped(), ["FL_foot"]), {}),
        "identification.TorqueRecord": (
            lambda **given: likely(identification.TorqueRecord(**given)), (), {
                "q": qs, "v": stack(4, 2), "vdot": stack(4, 2), "command": stack(4, 2), "sigma": vector(2),
            }
        ),
        "identification.PoseRecord": (
            lambda **given: likely(identification.PoseRecord(**given, frame=frame)), (), {
                "q": qs, "poses": poses, "sigma": vector(6),
            }
        ),
        "identification.MotionRecord": (
            lambda **given: likely(identification.MotionRecord(**given)), (), {
                "start": q0, "command": stack(4, 2), "q": qs, "dt": 0.01, "sigma": vector(2),
            }
        ),
        "identification.identify": (identification.identify, (model, record, unknowns), {"prior": 0.5}),
        "identification.log_likelihood": (identification.log_likelihood, (model, record, unknowns), {}),
        "identification.plant_of": (identification.plant_of, (model, 2.0), {}),
        "identification.inertial_parameters": (identification.inertial_parameters, (model,), {}),
        "identification.with_inertial_parameters": (
            identification.with_inertial_parameters, (model, identification.inertial_parameters(model)), {}
        ),
        "identification.log_cholesky": (
            identification.log_cholesky, (identification.inertial_parameters(model).reshape(-1, 10),), {}
        ),
        "identification.from_log_cholesky": (identification.from_log_cholesky, (stack(2, 10),), {}),
        "identification.base_parameters": (identification.base_parameters, (np.ones((4, 20)),), {"tolerance": 1e-9}),
        "identification.regressor": (identification.regressor, (model, *q0, vector(2)), {}),
    }  # fmt: skip


def of_maximal() -> dict[str, tuple[Callable, tuple, dict]]:
    crank = lgjax.systems.slider_crank()
    usual = maximal.Body("b", 1.0, (0.1, 0.1, 0.1))
    system = lambda joint=None, force=None, body=usual: maximal.System(
        [body], [joint] if joint else [], [force] if force else []
    )
    return {
        "maximal.Body": (lambda **given: system(body=maximal.Body(**given)), (), {
            "name": "b", "mass": 1.0, "inertia": (0.1, 0.1, 0.1),
        }),
        "maximal.Joint": (lambda **given: system(maximal.Joint(**given)), (), {
            "name": "j", "kind": "revolute", "a": "world", "b": "b",
            "origin_a": (0.0, 0.0, 0.0), "frame_a": np.eye(3), "length": 0.0,
        }),
        "maximal.Spring": (lambda **given: system(force=maximal.Spring(**given)), (), {
            "a": "world", "b": "b", "point_a": (0.0, 0.0, 0.0), "stiffness": 1.0, "damping": 0.1, "length": 0.2,
        }),
        "maximal.Gravity": (lambda **given: system(force=maximal.Gravity(**given)), (), {"vector": (0.0, 0.0, -9.81)}),
        "maximal.Load": (lambda **given: system(force=maximal.Load(**given)), (), {
            "body": "b", "point": (0.0, 0.0, 0.0), "force_world": (0.0, 0.0, 1.0),
        }),
        "maximal.Bushing": (lambda **given: system(force=maximal.Bushing(**given)), (), {
            "a": "world", "b": "b", "stiffness": (1.0, 1.0, 1.0), "damping": (0.0,) * 3,
        }),
        "maximal.TorsionSpring": (lambda **given: system(force=maximal.TorsionSpring(**given)), (), {
            "a": "world", "b": "b", "stiffness": 1.0, "damping": 0.1,
        }),
        "maximal.VectorNode": (lambda **given: maximal.System([maximal.VectorNode(**given)]), (), {
            "name": "n", "size": 2, "mass": 1.0,
        }),
        "maximal.System": (
            lambda mass, stiffness: maximal.System(
                [maximal.Body("b", mass, (0.1, 0.1, 0.1))], [], [maximal.Spring("world", "b", stiffness=stiffness)]
            ),
            (1.0, 2.0), {},
        ),
        "maximal.integrate": (maximal.integrate, (crank.system, crank.q0, crank.v0, 0.0, 0.01, 2), {"save_every": 1}),
        "maximal.unconstrained_problem": (
            lambda q, v: maximal.unconstrained_problem(_free(), q, v)[2], (_free_state(), jnp.zeros(6)), {},
        ),
        "maximal.compose_rotation_vectors": (maximal.compose_rotation_vectors, (vector(3), vector(3)), {}),
        "maximal.compose_tait_bryan_angles": (maximal.compose_tait_bryan_angles, (vector(3), vector(3)), {}),
    }  # fmt: skip


@cache
def _free() -> maximal.System:
    return maximal.System([maximal.Body("b", 1.0, (0.1, 0.1, 0.1))], [], [maximal.Gravity()])


def _free_state() -> Any:
    return maximal.AbsoluteConfiguration(groups.r3_so3.identity(D, (1,)), jnp.zeros(0, D))


def of_control() -> dict[str, tuple[Callable, tuple, dict]]:
    space = groups.vector_space(2)
    system = lgjax.control.ControlSystem.on_space(space, lambda x, u: x + u, 2)
    running = lambda t, x, u: x @ x + u @ u
    return {
        "control.ControlSystem.on_space": (lgjax.control.ControlSystem.on_space, (space, lambda x, u: x + u, 2), {}),
        "control.ILQR": (lgjax.control.ILQR, (), {"iterations": 5, "tolerance": 1e-6, "line_search": "best"}),
        "control.FDDP": (lgjax.control.FDDP, (), {"iterations": 5, "tolerance": 1e-6, "penalty": 1.0}),
        "control.Shooting": (lgjax.control.Shooting, (), {"iterations": 5, "hold": "constant", "growth": 4.0}),
        "control.MultipleShooting": (lgjax.control.MultipleShooting, (), {"iterations": 5, "segments": 2}),
        "control.PredictiveController": (lgjax.control.PredictiveController, (), {
            "system": system, "steps": 4, "running": running, "iterations": 2,
        }),
        "collisions.variational_step": (collisions.variational_step, (
            collisions.rigid_body(1.0, (0.1, 0.2, 0.25)), collisions.rigid_state((0.0, 0.0, 1.0)), jnp.asarray(0.01),
        ), {"chart": "cayley"}),
    }  # fmt: skip


def doors() -> dict[str, tuple[Callable, tuple, dict]]:
    """Name -> function, arguments, keywords."""
    found = {name: (*call, {}) for name, call in of_groups().items()}
    found |= of_integrators() | of_multibody() | of_contact() | of_identification() | of_maximal() | of_control()
    for name, call in eager_calls.calls("float64").items():
        if name not in found and not name.startswith("a sum") and not name.startswith("its"):
            found[name] = (call.function, call.inputs(0), dict(call.options))
    return found
