"""Instructions in LLVM's language. A register is a vector: it holds one number of each of `width` systems.

Read first: `writer.py`.
"""

import struct
from typing import Any

import numpy as np

from lgjax.execution.kernels.writer import Operand, Writer

FLOATING = {"add": "fadd", "sub": "fsub", "mul": "fmul"}
INTRINSICS = {"abs": "fabs", "min": "minnum", "max": "maxnum"}
ROUNDED = {"down": "floor", "up": "ceil", "even": "rint"}
INTEGERS = {x: x for x in ("add", "sub", "mul", "and", "or", "xor", "shl")} | {"shr": "ashr"}
COMPARED = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une", "num": "ord"}
LEAST = -(2**31)
HIDDEN = 60_000  # lines of a function of whose loops LLVM cannot see the counters


class LlvmWriter(Writer):
    """Lines of a kernel in LLVM's language, in which a name is assigned once.

    declared: intrinsics that are called. counters: of each loop the line of its counter, and a free one behind it.
    """

    def __init__(self, dtype: str, width: int):
        super().__init__(dtype)
        self.width = width
        self.scalar = "double" if self.double else "float"
        self.bytes = 8 if self.double else 4
        self.types = {"f": f"<{width} x {self.scalar}>", "i": f"<{width} x i32>", "p": f"<{width} x i1>"}
        self.bits = f"<{width} x i{8 * self.bytes}>"  # of a floating number
        self.declared: dict[str, str] = {}
        self.counters: list[tuple[int, int]] = []

    def operation(self, text: str, kind: str = "f") -> str:
        """The register of an operation."""
        found = self.register(kind)
        self.line(f"{found} = {text}")
        return found

    def hide_counters(self) -> None:
        """In a long function: LLVM would write addresses as increments, which takes it as long as all else there."""
        if len(self.lines) > HIDDEN:
            for line, place in self.counters:
                counter, phi = self.lines[line].split(" = ")
                self.lines[line] = f"{counter}_ = {phi}"
                self.lines[place] = f'{counter} = call i64 asm "", "=r,0"(i64 {counter.strip()}_)'

    def text(self, x: Operand, kind: str = "f") -> str:
        """An operand as LLVM writes it: floating numbers by the bits of a double, also in float32."""
        if isinstance(x, str):
            return x
        if kind == "p":
            return f"splat (i1 {str(bool(x)).lower()})"
        if kind == "i":
            return f"splat (i32 {int(x)})"
        with np.errstate(over="ignore"):
            number = float(x) if self.double else float(np.float32(x))
        return f"splat ({self.scalar} 0x{struct.pack('>d', number).hex().upper()})"

    def call(self, name: str, *operands: Operand, kind: str = "f") -> str:
        """A call of an intrinsic of LLVM on vectors of one kind."""
        suffix = f"v{self.width}" + ({"f": "f64" if self.double else "f32", "i": "i32"}[kind])
        vector = self.types[kind]
        extra = ", i1 false" if name == "abs" else ""  # of integers: the least stays as it is
        self.declared[f"llvm.{name}.{suffix}"] = f"{vector} ({', '.join([vector] * len(operands))}{extra and ', i1'})"
        given = ", ".join(f"{vector} {self.text(x, kind)}" for x in operands) + extra
        return self.operation(f"call {vector} @llvm.{name}.{suffix}({given})", kind)

    def declarations(self) -> list[str]:
        return [f"declare {x.replace(' (', f' @{name}(', 1)}" for name, x in sorted(self.declared.items())]

    # -- floating numbers
    def floating(self, name: str, *operands: Operand, exact: bool = False) -> str:
        if name == "neg":
            return self.operation(f"fneg {self.types['f']} {self.text(operands[0])}")
        if name == "copysign":
            return self.call("copysign", *reversed(operands))
        if name in INTRINSICS:
            return self.call(INTRINSICS[name], *operands)
        return self.operation(f"{FLOATING[name]} {self.types['f']} {', '.join(map(self.text, operands))}")

    def fma(self, a: Operand, b: Operand, c: Operand) -> str:
        return self.call("fma", a, b, c)

    def quotient(self, a: Operand, b: Operand) -> str:
        return self.operation(f"fdiv {self.types['f']} {self.text(a)}, {self.text(b)}")

    def root(self, x: str) -> str:
        return self.call("sqrt", x)

    def inverse_root(self, x: str) -> str:
        return self.quotient(1.0, self.root(x))

    def rounded(self, direction: str, x: str) -> str:
        return self.call(ROUNDED[direction], x)

    # -- integers and truth values
    def integer(self, name: str, *operands: Operand) -> str:
        if name in INTEGERS:
            return self._integers(INTEGERS[name], operands[0], operands[1])
        if name == "mad":
            return self._integers("add", self._integers("mul", operands[0], operands[1]), operands[2])
        if name == "neg":
            return self._integers("sub", 0, operands[0])
        if name == "not":
            return self._integers("xor", operands[0], -1)
        if name in ("div", "rem"):
            return self._divided(name, operands[0], operands[1])
        return self.call({"min": "smin", "max": "smax"}.get(name, name), *operands, kind="i")

    def _integers(self, name: str, a: Operand, b: Operand) -> str:
        return self.operation(f"{name} {self.types['i']} {self.text(a, 'i')}, {self.text(b, 'i')}", "i")

    def _divided(self, name: str, a: Operand, b: Operand) -> str:
        """As in XLA. By zero: the quotient -1, the remainder a. The least integer by -1: itself, the remainder 0."""
        zero = self.compare("eq", b, 0, "i")
        over = self.logical("and", self.compare("eq", a, LEAST, "i"), self.compare("eq", b, -1, "i"))
        safe = self.select(self.logical("or", zero, over), 1, b, "i")
        found = self._integers("sdiv" if name == "div" else "srem", a, safe)
        return self.select(zero, -1 if name == "div" else a, found, "i")

    def logical(self, name: str, *operands: Operand) -> str:
        a, b = operands if len(operands) == 2 else (operands[0], True)
        name = "xor" if name == "not" else name
        return self.operation(f"{name} {self.types['p']} {self.text(a, 'p')}, {self.text(b, 'p')}", "p")

    def some(self, x: Operand) -> str:
        """Whether a truth value is true for any of the systems, as one bit."""
        vector, name = self.types["p"], f"llvm.vector.reduce.or.v{self.width}i1"
        self.declared[name] = f"i1 ({vector})"
        return self.operation(f"call i1 @{name}({vector} {self.text(x, 'p')})", "q")

    def truth(self, x: bool) -> str:
        return self.constant(x, "p")

    # -- comparisons and choices
    def compare(self, test: str, a: Operand, b: Operand, kind: str = "f") -> str:
        a, b = self.text(a, kind), self.text(b, kind)
        if kind == "f":
            return self.operation(f"fcmp {COMPARED[test]} {self.types['f']} {a}, {b}", "p")
        test = test if test in ("eq", "ne") else f"s{test}"
        return self.operation(f"icmp {test} {self.types['i']} {a}, {b}", "p")

    def nonzero(self, x: str) -> str:
        return self.compare("ne", x, 0, "i")

    def select(self, test: str, yes: Operand, no: Operand, kind: str = "f") -> str:
        vector = self.types[kind]
        choices = f"{vector} {self.text(yes, kind)}, {vector} {self.text(no, kind)}"
        return self.operation(f"select {self.types['p']} {self.text(test, 'p')}, {choices}", kind)

    # -- from one kind to another
    def to_floating(self, x: str) -> str:
        return self.operation(f"sitofp {self.types['i']} {x} to {self.types['f']}")

    def to_integer(self, x: str) -> str:
        name = f"llvm.fptosi.sat.v{self.width}i32.v{self.width}f{8 * self.bytes}"
        self.declared[name] = f"{self.types['i']} ({self.types['f']})"
        return self.operation(f"call {self.types['i']} @{name}({self.types['f']} {x})", "i")

    def low_word(self, x: str) -> str:
        bits = self.operation(f"bitcast {self.types['f']} {x} to {self.bits}", "i")
        return self.operation(f"trunc {self.bits} {bits} to {self.types['i']}", "i") if self.double else bits

    def high_word(self, x: str) -> str:
        if not self.double:
            return self.low_word(x)
        bits = self.operation(f"bitcast {self.types['f']} {x} to {self.bits}", "i")
        high = self.operation(f"lshr {self.bits} {bits}, splat (i64 32)", "i")
        return self.operation(f"trunc {self.bits} {high} to {self.types['i']}", "i")

    def with_high_word(self, x: str, word: str) -> str:
        if not self.double:
            return self.operation(f"bitcast {self.bits} {word} to {self.types['f']}")
        bits = self.operation(f"bitcast {self.types['f']} {x} to {self.bits}", "i")
        low = self.operation(f"and {self.bits} {bits}, splat (i64 {2**32 - 1})", "i")
        both = self.operation(f"or {self.bits} {low}, {self._high(word)}", "i")
        return self.operation(f"bitcast {self.bits} {both} to {self.types['f']}")

    def sign_flipped(self, x: str, bit: str) -> str:
        bits = self.operation(f"bitcast {self.types['f']} {x} to {self.bits}", "i")
        bit = self._high(bit)
        found = self.operation(f"xor {self.bits} {bits}, {bit}", "i")
        return self.operation(f"bitcast {self.bits} {found} to {self.types['f']}")

    def _high(self, word: str) -> str:
        """An integer as the high 32 bits of a floating number."""
        if not self.double:
            return word
        wide = self.operation(f"zext {self.types['i']} {word} to {self.bits}", "i")
        return self.operation(f"shl {self.bits} {wide}, splat (i64 32)", "i")

    def power_of_two(self, k: str) -> str:
        """Set the bits of the exponent."""
        biased = self._integers("add", k, 1023 if self.double else 127)
        bits = self._high(self._integers("shl", biased, 20 if self.double else 23))
        return self.operation(f"bitcast {self.bits} {bits} to {self.types['f']}")

    def constant(self, x: Any, kind: str) -> str:
        vector = self.types[kind]
        return self.operation(f"bitcast {vector} {self.text(x, kind)} to {vector}", kind)
