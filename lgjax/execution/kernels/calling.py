"""What calls a kernel's `@block` for a whole batch, in LLVM's language: the function that XLA calls.

`@kernel` gets a pointer to XLA's call frame. Arrays with the batch in front are copied to columns of one vector each
before a block, and from columns behind it. The rest of a batch, which fills no vector, is copied aside, filled up with
its last system: so every system is computed by the same instructions, and no loop runs on numbers of no system.

Blocks of a large batch are shared out in parts among the threads of XLA's pool. Each thread, the caller's too, takes
the next part until none is left: a thread that comes late finds nothing to do, and no one waits for it.

Read first: `llvm.py`. XLA's frame is that of `xla/ffi/api/c_api.h`, which jaxlib installs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

NAME = "kernel"
MEMORY = {"float32": "float", "float64": "double", "int32": "i32", "bool": "i8"}
# Places in XLA's call frame, in bytes: its extensions, buffers of arguments and of results; within a buffer its data,
# its rank and its dimensions; within the extension that asks for it the version of the interface that is spoken.
EXTENSION, ARGUMENTS, RESULTS = 8, 72, 112
DATA, RANK, DIMENSIONS = 24, 32, 40
METADATA, MAJOR, MINOR = 24, 24, 28
API, CONTEXT, FUNCTIONS = 16, 24, 48
STATE = 6  # numbers before the pointers in what threads share
PART = 50_000  # instructions of a part of a batch, about: some 20 microseconds


@dataclass(frozen=True)
class Interface:
    """XLA's foreign function interface: the last part of its version, and the functions it offers, in their order."""

    minor: int
    functions: tuple[str, ...]

    def offset(self, name: str) -> int:
        """Where the pointer to a function is, in bytes."""
        return FUNCTIONS + 8 * self.functions.index(name)


@dataclass(frozen=True)
class Array:
    """An argument or a result, for each system or, if it is not batched, the same for all. count: its numbers."""

    name: str
    count: int
    dtype: np.dtype
    given: bool
    batched: bool
    front: bool

    @property
    def memory(self) -> str:
        """The type of a number in memory."""
        return MEMORY[self.dtype.name]

    @property
    def bytes(self) -> int:
        """Of a number."""
        return self.dtype.itemsize

    def columns(self, width: int) -> int:
        """Bytes of columns of one vector each, a whole number of squares."""
        return -(-self.count // width) * width * width * self.bytes


class Calling:
    """The functions around `@block`. width: systems of a vector. cost: instructions of a block."""

    def __init__(self, arrays: Sequence[Array], width: int, batch: bool, interface: Interface, cost: int):
        self.arrays, self.width, self.batch, self.interface = arrays, width, batch, interface
        self.part = max(1, PART // max(cost, 1))  # blocks
        self.aside = [x for x in arrays if x.batched]  # copied, always or in a rest

    @property
    def scratch(self) -> int:
        """Bytes of columns."""
        return sum(x.columns(self.width) for x in self.aside)

    def text(self) -> Iterator[str]:
        for front in sorted({x.front for x in self.aside}):
            for given in sorted({x.given for x in self.aside if x.front == front}):
                for memory in sorted({x.memory for x in self.aside if (x.front, x.given) == (front, given)}):
                    yield from (self._rows if front else self._columns)(memory, given)
        yield from self._range()
        yield from self._kernel()

    # -- the entry
    def _kernel(self) -> Iterator[str]:
        yield f"define ptr @{NAME}(ptr %frame) {{"
        yield "begin:"
        yield from _loaded("ptr", "extension", "%frame", EXTENSION)
        yield "  %none = icmp eq ptr %extension, null"
        yield "  br i1 %none, label %run, label %asked"
        yield "asked:"
        yield from _loaded("ptr", "version", "%extension", METADATA)
        yield f"  %major = getelementptr i8, ptr %version, i64 {MAJOR}"
        yield "  store i32 0, ptr %major"
        yield f"  %minor = getelementptr i8, ptr %version, i64 {MINOR}"
        yield f"  store i32 {self.interface.minor}, ptr %minor"
        yield "  ret ptr null"
        yield "run:"
        yield from _loaded("ptr", "arguments", "%frame", ARGUMENTS)
        yield from _loaded("ptr", "results", "%frame", RESULTS)
        counts = {True: 0, False: 0}
        for x in self.arrays:
            yield from _loaded("ptr", f"buffer_{x.name}", f"%{'arguments' if x.given else 'results'}", 8 * counts[x.given])
            yield from _loaded("ptr", x.name, f"%buffer_{x.name}", DATA)
            counts[x.given] += 1
        if self.batch:
            result = next(x for x in self.arrays if not x.given)
            yield from _loaded("i64", "rank", f"%buffer_{result.name}", RANK)
            yield from _loaded("ptr", "dimensions", f"%buffer_{result.name}", DIMENSIONS)
            yield "  %behind = sub i64 %rank, 1"
            yield f"  %axis = add i64 {'0, 0' if result.front else '%behind, 0'}"
            yield "  %at = getelementptr i64, ptr %dimensions, i64 %axis"
            yield "  %n = load i64, ptr %at"
        else:
            yield "  %n = add i64 0, 1"
        yield f"  %more = add i64 %n, {self.width - 1}"
        yield f"  %blocks = udiv i64 %more, {self.width}"
        if self.batch:
            yield from self._shared_out()
        yield "  br label %alone"
        yield "alone:"
        yield f"  call void @range({self._pointers()}, i64 %n, i64 0, i64 %blocks)"
        yield "  ret ptr null"
        yield "}"
        if self.batch:
            yield from self._task()

    def _pointers(self) -> str:
        return ", ".join(f"ptr %{x.name}" for x in self.arrays)

    # -- threads
    def _shared_out(self) -> Iterator[str]:
        """Parts of a batch of many blocks for the threads of XLA's pool, if it has more than one.

        They share a state: the next part, parts that are done, threads that may still read it, parts, systems, blocks,
        and pointers. The last thread to leave frees it.
        """
        yield f"  %fill = add i64 %blocks, {self.part - 1}"
        yield f"  %parts = udiv i64 %fill, {self.part}"
        yield "  %several = icmp sgt i64 %parts, 1"
        yield "  br i1 %several, label %ask, label %single"
        yield "ask:"
        yield from _loaded("ptr", "api", "%frame", API)
        yield from _loaded("ptr", "context", "%frame", CONTEXT)
        yield "  %question = alloca [5 x i64], align 8"
        yield "  %count = alloca i64, align 8"
        yield "  store i64 1, ptr %count"
        yield from _stored("question", ("i64 32", "ptr null", "ptr %context", "ptr %count"))
        yield from _loaded("ptr", "num_threads", "%api", self.interface.offset("XLA_FFI_ThreadPool_NumThreads"))
        yield from _loaded("ptr", "schedule", "%api", self.interface.offset("XLA_FFI_ThreadPool_Schedule"))
        yield "  %refused = call ptr %num_threads(ptr %question)"
        yield "  %pool = load i64, ptr %count"
        yield "  %fewer = icmp slt i64 %pool, %parts"
        yield "  %threads = select i1 %fewer, i64 %pool, i64 %parts"
        yield "  %many = icmp sgt i64 %threads, 1"
        yield "  br i1 %many, label %share, label %single"
        yield "share:"
        yield f"  %state = call ptr @malloc(i64 {8 * (STATE + len(self.arrays))})"
        pointers = [f"ptr %{x.name}" for x in self.arrays]
        yield from _stored("state", ("i64 0", "i64 0", "i64 %threads", "i64 %parts", "i64 %n", "i64 %blocks", *pointers))
        yield from _stored("question", ("i64 40", "ptr null", "ptr %context", "ptr @task", "ptr %state"), "given")
        yield "  br label %give"
        yield "give:"
        yield "  %thread = phi i64 [1, %share], [%following, %give]"
        yield "  %error = call ptr %schedule(ptr %question)"
        yield "  %following = add i64 %thread, 1"
        yield "  %more_threads = icmp slt i64 %following, %threads"
        yield "  br i1 %more_threads, label %give, label %work"
        yield "work:"
        yield "  call void @parts(ptr %state)"
        yield "  %to_done = getelementptr i64, ptr %state, i64 1"
        yield "  br label %wait"
        yield "wait:"
        yield "  %done = load atomic i64, ptr %to_done acquire, align 8"
        yield "  %finished = icmp sge i64 %done, %parts"
        yield "  br i1 %finished, label %leave, label %wait"
        yield "leave:"
        yield "  call void @left(ptr %state)"
        yield "  ret ptr null"
        yield "single:"

    def _task(self) -> Iterator[str]:
        """What a thread of the pool does, and what it shares with the caller's."""
        yield "declare ptr @malloc(i64)"
        yield "declare void @free(ptr)"
        yield "define internal void @task(ptr %state) {"
        yield "  call void @parts(ptr %state)"
        yield "  call void @left(ptr %state)"
        yield "  ret void"
        yield "}"
        yield "define internal void @left(ptr %state) {"
        yield "begin:"
        yield "  %to_users = getelementptr i64, ptr %state, i64 2"
        yield "  %users = atomicrmw sub ptr %to_users, i64 1 acq_rel"
        yield "  %last = icmp eq i64 %users, 1"
        yield "  br i1 %last, label %end, label %out"
        yield "end:"
        yield "  call void @free(ptr %state)"
        yield "  br label %out"
        yield "out:"
        yield "  ret void"
        yield "}"
        yield "define internal void @parts(ptr %state) {"
        yield "begin:"
        yield "  %to_done = getelementptr i64, ptr %state, i64 1"
        for k, name in enumerate(("parts", "n", "blocks"), start=3):
            yield from _loaded("i64", name, "%state", 8 * k)
        for k, x in enumerate(self.arrays, start=STATE):
            yield from _loaded("ptr", x.name, "%state", 8 * k)
        yield "  br label %take"
        yield "take:"
        yield "  %part = atomicrmw add ptr %state, i64 1 acq_rel"
        yield "  %there = icmp slt i64 %part, %parts"
        yield "  br i1 %there, label %do, label %out"
        yield "do:"
        yield f"  %first = mul i64 %part, {self.part}"
        yield f"  %end = add i64 %first, {self.part}"
        yield "  %within = icmp slt i64 %end, %blocks"
        yield "  %last = select i1 %within, i64 %end, i64 %blocks"
        yield f"  call void @range({self._pointers()}, i64 %n, i64 %first, i64 %last)"
        yield "  %before = atomicrmw add ptr %to_done, i64 1 release"
        yield "  br label %take"
        yield "out:"
        yield "  ret void"
        yield "}"

    # -- blocks
    def _range(self) -> Iterator[str]:
        """Blocks from the first to before the last, for n systems."""
        w = self.width
        yield f"define internal void @range({self._pointers()}, i64 %n, i64 %first, i64 %last) #0 {{"
        yield "begin:"
        for x in self.aside:
            yield f"  %c_{x.name} = alloca [{x.columns(w)} x i8], align 64"
        yield "  br label %test"
        yield "test:"
        yield "  %number = phi i64 [%first, %begin], [%next, %done]"
        yield "  %left = icmp slt i64 %number, %last"
        yield "  br i1 %left, label %turn, label %end"
        yield "turn:"
        yield f"  %start = mul i64 %number, {w}"
        yield "  %rest = sub i64 %n, %start"
        yield f"  %whole = icmp sge i64 %rest, {w}"
        yield f"  %valid = select i1 %whole, i64 {w}, i64 %rest"
        for x in self.arrays:
            step = x.count if x.front else 1
            yield f"  %o_{x.name} = mul i64 %start, {step if x.batched else 0}"
            yield f"  %p_{x.name} = getelementptr {x.memory}, ptr %{x.name}, i64 %o_{x.name}"
        for x in self.aside:
            if x.front and x.given:
                yield f"  call void @rows_in_{x.memory}(ptr %c_{x.name}, ptr %p_{x.name}, i64 {x.count}, i64 %valid)"
        yield "  br i1 %whole, label %full, label %part"
        yield "full:"
        yield f"  call void @block({self._places(False)}, i64 %n)"
        yield "  br label %out"
        yield "part:"
        for x in self.aside:
            if x.given and not x.front:
                yield f"  call void @columns_in_{x.memory}(ptr %c_{x.name}, ptr %p_{x.name}, i64 {x.count}, i64 %n, i64 %valid)"
        yield f"  call void @block({self._places(True)}, i64 {w})"
        for x in self.aside:
            if not x.given and not x.front:
                yield f"  call void @columns_out_{x.memory}(ptr %c_{x.name}, ptr %p_{x.name}, i64 {x.count}, i64 %n, i64 %valid)"
        yield "  br label %out"
        yield "out:"
        for x in self.aside:
            if x.front and not x.given:
                yield f"  call void @rows_out_{x.memory}(ptr %c_{x.name}, ptr %p_{x.name}, i64 {x.count}, i64 %valid)"
        yield "  br label %done"
        yield "done:"
        yield "  %next = add i64 %number, 1"
        yield "  br label %test"
        yield "end:"
        yield "  ret void"
        yield "}"

    def _places(self, part: bool) -> str:
        return ", ".join(f"ptr %{'c' if x.batched and (x.front or part) else 'p'}_{x.name}" for x in self.arrays)

    # -- copies
    def _columns(self, memory: str, given: bool) -> Iterator[str]:
        """Columns of a rest: of an argument, with copies of the last system; of a result, what is valid."""
        w = self.width
        yield f"define internal void @columns_{'in' if given else 'out'}_{memory}(ptr %c, ptr %p, i64 %count, i64 %n, i64 %valid) {{"
        yield "begin:"
        yield "  %end = sub i64 %valid, 1"
        yield "  br label %column"
        yield "column:"
        yield "  %k = phi i64 [0, %begin], [%k1, %next]"
        yield "  %there = mul i64 %k, %n"
        yield f"  %here = mul i64 %k, {w}"
        yield "  br label %lane"
        yield "lane:"
        yield "  %i = phi i64 [0, %column], [%i1, %lane]"
        yield "  %within = icmp slt i64 %i, %end"
        yield "  %j = select i1 %within, i64 %i, i64 %end"
        yield "  %a = add i64 %there, %j"
        yield f"  %b = add i64 %here, {'%i' if given else '%j'}"
        yield f"  %pa = getelementptr {memory}, ptr %p, i64 %a"
        yield f"  %pb = getelementptr {memory}, ptr %c, i64 %b"
        yield f"  %x = load {memory}, ptr {'%pa' if given else '%pb'}"
        yield f"  store {memory} %x, ptr {'%pb' if given else '%pa'}"
        yield "  %i1 = add i64 %i, 1"
        yield f"  %more = icmp slt i64 %i1, {w if given else '%valid'}"
        yield "  br i1 %more, label %lane, label %next"
        yield "next:"
        yield "  %k1 = add i64 %k, 1"
        yield "  %again = icmp slt i64 %k1, %count"
        yield "  br i1 %again, label %column, label %out"
        yield "out:"
        yield "  ret void"
        yield "}"

    def _rows(self, memory: str, given: bool) -> Iterator[str]:
        """Rows of a vector of systems to columns, or back: square by square, by perfect shuffles of its rows."""
        w, vector = self.width, f"<{self.width} x {memory}>"
        mask = f"<{w} x i1>"
        lanes = ", ".join(f"i64 {n}" for n in range(w))
        suffix = f"v{w}{ {'float': 'f32', 'double': 'f64'}.get(memory, memory)}.p0"
        yield f"define internal void @rows_{'in' if given else 'out'}_{memory}(ptr %c, ptr %p, i64 %count, i64 %valid) #0 {{"
        yield "begin:"
        yield "  %end = sub i64 %valid, 1"
        for r in range(w):
            yield f"  %in{r} = icmp slt i64 {r}, %valid"
            yield f"  %row{r} = select i1 %in{r}, i64 {r}, i64 %end"
            yield f"  %at{r} = mul i64 %row{r}, %count"
            yield f"  %p{r} = getelementptr {memory}, ptr %p, i64 %at{r}"
        yield "  br label %square"
        yield "square:"
        yield "  %k = phi i64 [0, %begin], [%k1, %square]"
        yield "  %left = sub i64 %count, %k"
        yield f"  %l0 = insertelement <{w} x i64> poison, i64 %left, i64 0"
        yield f"  %l1 = shufflevector <{w} x i64> %l0, <{w} x i64> poison, <{w} x i32> zeroinitializer"
        yield f"  %mask = icmp slt <{w} x i64> <{lanes}>, %l1"
        yield f"  %here = mul i64 %k, {w}"
        yield f"  %to = getelementptr {memory}, ptr %c, i64 %here"
        for r in range(w):
            yield f"  %q{r} = getelementptr {memory}, ptr %p{r}, i64 %k"
            yield f"  %c{r} = getelementptr {memory}, ptr %to, i64 {w * r}"
        for r in range(w):
            if given:
                yield f"  %x0_{r} = call {vector} @llvm.masked.load.{suffix}(ptr %q{r}, i32 {_bytes(memory)}, {mask} %mask, {vector} zeroinitializer)"
            else:
                yield f"  %x0_{r} = load {vector}, ptr %c{r}, align {_bytes(memory)}"
        stages = w.bit_length() - 1
        for stage in range(stages):
            for half in range(2):
                order = ", ".join(f"i32 {n // 2 + half * w // 2 + (n % 2) * w}" for n in range(w))
                for r in range(w // 2):
                    ways = f"{vector} %x{stage}_{r}, {vector} %x{stage}_{r + w // 2}"
                    yield f"  %x{stage + 1}_{2 * r + half} = shufflevector {ways}, <{w} x i32> <{order}>"
        for r in range(w):
            if given:
                yield f"  store {vector} %x{stages}_{r}, ptr %c{r}, align {_bytes(memory)}"
            else:
                yield f"  %m{r} = select i1 %in{r}, {mask} %mask, {mask} zeroinitializer"
                yield f"  call void @llvm.masked.store.{suffix}({vector} %x{stages}_{r}, ptr %q{r}, i32 {_bytes(memory)}, {mask} %m{r})"
        yield f"  %k1 = add i64 %k, {w}"
        yield "  %again = icmp slt i64 %k1, %count"
        yield "  br i1 %again, label %square, label %out"
        yield "out:"
        yield "  ret void"
        yield "}"

    def declarations(self) -> Iterator[str]:
        for memory, given in sorted({(x.memory, x.given) for x in self.aside if x.front}):
            w, vector = self.width, f"<{self.width} x {memory}>"
            suffix = f"v{w}{ {'float': 'f32', 'double': 'f64'}.get(memory, memory)}.p0"
            if given:
                yield f"declare {vector} @llvm.masked.load.{suffix}(ptr, i32, <{w} x i1>, {vector})"
            else:
                yield f"declare void @llvm.masked.store.{suffix}({vector}, ptr, i32, <{w} x i1>)"


def _loaded(kind: str, name: str, pointer: str, offset: int) -> Iterator[str]:
    """The value so many bytes behind a pointer."""
    yield f"  %to_{name} = getelementptr i8, ptr {pointer}, i64 {offset}"
    yield f"  %{name} = load {kind}, ptr %to_{name}"


def _stored(name: str, values: Sequence[str], label: str = "asked") -> Iterator[str]:
    """Values of eight bytes each, one after the other."""
    for k, value in enumerate(values):
        yield f"  %{label}_{name}{k} = getelementptr i64, ptr %{name}, i64 {k}"
        yield f"  store {value}, ptr %{label}_{name}{k}"


def _bytes(memory: str) -> int:
    return {"float": 4, "double": 8, "i32": 4, "i8": 1}[memory]
