"""Figures of results (extra `plot`): functions from results to a matplotlib Figure, without global state.

Curves differ in color (those of Okabe and Ito, which color-blind readers tell apart), in dashes and in markers, so
that they are legible in grey print. Read first: `figure`, which examples fill themselves, and `_axes`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from lgjax.dynamics.kinematics import forward_kinematics
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Configuration, Mechanism, Model
from lgjax.numerics import checks

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX"
BOUND = {"color": "#7f7f7f", "linewidth": 1.0, "linestyle": (0, (4, 2))}


def figure(width: float, height: float) -> Any:
    """Empty matplotlib Figure of that size in inches, on a canvas of its own that needs no display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need the package matplotlib: pip install 'lgjax[plot]'") from error
    size = checks.number("width", width, 0.0, inside=True), checks.number("height", height, 0.0, inside=True)
    made = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(made)
    return made


def save(made: Any, path: str | os.PathLike) -> None:
    """Write a Figure to a file, whose ending (.png, .pdf, .svg) selects the format."""
    if not hasattr(made, "savefig"):
        raise TypeError(f"made must be a Figure, got {checks.shown(made)}")
    path, known = checks.path("path", path), made.canvas.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise ValueError(f"path ends in {path.suffix!r}, figures are written as {', '.join(sorted(known))}")
    made.savefig(path, dpi=150)


def rollout_figure(model: Model | Mechanism, result: Any, samples: int = 16, conserved: bool = True) -> Any:
    """Figure of an ensemble in three panels: path of the base, joint coordinates of one sample, energy error.

    result: ts (T,) in s, q with leading axes (batch, T), energy (batch, T) in J, as of `lgjax.ensemble`. Draws at most
    `samples` paths, of the last body if no base is free, and the change of energy, which is an error if `conserved`.
    """
    model, samples = checked_model(model, leaves=True), checks.integer("samples", samples)
    result = _checked_rollouts(model, result)
    made = figure(15, 4.5)
    _draw_path(made.add_subplot(1, 3, 1, projection="3d"), model, result, samples)
    _draw_joints(made.add_subplot(1, 3, 2), model, result)
    _draw_energy(made.add_subplot(1, 3, 3), result, checks.truth("conserved", conserved))
    made.suptitle(f"{model.name}, {(n := len(result.energy))} sample{'s' * (n > 1)}")
    return made


def controls_figure(
    ts: Any, controls: Any, joints: Any, costs: Any, bounds: Any = None, names: Sequence[str] | None = None
) -> Any:
    """Figure of optimal controls in three panels: controls of one guess, its joints, and the costs of all guesses.

    ts: (steps + 1,) s. controls: (steps, n), held during each step. joints: (steps + 1, n). costs: (guesses,
    iterations), drawn as their excess over the least of them. bounds: (lower, upper) of the controls, numbers or (n,),
    drawn as dashed lines. names: of the controls.
    """
    ts = _real("ts", ts, None)
    controls, joints = _real("controls", controls, len(ts) - 1, None), _real("joints", joints, len(ts), None)
    costs = _real("costs", costs, None, None)
    names = None if names is None else _names(names, controls.shape[1])
    bounds = () if bounds is None else [_real("bounds", bound) for bound in _pair("bounds", bounds)]
    if any(bound.shape not in ((), controls.shape[1:]) for bound in bounds):
        raise ValueError(f"bounds are (lower, upper), each one number or {controls.shape[1:]}")
    made = figure(15, 4.5)
    forces, motion, course = _axes(made, 3)
    forces.step(ts, np.concatenate([controls, np.asarray(controls)[-1:]]), where="post", label=_labels(names, controls))
    for bound in bounds:
        for value in np.unique(bound):
            if np.isfinite(value):
                forces.axhline(value, **BOUND)
    if names:
        forces.legend()
    forces.set(title="controls of the best guess", xlabel="t (s)", ylabel="N m or N")
    motion.plot(ts, joints)
    motion.set(title="its joint coordinates", xlabel="t (s)", ylabel="rad or m")
    above = np.asarray(costs) - np.min(costs, where=np.isfinite(costs), initial=np.inf)
    course.semilogy(np.where(above > 0, above, np.nan).T)
    course.set(title="costs above the least", xlabel="iteration", ylabel="cost - least cost")
    return made


def fan_figure(
    ts: Any, values: Any, names: Sequence[str] = ("value",), unit: str = "",
    probabilities: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
) -> Any:  # fmt: skip
    """Figure of an ensemble as fans: the median of each quantity over time, in bands between pairs of quantiles.

    ts: (T,) s. values: samples (batch, T) or (batch, T, n), of which those that are not finite are left out, or the
    `Statistics` of an ensemble, whose observed quantities (T, n) and probabilities are taken. names: of the n
    quantities; of more than that are named the first ones are drawn. unit: of all of them.
    """
    ts, names = _real("ts", ts, None), _names(names)
    if not isinstance(unit, str):
        raise TypeError(f"unit must be a text, got {checks.shown(unit)}")
    shares, quantiles = _quantiles(values, probabilities)
    quantiles, times = quantiles[..., : len(names)], len(np.asarray(ts))
    if quantiles.shape[1:] != (times, len(names)):
        raise ValueError(f"values have shape {np.shape(quantiles)[1:]}, ts and names ask for {(times, len(names))}")
    made = figure(4.5 * len(names), 3.5)
    bands = len(shares) // 2
    for k, (axes, name) in enumerate(zip(_axes(made, len(names)), names, strict=True)):
        color = COLORS[k % len(COLORS)]
        for i in range(bands):
            low, high = shares[i], shares[-1 - i]
            axes.fill_between(ts, quantiles[i, :, k], quantiles[-1 - i, :, k], color=color, linewidth=0,
                              alpha=0.2 + 0.4 * i / bands, label=f"{100 * low:g} to {100 * high:g} %")  # fmt: skip
        if len(shares) % 2:
            axes.plot(ts, quantiles[bands, :, k], color=color, label=f"{100 * shares[bands]:g} %")
        axes.set(xlabel="t (s)", ylabel=f"{name} ({unit})" if unit else name)
        axes.legend()
    return made


def _quantiles(values: Any, probabilities: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (p,) in order, and quantiles (p, T, n) of samples or of `Statistics`."""
    if hasattr(values, "quantiles"):
        order = np.argsort(values.probabilities)
        return np.asarray(values.probabilities)[order], np.asarray(values.quantiles)[order]
    samples = _real("values", values)
    samples = samples[..., None] if samples.ndim == 2 else samples
    if samples.ndim != 3:
        raise ValueError(f"values have shape {np.shape(values)}, expected (batch, T) or (batch, T, n)")
    kept = np.asarray(np.isfinite(samples).all((1, 2)))
    if not kept.any():
        raise ValueError("no sample is finite: nothing to draw")
    shares = np.sort(_real("probabilities", probabilities, None))
    if not shares.size or not np.all((shares >= 0) & (shares <= 1)):
        raise ValueError(f"probabilities lie between 0 and 1, at least one of them, got {checks.shown(probabilities)}")
    return shares, np.quantile(samples[kept], shares, axis=0)


def impact_figure(events: Any) -> Any:
    """Figure of impacts in two panels: impulses over time, and the speed of each impact over that before.

    events: `collisions.Impacts` of one body (record,) or of a batch (batch, record), as `bounce` returns; entries with
    plane -1 are none. Speeds are those of approach; on the diagonal they repeat, below it energy is lost.
    """
    shape: tuple[int, ...] = np.shape(getattr(events, "planes", ()))
    parts = _parts("events", events, planes=shape, ts=shape, rates=shape, impulses=shape)
    if len(shape) not in (1, 2):
        raise ValueError(f"events.planes has shape {shape}, expected (record,) or (batch, record)")
    planes, ts, rates, impulses = map(np.atleast_2d, parts)
    planes = planes.astype(int)
    made = figure(10, 4)
    when, following = _axes(made, 2)
    for plane in np.unique(planes[planes >= 0]):
        here, style = planes == plane, {"color": COLORS[plane % len(COLORS)], "marker": MARKERS[plane % len(MARKERS)]}
        when.scatter(ts[here], impulses[here], s=14, label=f"plane {plane}", **style)
        both = here[:, 1:] & (planes[:, :-1] >= 0)
        following.scatter(-rates[:, :-1][both], -rates[:, 1:][both], s=14, label=f"then on plane {plane}", **style)
    largest = float(np.max(-rates, where=planes >= 0, initial=0.0)) or 1.0
    following.plot([0, largest], [0, largest], **BOUND)
    when.set(title="impacts", xlabel="t (s)", ylabel="normal impulse (N s)")
    following.set(title="impact map", xlabel="speed of an impact (m/s)", ylabel="speed of the next one (m/s)")
    for axes in (when, following):
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    return made


def contact_figure(ts: Any, record: Any, names: Sequence[str] | None = None, shown: int = 6) -> Any:
    """Figure of rigid contacts in four panels over time: normal forces, friction, gaps, and open, sticking or sliding.

    ts: (T,) s. record: `rollout(..., contacts=).contacts` of one system, with n contacts. names: of the contacts, such
    as `Contacts.names`. Only the `shown` contacts with the largest normal forces are drawn.
    """
    ts, shown = _real("ts", ts, None), checks.integer("shown", shown, 0)
    force, *_ = _parts("record", record, force=(), gap=(), state=())
    if force.ndim != 3:
        raise ValueError(f"the record is of one system, with forces (T, n, 3); got {force.shape}")
    times, n = len(ts), force.shape[1]
    force, gap, state = _parts("record", record, force=(times, n, 3), gap=(times, n), state=(times, n))
    names = [f"contact {i}" for i in range(n)] if names is None else _names(names, n)
    chosen = np.sort(np.argsort(-force[..., 0].max(0), kind="stable")[:shown])
    made = figure(15, 4)
    pushes, rubs, gaps, states = _axes(made, 4)
    for row, i in enumerate(chosen):
        style = {"color": COLORS[row % len(COLORS)], "linestyle": DASHES[row % len(DASHES)], "label": names[i]}
        pushes.plot(ts, force[:, i, 0], **style)
        rubs.plot(ts, np.linalg.norm(force[:, i, 1:], axis=-1), **style)
        gaps.plot(ts, gap[:, i], **style)
        for value, marker in ((1, "s"), (2, "x")):
            at = state[:, i] == value
            states.scatter(np.asarray(ts)[at], np.full(at.sum(), row), s=12, marker=marker, color=style["color"])
    pushes.set(title="normal force", xlabel="t (s)", ylabel="force (N)")
    rubs.set(title="friction", xlabel="t (s)", ylabel="force (N)")
    gaps.set(title="gap", xlabel="t (s)", ylabel="gap (m)")
    states.set(title="square: sticks, cross: slides", xlabel="t (s)", ylabel="contact (number)")
    states.set(xlim=pushes.get_xlim(), ylim=(-0.5, max(len(chosen), 1) - 0.5), yticks=range(len(chosen)))
    states.set_yticklabels([names[i] for i in chosen])
    if len(chosen):
        pushes.legend(fontsize="small")
    return made


def work_precision_figure(
    work: Mapping[str, Any], errors: Mapping[str, Any], xlabel: str = "time (s)", ylabel: str = "error"
) -> Any:
    """Figure of what precision costs: errors over work on logarithmic axes, a curve for each method.

    work, errors: method -> (k,), in the same order; pairs that are not positive or not finite are left out.
    """
    for name, value, kind in (("work", work, Mapping), ("errors", errors, Mapping), ("xlabel", xlabel, str)):
        checks.of_kind(name, value, kind)
    checks.of_kind("ylabel", ylabel, str)
    if set(work) != set(errors):
        raise ValueError(f"work is of {sorted(work)}, errors are of {sorted(errors)}")
    made = figure(6, 4.5)
    (axes,) = _axes(made, 1)
    for i, name in enumerate(work):
        axes.loglog(*_positive_pairs("work", work[name], errors[name]), marker=MARKERS[i % len(MARKERS)], label=name)
    axes.set(title="work and precision", xlabel=xlabel, ylabel=ylabel)
    axes.legend()
    return made


def convergence_figure(
    steps: Any, errors: Mapping[str, Any], orders: Mapping[str, float] | None = None, ylabel: str = "error"
) -> Any:
    """Figure of errors over step sizes on logarithmic axes; the legend has the order fitted to each method.

    steps: (k,) s. errors: method -> (k,). orders: method -> the order expected, drawn as a dashed line through the
    error of the smallest step. Pairs that are not positive or not finite are left out. The fit is that of least squares
    through all points, so give it the range in which a method converges.
    """
    orders = {} if orders is None else checks.of_kind("orders", orders, Mapping)
    orders = {name: checks.number(f"orders[{name!r}]", order) for name, order in orders.items()}
    checks.of_kind("errors", errors, Mapping)
    checks.of_kind("ylabel", ylabel, str)
    made = figure(6, 4.5)
    (axes,) = _axes(made, 1)
    for i, (name, error) in enumerate(errors.items()):
        h, e = _positive_pairs("steps", steps, error)
        slope = f", order {np.polyfit(np.log(h), np.log(e), 1)[0]:.2f}" if len(set(h.tolist())) > 1 else ""
        axes.loglog(h, e, marker=MARKERS[i % len(MARKERS)], label=f"{name}{slope}")
        if name in orders and len(h):
            least = np.argmin(h)
            axes.loglog(h, e[least] * (h / h[least]) ** orders[name], **BOUND)
    axes.set(title="convergence", xlabel="step size (s)", ylabel=ylabel)
    axes.legend()
    return made


def phase_figure(q: Any, v: Any, names: Sequence[str] = ("q",), units: Sequence[str] = ("rad",)) -> Any:
    """Figure of phase portraits, a panel for each coordinate: velocity over coordinate, dots where motions start.

    q, v: (T, n) of one motion or (batch, T, n) of several. names, units: of the n coordinates, one unit for all or n.
    """
    q, v, names = _real("q", q), _real("v", v), _names(names)
    if q.shape != v.shape or q.ndim not in (2, 3) or q.shape[-1] != len(names):
        raise ValueError(f"q and v have shapes {q.shape} and {v.shape}, expected (T, {len(names)}), or batches of that")
    q, v = (x if x.ndim == 3 else x[None] for x in (q, v))
    units = checks.names("units", units)
    if len(units) not in (1, len(names)):
        raise ValueError(f"units are one or {len(names)}, as many as names, got {len(units)}")
    units = units * len(names) if len(units) == 1 else units
    made = figure(4.5 * len(names), 4)
    for k, (axes, name, unit) in enumerate(zip(_axes(made, len(names)), names, units, strict=True)):
        axes.plot(q[..., k].T, v[..., k].T)
        axes.scatter(q[:, 0, k], v[:, 0, k], s=14, color="black", zorder=3)
        axes.set(xlabel=f"{name} ({unit})", ylabel=f"rate of {name} ({unit}/s)")
    return made


def _real(name: str, value: Any, *shape: int | None) -> np.ndarray:
    """Real numbers of that shape, where None is any length; of any shape if none is given."""
    found = checks.real(name, value)
    if shape and (found.ndim != len(shape) or any(n not in (None, k) for n, k in zip(shape, found.shape))):
        raise ValueError(f"{name} has shape {found.shape}, expected {shape}")
    return found


def _parts(name: str, owner: Any, **shapes: tuple[int | None, ...]) -> list[np.ndarray]:
    """Attributes of a result as arrays of these shapes, of any shape for ()."""
    if not all(hasattr(owner, part) for part in shapes):
        raise TypeError(f"{name} must have {', '.join(shapes)}, got {checks.shown(owner)}")
    return [_real(f"{name}.{part}", getattr(owner, part), *shape) for part, shape in shapes.items()]


def _pair(name: str, value: Any) -> tuple[Any, Any]:
    array = isinstance(value, np.ndarray | jax.Array) and value.ndim > 0
    if not (array or isinstance(value, tuple | list)) or len(value) != 2:
        raise TypeError(f"{name} must be a pair, got {checks.shown(value)}")
    return value[0], value[1]


def _names(values: Any, count: int | None = None) -> tuple[str, ...]:
    """Names of `count` curves, or of the panels of a figure, at least one."""
    found = checks.names("names", values)
    if count is None and not found:
        raise ValueError("names are of at least one quantity, got none")
    if count is not None and len(found) != count:
        raise ValueError(f"names must be {count}, got {len(found)}")
    return found


def _axes(made: Any, columns: int) -> Sequence[Any]:
    """A row of axes whose curves can be told apart in grey."""
    row = made.subplots(1, columns, squeeze=False)[0]
    styles = [{"color": color, "linestyle": DASHES[i % len(DASHES)]} for i, color in enumerate(COLORS)]
    keys = {key: [style[key] for style in styles] for key in ("color", "linestyle")}
    for axes in row:
        axes.set_prop_cycle(linewidth=[1.4] * len(styles), **keys)
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    return row


def _labels(names: Sequence[str] | None, columns: Any) -> Any:
    return list(names) if names else [None] * np.shape(columns)[1]


def _positive_pairs(name: str, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The pairs that a logarithmic axis can show, of x, called `name`, and errors; ValueError for two lengths."""
    x, y = checks.real(name, x), checks.real("errors", y)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"{name} and errors must be two arrays of one length, got shapes {x.shape} and {y.shape}")
    good = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    return x[good], y[good]


class _Rollouts(NamedTuple):
    """The part of an ensemble that figures show: ts (T,), states and energies with leading axes (batch, T)."""

    ts: np.ndarray
    q: Configuration
    energy: np.ndarray


def _checked_rollouts(model: Model, result: Any) -> _Rollouts:
    ts, energy = _parts("result", result, ts=(None,), energy=(None, None))
    q, tree, lead = getattr(result, "q", None), model.tree, (len(energy), len(ts))
    if energy.shape != lead:
        raise ValueError(f"result.energy has shape {energy.shape}, result.ts has {len(ts)} times")
    if not isinstance(q, Configuration):
        raise TypeError(f"result.q must be a Configuration, got {checks.shown(q)}")
    joints = {"joints": (*lead, tree.n_joint), "ball_rotations": (*lead, tree.n_ball, 3, 3)}
    poses = {"rotation": (*lead, tree.n_free, 3, 3), "translation": (*lead, tree.n_free, 3)}
    turned: Any = _parts("result.q.free_poses", q.free_poses, **poses)
    other: Any = _parts("result.q", q, **joints)
    states = jax.tree.map(lambda x: x.astype(model.dtype), Configuration(Pose(*turned), *other))
    energies = np.asarray(result.energy)  # in their dtype, whose rounding is drawn
    return _Rollouts(ts, states, energies.astype(np.result_type(energies, np.float32)))


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


def _draw_joints(axes: Any, model: Model, result: Any, labeled: int = 12) -> None:
    joints = np.asarray(result.q.joints)[0]
    names = model.tree.coordinate_names
    for i, values in enumerate(joints.T):
        dashes = DASHES[i // 10 % len(DASHES)]  # the default colors repeat after ten
        axes.plot(result.ts, values, dashes, linewidth=1, label=names[i] if i < labeled else None)
    if names:
        axes.legend(fontsize=6, ncols=2)
    axes.set(title="joint coordinates of sample 0", xlabel="t (s)", ylabel="rad or m")


def _draw_energy(axes: Any, result: Any, conserved: bool) -> None:
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
    title = "energy error" if conserved else "change of mechanical energy"
    axes.set(title=title, xlabel="t (s)", ylabel="|E - E(0)| (J)")
