"""Roots, trigonometric functions and exponentials in PTX.

Their errors, absolute and relative, in units of round-off are tested in `tests/execution/test_ptx.py`.

Read first: `writer.py`.
"""

from math import factorial, log, pi

from lgjax.execution.kernels.writer import Writer


# ---- roots
def root(out: Writer, x: str) -> str:
    return out.operation("sqrt.rn.f64" if out.double else "sqrt.approx.f32", x)


def inverse_root(out: Writer, x: str) -> str:
    return out.quotient(1.0, root(out, x)) if out.double else out.operation("rsqrt.approx.f32", x)


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
    turns = out.operation("sub.rn.", shifted, ROUND[out.dtype])
    for part in HALF_PI[out.dtype]:
        x = out.fma(turns, -part, x)
    square = out.operation("mul.rn.", x, x)
    sine = out.fma(out.polynomial(square, SINE[out.dtype]), out.operation("mul.rn.", x, square), x)
    cosine = out.polynomial(square, (1.0, -0.5, *COSINE[out.dtype]))
    if out.double:
        quarter = out.register("i")
        unused = out.register("i")
        out.line(f"mov.b64 {{{quarter}, {unused}}}, {shifted};")
    else:
        quarter = out.operation("mov.b32", shifted, kind="i")
    swap = out.operation("setp.ne.u32", out.operation("and.b32", quarter, 1, kind="i"), 0, kind="p")
    following = out.operation("add.s32", quarter, 1, kind="i")
    first, second = out.select(swap, cosine, sine), out.select(swap, sine, cosine)
    return _turned(out, first, quarter), _turned(out, second, following)


def _turned(out: Writer, x: str, quarter: str) -> str:
    """-x in the third and fourth quarter: the second bit becomes the sign."""
    bit = out.operation("and.b32", out.operation("shl.b32", quarter, 30, kind="i"), -(2**31), kind="i")
    if not out.double:
        bits = out.operation("xor.b32", out.operation("mov.b32", x, kind="i"), bit, kind="i")
        return out.operation("mov.b32", bits)
    low, high, found = out.register("i"), out.register("i"), out.register("f")
    out.line(f"mov.b64 {{{low}, {high}}}, {x};")
    high = out.operation("xor.b32", high, bit, kind="i")
    out.line(f"mov.b64 {found}, {{{low}, {high}}};")
    return found


def tangent(out: Writer, x: str) -> str:
    return out.quotient(*sine_and_cosine(out, x))


# ---- exponentials
LOG_2 = {"f32": (0.693359375, -2.12194440e-4), "f64": (0.6931471803691238, 1.9082149292705877e-10)}
EXPONENTIAL_TERMS = {"f32": 8, "f64": 14}


def exponential(out: Writer, x: str, minus_one: bool = False) -> str:
    """2^k e^r with |r| <= log(2) / 2; 2^k in two factors, which reach further than one."""
    bound = 110.0 if not out.double else 760.0
    small = out.operation("min.", out.operation("max.", x, -bound), bound)
    shifted = out.fma(small, 1 / log(2), ROUND[out.dtype])
    k = out.operation("sub.rn.", shifted, ROUND[out.dtype])
    r = small
    for part in LOG_2[out.dtype]:
        r = out.fma(k, -part, r)
    series = tuple(1 / factorial(j) for j in range(EXPONENTIAL_TERMS[out.dtype]))
    half = out.operation(f"cvt.rzi.s32.{out.dtype}", out.operation("mul.", k, 0.5), kind="i")
    rest = out.operation("sub.s32", out.operation(f"cvt.rzi.s32.{out.dtype}", k, kind="i"), half, kind="i")
    a, b = _two_to(out, half), _two_to(out, rest)
    power = out.operation("mul.", out.operation("mul.", out.polynomial(r, series), a), b)
    if minus_one:  # e^r - 1 by its series where k is 0
        near = out.operation("mul.", r, out.polynomial(r, series[1:]))
        zero = out.operation("setp.eq.", k, 0.0, kind="p")
        power = out.select(zero, near, out.operation("sub.", power, 1.0))
    number = out.operation("setp.eq.", x, x, kind="p")
    return out.select(number, power, x)


def _two_to(out: Writer, k: str) -> str:
    """2^k from the bits of its exponent."""
    biased = out.operation("add.s32", k, 1023 if out.double else 127, kind="i")
    bits = out.operation("shl.b32", biased, 20 if out.double else 23, kind="i")
    if not out.double:
        return out.operation("mov.b32", bits)
    found, zero = out.register("f"), out.operation("mov.b32", 0, kind="i")
    out.line(f"mov.b64 {found}, {{{zero}, {bits}}};")
    return found


def hyperbolic_tangent(out: Writer, x: str) -> str:
    """t / (t + 2) with t = e^(2 |x|) - 1, and the sign of x."""
    size = out.operation("min.", out.operation("abs.", x), 20.0)
    t = exponential(out, out.operation("add.", size, size), minus_one=True)
    ratio = out.quotient(t, out.operation("add.", t, 2.0))
    signed = out.operation("copysign.", x, ratio)
    return out.select(out.operation("setp.eq.", x, x, kind="p"), signed, x)


def logistic(out: Writer, x: str) -> str:
    return out.quotient(1.0, out.operation("add.", exponential(out, out.operation("neg.", x)), 1.0))
