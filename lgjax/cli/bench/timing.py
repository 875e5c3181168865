"""Measuring: compilation, first call and steady state apart, blocked on results, as JSON and as a Markdown table."""

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

from lgjax.execution.lasting import default_platform
from lgjax.saving.arrays import write_file

PACKAGES = (
    "jax", "jaxlib", "numpy", "scipy", "diffrax", "pin", "mujoco", "mujoco-mjx", "drake", "exudyn", "adam-robotics",
    "jaxsim", "frax", "brax",
)  # fmt: skip


def environment(**versions: str) -> dict[str, Any]:
    """Circumstances of a measurement: date, device, cores, and versions, those given first."""
    device = jax.devices()[0]
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "device": _processor() if device.platform == "cpu" else device.device_kind,
        "platform": device.platform,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def steady(call: Callable[[], Any], repeats: int = 9, block_seconds: float = 0.2) -> dict[str, float]:
    """Seconds per call in the steady state: median, and lowest and highest quartile, over `repeats` blocks.

    On a CPU `call` returns when its result is ready. Elsewhere it returns its result, and that of the last call of a
    block is waited for: the calls of a block queue up, so that the time to launch one passes while the one before it
    runs. On a CPU a block in which the process did not have its core to itself (less than 93 percent of the wall time)
    is taken again, up to three times as many; `disturbed` counts those that had to stay. A block is one call at least.
    """
    waits = default_platform() != "cpu"  # for its device, which is no disturbance

    def seconds(calls: int) -> tuple[float, float]:
        """Seconds of the clock on the wall, and of the processor."""
        wall, work, result = time.perf_counter(), time.process_time(), None
        for _ in range(calls):
            result = call()
        if waits:
            jax.block_until_ready(result)
        return time.perf_counter() - wall, time.process_time() - work

    calls = max(1, round(block_seconds / max(seconds(1)[0], 1e-9)))
    if waits and calls > 1:  # a call that waits takes longer than one of many
        few = min(calls, 8)
        calls = max(1, round(few * block_seconds / max(seconds(few)[0], 1e-9)))
    clean: list[float] = []
    disturbed: list[float] = []
    while len(clean) < repeats and len(clean) + len(disturbed) < 3 * repeats:
        wall, work = seconds(calls)
        (clean if waits or work > 0.93 * wall else disturbed).append(wall / calls)
    samples = clean + sorted(disturbed)[: repeats - len(clean)]
    low, median, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else samples * 3
    return {"median": median, "low": low, "high": high, "disturbed": len(samples) - len(clean)}


def compiled(function: Any, *args, repeats: int = 9, block_seconds: float = 0.2) -> tuple[dict[str, float], Any]:
    """Times of a jitted function on `args`, and its result: trace, compile and first call in seconds, and `steady`.

    Beside them `temporary`, the bytes that the program needs for what is neither its input nor its output.
    """
    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    lowered = function.lower(*args)
    trace = lap()
    program = lowered.compile()
    compile_ = lap()
    result = jax.block_until_ready(program(*args))
    first = lap()
    memory = program.memory_analysis()
    times = {"trace": trace, "compile": compile_, "first": first}
    times["temporary"] = float("nan") if memory is None else float(memory.temp_size_in_bytes)
    if repeats:
        queue = lambda: program(*args)
        ready = lambda: jax.block_until_ready(program(*args))
        times |= steady(ready if default_platform() == "cpu" else queue, repeats, block_seconds)
    return times, result


def table(rows: Iterable[dict[str, Any]], columns: list[str]) -> str:
    """A Markdown table; numbers with three significant digits."""

    def text(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)

    cells = [columns, *([text(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def headline(where: dict[str, Any]) -> str:
    """One line that says where it was measured, when and with what."""
    versions = ", ".join(f"{k} {v}" for k, v in where["versions"].items())
    return f"{where['device']}, {where['cores']} core(s), {where['date']}; {versions}"


def save(path: str | Path, name: str, where: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Everything as JSON, replaced in one move, so that the file is whole whenever the program ends."""
    write_file(Path(path), (json.dumps({"name": name, "environment": where, "rows": rows}, indent=1) + "\n").encode())
