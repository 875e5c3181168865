"""Taylor series integration on homogeneous spaces: the whole step from derivatives at its start.

The solution is written y(t + s) = move(Omega(s), y(t)) with a polynomial Omega in the algebra, so every point of the
step lies on the space. Omega' = dexpinv(Omega, xi) gives its coefficients from those of the field along the solution,
xi(s), by one row of brackets per order. Sources: [ali2026] for the derivatives of mechanisms; Magnus's series.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.integrators.control import largest, tolerances
from lgjax.integrators.field import check_field
from lgjax.integrators.method import Method
from lgjax.integrators.munthe_kaas import dexpinv_coefficients
from lgjax.numerics import checks
from lgjax.numerics.small_angle import norm

# Steps by the last two coefficients are at most some ten times as long as by those before, unless they are left out.
LEFT_OUT = 30.0

Array = jax.Array
Point = Any
Series = Callable[[Array, Point, int], Any]


@dataclass(frozen=True)
class Taylor(Method):
    """Taylor method of any order, for `integrate` and `integrate_adaptive`.

    Instead of a field it takes series(t, y, order): the Taylor coefficients, in the time since t, of the field along
    its own solution from (t, y), every leaf with a leading axis of length `order`. `motion_series` makes it for a
    mechanism.

    With error control a step is as long as its last two coefficients allow, or from order 5 on the last ones that are
    not left out of the series, and none is rejected; `substeps` is the
    number of parts that are searched for an event. Derivatives are those of the polynomials: where the state hardly
    moves, steps are long, and only a fixed step of `integrate` bounds the error of a gradient.
    """

    order: int
    substeps: int = 16

    def __post_init__(self) -> None:
        checks.integer("order", self.order)
        checks.integer("substeps", self.substeps)

    @property
    def needs_series(self) -> bool:
        """Whether it takes the Taylor coefficients of the field."""
        return True

    def init(self, space: HomogeneousSpace, field: Series, t: Array, y: Point) -> None:
        """Check the series; nothing is carried from step to step."""
        if space.chart != "exp":
            raise ValueError(f"Taylor follows the flow of exp, {space.name} is moved by {space.chart}")
        check_field(space, lambda t, y: self.rate(field, t, y), t, y)

    def rate(self, series: Series, t: Array, y: Point) -> Any:
        """The field at (t, y)."""
        return jax.tree.map(lambda x: x[0], self._field(series, t, y))

    def _field(self, series: Series, t: Array, y: Point) -> Any:
        xi = series(t, y, self.order)
        for shape in map(jnp.shape, jax.tree.leaves(xi)):
            if not shape or shape[0] != self.order:
                raise ValueError(f"series(t, y, {self.order}) needs {self.order} rows, got a leaf of shape {shape}")
        return xi

    def expand(self, space: HomogeneousSpace, series: Series, t: Array, y: Point) -> Any:
        """Coefficients 1 ... order of Omega, every leaf with that leading axis."""
        return algebra_series(space, self._field(series, t, y))

    def advance(self, space: HomogeneousSpace, expansion: Any, y: Point, s: Array) -> Point:
        """The point at time s after the start of the step."""
        return space.move(jax.tree.map(lambda x: _polynomial(x, s), expansion), y)

    def step_size(
        self, space: HomogeneousSpace, expansion: Any, start: Point, y: Point, rtol: Array, atol: Array
    ) -> Array:
        """0.9 (tolerance / |Omega_k|)^(1/k), the least of the last two orders k and of the parts of y.

        Of the two orders before, if both of these are left out of the series, as every second pair is where a pendulum
        is released from rest: then they say nothing of the next ones.
        """

        def size(k: int) -> Array:
            own = jax.tree.map(lambda x: x[k - 1], expansion)
            ratio = coefficient_ratio(space, own, start, y, rtol, atol)
            tiny = jnp.finfo(ratio.dtype).tiny
            return jnp.where(ratio < tiny, tiny, ratio) ** (-1.0 / k)  # NaN stays

        sizes = [size(k) for k in range(max(1, self.order - 3, self.order // 2 + 1), self.order + 1)]
        last = jnp.min(jnp.stack(sizes[-2:]))
        if len(sizes) > 2:
            before = jnp.min(jnp.stack(sizes[:-2]))
            last = jnp.where(last > LEFT_OUT * before, before, last)
        return 0.9 * last

    def step(self, space: HomogeneousSpace, field: Series, t: Array, y: Point, h: Array, carry: None):
        return self.advance(space, self.expand(space, field, t, y), y, h), None


def coefficient_ratio(space: HomogeneousSpace, xi: Any, start: Point, y: Point, rtol: Array, atol: Array) -> Array:
    """Largest over the parts of y of the rate at which xi changes them / tolerance; see `error_ratio`.

    A space without parts is judged by |xi|.
    """
    if space.factors:
        factors = zip(space.factors, xi, start, y, strict=True)
        return largest([coefficient_ratio(*factor, rtol, atol) for factor in factors])
    parts = space.parts
    if parts is None:
        rates = (jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(xi)]),)
    else:
        along = lambda s: parts(space.move(jax.tree.map(lambda x: s * x, xi), y), start)
        rates = jax.jvp(along, (jnp.zeros_like(rtol),), (jnp.ones_like(rtol),))[1]
    allowed = tolerances(space, start, y, rtol, atol)
    return largest([norm(rate) / limit for rate, limit in zip(rates, allowed, strict=True)])


def algebra_series(space: HomogeneousSpace, xi: Any) -> Any:
    """Coefficients 1 ... n of Omega with Omega' = dexpinv(Omega, xi), Omega(0) = 0, from coefficients 0 ... n-1 of xi.

    Row k of A_j = ad_Omega A_(j-1), A_0 = xi, needs only earlier rows, so all j of a row are one batched bracket.
    """
    order = jax.tree.leaves(xi)[0].shape[0]
    weights = dexpinv_coefficients(order)
    brackets = jax.vmap(jax.vmap(space.bracket), (None, 0))
    powers = [_rows(xi, 0)]  # powers[k]: coefficient k of A_0 ... A_k, one row each
    omega = [_weighted(weights, powers[0])]
    for k in range(1, order):
        # A_j[k] is the sum over i of [Omega_i, A_(j-1)[k - i]]
        left = jax.tree.map(lambda *x: jnp.stack(x), *omega)
        right = jax.tree.map(lambda *x: jnp.stack(x, 1), *(_padded(powers[k - i], k) for i in range(1, k + 1)))
        sums = jax.tree.map(lambda x: jnp.sum(x, 1), brackets(left, right))
        powers.append(jax.tree.map(lambda a, b: jnp.concatenate([a, b]), _rows(xi, k), sums))
        omega.append(jax.tree.map(lambda x, n=k + 1: x / n, _weighted(weights, powers[k])))
    return jax.tree.map(lambda *x: jnp.stack(x), *omega)


def _rows(xi: Any, k: int) -> Any:
    return jax.tree.map(lambda x: x[k : k + 1], xi)


def _padded(powers: Any, rows: int) -> Any:
    """The first `rows` rows, zeros behind the last."""
    return jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros((rows, *x.shape[1:]), x.dtype)])[:rows], powers)


def _weighted(weights: tuple[float, ...], rows: Any) -> Any:
    """Sum of the rows times their weights; rows beyond the last weight count nothing."""
    return jax.tree.map(lambda x: sum((w * row for w, row in zip(weights[1:], x[1:]) if w), start=x[0]), rows)


def _polynomial(coefficients: Array, s: Array) -> Array:
    """Sum of coefficients[k] s^(k + 1), by Horner's rule."""
    total = coefficients[-1]
    for k in reversed(range(coefficients.shape[0] - 1)):
        total = coefficients[k] + s * total
    return s * total
