"""Error control of adaptive steps: the distance of two results, and the step size that follows from it.

Source: [celledoni2021] eq. (33).
"""

from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.numerics.small_angle import norm

Array = jax.Array
Point = Any


@dataclass(frozen=True)
class StepSizeController:
    """Rule for the next step size: h safety e^(-alpha/k) e_before^(beta/k), with e the error in units of the tolerance.

    k is one more than the lower order of the pair.  alpha = 1, beta = 0 is eq. (33), the rule of [celledoni2021].
    A rejected step is repeated with beta = 0.  The factor is kept between `smallest` and `largest`.
    """

    alpha: float = 1.0
    beta: float = 0.0
    safety: float = 0.85
    smallest: float = 0.2
    largest: float = 5.0

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, checks.number(field.name, getattr(self, field.name)))
        if not (self.alpha > 0 and 0 < self.safety < 1 and 0 < self.smallest < 1 < self.largest):
            raise ValueError(f"a controller needs alpha > 0, 0 < safety < 1, 0 < smallest < 1 < largest, got {self}")

    def factor(self, error: Array, before: Array, k: int, accepted: Array) -> Array:
        """Factor by which to multiply h."""
        error, before = jnp.maximum(error, 1e-10), jnp.maximum(before, 1e-10)
        repeat = self.safety * error ** (-1.0 / k)
        go_on = self.safety * error ** (-self.alpha / k) * before ** (self.beta / k)
        factor = jnp.clip(jnp.where(accepted, go_on, repeat), self.smallest, self.largest)
        return jnp.where(jnp.isfinite(error), factor, self.smallest)


ELEMENTARY = StepSizeController()
PI_CONTROL = StepSizeController(alpha=0.7, beta=0.4, safety=0.9)


FEW = 64  # entries whose sum or maximum is written out: one function on a CPU has no reductions


# Two results of one step differ by a few roundings of the numbers that they are made of, however small the step.
_ROUND_OFF = 8


def tolerances(space: HomogeneousSpace, start: Point, y: Point, rtol: Array, atol: Array) -> list[Array]:
    """Tolerated error of each part of y, a point of a space that is not a product.

    It is atol + rtol |part|, the part seen from the start of the run, and a few units in the last place of the part as
    it is stored: far from the origin, no step is so small that two results agree better.
    """
    if space.parts is None:
        return [atol + rtol * largest_entry(y)]
    last_place = _ROUND_OFF * jnp.finfo(rtol.dtype).eps
    pairs = zip(space.parts(y, start), space.parts(y), strict=True)
    return [atol + rtol * length(seen) + last_place * length(stored) for seen, stored in pairs]


def error_ratio(
    space: HomogeneousSpace, start: Point, y: Point, y1: Point, y_hat: Point, rtol: Array, atol: Array
) -> Array:
    """Largest over the parts of a state of |part(y1) - part(y_hat)| / tolerance, which should be at most 1.

    `HomogeneousSpace.parts` says what the parts are: each factor of a product, each copy of a power, the rotation and
    the translation of a pose have their own.  The tolerance is atol + rtol size, the larger one of those at y and at
    y1.  Rotations, unit vectors and unit quaternions have size 1, vectors their length, and positions their distance
    from that of `start`, where the run began; so the place of a motion in space does not matter.  A space
    without parts is judged as a whole: `distance` against its largest entry.
    """
    if space.factors:
        factors = zip(space.factors, start, y, y1, y_hat, strict=True)
        return largest([error_ratio(*factor, rtol, atol) for factor in factors])
    if space.parts is None:
        lengths = [space.distance(y1, y_hat)]
    else:
        lengths = [length(a - b) for a, b in zip(space.parts(y1, start), space.parts(y_hat, start), strict=True)]
    allowed = zip(*(tolerances(space, start, point, rtol, atol) for point in (y, y1)), strict=True)
    return largest([gap / jnp.maximum(*pair) for gap, pair in zip(lengths, allowed, strict=True)])


def exponent_ratio(sigma: Any, sigma_hat: Any, rtol: Array, atol: Array) -> Array:
    """|sigma - sigma_hat| / (atol + rtol |sigma|).  Source: [celledoni2021] section 4.1."""
    flat = lambda x: jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(x)])
    gap = jax.tree.map(jnp.subtract, sigma, sigma_hat)
    return length(flat(gap)) / (atol + rtol * length(flat(sigma)))


def length(x: Array) -> Array:
    """`norm`, of few entries without a reduction."""
    if not 0 < x.shape[-1] <= FEW:
        return norm(x)
    square = sm.dot(x, x)
    return jnp.where(square == 0, 0, jnp.sqrt(jnp.where(square == 0, 1, square)))


def largest_entry(points: Any) -> Array:
    """The largest magnitude in a pytree of arrays."""
    return largest([jnp.abs(leaf) for leaf in jax.tree.leaves(points)])


def largest(arrays: list[Array]) -> Array:
    """The largest of all entries, none of them negative; 0 where there are none."""
    entries = [x.reshape(-1) for x in arrays]
    if sum(x.size for x in entries) > FEW:
        return jnp.max(jnp.stack([jnp.max(x, initial=0.0) for x in entries]))
    x = jnp.concatenate([jnp.zeros((1,), arrays[0].dtype), *entries])
    while x.size > 1:  # maxima of halves
        half = x.size // 2
        x = jnp.concatenate([jnp.maximum(x[:half], x[half : 2 * half]), x[2 * half :]])
    return x[0]
