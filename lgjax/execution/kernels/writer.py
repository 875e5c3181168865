"""Lines of PTX, the assembly language of NVIDIA's GPUs, and their registers.

An operand is a register or a known number. The first letter of a register is its kind: %f a number of the program's
floating dtype, %i a 32-bit integer, %p a truth value, %q an address.

Read first: `Writer`. Next: `functions.py`.
"""

import struct
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
        if not isinstance(a, str) and a == 1:
            return self.operation("rcp.rn.f64" if self.double else "rcp.approx.ftz.f32", b)
        return self.operation("div.rn.f64" if self.double else "div.full.f32", a, b)


def is_float(x: Operand) -> bool:
    return x.startswith("%f") if isinstance(x, str) else isinstance(x, float)


def kind_of(*operands: Operand) -> str:
    """The kind of registers among operands that are alike, or that of numbers."""
    found = next((x[1] for x in operands if isinstance(x, str)), None)
    numbers = "f" if any(isinstance(x, float) for x in operands) else "p" if isinstance(operands[0], bool) else "i"
    return found or numbers


def like(x: Operand, kind: str) -> Operand:
    return float(x) if kind == "f" and not isinstance(x, str) else x
