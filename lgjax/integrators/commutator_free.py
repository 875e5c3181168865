"""Commutator-free and Crouch-Grossman methods: products of exponentials of combinations of frozen fields.

Source: [celledoni2021] section 2.2, eq. (9), and section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax

from lgjax.groups.homogeneous_space import HomogeneousSpace
from lgjax.integrators.field import Field, check_field, state_dtype
from lgjax.integrators.method import Method
from lgjax.integrators.munthe_kaas import _combination
from lgjax.numerics import checks

Array = jax.Array
Point = Any
Weights = tuple[float, ...]
Forest = tuple[Any, ...]

_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Flow:
    """Point reached from a stage by frozen fields: exp(Σ_k w_k h f_k) for each row w of `rows`, the first row first.

    start  the stage that the exponentials begin at; 0 is the point that the step starts from.
    """

    rows: tuple[Weights, ...] = ()
    start: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.rows, tuple | list):
            raise TypeError(f"rows must be a tuple of weights for each exponential, got {checks.shown(self.rows)}")
        rows = [checks.numbers("rows", row) for row in self.rows]
        if not all(row.ndim == 1 for row in rows):
            raise ValueError(f"rows must hold a tuple of weights for each exponential, got {checks.shown(self.rows)}")
        object.__setattr__(self, "rows", tuple(tuple(row.tolist()) for row in rows))
        object.__setattr__(self, "start", checks.integer("start", self.start, 0))


@cache
def ordered_forests(nodes: int) -> tuple[Forest, ...]:
    """All ordered forests of planar trees with that many nodes; a tree is the forest of its branches."""
    if nodes == 0:
        return ((),)
    return tuple(
        (*rest, branches)
        for inside in range(nodes)
        for rest in ordered_forests(nodes - 1 - inside)
        for branches in ordered_forests(inside)
    )


def _nodes(forest: Forest) -> int:
    return sum(1 + _nodes(tree) for tree in forest)


def exact_coefficient(forest: Forest) -> float:
    """Coefficient of a forest in the series of the exact flow for unit time.

    From d/dt g(y(t)) = (f(y(t)) g)(y(t)): the last tree's root is the field that acts last.
    """
    if not forest:
        return 1.0
    *rest, branches = forest
    return exact_coefficient(tuple(rest)) * exact_coefficient(branches) / _nodes(forest)


@dataclass(frozen=True)
class CommutatorFreeTable:
    """Flows of a commutator-free method.

    stages  the points Y_k at which the field is evaluated, the first of them Flow().
    update  the new point;  order   its order, checked by all ordered-forest conditions up to it.
    embedded, order_hat     another new point for error control, and its order.
    """

    stages: tuple[Flow, ...]
    update: Flow
    order: int
    embedded: Flow | None = None
    order_hat: int | None = None
    name: str = "table"

    def __post_init__(self) -> None:
        checks.of_kind("name", self.name, str)
        checks.of_kind("stages", self.stages, tuple)
        given = {
            "stages": self.stages,
            "update": (self.update,),
            "embedded": () if self.embedded is None else (self.embedded,),
        }
        for label, flows in given.items():
            for flow in flows:
                checks.of_kind(label, flow, Flow)
        if not self.stages or self.stages[0] != Flow():
            raise ValueError(f"{self.name}: the first stage must be Flow(), the point the step starts from")
        for i, flow in enumerate((*self.stages, self.update)):
            self._check_explicit(i, flow)
        self._check_order(self.update, self.order, self.name)
        if self.embedded is not None:
            if self.order_hat is None:
                raise ValueError(f"{self.name}: an embedded flow needs an order_hat")
            self._check_explicit(len(self.stages), self.embedded)
            self._check_order(self.embedded, self.order_hat, f"{self.name} (embedded)")

    def _check_explicit(self, i: int, flow: Flow) -> None:
        if not 0 <= flow.start < max(i, 1) or any(len(row) > i for row in flow.rows):
            raise ValueError(f"{self.name}: flow {i} uses stages that are not yet known: {flow}")
        if not all(math.isfinite(w) for row in flow.rows for w in row):
            raise ValueError(f"{self.name}: every coefficient must be finite")

    def rows(self, flow: Flow) -> tuple[Weights, ...]:
        """All exponentials of a flow, those of the stage it starts from included."""
        return flow.rows if flow.start == 0 else self.rows(self.stages[flow.start]) + flow.rows

    def node(self, i: int) -> float:
        """The time c_i of stage i in units of h."""
        return math.fsum(w for row in self.rows(self.stages[i]) for w in row)

    def coefficient(self, flow: Flow, forest: Forest) -> float:
        """Coefficient of a forest in the series of a flow.

        A frozen exponential spreads the trees over its exponent, 1/n! for n of them, and products of exponentials cut
        the forest into consecutive pieces.  Source: ordered forests as in Owren, J. Phys. A 39 (2006).
        """

        def tree_weight(row: Weights, branches: Forest) -> float:
            return math.fsum(w * self.coefficient(self.stages[k], branches) for k, w in enumerate(row) if w != 0.0)

        # totals[n]: the coefficient of the first n trees after the exponentials so far.
        totals = [1.0] + [0.0] * len(forest)
        for row in self.rows(flow):
            weights = [tree_weight(row, tree) for tree in forest]
            totals = [
                math.fsum(totals[m] * math.prod(weights[m:n]) / math.factorial(n - m) for m in range(n + 1))
                for n in range(len(forest) + 1)
            ]
        return totals[-1]

    def _check_order(self, flow: Flow, order: int, what: str) -> None:
        checks.integer(f"{what}: the order", order)
        for nodes in range(1, order + 1):
            for forest in ordered_forests(nodes):
                residual = self.coefficient(flow, forest) - exact_coefficient(forest)
                if not abs(residual) <= _TOLERANCE:
                    raise ValueError(
                        f"{what}: the condition of order {nodes} for the forest {forest} is off by {residual:.3g}, "
                        f"so the order is not {order}"
                    )

    def __repr__(self) -> str:
        return self.name


def commutator_free_step(
    space: HomogeneousSpace, field: Field, t: Array, y: Point, h: Array, table: CommutatorFreeTable
) -> tuple[Point, Point | None]:
    """One step of size h: the new point and, if the table has one, that of the embedded method."""
    dtype = state_dtype(y)
    points: list[Point] = []
    increments: list[Any] = []

    def follow(flow: Flow) -> Point:
        point = points[flow.start] if points else y
        for row in flow.rows:
            xi = _combination(row, increments)
            point = point if xi is None else space.move(xi, point)
        return point

    used = {k for flow in (*table.stages, table.update, table.embedded or Flow()) for k in _used(flow)}
    for k, stage in enumerate(table.stages):
        points.append(follow(stage))
        if k in used:
            xi = field(t + table.node(k) * h, points[k])
            increments.append(jax.tree.map(lambda x: h * jax.lax.convert_element_type(x, dtype), xi))
        else:
            increments.append(None)
    return follow(table.update), None if table.embedded is None else follow(table.embedded)


def _used(flow: Flow) -> set[int]:
    return {k for row in flow.rows for k, w in enumerate(row) if w != 0.0}


@dataclass(frozen=True)
class CommutatorFree(Method):
    """Commutator-free method, a hashable value; a `Method` like `MuntheKaas`.

    Needs only `move` of the space, so it also runs on frames without a group; `move` must follow the flow of a
    constant field, that is, be made of exp and not of another map.  Source: [celledoni2021] section 2.2.
    """

    table: CommutatorFreeTable

    def __post_init__(self) -> None:
        if not isinstance(self.table, CommutatorFreeTable):
            raise TypeError(f"CommutatorFree takes a CommutatorFreeTable, got {checks.shown(self.table)}")

    @property
    def order(self) -> int:
        """Order of convergence."""
        return self.table.order

    @property
    def order_hat(self) -> int | None:
        """Order of the embedded method."""
        return self.table.order_hat

    def init(self, space: HomogeneousSpace, field: Field, t: Array, y: Point) -> tuple[()]:
        """Check field and state against the space; nothing is carried from step to step."""
        if space.chart != "exp":
            raise ValueError(f"commutator-free methods need the exponential, {space.name} uses {space.chart}")
        check_field(space, field, t, y)
        return ()

    def step(
        self, space: HomogeneousSpace, field: Field, t: Array, y: Point, h: Array, carry: tuple[()]
    ) -> tuple[Point, tuple[()]]:
        """The point after one step of size h."""
        return commutator_free_step(space, field, t, y, h, _without_embedded(self.table))[0], carry

    def embedded_step(
        self, space: HomogeneousSpace, field: Field, t: Array, y: Point, h: Array, carry: tuple[()]
    ) -> tuple[Point, Point, tuple[()]]:
        """The point after one step and that of the embedded method, whose distance estimates the error."""
        if self.table.embedded is None:
            raise ValueError(f"{self.table.name} has no embedded method")
        y1, y_hat = commutator_free_step(space, field, t, y, h, self.table)
        return y1, y_hat, carry


@cache
def _without_embedded(table: CommutatorFreeTable) -> CommutatorFreeTable:
    return replace(table, embedded=None, order_hat=None)


def _table(name: str, order: int, stages: Any, update: Flow, embedded: Flow | None = None) -> CommutatorFreeTable:
    order_hat = None if embedded is None else order - 1
    return CommutatorFreeTable((Flow(), *stages), update, order, embedded, order_hat, name)


_one: Callable[..., Flow] = lambda *row: Flow((row,))

# Crouch and Grossman, J. Nonlinear Sci. 3 (1993): one stage per exponential.
CROUCH_GROSSMAN3 = _table(
    "CROUCH_GROSSMAN3",
    3,
    (_one(3 / 4), Flow(((119 / 216,), (0.0, 17 / 108)))),
    Flow(((13 / 51,), (0.0, -2 / 3), (0.0, 0.0, 24 / 17))),
)

# Source: [celledoni2021] section 4.2.1: the update begins at the second stage, or at the third.
_A_STAGES = (_one(1 / 3), _one(0.0, 2 / 3))
_A_UPDATE = Flow(((-1 / 12, 0.0, 3 / 4),), start=1)
CF3 = _table("CF3", 3, _A_STAGES, _A_UPDATE)
CF32_A = _table("CF32_A", 3, _A_STAGES, _A_UPDATE, _one(0.0, 1 / 2, 1 / 2))
CF32_B = _table(
    "CF32_B",
    3,
    (_one(2 / 3), _one(5 / 12, 1 / 4)),
    Flow(((-1 / 6, -1 / 2, 1.0),), start=2),
    _one(1 / 4, 0.0, 3 / 4),
)

# Source: [celledoni2021] eq. (9).
_4_STAGES = (_one(1 / 2), _one(0.0, 1 / 2), Flow(((-1 / 2, 0.0, 1.0),), start=1))
_4_UPDATE = Flow(((1 / 4, 1 / 6, 1 / 6, -1 / 12), (-1 / 12, 1 / 6, 1 / 6, 1 / 4)))
CF4 = _table("CF4", 4, _4_STAGES, _4_UPDATE)

# Source: [celledoni2021] eq. (34).
CF43 = _table(
    "CF43",
    4,
    (*_4_STAGES, _one(0.0, 3 / 4)),
    _4_UPDATE,
    Flow(((1 / 3,), (-1 / 9, 1 / 3, 0.0, 0.0, 4 / 9))),
)
