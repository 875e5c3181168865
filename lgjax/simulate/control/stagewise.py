"""Constraints that hold at every step by themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.numerics import checks

Array = jax.Array


@dataclass(frozen=True, eq=False)
class Stagewise:
    """A constraint as a function for every step and one for the end, which `ILQR` and `FDDP` can use.

    As an equality they are to vanish, as an inequality not to be positive. Pass it as `equality` or `inequality` of
    `optimize_controls`, which sets dt, whatever the method.

    Args:
        running: (t, state, control) -> vector, of every step; None for none.
        terminal: (state) -> vector, of the last state; None for none.
    """

    running: Callable[[Array, Any, Array], Array] | None = None
    terminal: Callable[[Any], Array] | None = None
    dt: float = 1.0

    def __post_init__(self) -> None:
        checks.functions(running=self.running, terminal=self.terminal)
        if self.running is None and self.terminal is None:
            raise ValueError("a Stagewise constraint needs running, terminal or both")

    def stage(self, t: Array, state: Any, control: Array) -> Array:
        """The values of one step."""
        return jnp.zeros(0, control.dtype) if self.running is None else self.running(t, state, control)

    def end(self, state: Any) -> Array:
        """The values of the last state."""
        dtype = jax.tree.leaves(state)[0].dtype
        return jnp.zeros(0, dtype) if self.terminal is None else self.terminal(state)

    def __call__(self, states: Any, controls: Array) -> Array:
        """All values, flat; leaves of states (steps + 1, ...), controls (steps, controls)."""
        times = jnp.arange(len(controls), dtype=jnp.int32).astype(controls.dtype) * jnp.asarray(self.dt, controls.dtype)
        stages, last = self.split(times, states, controls)
        return jnp.concatenate([stages.reshape(-1), last])

    def split(self, times: Array, states: Any, controls: Array) -> tuple[Array, Array]:
        """Values (steps, k) of the steps, and those of the end."""
        before, last = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[-1], states)
        return jax.vmap(self.stage)(times, before, controls), self.end(last)
