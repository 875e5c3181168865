"""Batches of rollouts with random initial states, parameters and controls."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.contact import EventDriven, TimeStepping
from lgjax.dynamics.energy import total_energy
from lgjax.dynamics.forces import Force, Friction, Sum
from lgjax.dynamics.loops import project_positions, project_velocity
from lgjax.execution.callbacks import reads
from lgjax.groups.se3 import Pose
from lgjax.integrators import RK4, MuntheKaas
from lgjax.integrators.field import strong
from lgjax.integrators.method import Method
from lgjax.integrators.scan_saved import saved_steps
from lgjax.multibody.arguments import checked_array, checked_configuration, checked_model
from lgjax.multibody.configuration import Configuration, neutral
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.renamed import attributes
from lgjax.numerics.status import NOT_FINITE
from lgjax.robots.robot import Robot
from lgjax.robots.sensors import Sensors
from lgjax.simulate.drives import ControllerWithMemory
from lgjax.simulate.ensemble.monte_carlo import MonteCarlo, Sample, monte_carlo
from lgjax.simulate.ensemble.spread import Draw, Spread, checked_spread, randomized, with_memory, with_model
from lgjax.simulate.ensemble.statistics import Statistics
from lgjax.simulate.ensemble.storage import load_run
from lgjax.simulate.rollout import Trajectory, rollout

STORES = ("all", "final", "none")
STORED = ("q", "v", "energy", "mass_factors", "parameters")


class _Fields(NamedTuple):
    """The fields of an `Ensemble`."""

    ts: np.ndarray
    q: Any
    v: Any
    energy: Any
    status: np.ndarray
    mass_factors: Any
    seconds: float
    compile_seconds: float
    simulated_seconds_per_second: float
    statistics: Statistics | None
    parameters: Any
    chunk: int
    complete: bool = True
    folder: str | None = None


def _stored(name: str) -> property:
    """A field that is read from the folder of the ensemble if it is there; AttributeError if it is nowhere."""

    def get(result: Ensemble) -> Any:
        value = getattr(super(Ensemble, result), name)
        if value is None and result.folder is not None:
            value = getattr(_opened(result.folder, len(result.status), _written(result.folder)), name)
        if value is None and name != "parameters":  # which not every ensemble has
            raise AttributeError(f'{name}: this ensemble kept no states (store="none"); store "all" or "final" ones')
        return value

    return property(get)


def _written(folder: str) -> int:
    return max((file.stat().st_mtime_ns for file in Path(folder).glob("*")), default=0)


@lru_cache(1)
def _opened(folder: str, count: int, written: int) -> _Fields:
    """The first `count` trajectories in a folder, kept for the next field. written: when, as another run may follow."""
    found = load_ensemble(folder)
    first = lambda x: None if x is None else jax.tree.map(lambda x: x[:count], x)
    q, v, energy, factors, parameters = (getattr(super(Ensemble, found), name) for name in STORED)
    names = zip(STORED, map(first, (q, v, energy, factors, parameters or None)), strict=True)
    return _Fields(*found)._replace(**dict(names))


class Ensemble(_Fields):
    """Saved states of all trajectories and their statistics, on the host as NumPy arrays.

    ts: (T,) s. q: Configuration with leading axes (batch, T). v: (batch, T, nv). energy: (batch, T) J. status: (batch,)
    int32, the status of the rollout, such as `contact.ContactStatus`: 0 for success, NOT_FINITE for a trajectory that
    diverged or whose observations went beyond `limit`. mass_factors: (batch, nbodies), masses over those of the model.
    seconds: time spent computing, compile_seconds: before that, compiling.
    statistics: of what was observed, over the good trajectories; its arrays begin with (T, d). parameters: of the
    controllers, (batch, ...). chunk: trajectories at a time and device. complete: False if the run was interrupted, so
    that there are fewer trajectories than asked for. folder: where the states are, if they are not in memory.

    With store="final" the states have T = 1. With store="none" q, v, energy and mass_factors raise AttributeError. If
    they are in a folder, the first use of one reads them all; parameters are then a dictionary of names and arrays.
    """

    __slots__ = ()

    q, v, energy = map(_stored, ("q", "v", "energy"))  # type: ignore[override]
    mass_factors, parameters = map(_stored, ("mass_factors", "parameters"))  # type: ignore[override]

    if not TYPE_CHECKING:  # which reports unknown attributes by itself
        __getattr__ = attributes(finite="status, with success")

    @property
    def success(self) -> np.ndarray:
        """(batch,) bool, whether a trajectory is good."""
        return self.status == 0


def ensemble(
    model: Model | Robot, controller: Callable | ControllerWithMemory | jax.Array | None = None, *, batch: int,
    steps: int, dt: float, key: jax.Array,
    method: Method | TimeStepping | EventDriven = MuntheKaas(RK4),  # noqa: B008 (a hashable value)
    q: Configuration | None = None, v: jax.Array | None = None,
    spread: Spread = Spread(),  # noqa: B008 (a tuple)
    sample: Callable[[jax.Array], Draw] | None = None, observe: Callable | None = None, events: Callable | None = None,
    save_every: int | None = None, store: str = "all", contacts: Any = None, wrenches: Callable | None = None,
    **options: Any,
) -> Ensemble:  # fmt: skip
    """`batch` rollouts of randomized copies of a model or a `Robot`, in chunks, on all devices.

    Trajectory i is made of `key` and i alone. Ctrl-C raises KeyboardInterrupt, whose attribute `result` is the
    `Ensemble` of what was computed; `load_ensemble` reads a folder.

    Args:
        model: the `Model` or `Robot` to copy. A robot with loops starts at the nearest closed state.
        controller: as in `rollout`, also one with memory; (t, q, v, parameters) -> tau if draws have parameters. A
            `forces.Force` acts with each copy's own numbers.
        batch: number of trajectories.
        steps, dt, method: as in `rollout`.
        key: a key of `jax.random`.
        q, v: the start before `spread` acts, by default neutral and zero.
        spread, sample: a `Spread` of model and state; or a function key_i -> `Draw` that replaces q, v and spread.
        observe: (t, q, v) -> (d,), for statistics at every saved time, by default positions of free bodies, scalar
            joints and velocities; or a robot's `sensors`, without errors, with each copy's own numbers.
        events: (t, q, v) -> (e,) bool: statistics.events counts the trajectories in which they occur at a saved time.
        save_every: a divisor of steps, or None for the final state alone.
        store: "all" saved states, "final" ones or "none".
        contacts: as in `rollout`, or a function of the parameters.
        wrenches: as in `rollout`, with the parameters as one more argument where there are any.
        options: `monte_carlo`'s: chunk, devices, folder, resume, tag, quantiles, limit, checkpoint_every, progress,
            compiler_options.

    Returns:
        an `Ensemble`: saved states q, v (batch, T, ...), status (batch,) and statistics, NumPy arrays on the host.

    Raises:
        TypeError, ValueError: for input that does not fit, before any work.
    """
    mechanism, model = model, checked_model(model, leaves=True)
    _check_options(batch, store, sample=sample, observe=observe, events=events)
    steps, dt, times = _saved_times(steps, dt, save_every, model)
    start, spread = _start(model, q, v), checked_spread(spread, mechanism)
    mechanism = with_memory(mechanism, spread if sample is None else Spread(), dt)

    def simulate(key, start, spread, dt):
        draw = _near(mechanism, start, spread, key) if sample is None else sample(key)
        control, pushed, found = _law(controller, draw), _law(wrenches, draw), _contacts(contacts, draw)
        drawn, q, v = _drawn_mechanism(mechanism, draw, sample is None)
        path = rollout(drawn, q, v, control, dt, steps, method, save_every, pushed, contacts=found)
        return _sample(start.model, draw, path, _observer(observe, draw), events, store)

    if sample is None:
        _check_friction(model, spread, controller, contacts)
    arguments = strong(start), spread, jnp.asarray(dt, model.dtype)
    checks.on_host("ensemble", arguments, key)
    checks.holds_nothing_traced("ensemble", simulate, key, *arguments)
    given = {"batch": batch, "key": key, "duration": steps * dt, "common": {"ts": times}}
    return _computed(lambda: monte_carlo(simulate, arguments, **given, **options), times, store, options.get("folder"))


def _saved_times(steps: Any, dt: Any, save_every: Any, model: Model) -> tuple[int, float, np.ndarray]:
    """Checked steps and length of a step, and the times (T,) of the saved states, s."""
    (steps, every, last_only), dt = saved_steps(steps, save_every), checks.number("dt", dt)
    times = np.asarray(dt * np.arange(0, steps + 1, every), model.dtype)
    return steps, dt, times[-1:] if last_only else times


def _computed(compute: Callable[[], MonteCarlo], times: np.ndarray, store: str, folder: Any) -> Ensemble:
    """The ensemble of what is computed, also of what an interrupt has left."""
    kept = None if store == "none" or folder is None else str(folder)
    found = lambda result: _ensemble(times, result, np.isin(np.arange(result.batch), result.failed, invert=True), kept)
    try:
        return found(compute())
    except KeyboardInterrupt as interrupt:
        if (result := getattr(interrupt, "result", None)) is not None:
            interrupt.result = found(result)  # type: ignore[attr-defined]
        raise


def _check_options(batch: Any, store: Any, **functions: Any) -> None:
    checks.functions(**functions)
    if checks.integer("batch", batch, -(2**63)) < 1:
        raise ValueError(f"batch must be positive, got {batch}")
    if store not in STORES:
        raise ValueError(f"store must be one of {', '.join(STORES)}, got {checks.shown(store)}")


def _near(mechanism: Any, start: Draw, spread: Spread, key: jax.Array) -> Draw:
    """A random copy of the mechanism, whose model is that of `start`, near the state there."""
    return randomized(start._replace(model=with_model(mechanism, checked_model(start.model))), spread, key)


def _drawn_mechanism(mechanism: Any, draw: Draw, near: bool) -> tuple[Any, Configuration, jax.Array]:
    """The mechanism with the model of a draw, and the state; of a robot with loops the nearest one that closes them.

    near: whether the state of the draw may leave the loops open.
    """
    found = draw.model if isinstance(draw.model, Robot) else with_model(mechanism, draw.model)
    if not (isinstance(found, Robot) and near and found.loops):
        return found, draw.q, draw.v
    q = project_positions(found.model, found.loops, draw.q).q
    return found, q, project_velocity(found.model, found.loops, q, draw.v)


def _start(model: Model, q: Any, v: Any) -> Draw:
    """The model at (q, v), neutral and at rest where they are None."""
    q = neutral(model) if q is None else checked_configuration("q", q, model)
    v = jnp.zeros(model.nv, model.dtype) if v is None else v
    return Draw(model, q, checked_array("v", v, (model.nv,), model.dtype, model=model))


def _law(law: Any, draw: Draw) -> Any:
    """A controller or wrenches, given the parameters of a draw; forces are those of its model."""
    if isinstance(law, Force):
        return law.for_model(checked_model(draw.model))
    if not callable(law) or draw.parameters is None or isinstance(law, ControllerWithMemory):
        return law
    return lambda t, q, v: law(t, q, v, draw.parameters)


def _observer(observe: Callable | None, draw: Draw) -> Callable:
    """The function that observes the states of a draw; sensors read the model of the draw."""
    if isinstance(observe, Sensors):
        return observe.for_model(checked_model(draw.model))
    return observe or observation


def _check_friction(model: Model, spread: Spread, controller: Any, contacts: Any) -> None:
    """ValueError for random friction that would not act: a function holds it, or it is meant for contacts."""
    joints = model.damping, model.friction
    asked = contacts is not None and checks.known(spread.friction, *joints) and np.any(np.asarray(spread.friction))
    if asked and not any(np.any(np.asarray(x)) for x in joints):
        raise ValueError(
            "spread.friction has no effect: it scales damping and dry friction of joints, and the model has neither; "
            "for random friction of contacts let sample= draw it as Draw(..., parameters), and pass "
            "contacts=lambda friction: contacts.replace(friction=friction)"
        )
    known = checks.known(spread.friction, model.friction)
    if not known or not np.any(np.asarray(spread.friction) * np.asarray(model.friction)):
        return
    forces, functions = (controller,), (controller,)
    if isinstance(controller, Sum):
        forces, functions = controller.forces, controller.controllers
    random = lambda values: any(isinstance(x, Friction) and x.of_model for x in values)
    if random(forces) or getattr(contacts, "dry", ()):
        return
    names, held = reads(tuple(x for x in functions if not isinstance(x, Force)))
    if "friction" in names or random(held):
        raise ValueError(
            "spread.friction has no effect on the dry friction in a function, which is the same for all copies of the "
            "model: add the force to the function instead, as in `lgjax.forces.friction(model) + controller`"
        )


def _contacts(contacts: Any, draw: Draw) -> Any:
    if not callable(contacts):
        return contacts
    if draw.parameters is None:
        raise ValueError(
            "contacts is a function of the parameters of a draw, but draws have none: pass sample=, a function of a "
            "key that returns lgjax.ensembles.Draw(model, q, v, parameters)"
        )
    return contacts(draw.parameters)


def load_ensemble(folder: Any) -> Ensemble:
    """The ensemble in a folder, finished or not, with all that was stored; the times it took are NaN.

    parameters are a dictionary of names and arrays. Raises ValueError where a file is missing or cannot be read.
    """
    run = load_run(folder)
    r: dict[str, Any] = dict(run.records)
    known, statistics, good = dict(run.statistics), None, run.valid
    failures = np.zeros(0, np.int64), np.zeros(0, np.int32)
    if "q.joints" in r:
        r["q"] = Configuration(
            Pose(r["q.free_poses.rotation"], r["q.free_poses.translation"]), r["q.joints"], r["q.ball_rotations"]
        )
    if known:
        failed = known.pop("failed")
        failures = failed, known.pop("failed_status", np.zeros(len(failed), np.int32))
        statistics = Statistics(**{**known, "samples": int(known["samples"])})  # type: ignore[arg-type]
        if not r:
            good = np.isin(np.arange(statistics.samples + len(failed)), failed, invert=True)
    r["parameters"] = {name: x for name, x in r.items() if name.startswith("parameters")}
    nan = float("nan")
    times = run.header["chunk"], nan, nan, nan
    complete = len(good) == run.header["batch"]
    result = MonteCarlo(statistics, failures[0], r, len(good), *times, failures[1], complete)  # type: ignore[arg-type]
    return _ensemble(run.common["ts"], result, good)


def _ensemble(ts: np.ndarray, result: MonteCarlo, good: np.ndarray, folder: str | None = None) -> Ensemble:
    q, v, energy, factors, parameters = (
        (result.record or {}).get(name) for name in ("q", "v", "energy", "mass_factors", "parameters")
    )
    times = (result.seconds, result.compile_seconds, result.simulated_seconds_per_second)
    told = np.full(len(good), NOT_FINITE, np.int32)
    known = result.failed_status != 0  # 0 where what was observed went beyond `limit`
    told[result.failed[known]] = result.failed_status[known]
    status = np.where(good, 0, told).astype(np.int32)
    what = result.statistics, parameters, result.chunk, result.complete, folder
    return Ensemble(ts, q, v, energy, status, factors, *times, *what)


def observation(t: jax.Array, q: Configuration, v: jax.Array) -> jax.Array:
    """Default observation of an ensemble: positions of free bodies, scalar joints, velocities, (d,)."""
    return jnp.concatenate([q.free_poses.translation.reshape(-1), q.joints, v])


def _sample(model: Model, draw: Draw, path: Trajectory, observe: Callable, events: Callable | None, store: str):
    # one time after the other: all at once, what they need between would take more memory than the rollout
    values = jax.lax.map(lambda state: _observed(observe(*state)), path[:3])
    happened = () if events is None else jnp.any(jax.lax.map(lambda state: _occurred(events(*state)), path[:3]), 0)
    if store == "none":
        return Sample(values, path.success, happened, status=path.status)
    q, v = (path.q, path.v) if store == "all" else jax.tree.map(lambda x: x[-1:], (path.q, path.v))
    mass, own = model.inertias.mass, checked_model(draw.model)
    record = {
        "q": q,
        "v": v,
        "energy": jax.lax.map(lambda state: total_energy(own, *state), (q, v)),
        "mass_factors": jnp.where(mass > 0, own.inertias.mass / jnp.where(mass > 0, mass, 1), 1),
    }
    record |= {} if draw.parameters is None else {"parameters": draw.parameters}
    return Sample(values, path.success, happened, record, path.status)


def _observed(values: Any) -> jax.Array:
    found = jnp.asarray(values)
    if found.ndim != 1:
        raise ValueError(f"observe must return a vector (d,), got shape {found.shape}")
    return found


def _occurred(events: Any) -> jax.Array:
    found = jnp.asarray(events)
    if found.ndim != 1 or found.dtype != bool:
        raise ValueError(f"events must return (e,) bool, got {found.dtype}{found.shape}")
    return found
