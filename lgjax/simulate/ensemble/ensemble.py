"""Batches of rollouts with random initial states, parameters and controls."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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
from lgjax.multibody.configuration import Configuration, neutral, retract
from lgjax.multibody.inertia import Inertia
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.status import NOT_FINITE
from lgjax.robots.robot import Robot
from lgjax.simulate.drives import ControllerWithMemory
from lgjax.simulate.ensemble.monte_carlo import MonteCarlo, Sample, monte_carlo
from lgjax.simulate.ensemble.statistics import Statistics
from lgjax.simulate.ensemble.storage import load_run
from lgjax.simulate.rollout import Trajectory, rollout

STORES = ("all", "final", "none")


class Draw(NamedTuple):
    """Model and initial state of one trajectory, and parameters (any pytree) for its controller."""

    model: Model
    q: Configuration
    v: jax.Array
    parameters: Any = None


class Spread(NamedTuple):
    """Standard deviations of what is random, as numbers or traced; all normal and independent.

    position, velocity: of the initial state, each of the nv directions of tangent space (rad, m, rad/s, m/s).
    mass: of the logarithm of each body's density. inertia: of the logarithms of its stretch along the three axes of its
    joint frame, which moves its mass and so its center. geometry: of the logarithm of the distance of its joint from
    its parent's. friction: of the logarithms of damping and dry friction of each joint coordinate, of which the latter
    acts through `forces.friction(model)` or `Contacts(joint_friction=True)`. gravity: of each component, m/s^2. All
    bodies stay physical.
    """

    position: Any = 0.1
    velocity: Any = 0.1
    mass: Any = 0.0
    inertia: Any = 0.0
    geometry: Any = 0.0
    friction: Any = 0.0
    gravity: Any = 0.0


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
    """A field that raises AttributeError, saying where the states are, if it is not in memory."""

    def get(result: "Ensemble") -> Any:
        value = getattr(super(Ensemble, result), name)
        if value is None and result.folder is not None:
            way = f"lgjax.load_ensemble({result.folder!r}) reads them"
            raise AttributeError(f"{name}: the states of this ensemble are in the folder {result.folder!r}; {way}")
        if value is None and name != "parameters":  # which not every ensemble has
            raise AttributeError(f'{name}: this ensemble kept no states (store="none"); store "all" or "final" ones')
        return value

    return property(get)


class Ensemble(_Fields):
    """Saved states of all trajectories and their statistics, on the host as NumPy arrays.

    ts: (T,) s. q: Configuration with leading axes (batch, T). v: (batch, T, nv). energy: (batch, T) J. status: (batch,)
    int32, the status of the rollout, such as `contact.ContactStatus`: 0 for success, NOT_FINITE for a trajectory that
    diverged or whose observations went beyond `limit`. mass_factors: (batch, nbodies), masses over those of the model.
    seconds: time spent computing, compile_seconds: before that, compiling.
    statistics: of what was observed, over the good trajectories; its arrays begin with (T, d). parameters: of the
    controllers, (batch, ...). chunk: trajectories at a time and device. complete: False if the run was interrupted, so
    that there are fewer trajectories than asked for. folder: where the states are, if they are not here.

    With store="final" the states have T = 1. With store="none" q, v, energy and mass_factors raise AttributeError, and
    where the states are in a folder so do they and parameters; `load_ensemble` reads them.
    """

    __slots__ = ()

    q, v, energy = map(_stored, ("q", "v", "energy"))  # type: ignore[override]
    mass_factors, parameters = map(_stored, ("mass_factors", "parameters"))  # type: ignore[override]

    @property
    def success(self) -> np.ndarray:
        """(batch,) bool, whether a trajectory is good."""
        return self.status == 0


def _checked_spread(spread: Any, model: Model) -> Spread:
    """Numbers in the model's dtype; arrays pass that spread over what they scale."""
    if not isinstance(spread, tuple):
        raise TypeError(f"spread must be a Spread, got {checks.shown(spread)}")
    found = []
    for (name, value), shape in zip(Spread(*spread)._asdict().items(), _drawn(model)):
        deviation = checks.floats(f"spread.{name}", value, (), model.dtype)
        if any(k not in (1, n) for k, n in zip(deviation.shape[::-1], shape[::-1])) or deviation.ndim > len(shape):
            raise ValueError(f"spread.{name} has shape {deviation.shape}, expected () or {shape}")
        found.append(deviation)
    return Spread(*found)


def _drawn(model: Model) -> tuple[tuple[int, ...], ...]:
    """Shapes of what is drawn for each entry of a spread."""
    bodies = model.nbodies
    return (model.nv,), (model.nv,), (bodies,), (bodies, 3), (bodies,), (model.nv,), (3,)


def ensemble(
    model: Model | Robot,
    controller: Callable | ControllerWithMemory | jax.Array | None = None,
    *,
    batch: int,
    steps: int,
    dt: float,
    key: jax.Array,
    method: Method = MuntheKaas(RK4),  # noqa: B008 (a hashable value)
    q: Configuration | None = None,
    v: jax.Array | None = None,
    spread: Spread = Spread(),  # noqa: B008 (a tuple)
    sample: Callable[[jax.Array], Draw] | None = None,
    observe: Callable | None = None,
    events: Callable | None = None,
    save_every: int | None = None,
    store: str = "all",
    contacts: Any = None,
    wrenches: Callable | None = None,
    **options: Any,
) -> Ensemble:
    """`batch` rollouts of randomized copies of a model or a `Robot`, in chunks, on all devices.

    Trajectory i is made of `key` and i alone: of sample(key_i) -> `Draw`, or of (q, v), neutral and zero by default,
    and the model, all randomized by `spread`. controller(t, q, v) -> tau (nv,), or controller(t, q, v, parameters) for
    draws that have parameters, or one with memory, such as `control.PredictiveController`, or a `forces.Force`, which
    acts with each copy's own numbers; of a robot controls, as `rollout` takes them. wrenches: as there, with the
    parameters too; contacts: as there, or a function of the parameters. Statistics are taken of observe(t, q, v) ->
    (d,) at every saved time, such as a robot's `sensors`; by default positions of free bodies, scalar joints and
    velocities. events(t, q, v) -> (e,) bool: statistics.events counts the trajectories in which they occur at a saved
    time. store: "all" saved states, "final" ones or "none". A robot with loops starts at the nearest closed state.

    `options` go to `monte_carlo`: chunk, devices, folder, resume, tag, quantiles, limit, checkpoint_every, progress,
    compiler_options. `load_ensemble` reads a folder. Raises ValueError for input that does not fit, before any work.
    Ctrl-C raises KeyboardInterrupt, whose attribute `result` is the `Ensemble` of what was computed.
    """
    mechanism, model = model, checked_model(model, leaves=True)
    checks.functions(sample=sample, observe=observe, events=events)
    _check_sizes(batch, store)
    steps, every, _ = saved_steps(steps, save_every)
    dt = checks.number("dt", dt)
    start = _start(model, q, v)

    def simulate(key, start, spread, dt):
        draw = randomized(start, spread, key) if sample is None else sample(key)
        control, pushed, found = _law(controller, draw), _law(wrenches, draw), _contacts(contacts, draw)
        drawn, q, v = _drawn_mechanism(mechanism, draw, sample is None)
        path = rollout(drawn, q, v, control, dt, steps, method, save_every, pushed, contacts=found)
        return _sample(start.model, draw, path, observe or observation, events, store)

    spread = _checked_spread(spread, model)
    if sample is None:
        _check_friction(model, spread, controller, contacts)
    times = np.asarray(dt * np.arange(0, steps + 1, every), model.dtype)
    times = times[-1:] if save_every is None else times
    arguments = strong(start), spread, jnp.asarray(dt, model.dtype)
    checks.on_host("ensemble", arguments, key)
    checks.holds_nothing_traced("ensemble", simulate, key, *arguments)
    given = {"batch": batch, "key": key, "duration": steps * dt, "common": {"ts": times}}
    return _computed(lambda: monte_carlo(simulate, arguments, **given, **options), times, store, options.get("folder"))


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


def _check_sizes(batch: Any, store: Any) -> None:
    if checks.integer("batch", batch, -(2**63)) < 1:
        raise ValueError(f"batch must be positive, got {batch}")
    if store not in STORES:
        raise ValueError(f"store must be one of {', '.join(STORES)}, got {checks.shown(store)}")


def _drawn_mechanism(mechanism: Any, draw: Draw, near: bool) -> tuple[Any, Configuration, jax.Array]:
    """The mechanism with the model of a draw, and the state; of a robot with loops the nearest one that closes them.

    near: whether the state of the draw may leave the loops open.
    """
    if not isinstance(mechanism, Robot):
        return draw.model, draw.q, draw.v
    robot = mechanism.replace(model=draw.model)
    if not (near and robot.loops):
        return robot, draw.q, draw.v
    q = project_positions(draw.model, robot.loops, draw.q).q
    return robot, q, project_velocity(draw.model, robot.loops, q, draw.v)


def _start(model: Model, q: Any, v: Any) -> Draw:
    """The model at (q, v), neutral and at rest where they are None."""
    q = neutral(model) if q is None else checked_configuration("q", q, model)
    v = jnp.zeros(model.nv, model.dtype) if v is None else v
    return Draw(model, q, checked_array("v", v, (model.nv,), model.dtype, model=model))


def _law(law: Any, draw: Draw) -> Any:
    """A controller or wrenches, given the parameters of a draw; forces are those of its model."""
    if isinstance(law, Force):
        return law.for_model(draw.model)
    if not callable(law) or draw.parameters is None or isinstance(law, ControllerWithMemory):
        return law
    return lambda t, q, v: law(t, q, v, draw.parameters)


def _check_friction(model: Model, spread: Spread, controller: Any, contacts: Any) -> None:
    """ValueError for a function as controller that holds the dry friction which is to be random."""
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
    return contacts(draw.parameters) if callable(contacts) else contacts


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
    mass = model.inertias.mass
    record = {
        "q": q,
        "v": v,
        "energy": jax.lax.map(lambda state: total_energy(draw.model, *state), (q, v)),
        "mass_factors": jnp.where(mass > 0, draw.model.inertias.mass / jnp.where(mass > 0, mass, 1), 1),
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


def randomized(start: Draw, spread: Spread, key: jax.Array) -> Draw:
    """A random copy of a model in a random initial state near the given one."""
    model, dtype = start.model, start.model.dtype
    keys = jax.random.split(key, len(spread))
    drawn = [jax.random.normal(k, shape, dtype) for k, shape in zip(keys, _drawn(model))]
    turned, pushed, mass, shape, distance, rough, pull = (s * x for s, x in zip(spread, drawn))
    q, v = retract(model, start.q, turned), start.v + pushed
    denser = model.inertias.scaled(jnp.exp(mass))
    stretch, longer = jnp.exp(shape), jnp.exp(distance)
    places = model.placements._replace(translation=longer[:, None] * model.placements.translation)
    rougher, gravity = jnp.exp(rough), model.gravity + pull
    copy = model.replace(
        inertias=stretched(denser, stretch),
        placements=places,
        damping=rougher * model.damping,
        friction=rougher * model.friction,
        gravity=gravity,
    )
    return start._replace(model=copy, q=q, v=v)


def stretched(inertia: Inertia, factors: jax.Array) -> Inertia:
    """The inertia of bodies whose mass is moved from (x, y, z) to (f₁ x, f₂ y, f₃ z); factors (..., 3)."""
    identity = sm.identity(3, factors.dtype)
    spread = 0.5 * sm.trace(inertia.rotational)[..., None, None] * identity - inertia.rotational  # ∫ x xᵀ dm
    moved = factors[..., :, None] * spread * factors[..., None, :]
    return Inertia(inertia.mass, factors * inertia.moment, sm.trace(moved)[..., None, None] * identity - moved)
