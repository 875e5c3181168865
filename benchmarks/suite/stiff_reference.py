"""Two implicit integrators for references of stiff problems; they share no code.  Read `reference.py` first.

`radau` collocates at Radau's nodes (order 2 x stages - 1) with mpmath's numbers; `linearly_implicit` extrapolates the
midpoint rule with a matrix (Bader and Deuflhard) in numpy.longdouble.  Both take the times of their steps.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.suite.reference import DIGITS, Rate, collocation, mp, vector


def graded(end: float, first: float, most: float, ratio: float = 1.3) -> list[str]:
    """Times from 0 to `end`, decimals: steps that grow from `first` to `most` by a ratio, through an initial layer."""
    times, h = [0.0], first
    while times[-1] + h < end:
        times.append(round(times[-1] + h, 12))
        h = min(most, ratio * h)
    return [repr(t) for t in [*times, end]]


@cache
def nodes_and_matrix(stages: int) -> tuple[np.ndarray, np.ndarray]:
    """Radau's nodes on (0, 1], the last of which is 1, and the matrix of their collocation method."""
    m = mp()
    polynomial = lambda x: m.legendre(stages, x) - m.legendre(stages - 1, x)
    whole = np.polynomial.legendre.Legendre([*[0] * (stages - 1), -1, 1])
    roots = sorted(float(x.real) for x in whole.roots())[:-1]
    nodes = [(1 + m.findroot(polynomial, m.mpf(x))) / 2 for x in roots] + [m.mpf(1)]
    row = collocation(nodes)
    return np.array(nodes), np.array([row(c) for c in nodes])


def slope(rate: Callable, t: Any, y: np.ndarray, small: Any) -> np.ndarray:
    """The derivative of rate(t, y) by y, by central differences."""
    columns = []
    for i in range(len(y)):
        up, down = y.copy(), y.copy()
        up[i], down[i] = up[i] + small, down[i] - small
        columns.append((np.array(rate(t, up)) - np.array(rate(t, down))) / (2 * small))
    return np.stack(columns, axis=1)


def radau(rate: Rate, y0: Sequence[Any], times: Sequence[str], stages: int = 8) -> np.ndarray:
    """The state at the last time; Newton's matrix is inverted in float64, its residuals are of full precision."""
    c, a = nodes_and_matrix(stages)
    m, n = mp(), len(y0)
    y, t = vector(y0), [m.mpf(x) for x in times]
    for start, end in pairwise(t):
        h = end - start
        jacobian = slope(rate, start, y, m.mpf("1e-12")).astype(float)
        inverse = np.linalg.inv(np.eye(n * stages) - float(h) * np.kron(a.astype(float), jacobian))
        k = np.array([rate(start, y)] * stages)
        before = np.inf
        for _ in range(100):
            wrong = np.array([rate(start + h * c[j], y + h * (a[j] @ k)) for j in range(stages)]) - k
            change = (inverse @ wrong.ravel().astype(float)).reshape(stages, n)
            k = k + np.array([[m.mpf(x) for x in row] for row in change])
            size, last = 10.0**-DIGITS * max(1.0, float(max(abs(x) for x in k.ravel()))), np.abs(change).max()
            # A stiff rate magnifies the round-off of the stages: then changes stay where they are.
            if last <= size or 0.5 * before < last <= 1e3 * size:
                break
            before = last
        else:
            raise ArithmeticError("the stages did not converge; take more steps")
        y = y + h * (a[-1] @ k)
    return y


def inverted(a: np.ndarray) -> np.ndarray:
    """The inverse in the numbers of a: float64's, and two steps of Newton's iteration."""
    x, eye = np.linalg.inv(a.astype(float)).astype(a.dtype), np.eye(len(a), dtype=a.dtype)
    for _ in range(2):
        x = x + x @ (eye - a @ x)
    return x


def linearly_implicit(rate: Rate, y0: Sequence[Any], times: Sequence[str], columns: int = 7) -> np.ndarray:
    """The state at the last time by the midpoint rule with a matrix, extrapolated in h² to order 2 x columns.

    For rates that do not depend on t, as the matrix has no derivative by it.
    """
    number = np.longdouble
    y, t = np.array([number(str(x)) for x in y0]), [number(x) for x in times]
    counts = [2 * (2 * k + 1) for k in range(columns)]
    eye = np.eye(len(y), dtype=number)
    field = lambda t, y: np.array(rate(t, y), number)
    for start, end in pairwise(t):
        table: list[Any] = []
        first, jacobian = field(start, y), slope(field, start, y, number("1e-6"))
        for k, n in enumerate(counts):
            h = (end - start) / n
            inverse = inverted(eye - h * jacobian)
            change = inverse @ (h * first)
            now = y + change
            for j in range(1, n):
                change = change + 2 * (inverse @ (h * field(start + j * h, now) - change))
                now = now + change
            row = [now + inverse @ (h * field(end, now) - change)]
            for j in range(1, k + 1):
                ratio = (number(counts[k]) / counts[k - j]) ** 2
                row.append(row[j - 1] + (row[j - 1] - table[k - 1][j - 1]) / (ratio - 1))
            table.append(row)
        y = table[-1][-1]
    return y
