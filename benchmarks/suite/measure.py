"""Runs a problem: references, errors, times, long runs; results are plain rows for JSON."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suite.problem import Problem, Sweep

KEPT = Path(__file__).parent / "references.json"
GOALS = (1e-6, 1e-8, 1e-10)
BATCH = 1000
LONG = 1_000_000
PASSES = 3  # times of a run are taken so often, with the other runs of its method between them


def compute_reference(problem: Problem) -> dict[str, Any]:
    """The state at the end from all ways, and how far apart they are."""
    from benchmarks.suite.reference import mp

    ways = problem.references()
    (_, first), *others = ways
    speed = max([mp().mpf(1)] + [abs(x) for x in first[problem.positions :]])
    weight = [1] * problem.positions + [1 / speed] * (len(first) - problem.positions)
    turn, apart = 2 * mp().pi, []
    for _, other in others:
        gaps = [a - b for a, b in zip(first, other, strict=True)]
        gaps[: problem.positions] = [x - turn * mp().nint(x / turn) for x in gaps[: problem.positions]]
        apart.append(max(abs(x) * w for x, w in zip(gaps, weight, strict=True)))
    digits = [mp().nstr(x, 25) for x in first]
    return {"end": problem.end, "ways": [name for name, _ in ways], "apart": float(max(apart)), "state": digits}


def kept_references() -> dict[str, Any]:
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def least(call: Callable[[], Any], seconds: float, most: int = 200) -> tuple[float, Any]:
    """The least processor time of repeated calls, and the last result."""
    best, spent, result = np.inf, 0.0, None
    for _ in range(most):
        start = time.process_time()
        result = call()
        took = time.process_time() - start
        best, spent = min(best, took), spent + took
        if spent > seconds:
            break
    return best, result


def sweep_rows(problem: Problem, sweep: Sweep, exact: np.ndarray, floor: float, seconds: float, limit: float) -> list:
    """Errors and times of one method, from coarse to fine until the error is at the floor or a call takes too long.

    A time is the least of all passes over the method's runs, since other work slows down a pass at a time.
    """
    rows: list[dict[str, Any]] = []
    calls = []
    for setting in sweep.settings:
        row: dict[str, Any] = {"program": sweep.program, "method": sweep.method, "setting": setting}
        row["group"] = sweep.group
        try:
            started = time.perf_counter()
            call, finish = sweep.prepare(problem.end, setting, None)
            result = call()
            row["compile s"] = time.perf_counter() - started
            state, row["evaluations"] = finish(result)
            row["error"] = problem.error(state, exact)
            row["drift"] = {name: _change(f, state, exact) for name, f in problem.invariants.items()}
            row["ms"] = 1e3 * least(call, seconds)[0]
        except (RuntimeError, ValueError, ArithmeticError, SystemError) as reason:
            rows.append(row | {"failed": str(reason).splitlines()[0][:120] if str(reason) else type(reason).__name__})
            continue
        rows.append(row)
        calls.append((row, call))
        if row["ms"] > 1e3 * limit or row["error"] < max(2e-11, 10 * floor) or stalled(rows):
            break
    for row, call in calls * (PASSES - 1):
        row["ms"] = min(row["ms"], 1e3 * least(call, seconds)[0])
    return rows


def stalled(rows: list[dict[str, Any]]) -> bool:
    """Whether the error of the last two runs is round-off: it no longer falls."""
    errors = [row["error"] for row in rows if "error" in row]
    return len(errors) > 2 and errors[-1] < 1e-8 and errors[-1] > 0.5 * errors[-2]


def _change(invariant: Callable, state: np.ndarray, exact: np.ndarray) -> float:
    """Relative to the size of the exact value, or as it is where that is zero."""
    now, then = np.atleast_1d(invariant(state)), np.atleast_1d(invariant(exact))
    size = float(np.linalg.norm(then))
    return float(np.max(np.abs(now - then)) / (size if size > 1e-9 else 1.0))


def batch_row(problem: Problem, sweep: Sweep, rows: list, seconds: float, size: int) -> None:
    """Add the time per trajectory of a batch to the first run within 1e-8, or to the best one."""
    done = [row for row in rows if "error" in row]
    if not done or not sweep.batched:
        return
    good = [row for row in done if row["error"] <= 1e-8]
    row = good[0] if good else None
    if row is None or row["ms"] * size > 1e3 * 60:
        return
    call, _ = sweep.prepare(problem.end, row["setting"], size)
    row["batch ms"] = 1e3 * least(call, 5 * seconds, 3)[0] / size


def long_row(problem: Problem, sweep: Sweep, step: float, exact: np.ndarray, steps: int) -> dict[str, Any] | None:
    """Energy and momentum after many equal steps."""
    if not sweep.steps:
        return None
    call, finish = sweep.prepare(step * steps, steps, None)
    started = time.perf_counter()
    state, _ = finish(call())
    took = time.perf_counter() - started
    drift = {name: _change(f, state, exact) for name, f in problem.invariants.items()}
    return {"program": sweep.program, "method": sweep.method, "step": step, "steps": steps, "drift": drift, "s": took}
