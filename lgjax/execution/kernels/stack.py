"""Numbers for which a native function has no register: they wait on the stack, and are loaded before they are used.

LLVM sees to that too, but straight code then takes it twice as long, and is slower: on an AMD EPYC with AVX-512
(float32, batch 1024, 2026-11-30) the quadruped's forward dynamics takes 0.127 us instead of 0.148, its gradient 0.39
instead of 0.52. Belady's rule: the number goes whose next use is farthest away. What was read from memory that does not
change is read there again. A loop has all that it reads in registers when it begins, and LLVM sees to its inside, where
this rule gains nothing.

Stores and loads are volatile: otherwise LLVM takes what was stored from a register, and loads nothing.

Read first: `llvm.py`, whose lines these are.
"""

import heapq
import platform
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lgjax.execution.kernels.llvm_writer import LlvmWriter

NUMBER = re.compile(r"%f\d+")
SET = re.compile(r"^  (%f\d+) = ", re.M)
BEGIN = re.compile(r"  br label %((loop|while)(\d+))$")
ENDS = {"loop": "after", "while": "behind"}
Again = Callable[[], list[str]]  # lines, the last of which sets a register


def held(registers: int) -> int:
    """Numbers that are held at a time, with registers of so many bytes: some are left for what LLVM computes itself."""
    return 28 if registers == 64 or platform.machine() in ("arm64", "aarch64") else 14


@dataclass(slots=True)
class Step:
    """A line, or the lines of a loop: the numbers that they read from before, and those that they set.

    loads: those that are loaded before, each with its new register, or with the lines that read it again.
    """

    lines: Sequence[str]
    reads: Collection[str]
    sets: Sequence[str]
    loads: Sequence[tuple[str, str | list[str]]] = ()


@dataclass(slots=True)
class Stay:
    """A number's time on the stack, from the step that sets it to the last that loads it."""

    begin: int
    end: int
    place: int = -1


def waiting(out: LlvmWriter, keep: int, again: Mapping[str, Again]) -> tuple[list[str], int]:
    """The lines of a writer with stores and loads, and the number of places on the stack: %wait0, %wait1 ...

    keep: numbers that are held at a time. again: how a number is read where it came from.
    """
    found = _Waiting(out, keep, again)
    found.go()
    count = _places(found.stays.values())
    return list(found.lines()), count


def _steps(lines: Sequence[str]) -> Iterator[Step]:
    """A loop begins with the jump to its first label."""
    ends = {x: n for n, x in enumerate(lines) if x.endswith(":")}
    n = 0
    while n < len(lines):
        line = lines[n]
        begin = BEGIN.match(line)
        if begin and ends[f"{begin[1]}:"] == n + 1:
            end = 1 + ends[f"{ENDS[begin[2]]}{begin[3]}:"]
            text = "\n".join(lines[n:end])
            sets = SET.findall(text)
            own = set(sets)
            yield Step(lines[n:end], [x for x in dict.fromkeys(NUMBER.findall(text)) if x not in own], sets)
            n = end
            continue
        names = NUMBER.findall(line) if "%f" in line else ()
        n += 1
        if names and SET.match(line):
            yield Step((line,), dict.fromkeys(names[1:]), names[:1])
        else:
            yield Step((line,), dict.fromkeys(names), ())


def _places(stays: Collection[Stay]) -> int:
    """Give each stay a place that is free; the number of places."""
    free: list[int] = []
    ends: list[tuple[int, int]] = []
    count = 0
    for stay in sorted(stays, key=lambda stay: stay.begin):
        while ends and ends[0][0] < stay.begin:
            heapq.heappush(free, heapq.heappop(ends)[1])
        if not free:
            free.append(count)
            count += 1
        stay.place = heapq.heappop(free)
        heapq.heappush(ends, (stay.end, stay.place))
    return count


class _Waiting:
    """Goes through the steps. held: in which register each number is that is in one. stays: of those on the stack.

    begin: the step that sets a number. next: the steps that read it, the next one at the end.
    """

    def __init__(self, out: LlvmWriter, keep: int, again: Mapping[str, Again]):
        self.out, self.keep, self.again = out, keep, again
        self.steps = list(_steps(out.lines))
        self.held: dict[str, str] = {}
        self.renamed: set[str] = set()  # those that have been loaded
        self.stays: dict[str, Stay] = {}
        self.begin: dict[str, int] = {}
        self.next: dict[str, list[int]] = {}
        for n in range(len(self.steps) - 1, -1, -1):
            for x in self.steps[n].reads:
                self.next.setdefault(x, []).append(n)
        self.farthest: list[tuple[int, str]] = []  # a heap of (- the step of the next use, number), some outdated

    def go(self) -> None:
        for n, step in enumerate(self.steps):
            missing = [x for x in step.reads if x not in self.held]
            step.loads = [self._load(n, x) for x in missing]
            if missing or not self.renamed.isdisjoint(step.reads):
                step.lines = [NUMBER.sub(self._name, x) for x in step.lines]
            for x in step.reads:
                self.next[x].pop()
                self._hold(x)
            for x in step.sets:
                self.begin[x], self.held[x] = n, x
                self._hold(x)
            while len(self.held) > self.keep:
                line, x = heapq.heappop(self.farthest)
                if x in self.held and self.next[x][-1] == -line:
                    del self.held[x]

    def _name(self, found: re.Match[str]) -> str:
        return self.held.get(found[0], found[0])

    def _load(self, n: int, x: str) -> tuple[str, str | list[str]]:
        self.renamed.add(x)
        if x in self.again:
            lines = self.again[x]()
            self.held[x] = NUMBER.findall(lines[-1])[0]
            return x, lines
        self.held[x] = self.out.register("f")
        self.stays.setdefault(x, Stay(self.begin[x], n)).end = n
        return x, self.held[x]

    def _hold(self, x: str) -> None:
        """Keep a number in its register if it is read again."""
        if uses := self.next.get(x):
            heapq.heappush(self.farthest, (-uses[-1], x))
        else:
            self.held.pop(x, None)

    def lines(self) -> Iterator[str]:
        vector = self.out.types["f"]
        place = lambda x: f"ptr %wait{self.stays[x].place}, align {self.out.width * self.out.bytes}"
        for step in self.steps:
            for x, way in step.loads:
                yield from way if isinstance(way, list) else [f"  {way} = load volatile {vector}, {place(x)}"]
            yield from step.lines
            yield from (f"  store volatile {vector} {x}, {place(x)}" for x in step.sets if x in self.stays)
