"""Valid calls of viewers, adapters, joints of users, importers and ready systems, for `doors.py`."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import adapters, collisions, control, groups, integrators, maximal, plot, saving, shapes, systems, view
from lgjax.multibody.models import multirotor_with_arms as manipulator
from lgjax.view import sources
from lgjax.view.scene import finished
from soak.door_drivers import Calls, model, states, touching
from tests.dynamics import trees

# Calls that cannot be traced.
EAGER = (
    *("ensemble", "monte_carlo", "load_", "optimize_controls", "plot.", "view.", "joint_kind", "saving."),
    *("adapters.gymnasium", "adapters.walking"),
    *("integrators.Tableau", "integrators.CommutatorFreeTable", "integrators.Flow", "integrators.Composition"),
)
MJCF = """<mujoco model="m"><worldbody><body name="a"><joint name="j" axis="0 1 0"/>
<geom type="box" size="0.1 0.1 0.1"/></body></worldbody></mujoco>"""


# ---- viewers
@contextmanager
def no_server() -> Iterator[None]:
    """viser's server replaced by something that takes any call: no port is opened."""
    with mock.patch("viser.ViserServer", mock.MagicMock()):
        yield


def shown(make: Callable) -> Callable:
    """The viewer is made without a server, asked what it can be asked, and stopped; it returns nothing."""

    def call(**given: Any) -> tuple:
        with no_server(), make(**given) as viewer:
            viewer._repr_html_()
        return ()

    return call


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp())


def of_viewers() -> Calls:
    m, (q, _) = model(), states(3, 5)
    ts = np.linspace(0.0, 1.0, 5)
    scene = finished(sources.scene_of(m, (ts, q), visuals=False), 0, None, None)
    pendulum = systems.spherical_pendulum(2)
    free = maximal.System([maximal.Body("b", 1.0, (0.1, 0.1, 0.1))])
    absolute = maximal.AbsoluteConfiguration(groups.r3_so3.identity(jnp.float64, (1,)), jnp.zeros(0))
    return {
        "view.show": (shown(lambda **given: view.show(**given, visuals=False)), (), {
            "model": m, "trajectory": (ts, q), "highlight": 1, "spacing": 0.5, "ground": 0.1,
        }),
        "view.show(port)": (shown(lambda **given: view.show(m, **given)), (), {
            "port": 8080, "follow": False, "trail": True, "labels": True, "visuals": False,
        }),
        "view.show(...)": (shown(lambda **given: view.show(m, (ts, q), visuals=False, **given)), (), {
            "loops": lgjax.Loop("point", m.body_names[-1], None), "wrenches": np.ones((2, 6)), "contacts": touching(),
            "frames": 3, "systems": 2,
        }),
        "view.show(model)": (shown(lambda **given: view.show(**given)), (), {"model": m, "visuals": False}),
        "view.show(shape)": (shown(lambda **given: view.show(**given)), (), {
            "model": shapes.sphere(0.1), "trajectory": collisions.rigid_state((0.0, 0.0, 1.0)),
            "planes": (shapes.Plane((0.0, 0.0, 1.0)),),
        }),
        "view.show(system)": (shown(lambda **given: view.show(**given)), (), {"model": free, "trajectory": absolute}),
        "view.show(problem)": (shown(lambda **given: view.show(**given)), (), {
            "model": pendulum, "trajectory": pendulum.y0,
        }),
        "view.Viewer": (shown(lambda **given: view.Viewer(model=m, **given)), (), {
            "scene": scene, "port": 8080, "highlight": 1, "follow": False, "trail": True, "labels": True,
        }),
        "view.Inline": (lambda **given: view.Inline(**given)._repr_html_() and (), (), {"text": "<p>", "height": 100}),
        "view.html": (lambda **given: view.html(m, (ts, q), visuals=False, **given) and (), (), {
            "path": str(folder() / "page.html"), "speed": 2.0,
        }),
        "view.picture": (lambda **given: view.picture(m, (ts, q), visuals=False, **given) and (), (), {
            "path": str(folder() / "motion.gif"), "camera": (0.0, -1.0, 0.5), "size": (60, 40), "fps": 10, "speed": 2.0,
        }),
        "plot.save": (
            lambda made, path: plot.save(made, path), (plot.figure(1.0, 1.0), str(folder() / "figure.png")), {},
        ),
    }  # fmt: skip


# ---- mechanisms in the conventions of others
def start(key: jax.Array, m: lgjax.Model) -> Any:
    return lgjax.neutral(m), 0.1 * jax.random.normal(key, (m.nv,), m.dtype)


def of_environments() -> Calls:
    m, key = model(), jax.random.key(0)
    given = {
        "model": m, "dt": 0.01, "steps": 3, "start": start, "observe": lambda m, q, v: jnp.concatenate([q.joints, v]),
        "reward": lambda m, q, v, u: -v @ v, "failed": lambda m, q, v: v[0] > 9.0, "bounds": (-1.0, 1.0),
        "actions": 2, "actuation": lambda u: u, "wrenches": lambda u: jnp.zeros((2, 6)), "substeps": 2,
    }  # fmt: skip

    def episode(**given: Any) -> Any:
        made = adapters.Environment(**given)
        _, state = made.reset(key)
        return made.step(key, state, jnp.zeros(made.num_actions)), made.observation_size

    made = adapters.Environment(**given)
    state = adapters.EnvironmentState(lgjax.neutral(m), jnp.zeros(2), jnp.zeros((), jnp.int32))
    return {
        "adapters.Environment": (episode, (), given),
        "adapters.Environment(contacts=)": (lambda **more: episode(**given | more), (), {
            "contacts": touching(), "method": lgjax.contact.TimeStepping(),
        }),
        "adapters.Environment.reset": (made.reset, (key,), {"params": m}),
        "adapters.Environment.step": (made.step, (key, state, jnp.zeros(2)), {"params": m}),
        "adapters.Environment.system": (lambda **given: made.system(**given) and (), (), {"model": m}),
        "adapters.walking_quadruped": (lambda **given: adapters.walking_quadruped(**given) and (), (), {
            "command": (0.5, 0.0, 0.0), "spread": (0.1, 0.0, 0.0), "rough": True, "dtype": jnp.float64, "dt": 0.02,
            "substeps": 4, "steps": 9, "stiffness": 40.0, "damping": 1.5, "reach": 0.4, "friction": 0.8,
        }),
        "adapters.random_params": (adapters.random_params, (key, adapters.walking_quadruped(rough=True)), {
            "masses": (0.8, 1.2), "friction": (0.5, 1.0), "roughness": 0.02,
        }),
        "adapters.gymnasium_vector": (lambda **given: adapters.gymnasium_vector(**given) and (), (), {
            "environment": made, "batch": 2, "params": None, "seed": 1,
        }),
    }  # fmt: skip


def of_flat_states() -> Calls:
    m = lgjax.models.random_tree(16, 4, kinds=("spherical", "revolute", "prismatic"))
    q, v = lgjax.neutral(m), jnp.zeros(m.nv)
    y, push = adapters.flat_state(m, q, v), lambda t, q, v: jnp.zeros((4, 6))
    nq, law = len(y) - m.nv, lambda t, q, v: -v
    place, speed = SimpleNamespace(name="q", slice=slice(0, nq)), SimpleNamespace(name="v", slice=slice(nq, len(y)))
    command = SimpleNamespace(name="u", slice=slice(0, m.nv))
    dynamics = adapters.openscvx_dynamics(m, place, speed, command)

    def taken(**given: Any) -> list:
        made = adapters.openscvx_dynamics(**given)
        return [function(y, v, 0, {}) for function in made.values()]

    return {
        "adapters.flat_state": (adapters.flat_state, (m, q, v), {}),
        "adapters.from_flat_state": (adapters.from_flat_state, (m, y), {}),
        "adapters.flat_field": (lambda **given: adapters.flat_field(**given)(0.0, y), (), {
            "model": m, "controller": law, "wrenches": push,
        }),
        "adapters.flat_field()": (adapters.flat_field(m), (0.0, y), {"args": None}),
        "adapters.openscvx_dynamics": (taken, (), {
            "model": m, "qpos": place, "qvel": speed, "control": command, "actuation": lambda u: u,
            "wrenches": lambda u: jnp.zeros((4, 6)),
        }),
        "adapters.openscvx_dynamics()": (
            lambda x, u: (dynamics["q"](x, u, 0, {}), dynamics["v"](x, u, 0, {})), (y, v), {},
        ),
    }  # fmt: skip


# ---- joints of users, files and ready systems
def of_descriptions() -> Calls:
    path = folder() / "m.xml"
    path.write_text(MJCF)
    joint = lambda **given: lgjax.joint_kind(**given) and ()
    return {
        "joint_kind": (joint, (), {
            "name": "rail", "transform": trees.rail, "subspace": trees.rail_motions, "nv": 2,
            "samples": ((0.1, 0.2), (0.3, 0.4)), "constant_subspace": False,
        }),
        "joint_kind(...)": (joint, (), {
            "name": "rail", "transform": trees.rail, "subspace": trees.rail_motions, "nv": 2,
            "samples": np.full((2, 2), 0.1),
        }),
        "load_mjcf": (lgjax.load_mjcf, (MJCF,), {"check_inertia": "warn", "folder": str(folder())}),
        "load_mjcf(file)": (lgjax.load_mjcf, (str(path),), {}),
        "load_urdf(...)": (lgjax.load_urdf, (lgjax.models.urdf("arm"),), {
            "floating_base": True, "mimic": "independent", "check_inertia": "warn",
        }),
        "models.aerial_manipulator": (lgjax.models.aerial_manipulator, (manipulator.MECHANISM,), {}),
        "so3.log_quaternion": (lgjax.so3.log_quaternion, (lgjax.s3.exp(jnp.linspace(0.1, 0.3, 3)),), {}),
        "saving.Checkpoint": (lambda **given: saving.Checkpoint(**given) and (), (), {
            "folder": "run", "every": 10, "resume": False, "progress": False,
        }),
        "shapes.Plane": (
            lambda **given: shapes.gap(shapes.sphere(0.1), shapes.Plane(**given), lgjax.se3.identity(jnp.float64)),
            (), {"normal": (0.0, 0.0, 1.0), "offset": 0.1},
        ),
        "integrators.Tableau": (lambda **given: integrators.Tableau(**given) and (), (), {
            "name": "midpoint", "a": ((), (0.5,)), "b": (0.0, 1.0), "c": (0.0, 0.5), "order": 2, "b_hat": (1.0, 0.0),
            "order_hat": 1,
        }),
        "integrators.CommutatorFreeTable": (lambda **given: integrators.CommutatorFreeTable(**given) and (), (), {
            "name": "Euler", "stages": (integrators.Flow(),), "update": integrators.Flow(((1.0,),)), "order": 1,
            "embedded": integrators.Flow(((1.0,),)), "order_hat": 1,
        }),
        "integrators.Flow": (lambda **given: integrators.Flow(**given) and (), (), {"rows": ((1.0,),), "start": 1}),
        "integrators.Composition": (lambda **given: integrators.Composition(**given) and (), (), {
            "method": integrators.SymplecticLie(0.5), "weights": (1.0,), "order": 2,
        }),
        "control.Stagewise": (lambda **given: control.Stagewise(**given) and (), (), {
            "running": lambda t, x, u: u, "terminal": lambda x: x,
        }),
        "time_derivatives.motion_series": (_series, (), {
            "model": model(), "tau": lambda t, order: jnp.zeros((order, 2)),
            "wrenches": lambda t, order: jnp.zeros((order, 2, 6)),
        }),
    }  # fmt: skip


def _series(**given: Any) -> Any:
    m = model()
    return lgjax.time_derivatives.motion_series(**given)(jnp.zeros(()), (lgjax.neutral(m), jnp.zeros(m.nv)), 2)


def of_systems() -> Calls:
    arrays = lambda make: lambda **given: [x for x in jax.tree.leaves(tuple(make(**given))) if hasattr(x, "dtype")]
    pull, group = {"gravity": (0.0, 0.0, -9.81)}, groups.R3xSO3
    three, spin = (0.2, 0.4, 0.3), (0.0, 1.0, 0.0)
    given: dict[str, dict[str, Any]] = {
        "free_rigid_body": {"formulation": "body", "inertia": (1.0, 2.0, 2.5), "momentum": (0.9, -1.6, 1.1)},
        "heavy_top": {
            "formulation": "spatial", "reading": "benchmark", "mass": 15.0, "length": 1.0, "inertia": three,
            "axis": spin, "angular_velocity": spin, **pull,
        },
        "heavy_top_maximal": {
            "constrained": True, "mass": 15.0, "length": 1.0, "inertia": three, "angular_velocity": spin,
            "group": group, **pull,
        },
        "spherical_pendulum": {
            "n": 2, "form": "chain", "masses": (1.0, 2.0), "lengths": 1.0, "gravity": 9.81, "q": spin,
            "omega": (1.0, 0.0, 0.0), "chart": "exp",
        },
        "bouncing_body": {"case": "cube", "rounding": 0.1},
        "four_bar": {"lengths": (1.0, 0.4, 0.9, 0.7), "masses": (0.4, 0.9, 0.7), "closure": "revolute", **pull},
        "five_bar": {
            "lengths": (0.5, 0.4, 0.6, 0.6, 0.4), "masses": (0.5, 0.7, 0.7, 0.5), "actuated": (0, 1), "gravity": 9.81,
        },
        "stewart_platform": {
            "base_radius": 1.0, "top_radius": 0.6, "height": 1.2, "platform_mass": 20.0, "leg_mass": 1.5,
        },
        "quadrotors_with_load": {
            "path": lambda t: jnp.stack([t, t, t]), "attitude": "ideal", "load_mass": 0.5, "masses": (0.7, 0.8),
            "lengths": (1.0, 1.0), "inertia": (0.08, 0.08, 0.13), "spread": 2.0, "gains": {"attitude": 50.0},
            "gravity": 9.81,
        },
        "rotor": {
            "mass": 2.0, "inertia": (0.09, 0.046, 0.046), "length": 0.5, "left": 0.2, "stiffness": (9.0, 9.0, 9.0),
            "damping": (0.5, 0.5, 0.5), "speed": 500.0, "group": group, **pull,
        },
        "slider_crank": {
            "masses": (0.12, 0.5, 2.0), "inertias": np.full((3, 3), 1e-3), "speed": 6.0, "group": group, **pull,
        },
        "puma560": {"masses": (1.0,) * 6, "stiffness": (9.0,) * 6, "damping": (0.5,) * 6, "group": group, **pull},
        "puma560_minimal": {},
        "aerial_manipulator": {
            "mechanism": manipulator.MECHANISM, "propellers": manipulator.PROPELLERS, "motion": manipulator.MOTION,
        },
    }  # fmt: skip
    made = {
        f"systems.{name}": (arrays(getattr(systems, name)), (), more | {"dtype": jnp.float64})
        for name, more in given.items()
    }
    crank, top = systems.slider_crank(), systems.free_rigid_body()
    return made | {
        "systems.slider_position": (systems.slider_position, (crank.q0,), {}),
        "systems.in_coordinates": (lambda **given: arrays(systems.in_coordinates)(**given), (), {"system": top}),
    }


def others() -> Calls:
    """All of them by name."""
    return of_viewers() | of_environments() | of_flat_states() | of_descriptions() | of_systems()
