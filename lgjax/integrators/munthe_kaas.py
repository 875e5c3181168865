"""Runge-Kutta-Munthe-Kaas methods: a classical Runge-Kutta method for the exponent of the motion.

With y(t) = exp(σ(t)) y_n the exponent obeys σ' = dexpinv_σ(f(t, exp(σ) y_n)), σ(t_n) = 0, a linear space's equation.
Source: [celledoni2021] section 2.2, eqs. (6)-(8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.integrators.field import Field, check_field, state_dtype
from lgjax.integrators.method import Method
from lgjax.integrators.tableau import Tableau
from lgjax.numerics import checks

Array = jax.Array
Algebra = Any
Point = Any

ERRORS = ("space", "algebra")
MANY = 7  # stages; more of them, one after the other, compile for more than a minute where the field is a tree


@cache
def dexpinv_coefficients(commutators: int) -> tuple[float, ...]:
    """B_j / j! for j = 0 .. commutators, the series of z / (e^z - 1), trailing zeros left out."""
    bernoulli: list[Fraction] = []
    for n in range(commutators + 1):
        tail = sum((math.comb(n + 1, k) * bernoulli[k] for k in range(n)), Fraction(0))
        bernoulli.append(Fraction(1) if n == 0 else -tail / (n + 1))
    while bernoulli[-1] == 0:
        bernoulli.pop()
    return tuple(float(value / math.factorial(j)) for j, value in enumerate(bernoulli))


def truncated_dexpinv(space: HomogeneousSpace, sigma: Algebra, xi: Algebra, commutators: int) -> Algebra:
    """The series of dexpinv(sigma, xi) up to nested brackets of depth `commutators`.

    Source: [celledoni2021] eq. (8).
    """
    coefficients = dexpinv_coefficients(commutators)
    terms = [xi]
    for _ in coefficients[1:]:
        terms.append(space.bracket(sigma, terms[-1]))
    total = _combination(coefficients, terms)
    assert total is not None  # the first coefficient is 1
    return total


def _combination(weights: tuple[float, ...], elements: list[Algebra]) -> Algebra | None:
    """Σ weight element over the nonzero weights, None if there are none."""
    total = None
    for weight, element in zip(weights, elements):
        if weight != 0.0:
            total = _add(total, element if weight == 1.0 else jax.tree.map(lambda x, w=weight: w * x, element))
    return total


def _add(total: Algebra | None, term: Algebra | None) -> Algebra | None:
    if total is None or term is None:
        return term if total is None else total
    return jax.tree.map(jnp.add, total, term)


def munthe_kaas_exponents(
    space: HomogeneousSpace,
    field: Field,
    t: Array,
    y: Point,
    h: Array,
    tableau: Tableau,
    commutators: int | None = None,
    scan_stages: bool = False,
) -> tuple[Algebra, Algebra | None]:
    """The exponents of one step of size h from (t, y) and, if the tableau has b_hat, of its embedded method.

    commutators None takes the space's exact dexpinv, k its series up to k nested brackets.  scan_stages=True traces the
    field once, in a `lax.scan` over the stages: compile time then does not grow with their number.  Same numbers.
    """
    dtype = state_dtype(y)

    def increment(c: Any, point: Point) -> Algebra:
        """h f at node c; the conversion takes weak types away from fields that return constants."""
        return jax.tree.map(lambda x: h * jax.lax.convert_element_type(x, dtype), field(t + c * h, point))

    def pull_back(sigma: Algebra, xi: Algebra) -> Algebra:
        if tableau.brackets:
            return xi
        if commutators is None:
            return space.dexpinv(sigma, xi)
        return truncated_dexpinv(space, sigma, xi, commutators)

    loop = _scanned_stages if scan_stages else _unrolled_stages
    return loop(space, tableau, y, increment, pull_back)


def _bracket_terms(space: HomogeneousSpace, tableau: Tableau, row: int, increments: list[Algebra]) -> Algebra | None:
    """Σ coefficient [k_p, k_q] over the tableau's brackets for one row."""
    mine = [(weight, p, q) for at, weight, p, q in tableau.brackets if at == row]
    return _combination(tuple(w for w, _, _ in mine), [space.bracket(increments[p], increments[q]) for _, p, q in mine])


def _unrolled_stages(space: HomogeneousSpace, tableau: Tableau, y: Point, increment: Any, pull_back: Any) -> Any:
    """The exponents of the update and of the embedded update, one stage after the other."""
    increments: list[Algebra] = []
    for i, (row, c) in enumerate(zip(tableau.a, tableau.c)):
        sigma = _add(_combination(row, increments), _bracket_terms(space, tableau, i, increments))
        if sigma is None:  # σ = 0, where dexpinv is the identity
            increments.append(increment(c, y))
        else:
            increments.append(pull_back(sigma, increment(c, space.move(sigma, y))))
    return _updates(space, tableau, increments)


def _updates(space: HomogeneousSpace, tableau: Tableau, increments: list[Algebra]) -> tuple[Any, Any]:
    """The exponents of the update and of the embedded one; brackets that both use are computed once."""
    shared = [space.bracket(increments[p], increments[q]) for p, q in tableau.update_brackets]
    found = [_combination(tableau.b, increments)]
    if tableau.b_hat is not None:
        found.append(_combination(tableau.b_hat, increments))
    for i, total in enumerate(found):
        weights = tuple(tableau.bracket_weight(tableau.stages + i, pair) for pair in tableau.update_brackets)
        found[i] = _add(total, _combination(weights, shared))
    return found[0], found[1] if len(found) > 1 else None


def _scanned_stages(space: HomogeneousSpace, tableau: Tableau, y: Point, increment: Any, pull_back: Any) -> Any:
    """The same as one scan.

    The carry holds the exponents of the rows still to come (stages, then b, then b_hat), the next one first.  A stage
    takes the first and adds its increment to all others, so nothing is indexed and reverse mode saves no buffers.
    """
    dtype, stages = state_dtype(y), tableau.stages
    if tableau.chained:
        return _chained_stages(space, tableau, y, increment, pull_back)
    extended = [*tableau.a, tableau.b, *([] if tableau.b_hat is None else [tableau.b_hat])]
    columns = np.zeros((stages, len(extended)))
    for r, row in enumerate(extended):
        for j, weight in enumerate(row):
            columns[j, r - j - 1] = weight
    # Bracket coefficients by stage; a bracket of increments not yet known meets the zeros of the buffer and a zero.
    brackets = [bracket for bracket in tableau.brackets if bracket[0] < stages]
    weights = np.zeros((stages, len(brackets)))
    for n, (row, weight, _, _) in enumerate(brackets):
        weights[row, n] = weight

    shape = jax.eval_shape(increment, jnp.zeros((), dtype), y)
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, dtype), shape)

    def body(carry: Any, xs: Any) -> Any:
        pending, history = carry
        c, column, bracket_weights, i = xs
        sigma, *later = pending
        for n, (_, _, p, q) in enumerate(brackets):
            kp, kq = (jax.tree.map(lambda x, at=at: x[at], history) for at in (p, q))
            term = jax.tree.map(lambda x, n=n: bracket_weights[n] * x, space.bracket(kp, kq))
            sigma = _add(sigma, term)
        k = pull_back(sigma, increment(c, space.move(sigma, y)))

        pending = tuple(
            jax.tree.map(lambda x, kx, weight=column[n]: x + weight * kx, element, k)
            for n, element in enumerate([*later, zero])
        )
        if tableau.brackets:
            history = jax.tree.map(lambda x, kx: x.at[i].set(kx), history, k)
        return (pending, history), None

    history = jax.tree.map(lambda x: jnp.stack([x] * stages), zero) if tableau.brackets else ()
    xs = (jnp.asarray(tableau.c, dtype), jnp.asarray(columns, dtype), jnp.asarray(weights, dtype), np.arange(stages))
    (pending, history), _ = jax.lax.scan(body, ((zero,) * len(extended), history), xs)
    if tableau.brackets:
        return _updates(space, tableau, [jax.tree.map(lambda x, at=at: x[at], history) for at in range(stages)])
    return pending[0], None if tableau.b_hat is None else pending[1]


def _chained_stages(space: HomogeneousSpace, tableau: Tableau, y: Point, increment: Any, pull_back: Any) -> Any:
    """The scan for tableaus whose rows use the increment before alone, such as RK4's.

    The carry holds the exponent of the next stage and the sums of the updates: a GPU keeps it in registers.
    """
    dtype = state_dtype(y)
    shape = jax.eval_shape(increment, jnp.zeros((), dtype), y)
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, dtype), shape)
    updates = [tableau.b, *([] if tableau.b_hat is None else [tableau.b_hat])]

    def body(carry: Any, xs: Any) -> Any:
        sigma, totals = carry
        c, following, weights = xs
        k = pull_back(sigma, increment(c, space.move(sigma, y)))
        added = [jax.tree.map(lambda x, kx, w=weights[n]: x + w * kx, x, k) for n, x in enumerate(totals)]
        return (jax.tree.map(lambda kx: following * kx, k), added), None

    following = [row[-1] for row in tableau.a[1:]] + [0.0]
    xs = (tableau.c, following, np.transpose(updates))
    start = (zero, [zero] * len(updates))
    (_, totals), _ = jax.lax.scan(body, start, tuple(jnp.asarray(x, dtype) for x in xs))
    return totals[0], totals[1] if len(totals) > 1 else None


@dataclass(frozen=True)
class MuntheKaas(Method):
    """Runge-Kutta-Munthe-Kaas method, a hashable value.

    tableau      an explicit `Tableau`.
    commutators  None: the exact dexpinv of the space; k: its series up to k nested brackets.
    scan_stages  True for fields that are expensive to compile: the field is traced once per step, not once per stage.
                 None: for tableaux of more than 7 stages.
    error        what `integrate_adaptive` takes as the error of a step: "space", the distance of the two points, part
                 by part, or "algebra", the length of the difference of their exponents, against atol + rtol times that
                 of the exponent.  Source: [celledoni2021] section 4.1.

    Like every method it offers ``init(space, field, t, y) -> carry``, which checks its inputs, and
    ``step(space, field, t, y, h, carry) -> (y, carry)``; here the carry is empty.  For error control there is
    ``embedded_step``, which returns (y, y_hat, carry).
    Source: [celledoni2021] section 2.2.
    """

    tableau: Tableau
    commutators: int | None = None
    scan_stages: bool | None = None
    error: str = "space"

    def __post_init__(self) -> None:
        checks.choice("error", self.error, ERRORS)
        if not isinstance(self.tableau, Tableau):
            raise TypeError(f"MuntheKaas takes a Tableau, got {checks.shown(self.tableau)}")
        checks.truths(scan_stages=self.scan_stages)
        if self.commutators is None:
            return
        object.__setattr__(self, "commutators", checks.integer("commutators", self.commutators, 0))
        if self.tableau.brackets:
            raise ValueError(f"{self.tableau.name} has its own commutators; leave commutators=None")

    @property
    def order(self) -> int:
        """Order of convergence: that of the tableau, or less if the series is truncated too early.

        The first bracket left out, of depth m, is O(h^(m+1)), one power more than its factors because the exponent
        starts parallel to the field; so the method keeps order m + 1.
        """
        if self.commutators is None:
            return self.tableau.order
        first_left_out = self.commutators + 1
        if first_left_out > 1 and first_left_out % 2 == 1:  # the odd Bernoulli numbers vanish
            first_left_out += 1
        return min(self.tableau.order, first_left_out + 1)

    @property
    def order_hat(self) -> int | None:
        """Order of the embedded method."""
        hat = self.tableau.order_hat
        return hat if hat is None else min(hat, self.order)

    @property
    def judges_exponents(self) -> bool:
        """Whether the error of a step is that of its exponent."""
        return self.error == "algebra"

    @property
    def _scanned(self) -> bool:
        return self.tableau.stages > MANY if self.scan_stages is None else self.scan_stages

    def with_scanned_stages(self, scanned: bool = True) -> MuntheKaas:
        """The same method with `scan_stages` as given."""
        return replace(self, scan_stages=scanned)

    def init(self, space: HomogeneousSpace, field: Field, t: Array, y: Point) -> tuple[()]:
        """Check field and state against the space; nothing is carried from step to step."""
        if (self.tableau.brackets or self.commutators is not None) and space.chart != "exp":
            raise ValueError(
                f"series of brackets belong to exp, {space.name} uses {space.chart}; use the exact dexpinv"
            )
        check_field(space, field, t, y)
        return ()

    def step(
        self, space: HomogeneousSpace, field: Field, t: Array, y: Point, h: Array, carry: tuple[()]
    ) -> tuple[Point, tuple[()]]:
        """The point after one step of size h."""
        return space.move(self._exponents(space, field, t, y, h)[0], y), carry

    def embedded_step(
        self, space: HomogeneousSpace, field: Field, t: Array, y: Point, h: Array, carry: tuple[()]
    ) -> tuple[Point, Point, tuple[()]]:
        """The point after one step and that of the embedded method, whose distance estimates the error."""
        sigma, sigma_hat = self.embedded_exponents(space, field, t, y, h)
        return space.move(sigma, y), space.move(sigma_hat, y), carry

    def embedded_exponents(
        self, space: HomogeneousSpace, field: Field, t: Array, y: Point, h: Array
    ) -> tuple[Algebra, Algebra]:
        """The exponents of one step and of the embedded method."""
        if self.tableau.b_hat is None:
            raise ValueError(f"{self.tableau.name} has no embedded method")
        return self._exponents(space, field, t, y, h)

    def _exponents(self, space: HomogeneousSpace, field: Field, t: Array, y: Point, h: Array) -> tuple[Any, Any]:
        return munthe_kaas_exponents(space, field, t, y, h, self.tableau, self.commutators, self._scanned)
