"""The search for the time of an event: a bracket that shrinks by secants, and by halves where these fail.

Read first: `event_loop.py`. Source: M. Dowell, P. Jarratt, A modified regula falsi method for computing the root of an
equation, BIT 11 (1971), with bisection after each look that leaves more than half of the bracket.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


class Search(NamedTuple):
    """An event is between `low` and `high`, s after the last part; the least guard is g_low > 0 and g_high < 0 there.
    side: which of them moved last, -1 or 1. slow: whether the last look left more than half of the bracket. Brackets
    below `width` () s are round-off.
    """

    active: Array
    low: Array
    high: Array
    g_low: Array
    g_high: Array
    side: Array
    slow: Array

    @classmethod
    def idle(cls, dtype: Any) -> "Search":
        no, zero = jnp.zeros((), bool), jnp.zeros((), dtype)
        return cls(no, zero, zero, zero, zero, jnp.zeros((), jnp.int32), no)

    def next(self, width: Array) -> Array:
        """Where to look next: the secant, the middle after a slow look, the upper end once the bracket is narrow.

        So any two looks halve the bracket, whatever the guard does.
        """
        gap, drop = self.high - self.low, self.g_low - self.g_high
        share = jnp.where(self.slow, 0.5, self.g_low / jnp.where(drop > 0, drop, jnp.ones_like(drop)))
        inside = jnp.clip(self.low + share * gap, self.low + 0.5 * width, self.high - 0.5 * width)
        return jnp.where(gap <= width, self.high, inside)

    def after(self, at: Array, g: Array) -> "Search":
        """With the least guard g at a place; an end that stays put twice counts half (the Illinois rule)."""
        below, first = g < 0, ~self.active
        low = jnp.where(below, jnp.where(first, jnp.zeros_like(at), self.low), at)
        high = jnp.where(below, at, self.high)
        g_low = jnp.where(first, jnp.abs(g), jnp.where(below & (self.side == 1), 0.5 * self.g_low, self.g_low))
        g_high = jnp.where(~below & (self.side == -1), 0.5 * self.g_high, self.g_high)
        return Search(
            self.active | below,
            low,
            high,
            jnp.where(below, g_low, g),
            jnp.where(below, g, g_high),
            jnp.where(below, jnp.int32(1), jnp.int32(-1)),
            ~first & ~self.slow & (high - low > 0.5 * (self.high - self.low)),
        )

    def found(self, g: Array, width: Array) -> Array:
        """Whether the last look, at the least guard g, found the event: a zero, or the upper end of a narrow bracket.

        Gaps have few digits, so that zeros are common, and secants from them lead nowhere.
        """
        return (g == 0) | (g < 0) & (self.high - self.low <= width)
