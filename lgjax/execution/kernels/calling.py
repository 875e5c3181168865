"""The code around `@block` in LLVM's language: `@kernel`, which XLA calls, runs it for a whole batch.

XLA passes a pointer to its call frame, in which `@kernel` finds the arrays and the size of the batch. `@range` calls
`@block` for one vector of systems after the other. `@share` divides the blocks of a large batch among threads
(`threads.py`), which call `@range`. Arrays with the batch in front are copied to columns of one vector each before a
block, and results from columns after it (`copies.py`). The rest of a batch may be too small to fill a vector. It is
copied aside and filled up with copies of its last system: so the same instructions compute every system, and no loop
runs on arbitrary numbers.

Read first: `llvm.py`. XLA's frame is described in `xla/ffi/api/c_api.h`, which jaxlib installs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lgjax.execution.kernels import copies, threads

NAME = "kernel"
MEMORY = {"float32": "float", "float64": "double", "int32": "i32", "bool": "i8"}
# Offsets in bytes. In XLA's call frame: its extension, the table of XLA's functions and the context that they take,
# pointers to the buffers of arguments and of results.
EXTENSION, API, CONTEXT, ARGUMENTS, RESULTS = 8, 16, 24, 72, 112
DATA, RANK, DIMENSIONS = 24, 32, 40  # in a buffer
# In an extension, with which XLA asks for metadata instead of a call: the metadata. In these: the version of the
# interface that the kernel speaks.
METADATA, MAJOR, MINOR = 24, 24, 28
FUNCTIONS = 48  # in the table: the first function


class Interface(NamedTuple):
    """XLA's foreign function interface: its minor version, and the names of the functions it offers, in order."""

    minor: int
    functions: tuple[str, ...]

    def offset(self, name: str) -> int:
        """The offset of the pointer to a function in XLA's table, in bytes."""
        return FUNCTIONS + 8 * self.functions.index(name)


@dataclass(frozen=True)
class Array:
    """An argument or a result of a kernel.

    count: its numbers for one system. given: an argument. mapped: it has values for each system, else one for all.
    front: its batch is the first axis, else the last.
    """

    name: str
    count: int
    dtype: np.dtype
    given: bool
    mapped: bool
    front: bool

    @property
    def memory(self) -> str:
        """The type of a number in memory."""
        return MEMORY[self.dtype.name]

    @property
    def bytes(self) -> int:
        """Bytes of a number."""
        return self.dtype.itemsize

    def columns(self, width: int) -> int:
        """Bytes of columns of one vector each, whose number is rounded up to a multiple of `width`."""
        return -(-self.count // width) * width * width * self.bytes


class Calling:
    """The functions around `@block`. width: systems in a vector. batch: whether there is one. cost: about the
    instructions of a block.
    """

    def __init__(self, arrays: Sequence[Array], width: int, batch: bool, interface: Interface, cost: int):
        self.arrays, self.width, self.batch, self.interface, self.cost = arrays, width, batch, interface, cost
        self.aside = [x for x in arrays if x.mapped]  # copied, always or in a rest

    @property
    def scratch(self) -> int:
        """Bytes of columns."""
        return sum(x.columns(self.width) for x in self.aside)

    def text(self) -> Iterator[str]:
        for front, given, memory in sorted({(x.front, x.given, x.memory) for x in self.aside}):
            copy = {(True, True): copies.rows_in, (True, False): copies.rows_out}.get((front, given), copies.columns)
            yield copy(memory, self.width, given)
        yield self._range()
        if self.batch:
            offset = self.interface.offset
            yield threads.functions(self._pointers, [x.name for x in self.arrays], self.cost)
            yield threads.share(
                self._pointers, offset("XLA_FFI_ThreadPool_NumThreads"), offset("XLA_FFI_ThreadPool_Schedule")
            )
        yield self._kernel()

    @property
    def _pointers(self) -> str:
        return ", ".join(f"ptr %{x.name}" for x in self.arrays)

    # -- the entry
    def _kernel(self) -> str:
        counts = {True: 0, False: 0}
        found = []
        for x in self.arrays:
            buffers = "arguments" if x.given else "results"
            found.append(loaded("ptr", f"of_{x.name}", f"%{buffers}", 8 * counts[x.given]))
            found.append(loaded("ptr", x.name, f"%of_{x.name}", DATA))
            counts[x.given] += 1
        run = "call void @range({0}, i64 %n, i64 0, i64 %blocks)"
        if self.batch:
            run = "call void @share({0}, i64 %n, i64 %blocks, ptr %api, ptr %context)"
        return f"""
define ptr @{NAME}(ptr %frame) {{
begin:
{loaded("ptr", "extension", "%frame", EXTENSION)}
  %called = icmp eq ptr %extension, null
  br i1 %called, label %run, label %version
version:
{loaded("ptr", "metadata", "%extension", METADATA)}
  %major = getelementptr i8, ptr %metadata, i64 {MAJOR}
  store i32 0, ptr %major
  %minor = getelementptr i8, ptr %metadata, i64 {MINOR}
  store i32 {self.interface.minor}, ptr %minor
  ret ptr null
run:
{loaded("ptr", "api", "%frame", API)}
{loaded("ptr", "context", "%frame", CONTEXT)}
{loaded("ptr", "arguments", "%frame", ARGUMENTS)}
{loaded("ptr", "results", "%frame", RESULTS)}
{"".join(found)}
{self._size()}
  %more = add i64 %n, {self.width - 1}
  %blocks = udiv i64 %more, {self.width}
  {run.format(self._pointers)}
  ret ptr null
}}"""

    def _size(self) -> str:
        """The number of systems: the first or the last dimension of a result."""
        if not self.batch:
            return "  %n = add i64 0, 1"
        result = next(x for x in self.arrays if not x.given)
        axis = "add i64 0, 0" if result.front else "sub i64 %rank, 1"
        return f"""
{loaded("i64", "rank", f"%of_{result.name}", RANK)}
{loaded("ptr", "dimensions", f"%of_{result.name}", DIMENSIONS)}
  %axis = {axis}
  %at = getelementptr i64, ptr %dimensions, i64 %axis
  %n = load i64, ptr %at"""

    # -- blocks
    def _range(self) -> str:
        """`@range`: the blocks from the first to before the last, for n systems."""
        w, line = self.width, "\n".join
        columns = line(f"  %c_{x.name} = alloca [{x.columns(w)} x i8], align 64" for x in self.aside)
        places = line(
            f"  %o_{x.name} = mul i64 %start, {(x.count if x.front else 1) if x.mapped else 0}\n"
            f"  %p_{x.name} = getelementptr {x.memory}, ptr %{x.name}, i64 %o_{x.name}"
            for x in self.arrays
        )

        def copied(front: bool, given: bool) -> str:
            name = f"{'rows' if front else 'columns'}_{'in' if given else 'out'}"
            return line(
                f"  call void @{name}_{x.memory}(ptr %c_{x.name}, ptr %p_{x.name}, i64 {x.count}, i64 %n, i64 %valid)"
                for x in self.aside
                if (x.front, x.given) == (front, given)
            )

        def block(aside: bool) -> str:
            of = lambda x: "c" if x.mapped and (x.front or aside) else "p"
            return f"call void @block({', '.join(f'ptr %{of(x)}_{x.name}' for x in self.arrays)}"

        return f"""
define internal void @range({self._pointers}, i64 %n, i64 %first, i64 %last) #0 {{
begin:
{columns}
  br label %test
test:
  %number = phi i64 [%first, %begin], [%next, %done]
  %left = icmp slt i64 %number, %last
  br i1 %left, label %turn, label %end
turn:
  %start = mul i64 %number, {w}
  %rest = sub i64 %n, %start
  %whole = icmp sge i64 %rest, {w}
  %valid = select i1 %whole, i64 {w}, i64 %rest
{places}
{copied(True, True)}
  br i1 %whole, label %full, label %part
full:
  {block(False)}, i64 %n)
  br label %done
part:
{copied(False, True)}
  {block(True)}, i64 {w})
{copied(False, False)}
  br label %done
done:
{copied(True, False)}
  %next = add i64 %number, 1
  br label %test
end:
  ret void
}}"""

    def declarations(self) -> Iterator[str]:
        for memory, given in sorted({(x.memory, x.given) for x in self.aside if x.front}):
            yield copies.declaration(memory, self.width, given)


def loaded(kind: str, name: str, pointer: str, offset: int) -> str:
    """Load the value at an offset in bytes from a pointer."""
    return f"  %to_{name} = getelementptr i8, ptr {pointer}, i64 {offset}\n  %{name} = load {kind}, ptr %to_{name}\n"
