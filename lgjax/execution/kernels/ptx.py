"""A scalar program as the text of a CUDA kernel (PTX), one system per thread.

The batch is the last axis of an array: for n systems, number k of it begins at n k, so that neighboring threads read
neighboring numbers; `rows.py` has arrays with the batch in front, and what is the same for all systems.

Read first: `translation.py`, `ptx_writer.py`. Next: `rows.py`, `spills.py`, `cuda.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from lgjax.execution.kernels.memory import Memory, Ran, Repeated, Turns
from lgjax.execution.kernels.programs import floating_dtype
from lgjax.execution.kernels.ptx_writer import PtxWriter
from lgjax.execution.kernels.rows import THREADS, Shared
from lgjax.execution.kernels.spills import SHARED, spilled, time_of, with_fewer_blocks
from lgjax.execution.kernels.translation import Translation
from lgjax.execution.kernels.writer import BOOL, kind_of
from lgjax.execution.scalars.program import ScalarProgram
from lgjax.execution.scalars.regions import While

VERSION, TARGET = "7.4", "sm_80"  # what the driver compiles for the device at hand when a program is loaded
NAME = "lgjax_kernel"
FAR = 2**31 - 1  # the largest offset of an address
LOCAL = 2**16  # bytes of a thread in local memory: the device reserves them for all threads that it can hold
# Bytes of a thread in local memory with which five blocks of a multiprocessor are faster than eight, as each has more
# shared memory. Measured on an H200: by 16 to 27 percent with 550 to 1400 bytes. Slower by 18 percent with 250 bytes,
# by 31 with 4100, and by 18 to 28 in loops, whose turns fetch their instructions again.
MUCH = range(400, 2048)
MEMORY = {"float32": ("f32", 4), "float64": ("f64", 8), "int32": ("s32", 4), "bool": ("u8", 1)}


@dataclass(frozen=True)
class Kernel:
    """A kernel's text and what a launch needs: `blocks` of `threads` each."""

    name: str
    text: str
    blocks: int
    threads: int


def kernel(
    program: ScalarProgram,
    mapped: Sequence[bool],
    size: int,
    in_place: bool = False,
    front: Sequence[bool] = (),
    shared: int | None = None,
) -> Kernel:
    """The kernel of a program for `size` systems.

    Its parameters are pointers to the arguments and the results of the program. Results, and arguments marked in
    `mapped`, have a value for each system; empty arrays are left out.

    in_place: results may overwrite arguments. front: which arguments, then which results, have the batch in front; ()
    for none. shared: bytes of shared memory that a block may use if eight fit on a multiprocessor, by default on an
    H100. Raises NotImplementedError, naming it, for an operation or a dtype that it does not know.
    """
    dtype = floating_dtype(program)
    block = SHARED if shared is None else shared

    def best(block: int) -> _Body:
        make = lambda k: _Body(PtxWriter(dtype), program, mapped, size, in_place, front, block, k)
        bodies = [make(k) for k in range(len(program.orders))]
        for body in bodies:
            body.write()
        return min(bodies, key=lambda body: body.cost)

    body = best(block)
    if not body.ran and body.memory.own_bytes in MUCH:
        body = best(with_fewer_blocks(block))
    return Kernel(NAME, body.text, -(-size // THREADS), THREADS)


class _Body(Translation):
    """The lines of a kernel in PTX."""

    out: PtxWriter

    def __init__(
        self,
        out: PtxWriter,
        program: ScalarProgram,
        mapped: Sequence[bool],
        size: int,
        in_place: bool,
        front: Sequence[bool],
        block: int,
        which: int,
    ):
        """block: bytes of shared memory of a block. which: of the orders of each region."""
        super().__init__(out, program, in_place, which)
        self.mapped, self.size, self.block = mapped, size, block
        rows = [(x.size, t.itemsize) for x, t in zip(program.inputs, program.dtypes, strict=True)]
        rows += [(x.size, t.itemsize) for x, t in zip(program.outputs, program.out_dtypes, strict=True)]
        self.shared = Shared(rows, len(program.inputs), front, size)
        read = lambda nodes: sum(node.index in program.used for node in nodes.flat)
        common = [(f"a{n}", *rows[n], read(nodes)) for n, nodes in enumerate(program.inputs) if not mapped[n]]
        self.shared.hold(common, block)
        self.pointers: dict[str, tuple[int, bool]] = {}
        self.turns: dict[int, int] = {}  # of each label
        self.labels: list[int] = []  # of the loops that are written now

    def write(self) -> None:
        """The lines between the first and the last ones."""
        super().write()
        self.before = list(self.shared.begin())
        self.computed, self.memory = spilled(self.out.lines, self.out.dtype, self.shared.bytes, self.block, self.counts)

    @property
    def counts(self) -> list[int]:
        """The turns of each loop, of those that end by what they compute as they are estimated."""
        return [count for _, count in sorted(self.turns.items())]

    @property
    def waiting_bytes(self) -> int:
        """Bytes of local memory: numbers that wait there, those that loops save, and arrays."""
        return self.memory.own_bytes + sum(x.loop.count * x.bytes for x in self.ran) + self.array_bytes

    @property
    def cost(self) -> float:
        """About how many lines' time it takes."""
        return time_of(self.computed, self.counts) if self.waiting_bytes <= LOCAL else inf

    @property
    def text(self) -> str:
        pointers = [f"a{n}" for n, nodes in enumerate(self.program.inputs) if nodes.size]
        pointers += [f"r{n}" for n, out in enumerate(self.program.outputs) if out.size]
        widths = sorted({width for width, mapped in self.pointers.values() if mapped})
        if self.waiting_bytes > LOCAL:
            raise NotImplementedError(f"more than {LOCAL} bytes that wait in memory or are saved by loops")
        lines = [
            f".version {VERSION}",
            f".target {TARGET}",
            ".address_size 64",
            *(self._table(n, numbers) for n, numbers in enumerate(self.numbers)),
            f".visible .entry {NAME}({', '.join(f'.param .u64 {p}' for p in pointers)})",
            f".reqntid {THREADS}",
            "{",
            "  .reg .u32 %system, %block, %thread;",
            "  .reg .pred %outside;",
            *(f"  .reg .u64 %at{width};" for width in widths),
            *(f"  .reg .u64 %{p};" for p in self.pointers),
            *(f"  .local .align 8 .b8 {x.stack}[{x.loop.count * x.bytes}];" for x in self.ran if x.saved),
            *([f"  .local .align 8 .b8 arrays[{self.array_bytes}];"] if self.arena.size else []),
            *self.out.declarations(),
            *self.memory.declarations(),
            "  mov.u32 %block, %ctaid.x;",
            "  mov.u32 %thread, %tid.x;",
            f"  mad.lo.u32 %system, %block, {THREADS}, %thread;",
            *self.memory.begin(*pointers[:1]),
            *self.before,
            f"  setp.ge.u32 %outside, %system, {self.size};",
            "  @%outside bra DONE;",
            *(f"  mul.wide.u32 %at{width}, %system, {width};" for width in widths),
        ]
        for p, (width, mapped) in self.pointers.items():
            lines += [f"  ld.param.u64 %{p}, [{p}];", f"  cvta.to.global.u64 %{p}, %{p};"]
            lines += [f"  add.u64 %{p}, %{p}, %at{width};"] if mapped else []
        return "\n".join([*lines, *self.computed, "DONE:", *self.shared.end(), "  ret;", "}"]) + "\n"

    # -- memory
    def _address(self, pointer: str, k: int, width: int, mapped: bool) -> str:
        self.pointers[pointer] = width, mapped
        offset = k * width * (self.size if mapped else 1)
        if offset <= FAR:
            return f"[%{pointer}+{offset}]"
        return f"[{self.out.operation('add.u64', f'%{pointer}', offset, kind='q')}]"

    def _load(self, leaf: int, k: int) -> str:
        """Number k of an argument."""
        dtype = self.program.dtypes[leaf]
        suffix, width = MEMORY[dtype.name]
        kind = "f" if suffix.startswith("f") else "i"
        if f"a{leaf}" in self.shared.rows:
            return self.out.operation(f"ld.shared.{suffix}", self.shared.to_read(f"a{leaf}", k), kind=kind)
        if there := self.shared.to_all(f"a{leaf}", k):
            return self.out.operation(f"ld.shared.{suffix}", there, kind=kind)
        address = self._address(f"a{leaf}", k, width, self.mapped[leaf])
        found = self.out.operation(f"ld.global{'' if self.in_place else '.nc'}.{suffix}", address, kind=kind)
        return self.out.operation("setp.ne.u32", found, 0, kind="p") if dtype == BOOL else found

    def _store(self, n: int, k: int, value: Any) -> None:
        dtype = self.program.out_dtypes[n]
        suffix, width = MEMORY[dtype.name]
        if not isinstance(value, str):
            value = self._register(value, dtype)
        if dtype == BOOL:
            value = self.out.operation("selp.u32", 1, 0, value, kind="i")
        if f"r{n}" in self.shared.rows:
            self.out.line(f"st.shared.{suffix} {self.shared.to_write(f'r{n}', k)}, {value};")
        else:
            self.out.line(f"st.global.{suffix} {self._address(f'r{n}', k, width, True)}, {value};")

    def _table(self, n: int, numbers: tuple) -> str:
        kind = kind_of(*numbers)
        entries = ", ".join(map(self.out.text, map(float if kind == "f" else int, numbers)))
        return (
            f".const .align 8 .{self.out.types['f' if kind == 'f' else 'i']} table{n}[{len(numbers)}] = {{{entries}}};"
        )

    # -- loops
    def _turns(self, count: int, start: list[Any], dtypes: list[np.dtype]) -> Turns:
        carried = [self._copy(x, dtype) for x, dtype in zip(start, dtypes, strict=True)]
        turn = self.out.operation("mov.u32", 0, kind="i")
        self.labels.append(self._label(count))
        self.places.append({})
        return Turns(count, turn, carried, dtypes, self.labels[-1])

    def _again(self, turns: Turns, following: list[Any]) -> None:
        self.places.pop()
        self._follow(turns.carried, following, turns.dtypes)
        self.out.line(f"add.u32 {turns.turn}, {turns.turn}, 1;")
        again = self.out.operation("setp.lt.u32", turns.turn, turns.count, kind="p")
        self.out.line(f"@{again} bra LOOP{self.labels.pop()};")

    def _label(self, turns: int) -> int:
        """The number of a new label, at which turns of a loop begin."""
        number = len(self.turns)
        self.turns[number] = turns
        self.out.lines.append(f"LOOP{number}:")
        return number

    def _follow(self, carried: list[Any], following: list[Any], dtypes: Sequence[np.dtype]) -> None:
        """Move the numbers with which the next turn begins into the registers of this one."""
        # A value that is carried on in another place is copied first.
        moved = [
            self._copy(x, dtype) if x in carried and x != old else x
            for x, old, dtype in zip(following, carried, dtypes, strict=False)
        ]
        for x, old in zip(moved, carried, strict=True):
            if x != old:
                value = float(x) if old[1] == "f" and not isinstance(x, str) else x
                if old[1] == "p":
                    value = x if isinstance(x, str) else self.out.truth(x)
                self.out.line(f"mov.{self.out.types[old[1]]} {old}, {self.out.text(value)};")

    def _open(self, loop: While, number: int, going: Any, start: list[Any]) -> Repeated:
        carried = [self._copy(x, dtype) for x, dtype in zip(start, loop.dtypes, strict=True)]
        going = going if isinstance(going, str) else self.out.truth(going)
        self.out.line(f"@!{going} bra PAST{number};")
        self.labels.append(self._label(loop.count))
        self.places.append({})
        return Repeated(loop, number, carried)

    def _close(self, repeated: Repeated, again: Any, following: list[Any], read: set[int]) -> None:
        self.places.pop()
        again = self._copy(again, BOOL)  # before what it may be is overwritten
        self._follow(repeated.carried, following, repeated.loop.dtypes)
        self.out.line(f"@{again} bra LOOP{self.labels.pop()};")
        self.out.lines.append(f"PAST{repeated.number}:")

    # -- what a loop saves, in memory of the thread
    def _at_turn(self, ran: Ran, turn: str, backwards: bool) -> str:
        stack = self.out.operation("mov.u64", ran.stack, kind="q")
        if backwards:
            stack = self.out.operation("add.u64", stack, (ran.loop.count - 1) * ran.bytes, kind="q")
        offset = self.out.operation("mul.wide.u32", turn, ran.bytes, kind="q")
        return self.out.operation("sub.u64" if backwards else "add.u64", stack, offset, kind="q")

    def _save(self, ran: Ran, k: int, address: str, value: Any) -> None:
        dtype = ran.saved[k]
        value = value if isinstance(value, str) else self._register(value, dtype)
        if dtype == BOOL:
            value = self.out.operation("selp.u32", 1, 0, value, kind="i")
        self.out.line(f"st.local.{self._suffix(dtype)} [{address}+{k * ran.width}], {value};")

    def _load_saved(self, ran: Ran, k: int, address: str, turn: int = 0) -> str:
        dtype = ran.saved[k]
        kind = "f" if np.issubdtype(dtype, np.floating) else "i"
        place = f"[{address}+{turn * ran.bytes + k * ran.width}]"
        found = self.out.operation(f"ld.local.{self._suffix(dtype)}", place, kind=kind)
        return self.out.nonzero(found) if dtype == BOOL else found

    def _suffix(self, dtype: np.dtype) -> str:
        return self.out.dtype if np.issubdtype(dtype, np.floating) else "u32"

    def _copy(self, x: Any, dtype: np.dtype) -> str:
        """A register of its own for a value."""
        if not isinstance(x, str):
            return self._register(x, dtype)
        if x[1] == "p":
            return self.out.nonzero(self.out.operation("selp.u32", 1, 0, x, kind="i"))
        return self.out.operation(f"mov.{self.out.types[x[1]]}", x, kind=x[1])

    # -- arrays in memory
    @property
    def _width(self) -> int:
        return 8 if self.out.double else 4

    def _argument(self, leaf: int, length: int, dtype: np.dtype) -> Memory:
        """An argument where the caller has it, unless threads of a block copy its rows."""
        name, width = f"a{leaf}", MEMORY[dtype.name][1]
        if name in self.shared.rows:
            return super()._argument(leaf, length, dtype)
        self.pointers[name] = width, self.mapped[leaf]
        return Memory(f"%{name}", length, dtype, given="batch" if self.mapped[leaf] else "all")

    def _bytes(self, memory: Memory) -> int:
        """Distance in bytes from a number to the next."""
        if memory.given:
            return MEMORY[memory.dtype.name][1] * (self.size if memory.given == "batch" else 1)
        return 4 if memory.known and not np.issubdtype(memory.dtype, np.floating) else self._width

    def _place_at(self, memory: Memory, steps: tuple, turns: list[str]) -> str:
        address = self.out.operation("mov.u64", memory.place, kind="q")
        for step, turn in zip(steps, turns, strict=True):
            if isinstance(step, tuple):
                step, turn = 1, self._entry(step, turn)
            offset = self.out.operation("mul.wide.s32", turn, step * self._bytes(memory), kind="q")
            address = self.out.operation("add.u64", address, offset, kind="q")
        return address

    def _read(self, memory: Memory, address: str, first: int) -> str:
        floating = np.issubdtype(memory.dtype, np.floating)
        further = (first + memory.first) * self._bytes(memory)
        if further > FAR:
            address, further = self.out.operation("add.u64", address, further, kind="q"), 0
        suffix = self.out.dtype if floating else "s32" if memory.known else "u32"
        space = "const" if memory.known else "local"
        if memory.given:
            suffix, space = MEMORY[memory.dtype.name][0], "global" if self.in_place else "global.nc"
        found = self.out.operation(f"ld.{space}.{suffix}", f"[{address}+{further}]", kind="f" if floating else "i")
        return self.out.operation("setp.ne.u32", found, 0, kind="p") if memory.dtype == BOOL else found

    def _pick(self, memory: Memory, address: str, first: int, number: str) -> str:
        offset = self.out.operation("mul.wide.s32", number, self._bytes(memory), kind="q")
        return self._read(memory, self.out.operation("add.u64", address, offset, kind="q"), first)

    def _write(self, memory: Memory, address: str, first: int, value: Any, waits: bool = False) -> None:
        value = value if isinstance(value, str) else self._register(value, memory.dtype)
        if memory.dtype == BOOL:
            value = self.out.operation("selp.u32", 1, 0, value, kind="i")
        offset = (first + memory.first) * self._width
        self.out.line(f"st.local.{self._suffix(memory.dtype)} [{address}+{offset}], {value};")

    def _waiting(self, new: Any, old: Any, kind: str) -> Any:
        return new
