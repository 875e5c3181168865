"""Elementary functions as instructions: trigonometric, exponentials, logarithms, powers, and their inverses.

None has a branch: special values are chosen at the end. Their errors, absolute and relative, in units of round-off are
tested in `tests/execution/test_ptx.py` and `test_functions.py`. In single precision a GPU's quotients and roots are up
to two units off themselves: they cause most of the error of the inverse functions there.

Read first: `writer.py`.
"""

from math import factorial, inf, log, nan, pi

from lgjax.execution.kernels.writer import Operand, Writer

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
FARTHEST = {"f32": 4e6, "f64": 2e15}  # rad, whose quarters of a turn are whole numbers without round-off


def sine_and_cosine(out: Writer, x: str) -> tuple[str, str]:
    """Both together, without a branch: an eighth of a turn by polynomials, the rest by symmetry.

    Good to round-off up to 1e4 rad in single, 1e9 rad in double precision; further out they lose digits. Where numbers
    are some turns apart, they are those of zero.
    """
    x = out.select(out.compare("lt", out.floating("abs", x), FARTHEST[out.dtype]), x, out.floating("mul", x, 0.0))
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
BOUND = {"f32": 110.0, "f64": 760.0}  # e^x is infinite or 0 beyond
EXPONENTIAL_TERMS = {"f32": 8, "f64": 14}


def exponential(out: Writer, x: str, minus_one: bool = False, low: Operand = None, halved: bool = False) -> str:
    """e^x as 2^k e^r, |r| <= log(2) / 2. low: a correction, added to x. halved: e^x / 2, also where e^x overflows."""
    bound = BOUND[out.dtype]
    small = out.floating("min", out.floating("max", x, -bound), bound)
    shifted = out.fma(small, 1 / log(2), ROUND[out.dtype])
    k = out.floating("sub", shifted, ROUND[out.dtype], exact=True)
    r = small
    for part in LOG_2[out.dtype]:
        r = out.fma(k, -part, r)
    if low is not None:
        r = out.sum(r, low)
    power = _scaled_exponential(out, r, k, halved)
    if minus_one:  # e^r - 1 by its series where k is 0
        near = out.floating("mul", r, out.polynomial(r, _series(out)[1:]))
        zero = out.compare("eq", k, 0.0)
        power = out.select(zero, near, out.floating("sub", power, 1.0))
    return out.select(out.compare("eq", x, x), power, x)


def _series(out: Writer) -> tuple[float, ...]:
    return tuple(1 / factorial(j) for j in range(EXPONENTIAL_TERMS[out.dtype]))


def _scaled_exponential(out: Writer, r: str, k: str, halved: bool = False) -> str:
    """2^k e^r; 2^k in two factors, which reach further than one."""
    half = out.to_integer(out.floating("mul", k, 0.5))
    rest = out.integer("sub", out.to_integer(k), half)
    a, b = out.power_of_two(half), out.power_of_two(out.integer("sub", rest, 1) if halved else rest)
    return out.floating("mul", out.floating("mul", out.polynomial(r, _series(out)), a), b)


def exponential_of_two(out: Writer, x: str) -> str:
    """2^k e^(r log 2) with the nearest whole number k and r = x - k, which is exact."""
    bound = 1.5 * BOUND[out.dtype]
    small = out.floating("min", out.floating("max", x, -bound), bound)
    k = out.difference(out.sum(small, ROUND[out.dtype]), ROUND[out.dtype])
    power = _scaled_exponential(out, out.product(out.difference(small, k), log(2)), k)
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


SINE_TERMS = {"f32": 5, "f64": 8}  # of the hyperbolic sine up to 1, after x


def hyperbolic_sine(out: Writer, x: str) -> str:
    """Its series up to 1; from there on a - 1 / (4 a) with a = e^|x| / 2. The sign of x."""
    size = out.floating("abs", x)
    half = exponential(out, size, halved=True)
    far = out.difference(half, out.quotient(0.25, half))
    square = out.product(x, x)
    series = out.polynomial(square, tuple(1 / factorial(2 * j + 3) for j in range(SINE_TERMS[out.dtype])))
    near = out.fma(out.product(size, square), series, size)
    return out.floating("copysign", x, out.select(out.compare("lt", size, 1.0), near, far))


def hyperbolic_cosine(out: Writer, x: str) -> str:
    half = exponential(out, out.floating("abs", x), halved=True)
    return out.sum(half, out.quotient(0.25, half))


# ---- logarithms
LEAST = {"f32": 2.0**-126, "f64": 2.0**-1022}  # the least number that is not denormal
LIFT = {"f32": 24, "f64": 54}  # doublings after which none is denormal; a multiple of 3
BEFORE = {"f32": (0x3F3504F3, 23), "f64": (0x3FE6A09E, 20)}  # the first bits of sqrt(1/2); bits behind the exponent
# log((1 + s) / (1 - s)) = 2 s + s^3 (2/3 + s^2 p(s^2)) for s up to that of sqrt(2): p with the least largest error, by
# Remez's algorithm: 6.6e-11 of the logarithm in single, 1.1e-20 in double precision, which a power needs.
TWO_THIRDS = {"f32": (0.6666666865348816, -1.9868215517e-08), "f64": (2 / 3, 3.700743415417188e-17)}
LOGARITHM = {
    "f32": (0.4000001524, 0.2856218573, 0.230499306),
    "f64": (
        0.4, 0.28571428571429374, 0.22222222221651678, 0.18181818336243441, 0.15384594880647627, 0.13334808737815008,
        0.11706137310197877, 0.11724131149689644,
    ),
}  # fmt: skip


def _parts(out: Writer, x: str) -> tuple[str, str]:
    """m and k, of which x is m 2^k, with m from sqrt(1/2) to sqrt(2); x is positive and finite."""
    small = out.compare("lt", x, LEAST[out.dtype])
    x = out.select(small, out.product(x, 2.0 ** LIFT[out.dtype]), x)
    before, bits = BEFORE[out.dtype]
    word = out.high_word(x)
    k = out.integer("shr", out.integer("sub", word, before), bits)
    m = out.with_high_word(x, out.integer("sub", word, out.integer("shl", k, bits)))
    k = out.to_floating(k)
    return m, out.select(small, out.difference(k, float(LIFT[out.dtype])), k)


def _logarithm(out: Writer, x: str, low: Operand = None, doublings: Operand = None) -> str:
    """log(2^doublings (x + low)), low below the round-off of x; x is positive and finite."""
    m, k = _parts(out, x)
    k = k if doublings is None else out.sum(k, doublings)
    f = out.difference(m, 1.0)
    s = out.quotient(f, out.sum(m, 1.0))
    square = out.product(s, s)
    half = out.product(out.product(f, 0.5), f)
    curve = out.product(square, out.polynomial(square, (TWO_THIRDS[out.dtype][0], *LOGARITHM[out.dtype])))
    first, second = LOG_2[out.dtype]
    rest = out.product(k, second)
    rest = rest if low is None else out.sum(rest, out.quotient(low, x))
    rest = out.fma(s, out.sum(half, curve), rest)  # log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + s^2 p)), f is exact
    return out.fma(k, first, out.difference(f, out.difference(half, rest)))


def logarithm(out: Writer, x: str) -> str:
    found = out.select(out.compare("eq", x, 0.0), -inf, _logarithm(out, x))
    found = out.select(out.compare("lt", x, inf), found, x)
    return out.select(out.compare("lt", x, 0.0), nan, found)


def logarithm_of_more_than_one(out: Writer, x: str) -> str:
    """log(1 + x), with what the sum loses."""
    found = _logarithm(out, *_one_more(out, x))
    found = out.select(out.compare("gt", x, -1.0), found, out.select(out.compare("eq", x, -1.0), -inf, nan))
    same = out.logical("or", out.compare("eq", x, 0.0), out.compare("eq", x, inf))
    return out.select(same, x, found)


def _one_more(out: Writer, x: str) -> tuple[str, str]:
    """1 + x as a sum of two numbers."""
    return _two_sum(out, 1.0, x)


def _two_sum(out: Writer, a: Operand, b: Operand) -> tuple[str, str]:
    """a + b and its round-off (Knuth)."""
    total = out.sum(a, b)
    second = out.difference(total, a)
    return total, out.sum(out.difference(a, out.difference(total, second)), out.difference(b, second))


# ---- inverse hyperbolic functions
FAR = {"f32": 2.0**14, "f64": 2.0**30}  # 1 is nothing beside the square of such a number


def _logarithm_of_more(out: Writer, size: str, more: str) -> str:
    """log(1 + more), but log(2 size) where size is large."""
    far = out.compare("gt", size, FAR[out.dtype])
    total, low = _one_more(out, more)
    found = _logarithm(out, out.select(far, size, total), out.select(far, 0.0, low), out.select(far, 1.0, 0.0))
    return out.select(out.compare("lt", size, inf), found, size)


def inverse_hyperbolic_sine(out: Writer, x: str) -> str:
    """log(1 + |x| + x^2 / (1 + sqrt(1 + x^2))), and the sign of x."""
    size, square = out.floating("abs", x), out.product(x, x)
    root = out.root(out.sum(square, 1.0))
    more = out.sum(size, out.quotient(square, out.sum(root, 1.0)))
    return out.floating("copysign", x, _logarithm_of_more(out, size, more))


def inverse_hyperbolic_cosine(out: Writer, x: str) -> str:
    """log(1 + t + sqrt(t (x + 1))) with t = x - 1."""
    t = out.difference(x, 1.0)
    more = out.sum(t, out.root(out.product(t, out.sum(x, 1.0))))
    return out.select(out.compare("ge", x, 1.0), _logarithm_of_more(out, x, more), nan)


def inverse_hyperbolic_tangent(out: Writer, x: str) -> str:
    """log(1 + 2 |x| / (1 - |x|)) / 2, and the sign of x."""
    size = out.floating("abs", x)
    ratio = out.quotient(out.sum(size, size), out.difference(1.0, size))
    return out.floating("copysign", x, out.product(logarithm_of_more_than_one(out, ratio), 0.5))


# ---- powers
def _long_logarithm(out: Writer, x: str) -> tuple[str, str]:
    """log x as a sum of two numbers, a thousandth of round-off from it; x is positive and finite."""
    m, k = _parts(out, x)
    f, t = out.difference(m, 1.0), out.sum(m, 1.0)
    lost = out.difference(f, out.difference(t, 2.0))  # of f + 2
    inverse = out.quotient(1.0, t)
    s = out.product(f, inverse)
    minus = out.floating("neg", s)
    s_low = out.product(out.fma(minus, lost, out.fma(minus, t, f)), inverse)
    square = out.product(s, s)
    square_low = out.fma(out.sum(s, s), s_low, _rest(out, s, s, square))
    high, low = TWO_THIRDS[out.dtype]
    series = out.product(square, out.polynomial(square, LOGARITHM[out.dtype]))
    p = out.sum(series, high)
    p_low = out.sum(out.sum(out.difference(high, p), series), low)
    w = out.product(square, p)
    w_low = out.fma(square_low, p, out.fma(square, p_low, _rest(out, square, p, w)))
    v = out.product(s, w)
    v_low = out.fma(s_low, w, out.fma(s, w_low, _rest(out, s, w, v)))
    twice = out.sum(s, s)
    near = out.sum(twice, v)  # s^3 p is smaller than 2 s: the round-off of their sum in two operations
    near_low = out.sum(out.sum(out.difference(twice, near), v), out.fma(s_low, 2.0, v_low))
    first, second = LOG_2[out.dtype]
    total, lost = _two_sum(out, out.product(k, first), near)
    return total, out.sum(out.fma(k, second, near_low), lost)


def _rest(out: Writer, a: str, b: str, product: str) -> str:
    """a b - product, exactly."""
    return out.fma(a, b, out.floating("neg", product))


def power(out: Writer, x: Operand, y: Operand) -> str:
    """|x|^y = e^(y log |x|), the product as a sum of two numbers; signs and special values as in C."""
    x, y = out.float_register(x), out.float_register(y)
    size = out.floating("abs", x)
    high, low = _long_logarithm(out, size)
    finite = out.compare("lt", size, inf)
    high = out.select(out.compare("eq", size, 0.0), -inf, out.select(finite, high, size))
    exponent = out.product(y, high)
    low = out.fma(y, low, _rest(out, y, high, exponent))
    inside = out.compare("lt", out.floating("abs", exponent), BOUND[out.dtype])
    found = exponential(out, exponent, low=out.select(inside, low, 0.0))
    one = out.logical("and", out.compare("eq", size, 1.0), out.compare("eq", y, y))  # also where y is infinite
    found = out.select(one, 1.0, found)
    whole = out.compare("eq", out.rounded("down", y), y)
    half = out.product(y, 0.5)
    odd = out.logical("and", whole, out.compare("ne", out.rounded("down", half), half))
    found = out.floating("copysign", out.select(odd, x, 1.0), found)
    negative = out.logical("and", out.compare("lt", x, 0.0), finite)
    found = out.select(out.logical("and", negative, out.logical("not", whole)), nan, found)
    sure = out.logical("or", out.compare("eq", x, 1.0), out.compare("eq", y, 0.0))  # whatever the other is
    return out.select(sure, 1.0, found)


# m^(-1/3) from sqrt(1/2) to sqrt(2), by Remez's algorithm: 3.8e-5 of it.
INVERSE_CUBE_ROOT = (1.874519513, -1.861832618, 1.561307705, -0.7023876767, 0.1283696623)


def cube_root(out: Writer, x: str) -> str:
    """2^q t w^2 with x = 2^(3 q) t and w = t^(-1/3), and a step of Newton's method, which needs no quotient."""
    size = out.floating("abs", x)
    m, k = _parts(out, size)
    q = out.difference(out.fma(k, 1 / 3, ROUND[out.dtype]), ROUND[out.dtype])
    e = out.fma(q, -3.0, k)  # -1, 0 or 1, at which the polynomials are 2^e and 2^(-e/3)
    t = out.product(m, out.polynomial(e, (1.0, 0.75, 0.25)))
    a, b = 2 ** (-1 / 3), 2 ** (1 / 3)
    w = out.product(out.polynomial(m, INVERSE_CUBE_ROOT), out.polynomial(e, (1.0, (a - b) / 2, (a + b) / 2 - 1)))
    if out.double:
        h = out.fma(out.product(out.product(w, w), w), out.floating("neg", t), 1.0)
        w = out.fma(out.product(w, h), out.polynomial(h, (1 / 3, 2 / 9)), w)
    square = out.product(w, w)
    y = out.product(t, square)
    rest = out.fma(out.product(y, y), out.floating("neg", y), t)
    y = out.fma(rest, out.product(square, 1 / 3), y)
    found = out.floating("copysign", x, out.product(y, out.power_of_two(out.to_integer(q))))
    inside = out.logical("and", out.compare("gt", size, 0.0), out.compare("lt", size, inf))
    return out.select(inside, found, out.sum(x, x))  # 0 where a processor takes a denormal number for 0


# ---- inverse trigonometric functions
TAN_EIGHTH = 2**0.5 - 1  # of half a turn
# atan q = q + q^3 p(q^2) up to there: p with the least largest error, by Remez's algorithm: 3e-9 of the angle in
# single, 7e-18 in double precision.
ARC = {
    "f32": (-0.3333333186, 0.199995595, -0.1426450701, 0.1074885758, -0.06466833553),
    "f64": (
        -0.3333333333333333, 0.19999999999995777, -0.14285714284715658, 0.11111111018911424, -0.090909047163052156,
        0.076921861922123846, -0.066645511438864303, 0.058584739180697792, -0.050870579731538038, 0.039275722844957795,
        -0.019228204787816445,
    ),
}  # fmt: skip


def _quadrant(out: Writer, y: str, x: Operand) -> str:
    """The angle of (x, y) from the first axis; both are at least 0, one is not, and their sum does not overflow."""
    quarter, quarter_low = HALF_PI[out.dtype][:2]
    a, b = out.floating("min", y, x), out.floating("max", y, x)
    far = out.compare("gt", a, out.product(b, TAN_EIGHTH))
    q = out.quotient(out.select(far, out.difference(a, b), a), out.select(far, out.sum(a, b), b))
    square = out.product(q, q)
    angle = out.fma(out.product(q, square), out.polynomial(square, ARC[out.dtype]), q)
    angle = out.select(far, out.sum(out.sum(angle, quarter_low / 2), quarter / 2), angle)
    beyond = out.difference(quarter, out.difference(angle, quarter_low))
    return out.select(out.compare("gt", y, x), beyond, angle)


def _behind(out: Writer, angle: str, behind: str) -> str:
    """Half a turn less the angle, where `behind`."""
    quarter, quarter_low = HALF_PI[out.dtype][:2]
    return out.select(behind, out.difference(2 * quarter, out.difference(angle, 2 * quarter_low)), angle)


def arc_tangent(out: Writer, x: str) -> str:
    found = out.floating("copysign", x, _quadrant(out, out.floating("abs", x), 1.0))
    return out.select(out.compare("eq", x, x), found, x)


def arc_tangent_of_two(out: Writer, y: Operand, x: Operand) -> str:
    """The angle of (x, y), also where both are 0, infinite, or near an end of the range of numbers."""
    y, x = out.float_register(y), out.float_register(x)
    b, a = out.floating("abs", y), out.floating("abs", x)
    large = out.floating("max", b, a)
    # So scaled, no sum overflows, and no difference is denormal that matters.
    factor = out.select(out.compare("gt", large, 2.0**64), 0.25, 2.0 ** LIFT[out.dtype])
    infinite = out.compare("eq", out.floating("min", b, a), inf)
    b = out.select(infinite, 1.0, out.product(b, factor))
    either = out.logical("or", infinite, out.compare("eq", large, 0.0))
    a = out.select(either, 1.0, out.product(a, factor))
    angle = _behind(out, _quadrant(out, b, a), out.compare("lt", out.floating("copysign", x, 1.0), 0.0))
    found = out.floating("copysign", y, angle)
    return out.select(out.compare("num", y, x), found, out.sum(y, x))


def _other_leg(out: Writer, x: str) -> str:
    """sqrt(1 - x^2)."""
    return out.root(out.product(out.difference(1.0, x), out.sum(x, 1.0)))


def arc_sine(out: Writer, x: str) -> str:
    size = out.floating("abs", x)
    found = out.floating("copysign", x, _quadrant(out, size, _other_leg(out, x)))
    return out.select(out.compare("le", size, 1.0), found, nan)


def arc_cosine(out: Writer, x: str) -> str:
    size = out.floating("abs", x)
    found = _behind(out, _quadrant(out, _other_leg(out, x), size), out.compare("lt", x, 0.0))
    return out.select(out.compare("le", size, 1.0), found, nan)
