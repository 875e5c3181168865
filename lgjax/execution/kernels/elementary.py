"""Trigonometric functions and exponentials as instructions.

Their errors, absolute and relative, in units of round-off are tested in `tests/execution/test_ptx.py`.

Read first: `writer.py`.
"""

from math import factorial, log, pi

from lgjax.execution.kernels.writer import Writer

# ---- sine and cosine
HALF_PI = {  # in parts of the precision of each dtype: what a multiply-add leaves of an angle is exact
    "f32": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "f64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
ROUND = {"f32": 1.5 * 2.0**23, "f64": 1.5 * 2.0**52}  # x + ROUND has the nearest whole number in its last bits
# sin x = x + x^3 p(x^2) and cos x = 1 - x^2 / 2 + x^4 q(x^2) up to pi / 4: p and q with the least largest error, found
# by Remez's algorithm: 3.6e-9 of the sine and 1e-10 in single, 3.5e-18 and 4.7e-20 in double precision.
SINE = {
    "f32": (-0.1666665491, 0.008332175846, -0.000195169775),
    "f64": (
        -0.16666666666666632, 0.0083333333333223699, -0.00019841269829771126, 2.7557313678655107e-6,
        -2.5050755960074678e-8, 1.5896666443600431e-10,
    ),
}  # fmt: skip
COSINE = {
    "f32": (0.04166664681, -0.001388736449, 2.443809099e-5),
    "f64": (
        0.041666666666666599, -0.0013888888888874065, 2.4801587289443477e-5, -2.7557314340659552e-7,
        2.087572162384293e-9, -1.1359559340742566e-11,
    ),
}  # fmt: skip


def sine_and_cosine(out: Writer, x: str) -> tuple[str, str]:
    """Both together, without a branch: an eighth of a turn by polynomials, the rest by symmetry.

    Good to round-off up to 1e4 rad in single, 1e9 rad in double precision; further out they lose digits.
    """
    shifted = out.fma(x, 2 / pi, ROUND[out.dtype])
    turns = out.floating("sub", shifted, ROUND[out.dtype], exact=True)
    for part in HALF_PI[out.dtype]:
        x = out.fma(turns, -part, x)
    square = out.floating("mul", x, x, exact=True)
    sine = out.fma(out.polynomial(square, SINE[out.dtype]), out.floating("mul", x, square, exact=True), x)
    cosine = out.polynomial(square, (1.0, -0.5, *COSINE[out.dtype]))
    quarter = out.low_word(shifted)
    swap = out.nonzero(out.integer("and", quarter, 1))
    following = out.integer("add", quarter, 1)
    first, second = out.select(swap, cosine, sine), out.select(swap, sine, cosine)
    return _turned(out, first, quarter), _turned(out, second, following)


def _turned(out: Writer, x: str, quarter: str) -> str:
    """-x in the third and fourth quarter: the second bit becomes the sign."""
    return out.sign_flipped(x, out.integer("and", out.integer("shl", quarter, 30), -(2**31)))


def tangent(out: Writer, x: str) -> str:
    return out.quotient(*sine_and_cosine(out, x))


# ---- exponentials
LOG_2 = {"f32": (0.693359375, -2.12194440e-4), "f64": (0.6931471803691238, 1.9082149292705877e-10)}
EXPONENTIAL_TERMS = {"f32": 8, "f64": 14}


def exponential(out: Writer, x: str, minus_one: bool = False) -> str:
    """2^k e^r with |r| <= log(2) / 2; 2^k in two factors, which reach further than one."""
    bound = 110.0 if not out.double else 760.0
    small = out.floating("min", out.floating("max", x, -bound), bound)
    shifted = out.fma(small, 1 / log(2), ROUND[out.dtype])
    k = out.floating("sub", shifted, ROUND[out.dtype], exact=True)
    r = small
    for part in LOG_2[out.dtype]:
        r = out.fma(k, -part, r)
    series = tuple(1 / factorial(j) for j in range(EXPONENTIAL_TERMS[out.dtype]))
    half = out.to_integer(out.floating("mul", k, 0.5))
    rest = out.integer("sub", out.to_integer(k), half)
    a, b = out.power_of_two(half), out.power_of_two(rest)
    power = out.floating("mul", out.floating("mul", out.polynomial(r, series), a), b)
    if minus_one:  # e^r - 1 by its series where k is 0
        near = out.floating("mul", r, out.polynomial(r, series[1:]))
        zero = out.compare("eq", k, 0.0)
        power = out.select(zero, near, out.floating("sub", power, 1.0))
    return out.select(out.compare("eq", x, x), power, x)


def hyperbolic_tangent(out: Writer, x: str) -> str:
    """t / (t + 2) with t = e^(2 |x|) - 1, and the sign of x."""
    size = out.floating("min", out.floating("abs", x), 20.0)
    t = exponential(out, out.floating("add", size, size), minus_one=True)
    ratio = out.quotient(t, out.floating("add", t, 2.0))
    signed = out.floating("copysign", x, ratio)
    return out.select(out.compare("eq", x, x), signed, x)


def logistic(out: Writer, x: str) -> str:
    return out.quotient(1.0, out.floating("add", exponential(out, out.floating("neg", x)), 1.0))
