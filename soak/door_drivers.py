"""Valid calls of ensembles, searches of controls, costs, loops, figures and views, for `doors.py`.

Most cannot be traced: ensembles and searches end where they would compile their program, figures are drawn.
"""

import tempfile
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import collisions, contact, control, ensembles, groups, maximal, plot, shapes, view
from lgjax.collisions.bounce import Impacts
from lgjax.simulate.contact_rollout import ContactRecord
from lgjax.simulate.control import optimize
from lgjax.simulate.ensemble import program
from lgjax.view import sources
from lgjax.view.scene import finished

Calls = dict[str, tuple[Callable, tuple, dict]]


class AboutToCompileError(Exception):
    """All that can be said of the arguments has been said."""


def _compile_ahead(function: Any, *args: Any, options: Any = None) -> Any:
    jax.eval_shape(function, *args)
    raise AboutToCompileError


def traced(function: Callable) -> Callable:
    """The function up to where it compiles; it returns nothing."""

    def call(**given: Any) -> tuple:
        ahead = "compile_ahead"
        with mock.patch.object(program, ahead, _compile_ahead), mock.patch.object(optimize, ahead, _compile_ahead):
            try:
                function(**given)
            except AboutToCompileError:
                return ()
        raise AssertionError("it compiled nothing")

    return call


@cache
def model() -> lgjax.Model:
    return lgjax.models.chain(2)


def states(*lead: int) -> tuple[Any, Any]:
    """Configurations and velocities with leading axes, as NumPy arrays."""
    m = model()
    q = jax.tree.map(lambda x: np.broadcast_to(np.asarray(x), (*lead, *x.shape)), lgjax.neutral(m))
    return q, np.zeros((*lead, m.nv))


@cache
def touching() -> lgjax.Contacts:
    """Contacts of the model with the ground."""
    return lgjax.Contacts(model(), shapes.Plane((0.0, 0.0, 1.0)), {model().body_names[-1]: shapes.sphere(0.1)})


def of_loops() -> Calls:
    """The options of functions of closed loops, of which `benchmarks/eager_calls.py` gives none."""
    m = model()
    q, v = jax.tree.map(jnp.asarray, states())
    world = lgjax.forward_kinematics(m, q).translation[-1]
    loop = lgjax.Loop("distance", m.body_names[-1], None, frame_b=world + jnp.asarray([0.0, 0.3, 0.4]), distance=0.5)
    push, weak = jnp.zeros((m.nbodies, 6)), {"alpha": 1.0, "beta": 2.0, "tolerance": 1e-6}
    return {
        "constrained_forward_dynamics(...)": (lgjax.constrained_forward_dynamics, (m, loop, q, v, v), {
            "wrenches": push, **weak,
        }),
        "constrained_hybrid_dynamics(...)": (lgjax.constrained_hybrid_dynamics, (m, (loop,), q, v, v, v), {
            "prescribed": (0,), "wrenches": push, "minimum": "torque", **weak,
        }),
        "constrained_inverse_dynamics(...)": (lgjax.constrained_inverse_dynamics, (m, [loop], q, v, v), {
            "actuated": [0], "tau": v, "wrenches": push, "minimum": "torque", "tolerance": 1e-6,
        }),
        "project_positions(...)": (lgjax.project_positions, (m, loop, q), {
            "metric": "plain", "tolerance": 1e-9, "rank": 1e-6, "max_iterations": 5,
        }),
        "project_velocity(...)": (lgjax.project_velocity, (m, loop, q, v), {"tolerance": 1e-6}),
        "rollout(loops=, ...)": (lgjax.rollout, (m, q, v, None, 0.01, 2), {
            "loops": loop, "project": "mass", **weak, "method": lgjax.MuntheKaas(lgjax.RK4), "save_every": 2,
            "remat": 1, "checkpoint": None,
        }),
    }  # fmt: skip


@cache
def saved_run() -> str:
    """A folder that holds a run of one time."""
    folder = tempfile.mkdtemp()
    simulate = lambda key: ensembles.Sample(jax.random.normal(key, (1, 2)))
    given = {"batch": 2, "key": jax.random.key(0), "common": {"ts": np.zeros(1)}, "progress": False}
    lgjax.monte_carlo(simulate, folder=folder, **given)
    return folder


def of_ensembles() -> Calls:
    m, key = model(), jax.random.key(0)
    q, v = lgjax.neutral(m), jnp.zeros(2)
    usual = {"batch": 4, "steps": 2, "dt": 0.01, "key": key}
    simulate = lambda key, scale: ensembles.Sample(scale * jax.random.normal(key, (2,)))
    spread = lambda **given: lgjax.ensemble(m, **usual, spread=lgjax.Spread(**given))
    return {
        "ensemble": (traced(lambda **given: lgjax.ensemble(**given)), (), {
            "model": m, **usual, "q": q, "v": v, "chunk": 2, "save_every": 1, "store": "final", "limit": 10.0,
        }),
        "ensemble(...)": (traced(lambda **given: lgjax.ensemble(m, **usual, **given)), (), {
            "controller": lambda t, q, v: -v, "method": lgjax.MuntheKaas(lgjax.RK4),
            "spread": lgjax.Spread(inertia=jnp.ones((2, 3))), "sample": lambda key: ensembles.Draw(m, q, v),
            "observe": lambda t, q, v: v, "events": lambda t, q, v: v > 0,
            "wrenches": lambda t, q, v: jnp.zeros((2, 6)), "resume": False, "progress": False,
            "compiler_options": {"xla_cpu_enable_fast_math": False},
        }),
        "ensemble(contacts=)": (traced(lambda **given: lgjax.ensemble(m, **usual, **given)), (), {
            "contacts": touching(), "method": contact.TimeStepping(),
        }),
        "load_ensemble": (lambda folder: lgjax.load_ensemble(folder) and (), (saved_run(),), {}),
        "load_run": (lambda folder: ensembles.load_run(folder) and (), (saved_run(),), {}),
        "monte_carlo(...)": (traced(lambda **given: lgjax.monte_carlo(**given, batch=4, key=key)), (), {
            "simulate": lambda key: ensembles.Sample(jax.random.normal(key, (2,))), "folder": "none", "resume": False,
            "progress": False, "common": {"ts": np.ones(3)}, "compiler_options": {"xla_cpu_enable_fast_math": False},
        }),
        "ensemble(spread=)": (traced(spread), (), {"position": 0.1, "velocity": 0.1, "mass": 0.1, "gravity": 0.1}),
        "monte_carlo": (traced(lambda **given: lgjax.monte_carlo(simulate, **given)), (), {
            "arguments": (jnp.asarray(1.0),), "batch": 4, "key": key, "chunk": 2, "devices": 1, "limit": 10.0,
            "quantiles": (0.25, 0.75), "checkpoint_every": 1.0, "duration": 1.0, "tag": "a",
        }),
    }  # fmt: skip


def of_searches() -> Calls:
    m = model()
    # Of vectors: tracing a search for a mechanism takes half a minute.
    system = control.ControlSystem.on_space(groups.vector_space(2), lambda x, u: x + 0.1 * u, 2)
    q, v = lgjax.neutral(m), jnp.zeros(2)
    running = lambda t, x, u: u @ u
    search = lambda **given: lgjax.optimize_controls(system, running=running, **given)
    methods = {"shooting": control.Shooting(iterations=2), "iLQR": control.ILQR(iterations=2)}
    found: Calls = {
        f"optimize_controls, {name}": (traced(search), (), {
            "state": v, "guesses": jnp.zeros((2, 3, 2)), "steps": 3, "bounds": (-1.0, 1.0), "method": method,
        })
        for name, method in methods.items()
    }  # fmt: skip
    methods |= {"FDDP": control.FDDP(iterations=2), "segments": control.MultipleShooting(iterations=2, segments=3)}
    nodes = {"shooting": None, "iLQR": None, "FDDP": jnp.zeros((2, 3, 2)), "segments": jnp.zeros((2, 2, 2))}
    held = control.Stagewise(lambda t, x, u: u[:1], lambda x: x[:1])
    found |= {
        f"optimize_controls(...), {name}": (traced(lambda **given: lgjax.optimize_controls(**given)), (), {
            "system": system, "state": v, "guesses": jnp.zeros((2, 3, 2)), "steps": 3, "running": running,
            "terminal": lambda x: x @ x, "equality": held, "inequality": held if name in ("iLQR", "FDDP") else None,
            "method": method, "nodes": nodes[name], "progress": False, "checkpoint": "none",
        })
        for name, method in methods.items()
    }  # fmt: skip
    for name, method in {"iLQR": control.ILQR(), "FDDP": control.FDDP()}.items():
        predict = control.PredictiveController(
            system=system, steps=3, running=running, bounds=(-1.0, 1.0), iterations=1, method=method
        )
        memory = predict.init(v)
        found |= {
            f"control.PredictiveController.init, {name}": (predict.init, (v, jnp.zeros((3, 2))), {}),
            f"control.PredictiveController.step, {name}": (predict.step, (v, memory), {}),
            f"control.PredictiveController.closed_loop, {name}": (predict.closed_loop, (v, memory, 2), {}),
        }
    cost = lambda make: lambda **given: make(m, **given)((q, v))
    return found | {
        "control.ControlSystem.of_model": (lambda **given: control.ControlSystem.of_model(m, **given) and (), (), {
            "dt": 0.1, "controls": 2,
        }),
        "control.costs.frame": (cost(control.costs.frame), (), {
            "name": m.tree.body_names[-1], "target": lgjax.se3.identity(jnp.float64), "weights": jnp.ones(6),
        }),
        "control.costs.frame_position": (cost(control.costs.frame_position), (), {
            "name": m.tree.body_names[-1], "target": jnp.ones(3), "weights": jnp.ones(3),
        }),
        "control.costs.momentum": (cost(control.costs.momentum), (), {"target": jnp.ones(6), "weights": jnp.ones(6)}),
        "control.costs.state": (cost(control.costs.state), (), {"target": (q, v), "weights": jnp.ones(4)}),
        "control.costs.forces": (
            lambda **given: control.costs.forces(m, **given)(0.0, (q, v), jnp.ones(2)), (),
            {"target": jnp.ones(2), "weights": jnp.ones(2)},
        ),
        "control.ControlSystem.of_model(...)": (lambda **given: control.ControlSystem.of_model(**given) and (), (), {
            "model": m, "dt": 0.1, "controls": 2, "actuation": lambda u: u, "wrenches": lambda u: jnp.zeros((2, 6)),
            "method": contact.TimeStepping(), "substeps": 2, "contacts": touching(), "free_time": False,
        }),
        "control.ControlSystem.of_accelerations": (
            lambda **given: control.ControlSystem.of_accelerations(**given) and (), (), {"model": m, "dt": 0.1},
        ),
        "control.costs.control": (
            lambda **given: control.costs.control(**given)(0.0, (q, v), jnp.ones(2)), (),
            {"target": jnp.ones(2), "weights": jnp.ones(2)},
        ),
    }  # fmt: skip


def of_figures() -> Calls:
    ts, rows = np.linspace(0.0, 1.0, 5), np.linspace(0.1, 1.0, 10).reshape(5, 2)
    drawn = lambda make: lambda **given: make(**given) and ()
    q, v = states(3, 5)
    path = SimpleNamespace(ts=ts, q=q, v=v, energy=np.ones((3, 5)))
    hits = Impacts(ts, np.zeros(5, int), -ts, ts)
    touched = ContactRecord(np.ones((5, 2, 3)), None, np.ones((5, 2)), np.ones((5, 2)), None, None)  # what is drawn
    return {
        "plot.rollout_figure": (drawn(plot.rollout_figure), (), {"model": model(), "result": path, "samples": 2}),
        "plot.rollout_figure(result)": (
            lambda **given: plot.rollout_figure(model(), SimpleNamespace(**vars(path) | given)) and (), (),
            {"ts": ts, "q": q, "energy": path.energy},
        ),
        "plot.impact_figure": (drawn(plot.impact_figure), (), {"events": hits}),
        "plot.contact_figure": (drawn(plot.contact_figure), (), {
            "ts": ts, "record": touched, "names": ("a", "b"), "shown": 2,
        }),
        "plot.controls_figure(...)": (
            lambda **given: plot.controls_figure(ts, rows[1:], rows, rows, **given) and (), (),
            {"bounds": (-1.0, 1.0), "names": ("a", "b")},
        ),
        "plot.phase_figure(units)": (lambda **given: plot.phase_figure(rows, rows, ("a", "b"), **given) and (), (), {
            "units": ("m", "rad"),
        }),
        "plot.work_precision_figure(...)": (drawn(plot.work_precision_figure), (), {
            "work": {"a": ts}, "errors": {"a": ts}, "xlabel": "x", "ylabel": "y",
        }),
        "plot.convergence_figure(...)": (drawn(plot.convergence_figure), (), {
            "steps": ts, "errors": {"a": ts}, "orders": {"a": 2.0}, "ylabel": "y",
        }),
        "plot.figure": (drawn(plot.figure), (), {"width": 4.0, "height": 3.0}),
        "plot.controls_figure": (drawn(plot.controls_figure), (), {
            "ts": ts, "controls": rows[1:], "joints": rows, "costs": rows.T,
        }),
        "plot.fan_figure": (drawn(plot.fan_figure), (), {
            "ts": ts, "values": np.stack([rows, 2 * rows, 3 * rows]), "names": ("a", "b"), "unit": "m",
            "probabilities": (0.25, 0.5, 0.75),
        }),
        "plot.phase_figure": (drawn(plot.phase_figure), (), {"q": rows, "v": rows, "names": ("a", "b")}),
        "plot.work_precision_figure": (
            lambda work, errors: plot.work_precision_figure({"a": work}, {"a": errors}) and (), (ts, ts), {},
        ),
        "plot.convergence_figure": (
            lambda steps, errors: plot.convergence_figure(steps, {"a": errors}, {"a": 2.0}) and (), (ts, ts), {},
        ),
    }  # fmt: skip


def of_views() -> Calls:
    m, (q, v) = model(), states(3, 5)
    ts, scene = np.linspace(0.0, 1.0, 5), lambda **given: sources.scene_of(**given) and ()
    loop = lgjax.Loop("point", m.body_names[-1], None)
    free = maximal.System([maximal.Body("b", 1.0, (0.1, 0.1, 0.1))])
    absolute = maximal.AbsoluteConfiguration(groups.r3_so3.identity(jnp.float64, (1,)), jnp.zeros(0))
    return {
        "view.scene_of(...)": (scene, (), {
            "thing": m, "motion": (ts, q), "loops": loop, "contacts": touching(), "visuals": False,
        }),
        "view.scene_of(planes)": (
            lambda planes: sources.scene_of(
                shapes.sphere(0.1), collisions.rigid_state((0.0, 0.0, 1.0)), planes=planes
            ) and (), ((shapes.Plane((0.0, 0.0, 1.0)),),), {},
        ),
        "view.scene_of(system)": (scene, (), {"thing": free, "motion": absolute}),
        "view.finished": (
            lambda **given: finished(sources.scene_of(m, (ts, q), visuals=False), **given) and (), (),
            {"highlight": 1, "spacing": 0.5, "ground": 0.1},
        ),
        "view.inline": (lambda **given: view.inline(m, (ts, q), visuals=False, **given) and (), (), {
            "height": 100, "speed": 2.0, "highlight": 1, "follow": False, "trail": False, "labels": True,
        }),
        "view.scene_of": (scene, (), {
            "thing": m, "motion": (ts, q, v), "highlight": 0, "frames": 10, "systems": 2, "visuals": False,
        }),
        "view.scene_of(ts, q, v)": (
            lambda ts, q, v: sources.scene_of(m, (ts, q, v), visuals=False) and (), (ts, q, v), {},
        ),
        "view.scene_of(wrenches)": (
            lambda wrenches: sources.scene_of(m, (ts, q, v), wrenches=wrenches, visuals=False) and (),
            (np.ones((2, 6)),), {},
        ),
        "view.scene_of(shape)": (
            lambda thing, motion: sources.scene_of(thing, motion) and (),
            (shapes.sphere(0.1), collisions.rigid_state((0.0, 0.0, 1.0))), {},
        ),
    }  # fmt: skip


def drivers() -> Calls:
    """All of them by name."""
    return of_loops() | of_ensembles() | of_searches() | of_figures() | of_views()
