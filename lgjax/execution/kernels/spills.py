"""Numbers for which a thread has no register: they wait in memory, and are loaded again before they are used.

The assembler would see to that too, but one number at a time; of stores and loads that it is given it makes one of
four numbers. Belady's rule: the number that goes is the one that is needed last. Memory is that of the multiprocessor
("shared") as long as it suffices for eight warps, then that of the thread ("local").

Read first: `ptx.py`, whose lines these are.
"""

import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from lgjax.execution.kernels.rows import THREADS

REGISTERS = {"f32": 208, "f64": 100}  # numbers held at a time: of its 255 the assembler needs some to work ahead
SHARED = 19968  # bytes of a block in all: what the assembler of CUDA 12.9 uses, so that eight blocks fit on an A100
VECTOR = 16  # bytes that move at once
NUMBER = re.compile(r"%f\d+")


@dataclass
class Line:
    """A line of a kernel: its text in two parts, the registers of floating numbers that it sets, and those it reads."""

    head: str
    tail: str
    sets: str | None
    reads: tuple[str, ...]

    @property
    def text(self) -> str:
        return self.head + self.tail

    @property
    def registers(self) -> tuple[str, ...]:
        return (*self.reads, self.sets) if self.sets else self.reads

    @classmethod
    def of(cls, text: str) -> "Line":
        """The first operand is the result, but for stores, labels and jumps."""
        head, comma, tail = text.partition(",")
        found = NUMBER.search(head)
        if found is None or text.startswith("  st."):
            return cls("", text, None, tuple(dict.fromkeys(NUMBER.findall(text))))
        return cls(head + comma, tail, found[0], tuple(dict.fromkeys(NUMBER.findall(tail))))


@dataclass
class Memory:
    """Places for numbers of a thread: `inside` of them in shared memory, the others in local memory.

    loads: how many there are; each sets a register of its own, %w0 and so on.
    """

    dtype: str
    inside: int = 0
    free: list[int] = field(default_factory=list)
    count: int = 0
    loads: int = 0

    @property
    def width(self) -> int:
        return 4 if self.dtype == "f32" else 8

    def take(self) -> int:
        if self.free:
            return self.free.pop()
        self.count += 1
        return self.count - 1

    def store(self, place: int, register: str) -> str:
        return f"  st.{self._at(place)}, {register};"

    def load(self, register: str, place: int) -> str:
        space, address = self._at(place).split()
        return f"  ld.{space} {register}, {address};"

    def _at(self, place: int) -> str:
        """Neighboring threads have their vectors side by side."""
        if place >= self.inside:
            return f"local.{self.dtype} [%own_waiting+{(place - self.inside) * self.width}]"
        vector, rest = divmod(place * self.width, VECTOR)
        return f"shared.{self.dtype} [%waiting+{vector * VECTOR * THREADS + rest}]"

    def declarations(self) -> Iterator[str]:
        if self.loads:
            yield f"  .reg .{self.dtype} %w<{self.loads}>;"
        if inside := min(self.count, self.inside):
            yield f"  .shared .align {VECTOR} .b8 waiting[{-(-inside * self.width // VECTOR) * VECTOR * THREADS}];"
            yield "  .reg .u32 %waiting;"
        if self.count > self.inside:
            yield f"  .local .align {VECTOR} .b8 own_waiting[{self.own_bytes}];"
            yield "  .reg .u64 %own_waiting, %nothing;"

    @property
    def own_bytes(self) -> int:
        """Of local memory."""
        return max(0, self.count - self.inside) * self.width

    def begin(self, pointer: str = "") -> Iterator[str]:
        """pointer: a parameter, of which there is one where anything is computed.

        Its first bit is 0, which the assembler does not know. If it knew where in local memory numbers are, it would
        take them back into registers, and spill them one by one.
        """
        if self.count and self.inside:
            yield "  mov.u32 %waiting, waiting;"
            yield f"  mad.lo.u32 %waiting, %thread, {VECTOR}, %waiting;"
        if self.count > self.inside:
            yield f"  ld.param.u64 %nothing, [{pointer}];"
            yield "  shr.u64 %nothing, %nothing, 63;"
            yield f"  mul.lo.u64 %nothing, %nothing, {VECTOR};"
            yield "  mov.u64 %own_waiting, own_waiting;"
            yield "  add.u64 %own_waiting, %own_waiting, %nothing;"


def spilled(texts: list[str], dtype: str, taken: int) -> tuple[list[str], Memory]:
    """The lines with stores and loads where too many numbers wait, and the memory that they use.

    dtype: "f32" or "f64". taken: bytes of shared memory that the block uses otherwise. Where there are loops, numbers
    that are used on both sides of a label are in memory.
    """
    memory = Memory(dtype)
    lines = [Line.of(text) for text in texts]
    if most_waiting(lines) <= REGISTERS[dtype]:
        return texts, memory
    memory.inside = max(0, SHARED - taken) // (VECTOR * THREADS) * VECTOR // memory.width
    blocks, seen, common = _blocks(lines), {}, {}
    for k, block in enumerate(blocks):
        for x in [x for line in block for x in line.registers if seen.setdefault(x, k) != k]:
            common[x] = common[x] if x in common else memory.take()
    return [text for block in blocks for text in _Spilling(block, memory, common).lines()], memory


def most_waiting(lines: Sequence[Line]) -> int:
    """The largest number of values that are still to be read at one time; what a loop reads, until it ends."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    labels: list[int] = []
    for n, line in enumerate(lines):
        for x in line.registers:
            first.setdefault(x, n)
            last[x] = n
        if line.text.endswith(":"):
            labels.append(n)
        elif " bra " in line.text:
            begun = labels.pop()
            last |= {x: n for x, end in last.items() if end > begun > first[x]}
    changes = np.zeros(len(lines) + 1, int)
    np.add.at(changes, list(first.values()), 1)
    np.add.at(changes, list(last.values()), -1)
    return int(np.max(np.cumsum(changes), initial=0))


def _blocks(lines: Sequence[Line]) -> list[list[Line]]:
    """What lies between labels and jumps."""
    blocks: list[list[Line]] = [[]]
    for line in lines:
        if line.text.endswith(":"):
            blocks.append([])
        blocks[-1].append(line)
        if " bra " in line.text:
            blocks.append([])
    return blocks


class _Spilling:
    """Goes through the lines of a block. held: in which register each value is that is in one.

    places: in memory, of values that are there. common: those of values that other blocks use too.
    """

    def __init__(self, block: Sequence[Line], memory: Memory, common: dict[str, int]):
        self.block, self.memory, self.common = block, memory, common
        self.places, self.held = dict(common), {}
        self.next: dict[str, list[int]] = {}  # lines that read a value, the next one at the end
        for n, line in reversed(list(enumerate(block))):
            for x in line.reads:
                self.next.setdefault(x, []).append(n)
        self.farthest: list[tuple[int, str]] = []  # a heap of (- the line of the next use, value), some outdated

    def lines(self) -> Iterator[str]:
        for line in self.block:
            for x in line.reads:
                if x not in self.held:
                    yield self._load(x)
            yield from self._make_room()
            yield line.head + NUMBER.sub(lambda found: self.held[found[0]], line.tail)
            for x in line.reads:
                self.next[x].pop()
                self._hold(x)
            if line.sets:
                self.held[line.sets] = line.sets
                if line.sets in self.common:
                    yield self.memory.store(self.common[line.sets], line.sets)
                self._hold(line.sets)
                yield from self._make_room()

    def _load(self, x: str) -> str:
        self.held[x] = f"%w{self.memory.loads}"
        self.memory.loads += 1
        self._hold(x)
        return self.memory.load(self.held[x], self.places[x])

    def _hold(self, x: str) -> None:
        """Keep a value in its register if the block reads it again."""
        if uses := self.next.get(x):
            heapq.heappush(self.farthest, (-uses[-1], x))
            return
        self.held.pop(x)
        if x not in self.common and x in self.places:
            self.memory.free.append(self.places.pop(x))

    def _make_room(self) -> Iterator[str]:
        while len(self.held) > REGISTERS[self.memory.dtype]:
            line, x = heapq.heappop(self.farthest)
            if x not in self.held or self.next[x][-1] != -line:
                continue
            if x not in self.places:
                self.places[x] = self.memory.take()
                yield self.memory.store(self.places[x], self.held[x])
            self.held.pop(x)
