"""The instructions that kernels are made of, for every machine. A writer has a method for each, which appends its text.

A method returns the register of the result. An operand is a register, as text, or a known number. The first letter of
a register is its kind: %f a number of the program's floating dtype, %i a 32-bit integer, %p a truth value, %q an
address or a 64-bit integer.

Read first: `Writer`. Next: `functions.py` and `translation.py`, which write with it; `ptx_writer.py` and
`llvm_writer.py`, its two implementations.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

Operand = Any  # a register, or a number
BOOL = np.dtype(bool)


class Writer(ABC):
    """Lines of a kernel, with a new register for each result. dtype: "f32" or "f64", that of floating numbers.

    Sums and products are each rounded, except in `fma`. A machine may fuse a product and a sum that are not `exact`.
    """

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.double = dtype == "f64"
        self.lines: list[str] = []
        self.counts = dict.fromkeys("fipq", 0)

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def register(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"%{kind}{self.counts[kind] - 1}"

    # -- floating numbers
    @abstractmethod
    def floating(self, name: str, *operands: Operand, exact: bool = False) -> str:
        """add, sub, mul, neg, abs, min, max; copysign: the sign of the first, the magnitude of the second."""

    @abstractmethod
    def fma(self, a: Operand, b: Operand, c: Operand) -> str:
        """a b + c, rounded once."""

    @abstractmethod
    def quotient(self, a: Operand, b: Operand) -> str: ...

    @abstractmethod
    def root(self, x: str) -> str: ...

    @abstractmethod
    def inverse_root(self, x: str) -> str: ...

    @abstractmethod
    def rounded(self, direction: str, x: str) -> str:
        """Round to a whole number, "down", "up" or to the nearest, of two such the "even" one."""

    # -- integers and truth values
    @abstractmethod
    def integer(self, name: str, *operands: Operand) -> str:
        """add, sub, mul, mad (a b + c), div, rem, min, max, neg, abs, and, or, xor, not, shl, shr (of the sign too)."""

    @abstractmethod
    def logical(self, name: str, *operands: str) -> str:
        """and, or, xor, not of truth values."""

    @abstractmethod
    def truth(self, x: bool) -> str:
        """A known truth value in a register."""

    # -- comparisons and choices
    @abstractmethod
    def compare(self, test: str, a: Operand, b: Operand, kind: str = "f") -> str:
        """lt, le, gt, ge, eq, ne; of floating numbers also num: neither is NaN. With a NaN, only ne is true."""

    @abstractmethod
    def nonzero(self, x: str) -> str:
        """Whether an integer is not 0."""

    @abstractmethod
    def select(self, test: str, yes: Operand, no: Operand, kind: str = "f") -> str: ...

    # -- from one kind to another
    @abstractmethod
    def to_floating(self, x: str) -> str: ...

    @abstractmethod
    def to_integer(self, x: str) -> str:
        """Round towards zero."""

    @abstractmethod
    def low_word(self, x: str) -> str:
        """The last 32 bits of a floating number, as an integer."""

    @abstractmethod
    def high_word(self, x: str) -> str:
        """The first 32 bits of a floating number, as an integer: sign, exponent and the first bits behind the point."""

    @abstractmethod
    def with_high_word(self, x: str, word: str) -> str:
        """A floating number with other first 32 bits."""

    @abstractmethod
    def sign_flipped(self, x: str, bit: str) -> str:
        """-x where the highest bit of the integer `bit` is 1; its other bits are 0."""

    @abstractmethod
    def power_of_two(self, k: str) -> str:
        """2^k for an integer within the range of exponents."""

    @abstractmethod
    def constant(self, x: Any, kind: str) -> str:
        """A known number in a register of its own."""

    # -- often used
    def float_register(self, x: Operand) -> str:
        return x if isinstance(x, str) else self.constant(float(x), "f")

    def sum(self, a: Operand, b: Operand) -> str:
        return self.floating("add", a, b, exact=True)

    def difference(self, a: Operand, b: Operand) -> str:
        return self.floating("sub", a, b, exact=True)

    def product(self, a: Operand, b: Operand) -> str:
        return self.floating("mul", a, b, exact=True)

    def extreme(self, sign: int, a: Operand, b: Operand) -> Operand:
        """The larger of two floating numbers, the smaller if the sign is -1; NaN if one is."""
        a, b = (b, a) if isinstance(a, str) and not isinstance(b, str) else (a, b)
        if not isinstance(a, str) and a != a:
            return self.float_register(a)
        best = self.select(self.compare("gt" if sign > 0 else "lt", a, b), a, b)  # b, if it is NaN
        return self.select(self.compare("num", a, a), best, a) if isinstance(a, str) else best

    def polynomial(self, x: Operand, coefficients: tuple[float, ...]) -> Operand:
        """A polynomial by Horner's scheme; the constant coefficient comes first."""
        total: Operand = coefficients[-1]
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, c)
        return total


def kind_of_dtype(dtype: np.dtype) -> str:
    """The kind of the registers that hold numbers of a dtype."""
    return "p" if dtype == BOOL else "f" if np.issubdtype(dtype, np.floating) else "i"


def is_float(x: Operand) -> bool:
    return x.startswith("%f") if isinstance(x, str) else isinstance(x, float)


def kind_of(*operands: Operand) -> str:
    """The kind that operands share: that of a register among them, or else of the numbers."""
    found = next((x[1] for x in operands if isinstance(x, str)), None)
    numbers = "f" if any(isinstance(x, float) for x in operands) else "p" if isinstance(operands[0], bool) else "i"
    return found or numbers


def like(x: Operand, kind: str) -> Operand:
    return float(x) if kind == "f" and not isinstance(x, str) else x
