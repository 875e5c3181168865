"""Batches of rollouts with random initial states and masses, in chunks that fit the device."""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.energy import total_energy
from lgjax.integrators import RK4, MuntheKaas
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration, neutral, retract
from lgjax.simulate.rollout import Controller, rollout


class Ensemble(NamedTuple):
    """Saved states of all trajectories, on the host as NumPy arrays.

    ts: (T,) s. q: Configuration with leading axes (batch, T). v: (batch, T, nv). energy: (batch, T) J.
    finite: (batch,) bool, false for a trajectory that left the finite numbers. mass_factors: (batch, nbodies).
    seconds: time spent computing, compile_seconds: before that, compiling.
    An interrupted run holds the trajectories that were finished.
    """

    ts: np.ndarray
    q: Configuration
    v: np.ndarray
    energy: np.ndarray
    finite: np.ndarray
    mass_factors: np.ndarray
    seconds: float
    compile_seconds: float
    simulated_seconds_per_second: float


def ensemble(
    model: Model,
    controller: Controller | None = None,
    *,
    batch: int,
    steps: int,
    dt: float,
    key: jax.Array,
    method=MuntheKaas(RK4),  # noqa: B008 (a hashable value)
    q: Configuration | None = None,
    v=None,
    position_spread: float = 0.1,
    velocity_spread: float = 0.1,
    mass_spread: float = 0.0,
    save_every: int | None = None,
    chunk: int | None = None,
    progress: bool | None = None,
) -> Ensemble:
    """`batch` rollouts of randomised copies of a model, `chunk` at a time.

    Initial states are (q exp(position_spread n), v + velocity_spread n') with standard normal n, n' in tangent space
    (default q: neutral, v: zero); the density of each body is multiplied by exp(mass_spread n''). Trajectory i
    depends on `key` and i alone, not on the chunks. progress None shows a bar if tqdm is installed, True insists.
    Raises ValueError for sizes that are not positive.
    """
    if batch < 1 or (chunk is not None and chunk < 1):
        raise ValueError(f"batch and chunk are positive, got batch={batch}, chunk={chunk}")
    width = min(batch, chunk or 4096)
    center = (neutral(model) if q is None else q, jnp.zeros(model.nv, model.dtype) if v is None else jnp.asarray(v))

    def one(model, center, spreads, key, dt, index):
        copy, q0, v0, factors = randomized(model, center, spreads, jax.random.fold_in(key, index))
        path = rollout(copy, q0, v0, controller, dt, steps, method, save_every)
        energy = jax.vmap(lambda q, v: total_energy(copy, q, v))(path.q, path.v)
        return path.ts, (path.q, path.v, energy, path.finite, factors)

    many = jax.jit(jax.vmap(one, (None, None, None, None, None, 0), (None, 0)))
    spreads = tuple(jnp.asarray(s, model.dtype) for s in (position_spread, velocity_spread, mass_spread))
    fixed = (model, center, spreads, key, jnp.asarray(dt, model.dtype))
    started = time.perf_counter()
    compiled = many.lower(*fixed, jnp.arange(width, dtype=jnp.int32)).compile()
    compile_seconds = time.perf_counter() - started

    parts, done, started, ts = [], 0, time.perf_counter(), None
    with _progress_bar(progress, batch, steps * dt) as bar:
        try:
            while done < batch:
                # the last chunk is computed at full width, so that every trajectory runs in the same program
                ts, part = jax.device_get(compiled(*fixed, jnp.arange(done, done + width, dtype=jnp.int32)))
                keep = min(width, batch - done)
                parts.append(jax.tree.map(lambda x, k=keep: x[:k], part))
                done += keep
                bar.update(keep)
        except KeyboardInterrupt:
            if not parts:
                raise
    seconds = time.perf_counter() - started
    qs, vs, energy, finite, factors = jax.tree.map(lambda *xs: np.concatenate(xs), *parts)
    rate = done * steps * dt / seconds
    return Ensemble(np.asarray(ts), qs, vs, energy, finite, factors, seconds, compile_seconds, rate)


def randomized(model: Model, center, spreads, key):
    """A random copy of a model with random initial state: (model, q, v, mass factors (nbodies,))."""
    q, v = center
    position, velocity, mass = spreads
    keys = jax.random.split(key, 3)
    q0 = retract(model, q, position * jax.random.normal(keys[0], (model.nv,), model.dtype))
    v0 = v + velocity * jax.random.normal(keys[1], (model.nv,), model.dtype)
    factors = jnp.exp(mass * jax.random.normal(keys[2], (model.nbodies,), model.dtype))
    return model.replace(inertias=model.inertias.scaled(factors)), q0, v0, factors


class _Silent:
    """A progress bar that shows nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None

    def update(self, count: int) -> None:
        pass


def _progress_bar(progress: bool | None, batch: int, simulated: float):
    """tqdm over trajectories; its rate times `simulated` seconds each is shown as well."""
    if progress is False:
        return _Silent()
    try:
        from tqdm import tqdm
    except ImportError:
        if progress:
            raise ImportError("a progress bar needs tqdm: pip install 'lgjax[cli]'") from None
        return _Silent()
    return tqdm(total=batch, unit="rollout", desc=f"{simulated:g} s each", leave=False)
