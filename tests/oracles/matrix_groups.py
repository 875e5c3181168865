"""Groups as matrices and series in extended precision: slow, obvious, and sharing nothing with the library."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import scipy.linalg

Matrix = np.ndarray


def skew(w: Matrix) -> Matrix:
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]], dtype=w.dtype)


def hat_se3(u: Matrix) -> Matrix:
    m = np.zeros((4, 4), u.dtype)
    m[:3, :3], m[:3, 3] = skew(u[:3]), u[3:]
    return m


def hat_r3_so3(u: Matrix) -> Matrix:
    m = np.zeros((7, 7), u.dtype)
    m[:3, :3], m[3:6, 6] = skew(u[:3]), u[3:]
    return m


def hat_rn(u: Matrix) -> Matrix:
    m = np.zeros((len(u) + 1, len(u) + 1), u.dtype)
    m[:-1, -1] = u
    return m


def left_quaternion(q: Matrix) -> Matrix:
    """The matrix of p -> q p."""
    w, x, y, z = q
    return np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]], dtype=q.dtype)


def hat_s3(u: Matrix) -> Matrix:
    return left_quaternion(np.concatenate([np.zeros(1, u.dtype), u / 2]))


def ad_matrix(hat: Callable[[Matrix], Matrix], u: Matrix) -> Matrix:
    """Matrix of ad_u in coordinates, from commutators of the matrices themselves."""
    n = len(u)
    basis = np.stack([hat(e).ravel() for e in np.eye(n, dtype=np.float64)], axis=1)
    columns = []
    for e in np.eye(n):
        bracket = hat(u.astype(np.float64)) @ hat(e) - hat(e) @ hat(u.astype(np.float64))
        columns.append(np.linalg.lstsq(basis, bracket.ravel(), rcond=None)[0])
    return np.stack(columns, axis=1)


def exp_matrix(m: Matrix) -> Matrix:
    return scipy.linalg.expm(m.astype(np.float64))


def _series(m: Matrix, shift: int) -> Matrix:
    """Σ m^k / (k + shift)!, shift 0 or 1, in extended precision."""
    m = m.astype(np.longdouble)
    term = np.eye(len(m), dtype=np.longdouble)
    total = term.copy()
    for k in range(1, 60):
        term = np.dot(term, m) / (k + shift)
        total = total + term
    return total.astype(np.float64)


def series_exp(m: Matrix) -> Matrix:
    """exp(m) for matrices whose norm is too large for `exp_matrix` to be right to the last digits."""
    return _series(m, 0)


def dexp_matrix(ad: Matrix) -> Matrix:
    """Σ ad^k / (k+1)!."""
    return _series(ad, 1)


def stumpff(k: int, s: float, derivative: int = 0) -> float:
    """Derivatives of Σ_j (-s)^j / (2j + k)! by exact rational summation."""
    x, total, j = Fraction(s), Fraction(0), derivative
    while True:
        term = Fraction((-1) ** j * math.perm(j, derivative), math.factorial(2 * j + k)) * x ** (j - derivative)
        total += term
        if abs(term) < Fraction(1, 10**30) and 2 * j > derivative + 20:
            return float(total)
        j += 1


@cache
def bernoulli(n: int) -> Fraction:
    """The Bernoulli number B_n, with B_1 = -1/2."""
    if n == 0:
        return Fraction(1)
    return -sum((math.comb(n + 1, k) * bernoulli(k) for k in range(n)), Fraction(0)) / (n + 1)


def cotc(s: float, derivative: int = 0) -> float:
    """Derivatives of (1 - (θ/2) cot(θ/2)) / θ² = Σ |B_2k| s^(k-1) / (2k)!, summed exactly, for s < 10."""
    x, terms = Fraction(s), range(derivative, 40)
    return float(
        sum(
            math.perm(j, derivative) * abs(bernoulli(2 * j + 2)) / math.factorial(2 * j + 2) * x ** (j - derivative)
            for j in terms
        )
    )
