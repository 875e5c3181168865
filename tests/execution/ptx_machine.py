"""Runs the PTX that the library writes, in NumPy: all threads at once, an instruction at a time."""

import re
import struct

import numpy as np

DTYPES = {"f32": np.float32, "f64": np.float64, "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u8": np.uint8}
DTYPES |= {"b64": np.uint64, "u64": np.uint64, "pred": np.bool_}
KINDS = {"f": ("f32", "f64", "b32"), "i": ("u32", "s32", "b32", "u8"), "p": ("pred",), "q": ("u64",)}
WIDE = {np.float32: np.float64, np.float64: np.longdouble}
COMPARE = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "neu": np.not_equal, "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}  # fmt: skip
UNARY = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": np.reciprocal,
    "not": np.invert, "mov": np.copy, "cvta": np.copy,
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.fmax, "min": np.fmin, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift, "rem": np.fmod,
    "copysign": lambda s, x: np.copysign(x, s),
}  # fmt: skip


def flushed(x):
    """Numbers below the smallest normal one are zero."""
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(0, x), x).astype(x.dtype)


class Machine:
    """Threads of one kernel over buffers, each of which is addressed from its number in the upper bits."""

    def __init__(self, text: str, threads: int):
        body = text[text.index("{\n", text.index(".visible")) + 2 : text.rindex("}")]
        pieces = re.split(r";|\n(?=\w+:)|(?<=:)\n", body)
        self.code = [
            x.strip()
            for x in pieces
            if x.strip() and not x.strip().startswith((".reg", ".local", ".shared", ".pragma"))
        ]
        self.labels = {x[:-1]: k for k, x in enumerate(self.code) if x.endswith(":")}
        self.threads, self.registers, self.alive, self.copies = threads, {}, np.ones(threads, bool), []
        tables = re.findall(r"\.const \.align 8 \.(\w+) (\w+)\[\d+\] = \{(.*?)\};", text)
        self.buffers = [
            np.array([self.number(x.strip(), t) for x in entries.split(",")], DTYPES[t]) for t, _, entries in tables
        ]
        self.names = {name: n << 40 for n, (_, name, _) in enumerate(tables)}
        for name, size in re.findall(r"\.local \.align \d+ \.b8 (\w+)\[(\d+)\]", text):  # of each thread its own
            self.names[name] = len(self.buffers) << 40
            self.buffers.append(np.full((threads, -(-int(size) // 8) * 8), 77, np.uint8))
        self.block = int(re.search(r"\.reqntid (\d+)", text)[1])
        end = 0
        for name, size in re.findall(r"\.shared \.align 16 \.b8 (\w+)\[(\d+)\]", text):
            self.names[name], end = end, end + -(-int(size) // 16) * 16
        self.shared = np.full((-(-threads // self.block), end), 77, np.uint8)  # of each block its own
        self.writer = np.full(self.shared.shape, -1)  # the thread that wrote a byte since the last barrier
        self.parameters = re.findall(r"\.param \.u64 (\w+)", text)
        self.fetched = 0
        self.apart: list[np.ndarray] = []  # who was alive where threads parted ways, to meet again behind the loop

    def run(self, buffers: list[np.ndarray]) -> None:
        """Results are written into the buffers, one for each parameter."""
        for name, buffer in zip(self.parameters, buffers, strict=True):
            self.names[name] = len(self.buffers) << 40
            self.buffers.append(buffer.reshape(-1))
        everyone = np.arange(self.threads)
        self.registers |= {"%ctaid.x": everyone // self.block, "%tid.x": everyone % self.block}
        at = 0
        while at < len(self.code):
            if self.code[at] == "DONE:":
                self.alive = np.ones(self.threads, bool)
            if self.code[at].startswith("PAST"):
                self.alive = self.apart.pop()
            jump = None if self.code[at].endswith(":") else self.step(self.code[at])
            at = at + 1 if jump is None else self.labels[jump]

    def step(self, line: str) -> str | None:
        """One instruction; the label to go on with, if it is a branch that is taken."""
        self.fetched += 1
        if line.startswith("@") and " bra " not in line:
            before, (test, line) = self.alive, line[1:].split(maxsplit=1)
            self.alive = before & self.registers[test]
            self.step(line)
            self.alive = before
            return None
        if line.startswith("@"):
            test, _, label = line[1:].split()
            taken = ~self.registers[test[1:]] if test.startswith("!") else self.registers[test]
            if label.startswith("PAST"):
                self.apart.append(self.alive)
                self.alive = self.alive & ~taken
                return None if self.alive.any() else label
            if self.apart and label != "DONE":
                again = self.alive & taken
                self.alive = again if again.any() else self.alive
                return label if again.any() else None
            assert taken.all() or not taken.any() or label == "DONE", "threads part ways"
            if label == "DONE" and not taken.all():
                self.alive = ~np.broadcast_to(taken, (self.threads,))
                return None
            return label if taken.all() else None
        if line == "ret":
            return None
        if line == "cp.async.wait_all":
            for copy in self.copies:
                self.store_shared(*copy)
            self.copies = []
            return None
        if line.startswith("bar.warp.sync"):  # what one thread has written, all may read from here on
            assert line.endswith("0xffffffff")
            assert self.alive.all()
            self.writer[:] = -1
            return None
        name, rest = line.split(maxsplit=1)
        operation, *kinds = name.split(".")
        operands = [x.strip() for x in re.findall(r"\s*(\{.*?\}|[^,]+)", rest)]
        if operation == "cp":
            kind = f"b{8 * int(operands[2])}"
            buffer, place = self.address(operands[1], DTYPES[kind])
            there = np.broadcast_to(self.where(operands[0]), (self.threads,)).copy()
            self.copies.append((there, buffer[place].view(DTYPES[kind]), kind, self.alive))
        elif operation == "st":
            store = {"local": self.store_own, "shared": self.store_shared}.get(kinds[0], self.store)
            store(operands[0], self.value(operands[1], kinds[-1]), kinds[-1])
        elif operation == "mov" and "{" in rest:
            self.parts(*operands)
        else:
            with np.errstate(all="ignore"):
                found, old = self.result(operation, kinds, operands[1:]), self.registers.get(operands[0])
                waits = bool(self.apart) and old is not None and not self.alive.all()
                self.registers[operands[0]] = np.where(self.alive, found, old) if waits else found
        return None

    def result(self, operation: str, kinds: list[str], operands: list[str]):
        kind = kinds[-1]
        if operation == "ld":
            if kinds[0] == "param":
                return np.uint64(self.names[operands[0].strip("[]")])
            load = {"local": self.load_own, "shared": self.load_shared}.get(kinds[0], self.load)
            return load(operands[0], kind)
        if operation == "cvt":
            x = self.value(operands[0], kind)
            rounding = {"rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil, "rni": np.rint}.get(kinds[0], np.copy)
            return rounding(x).astype(DTYPES[kinds[1]])
        if operation == "mov" and operands[0] in self.names:
            return np.uint64(self.names[operands[0]])
        if operation == "setp":
            return COMPARE[kinds[0]](*(self.value(x, kind) for x in operands))
        if operation == "selp":
            test = self.registers[operands[2]]
            return np.where(test, self.value(operands[0], kind), self.value(operands[1], kind))
        if operation in ("mul", "mad") and kinds[0] == "wide":
            product = self.value(operands[0], kind).astype(np.uint64) * self.value(operands[1], kind).astype(np.uint64)
            return product + self.value(operands[2], "u64") if operation == "mad" else product
        values = [self.value(x, kind) for x in operands]
        if "ftz" in kinds:
            values = [flushed(x) for x in values]
            return flushed(UNARY[operation](*values))
        if operation == "mad":
            return (values[0] * values[1] + values[2]).astype(DTYPES[kind])
        if operation == "fma":
            a, b, c = (x.astype(WIDE[DTYPES[kind]]) for x in values)
            return (a * b + c).astype(DTYPES[kind])
        if operation == "div":
            if kind.startswith("f"):
                return values[0] / values[1]
            return np.trunc(values[0].astype(float) / values[1]).astype(DTYPES[kind])  # towards zero
        if "NaN" in kinds:
            return {"max": np.maximum, "min": np.minimum}[operation](*values)
        found = (UNARY if len(values) == 1 else BINARY)[operation](*values)
        return found.astype(DTYPES[kind])

    def parts(self, target: str, source: str) -> None:
        """The two halves of a double, or a double from them."""
        names = lambda x: [y.strip() for y in x.strip("{}").split(",")]
        if target.startswith("{"):
            halves = np.atleast_1d(self.registers[source]).astype(np.float64).view(np.uint32).reshape(-1, 2)
            self.registers |= dict(zip(names(target), halves.T, strict=True))
        else:
            low, high = np.broadcast_arrays(*(np.atleast_1d(self.value(x, "u32")) for x in names(source)))
            self.registers[target] = np.stack([low, high], -1).astype(np.uint32).view(np.float64)[..., 0]

    def value(self, x: str, kind: str):
        if not x.startswith("%"):
            return self.number(x, kind)
        if re.fullmatch(r"%[fipq]\d+", x):  # the assembler accepts no other
            assert kind in KINDS[x[1]], (x, kind)
        found, dtype = np.asarray(self.registers[x]), DTYPES[kind]
        if found.dtype == dtype or kind == "pred":
            return found
        same = found.dtype.itemsize == np.dtype(dtype).itemsize
        return np.ascontiguousarray(found).view(dtype).reshape(found.shape) if same else found.astype(dtype)

    @staticmethod
    def number(x: str, kind: str):
        if x.startswith("0f"):
            return np.float32(struct.unpack("<f", struct.pack("<I", int(x[2:], 16)))[0])
        if x.startswith("0d"):
            return np.float64(struct.unpack("<d", struct.pack("<Q", int(x[2:], 16)))[0])
        return np.array(int(x)).astype(DTYPES[kind])

    def where(self, text: str | np.ndarray) -> np.ndarray:
        if not isinstance(text, str):  # an address
            return text
        name, _, offset = text.strip("[]").partition("+")
        start = self.registers[name] if name.startswith("%") else self.names[name]
        return np.asarray(start).astype(np.int64) + int(offset or 0)

    def own(self, text: str, dtype) -> tuple[np.ndarray, np.ndarray]:
        """Memory of every thread as numbers, and which of them each thread means."""
        where = np.broadcast_to(self.where(text), (self.threads,))
        (number,) = np.unique(where[self.alive] >> 40)
        memory, place = self.buffers[int(number)].view(dtype), where & (2**40 - 1)
        assert (place % memory.itemsize == 0)[self.alive].all()
        place = place // memory.itemsize
        assert (place < memory.shape[1])[self.alive].all(), "outside of an array"
        return memory, np.where(self.alive, place, 0)

    def load_own(self, text: str, kind: str):
        memory, place = self.own(text, DTYPES[kind])
        return memory[np.arange(self.threads), place]

    def store_own(self, text: str, value, kind: str) -> None:
        memory, place = self.own(text, DTYPES[kind])
        value = np.broadcast_to(np.asarray(value, DTYPES[kind]), (self.threads,))
        memory[np.flatnonzero(self.alive), place[self.alive]] = value[self.alive]

    def in_shared(self, text: str, kind: str, alive) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Memory of every block as numbers of a kind, and who wrote there last; block and place of each thread."""
        memory = self.shared.view(DTYPES[kind])
        where = np.broadcast_to(self.where(text), (self.threads,))
        assert (where % memory.itemsize == 0).all()
        assert (where[alive] < self.shared.shape[1]).all()
        writer = self.writer[:, :: memory.itemsize]
        return memory, writer, np.arange(self.threads) // self.block, where // memory.itemsize % memory.shape[1]

    def load_shared(self, text: str, kind: str):
        memory, writer, block, place = self.in_shared(text, kind, self.alive)
        last = writer[block, place]
        assert ((last == -1) | (last == np.arange(self.threads)))[self.alive].all(), "read before a barrier"
        return memory[block, place]

    def store_shared(self, text: str, value, kind: str, alive=None) -> None:
        alive = self.alive if alive is None else alive
        memory, writer, block, place = self.in_shared(text, kind, alive)
        value = np.broadcast_to(np.asarray(value, DTYPES[kind]), (self.threads,))
        memory[block[alive], place[alive]] = value[alive]
        writer[block[alive], place[alive]] = np.arange(self.threads)[alive]

    def address(self, text: str, dtype) -> tuple[np.ndarray, np.ndarray]:
        where = self.where(text)
        buffer = self.buffers[int(where.flat[0]) >> 40]
        place = (where & (2**40 - 1)) // np.dtype(dtype).itemsize
        inside = np.broadcast_to(place < max(buffer.size, 1), (self.threads,))
        assert inside[self.alive].all(), "outside of an array"
        return buffer, np.minimum(place, max(buffer.size - 1, 0))

    def load(self, text: str, kind: str):
        buffer, place = self.address(text, DTYPES[kind])
        return buffer[place].astype(DTYPES[kind])

    def store(self, text: str, value, kind: str) -> None:
        buffer, place = self.address(text, DTYPES[kind])
        place, value = np.broadcast_to(place, (self.threads,)), np.broadcast_to(value, (self.threads,))
        value = np.ascontiguousarray(value).view(buffer.dtype) if kind.startswith("b") else value
        buffer[place[self.alive]] = value[self.alive]


def run(kernel, arguments: list[np.ndarray], results: list[tuple]) -> list[np.ndarray]:
    """A kernel on arrays as they lie in memory; results: (shape, dtype) of each."""
    outs = [np.full(shape, 77, dtype) for shape, dtype in results]
    machine = Machine(kernel.text, kernel.blocks * kernel.threads)
    machine.run([x for x in (*map(np.ascontiguousarray, arguments), *outs) if x.size])
    return outs
