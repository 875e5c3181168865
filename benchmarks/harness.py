"""Measuring: compilation, first call and steady state apart, blocked on results, as JSON and as a Markdown table."""

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGES = ("lgjax", "jax", "jaxlib", "numpy", "scipy", "diffrax", "pin", "mujoco", "exudyn")


def pin_to_cores(count: int) -> None:
    """Bind this process to `count` cores; call it before jax or a peer is imported. XLA follows it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(count)


def environment() -> dict[str, Any]:
    """What a number means nothing without."""
    import jax

    device = jax.devices()[0]
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    import lgjax

    versions["lgjax"] = lgjax.__version__
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

    `call` returns when its result is ready. A block in which the process did not have its core to itself (less than
    93 percent of the wall time) is taken again, up to three times as many; `disturbed` counts those that had to stay.
    """
    started = time.perf_counter()
    call()
    calls = max(1, round(block_seconds / max(time.perf_counter() - started, 1e-9)))
    clean: list[float] = []
    disturbed: list[float] = []
    while len(clean) < repeats and len(clean) + len(disturbed) < 3 * repeats:
        wall, work = time.perf_counter(), time.process_time()
        for _ in range(calls):
            call()
        wall, work = time.perf_counter() - wall, time.process_time() - work
        (clean if work > 0.93 * wall else disturbed).append(wall / calls)
    samples = clean + sorted(disturbed)[: repeats - len(clean)]
    low, median, high = statistics.quantiles(samples, n=4)
    return {"median": median, "low": low, "high": high, "disturbed": len(samples) - len(clean)}


def compiled(function: Callable, *args, repeats: int = 9) -> tuple[dict[str, float], Any]:
    """Times of a jitted function on `args`, and its result: trace, compile and first call in seconds, and `steady`."""
    import jax

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
    times = {"trace": trace, "compile": compile_, "first": first}
    if repeats:
        times |= steady(lambda: jax.block_until_ready(program(*args)), repeats)
    return times, result


def table(rows: list[dict[str, Any]], columns: list[str]) -> str:
    """A Markdown table; numbers with three significant digits."""

    def text(value: Any) -> str:
        return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)

    cells = [columns, *([text(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def report(name: str, rows: list[dict[str, Any]], columns: list[str], out: str | None) -> None:
    """Print the table under a line that says where it was measured; write everything to the JSON file `out`."""
    where = environment()
    versions = ", ".join(f"{k} {v}" for k, v in where["versions"].items())
    print(f"\n{name}: {where['device']}, {where['cores']} core(s), {where['date']}; {versions}\n")
    print(table(rows, columns))
    if out:
        Path(out).write_text(json.dumps({"name": name, "environment": where, "rows": rows}, indent=1) + "\n")
        print(f"\nwritten to {out}", file=sys.stderr)
