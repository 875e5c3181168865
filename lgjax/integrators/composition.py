"""Symmetric compositions: higher order from a symmetric method by steps of different, some negative, sizes.

Source: Hairer, Lubich, Wanner, Geometric Numerical Integration, section II.4.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.integrators.field import Field
from lgjax.integrators.method import Method, order_of
from lgjax.numerics import checks

Array = jax.Array
Point = Any
MOST = 100_000  # steps of a composition


@dataclass(frozen=True)
class Composition(Method):
    """Composition of a symmetric method with steps w_1 h, w_2 h, ...; a hashable value and a `Method`.

    method   has `symmetric` True and an even order p, for instance SymplecticLie(1/2).
    weights  a palindrome with sum 1.  The sums of odd powers p+1, p+3, ... below the announced order must vanish; these
             conditions are necessary, and are checked.
    order    the even order of the composition.
    """

    method: Any
    weights: tuple[float, ...]
    order: int

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method) or not self.method.symmetric:
            raise ValueError(
                f"compositions raise the order of symmetric methods, {checks.shown(self.method)} is not one"
            )
        weights = tuple(checks.numbers("weights", self.weights, (np.size(self.weights),)).tolist())
        checks.integer("order", self.order)
        object.__setattr__(self, "weights", weights)
        if any(not math.isclose(a, b, rel_tol=1e-13) for a, b in zip(weights, reversed(weights))):
            raise ValueError(f"the weights must read the same from both ends, got {checks.entries(weights)}")
        for power in (1, *range(order_of(self.method) + 1, self.order, 2)):
            residual = math.fsum(w**power for w in weights) - (power == 1)
            if not abs(residual) <= 1e-12:
                raise ValueError(
                    f"the sum of weights to the power {power} is off by {residual:.3g}; the order is not {self.order}"
                )

    @property
    def symmetric(self) -> bool:
        """Whether a step of -h undoes a step of h."""
        return True

    def with_scanned_stages(self, scanned: bool = True) -> "Composition":
        """The same composition of the method with scanned stages."""
        return replace(self, method=self.method.with_scanned_stages(scanned))

    def init(self, space: HomogeneousSpace, field: Field, t: Array, y: Point) -> Any:
        """Carry of the composed method."""
        return self.method.init(space, field, t, y)

    def step(
        self, space: HomogeneousSpace, field: Field, t: Array, y: Point, h: Array, carry: Any
    ) -> tuple[Point, Any]:
        """The point after all steps, in one scan, so that the method is traced once."""

        def one(state: Any, weight: Any) -> Any:
            (y, carry), (w, c) = state, weight
            return self.method.step(space, field, t + c * h, y, w * h, carry), None

        starts = np.concatenate([[0.0], np.cumsum(self.weights)[:-1]])
        xs = tuple(jax.numpy.asarray(x, h.dtype) for x in (self.weights, starts))
        (y, carry), _ = jax.lax.scan(one, (y, carry), xs)
        return y, carry


def triple_jump(method: Any, order: int = 4) -> Composition:
    """Composition with three steps for each two orders gained, 3^k in all.

    Source: Yoshida, Phys. Lett. A 150 (1990).
    """
    return _raise_order(method, order, 1)


def suzuki(method: Any, order: int = 4) -> Composition:
    """Composition with five steps for each two orders gained, with far smaller errors.

    Source: Suzuki, Phys. Lett. A 146 (1990).
    """
    return _raise_order(method, order, 2)


def _raise_order(method: Any, order: int, pairs: int) -> Composition:
    if not isinstance(method, Method) or not method.symmetric:
        raise ValueError(f"compositions raise the order of symmetric methods, method is {checks.shown(method)}")
    start = order_of(method)
    order = checks.integer("order", order)
    if order % 2 or order <= start:
        raise ValueError(f"order must be even and above the method's {start}, got {order}")
    if (order - start) // 2 * math.log(2 * pairs + 1) > math.log(MOST):
        raise ValueError(f"order {order} would take {2 * pairs + 1}^{(order - start) // 2} steps of the method")
    weights = (1.0,)
    for p in range(start, order, 2):
        outer = 1.0 / (2 * pairs - (2 * pairs) ** (1.0 / (p + 1)))
        scales = (outer,) * pairs + (1.0 - 2 * pairs * outer,) + (outer,) * pairs
        weights = tuple(s * w for s in scales for w in weights)
    return Composition(method, weights, order)
