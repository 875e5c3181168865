"""What a compiled CUDA program launches and what its kernels consist of, read from texts: no GPU is needed.

XLA's dump lists what is launched; the assembler and the disassembler of NVIDIA's wheels tell registers, spills and
instructions. Used by `sm90.py`.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

PTXAS, NVDISASM = "nvidia/cuda_nvcc/bin/ptxas", "nvidia/cu13/bin/nvdisasm"  # in the folder of installed packages
SLOW = re.compile(r"D(ADD|MUL|FMA|SETP)|MUFU|F2[FI]|I2F")  # half the rate of others, or less


class Launch(NamedTuple):
    """One line of the schedule: an instruction of the HLO, what launches it, and how often."""

    instruction: str
    kind: str
    kernel: str
    blocks: int
    threads: int
    times: int


# ---- the schedule
def launches(sequence: str, metadata: str, hlo: str) -> list[Launch]:
    """All of a program, loops by their trip counts. sequence, metadata: XLA's lists of thunks; hlo: the module."""
    names = {
        int(number): name for name, number in re.findall(r'profile_annotation: "([^"]*)"\s+thunk_id: (\d+)', metadata)
    }
    counts = dict(re.findall(r"^\s*%?([\w.\-]+) = .*? while\(.*known_trip_count\":\{\"n\":\"(\d+)\"", hlo, re.M))
    lines = [line for line in sequence.splitlines() if line.strip()]
    return list(_launches(lines, names, counts, 1))


def _launches(lines: list[str], names: dict[int, str], counts: dict[str, str], times: int) -> Iterator[Launch]:
    """XLA does not compute the condition of a loop whose turns are known; that of others is not counted either."""
    k = 0
    while k < len(lines):
        end = k + 1
        while end < len(lines) and (_indent(lines[end]) > _indent(lines[k]) or lines[end].strip() == "condition:"):
            end += 1
        if head := re.match(r"\s*(\d+): (k\w+)", lines[k]):
            name = names.get(int(head[1]), "")
            within = lines[k + 1 : end]
            if head[2] == "kWhile":
                body = within[[line.strip() for line in within].index("body:") + 1 :]
                yield from _launches(body, names, counts, times * int(counts.get(name, 1)))
            elif within:
                yield from _launches(within, names, counts, times)
            else:
                what = re.search(r"\] (\S+) grid: \[(\d+), (\d+), (\d+)\] threads: \[(\d+)", lines[k])
                blocks = int(what[2]) * int(what[3]) * int(what[4]) if what else 0
                yield Launch(name, head[2], what[1] if what else "", blocks, int(what[5]) if what else 0, times)
        k = end if head else k + 1


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


LINE = re.compile(r"^\s*(?:ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)", re.M)
COMPUTATION = re.compile(r"^(?:ENTRY )?%([\w.\-]+) \(.*?\) -> .*? \{$(.*?)^\}", re.M | re.S)


class Instruction(NamedTuple):
    """Bytes of the result, the operation, its operands, and what stands behind them."""

    size: int
    kind: str
    operands: list[str]
    rest: str


def traffic(hlo: str) -> dict[str, int]:
    """Bytes that every instruction of a module reads and writes.

    They are those of its operands and results, but of an array out of which a fused kernel cuts boxes, or into which it
    writes one in place, those of the boxes.
    """
    parts = {name: _instructions_of(text) for name, text in COMPUTATION.findall(hlo)}
    found = {}
    for part in parts.values():
        for name, (size, _, operands, rest) in part.items():
            called = re.search(r"kind=\w+, calls=%([\w.\-]+)", rest)
            boxes, kept = _boxes(parts[called[1]]) if called else ({}, 0)
            read = {x: boxes.get(n, part[x].size if x in part else 0) for n, x in enumerate(operands)}
            found[name] = size - kept + sum(read.values())
    return found


def _instructions_of(text: str) -> dict[str, Instruction]:
    size = lambda shape: sum(map(_bytes, re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", shape)))
    return {
        name: Instruction(size(shape), kind, re.findall(r"%([\w.\-]+)", rest.split("),")[0]), rest)
        for name, shape, kind, rest in LINE.findall(text)
    }


def _boxes(part: dict[str, Instruction]) -> tuple[dict[int, int], int]:
    """Of a fused kernel: bytes read of the parameters of which only boxes are used, and bytes of results left alone."""

    def uses(name: str) -> list[tuple[Instruction, bool]]:
        """Who uses a value, and whether as the array that is cut."""
        users = [(user, x) for user, x in part.items() if name in x.operands]
        of = lambda user, x: uses(user) if x.kind == "bitcast" else [(x, x.operands[0] == name)]
        return [use for user, x in users for use in of(user, x)]

    read = {}
    for name, x in part.items():
        found = uses(name) if x.kind == "parameter" else []
        kinds = {user.kind if first else "" for user, first in found}
        if kinds == {"dynamic-slice"}:
            read[int(x.rest.split(")")[0])] = sum(user.size for user, _ in found)
        elif kinds == {"dynamic-update-slice"}:
            read[int(x.rest.split(")")[0])] = 0
    updates = [x for x in part.values() if x.kind == "dynamic-update-slice"]
    return read, sum(x.size - part[x.operands[1]].size for x in updates)


def _bytes(shape: tuple[str, str]) -> int:
    bits = re.search(r"\d+", shape[0])
    size = max(1, int(bits[0]) // 8) if bits else 1
    for n in filter(None, shape[1].split(",")):
        size *= int(n)
    return size


def own_kernels(hlo: str) -> dict[str, str]:
    """Of every custom call that launches PTX, by its name, the text."""
    calls = re.findall(r'%([\w.\-]+) = .*xla\.gpu\.ptx".*kernel_data = "((?:[^"\\]|\\.)*)"', hlo)
    return {name: re.sub(r"\\([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), text) for name, text in calls}


# ---- kernels
@cache
def counted(ptx: str, site: str) -> dict[str, dict[str, Any]]:
    """Of each kernel of a text: registers, bytes spilled, instructions, KB of code, bytes that a thread moves, mix.

    issued: cycles of a scheduler that a warp takes, loops as often as they turn. site: where the wheels are installed.
    """
    with TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        assemble = [f"{site}/{PTXAS}", "-v", "-O3", "-arch=sm_90a", source, "-o", cubin]
        log = subprocess.run(assemble, capture_output=True, text=True, check=True).stderr
        code = subprocess.run([f"{site}/{NVDISASM}", "-c", cubin], capture_output=True, text=True, check=True).stdout
    waiting = re.findall(r"\b(st|ld)\.(shared|local)\.f(\d+) [^;]*waiting", ptx)  # what the library spills itself
    own = lambda way, *spaces: sum(int(bits) // 8 for w, space, bits in waiting if w == way and space in spaces)
    found, turns = {}, [int(n) for n in re.findall(r"setp\.lt\.u32 \S+ \S+ (\d+);\n\s*@\S+ bra LOOP", ptx)]
    for part in log.split("Compiling entry function")[1:]:
        name = part.split("'")[1]
        text = code.partition(f".text.{name}:")[2].split("\n.text.")[0]
        number = lambda pattern, part=part: int(m[1]) if (m := re.search(pattern, part)) else 0
        found[name] = {
            "registers": number(r"Used (\d+) registers"),
            "spill stores": number(r"(\d+) bytes spill st") + own("st", "shared", "local"),
            "spill loads": number(r"(\d+) bytes spill lo") + own("ld", "shared", "local"),
            "in shared memory": own("st", "shared"),
            **_instructions(text, turns),
        }
    return found


def _instructions(text: str, turns: list[int]) -> dict[str, Any]:
    names, labels, loops = [], {}, []
    for line in text.splitlines():
        if m := re.match(r"\s*(\.L_\w+):", line):
            labels[m[1]] = len(names)
        elif m := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ +)?([\w.]+)(.*)", line):
            target = re.search(r"`\((\.L_\w+)\)", m[2])
            if m[1].startswith("BRA") and target and target[1] in labels:
                loops.append((labels[target[1]], len(names) + 1))
            names.append(m[1])
    end = max((k for k, name in enumerate(names) if name == "EXIT"), default=len(names) - 1) + 1
    loops = [loop for loop in loops if loop[1] <= end]  # behind the exit stands an endless one
    often = [1] * end
    for (first, last), n in zip(loops, turns if len(turns) == len(loops) else [], strict=False):
        often[first:last] = [n * x for x in often[first:last]]
    wide = lambda name: 16 if ".128" in name else 8 if ".64" in name else 4
    return {
        "instructions": end,
        "KB": 16 * end / 1024,
        "issued": sum(n * (2 if SLOW.match(name) else 1) for name, n in zip(names, often, strict=False)),
        "moved": sum(wide(name) for name in names[:end] if name.startswith(("LDG", "STG"))),
        "mix": dict(Counter(name.split(".")[0] for name in names[:end]).most_common()),
    }
