"""A scalar program as a native function in LLVM's language (LLVM IR, as text), for a vector of systems at a time.

`@block` computes one vector of systems. The batch is the last axis of an array: for n systems, the values of number k
begin at index n k. `calling.py` writes the code around it, for a whole batch and for arrays with the batch in front.

Read first: `translation.py`, `llvm_writer.py`. Next: `stack.py`, `calling.py`, and `native.py`, which compiles and
runs it.
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from lgjax.execution.kernels.calling import MEMORY, Array, Calling, Interface
from lgjax.execution.kernels.llvm_writer import LlvmWriter
from lgjax.execution.kernels.memory import Memory, Ran, Repeated, Turns
from lgjax.execution.kernels.programs import BYTES, floating_dtype
from lgjax.execution.kernels.stack import Again, held, waiting
from lgjax.execution.kernels.translation import Translation
from lgjax.execution.kernels.writer import BOOL, kind_of, kind_of_dtype
from lgjax.execution.scalars.program import ScalarProgram
from lgjax.execution.scalars.regions import While

PIECE = 400  # lines of a basic block: LLVM's time for one grows with the square of its length
ALONE = "; one system, with arrays"  # first line of its module
# Bytes of the stack that a function may use. Threads have 8 MB under Linux, elsewhere as little as 512 kB.
ARRAYS, LEAST = 7 * 2**18, 4  # bytes of arrays with which a vector holds fewer systems, but so many
STACK, FRAME = (2**21, 2**22) if sys.platform == "linux" else (2**18, 3 * 2**17)  # of arrays; of all


def kernel_text(
    program: ScalarProgram,
    mapped: Sequence[bool],
    batch: bool,
    registers: int,
    interface: Interface,
    in_place: bool = False,
    front: Sequence[bool] = (),
) -> str:
    """The LLVM module of a program, as text.

    mapped: which arguments have a value for each system. batch: whether there is a batch; else the program runs for
    one system. registers: bytes of a vector register. in_place: results may overwrite arguments. front: which
    arguments, then which results, have the batch in front; () for none.
    Raises NotImplementedError, naming it, for an operation or a dtype that has no instruction.
    """
    dtype = floating_dtype(program)
    width = registers // (8 if dtype == "f64" else 4)
    front = front or (False,) * (len(program.inputs) + len(program.outputs))
    while True:
        body = _Body(LlvmWriter(dtype, width), program, mapped, in_place, front)
        try:
            body.write()
            body.wait(held(registers))
            calling = Calling(body.arrays, width, batch, interface, body.cost)
            _check_room(calling.scratch + body.saved, body.stacked)
            break
        except _WideError:
            if width <= LEAST:
                raise
            width //= 2
    head = [ALONE] if body.arena.size and not batch else []
    return "\n".join([*head, *body.block(), *calling.text(), *body.end(), *calling.declarations()]) + "\n"


class _WideError(NotImplementedError):
    """So many systems at a time would fill the cache, or the stack."""


def _check_room(arrays: int, stacked: int) -> None:  # bytes of arrays, and of numbers that wait
    if arrays > STACK:
        raise _WideError(f"more than {STACK} bytes that wait in memory or are saved by loops")
    if arrays + stacked > FRAME:
        raise _WideError(f"more than {FRAME} bytes of arrays and of numbers that have no register")


class _Body(Translation):
    """The lines of `@block`: the program for one vector of systems."""

    out: LlvmWriter
    LOCAL, GLOBAL = "%", "@"

    def __init__(
        self, out: LlvmWriter, program: ScalarProgram, mapped: Sequence[bool], in_place: bool, front: Sequence[bool]
    ):
        super().__init__(out, program, in_place, None)
        self.label = "begin"  # of the lines that are written now
        self.pieces = self.divided = self.loops = 0
        self.begun: dict[int, tuple] = {}  # of loops that are written now, what `_end` needs
        self.opened: list[tuple] = []  # of those that end by what they compute, what `_close` needs
        self.active: list[str] = []  # the registers that say which systems are still in them
        arguments = zip(program.inputs, program.dtypes, mapped, front, strict=False)
        results = zip(program.outputs, program.out_dtypes, front[len(program.inputs) :], strict=True)
        named = [Array(f"a{n}", nodes.size, t, True, b, f) for n, (nodes, t, b, f) in enumerate(arguments)]
        named += [Array(f"r{n}", nodes.size, t, False, True, f) for n, (nodes, t, f) in enumerate(results)]
        self.arrays = [x for x in named if x.count]
        self.again: dict[str, Again] = {}  # of numbers in memory over which nothing writes: how they are read again
        self.waiting = 0  # places for numbers on the stack
        self.array = {x.name: x for x in self.arrays}

    @property
    def cost(self) -> int:
        """About how many instructions a block takes."""
        return sum(self.program.operations.values())

    @property
    def saved(self) -> int:
        """Bytes of what loops save, and of arrays."""
        return sum(x.loop.count * x.bytes for x in self.ran) + self.array_bytes

    @property
    def stacked(self) -> int:
        """Bytes of the numbers that wait on the stack."""
        return self.waiting * self._width

    def wait(self, keep: int) -> None:
        """Let numbers wait on the stack, all but so many at a time."""
        self.out.hide_counters()
        self.out.lines, self.waiting = waiting(self.out, keep, self.again)

    def block(self) -> list[str]:
        stacks = [f"  {x.stack} = alloca [{x.loop.count * x.bytes} x i8], align {x.width}" for x in self.ran if x.saved]
        stacks += [f"  %arrays = alloca [{self.array_bytes} x i8], align {self._width}"] if self.arena.size else []
        stacks += [f"  %wait{k} = alloca {self.out.types['f']}, align {self._width}" for k in range(self.waiting)]
        return [
            f"define internal void @block({', '.join(f'ptr %{x.name}' for x in self.arrays)}, i64 %n) #0 {{",
            "begin:",
            *stacks,
            *self.out.lines,
            "  br label %out",
            "out:",
            "  ret void",
            "}",
        ]

    def end(self) -> list[str]:
        """Text after the functions: tables, declarations and metadata."""
        width = self.out.width * 8 * self.out.bytes
        return [
            *(self._table(n, numbers) for n, numbers in enumerate(self.numbers)),
            *self.out.declarations(),
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}',
            "!0 = !{}",
            "!1 = !{!3}",  # arguments, which results do not overlap
            "!2 = !{!4}",
            "!3 = distinct !{!3, !5}",
            "!4 = distinct !{!4, !5}",
            "!5 = distinct !{!5}",
        ]

    def _divide(self) -> None:
        """Begin the next piece, behind a jump that is always taken, which LLVM cannot see."""
        if len(self.out.lines) - self.divided < PIECE:
            return
        self.divided, self.pieces = len(self.out.lines), self.pieces + 1
        self.out.line(f"%on{self.pieces} = icmp sgt i64 %n, 0")
        self.label = f"piece{self.pieces}"
        self.out.line(f"br i1 %on{self.pieces}, label %{self.label}, label %out")
        self.out.lines.append(f"{self.label}:")

    # -- memory
    def _place(self, array: Array, k: int) -> str:
        """The address of number k of this vector of systems; `@range` has copied rows to columns of one vector each."""
        at = str(k * self.out.width if array.mapped and array.front else k)
        if array.mapped and not array.front and k:
            at = self._scalar(f"mul i64 %n, {k}")
        return self._scalar(f"getelementptr {array.memory}, ptr %{array.name}, i64 {at}")

    def _scalar(self, text: str) -> str:
        return self.out.operation(text, "q")

    def _aliasing(self, own: int, other: int) -> str:
        return "" if self.in_place else f", !alias.scope !{own}, !noalias !{other}"

    def _load(self, leaf: int, k: int) -> str:
        array = self.array[f"a{leaf}"]
        found = self._number(array, k, "load", "" if self.in_place else ", !invariant.load !0")
        if not self.in_place and (array.front or not array.mapped):  # the others' addresses wait for a product
            self.again[found] = partial(self._read_again, array, k)
        return found

    def _number(self, array: Array, k: int, load: str, fixed: str = "") -> str:
        place = self._place(array, k)
        if not array.mapped:
            found = self._scalar(f"{load} {array.memory}, ptr {place}, align {array.bytes}{fixed}")
            return self._to_all(found, array.dtype)
        vector, aliasing = f"<{self.out.width} x {array.memory}>", self._aliasing(1, 2)
        kind = kind_of_dtype(array.dtype)
        found = self.out.operation(f"{load} {vector}, ptr {place}, align {array.bytes}{aliasing}", kind)
        return self._from_memory(found, array.dtype)

    def _read_again(self, array: Array, k: int) -> list[str]:
        before, self.out.lines = self.out.lines, []
        self._number(array, k, "load volatile")
        lines, self.out.lines = self.out.lines, before
        return lines

    def _from_memory(self, x: str, dtype: np.dtype) -> str:
        return self.out.operation(f"icmp ne <{self.out.width} x i8> {x}, zeroinitializer", "p") if dtype == BOOL else x

    def _to_all(self, x: str, dtype: np.dtype) -> str:
        """A number in all lanes of a vector."""
        width, memory, kind = self.out.width, MEMORY[dtype.name], kind_of_dtype(dtype)
        first = self._scalar(f"insertelement <{width} x {memory}> poison, {memory} {x}, i64 0")
        vector = f"<{width} x {memory}>"
        spread = f"shufflevector {vector} {first}, {vector} poison, <{width} x i32> zeroinitializer"
        return self._from_memory(self.out.operation(spread, kind), dtype)

    def _to_memory(self, x: Any, dtype: np.dtype) -> str:
        """The type and the value that are stored."""
        kind, vector = kind_of_dtype(dtype), f"<{self.out.width} x {MEMORY[dtype.name]}>"
        if dtype == BOOL:
            x = self.out.operation(f"zext {self.out.types['p']} {self.out.text(x, 'p')} to {vector}", "i")
        return f"{vector} {self.out.text(x, kind)}"

    def _store(self, n: int, k: int, value: Any) -> None:
        array = self.array[f"r{n}"]
        place, value = self._place(array, k), self._to_memory(value, array.dtype)
        self.out.line(f"store {value}, ptr {place}, align {array.bytes}{self._aliasing(2, 1)}")

    def _table(self, n: int, numbers: tuple) -> str:
        scalar, entries = self._entries(numbers)
        return f"@table{n} = internal constant [{len(numbers)} x {scalar}] [{entries}]"

    def _entries(self, numbers: tuple) -> tuple[str, str]:
        kind = kind_of(*numbers)
        scalar = {"f": self.out.scalar, "i": "i32", "p": "i8"}[kind]
        text = (lambda x: self.out.text(x)[len("splat (") : -1]) if kind == "f" else (lambda x: f"{scalar} {int(x)}")
        return scalar, ", ".join(map(text, numbers))

    # -- loops
    def _turns(self, count: int, start: list[Any], dtypes: list[np.dtype]) -> Turns:
        self.loops += 1
        number, kinds = self.loops, [kind_of_dtype(x) for x in dtypes]
        turns = Turns(count, f"%turn{number}", [self.out.register(kind) for kind in kinds], dtypes, number)
        before, self.label = self.label, f"loop{number}"
        self.out.line(f"br label %{self.label}")
        self.out.lines.append(f"{self.label}:")
        self.out.line(f"{turns.turn} = phi i64 [0, %{before}], [%next{number}, %last{number}]")
        self.begun[number] = len(self.out.lines), before, start, kinds
        self.out.lines += [""] * (len(kinds) + 1)  # what comes from the end of a turn is known there
        self.places.append({})
        return turns

    def _again(self, turns: Turns, following: list[Any]) -> None:
        self.places.pop()
        number = turns.number
        place, before, start, kinds = self.begun.pop(number)
        self.out.line(f"br label %last{number}")
        self.out.lines.append(f"last{number}:")
        for k, (x, first, then, kind) in enumerate(zip(turns.carried, start, following, kinds, strict=True)):
            ways = f"[{self.out.text(first, kind)}, %{before}], [{self.out.text(then, kind)}, %last{number}]"
            self.out.lines[place + k] = f"  {x} = phi {self.out.types[kind]} {ways}"
        self.out.counters.append((place - 1, place + len(kinds)))
        self.out.line(f"%next{number} = add i64 {turns.turn}, 1")
        self.out.line(f"%again{number} = icmp slt i64 %next{number}, {turns.count}")
        self.label = f"after{number}"
        self.out.line(f"br i1 %again{number}, label %loop{number}, label %{self.label}")
        self.out.lines.append(f"{self.label}:")
        turns.carried = following

    def _open(self, loop: While, number: int, going: Any, start: list[Any]) -> Repeated:
        """Systems that are done wait for the others of their vector: they keep what they carry."""
        going = going if isinstance(going, str) else self.out.truth(going)
        first = self.out.logical("and", going, self.active[-1]) if self.active else going
        repeated = Repeated(loop, number, [], going=self.out.register("p"))
        repeated.carried = [self.out.register(kind) for kind in repeated.kinds]
        before, head = self.label, f"while{number}"
        self.out.line(f"br label %{head}")
        self.out.lines.append(f"{head}:")
        place = len(self.out.lines)
        self.out.lines += [""] * (1 + len(start))
        some = self.out.some(repeated.going)
        self.label = f"in{number}"
        self.out.line(f"br i1 {some}, label %{self.label}, label %behind{number}")
        self.out.lines.append(f"{self.label}:")
        self.active.append(repeated.going)
        self.places.append({})
        self.opened.append((place, before, [first, *start]))
        return repeated

    def _close(self, repeated: Repeated, again: Any, following: list[Any], read: set[int]) -> None:
        number, active = repeated.number, self.active.pop()
        self.places.pop()
        place, before, start = self.opened.pop()
        carried = enumerate(zip(following, repeated.carried, repeated.kinds, strict=True))
        kept = [self.out.select(active, x, old, kind) if k in read else x for k, (x, old, kind) in carried]
        again = again if isinstance(again, str) else self.out.truth(again)
        again = self.out.logical("and", active, again)
        last = f"end{number}"
        self.out.line(f"br label %{last}")
        self.out.lines.append(f"{last}:")
        self.out.line(f"br label %while{number}")
        registers, kinds = [repeated.going, *repeated.carried], ["p", *repeated.kinds]
        for k, (x, a, b, kind) in enumerate(zip(registers, start, [again, *kept], kinds, strict=True)):
            ways = f"[{self.out.text(a, kind)}, %{before}], [{self.out.text(b, kind)}, %{last}]"
            self.out.lines[place + k] = f"  {x} = phi {self.out.types[kind]} {ways}"
        self.label = f"behind{number}"
        self.out.lines.append(f"{self.label}:")

    # -- arrays in memory
    @property
    def _width(self) -> int:
        return self.out.width * self.out.bytes

    def _new(self, length: int, dtype: np.dtype) -> Memory:
        found = super()._new(length, dtype)
        if self.array_bytes > ARRAYS and self.out.width > LEAST:
            raise _WideError
        return found

    def _argument(self, leaf: int, length: int, dtype: np.dtype) -> Memory:
        array = self.array[f"a{leaf}"]
        given = ("columns" if array.front else "batch") if array.mapped else ""
        return Memory(f"%{array.name}", length, dtype, known=not array.mapped, given=given)

    def _element(self, memory: Memory) -> str:
        """The type of a number, and of what is one number further."""
        name = MEMORY[memory.dtype.name]
        if memory.known or memory.given == "batch":
            return name
        return f"[{self.out.width} x {name}]" if memory.given else f"[{self._width} x i8]"

    def _further(self, memory: Memory, offset: str | int) -> str | int:
        """So many numbers further, in elements."""
        return self._scalar(f"mul i64 %n, {offset}") if memory.given == "batch" and offset else offset

    def _place_at(self, memory: Memory, steps: tuple, turns: list[str]) -> str:
        address = memory.place
        for step, turn in zip(steps, turns, strict=True):
            if isinstance(step, tuple):
                table = self._table_of(step, np.dtype("int32")).place
                place = self._scalar(f"getelementptr i32, ptr {table}, i64 {turn}")
                offset = self._scalar(f"load i32, ptr {place}")
                offset = self._scalar(f"sext i32 {offset} to i64")
            else:
                offset = turn if step == 1 else self._scalar(f"mul i64 {turn}, {step}")
            offset = self._further(memory, offset)
            address = self._scalar(f"getelementptr {self._element(memory)}, ptr {address}, i64 {offset}")
        return address

    def _read(self, memory: Memory, address: str, first: int) -> str:
        name, element = MEMORY[memory.dtype.name], self._element(memory)
        further = self._further(memory, first + memory.first)
        place = self._scalar(f"getelementptr {element}, ptr {address}, i64 {further}") if further else address
        if memory.known:
            return self._to_all(self._scalar(f"load {name}, ptr {place}"), memory.dtype)
        align = BYTES[memory.dtype.name] * (1 if memory.given else self.out.width)
        found = f"load <{self.out.width} x {name}>, ptr {place}, align {align}"
        return self._from_memory(self.out.operation(found, kind_of_dtype(memory.dtype)), memory.dtype)

    def _pick(self, memory: Memory, address: str, first: int, number: str) -> str:
        width, name, element = self.out.width, MEMORY[memory.dtype.name], self._element(memory)
        if further := self._further(memory, first + memory.first):
            address = self._scalar(f"getelementptr {element}, ptr {address}, i64 {further}")
        found = "poison"
        for lane in range(width):
            own = self._scalar(f"extractelement {self.out.types['i']} {number}, i64 {lane}")
            offset = self._further(memory, self._scalar(f"sext i32 {own} to i64"))
            place = self._scalar(f"getelementptr {element}, ptr {address}, i64 {offset}")
            if lane and not memory.known:
                place = self._scalar(f"getelementptr {name}, ptr {place}, i64 {lane}")
            own = self._scalar(f"load {name}, ptr {place}")
            found = self._scalar(f"insertelement <{width} x {name}> {found}, {name} {own}, i64 {lane}")
        vector = f"<{width} x {name}>"
        kind = kind_of_dtype(memory.dtype)
        return self._from_memory(self.out.operation(f"bitcast {vector} {found} to {vector}", kind), memory.dtype)

    def _write(self, memory: Memory, address: str, first: int, value: Any, waits: bool = False) -> None:
        first += memory.first
        place = self._scalar(f"getelementptr {self._element(memory)}, ptr {address}, i64 {first}") if first else address
        align = self.out.width * BYTES[memory.dtype.name]
        # Of what is loaded, chosen and stored LLVM makes a store with a mask, which takes AMD's processors ten times as
        # long as a choice and a store; not of what is volatile.
        store = "store volatile" if waits else "store"
        self.out.line(f"{store} {self._to_memory(value, memory.dtype)}, ptr {place}, align {align}")

    def _waiting(self, new: Any, old: Any, kind: str) -> Any:
        return self.out.select(self.active[-1], new, old(), kind)

    # -- what a loop saves, in memory of the thread
    def _at_turn(self, ran: Ran, turn: str, backwards: bool) -> str:
        turn = self._scalar(f"sub i64 {ran.loop.count - 1}, {turn}") if backwards else turn
        offset = self._scalar(f"mul i64 {turn}, {ran.bytes}")
        return self._scalar(f"getelementptr i8, ptr {ran.stack}, i64 {offset}")

    def _save(self, ran: Ran, k: int, address: str, value: Any) -> None:
        place = self._scalar(f"getelementptr i8, ptr {address}, i64 {k * ran.width}")
        self.out.line(f"store {self._to_memory(value, ran.saved[k])}, ptr {place}, align {BYTES[ran.saved[k].name]}")

    def _load_saved(self, ran: Ran, k: int, address: str, turn: int = 0) -> str:
        dtype = ran.saved[k]
        place = self._scalar(f"getelementptr i8, ptr {address}, i64 {turn * ran.bytes + k * ran.width}")
        vector = f"<{self.out.width} x {MEMORY[dtype.name]}>"
        found = self.out.operation(f"load {vector}, ptr {place}, align {BYTES[dtype.name]}", kind_of_dtype(dtype))
        return self._from_memory(found, dtype)
