"""Derivatives at degenerate states: finite, the same forward and reverse, and equal to differences where those exist.

A subject is a vector of numbers, a function of a state and of a displacement x of it; derivatives are with respect to x
at zero. `run(seed, seconds)` goes through `gradient_subjects.py` in a random order, float64 and then float32.

First order: jacrev and jacfwd, of which float64 is held against central differences of two step lengths. Second order:
forward over reverse, reverse over reverse and forward over forward along a direction, held against differences of the
first. A difference counts where two step lengths, and both sides, agree: elsewhere there is no derivative to compare
with, and finite is all that is asked. float32 is held against float64.
"""

import collections
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from soak import Result
from soak.gradient_subjects import Subject, subjects


class Outcome(NamedTuple):
    """A failure: the subject, the state, and what is wrong."""

    name: str
    argument: str
    what: str
    said: str


class Derivatives(NamedTuple):
    """Value (k,), derivatives (k, n) of two modes, and second derivatives (k,) along a direction of three."""

    value: Any
    reverse: Any
    forward: Any
    forward_over_reverse: Any
    reverse_over_reverse: Any
    forward_over_forward: Any


def derivatives(function: Callable, second: bool | str, state: Any, x: Any, d: Any) -> Derivatives:
    """All of them for one state."""
    f = lambda y: function(state, y)
    along = lambda y: jax.jvp(f, (y,), (d,))[1]
    none = jnp.zeros(0, x.dtype)
    if second == "reverse alone":
        return Derivatives(f(x), jax.jacrev(f)(x), none, none, none, none)
    if not second:
        return Derivatives(f(x), jax.jacrev(f)(x), jax.jacfwd(f)(x), none, none, none)
    reverse = jax.jacrev(f)
    slope = lambda y: jnp.sum(reverse(y) * d, -1)
    return Derivatives(
        f(x),
        reverse(x),
        jax.jacfwd(f)(x),
        jax.jvp(slope, (x,), (d,))[1],
        none if second == "forward over reverse" else jnp.sum(jax.jacrev(slope)(x) * d, -1),
        none if second == "forward over reverse" else jax.jvp(along, (x,), (d,))[1],
    )


def close(a: Any, b: Any, tolerance: float) -> np.ndarray:
    """(...) whether the entries agree, relative to the largest of their row."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    return np.abs(a - b) <= tolerance * (1 + np.max(np.abs(b), -1, keepdims=True, initial=0.0))


# How far from a place without derivatives those are compared, in float64 and float32: nearer, they are round-off.
NEAR = {"float64": 1e-5, "float32": 1e-2}


def judge(subject: Subject, found: Derivatives, exact: Derivatives | None, sides: Any) -> Iterator[tuple[int, str]]:
    """(state, what is wrong); `exact` is float64 for a float32 result, `sides` are differences of a float64 one."""
    yield from _not_finite(subject, found, exact)
    near = NEAR["float64" if exact is None else "float32"]
    compared = np.broadcast_to(np.asarray(subject.distance) > near, len(found.value))
    yield from ((state, said) for state, said in _compared(subject, found, exact, sides) if compared[state])


HUGE = 1e30  # what is beyond it in float64 is made of numbers that float32 does not have


def _not_finite(subject: Subject, found: Derivatives, exact: Derivatives | None) -> Iterator[tuple[int, str]]:
    for name, array in zip(Derivatives._fields, found, strict=True):
        bad = ~np.isfinite(np.asarray(array))
        if exact is not None:
            wide = np.asarray(getattr(exact, name))
            bad &= ~(np.isfinite(wide) & (np.abs(wide) >= HUGE))
        for i in np.flatnonzero(bad.reshape(len(bad), -1).any(-1)) if bad.size else ():
            rows = sorted({int(r) for r in np.argwhere(bad[i])[:, 0]})
            yield int(i), f"{name} is not finite in {', '.join(subject.names[r] for r in rows[:6])}"


def _compared(subject: Subject, found: Derivatives, exact: Derivatives | None, sides: Any) -> Iterator[tuple[int, str]]:
    order = 1 if exact is None else 1e8
    pairs = [("forward", found.forward, found.reverse)] if found.forward.size else []
    if found.forward_over_forward.size:
        pairs += [
            ("reverse_over_reverse", found.reverse_over_reverse, found.forward_over_reverse),
            ("forward_over_forward", found.forward_over_forward, found.forward_over_reverse),
        ]
    for name, a, b in pairs:
        yield from _differing(subject, name, a, b, min(1e-9 * order, 3e-2), np.ones(1, bool))
    if exact is not None:
        yield from _differing(subject, "float32 reverse", found.reverse, exact.reverse, 3e-2, subject.smooth)
    if sides is not None:
        first, second, smooth, smooth_slope = sides
        slope = np.sum(np.asarray(found.reverse) * subject.direction, -1)
        yield from _differing(subject, "reverse against differences", slope, first, 1e-5, smooth)
        if second is not None:
            yield from _differing(subject, "second order against differences", found.forward_over_reverse, second, 1e-4,
                                  smooth_slope)  # fmt: skip


def _differing(subject: Subject, what: str, a: Any, b: Any, tolerance: float, counts: Any) -> Iterator[tuple[int, str]]:
    a, b = np.asarray(a, float), np.asarray(b, float)
    both = np.isfinite(a) & np.isfinite(b)
    wrong = both & ~close(np.where(both, a, 0), np.where(both, b, 0), tolerance)
    if np.ndim(counts) == 2:
        wrong &= counts if wrong.ndim == 2 else counts[..., None]
    for i in np.flatnonzero(wrong.reshape(len(wrong), -1).any(-1)):
        row = int(np.argwhere(wrong[i])[0][0])
        yield int(i), f"{what}: {subject.names[row]} is {a[i][row]} and {b[i][row]}"


@np.errstate(invalid="ignore")  # where they are not finite
def differences(subject: Subject, program: Callable, states: Any, found: Derivatives) -> tuple:
    """First and second differences along the direction, and where they say something."""
    d = subject.direction
    at = {s * h: program(states, jnp.asarray(s * h * d)) for h in (1e-5, 2e-6) for s in (1, -1)}
    middle = np.asarray(found.value, float)
    central, smooth = [], np.ones(middle.shape, bool)
    for h, bend in ((1e-5, 1e-3), (2e-6, 1e-4)):
        ahead, behind = (np.asarray(at[s].value, float) for s in (h, -h))
        central.append((ahead - behind) / (2 * h))
        smooth &= np.abs((ahead - middle) - (middle - behind)) / h <= bend * (1 + np.abs(central[-1]))
    # Where a force begins as depth^1.5, errors shrink as the root of h: the first is twice what the two differ by.
    smooth &= np.abs(central[0] - central[1]) <= 4e-6 * (1 + np.abs(central[0]))
    if not found.forward_over_reverse.size:
        return central[0], None, smooth, None
    slope = lambda s: np.sum(np.asarray(at[s].reverse, float) * d, -1)
    second = [(slope(h) - slope(-h)) / (2 * h) for h in (1e-5, 2e-6)]
    agree = np.abs(second[0] - second[1]) <= 1e-4 * (1 + np.abs(second[0]))
    bend = [
        np.abs(slope(h) - 2 * np.sum(np.asarray(found.reverse, float) * d, -1) + slope(-h)) / h for h in (1e-5, 2e-6)
    ]
    agree &= np.maximum(*bend) <= 1e-3 * (1 + np.abs(second[0]))
    return central[0], second[0], smooth, smooth & agree & np.isfinite(second[0])


def program_of(subject: Subject, dtype: str) -> tuple[Callable, Any, Any]:
    """(states, x) -> Derivatives, compiled; the states and the direction in the dtype."""
    states = jax.tree.map(lambda x: jnp.asarray(x, dtype), subject.states)
    d = jnp.asarray(subject.direction, dtype)
    one = partial(derivatives, subject.function, subject.second)
    return jax.jit(lambda states, x: jax.vmap(one, (0, None, None))(states, x, d)), states, d


def examine(subject: Subject, single: bool = True) -> Iterator[tuple[str, int, str]]:
    """(dtype, state, what is wrong) of a subject."""
    exact = None
    for dtype in ("float64", "float32")[: 1 + single]:
        program, states, d = program_of(subject, dtype)
        found = program(states, jnp.zeros_like(d))
        sides = differences(subject, program, states, found) if dtype == "float64" else None
        if sides is not None:
            subject = subject._replace(smooth=sides[2])
        for state, said in judge(subject, found, exact, sides):
            yield dtype, state, said
        exact = found


def run(seed: int, seconds: float) -> Iterator[Outcome]:
    """Failures, until the time is over or all subjects have been examined."""
    end = time.monotonic() + seconds
    makers = list(subjects().items())
    random.Random(seed).shuffle(makers)
    for name, make in makers:
        if time.monotonic() > end:
            return
        subject = make(seed)
        for dtype, state, said in examine(subject):
            yield Outcome(name, f"{dtype}, {subject.labels[state]}", "derivatives", said)


def part(seed: int) -> Result:
    """One subject in turn, in both dtypes."""
    makers = subjects()
    name = sorted(makers)[seed % len(makers)]
    subject = makers[name](seed)
    failures = [f"{name} | {dtype}, {subject.labels[i]} | {said}" for dtype, i, said in examine(subject)]
    count = len(subject.labels) * len(subject.names)
    return Result(collections.Counter({"derivatives": count, "failed": len(failures)}), failures)
