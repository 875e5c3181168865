"""The law of actuators: forces within their limits, their slopes, and rates of activations. Read `record.py` first.

`a` is an `Actuators` everywhere; `Instant` is what a step gives it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.kinematics import World
from lgjax.multibody.configuration import Configuration
from lgjax.numerics import checks

FILTERS = ("filter", "filterexact", "lag")
EXACT = ("filterexact", "lag")


class Instant(NamedTuple):
    """State, control (n,) within its range, activation (na,), kinematics; dt for actuators that are early, or None."""

    q: Configuration
    v: jax.Array
    control: jax.Array
    activation: jax.Array
    world: World | None
    dt: Any = None


class Force(NamedTuple):
    """Forces (n,), their derivatives by length and by its rate, and the rate, None where none depends on it."""

    force: jax.Array
    by_length: Any
    by_velocity: Any
    velocity: Any


# ---- forces
def forces(a, at: Instant):
    found = _free(a, at)
    return jnp.clip(found.force, *_limits(a, found.velocity)) if has(a, "f") else found.force


def slopes(a, at: Instant):
    """Derivatives (n,) of `forces` by length and by its rate, zero at a limit that does not move."""
    force, by_length, by_velocity, velocity = _free(a, at)
    if not has(a, "f"):
        return by_length, by_velocity
    low, high = _limits(a, velocity)
    zero = jnp.zeros_like(force)
    inside, at_line = (force > low) & (force < high), zero
    if has(a, "s"):
        # At a limit that falls with speed the force follows the line.
        falls, speed, ends = _line(a)
        share = velocity / speed
        up, down = (force >= high) & (share > 0) & (share < 1), (force <= low) & (share < 0) & (share > -1)
        at_line = jnp.where(falls & up, -ends[:, 1] / speed, jnp.where(falls & down, ends[:, 0] / speed, zero))
    return jnp.where(inside, by_length, zero), jnp.where(inside, by_velocity, at_line)


def _free(a, at: Instant) -> Force:
    """Forces before their limits."""
    length, velocity = _read(a, at)
    if not a.na:
        return _affine(a, at.control, length, velocity)
    lags, early = _mask(a, ("lag",)), np.asarray(a.early) & (at.dt is not None)
    activation = at.activation
    if early.any():
        ahead = advance(a, activation, _rates(a, at, length, velocity), at.dt)
        activation = jnp.where(early[a.active], ahead, activation)
    activation = jnp.zeros_like(at.control).at[a.active].set(activation)
    inputs = jnp.where(_mask(a, ("none", "lag")), at.control, activation)
    force, by_length, by_velocity, _ = _affine(a, inputs, length, velocity)
    if lags.any():
        force = jnp.where(lags, activation, force)
        reached = jnp.zeros_like(force)  # the share of a change that acts at the end of the step already
        if (early & lags).any():
            reached = jnp.where(early, -jnp.expm1(-at.dt / a.time_constant), reached)
        by_length, by_velocity = (jnp.where(lags, reached * x, x) for x in (by_length, by_velocity))
    return Force(force, by_length, by_velocity, velocity)


def _affine(a, inputs, length, velocity) -> Force:
    gain, slopes = a.gain[:, 0], [jnp.zeros_like(inputs)] * 2
    terms = [a.bias[:, 0]] if has(a, "c") else []
    for k, x, of_gain, of_bias in ((1, length, "L", "l"), (2, velocity, "V", "v")):
        if has(a, of_bias):
            terms.append(a.bias[:, k] * x)
            slopes[k - 1] = a.bias[:, k]
        if has(a, of_gain):
            gain = gain + a.gain[:, k] * x
            slopes[k - 1] = slopes[k - 1] + a.gain[:, k] * inputs
    if any(a.wraps):
        periods = a.transmission.periods()
        turns = jnp.round((inputs - length) / periods)
        inputs = inputs - jnp.where(np.asarray(a.wraps), turns * periods, jnp.zeros_like(turns))
    by_length, by_velocity = slopes
    return Force(sum(terms, start=gain * inputs), by_length, by_velocity, velocity)


LETTERS = {"gain": " LV", "bias": "clv", "control_range": "uu", "force_range": "ff", "activation_range": "aa"}


def letters_of(what: str, values: Any, n: int) -> list[str]:
    """For each of n actuators the terms that its numbers `what` make count: those not known to be 0, or infinite."""
    if what == "no_load_speed":
        values = np.asarray(values)[..., None] if checks.known(values) else values
    letters = LETTERS.get(what, "s")
    counts = np.ones((n, len(letters)), bool)
    if checks.known(values):
        known = np.broadcast_to(np.asarray(values), counts.shape)
        counts = known != 0 if what in ("gain", "bias") else np.isfinite(known)
    rows = ({letter for letter, yes in zip(letters, row, strict=True) if yes} for row in counts.tolist())
    return ["".join(sorted(row - {" "})) for row in rows]


def has(a, letters: str) -> bool:
    """Whether the law of some actuator has one of these terms."""
    return any(letter in terms for terms in a.terms for letter in letters)


def _read(a, at: Instant):
    """Lengths and their rates (n,), each None where no force depends on it."""
    found = []
    for letters, of in (
        ("Ll", lambda some: some.lengths(at.q, at.world)),
        ("Vvs", lambda some: some.rates(at.q, at.v, at.world)),
    ):
        rows = np.flatnonzero([any(letter in terms for letter in letters) for terms in a.terms])
        if rows.size in (0, len(a)):
            found.append(of(a.transmission) if rows.size else None)
        else:
            found.append(jnp.zeros(len(a), a.dtype).at[rows].set(of(a.transmission.take(rows))))
    return found


def _limits(a, velocity):
    """Least and greatest forces (n,)."""
    low, high = a.force_range[:, 0], a.force_range[:, 1]
    if not has(a, "s"):
        return low, high
    falls, speed, ends = _line(a)
    share = velocity / speed
    return (
        jnp.where(falls, ends[:, 0] * jnp.clip(1 + share, 0, 1), low),
        jnp.where(falls, ends[:, 1] * jnp.clip(1 - share, 0, 1), high),
    )


def _line(a):
    """Where limits fall with speed (n,), and there the speed and the force_range; 1 and 0 elsewhere.

    What does not fall may be infinite, and must be in no product, not even one that is not chosen.
    """
    falls = np.asarray(["s" in terms for terms in a.terms])
    speed = jnp.where(falls, a.no_load_speed, jnp.ones_like(a.no_load_speed))
    return falls, speed, jnp.where(falls[:, None], a.force_range, jnp.zeros_like(a.force_range))


# ---- activations
def rates(a, at: Instant):
    """d activation/dt (na,)."""
    return _rates(a, at, *(_read(a, at) if _mask(a, ("lag",)).any() else (None, None)))


def _rates(a, at: Instant, length, velocity):
    filters, lags = (_mask(a, kinds)[a.active] for kinds in (FILTERS, ("lag",)))
    target = at.control[a.active]
    if lags.any():
        target = jnp.where(lags, _affine(a, at.control, length, velocity).force[a.active], target)
    if not filters.any():
        return target
    constant = jnp.where(filters, a.time_constant[a.active], jnp.ones_like(target))
    return (target - jnp.where(filters, at.activation, jnp.zeros_like(target))) / constant


def advance(a, activation, rates, dt):
    """Activations a step later, within their ranges."""
    exact = _mask(a, EXACT)[a.active]
    time = jnp.broadcast_to(jnp.asarray(dt, a.dtype), (a.na,))
    if exact.any():
        constant = jnp.where(exact, a.time_constant[a.active], jnp.ones_like(time))
        time = jnp.where(exact, -constant * jnp.expm1(-time / constant), time)
    ahead = activation + rates * time
    return clipped(ahead, a.activation_range[a.active]) if has(a, "a") else ahead


def _mask(a, kinds: Sequence[str]) -> np.ndarray:
    return np.asarray([kind in kinds for kind in a.dynamics], bool)


# ---- ranges
def ranged(what: str, value: Any, names: Sequence[str], dtype: Any) -> jax.Array:
    """Ranges (n, 2) from (low, high) or (n, 2), infinite for None; a traced one of low > high is NaN."""
    shape = (len(names), 2)
    value = (-np.inf, np.inf) if value is None else value
    found = np.asarray(checks.real(what, value)) if checks.known(value) else checks.floats(what, value, shape, dtype)
    if found.shape not in ((2,), shape):
        raise ValueError(f"{what} has shape {found.shape}, expected (low, high) or {shape}")
    if isinstance(found, jax.Array):
        ordered = found[..., :1] <= found[..., 1:]
        return jnp.broadcast_to(jnp.where(ordered, found, jnp.nan), shape)
    found = np.broadcast_to(found, shape)
    for name, (low, high) in zip(names, found.tolist(), strict=True):
        if not low <= high:
            raise ValueError(f"{what} of {name!r} is from {low:g} to {high:g}")
    return jnp.asarray(found, dtype)


def clipped(x, ranges):
    return jnp.clip(x, ranges[:, 0], ranges[:, 1])
