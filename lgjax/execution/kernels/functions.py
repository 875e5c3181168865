"""Instructions of a kernel for each operation of a program.

Read first: `writer.py`; sine and the like are in `elementary.py`.
"""

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from lgjax.execution.kernels import elementary
from lgjax.execution.kernels.writer import Operand, Writer, kind_of, like


def write(out: Writer, name: str, what: Any, operands: list[Operand]) -> str:
    """An operation of a graph; NotImplementedError, naming it, if there is no text for it."""
    if name == "convert":
        return _converted(out, operands[0], what)
    if name == "integer_pow":
        return _power(out, operands[0], what.params["y"])
    if name == "round":
        return _nearest(out, operands[0], away=int(what.params["rounding_method"]) == 0)
    if name not in FUNCTIONS:
        raise NotImplementedError(f"{name!r} in a kernel")
    return FUNCTIONS[name](out, *operands)


# ---- arithmetic
def _arithmetic(name: str) -> Callable:
    def of(out: Writer, *operands: Operand) -> str:
        kind = kind_of(*operands)
        operands = tuple(like(x, kind) for x in operands)
        if kind == "f":
            return out.floating(name, *operands)
        return out.integer(name, *operands)

    return of


def added(out: Writer, total: tuple[Operand, int] | None, sign: int, factors: list[Operand]) -> tuple[Operand, int]:
    """A sum and its sign, None at first, after one more term, which is a value or a product of two."""
    if total is None:
        return factors[0] if len(factors) == 1 else FUNCTIONS["mul"](out, *factors), sign
    value, before = total
    after = max(before, sign)
    if len(factors) == 1:
        first, second = (value, factors[0]) if before == after else (factors[0], value)
        return FUNCTIONS["add" if before == sign else "sub"](out, first, second), after
    kind = kind_of(*factors)
    a, b = (like(x, kind) for x in factors)
    a = a if sign == after else FUNCTIONS["neg"](out, a) if isinstance(a, str) else -a
    value = value if before == after else FUNCTIONS["neg"](out, value)
    return (out.fma(a, b, value) if kind == "f" else out.integer("mad", a, b, value)), after


def _quotient(out: Writer, a: Operand, b: Operand) -> str:
    kind = kind_of(a, b)
    if kind == "f":
        return out.quotient(like(a, kind), like(b, kind))
    return out.integer("div", a, b)


def _remainder(out: Writer, a: Operand, b: Operand) -> str:
    """With the sign of a. Of floating numbers exact as long as a / b has fewer digits than a number."""
    if kind_of(a, b) != "f":
        return out.integer("rem", a, b)
    a, b = (out.float_register(like(x, "f")) for x in (a, b))
    size, part = out.floating("abs", a), out.floating("abs", b)
    turns = out.rounded("down", out.quotient(size, part))
    rest = out.fma(out.floating("neg", turns), part, size)
    # The quotient may be rounded to a neighbor.
    rest = out.select(out.compare("lt", rest, 0.0), out.floating("add", rest, part), rest)
    rest = out.select(out.compare("ge", rest, part), out.floating("sub", rest, part), rest)
    whole = out.select(out.compare("eq", part, inf), size, rest)  # all of a finite number, and no number of infinity
    finite = out.select(_finite(out, a), whole, rest)
    return out.floating("copysign", a, finite)


def _larger(sign: int) -> Callable:
    """The larger or smaller of two; NaN if one is."""
    name = "max" if sign > 0 else "min"

    def of(out: Writer, a: Operand, b: Operand) -> str:
        kind = kind_of(a, b)
        if kind == "p":
            return _logic("or" if sign > 0 else "and")(out, a, b)
        if kind != "f":
            return out.integer(name, a, b)
        return out.extreme(sign, like(a, kind), like(b, kind))

    return of


def _clamp(out: Writer, low: Operand, x: Operand, high: Operand) -> str:
    return _larger(-1)(out, _larger(1)(out, x, low), high)


def _sign(out: Writer, x: str) -> str:
    if kind_of(x) == "i":
        return out.integer("max", out.integer("min", x, 1), -1)
    size = out.floating("copysign", x, 1.0)
    numbers = out.floating("abs", x)
    return out.select(out.compare("gt", numbers, 0.0), size, x)  # zero and NaN are their own signs


def _power(out: Writer, x: str, n: int) -> Operand:
    """x^n by squaring."""
    if n < 0:
        return out.quotient(1.0, _power(out, x, -n))
    total: Operand = 1.0
    while n:
        if n & 1:
            total = x if total == 1.0 else out.floating("mul", total, x)
        n >>= 1
        x = out.floating("mul", x, x) if n else x
    return total


# ---- truth values and choices
def _comparison(name: str) -> Callable:
    def of(out: Writer, a: Operand, b: Operand) -> str:
        kind = kind_of(a, b)
        if kind == "p":
            return _truths_compared(out, name, *(x if isinstance(x, str) else out.truth(x) for x in (a, b)))
        if not isinstance(a, str):  # the first is a register
            return _comparison({"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(name, name))(out, b, a)
        return out.compare(name, a, like(b, kind), kind)

    return of


def _truths_compared(out: Writer, name: str, a: str, b: str) -> str:
    """False is less than true."""
    if name in ("eq", "ne"):
        other = out.logical("xor", a, b)
        return other if name == "ne" else out.logical("not", other)
    if name in ("gt", "ge"):
        a, b, name = b, a, {"gt": "lt", "ge": "le"}[name]
    return out.logical("and" if name == "lt" else "or", out.logical("not", a), b)


def _logic(name: str) -> Callable:
    def of(out: Writer, *operands: Operand) -> str:
        kind = kind_of(*operands)
        if kind == "p":
            return out.logical(name, *(x if isinstance(x, str) else out.truth(x) for x in operands))
        return out.integer(name, *operands)

    return of


def _chosen(out: Writer, test: Operand, no: Operand, yes: Operand) -> str:
    if isinstance(test, str) and test.startswith("%i"):
        test = out.compare("ne", test, 0, "i")
    kind = kind_of(no, yes)
    return out.select(test, like(yes, kind), like(no, kind), kind)


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
        return out.to_floating(x)
    return out.to_integer(x)


def _rounded(direction: str) -> Callable:
    return lambda out, x: out.rounded(direction, x)


def _nearest(out: Writer, x: str, away: bool) -> str:
    """The nearest whole number; of two such the one away from zero, or the even one."""
    if not away:
        return out.rounded("even", x)
    size = out.floating("abs", x)
    whole = out.rounded("down", size)
    up = out.compare("ge", out.difference(size, whole), 0.5)  # of infinity this is NaN, and no
    return out.floating("copysign", x, out.select(up, out.sum(whole, 1.0), whole))


def _raised(out: Writer, x: Operand, y: Operand) -> str:
    """x^y; y may be an integer."""
    y = out.to_floating(y) if isinstance(y, str) and kind_of(y) == "i" else y
    return elementary.power(out, x, y)


def _finite(out: Writer, x: str) -> str:
    return out.compare("lt", out.floating("abs", x), inf)


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
    "sqrt": lambda out, x: out.root(x),
    "rsqrt": lambda out, x: out.inverse_root(x),
    "floor": _rounded("down"),
    "ceil": _rounded("up"),
    "is_finite": _finite,
    "select_n": _chosen,
    "tan": elementary.tangent,
    "asin": elementary.arc_sine,
    "acos": elementary.arc_cosine,
    "atan": elementary.arc_tangent,
    "atan2": elementary.arc_tangent_of_two,
    "exp": elementary.exponential,
    "expm1": lambda out, x: elementary.exponential(out, x, minus_one=True),
    "exp2": elementary.exponential_of_two,
    "log": elementary.logarithm,
    "log1p": elementary.logarithm_of_more_than_one,
    "pow": _raised,
    "cbrt": elementary.cube_root,
    "sinh": elementary.hyperbolic_sine,
    "cosh": elementary.hyperbolic_cosine,
    "tanh": elementary.hyperbolic_tangent,
    "asinh": elementary.inverse_hyperbolic_sine,
    "acosh": elementary.inverse_hyperbolic_cosine,
    "atanh": elementary.inverse_hyperbolic_tangent,
    "logistic": elementary.logistic,
}
FUNCTIONS |= {name: _comparison(name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
FUNCTIONS |= {name: _logic(name) for name in ("and", "or", "xor", "not")}
