"""Runs one problem, and writes its JSON and its figure."""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.suite import figures, measure
from benchmarks.suite.problem import Problem
from benchmarks.suite.report import LONG

LONGEST = 170.0


def run(problem: Problem, reference: dict[str, Any], args: argparse.Namespace, folder: Path) -> None:
    """All sweeps of a problem."""
    exact = np.array([float(x) for x in reference["state"]])
    started = time.perf_counter()
    chosen = lambda program, method: f"{program} {method}".startswith(tuple((args.programs or "").split(",")))
    sweeps = [s for s in problem.sweeps() if chosen(s.program, s.method)]
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
            old, ours = known.get("environment", where)["versions"], any(s.program == "lgjax" for s in sweeps)
            again = {k: v for k, v in where["versions"].items() if k != "lgjax" or ours}
            kept = [row for row in known.get("rows", []) if not chosen(row["program"], row["method"])]
            for row in kept:
                if row["program"] == "lgjax" and ours and old["lgjax"] != again["lgjax"]:
                    row.setdefault("version", old["lgjax"])
            where["versions"], rows = old | again, rows + kept
        known = known | {"command": command, "environment": where, "rows": rows}
    file.write_text(json.dumps(head | apart | known | head | apart, indent=1) + "\n")
    figures.draw(json.loads(file.read_text()), folder / f"{problem.name}.png")
    print(f"{problem.name}: {time.perf_counter() - started:.0f} s", flush=True)


def summary(rows: list[dict[str, Any]]) -> str:
    done = [f"{row['error']:.0e} in {row['ms']:.3g} ms" for row in rows if "error" in row]
    return ", ".join(done) or f"failed: {rows[-1]['failed'] if rows else ''}"


def long_runs(problem: Problem, sweeps: list, rows: list[dict[str, Any]], exact: np.ndarray) -> list[dict[str, Any]]:
    """A million steps of the methods of the page's table, of the size with which RKMK 8 first errs by less than 1e-8,
    or least; what takes LONGEST seconds is left out.
    """
    done = [row for row in rows if isinstance(row.get("setting"), int) and "error" in row]
    ours = [row for row in done if row["method"].startswith("RKMK 8") and math.isfinite(row["error"])]
    good = [row for row in ours if row["error"] < 1e-8] or sorted(ours, key=lambda row: row["error"])
    if not good or not problem.invariants:
        return []
    step, found = problem.end / good[0]["setting"], []
    first = [next((s for s in sweeps if s.name.startswith(start)), None) for start in LONG.values()]
    for sweep in filter(None, first):
        mine = [row["ms"] / row["setting"] for row in done if (row["program"], row["method"]) == sweep[:2]]
        if not sweep.steps or not mine or min(mine) * measure.LONG > 1e3 * LONGEST:
            continue
        try:
            row = measure.long_row(problem, sweep, step, exact, measure.LONG)
        except (RuntimeError, ValueError, ArithmeticError, SystemError) as reason:
            row = {"program": sweep.program, "method": sweep.method, "step": step, "failed": str(reason), "drift": {}}
        found.append(row)
        print(row, flush=True)
    return found
