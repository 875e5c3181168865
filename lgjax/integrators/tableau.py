"""Runge-Kutta tableaux as values, checked against the order conditions when they are built."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from lgjax.numerics import checks

Row = tuple[float, ...]
Tree = tuple[Any, ...]

_TOLERANCE = 1e-10


@cache
def rooted_trees(order: int) -> tuple[Tree, ...]:
    """All rooted trees with `order` nodes; a tree is the sorted tuple of its subtrees, () a single node."""
    if order == 1:
        return ((),)
    return tuple(sorted({grown for tree in rooted_trees(order - 1) for grown in _with_one_more_leaf(tree)}))


def _with_one_more_leaf(tree: Tree) -> list[Tree]:
    grown: list[Tree] = [tuple(sorted((*tree, ())))]
    for i, child in enumerate(tree):
        grown += [tuple(sorted((*tree[:i], new, *tree[i + 1 :]))) for new in _with_one_more_leaf(child)]
    return grown


def _node_count(tree: Tree) -> int:
    return 1 + sum(_node_count(child) for child in tree)


def density(tree: Tree) -> int:
    """Integer γ of a tree, whose order condition is Σ_i b_i Φ_i = 1/γ."""
    return _node_count(tree) * math.prod(density(child) for child in tree)


def _stage_weights(tree: Tree, a: tuple[Row, ...]) -> list[float]:
    """Φ_i of each stage: the product over subtrees of Σ_j a_ij Φ_j."""
    weights = [1.0] * len(a)
    for child in tree:
        inner = _stage_weights(child, a)
        weights = [w * math.fsum(x * y for x, y in zip(row, inner)) for w, row in zip(weights, a)]
    return weights


def condition_name(tree: Tree) -> str:
    """The left side of a condition in words: c and A as in the tableau, * elementwise."""
    return f"b.({_weights_name(tree)})"


def _weights_name(tree: Tree) -> str:
    return "*".join("c" if child == () else f"A({_weights_name(child)})" for child in tree) or "1"


def check_order(a: tuple[Row, ...], b: Row, order: int, what: str) -> None:
    """Raise ValueError, naming the condition and its residual, unless a and b satisfy all conditions up to order."""
    for n in range(1, order + 1):
        for tree in rooted_trees(n):
            residual = math.fsum(x * w for x, w in zip(b, _stage_weights(tree, a))) - 1.0 / density(tree)
            if not abs(residual) <= _TOLERANCE:
                raise ValueError(
                    f"{what}: the condition {condition_name(tree)} = 1/{density(tree)} of order {n} "
                    f"is off by {residual:.3g}, so the order is not {order}"
                )


@dataclass(frozen=True)
class Tableau:
    """An explicit Runge-Kutta tableau.

    a         rows of stage weights; row i has i entries (longer rows are accepted if they end in zeros).
    b, c      weights and nodes, c_i = Σ_j a_ij.
    order     the order of b, checked by all rooted-tree conditions up to it.
    b_hat, order_hat    weights of an embedded method for error control, and their order.
    brackets  (row, coefficient, p, q) adds coefficient [k_p, k_q] to the exponent of stage `row` (from 0; row s is the
              update, s + 1 the embedded one).  A tableau with brackets corrects for the manifold itself and needs no
              dexpinv.
    """

    a: tuple[Row, ...]
    b: Row
    c: Row
    order: int
    b_hat: Row | None = None
    order_hat: int | None = None
    brackets: tuple[tuple[int, float, int, int], ...] = ()
    name: str = "tableau"

    def __post_init__(self) -> None:
        checks.of_kind("name", self.name, str)
        for label in ("b", "c", "b_hat"):
            if label != "b_hat" or self.b_hat is not None:
                object.__setattr__(self, label, self._row(label, getattr(self, label)))
        stages, rows = len(self.b), self.a if hasattr(self.a, "__len__") else self._row("a", self.a)
        for label, values in (("a", rows), ("c", self.c)):
            if len(values) != stages:
                raise ValueError(f"{self.name}: b has {stages} entries, {label} has {len(values)}")
        object.__setattr__(self, "a", tuple(self._explicit_row(i, row) for i, row in enumerate(self.a)))
        if not all(math.isfinite(x) for row in (*self.a, self.b, self.c) for x in row):
            raise ValueError(f"{self.name}: every coefficient must be finite")
        for i, (row, node) in enumerate(zip(self.a, self.c)):
            if abs(math.fsum(row) - node) > _TOLERANCE:
                raise ValueError(f"{self.name}: row {i} of a sums to {math.fsum(row)}, c[{i}] is {node}")
        checks.integer(f"{self.name}: the order", self.order)
        check_order(self.a, self.b, self.order, self.name)
        self._check_embedded()
        object.__setattr__(self, "brackets", tuple(map(tuple, self.brackets)))
        for row, coefficient, p, q in self.brackets:
            checks.number(f"{self.name}: the coefficient of bracket [k_{p}, k_{q}]", coefficient)
            last = stages if self.b_hat is None else stages + 1
            if not (0 < row <= last and min(p, q) >= 0 and max(p, q) < min(row, stages)):
                raise ValueError(f"{self.name}: bracket [k_{p}, k_{q}] in row {row} is not explicit")

    @property
    def update_brackets(self) -> tuple[tuple[int, int], ...]:
        """The pairs (p, q) of the brackets of the update and of the embedded one, each once."""
        return tuple(dict.fromkeys((p, q) for row, _, p, q in self.brackets if row >= self.stages))

    def bracket_weight(self, row: int, pair: tuple[int, int]) -> float:
        """Coefficient of [k_p, k_q] in a row."""
        return math.fsum(weight for at, weight, *indices in self.brackets if (at, tuple(indices)) == (row, pair))

    @property
    def chained(self) -> bool:
        """Whether each stage uses the increment of the one before alone."""
        return not self.brackets and not any(x for row in self.a for x in row[:-1])

    def _row(self, label: str, values: Any) -> Row:
        """The values as floats; TypeError for what are no numbers."""
        try:
            return tuple(map(float, (values,) if isinstance(values, str) else values))
        except (TypeError, ValueError):
            raise TypeError(f"{self.name}: {label} must be a row of numbers, got {checks.shown(values)}") from None

    def _explicit_row(self, i: int, row: Row) -> Row:
        row = self._row(f"row {i} of a", row)
        if len(row) < i or any(x != 0 for x in row[i:]):
            raise ValueError(f"{self.name}: row {i} of a is {row}; an explicit method has {i} entries there")
        return row[:i]

    def _check_embedded(self) -> None:
        if self.b_hat is None:
            return
        if len(self.b_hat) != len(self.b) or self.order_hat is None:
            raise ValueError(f"{self.name}: b_hat needs {len(self.b)} entries and an order_hat")
        checks.integer(f"{self.name}: order_hat", self.order_hat)
        check_order(self.a, self.b_hat, self.order_hat, f"{self.name} (embedded)")

    @property
    def stages(self) -> int:
        """Number of evaluations of the field per step."""
        return len(self.b)

    def __repr__(self) -> str:
        return self.name


LIE_EULER = Tableau(a=((),), b=(1.0,), c=(0.0,), order=1, name="LIE_EULER")

HEUN2 = Tableau(a=((), (1.0,)), b=(1 / 2, 1 / 2), c=(0.0, 1.0), order=2, name="HEUN2")

# Kutta's third-order method.
RK3 = Tableau(a=((), (1 / 2,), (-1.0, 2.0)), b=(1 / 6, 2 / 3, 1 / 6), c=(0.0, 1 / 2, 1.0), order=3, name="RK3")

_RK4_A = ((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0))
_RK4_B = (1 / 6, 1 / 3, 1 / 3, 1 / 6)
_RK4_C = (0.0, 1 / 2, 1 / 2, 1.0)

RK4 = Tableau(a=_RK4_A, b=_RK4_B, c=_RK4_C, order=4, name="RK4")

# Source: [celledoni2021] section 2.2: two commutators in all, where RK4 with a truncated series needs six.
RK4_TWO_COMMUTATORS = Tableau(
    a=_RK4_A,
    b=_RK4_B,
    c=_RK4_C,
    order=4,
    brackets=((2, -1 / 8, 0, 1), (4, -1 / 12, 0, 3)),
    name="RK4_TWO_COMMUTATORS",
)

# Bogacki and Shampine, Appl. Math. Lett. 2 (1989).
BOGACKI_SHAMPINE32 = Tableau(
    a=((), (1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    b=(2 / 9, 1 / 3, 4 / 9, 0.0),
    c=(0.0, 1 / 2, 3 / 4, 1.0),
    order=3,
    b_hat=(7 / 24, 1 / 4, 1 / 3, 1 / 8),
    order_hat=2,
    name="BOGACKI_SHAMPINE32",
)

# The same for the manifold with one commutator, which the update and the embedded one share.  The exponent's own
# bracket is -[F_0, F_1] h³ / 12 with F_0 + t F_1 the field along the motion, and [k_0, k_1] is [F_0, F_1] h³ / 2.
BOGACKI_SHAMPINE32_ONE_COMMUTATOR = Tableau(
    a=BOGACKI_SHAMPINE32.a,
    b=BOGACKI_SHAMPINE32.b,
    c=BOGACKI_SHAMPINE32.c,
    order=3,
    b_hat=BOGACKI_SHAMPINE32.b_hat,
    order_hat=2,
    brackets=((4, -1 / 6, 0, 1), (5, -1 / 6, 0, 1)),
    name="BOGACKI_SHAMPINE32_ONE_COMMUTATOR",
)

# Dormand and Prince, J. Comput. Appl. Math. 6 (1980).
DORMAND_PRINCE54 = Tableau(
    a=(
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    b=(35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
    c=(0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    order=5,
    b_hat=(5179 / 57600, 0.0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40),
    order_hat=4,
    name="DORMAND_PRINCE54",
)

# Butcher's sixth-order method with seven stages, J. Austral. Math. Soc. 4 (1964).
RK6 = Tableau(
    a=(
        (),
        (1 / 3,),
        (0.0, 2 / 3),
        (1 / 12, 1 / 3, -1 / 12),
        (-1 / 16, 9 / 8, -3 / 16, -3 / 8),
        (0.0, 9 / 8, -3 / 8, -3 / 4, 1 / 2),
        (9 / 44, -9 / 11, 63 / 44, 18 / 11, 0.0, -16 / 11),
    ),
    b=(11 / 120, 0.0, 27 / 40, 27 / 40, -4 / 15, -4 / 15, 11 / 120),
    c=(0.0, 1 / 3, 2 / 3, 1 / 3, 1 / 2, 1 / 2, 1.0),
    order=6,
    name="RK6",
)
