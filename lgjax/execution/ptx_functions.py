"""Functions of scalars in PTX: what each operation of a program becomes in the text of a kernel.

An operand is a register or a known number. The first letter of a register is its kind: %f a number of the program's
floating dtype, %i a 32-bit integer, %p a truth value, %q an address. Absolute and relative errors in units of round-off
are tested in `tests/execution/test_ptx.py`.

Read first: `Writer`.
"""

import struct
from collections.abc import Callable
from math import factorial, inf, log, pi
from typing import Any

import numpy as np

Operand = Any  # a register, or a number
TYPES = {"i": "u32", "p": "pred", "q": "u64"}


class Writer:
    """Lines of a kernel, with a new register for each result. dtype: "f32" or "f64"."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.types = TYPES | {"f": dtype}
        self.double = dtype == "f64"
        self.lines: list[str] = []
        self.counts = dict.fromkeys("fipq", 0)

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def register(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"%{kind}{self.counts[kind] - 1}"

    def declarations(self) -> list[str]:
        return [f"  .reg .{self.types[k]} %{k}<{n}>;" for k, n in self.counts.items() if n]

    def operation(self, name: str, *operands: Operand, kind: str = "f") -> str:
        """The register of an operation; a dot at the end of its name stands for the floating dtype."""
        found = self.register(kind)
        name = name + self.dtype if name.endswith(".") else name
        self.line(f"{name} {found}, {', '.join(map(self.text, operands))};")
        return found

    def text(self, x: Operand) -> str:
        """An operand as PTX writes it: floating numbers by their bits."""
        if isinstance(x, str):
            return x
        if not isinstance(x, float | np.floating):
            return str(int(x))
        if self.double:
            return "0d" + struct.pack(">d", x).hex().upper()
        with np.errstate(over="ignore"):
            return "0f" + struct.pack(">f", np.float32(x)).hex().upper()

    def float_register(self, x: Operand) -> str:
        return x if isinstance(x, str) else self.operation("mov.", float(x))

    # -- often used
    def fma(self, a: Operand, b: Operand, c: Operand) -> str:
        return self.operation("fma.rn.", a, b, c)

    def polynomial(self, x: Operand, coefficients: tuple[float, ...]) -> Operand:
        """Horner's scheme, the constant first."""
        total: Operand = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, c)
        return total

    def select(self, test: str, yes: Operand, no: Operand, kind: str = "f") -> str:
        if kind == "p":
            yes, no = (
                self.operation("selp.u32", 1, 0, x, kind="i") if isinstance(x, str) else int(x) for x in (yes, no)
            )
            return self.operation("setp.ne.u32", self.operation("selp.u32", yes, no, test, kind="i"), 0, kind="p")
        return self.operation("selp." if kind == "f" else "selp.u32", yes, no, test, kind=kind)

    def quotient(self, a: Operand, b: Operand) -> str:
        return self.operation("div.rn.f64" if self.double else "div.full.f32", a, b)


def write(out: Writer, name: str, what: Any, operands: list[Operand]) -> str:
    """An operation of a graph; NotImplementedError, naming it, if there is no text for it."""
    if name == "convert":
        return _converted(out, operands[0], np.dtype(what.keywords["new_dtype"]))
    if name == "integer_pow":
        return _power(out, operands[0], what.params["y"])
    if name not in FUNCTIONS:
        raise NotImplementedError(f"{name!r} in a kernel")
    return FUNCTIONS[name](out, *operands)


def is_float(x: Operand) -> bool:
    return x.startswith("%f") if isinstance(x, str) else isinstance(x, float)


def kind_of(*operands: Operand) -> str:
    """The kind of registers among operands that are alike, or that of numbers."""
    found = next((x[1] for x in operands if isinstance(x, str)), None)
    numbers = "f" if any(isinstance(x, float) for x in operands) else "p" if isinstance(operands[0], bool) else "i"
    return found or numbers


def _like(x: Operand, kind: str) -> Operand:
    return float(x) if kind == "f" and not isinstance(x, str) else x


# ---- arithmetic
def _arithmetic(name: str) -> Callable:
    def of(out: Writer, *operands: Operand) -> str:
        kind = kind_of(*operands)
        operands = tuple(_like(x, kind) for x in operands)
        if kind == "f":
            return out.operation(f"{name}.", *operands)
        return out.operation(f"{'mul.lo' if name == 'mul' else name}.s32", *operands, kind="i")

    return of


def _quotient(out: Writer, a: Operand, b: Operand) -> str:
    kind = kind_of(a, b)
    if kind == "f":
        return out.quotient(_like(a, kind), _like(b, kind))
    return out.operation("div.s32", a, b, kind="i")


def _remainder(out: Writer, a: Operand, b: Operand) -> str:
    if kind_of(a, b) == "f":
        raise NotImplementedError("the remainder of floating numbers in a kernel")
    return out.operation("rem.s32", a, b, kind="i")


def _larger(sign: int) -> Callable:
    """The larger or smaller of two; NaN if one is."""

    def of(out: Writer, a: Operand, b: Operand) -> str:
        kind = kind_of(a, b)
        if kind != "f":
            return out.operation("max.s32" if sign > 0 else "min.s32", a, b, kind="i")
        a, b = _like(a, kind), _like(b, kind)
        best = out.operation("max." if sign > 0 else "min.", a, b)
        test = out.operation("setp.num.", out.float_register(a), b, kind="p")
        return out.select(test, best, out.operation("add.", a, b))

    return of


def _clamp(out: Writer, low: Operand, x: Operand, high: Operand) -> str:
    return _larger(-1)(out, _larger(1)(out, x, low), high)


def _sign(out: Writer, x: str) -> str:
    size = out.operation("copysign.", x, 1.0)
    return out.select(out.operation("setp.eq.", x, 0.0, kind="p"), x, size)


def _power(out: Writer, x: str, n: int) -> Operand:
    """x^n by squaring."""
    if n < 0:
        return out.quotient(1.0, _power(out, x, -n))
    total: Operand = 1.0
    while n:
        if n & 1:
            total = x if total == 1.0 else out.operation("mul.", total, x)
        n >>= 1
        x = out.operation("mul.", x, x) if n else x
    return total


# ---- truth values and choices
def _comparison(name: str) -> Callable:
    def of(out: Writer, a: Operand, b: Operand) -> str:
        kind = kind_of(a, b)
        if kind == "p":
            same = _logic("xor")(out, a, b)
            return same if name == "ne" else out.operation("not.pred", same, kind="p")
        if not isinstance(a, str):  # PTX compares a register
            return _comparison({"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(name, name))(out, b, a)
        test = {"ne": "neu"}.get(name, name) if kind == "f" else name
        return out.operation(f"setp.{test}." + ("" if kind == "f" else "s32"), a, _like(b, kind), kind="p")

    return of


def _logic(name: str) -> Callable:
    def of(out: Writer, *operands: Operand) -> str:
        kind = kind_of(*operands)
        if kind == "p":
            operands = tuple(
                x
                if isinstance(x, str)
                else out.operation("setp.ne.u32", out.operation("mov.u32", int(x), kind="i"), 0, kind="p")
                for x in operands
            )
            return out.operation(f"{name}.pred", *operands, kind="p")
        return out.operation(f"{name}.b32", *operands, kind="i")

    return of


def _chosen(out: Writer, test: Operand, no: Operand, yes: Operand) -> str:
    if isinstance(test, str) and test.startswith("%i"):
        test = out.operation("setp.ne.s32", test, 0, kind="p")
    kind = kind_of(no, yes)
    return out.select(test, _like(yes, kind), _like(no, kind), kind)


def _converted(out: Writer, x: str, dtype: np.dtype) -> str:
    target = "f" if np.issubdtype(dtype, np.floating) else "p" if dtype == np.dtype(bool) else "i"
    source = x[1]
    if source == target:
        return x
    if source == "p":
        return out.select(x, 1.0 if target == "f" else 1, 0.0 if target == "f" else 0, target)
    if target == "p":
        return _comparison("ne")(out, x, 0)
    if target == "f":
        return out.operation(f"cvt.rn.{out.dtype}.s32", x)
    return out.operation(f"cvt.rzi.s32.{out.dtype}", x, kind="i")


def _rounded(mode: str) -> Callable:
    return lambda out, x: out.operation(f"cvt.{mode}.{out.dtype}.{out.dtype}", x)


def _finite(out: Writer, x: str) -> str:
    return out.operation("setp.lt.", out.operation("abs.", x), inf, kind="p")


# ---- roots
def _root(out: Writer, x: str) -> str:
    return out.operation("sqrt.rn.f64" if out.double else "sqrt.approx.f32", x)


def _inverse_root(out: Writer, x: str) -> str:
    return out.quotient(1.0, _root(out, x)) if out.double else out.operation("rsqrt.approx.f32", x)


# ---- sine and cosine
HALF_PI = {  # in parts of the precision of each dtype: what a multiply-add leaves of an angle is exact
    "f32": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "f64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
ROUND = {"f32": 1.5 * 2.0**23, "f64": 1.5 * 2.0**52}  # x + ROUND has the nearest whole number in its last bits
TERMS = {"f32": 5, "f64": 9}  # of the series of sine and cosine up to pi / 4


def sine_and_cosine(out: Writer, x: str) -> tuple[str, str]:
    """Both together, without a branch: an eighth of a turn by their series, the rest by symmetry.

    Good to round-off up to 1e4 rad in single, 1e9 rad in double precision; further out they lose digits.
    """
    shifted = out.fma(x, 2 / pi, ROUND[out.dtype])
    turns = out.operation("sub.rn.", shifted, ROUND[out.dtype])
    for part in HALF_PI[out.dtype]:
        x = out.fma(turns, -part, x)
    square = out.operation("mul.rn.", x, x)
    series = lambda first: tuple((-1.0) ** j / factorial(2 * j + first) for j in range(TERMS[out.dtype]))
    odd = out.polynomial(square, series(1)[1:])
    sine = out.fma(odd, out.operation("mul.rn.", x, square), x)
    cosine = out.polynomial(square, series(0))
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


def _tangent(out: Writer, x: str) -> str:
    return out.quotient(*sine_and_cosine(out, x))


# ---- exponentials
LOG_2 = {"f32": (0.693359375, -2.12194440e-4), "f64": (0.6931471803691238, 1.9082149292705877e-10)}
EXPONENTIAL_TERMS = {"f32": 8, "f64": 14}


def _exponential(out: Writer, x: str, minus_one: bool = False) -> str:
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


def _hyperbolic_tangent(out: Writer, x: str) -> str:
    """t / (t + 2) with t = e^(2 |x|) - 1, and the sign of x."""
    size = out.operation("min.", out.operation("abs.", x), 20.0)
    t = _exponential(out, out.operation("add.", size, size), minus_one=True)
    ratio = out.quotient(t, out.operation("add.", t, 2.0))
    signed = out.operation("copysign.", x, ratio)
    return out.select(out.operation("setp.eq.", x, x, kind="p"), signed, x)


def _logistic(out: Writer, x: str) -> str:
    return out.quotient(1.0, out.operation("add.", _exponential(out, out.operation("neg.", x)), 1.0))


FUNCTIONS: dict[str, Callable] = {
    "add": _arithmetic("add"),
    "sub": _arithmetic("sub"),
    "mul": _arithmetic("mul"),
    "neg": _arithmetic("neg"),
    "abs": _arithmetic("abs"),
    "div": _quotient,
    "rem": _remainder,
    "max": _larger(1),
    "min": _larger(-1),
    "clamp": _clamp,
    "sign": _sign,
    "sqrt": _root,
    "rsqrt": _inverse_root,
    "floor": _rounded("rmi"),
    "ceil": _rounded("rpi"),
    "is_finite": _finite,
    "select_n": _chosen,
    "tan": _tangent,
    "exp": _exponential,
    "expm1": lambda out, x: _exponential(out, x, minus_one=True),
    "tanh": _hyperbolic_tangent,
    "logistic": _logistic,
}
FUNCTIONS |= {name: _comparison(name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
FUNCTIONS |= {name: _logic(name) for name in ("and", "or", "xor", "not")}
