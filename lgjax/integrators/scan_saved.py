"""The loop under every driver: a scan over the steps of a run that keeps some of the states.

A driver plans which states to keep (`saved_steps`), scans over the steps (`scan_saved`) and puts the start in front of
what was kept (`SavedSteps.with_start`).  Read first: `scan_saved`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution.devices import on_mesh
from lgjax.numerics import checks
from lgjax.saving.checkpoint import Checkpoint

Array = jax.Array


class SavedSteps(NamedTuple):
    """The steps of a run, and those after which its state is kept.

    steps      number of steps.
    every      a divisor of `steps`: the state is kept after each `every` steps.
    last_only  whether only the final state is kept.
    """

    steps: int
    every: int
    last_only: bool

    def counts(self) -> Array:
        """Steps taken before each saved state, (n,) int32: from 0 on, or `steps` alone."""
        if self.last_only:
            return jnp.full((1,), self.steps, jnp.int32)
        return jnp.arange(0, self.steps + 1, self.every, dtype=jnp.int32)

    def with_start(self, start: Any, kept: Any) -> Any:
        """All saved states: the start in front of those that were kept, unless only the final state is saved."""
        if self.last_only:
            return kept
        return jax.tree.map(lambda first, rest: jnp.concatenate(on_mesh([first[None], rest])), start, kept)


def saved_steps(steps: Any, save_every: Any, checkpoint: Checkpoint | None = None) -> SavedSteps:
    """The checked plan of a run whose states are saved every `save_every` steps, for None only at the end."""
    if checkpoint is not None:
        checks.of_kind("checkpoint", checkpoint, Checkpoint)
    steps = checks.integer("steps", steps)
    if save_every is not None:
        every = checks.integer("save_every", save_every)
    else:
        every = steps if checkpoint is None else checkpoint.every
    if steps % every:
        raise ValueError(f"save_every must divide steps, got save_every={every} and steps={steps}")
    return SavedSteps(steps, every, save_every is None)


def scan_saved(
    step: Callable[[Any, Array], Any],
    state: Any,
    saves: SavedSteps,
    keep: Callable[[Any], Any],
    *,
    remat: bool | int = False,
    checkpoint: Checkpoint | None = None,
) -> tuple[Any, Any]:
    """Iterate state = step(state, i), i = 0, 1, ..., and return the final state and keep(state) at the saved steps.

    The start is not among them.  Leaves of what is kept have a leading axis, one entry per saved step.  `remat`:
    reverse mode keeps the state every `remat` steps, about every √steps for True, and recomputes the others.
    `checkpoint`: the run is written to its folder part by part.
    """
    segment, state = segment_length(saves.steps, remat), on_mesh(state)

    def one(state: Any, i: Array) -> tuple[Any, None]:
        return step(state, i), None

    def advance(state: Any, first: Array) -> Any:
        if saves.every == 1:
            return step(state, first)
        return scan_in_segments(one, state, first + jnp.arange(saves.every, dtype=jnp.int32), segment)[0]

    return scan_stretches(advance, state, saves, keep, segment=segment, checkpoint=checkpoint)


def scan_stretches(
    advance: Callable[[Any, Array], Any],
    state: Any,
    saves: SavedSteps,
    keep: Callable[[Any], Any],
    *,
    segment: int = 0,
    checkpoint: Checkpoint | None = None,
) -> tuple[Any, Any]:
    """`scan_saved` for drivers that take `saves.every` steps at once: state = advance(state, steps taken before)."""

    def stretch(state: Any, first: Array) -> tuple[Any, Any]:
        state = advance(state, first)
        return state, None if saves.last_only else keep(state)

    firsts = jnp.arange(0, saves.steps, saves.every, dtype=jnp.int32)
    if checkpoint is None:
        state, kept = scan_in_segments(stretch, state, firsts, segment // saves.every)
    else:
        state, kept = checkpoint.scan(stretch, state, firsts, saves.every)
    return state, jax.tree.map(lambda x: x[None], keep(state)) if saves.last_only else kept


def segment_length(steps: int, remat: bool | int) -> int:
    """Steps in a segment that reverse mode recomputes, 0 for none; for remat=True a divisor near √steps, if any."""
    if isinstance(remat, bool | np.bool_):
        if not remat:
            return 0
        root = steps**0.5
        near = [d for d in range(-int(-root / 1.5 // 1), int(root * 1.5) + 1) if steps % d == 0]
        return min(near, key=lambda d: abs(d - root), default=-int(-root // 1))
    return min(steps, checks.integer("remat", remat))


def scan_in_segments(body: Any, carry: Any, xs: Array, length: int) -> tuple[Any, Any]:
    """`lax.scan` over xs (n,), whose reverse mode keeps every `length`-th carry and recomputes the others.

    A length of 0, or of n or more, is an ordinary scan.
    """
    n = xs.shape[0]
    if n == 1:  # without a loop, which costs a trace for each derivative
        carry, y = body(carry, xs[0])
        return carry, jax.tree.map(lambda y: y[None], y)
    if not 0 < length < n:
        return jax.lax.scan(body, carry, xs)

    @partial(jax.checkpoint, prevent_cse=False)  # there is nothing to share across the iterations of a scan
    def segment(carry: Any, xs: Array) -> tuple[Any, Any]:
        return jax.lax.scan(body, carry, xs)

    whole = n - n % length
    carry, ys = jax.lax.scan(segment, carry, xs[:whole].reshape(-1, length))
    ys = jax.tree.map(lambda y: y.reshape(whole, *y.shape[2:]), ys)
    if whole < n:
        carry, rest = segment(carry, xs[whole:])
        ys = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), ys, rest)
    return carry, ys
