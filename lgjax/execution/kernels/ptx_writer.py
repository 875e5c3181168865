"""Instructions in PTX, the assembly language of NVIDIA's GPUs: one register holds one number of one system.

Read first: `writer.py`.
"""

import struct
from typing import Any

import numpy as np

from lgjax.execution.kernels.writer import Operand, Writer

TYPES = {"i": "u32", "p": "pred", "q": "u64"}  # %q: an address
INTEGERS = {"mul": "mul.lo.s32", "mad": "mad.lo.s32"} | {x: f"{x}.b32" for x in ("and", "or", "xor", "not", "shl")}
ROUNDED = {"down": "rmi", "up": "rpi", "even": "rni"}


class PtxWriter(Writer):
    """Lines of a kernel in PTX."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.types = TYPES | {"f": dtype}

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

    # -- floating numbers
    def floating(self, name: str, *operands: Operand, exact: bool = False) -> str:
        return self.operation(f"{name}.rn." if exact else f"{name}.", *operands)

    def fma(self, a: Operand, b: Operand, c: Operand) -> str:
        return self.operation("fma.rn.", a, b, c)

    def quotient(self, a: Operand, b: Operand) -> str:
        if not isinstance(a, str) and a == 1:
            return self.operation("rcp.rn.f64" if self.double else "rcp.approx.ftz.f32", b)
        return self.operation("div.rn.f64" if self.double else "div.full.f32", a, b)

    def root(self, x: str) -> str:
        return self.operation("sqrt.rn.f64" if self.double else "sqrt.approx.f32", x)

    def inverse_root(self, x: str) -> str:
        return self.quotient(1.0, self.root(x)) if self.double else self.operation("rsqrt.approx.f32", x)

    def rounded(self, direction: str, x: str) -> str:
        return self.operation(f"cvt.{ROUNDED[direction]}.{self.dtype}.{self.dtype}", x)

    # -- integers and truth values
    def integer(self, name: str, *operands: Operand) -> str:
        return self.operation(INTEGERS.get(name, f"{name}.s32"), *operands, kind="i")

    def logical(self, name: str, *operands: str) -> str:
        return self.operation(f"{name}.pred", *operands, kind="p")

    def truth(self, x: bool) -> str:
        return self.nonzero(self.operation("mov.u32", int(x), kind="i"))

    # -- comparisons and choices
    def extreme(self, sign: int, a: Operand, b: Operand) -> Operand:
        if self.double:
            return super().extreme(sign, a, b)
        return self.operation("max.NaN.f32" if sign > 0 else "min.NaN.f32", a, b)

    def compare(self, test: str, a: Operand, b: Operand, kind: str = "f") -> str:
        test = "neu" if test == "ne" and kind == "f" else test
        return self.operation(f"setp.{test}." + ("" if kind == "f" else "s32"), a, b, kind="p")

    def nonzero(self, x: str) -> str:
        return self.operation("setp.ne.u32", x, 0, kind="p")

    def select(self, test: str, yes: Operand, no: Operand, kind: str = "f") -> str:
        if kind == "p":
            yes, no = (
                self.operation("selp.u32", 1, 0, x, kind="i") if isinstance(x, str) else int(x) for x in (yes, no)
            )
            return self.nonzero(self.operation("selp.u32", yes, no, test, kind="i"))
        return self.operation("selp." if kind == "f" else "selp.u32", yes, no, test, kind=kind)

    # -- from one kind to another
    def to_floating(self, x: str) -> str:
        return self.operation(f"cvt.rn.{self.dtype}.s32", x)

    def to_integer(self, x: str) -> str:
        return self.operation(f"cvt.rzi.s32.{self.dtype}", x, kind="i")

    def low_word(self, x: str) -> str:
        if not self.double:
            return self.operation("mov.b32", x, kind="i")
        low, unused = self.register("i"), self.register("i")
        self.line(f"mov.b64 {{{low}, {unused}}}, {x};")
        return low

    def high_word(self, x: str) -> str:
        if not self.double:
            return self.low_word(x)
        unused, high = self.register("i"), self.register("i")
        self.line(f"mov.b64 {{{unused}, {high}}}, {x};")
        return high

    def with_high_word(self, x: str, word: str) -> str:
        if not self.double:
            return self.operation("mov.b32", word)
        low, found = self.low_word(x), self.register("f")
        self.line(f"mov.b64 {found}, {{{low}, {word}}};")
        return found

    def sign_flipped(self, x: str, bit: str) -> str:
        if not self.double:
            bits = self.operation("xor.b32", self.operation("mov.b32", x, kind="i"), bit, kind="i")
            return self.operation("mov.b32", bits)
        low, high, found = self.register("i"), self.register("i"), self.register("f")
        self.line(f"mov.b64 {{{low}, {high}}}, {x};")
        high = self.operation("xor.b32", high, bit, kind="i")
        self.line(f"mov.b64 {found}, {{{low}, {high}}};")
        return found

    def power_of_two(self, k: str) -> str:
        """Set the bits of the exponent."""
        biased = self.operation("add.s32", k, 1023 if self.double else 127, kind="i")
        bits = self.operation("shl.b32", biased, 20 if self.double else 23, kind="i")
        if not self.double:
            return self.operation("mov.b32", bits)
        found, zero = self.register("f"), self.operation("mov.b32", 0, kind="i")
        self.line(f"mov.b64 {found}, {{{zero}, {bits}}};")
        return found

    def constant(self, x: Any, kind: str) -> str:
        if kind == "p":
            return self.truth(x)
        return self.operation("mov.", float(x)) if kind == "f" else self.operation("mov.u32", int(x), kind="i")
