"""Error control of adaptive steps: how far two results lie apart, and what step that asks for next.

Source: [celledoni2021] eq. (33).
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.groups.small_angle import norm

Array = jax.Array
Point = Any


@dataclass(frozen=True)
class Controller:
    """Step size after a step with error e, in units of the tolerance: h safety e^(-alpha/k) e_before^(beta/k).

    k is one more than the lower order of the pair.  alpha = 1, beta = 0 is eq. (33), the rule of [celledoni2021].
    A rejected step is repeated with beta = 0.  The factor is kept between `smallest` and `largest`.
    """

    alpha: float = 1.0
    beta: float = 0.0
    safety: float = 0.85
    smallest: float = 0.2
    largest: float = 5.0

    def __post_init__(self) -> None:
        if not (self.alpha > 0 and 0 < self.safety < 1 and 0 < self.smallest < 1 < self.largest):
            raise ValueError(f"a controller needs alpha > 0, 0 < safety < 1, 0 < smallest < 1 < largest, got {self}")

    def factor(self, error: Array, before: Array, k: int, accepted: Array) -> Array:
        """By what to multiply h."""
        error, before = jnp.maximum(error, 1e-10), jnp.maximum(before, 1e-10)
        repeat = self.safety * error ** (-1.0 / k)
        go_on = self.safety * error ** (-self.alpha / k) * before ** (self.beta / k)
        factor = jnp.clip(jnp.where(accepted, go_on, repeat), self.smallest, self.largest)
        return jnp.where(jnp.isfinite(error), factor, self.smallest)


ELEMENTARY = Controller()
PI = Controller(alpha=0.7, beta=0.4, safety=0.9)


def error_ratio(space: HomogeneousSpace, y: Point, y1: Point, y_hat: Point, rtol: Array, atol: Array) -> Array:
    """Largest over the factors of a product of distance(y1, y_hat) / (atol + rtol size), which should be at most 1.

    The size of a factor is the largest entry of its points at both ends, 1 for rotations and unit vectors or less.
    """
    if space.factors:
        factors = zip(space.factors, y, y1, y_hat, strict=True)
        parts = [error_ratio(factor, a, b, c, rtol, atol) for factor, a, b, c in factors]
        return jnp.max(jnp.stack(parts))
    length = norm(jnp.ravel(space.distance(y1, y_hat)))
    return length / (atol + rtol * largest_entry((y, y1, y_hat)))


def largest_entry(points: Any) -> Array:
    """The largest magnitude in a pytree of arrays."""
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(points) if leaf.size]))
