"""Copies between arrays of a batch and columns of one vector of systems each, in LLVM's language.

Column k holds number k of each system of a vector, in contiguous memory. In an array with the batch last, these numbers
are contiguous already, and only the rest of a batch is copied. In an array with the batch first, each system has a row
of all its numbers. There, squares are transposed: `width` systems by `width` numbers.

Read first: `calling.py`.
"""

from collections.abc import Sequence

BYTES = {"float": 4, "double": 8, "i32": 4, "i8": 1}
SUFFIX = {"float": "f32", "double": "f64"}


def columns(memory: str, width: int, given: bool) -> str:
    """`@columns_in` copies an argument, filled up with its last system; `@columns_out` valid systems of a result."""
    source, target = ("%there", "%here") if given else ("%here", "%there")
    return f"""
define internal void @columns_{"in" if given else "out"}_{memory}(ptr %c, ptr %p, i64 %count, i64 %n, i64 %valid) {{
begin:
  %end = sub i64 %valid, 1
  br label %column
column:
  %k = phi i64 [0, %begin], [%k1, %next]
  %first = mul i64 %k, %n
  %column_ = mul i64 %k, {width}
  br label %lane
lane:
  %i = phi i64 [0, %column], [%i1, %lane]
  %within = icmp slt i64 %i, %end
  %j = select i1 %within, i64 %i, i64 %end
  %a = add i64 %first, %j
  %there = getelementptr {memory}, ptr %p, i64 %a
  %b = add i64 %column_, %i
  %here = getelementptr {memory}, ptr %c, i64 %b
  %x = load {memory}, ptr {source}
  store {memory} %x, ptr {target}
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {width if given else "%valid"}
  br i1 %more, label %lane, label %next
next:
  %k1 = add i64 %k, 1
  %again = icmp slt i64 %k1, %count
  br i1 %again, label %column, label %out
out:
  ret void
}}"""


def rows_in(memory: str, width: int, _: bool) -> str:
    """`@rows_in` copies rows of an argument to columns, and the last row again for each that is missing."""
    vector, mask = f"<{width} x {memory}>", f"<{width} x i1>"
    load = f"call {vector} @{_masked(memory, width, True)}"
    read = [
        f"  %x0_{r} = {load}(ptr %q{r}, i32 {BYTES[memory]}, {mask} %mask, {vector} zeroinitializer)"
        for r in range(width)
    ]
    stages, shuffles = _transposition(vector, width)
    write = [f"  store {vector} %x{stages}_{r}, ptr %c{r}, align {BYTES[memory]}" for r in range(width)]
    return _squares("rows_in", memory, width, [*read, *shuffles, *write])


def rows_out(memory: str, width: int, _: bool) -> str:
    """`@rows_out` copies columns of a result to its valid rows."""
    vector, mask = f"<{width} x {memory}>", f"<{width} x i1>"
    store = f"call void @{_masked(memory, width, False)}"
    read = [f"  %x0_{r} = load {vector}, ptr %c{r}, align {BYTES[memory]}" for r in range(width)]
    stages, shuffles = _transposition(vector, width)
    write = [
        f"  %m{r} = select i1 %in{r}, {mask} %mask, {mask} zeroinitializer\n"
        f"  {store}({vector} %x{stages}_{r}, ptr %q{r}, i32 {BYTES[memory]}, {mask} %m{r})"
        for r in range(width)
    ]
    return _squares("rows_out", memory, width, [*read, *shuffles, *write])


def _squares(name: str, memory: str, width: int, square: Sequence[str]) -> str:
    """A loop over the squares of a vector of systems. %mask: which of the next `width` numbers a row has."""
    line, lanes = "\n".join, ", ".join(f"i64 {n}" for n in range(width))
    rows = line(
        f"  %in{r} = icmp slt i64 {r}, %valid\n"
        f"  %row{r} = select i1 %in{r}, i64 {r}, i64 %end\n"
        f"  %at{r} = mul i64 %row{r}, %count\n"
        f"  %p{r} = getelementptr {memory}, ptr %p, i64 %at{r}"
        for r in range(width)
    )
    places = line(
        f"  %q{r} = getelementptr {memory}, ptr %p{r}, i64 %k\n"
        f"  %c{r} = getelementptr {memory}, ptr %to, i64 {width * r}"
        for r in range(width)
    )
    return f"""
define internal void @{name}_{memory}(ptr %c, ptr %p, i64 %count, i64 %n, i64 %valid) #0 {{
begin:
  %end = sub i64 %valid, 1
{rows}
  br label %square
square:
  %k = phi i64 [0, %begin], [%k1, %square]
  %left = sub i64 %count, %k
  %one = insertelement <{width} x i64> poison, i64 %left, i64 0
  %all = shufflevector <{width} x i64> %one, <{width} x i64> poison, <{width} x i32> zeroinitializer
  %mask = icmp slt <{width} x i64> <{lanes}>, %all
  %here = mul i64 %k, {width}
  %to = getelementptr {memory}, ptr %c, i64 %here
{places}
{line(square)}
  %k1 = add i64 %k, {width}
  %again = icmp slt i64 %k1, %count
  br i1 %again, label %square, label %out
out:
  ret void
}}"""


def _transposition(vector: str, width: int) -> tuple[int, list[str]]:
    """Perfect shuffles that transpose rows x0 of a square, and their number; each rotates the bits of (row, lane)."""
    stages = width.bit_length() - 1
    lines = []
    for stage in range(stages):
        for half in range(2):
            order = ", ".join(f"i32 {n // 2 + half * (width // 2) + n % 2 * width}" for n in range(width))
            for r in range(width // 2):
                ways = f"{vector} %x{stage}_{r}, {vector} %x{stage}_{r + width // 2}"
                lines.append(f"  %x{stage + 1}_{2 * r + half} = shufflevector {ways}, <{width} x i32> <{order}>")
    return stages, lines


def _masked(memory: str, width: int, load: bool) -> str:
    return f"llvm.masked.{'load' if load else 'store'}.v{width}{SUFFIX.get(memory, memory)}.p0"


def declaration(memory: str, width: int, given: bool) -> str:
    """The declaration of the LLVM intrinsic that copies rows."""
    vector, mask = f"<{width} x {memory}>", f"<{width} x i1>"
    if given:
        return f"declare {vector} @{_masked(memory, width, True)}(ptr, i32, {mask}, {vector})"
    return f"declare void @{_masked(memory, width, False)}({vector}, ptr, i32, {mask})"
