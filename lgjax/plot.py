"""Figures of results (extra `plot`): functions from results to a matplotlib Figure, without global state."""

import os
from typing import Any

import jax
import numpy as np

from lgjax.dynamics.kinematics import forward_kinematics
from lgjax.multibody.model import Model


def figure(width: float, height: float) -> Any:
    """Empty matplotlib Figure of that size in inches, on a canvas of its own that needs no display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need the package matplotlib: pip install 'lgjax[plot]'") from error
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def save(made: Any, path: str | os.PathLike) -> None:
    """Write a Figure to a file, whose ending (.png, .pdf, .svg) selects the format."""
    made.savefig(path, dpi=150)


def rollout_figure(model: Model, result: Any, samples: int = 16) -> Any:
    """Figure of an ensemble in three panels: path of the base, joint coordinates of one sample, energy error.

    result has ts (T,) in s, q a Configuration with leading axes (batch, T), and energy (batch, T) in J, such as
    `lgjax.ensemble` returns. At most `samples` paths are drawn. A mechanism without a free base shows the path of its
    last body. The energy error is |E - E(0)|, its largest value and median over the batch.
    """
    made = figure(15, 4.5)
    _draw_path(made.add_subplot(1, 3, 1, projection="3d"), model, result, samples)
    _draw_joints(made.add_subplot(1, 3, 2), model, result)
    _draw_energy(made.add_subplot(1, 3, 3), result)
    batch = np.shape(result.energy)[0]
    made.suptitle(f"{model.name}, {batch} sample{'s' * (batch > 1)}")
    return made


def controls_figure(ts: Any, controls: Any, joints: Any, costs: Any) -> Any:
    """Figure of optimal controls in three panels: controls of one guess, its joints, and the costs of all guesses.

    ts: (steps + 1,) s. controls: (steps, n). joints: (steps + 1, n). costs: (guesses, iterations), drawn as their
    excess over the least of them.
    """
    made = figure(15, 4.5)
    forces, motion, course = made.subplots(1, 3)
    forces.step(ts[:-1], controls, where="post", linewidth=1)
    forces.set(title="controls of the best guess", xlabel="t (s)", ylabel="N m or N")
    motion.plot(ts, joints, linewidth=1)
    motion.set(title="its joint coordinates", xlabel="t (s)", ylabel="rad or m")
    above = np.asarray(costs) - np.min(costs, where=np.isfinite(costs), initial=np.inf)
    course.semilogy(np.where(above > 0, above, np.nan).T, linewidth=1)
    course.set(title="costs above the least", xlabel="iteration")
    return made


def _draw_path(axes: Any, model: Model, result: Any, samples: int) -> None:
    shown = jax.tree.map(lambda x: x[:samples], result.q)
    if model.tree.n_free:
        paths, name = np.asarray(shown.free_poses.translation)[:, :, 0], "base"
    else:
        last = jax.jit(jax.vmap(jax.vmap(lambda q: forward_kinematics(model, q).translation[-1])))
        paths, name = np.asarray(last(shown)), model.body_names[-1]
    for path in paths:
        axes.plot(*path.T, linewidth=0.8)
        axes.scatter(*path[:1].T, s=6, color="black")
    axes.set(title=f"path of {name} ({len(paths)} shown)", xlabel="x (m)", ylabel="y (m)", zlabel="z (m)")


def _draw_joints(axes: Any, model: Model, result: Any, labelled: int = 12) -> None:
    joints = np.asarray(result.q.joints)[0]
    names = model.tree.coordinate_names
    for i, values in enumerate(joints.T):
        axes.plot(result.ts, values, linewidth=1, label=names[i] if i < labelled else None)
    if names:
        axes.legend(fontsize=6, ncols=2)
    axes.set(title="joint coordinates of sample 0", xlabel="t (s)", ylabel="rad or m")


def _draw_energy(axes: Any, result: Any) -> None:
    energy = np.asarray(result.energy)
    error = np.abs(energy - energy[:, :1])[:, 1:]
    # An error of zero has no place on a logarithmic axis: it is drawn at the rounding of the energy itself.
    scale = np.max(np.abs(energy), where=np.isfinite(energy), initial=np.finfo(energy.dtype).tiny)
    error = np.where(np.isfinite(error), np.maximum(error, np.finfo(energy.dtype).eps * scale), np.nan)
    times = np.asarray(result.ts)[1:]
    if np.any(np.isfinite(error)):
        columns = np.any(np.isfinite(error), 0)
        axes.semilogy(times[columns], np.nanmax(error[:, columns], 0), label="largest")
        axes.semilogy(times[columns], np.nanmedian(error[:, columns], 0), label="median")
        axes.legend()
    axes.set(title="energy error", xlabel="t (s)", ylabel="|E - E(0)| (J)")
