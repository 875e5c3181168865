"""Two integrators for references, for numbers of any precision; they share no code with the library or each other.

`collocated` is implicit (Gauss-Legendre, order 2 x stages), `extrapolated` explicit (Gragg, Bulirsch and Stoer).  Both
take rate(t, y) -> list on lists of numbers, such as mpmath's.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

DIGITS = 30
Rate = Callable[[Any, Sequence[Any]], Sequence[Any]]


def mp() -> Any:
    """mpmath with DIGITS digits."""
    import mpmath

    mpmath.mp.dps = DIGITS + 4
    return mpmath.mp


def vector(values: Sequence[Any]) -> np.ndarray:
    """An array of mpmath's numbers; strings keep their decimals."""
    return np.array([mp().mpf(x if isinstance(x, str) else repr(x) if isinstance(x, float) else x) for x in values])


def collocation(nodes: Sequence[Any]) -> Callable[[Any], list]:
    """The integrals from 0 to c, a function of c, of the polynomials that are 1 at one node and 0 at the others."""
    n = len(nodes)
    powers = mp().matrix(n, n)
    for i, c in enumerate(nodes):
        for j in range(n):
            powers[i, j] = c**j
    inverse = powers**-1
    return lambda c: [sum(c ** (j + 1) / (j + 1) * inverse[j, k] for j in range(n)) for k in range(n)]


@cache
def gauss(stages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes on [0, 1], matrix and weights of the collocation method."""
    m = mp()
    nodes = []
    for start in np.polynomial.legendre.leggauss(stages)[0]:
        nodes.append((1 + m.findroot(lambda x: m.legendre(stages, x), m.mpf(float(start)))) / 2)
    row = collocation(nodes)
    return np.array(nodes), np.array([row(c) for c in nodes]), np.array(row(m.mpf(1)))


def collocated(rate: Rate, y0: Sequence[Any], end: Any, steps: int, stages: int = 12) -> np.ndarray:
    """The state at `end` by Gauss-Legendre collocation, its stages by fixed-point iteration."""
    c, a, b = gauss(stages)
    m = mp()
    y, h = vector(y0), m.mpf(repr(end)) / steps
    for i in range(steps):
        t = h * i
        k = np.array([rate(t, y)] * stages)
        for _ in range(200):
            before, k = k, np.array([rate(t + h * c[j], y + h * (a[j] @ k)) for j in range(stages)])
            change = max(abs(x) for x in (k - before).ravel())
            if change <= m.mpf(10) ** (-DIGITS) * max(abs(x) for x in k.ravel()):
                break
        else:
            raise ArithmeticError("the stages did not converge; take more steps")
        y = y + h * (b @ k)
    return y


def extrapolated(
    rate: Rate, y0: Sequence[Any], end: Any, steps: int, columns: int = 12, number: Any = None
) -> np.ndarray:
    """The state at `end` by the modified midpoint rule, extrapolated in h² to order 2 x columns.

    number: what to compute in, such as numpy.longdouble; by default mpmath's numbers.
    """
    number = number or mp().mpf
    y, step = np.array([number(str(x)) for x in y0]), number(repr(end)) / steps
    counts = [2 * (k + 1) for k in range(columns)]
    for i in range(steps):
        t, table = step * i, []
        start = np.array(rate(t, y))
        for k, n in enumerate(counts):
            h, old = step / n, y
            new = old + h * start
            for j in range(1, n):
                old, new = new, old + 2 * h * np.array(rate(t + j * h, new))
            end_rate = np.array(rate(t + step, new))
            row = [(old + new + h * end_rate) / 2]
            for j in range(1, k + 1):
                ratio = (number(counts[k]) / counts[k - j]) ** 2
                row.append(row[j - 1] + (row[j - 1] - table[k - 1][j - 1]) / (ratio - 1))
            table.append(row)
        y = table[-1][-1]
    return y


def solve(matrix: Sequence[Sequence[Any]], right: Sequence[Any]) -> list[Any]:
    """The solution of a linear system, by elimination with pivots."""
    rows = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    n = len(rows)
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        for i in range(k + 1, n):
            ratio = rows[i][k] / rows[k][k]
            if ratio:
                rows[i] = [0] * (k + 1) + [a - ratio * b for a, b in zip(rows[i][k + 1 :], rows[k][k + 1 :])]
    x = [rows[-1][-1] * 0] * n
    for k in reversed(range(n)):
        x[k] = (rows[k][-1] - sum(rows[k][j] * x[j] for j in range(k + 1, n))) / rows[k][k]
    return x
