"""Runs one problem, and writes its JSON and its figure."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.suite import figures, measure
from benchmarks.suite.problem import Problem


def run(problem: Problem, reference: dict[str, Any], args: argparse.Namespace, folder: Path) -> None:
    """All sweeps of a problem."""
    exact = np.array([float(x) for x in reference["state"]])
    started = time.perf_counter()
    sweeps = [s for s in problem.sweeps() if not args.programs or s.program in args.programs.split(",")]
    file = folder / f"{problem.name}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    where = harness.environment()
    head = {"name": problem.name, "title": problem.title, "text": problem.text, "end": problem.end}
    apart = {"ways": reference["ways"], "apart": reference["apart"]}
    command = f"python -m benchmarks.suite --problems {problem.name}"
    if args.long:
        runs = known.get("rows", [])
        known["long"] = {"environment": where, "rows": long_runs(problem, sweeps, runs, exact)}
    else:
        seconds, limit = (0.02, 0.5) if args.quick else (0.3, 2.0)
        rows = []
        for sweep in sweeps:
            mine = measure.sweep_rows(problem, sweep, exact, reference["apart"], seconds, limit)
            if not args.quick:
                measure.batch_row(problem, sweep, mine, seconds, measure.BATCH)
            rows += mine
            print(f"{time.perf_counter() - started:4.0f} s {problem.name}: {sweep.name}: {summary(mine)}", flush=True)
        if args.programs:  # of these alone: keep the rows and versions of the others
            where["versions"] = known.get("environment", where)["versions"] | where["versions"]
            rows += [row for row in known.get("rows", []) if row["program"] not in args.programs.split(",")]
        known = known | {"command": command, "environment": where, "rows": rows}
    file.write_text(json.dumps(head | apart | known, indent=1) + "\n")
    figures.draw(json.loads(file.read_text()), folder / f"{problem.name}.png")
    print(f"{problem.name}: {time.perf_counter() - started:.0f} s", flush=True)


def summary(rows: list[dict[str, Any]]) -> str:
    done = [f"{row['error']:.0e} in {row['ms']:.3g} ms" for row in rows if "error" in row]
    return ", ".join(done) or f"failed: {rows[-1]['failed'] if rows else ''}"


def long_runs(problem: Problem, sweeps: list, rows: list[dict[str, Any]], exact: np.ndarray) -> list[dict[str, Any]]:
    """A million steps of the size at which a method's error at the end was first below 1e-4."""
    found = []
    for sweep in sweeps:
        mine = [r for r in rows if (r["program"], r["method"]) == (sweep.program, sweep.method) and "error" in r]
        good = [r for r in mine if r["error"] < 1e-4] or mine[-1:]
        if not sweep.steps or not good or good[0]["ms"] / good[0]["setting"] * measure.LONG > 60e3:
            continue
        row = measure.long_row(problem, sweep, problem.end / good[0]["setting"], exact, measure.LONG)
        found.append(row)
        print(row, flush=True)
    return found
