"""Motions in closed form by mpmath: free rigid bodies, the plane pendulum.  No code is shared with the library."""

from collections.abc import Sequence
from typing import Any

from benchmarks.suite.reference import mp, vector

Matrix = Any


def turn(axis: int, angle: Any) -> Matrix:
    """The rotation about a coordinate axis."""
    m = mp()
    c, s, r = m.cos(angle), m.sin(angle), m.eye(3)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    r[i, i], r[i, j], r[j, i], r[j, j] = c, -s, s, c
    return r


def about(vector: Sequence[Any], angle: Any) -> Matrix:
    """The rotation about a vector of any length, by Rodrigues' formula."""
    m = mp()
    n = m.sqrt(sum(x * x for x in vector))
    x, y, z = (v / n for v in vector)
    k = m.matrix([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return m.eye(3) + m.sin(angle) * k + (1 - m.cos(angle)) * (k * k)


def symmetric_body(inertia: Sequence[Any], omega: Sequence[Any], time: Any) -> tuple[Matrix, list[Any]]:
    """Attitude and body rates of a free body with J1 = J2: exp(t L / J1) exp(t (1 - J3 / J1) ω3 e3)."""
    m = mp()
    j, w, t = vector(inertia), vector(omega), m.mpf(repr(time))
    momentum = j * w
    slip = (1 - j[2] / j[0]) * w[2]
    size = m.sqrt(sum(x * x for x in momentum))
    attitude = about(momentum, t * size / j[0]) * turn(2, t * slip)
    c, s = m.cos(slip * t), m.sin(slip * t)
    return attitude, [c * w[0] + s * w[1], -s * w[0] + c * w[1], w[2]]


def _rates(inertia: Any, omega: Any) -> Any:
    """ω(t) by Jacobi's elliptic functions, J1 < J2 < J3."""
    m = mp()
    (j1, j2, j3), (w1, w2, w3) = inertia, omega
    energy = j1 * w1**2 + j2 * w2**2 + j3 * w3**2  # twice
    square = (j1 * w1) ** 2 + (j2 * w2) ** 2 + (j3 * w3) ** 2
    low, high = square - energy * j1, energy * j3 - square
    a1, a3 = m.sqrt(high / (j1 * (j3 - j1))), m.sqrt(low / (j3 * (j3 - j1)))
    if square > energy * j2:  # it turns about the third axis
        a2, rate = m.sqrt(high / (j2 * (j3 - j2))), m.sqrt((j3 - j2) * low / (j1 * j2 * j3))
        k, side = (j2 - j1) * high / ((j3 - j2) * low), m.sign(w3)
        start = m.ellipf(m.atan2(w2 / a2, w1 / a1), k)
        names, sizes = ("cn", "sn", "dn"), (a1, a2, side * a3)
    else:
        a2, rate = m.sqrt(low / (j2 * (j2 - j1))), m.sqrt((j2 - j1) * high / (j1 * j2 * j3))
        k, side = (j3 - j2) * low / ((j2 - j1) * high), m.sign(w1)
        start = m.ellipf(m.atan2(w2 / a2, w3 / a3), k)
        names, sizes = ("dn", "sn", "cn"), (side * a1, a2, a3)

    def at(t: Any) -> list[Any]:
        u = side * rate * t + start
        return [a * m.ellipfun(name, u, m=k) for name, a in zip(names, sizes, strict=True)]

    return at


def asymmetric_body(inertia: Sequence[Any], omega: Sequence[Any], time: Any) -> tuple[Matrix, list[Any]]:
    """Attitude and body rates of a free body with J1 < J2 < J3 that starts from the identity.

    In axes with z along the momentum the attitude is Rz(φ) Rx(θ) Rz(ψ); θ and ψ follow from the momentum in the body,
    and φ is the integral of |L| (J1 ω1² + J2 ω2²) / (L1² + L2²).
    """
    m = mp()
    j, w0, t = vector(inertia), vector(omega), m.mpf(repr(time))
    rates = _rates(j, w0)
    size = m.sqrt(sum(x * x for x in j * w0))

    def momentum(s: Any) -> Any:
        return j * rates(s)

    def precession(s: Any) -> Any:
        p = momentum(s)
        across = p[0] ** 2 + p[1] ** 2
        return size * (p[0] ** 2 / j[0] + p[1] ** 2 / j[1]) / across

    def nutation(s: Any) -> Matrix:
        p = momentum(s)
        return turn(0, m.acos(p[2] / size)) * turn(2, m.atan2(p[0], p[1]))

    parts = 4 * (1 + int(abs(t) * max(abs(x) for x in w0)))
    phi = m.quad(precession, m.linspace(0, t, parts + 1))
    return nutation(m.mpf(0)).T * turn(2, phi) * nutation(t), rates(t)


def pendulum(angle: Any, rate: Any, stiffness: Any, time: Any) -> list[Any]:
    """Angle from the lowest point and its rate, of θ'' = -stiffness sin θ, for rate >= 0."""
    m = mp()
    a, w, k, t = vector([angle, rate, stiffness, time])
    root, s = m.sqrt(k), m.sin(a / 2)
    size = w * w / (4 * k) + s * s
    if size < 1:  # it swings
        phi = m.asin(min(m.mpf(1), max(m.mpf(-1), s / m.sqrt(size))))
        u = root * t + m.ellipf(phi, size)
        sn, cn = (m.ellipfun(name, u, m=size) for name in ("sn", "cn"))
        return [2 * m.asin(m.sqrt(size) * sn), 2 * root * m.sqrt(size) * cn]
    inner = 1 / size
    u = root * m.sqrt(size) * t + m.ellipf(a / 2, inner)
    period, dn = 2 * m.ellipk(inner), m.ellipfun("dn", u, m=inner)
    turns = m.nint(u / period)  # am(u) = turns π + am(u - turns period)
    sn = m.ellipfun("sn", u - turns * period, m=inner)
    return [2 * (turns * m.pi + m.asin(sn)), 2 * root * m.sqrt(size) * dn]
