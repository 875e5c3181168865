"""Numbers for which a thread has no register: they wait in memory, and are loaded again before they are used.

The assembler would see to that too, but one number at a time; of stores and loads that it is given it makes one of
four numbers. Belady's rule: the number goes whose next use is farthest away. What was read from memory that does not
change is read there again. The others go to memory of the multiprocessor ("shared") as long as it suffices for eight
blocks (for five, see `ptx.MUCH`), then to that of the thread ("local"). Local memory is slow: measured on an H200,
kernels that use it much are as fast as it is. So the shortest stays have the shared memory first, and of the numbers
that pass from one loop to the next those that are moved most often. Loads come some lines before they are needed.

Read first: `ptx.py`, whose lines these are.
"""

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from lgjax.execution.kernels.rows import THREADS

REGISTERS = {"f32": 208, "f64": 100}  # numbers held at a time: of its 255 the assembler needs some to work ahead
INSIDE, OUTSIDE = 1, 12  # of a number moved to shared memory and to that of the thread, in lines; see `time_of`
EARLY = 60  # lines between a load and its first use
SHARES = 4  # so many parts of what crosses blocks are tried in shared memory: none, a quarter, a half ...
VECTOR = 16  # bytes that move at once
NUMBER = re.compile(r"%f\d+")
LOOP = re.compile(r"LOOP(\d+):")
AGAIN = " bra LOOP"  # the end of a turn; other jumps lead past a loop
UNCHANGING = re.compile(r"  ld\.(global\.nc|shared)\.f\d+ %f\d+, \[%(a\d+|common)\+\d+\];")


def block_memory(multiprocessor: int) -> int:
    """Bytes of shared memory of a block, so that eight fit on a multiprocessor of so many kB; each takes 1 kB more.

    So many blocks have 255 registers for each thread.
    """
    return 1024 * multiprocessor // 8 - 1024


def with_fewer_blocks(memory: int) -> int:
    """Bytes of shared memory of a block if five fit instead of eight. A kernel's text can ask for 48 kB at most.

    It is given out in parts of 128 bytes.
    """
    return min(((memory + 1024) * 8 // 5 - 1024) // 128 * 128, 48 * 1024)


SHARED = block_memory(228)  # of an H100


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


@dataclass(eq=False)
class Stay:
    """A number's time in memory, from its store to its last load, as lines of its block. place: -1 if it has none."""

    begin: float
    end: float
    inside: bool = False
    place: int = -1


@dataclass
class Move:
    """A line that stores a number, or loads it; `again` is the text of a load from elsewhere."""

    register: str
    stay: Stay | None
    load: bool
    again: str = ""


@dataclass
class Memory:
    """Places for numbers of a thread: up to `room` of them in shared memory, the others in local memory.

    inside, outside: how many places are used. loads: how many there are; each sets a register of its own, %w0, %w1 ...
    """

    dtype: str
    room: int = 0
    inside: int = 0
    outside: int = 0
    loads: int = 0

    @property
    def width(self) -> int:
        return 4 if self.dtype == "f32" else 8

    def text(self, move: Move) -> str:
        if move.stay is None:
            return move.again
        space, address = self._at(move.stay).split()
        return f"  ld.{space} {move.register}, {address};" if move.load else f"  st.{space} {address}, {move.register};"

    def _at(self, stay: Stay) -> str:
        """Neighboring threads have their vectors side by side."""
        if not stay.inside:
            return f"local.{self.dtype} [%own_waiting+{stay.place * self.width}]"
        vector, rest = divmod(stay.place * self.width, VECTOR)
        return f"shared.{self.dtype} [%waiting+{vector * VECTOR * THREADS + rest}]"

    def declarations(self) -> Iterator[str]:
        if self.loads:
            yield f"  .reg .{self.dtype} %w<{self.loads}>;"
        if self.inside:
            size = -(-self.inside * self.width // VECTOR) * VECTOR
            yield f"  .shared .align {VECTOR} .b8 waiting[{size * THREADS}];"
            yield "  .reg .u32 %waiting;"
        if self.outside:
            yield f"  .local .align {VECTOR} .b8 own_waiting[{self.own_bytes}];"
            yield "  .reg .u64 %own_waiting, %nothing;"

    @property
    def own_bytes(self) -> int:
        """Bytes of local memory."""
        return self.outside * self.width

    def begin(self, pointer: str = "") -> Iterator[str]:
        """pointer: a parameter, of which there is one where anything is computed.

        Its first bit is 0, which the assembler does not know. If it knew where in local memory numbers are, it would
        take them back into registers, and spill them one by one.
        """
        if self.inside:
            yield "  mov.u32 %waiting, waiting;"
            yield f"  mad.lo.u32 %waiting, %thread, {VECTOR}, %waiting;"
        if self.outside:
            yield f"  ld.param.u64 %nothing, [{pointer}];"
            yield "  shr.u64 %nothing, %nothing, 63;"
            yield f"  mul.lo.u64 %nothing, %nothing, {VECTOR};"
            yield "  mov.u64 %own_waiting, own_waiting;"
            yield "  add.u64 %own_waiting, %own_waiting, %nothing;"


def spilled(
    texts: list[str], dtype: str, taken: int, shared: int = SHARED, counts: Sequence[int] = ()
) -> tuple[list[str], Memory]:
    """The lines with stores and loads where too many numbers wait, and the memory that they use.

    dtype: "f32" or "f64". shared: bytes of shared memory that the block may use, of which `taken` are used
    otherwise. counts: turns of each loop, if there are any. Numbers that are used on both sides of a label are in
    memory.
    """
    memory = Memory(dtype)
    lines = [Line.of(text) for text in texts]
    if most_waiting(lines) <= REGISTERS[dtype]:
        return texts, memory
    memory.room = max(0, shared - taken) // (VECTOR * THREADS) * VECTOR // memory.width
    blocks, seen, crossing = _blocks(lines, counts), {}, {}
    for k, (block, _) in enumerate(blocks):
        for x in [x for line in block for x in line.registers if seen.setdefault(x, k) != k]:
            crossing.setdefault(x, Stay(-inf, inf))
    passes, moved, moves = [], [], Counter[Stay]()
    for block, turns in blocks:
        passes.append(_Spilling(block, memory, crossing))
        moved.append(list(passes[-1].lines()))
        for x in moved[-1]:
            if isinstance(x, Move) and x.stay is not None:
                moves[x.stay] += turns
    _settle(sorted(crossing.values(), key=lambda stay: -moves[stay]), [x.stays for x in passes], memory, moves)
    return [x if isinstance(x, str) else memory.text(x) for lines in moved for x in _early(lines)], memory


def _settle(crossing: Sequence[Stay], stays: Sequence[Sequence[Stay]], memory: Memory, moves: Counter[Stay]) -> None:
    """Places for all: of a few numbers of those that cross blocks, in shared memory, the one with fewest moves outside.

    stays: of each block.
    """

    def place(kept: int) -> int:
        memory.inside, memory.outside = kept, len(crossing) - kept
        for n, stay in enumerate(crossing):
            stay.inside = n < kept
            stay.place = n if stay.inside else n - kept
        for block in stays:
            _place(block, memory, kept, len(crossing) - kept)
        return sum(n for stay, n in moves.items() if not stay.inside)

    most = min(len(crossing), memory.room)
    place(min(sorted({most * k // SHARES for k in range(SHARES + 1)}, reverse=True), key=place))


def _place(stays: Sequence[Stay], memory: Memory, inside: int, outside: int) -> None:
    """Places for the stays of a block, which begin one after the other, from these places on.

    As many as can be go inside: where there is no room, the stay that lasts longest goes outside.
    """
    free, there = list(range(inside, memory.room)), list[Stay]()
    for stay in stays:
        _leave(there, stay.begin, free)
        there.append(stay)
        if free:
            stay.place = heapq.heappop(free)
        else:
            longest = max(there, key=lambda x: x.end)
            there.remove(longest)
            stay.place, longest.place = longest.place, -1
    for stay in stays:
        stay.inside = stay.place >= 0
    memory.inside = max([memory.inside, *(x.place + 1 for x in stays if x.inside)])
    free, there = [], []
    for stay in [x for x in stays if not x.inside]:
        _leave(there, stay.begin, free)
        stay.place = heapq.heappop(free) if free else outside + len(there)
        there.append(stay)
    memory.outside = max([memory.outside, *(x.place + 1 for x in stays if not x.inside)])


def _leave(there: list[Stay], now: float, free: list[int]) -> None:
    """Free the places of the stays that are over."""
    for old in [x for x in there if x.end < now]:
        there.remove(old)
        heapq.heappush(free, old.place)


def _early(moved: Sequence[str | Move]) -> list[str | Move]:
    """The lines of a block with loads before others, but not before the store of what they load."""
    stored: dict[Stay | None, int] = {}
    keys = []
    for n, x in enumerate(moved):
        key = n
        if isinstance(x, Move) and x.load:
            key = max(n - EARLY, stored.get(x.stay, 0) + 1)
        elif isinstance(x, Move):
            stored[x.stay] = n
        keys.append((min(key, n), n))
    return [moved[n] for _, n in sorted(keys)]


def time_of(lines: Sequence[str], counts: Sequence[int]) -> int:
    """In lines, about: signs are part of another line, memory takes longer than one, and loops count by their turns."""
    total, turns = 0, [1]
    for line in lines:
        if found := LOOP.fullmatch(line):
            turns.append(turns[-1] * counts[int(found[1])])
        waits = OUTSIDE if "%own_waiting" in line else INSIDE if "%waiting" in line else 0
        total += turns[-1] * (not line.startswith("  neg.")) * (1 + waits)
        if AGAIN in line:
            turns.pop()
    return total


def most_waiting(lines: Sequence[Line]) -> int:
    """The largest number of values that are still to be read at one time; what a loop reads, until it ends."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    labels: list[int] = []
    for n, line in enumerate(lines):
        for x in line.registers:
            first.setdefault(x, n)
            last[x] = n
        if LOOP.fullmatch(line.text):
            labels.append(n)
        elif AGAIN in line.text:
            begun = labels.pop()
            last |= {x: n for x, end in last.items() if end > begun > first[x]}
    changes = np.zeros(len(lines) + 1, int)
    np.add.at(changes, list(first.values()), 1)
    np.add.at(changes, list(last.values()), -1)
    return int(np.max(np.cumsum(changes), initial=0))


def _blocks(lines: Sequence[Line], counts: Sequence[int]) -> list[tuple[list[Line], int]]:
    """Lines between labels and jumps, and how often they run."""
    turns = [1]
    blocks: list[tuple[list[Line], int]] = [([], 1)]
    for line in lines:
        if found := LOOP.fullmatch(line.text):
            turns.append(turns[-1] * counts[int(found[1])])
        if line.text.endswith(":"):
            blocks.append(([], turns[-1]))
        blocks[-1][0].append(line)
        if " bra " in line.text:
            if AGAIN in line.text:
                turns.pop()
            blocks.append(([], turns[-1]))
    return blocks


class _Spilling:
    """Goes through the lines of a block. held: in which register each value is that is in one.

    stays: in memory, as they begin. waits: those of values that are there now. crossing: those of values that other
    blocks use too.
    """

    def __init__(self, block: Sequence[Line], memory: Memory, crossing: dict[str, Stay]):
        self.block, self.memory, self.crossing = block, memory, crossing
        self.waits, self.held, self.stays = dict(crossing), {}, list[Stay]()
        self.next: dict[str, list[int]] = {}  # lines that read a value, the next one at the end
        for n, line in reversed(list(enumerate(block))):
            for x in line.reads:
                self.next.setdefault(x, []).append(n)
        self.again = {line.sets: line for line in block if line.sets and UNCHANGING.fullmatch(line.text)}
        self.farthest: list[tuple[int, str]] = []  # a heap of (- the line of the next use, value), some outdated
        self.now = 0

    def lines(self) -> Iterator[str | Move]:
        for item in self._lines():
            yield item
            self.now += 1

    def _lines(self) -> Iterator[str | Move]:
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
                if line.sets in self.crossing:
                    yield Move(line.sets, self.crossing[line.sets], load=False)
                self._hold(line.sets)
                yield from self._make_room()

    def _load(self, x: str) -> Move:
        self.held[x] = f"%w{self.memory.loads}"
        self.memory.loads += 1
        self._hold(x)
        if x not in self.waits:
            line = self.again[x]
            return Move(self.held[x], None, load=True, again=line.head.replace(x, self.held[x]) + line.tail)
        self.waits[x].end = max(self.waits[x].end, self.now)
        return Move(self.held[x], self.waits[x], load=True)

    def _hold(self, x: str) -> None:
        """Keep a value in its register if the block reads it again."""
        if uses := self.next.get(x):
            heapq.heappush(self.farthest, (-uses[-1], x))
        else:
            self.held.pop(x)

    def _make_room(self) -> Iterator[Move]:
        while len(self.held) > REGISTERS[self.memory.dtype]:
            line, x = heapq.heappop(self.farthest)
            if x not in self.held or self.next[x][-1] != -line:
                continue
            if x not in self.waits and x not in self.again:
                self.waits[x] = Stay(self.now, self.now)
                self.stays.append(self.waits[x])
                yield Move(self.held[x], self.waits[x], load=False)
            self.held.pop(x)
