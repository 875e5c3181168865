"""Motions of every kind as arrays with the axes (system, time): what was saved, thinned out to what is drawn."""

from typing import Any, NamedTuple

import jax
import numpy as np

from lgjax.numerics import checks


class Motion(NamedTuple):
    """States of N systems at T times, as NumPy arrays.

    ts: (T,) s. q: any pytree whose leaves begin with (N, T). v: (N, T, nv) or None. energy: (N, T) J or None. forces:
    (N, T, n, 3) N at n contacts, in their frames, or None.
    """

    ts: np.ndarray
    q: Any
    v: Any = None
    energy: Any = None
    forces: Any = None

    @property
    def systems(self) -> int:
        return len(jax.tree.leaves(self.q)[0])


def leading_axes(parts: dict[str, tuple[Any, tuple[int, ...]]]) -> int:
    """How many leading axes the arrays of a motion have; parts: array and its own axes, by name.

    Raises TypeError for what are no real numbers, ValueError for an array without its own axes behind the common ones.
    """
    common: tuple[int, ...] | None = None
    for name, (value, own) in parts.items():
        array = np.asarray(value)
        if not isinstance(value, jax.Array | np.ndarray) or array.dtype.kind not in "fiu":
            raise TypeError(f"{name} of the motion must be an array of real numbers, got {checks.shown(value)}")
        lead = array.shape[: array.ndim - len(own)]
        if array.shape[len(lead) :] != own or common not in (None, lead):
            axes = "..., " + ", ".join(map(str, own)) if common is None else ", ".join(map(str, (*common, *own)))
            raise ValueError(f"{name} of the motion has shape {array.shape}, expected ({axes})")
        common = lead
    return len(common or ())


def as_motion(
    ts: Any, q: Any, rank: int, v: Any = None, energy: Any = None, forces: Any = None, frames: int = 200,
    systems: int = 1000,
) -> Motion:  # fmt: skip
    """Motion from states whose leaves have `rank` leading axes: 0 a state, 1 times, 2 (systems, times).

    ts: (T,) or (N, T), or None for a single state. At most `frames` evenly chosen times and the first `systems` systems
    are kept. Of a motion backwards in time, ts is what has passed since its start. Raises ValueError for times that
    rise and fall or differ between systems, and for more leading axes.
    """
    if rank not in (0, 1, 2):
        raise ValueError(f"states have {rank} leading axes; a motion has (times,) or (systems, times)")
    add = {0: lambda x: np.asarray(x)[None, None], 1: lambda x: np.asarray(x)[None], 2: np.asarray}[rank]
    q, v, energy, forces = jax.tree.map(add, (q, v, energy, forces))
    times = jax.tree.leaves(q)[0].shape[1]
    ts = np.zeros(times) if ts is None else checks.real("ts", ts)
    if ts.ndim == 2 and len(ts):
        if np.any(ts != ts[:1]):
            raise ValueError("the systems were saved at different times: only motions with common times can be drawn")
        ts = ts[0]
    if ts.shape != (times,):
        raise ValueError(f"ts has shape {ts.shape}, the states have {times} times")
    ts = ts[0] - ts if np.all(np.diff(ts) <= 0) and times > 1 else ts
    if not np.all(np.diff(ts) >= 0):
        raise ValueError(f"ts must rise, or fall all the way: {checks.shown(ts.tolist())}")
    if 0 in jax.tree.leaves(q)[0].shape[:2]:
        raise ValueError("the motion has no states to draw")
    chosen = np.unique(np.round(np.linspace(0, times - 1, min(times, frames))).astype(int))
    return Motion(ts[chosen], *jax.tree.map(lambda x: x[:systems, chosen], (q, v, energy, forces)))


def over_states(function: Any, *trees: Any) -> Any:
    """function mapped over the two leading axes of arrays (N, T, ...), the result transposed to (T, N, ...), NumPy."""
    n, t = jax.tree.leaves(trees)[0].shape[:2]
    flat = jax.tree.map(lambda x: x.reshape(n * t, *x.shape[2:]), trees)
    out = jax.jit(jax.vmap(function))(*flat)
    return jax.tree.map(lambda x: np.asarray(x).reshape(n, t, *x.shape[1:]).swapaxes(0, 1), out)


def good_systems(given: Any, m: Motion) -> np.ndarray:
    """(N,) bool, what the result of a driver says of its systems; True where it says nothing."""
    success = np.asarray(getattr(given, "success", True))
    return np.broadcast_to(success[: m.systems] if success.ndim else success, (m.systems,))
