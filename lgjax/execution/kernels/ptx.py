"""A scalar program as the text of a CUDA kernel (PTX), one system per thread.

The batch is the last axis of an array: for n systems, number k of it begins at n k, so that neighboring threads read
neighboring numbers; `rows.py` has arrays with the batch in front, and what is the same for all systems. A product and
its addition are one operation, with one rounding; sine and cosine of one angle are computed together, without a branch.

Read first: `../program.py`; `functions.py` has single operations. Next: `rows.py`, `spills.py`, `cuda.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np

from lgjax.execution.graph import Ref, is_number
from lgjax.execution.kernels.elementary import sine_and_cosine
from lgjax.execution.kernels.functions import added, write
from lgjax.execution.kernels.rows import THREADS, Shared
from lgjax.execution.kernels.spills import SHARED, spilled, time_of, with_fewer_blocks
from lgjax.execution.kernels.writer import Writer, kind_of
from lgjax.execution.program import Loop, Region, ScalarProgram

VERSION, TARGET = "7.4", "sm_80"  # what the driver compiles for the device at hand when a program is loaded
NAME = "lgjax_kernel"
FAR = 2**31 - 1  # the largest offset of an address
LOCAL = 2**16  # bytes of a thread in local memory: the device reserves them for all threads that it can hold
# Bytes of a thread in local memory with which five blocks of a multiprocessor are faster than eight, as each has more
# shared memory. Measured on an H200: by 16 to 27 percent with 550 to 1400 bytes. Slower by 18 percent with 250 bytes,
# by 31 with 4100, and by 18 to 28 in loops, whose turns fetch their instructions again.
MUCH = range(400, 2048)
BOOL = np.dtype(bool)
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
    batched: Sequence[bool],
    size: int,
    in_place: bool = False,
    front: Sequence[bool] = (),
    shared: int | None = None,
) -> Kernel:
    """The kernel of a program for `size` systems.

    Its parameters are pointers: to the arguments of the program, of which those marked in `batched` have a value for
    each system, and to its results, which all have; empty arrays are left out.

    in_place: results may overwrite arguments. front: which arguments, then which results, have the batch in front; ()
    for none. shared: bytes of shared memory that a block may use if eight fit on a multiprocessor, by default on an
    H100. Raises NotImplementedError, naming it, for an operation or a dtype that it does not know.
    """
    arrays = {*program.dtypes, *program.out_dtypes}
    if unknown := {x.name for x in arrays} - set(MEMORY):
        raise NotImplementedError(f"arrays of {', '.join(sorted(unknown))} in a kernel")
    if {np.dtype("float32"), np.dtype("float64")} <= arrays:
        raise NotImplementedError("float32 and float64 in one kernel")
    dtype = "f64" if np.dtype("float64") in arrays else "f32"
    block = SHARED if shared is None else shared

    def best(block: int) -> _Body:
        make = lambda k: _Body(Writer(dtype), program, batched, size, in_place, front, block, k)
        bodies = [make(k) for k in range(len(program.orders))]
        for body in bodies:
            body.write()
        return min(bodies, key=lambda body: body.cost)

    body = best(block)
    if not body.ran and body.memory.own_bytes in MUCH:
        body = best(with_fewer_blocks(block))
    return Kernel(NAME, body.text, -(-size // THREADS), THREADS)


@dataclass(frozen=True)
class _Ran:
    """A loop that has run: the registers that it carries, and where in memory of the thread the values it saved are."""

    loop: Loop
    carried: list[str]
    stack: str
    width: int

    @property
    def saved(self) -> list[np.dtype]:
        """The dtypes of the values that it saves in a turn."""
        return self.loop.dtypes[len(self.loop.carry) :]

    @property
    def bytes(self) -> int:
        """Of a turn."""
        return self.width * len(self.saved)


class _Body:
    """Writes the operations of a program. Values of nodes are registers, or functions that load these when needed."""

    def __init__(
        self,
        out: Writer,
        program: ScalarProgram,
        batched: Sequence[bool],
        size: int,
        in_place: bool,
        front: Sequence[bool],
        block: int,
        which: int,
    ):
        """block: bytes of shared memory of a block. which: of the orders of each region."""
        self.out, self.program, self.batched, self.size, self.in_place = out, program, batched, size, in_place
        self.block, self.which = block, which
        rows = [(x.size, t.itemsize) for x, t in zip(program.inputs, program.dtypes, strict=True)]
        rows += [(x.size, t.itemsize) for x, t in zip(program.outputs, program.out_dtypes, strict=True)]
        self.shared = Shared(rows, len(program.inputs), front, size)
        read = lambda nodes: sum(node.index in program.used for node in nodes.flat)
        common = [(f"a{n}", *rows[n], read(nodes)) for n, nodes in enumerate(program.inputs) if not batched[n]]
        self.shared.hold(common, block)
        self.pointers: dict[str, tuple[int, bool]] = {}
        self.tables: list[tuple] = []
        self.ran: list[_Ran] = []

    def write(self) -> None:
        """The lines between the first and the last ones."""
        program = self.program
        values: dict[int, Any] = {
            node.index: partial(self._load, leaf, k)
            for leaf, nodes in enumerate(program.inputs)
            for k, node in enumerate(nodes.flat)
        }
        goals: dict[Any, list[tuple]] = {}
        for n, out in enumerate(program.outputs):
            for k, x in enumerate(out.flat):
                goals.setdefault(None if is_number(x) else x.index, []).append((n, k, x))
        written = lambda index: [self._store(n, k, self._value(values, x)) for n, k, x in goals.get(index, ())]
        self._region(program, values, None if self.in_place else written)
        late = [index for index in goals if self.in_place or index is None or program.graph.ops[index][0] == "input"]
        if self.in_place:  # everything is read before anything is written
            for index in late:
                values |= {} if index is None else {index: self._value(values, goals[index][0][2])}
        for index in late:
            written(index)

        self.before = list(self.shared.begin())
        self.computed, self.memory = spilled(self.out.lines, self.out.dtype, self.shared.bytes, self.block, self.counts)

    @property
    def counts(self) -> list[int]:
        """The turns of each loop."""
        return [x.loop.count for x in self.ran]

    @property
    def waiting_bytes(self) -> int:
        """Of local memory: what waits there, and what loops save."""
        return self.memory.own_bytes + sum(x.loop.count * x.bytes for x in self.ran)

    @property
    def cost(self) -> float:
        """About how many lines' time it takes."""
        return time_of(self.computed, self.counts) if self.waiting_bytes <= LOCAL else inf

    @property
    def text(self) -> str:
        pointers = [f"a{n}" for n, nodes in enumerate(self.program.inputs) if nodes.size]
        pointers += [f"r{n}" for n, out in enumerate(self.program.outputs) if out.size]
        widths = sorted({width for width, batched in self.pointers.values() if batched})
        if self.waiting_bytes > LOCAL:
            raise NotImplementedError(f"more than {LOCAL} bytes that wait in memory or are saved by loops")
        lines = [
            f".version {VERSION}",
            f".target {TARGET}",
            ".address_size 64",
            *(self._table(n, numbers) for n, numbers in enumerate(self.tables)),
            f".visible .entry {NAME}({', '.join(f'.param .u64 {p}' for p in pointers)})",
            f".reqntid {THREADS}",
            "{",
            "  .reg .u32 %system, %block, %thread;",
            "  .reg .pred %outside;",
            *(f"  .reg .u64 %at{width};" for width in widths),
            *(f"  .reg .u64 %{p};" for p in self.pointers),
            *(f"  .local .align 8 .b8 {x.stack}[{x.loop.count * x.bytes}];" for x in self.ran if x.saved),
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
        for p, (width, batched) in self.pointers.items():
            lines += [f"  ld.param.u64 %{p}, [{p}];", f"  cvta.to.global.u64 %{p}, %{p};"]
            lines += [f"  add.u64 %{p}, %{p}, %at{width};"] if batched else []
        return "\n".join([*lines, *self.computed, "DONE:", *self.shared.end(), "  ret;", "}"]) + "\n"

    # -- memory
    def _address(self, pointer: str, k: int, width: int, batched: bool) -> str:
        self.pointers[pointer] = width, batched
        offset = k * width * (self.size if batched else 1)
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
        address = self._address(f"a{leaf}", k, width, self.batched[leaf])
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

    # -- values
    def _value(self, values: dict[int, Any], x: Any) -> Any:
        """The register of a node, or a number."""
        if is_number(x):
            return x
        value = values[x.index]
        if callable(value):
            values[x.index] = value()
        return values[x.index]

    def _register(self, x: Any, dtype: np.dtype) -> str:
        """A number in a register of its own."""
        if dtype == BOOL:
            number = self.out.operation("mov.u32", int(x), kind="i")
            return self.out.operation("setp.ne.u32", number, 0, kind="p")
        floating = np.issubdtype(dtype, np.floating)
        return self.out.operation(
            "mov." if floating else "mov.u32", float(x) if floating else int(x), kind="f" if floating else "i"
        )

    def _region(self, region: Region, values: dict[int, Any], written: Any = None) -> None:
        """Compute what a region's results need; its inputs are among the values. written(node) is called after each."""
        ops, pairs, sums = region.ops, {}, {}
        for index in region.orders[self.which]:
            name, what, args = ops[index]
            if name == "input":
                continue
            if name == "loop":
                self._loop(what, index, values, args)
                continue
            if name == "result":
                values[index] = values[args[0].index].carried[what]
            elif name == "saved":
                ran, (k, turn) = values[args[0].index], what
                values[index] = partial(self._load_saved, ran, k, ran.stack, turn * ran.bytes)
            elif name == "term":
                root, sign, _ = what
                sums[root] = added(self.out, sums.get(root), sign, [self._value(values, a) for a in args])
            elif name == "sum":
                values[index] = sums.pop(index)[0]
            elif name in ("sin", "cos"):
                angle = args[0].index
                if angle not in pairs:
                    pairs[angle] = sine_and_cosine(self.out, self._value(values, args[0]))
                values[index] = pairs[angle][name == "cos"]
            else:
                values[index] = write(self.out, name, what, [self._value(values, a) for a in args])
            if written is not None:
                written(index)

    def _loop(self, loop: Loop, index: int, values: dict[int, Any], args: tuple) -> None:
        """A loop; its value is a `_Ran`."""
        out, number, count = self.out, len(self.ran), len(loop.carry)
        start = [self._value(values, a) for a in args[:count]]
        carried = [self._copy(x, dtype) for x, dtype in zip(start, loop.dtypes, strict=False)]
        values[index] = ran = _Ran(loop, carried, f"stack{number}", 8 if out.double else 4)
        self.ran.append(ran)
        turn = out.operation("mov.u32", 0, kind="i")
        out.lines.append(f"LOOP{number}:")
        captured = zip(loop.captured, args[count:], strict=False)
        inside: dict[int, Any] = dict(zip(loop.carry, carried, strict=True)) | {k: values[a.index] for k, a in captured}
        inside |= {node: self._entry(numbers, turn) for node, numbers in loop.tables.items()}
        read = [values[a.index] for a in args[count + len(loop.captured) :]]
        inside |= self._reads(loop, read, turn)
        self._region(loop, inside, self._saving(ran, inside, turn))
        following = [self._value(inside, x) for x in loop.results[:count]]
        # A value that is carried on in another place is copied first.
        moved = [
            self._copy(x, dtype) if x in carried and x != old else x
            for x, old, dtype in zip(following, carried, loop.dtypes, strict=False)
        ]
        for x, old in zip(moved, carried, strict=True):
            if x != old:
                value = float(x) if old[1] == "f" and not isinstance(x, str) else x
                out.line(f"mov.{out.types[old[1]]} {old}, {out.text(value)};")
        out.line(f"add.u32 {turn}, {turn}, 1;")
        again = out.operation("setp.lt.u32", turn, loop.count, kind="p")
        out.line(f"@{again} bra LOOP{number};")

    # -- what a loop saves, in memory of the thread
    def _saving(self, ran: _Ran, inside: dict[int, Any], turn: str) -> Callable[[int], None] | None:
        """Saves inputs and numbers now; a function that saves a node once it is computed."""
        if not ran.saved:
            return None
        here, count, nodes = self._at_turn(ran, turn, False), len(ran.loop.carry), {}
        for k, x in enumerate(ran.loop.results[count:]):
            if is_number(x) or ran.loop.graph.ops[x.index][0] == "input":
                self._save(ran, k, here, self._value(inside, x))
            else:
                nodes.setdefault(x.index, []).append(k)

        def save(index: int) -> None:
            for k in nodes.get(index, ()):
                self._save(ran, k, here, self._value(inside, Ref(index)))

        return save

    def _reads(self, loop: Loop, ran: list[_Ran], turn: str) -> dict[int, Callable[[], str]]:
        """Functions that load the values that a loop reads from others."""
        ways = sorted({(n, backwards) for n, _, backwards in loop.reads.values()})
        here = {(n, backwards): self._at_turn(ran[n], turn, backwards) for n, backwards in ways}
        return {
            node: partial(self._load_saved, ran[n], k, here[n, backwards], 0)
            for node, (n, k, backwards) in loop.reads.items()
        }

    def _at_turn(self, ran: _Ran, turn: str, backwards: bool) -> str:
        """The address of what a loop saved in a turn, or in the turn that is as far from its last."""
        stack = self.out.operation("mov.u64", ran.stack, kind="q")
        if backwards:
            stack = self.out.operation("add.u64", stack, (ran.loop.count - 1) * ran.bytes, kind="q")
        offset = self.out.operation("mul.wide.u32", turn, ran.bytes, kind="q")
        return self.out.operation("sub.u64" if backwards else "add.u64", stack, offset, kind="q")

    def _save(self, ran: _Ran, k: int, address: str, value: Any) -> None:
        dtype = ran.saved[k]
        value = value if isinstance(value, str) else self._register(value, dtype)
        if dtype == BOOL:
            value = self.out.operation("selp.u32", 1, 0, value, kind="i")
        self.out.line(f"st.local.{self._suffix(dtype)} [{address}+{k * ran.width}], {value};")

    def _load_saved(self, ran: _Ran, k: int, address: str, offset: int) -> str:
        dtype = ran.saved[k]
        kind = "f" if np.issubdtype(dtype, np.floating) else "i"
        place = f"[{address}+{offset + k * ran.width}]"
        found = self.out.operation(f"ld.local.{self._suffix(dtype)}", place, kind=kind)
        return self.out.operation("setp.ne.u32", found, 0, kind="p") if dtype == BOOL else found

    def _suffix(self, dtype: np.dtype) -> str:
        return self.out.dtype if np.issubdtype(dtype, np.floating) else "u32"

    def _copy(self, x: Any, dtype: np.dtype) -> str:
        """A register of its own for a value."""
        if not isinstance(x, str):
            return self._register(x, dtype)
        if x[1] == "p":
            number = self.out.operation("selp.u32", 1, 0, x, kind="i")
            return self.out.operation("setp.ne.u32", number, 0, kind="p")
        return self.out.operation(f"mov.{self.out.types[x[1]]}", x, kind=x[1])

    def _entry(self, numbers: tuple, turn: str) -> str:
        """The number of this turn."""
        self.tables.append(numbers)
        floating = kind_of(*numbers) == "f"
        width = 8 if floating and self.out.double else 4
        table = self.out.operation("mov.u64", f"table{len(self.tables) - 1}", kind="q")
        offset = self.out.operation("mul.wide.u32", turn, width, kind="q")
        address = self.out.operation("add.u64", table, offset, kind="q")
        suffix = self.out.dtype if floating else "s32"
        found = self.out.operation(f"ld.const.{suffix}", f"[{address}]", kind="f" if floating else "i")
        boolean = isinstance(numbers[0], bool)
        return self.out.operation("setp.ne.u32", found, 0, kind="p") if boolean else found
