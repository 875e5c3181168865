"""Valid calls of ensembles, searches of controls, costs, figures and views, for `doors.py`.

These cannot be traced: ensembles and searches end where they would compile their program, figures are drawn.
"""

from collections.abc import Callable
from functools import cache
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import lgjax
from lgjax import collisions, control, ensembles, groups, plot, shapes
from lgjax.simulate.control import optimize
from lgjax.simulate.ensemble import program
from lgjax.view import sources

EAGER = ("ensemble", "monte_carlo", "optimize_controls", "plot.", "view.")
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
        "control.costs.control": (
            lambda **given: control.costs.control(**given)(0.0, (q, v), jnp.ones(2)), (),
            {"target": jnp.ones(2), "weights": jnp.ones(2)},
        ),
    }  # fmt: skip


def of_figures() -> Calls:
    ts, rows = np.linspace(0.0, 1.0, 5), np.linspace(0.1, 1.0, 10).reshape(5, 2)
    drawn = lambda make: lambda **given: make(**given) and ()
    return {
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
    return {
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
    return of_ensembles() | of_searches() | of_figures() | of_views()
