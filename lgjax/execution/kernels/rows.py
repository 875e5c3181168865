"""Arrays of a kernel with the batch in front: the numbers of a system lie side by side, in a row.

The threads of a block copy the rows of their systems together, neighboring threads neighboring numbers, between the
device's memory and that of the multiprocessor ("shared"), where each thread reads and writes its own row. So nobody has
to transpose the array. What is the same for all systems, as the parameters of a model, they copy there too: it is read
so often that threads would wait for it in the device's memory.

Read first: `ptx.py`, which writes the rest of the kernel.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

THREADS = 32  # of a block: one warp; a large program leaves registers for eight warps of a multiprocessor in any case
BUDGET = 10752  # bytes of a block for rows, tuned on an H200
COMMON = 8192  # bytes of a block for what is the same for all systems
EVERYONE = "bar.warp.sync 0xffffffff;"


@dataclass
class Rows:
    """An array in shared memory. pointer: of the array; count: numbers of a row; width: bytes of one.

    start: bytes before it. reads, writes: when the thread reads or writes a number of its own row.
    """

    pointer: str
    count: int
    width: int
    start: int = 0
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)

    @property
    def pitch(self) -> int:
        """Bytes from a row to the next. Rows of whole banks are set apart, or all threads would read from one bank."""
        return self.width * (self.count + (self.count % THREADS == 0))

    @property
    def bytes(self) -> int:
        return -(-THREADS * self.pitch // 16) * 16

    def number(self, k: int) -> str:
        """The address of number k of the thread's own row."""
        return f"[%row_{self.pointer}+{k * self.width}]"

    def setup(self, size: int) -> Iterator[str]:
        """Addresses: of the thread's row, and of the first number that it copies."""
        p = self.pointer
        yield f"  .reg .u32 %row_{p};"
        yield f"  .reg .u64 %all_{p};"
        yield f"  mad.lo.u32 %row_{p}, %thread, {self.pitch}, %shared;"
        yield f"  add.u32 %row_{p}, %row_{p}, {self.start};"
        yield f"  ld.param.u64 %all_{p}, [{p}];"
        yield f"  cvta.to.global.u64 %all_{p}, %all_{p};"
        yield f"  mad.wide.u32 %all_{p}, %block, {THREADS * self.count * self.width}, %all_{p};"
        yield f"  mad.wide.u32 %all_{p}, %thread, {self.width}, %all_{p};"
        if size % THREADS:
            yield f"  .reg .s32 %left_{p};"
            yield f"  mad.lo.s32 %left_{p}, %block, -{THREADS}, {size};"
            yield f"  min.s32 %left_{p}, %left_{p}, {THREADS};"
            yield f"  mul.lo.s32 %left_{p}, %left_{p}, {self.count};"
            yield f"  sub.s32 %left_{p}, %left_{p}, %thread;"

    def _turns(self, size: int) -> Iterator[tuple[list[str], str, str, str]]:
        """For each number that a thread copies: lines before it, its condition, and where it is, here and there."""
        for j in range(self.count):
            test = [f"  setp.gt.s32 %copies, %left_{self.pointer}, {THREADS * j};"] if size % THREADS else []
            gap = j * THREADS // self.count if self.pitch > self.width * self.count else 0
            here = f"[%mine{self.width}+{self.start + (THREADS * j + gap) * self.width}]"
            yield test, "@%copies " if test else "", here, f"[%all_{self.pointer}+{THREADS * j * self.width}]"

    def copied_in(self, size: int) -> Iterator[str]:
        for test, condition, here, there in self._turns(size):
            yield from test
            yield f"  {condition}cp.async.ca.shared.global {here}, {there}, {self.width};"

    def copied_out(self, size: int) -> Iterator[str]:
        kind = f"b{8 * self.width}"
        for test, condition, here, there in self._turns(size):
            yield from test
            yield f"  ld.shared.{kind} %moved{self.width}, {here};"
            yield f"  {condition}st.global.{kind} {there}, %moved{self.width};"


def chosen(
    arguments: Sequence[tuple[int, int]], results: Sequence[tuple[int, int]], budget: int = BUDGET
) -> tuple[bool, ...]:
    """Which arrays, of (numbers of a row, bytes of one), go through shared memory: the largest arguments that fit.

    If all fit, so do results of the kind of an argument, which mostly find place where that was, and then others. A
    kernel whose arguments do not fit needs shared memory more for what registers cannot hold.
    """
    size = lambda array: Rows("", *array).bytes
    possible = lambda array: array[0] > 0 and array[1] in (4, 8)
    left, taken = budget, [False] * (len(arguments) + len(results))
    for k in sorted(range(len(arguments)), key=lambda k: -size(arguments[k])):
        if possible(arguments[k]) and size(arguments[k]) <= left:
            left, taken[k] = left - size(arguments[k]), True
    if any(count and not t for (count, _), t in zip(arguments, taken, strict=False)):
        return tuple(taken)
    places = Counter(arguments)
    for k, array in enumerate(results, start=len(arguments)):
        if places[array] and possible(array):
            places[array] -= 1
            taken[k] = True
        elif possible(array) and size(array) <= left:
            left, taken[k] = left - size(array), True
    return tuple(taken)


class Shared:
    """The rows of a kernel: read before anything is computed, written at its end."""

    def __init__(self, arrays: Sequence[tuple[int, int]], arguments: int, front: Sequence[bool], size: int):
        """arrays: (numbers of a row, bytes of one), so many arguments, then the results; front: which are rows."""
        front = front or [False] * len(arrays)
        names = [f"a{k}" if k < arguments else f"r{k - arguments}" for k in range(len(arrays))]
        self.rows = {p: Rows(p, *array) for p, array, f in zip(names, arrays, front, strict=True) if f}
        self.arguments = [x for p, x in self.rows.items() if p.startswith("a")]
        self.results = [x for p, x in self.rows.items() if p.startswith("r")]
        self.common: dict[str, tuple[int, int, int]] = {}  # where an array begins, its numbers, bytes of one
        self.size, self.now, self.bytes, self.common_bytes = size, 0, 0, 0

    def hold(self, arrays: Sequence[tuple[str, int, int, int]], room: int) -> None:
        """Choose among the arrays that all systems share those that are worth a copy and have room: most read first.

        arrays: (pointer, numbers, bytes of one, how many of the numbers are read). room: bytes of the block. A thread
        copies one in 32 of the numbers.
        """
        left = min(COMMON, room - sum(x.bytes for x in self.rows.values()))
        for pointer, count, width, read in sorted(arrays, key=lambda x: -x[3] / max(x[1], 1)):
            size = -(-count * width // 16) * 16
            if width in (4, 8) and 0 < count <= THREADS * read and self.common_bytes + size <= left:
                self.common[pointer] = self.common_bytes, count, width
                self.common_bytes += size

    def to_all(self, pointer: str, k: int) -> str | None:
        """The address of number k of an argument that is the same for all systems, if it is held."""
        if pointer not in self.common:
            return None
        start, _, width = self.common[pointer]
        return f"[%common+{start + k * width}]"

    def to_read(self, pointer: str, k: int) -> str:
        """The address of number k of an argument, which is read next."""
        return self._visited(self.rows[pointer], self.rows[pointer].reads, k)

    def to_write(self, pointer: str, k: int) -> str:
        return self._visited(self.rows[pointer], self.rows[pointer].writes, k)

    def _visited(self, rows: Rows, when: list[int], k: int) -> str:
        self.now += 1
        when.append(self.now)
        return rows.number(k)

    def _placed(self) -> int:
        """Bytes of all rows, once it is known when they are read and written.

        A result goes where an argument was, if the argument is not read once the result is begun. Lines are executed in
        the order in which they are written: nothing is stored inside a loop.
        """
        end, free = 0, list(self.arguments)
        for x in self.arguments:
            x.start, end = end, end + x.bytes
        for x in self.results:
            begun, kind = min(x.writes, default=0), (x.count, x.width)
            place = next((a for a in free if (a.count, a.width) == kind and max(a.reads, default=0) < begun), None)
            if place is None:
                x.start, end = end, end + x.bytes
            else:
                x.start = place.start
                free.remove(place)
        return end

    def begin(self) -> Iterator[str]:
        """The lines before all others, made after them: what is never read is not copied, and `_placed` can tell."""
        self.arguments = [x for x in self.arguments if x.reads]
        if self.arguments or self.results:
            yield from self._begin_rows()
        if self.common:
            yield from self._begin_common()
        if self.arguments or self.common:
            yield "  cp.async.wait_all;"
            yield f"  {EVERYONE}"
        self.bytes += self.common_bytes

    def _begin_rows(self) -> Iterator[str]:
        widths = sorted({x.width for x in self.rows.values()})
        self.bytes = self._placed()
        yield f"  .shared .align 16 .b8 rows[{self.bytes}];"
        yield "  .reg .u32 %shared;"
        yield "  .reg .pred %copies;"
        for width in widths:
            yield f"  .reg .u32 %mine{width};"
            yield f"  .reg .b{8 * width} %moved{width};"
        yield "  mov.u32 %shared, rows;"
        for width in widths:
            yield f"  mad.lo.u32 %mine{width}, %thread, {width}, %shared;"
        for x in (*self.arguments, *self.results):
            yield from x.setup(self.size)
        for x in self.arguments:
            yield from x.copied_in(self.size)

    def _begin_common(self) -> Iterator[str]:
        yield f"  .shared .align 16 .b8 common[{self.common_bytes}];"
        yield "  .reg .u32 %common, %to_common;"
        yield "  .reg .u64 %of_all;"
        yield "  .reg .pred %some;"
        yield "  mov.u32 %common, common;"
        for pointer, (start, count, width) in self.common.items():
            yield f"  ld.param.u64 %of_all, [{pointer}];"
            yield "  cvta.to.global.u64 %of_all, %of_all;"
            yield f"  mad.wide.u32 %of_all, %thread, {width}, %of_all;"
            yield f"  mad.lo.u32 %to_common, %thread, {width}, %common;"
            for j in range(0, count, THREADS):
                whole = count - j >= THREADS
                if not whole:
                    yield f"  setp.lt.u32 %some, %thread, {count - j};"
                there, here = f"[%to_common+{start + j * width}]", f"[%of_all+{j * width}]"
                yield f"  {'' if whole else '@%some '}cp.async.ca.shared.global {there}, {here}, {width};"

    def end(self) -> Iterator[str]:
        if self.results:
            yield f"  {EVERYONE}"
        for x in self.results:
            yield from x.copied_out(self.size)
