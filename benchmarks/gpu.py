"""Everything that is worth measuring on a GPU in half an hour, the most telling first.

    python benchmarks/gpu.py --out gpu.json [--minutes 25] [--ahead 12] [--robots quadruped,humanoid] [--only TEXT]

Forward and inverse dynamics, mass matrix, gradients, RK4 rollouts and their gradients of an arm, a quadruped, a
humanoid and a chain of 100, over batch sizes up to a million: as kernels, for this model, for all parameters that an
ensemble may draw ("randomized") and for any ("general"), and as the scan over levels; the latency of one system; MJX
and frax where they are installed; seconds to trace and to compile, errors against float64, and the fractions of the
memory and arithmetic roofs, which are measured first. "batch last": the caller's arrays have the batch as their last
axis, so that nothing is transposed.

With --ahead N, all rows are first compiled, and compared with float64, in N processes at once; JAX's cache of programs
in --cache keeps what they compile. Then rows are timed one after the other in a process of their own. A row that fails
is recorded with its error; one that takes longer than --row-seconds is given up and the process started again. The file
is written after every row. On a machine without a GPU `--tiny` shows in a minute whether everything runs.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from queue import Empty, Queue

sys.path[:0] = map(str, [Path(__file__).resolve().parents[1], Path(__file__).resolve().parent])
PEERS = ("MJX", "frax")
DRAWN = ("inertias", "damping", "friction", "gravity", "placements.translation")
COLUMNS = [
    "robot", "what", "program", "dtype", "batch", "us", "low", "high", "per second", "memory", "arithmetic",
    "trace s", "compile s", "first s", "error", "failure",
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="gpu.json", help="JSON file (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=25, help="no row starts later (default: %(default)s)")
    parser.add_argument("--row-seconds", type=float, default=150, help="limit of one row (default: %(default)s)")
    parser.add_argument("--robots", default="quadruped,humanoid", help="(default: %(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="of a rollout (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="rows with this text in robot, what, program, dtype or batch")
    parser.add_argument("--ahead", type=int, default=0, help="processes that compile before anything is timed")
    parser.add_argument("--cache", help="folder for compiled programs (default: none)")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, on any machine")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def plan(options: argparse.Namespace) -> list[dict]:
    """The rows, the most telling first."""
    robots = ["pendulum"] if options.tiny else options.robots.split(",")
    many, sizes = (4, [1, 3]) if options.tiny else (2**18, [1, 2**10, 2**12, 2**14, 2**16, 2**20])
    row = lambda robot, what, program, batch, dtype="float32": {
        "robot": robot, "what": what, "program": program, "dtype": dtype, "batch": batch,
    }  # fmt: skip
    rows = [row("", "roofs", "device", 64 if options.tiny else 2**27)]
    kernels = ("specialized", "batch last", "randomized", "general", "scan")
    for what in ("forward", "rollout", "gradient"):
        rows += [row(r, what, p, many) for r in robots for p in kernels if (what, p) != ("rollout", "scan")]
    rows += [row(r, "rollout gradient", "specialized", n) for r in robots for n in (sizes[1], many // 4, many)]
    rows += [row(r, w, "specialized", many) for r in robots for w in ("inverse", "mass matrix")]
    rows += [row("arm", w, "batch last", many) for w in ("forward", "rollout", "gradient") if not options.tiny]
    rows += [row("chain", "forward", p, many // 4) for p in ("specialized", "scan") if not options.tiny]
    rows += [row(r, "forward", p, many, dtype="float64") for r in robots for p in ("batch last", "scan")]
    rows += [row(r, "steps", "lgjax", many // 4) for r in ("heavy top", "pendulum", "bouncing", "slider-crank")]
    rows += [row("quadruped", "ensemble", "lgjax", 4 * many)]
    for what in ("forward", "gradient", "rollout", "rollout gradient"):
        batch = max(many // (16 if "rollout" in what else 4), 1)
        rows += [row(r, what, p, batch) for r in robots for p in (*PEERS, "specialized")]
    rows += [row(r, w, "batch last", n) for n in sizes for r in robots for w in ("forward", "rollout")]
    rows += [row(r, "forward", "specialized", n) for n in sizes for r in robots]
    text = lambda row: " ".join(map(str, row.values()))
    return list({text(row): row for row in rows if row["what"] == "roofs" or options.only in text(row)}.values())


# ---- the process that measures
def model_of(robot: str, dtype: str):
    import lgjax
    from benchmarks.humanoid import humanoid

    chain = partial(partial, lgjax.models.chain)
    models = {"quadruped": lgjax.models.quadruped, "humanoid": humanoid, "arm": chain(7)}
    models |= {"pendulum": chain(1), "chain": chain(100)}
    return models[robot]().astype(dtype)


def programs(row: dict, options: argparse.Namespace):
    """(function of the batch, cost per evaluation or None, evaluations per call)."""
    import jax
    import jax.numpy as jnp

    import lgjax
    from lgjax.execution.cost import kernel_cost

    model, steps = model_of(row["robot"], row["dtype"]), 4 if options.tiny else options.steps
    if row["program"] == "randomized":
        model = lgjax.specialize(model, DRAWN)
    elif row["program"] not in ("general", "scan"):
        model = lgjax.specialize(model)
    how = {"execution": "scan" if row["program"] == "scan" else "scalarized"}
    forward = partial(lgjax.forward_dynamics, model, **how)
    path = lambda q, v, x: lgjax.rollout(model, q, v, None, 1e-3, steps, save_every=None)
    last = lambda t: (t.q.joints[0], t.v[0])
    one = {
        "forward": forward,
        "inverse": partial(lgjax.inverse_dynamics, model, **how),
        "mass matrix": lambda q, v, x: lgjax.mass_matrix(model, q, **how),
        "gradient": jax.grad(lambda q, v, x: jnp.sum(forward(q, v, x)), (0, 1, 2)),
        "rollout": lambda q, v, x: last(path(q, v, x)),
        "rollout gradient": jax.grad(lambda q, v, x: jnp.sum(path(q, v, x).v ** 2), (0, 1)),
    }[row["what"]]
    cost = None
    if row["program"] in ("specialized", "batch last") and row["what"] in ("forward", "inverse", "mass matrix"):
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), states(model, 1))
        cost = kernel_cost(one, *shapes)
    axis = -1 if row["program"] == "batch last" else 0
    return jax.vmap(one, axis, axis), cost, steps if row["what"].startswith("rollout") else 1


def states(model, batch: int):
    from lgjax.cli.bench import command as bench

    return bench.states(model, batch)


@cache
def reference(robot: str, what: str, tiny: bool, steps: int):
    """States of 64 systems and what the scan computes for them in float64."""
    import jax

    state = states(model_of(robot, "float64"), 4 if tiny else 64)
    row = {"robot": robot, "what": what, "program": "general", "dtype": "float64", "batch": 64}
    call, _, _ = programs(row, argparse.Namespace(tiny=tiny, steps=steps))
    return state, jax.device_get(jax.jit(call)(*state))


def error(call, row: dict, options: argparse.Namespace) -> float:
    """The largest difference to float64 over some systems, relative to the largest entry of each array."""
    import jax
    import numpy as np

    state, exact = reference(row["robot"], row["what"], options.tiny, options.steps)
    last = row["program"] == "batch last"
    put = lambda x: np.moveaxis(x, 0, -1) if last else x
    got = jax.jit(call)(*jax.tree.map(lambda x: put(x).astype(row["dtype"]), jax.device_get(state)))
    got = jax.tree.map(lambda x: np.moveaxis(x, -1, 0) if last else x, jax.device_get(got))
    worst = lambda a, e: float(np.abs(np.asarray(a, float) - e).max(initial=0) / np.abs(e).max(initial=1e-300))
    return max(jax.tree.leaves(jax.tree.map(worst, got, exact)))


def case_of(row: dict, options: argparse.Namespace) -> tuple:
    """(function of the batch, its inputs, cost per evaluation or None, evaluations of a system per call)."""
    import jax
    import jax.numpy as jnp

    if row["what"] == "steps":
        import gpu_systems

        call, state, count = gpu_systems.SYSTEMS[row["robot"]](row["batch"], row["dtype"])
        return call, state, None, count
    model = model_of(row["robot"], row["dtype"])
    if row["program"] in PEERS:
        import gpu_peers

        steps = 4 if options.tiny else options.steps
        call = jax.vmap(gpu_peers.function(row["program"], row["what"], model, row["dtype"], steps))
        state = gpu_peers.states(model, row["batch"], row["dtype"])
        return call, state, None, steps if row["what"].startswith("rollout") else 1
    call, cost, count = programs(row, options)
    state = states(model, row["batch"])
    if row["program"] == "batch last":
        state = jax.block_until_ready(jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), state))
    return call, state, cost, count


def measure(row: dict, options: argparse.Namespace) -> dict:
    """A row with its times; one that is only compiled ahead, with the seconds that takes and its error."""
    import jax

    from lgjax.cli.bench import command as bench
    from lgjax.cli.bench import roofline, timing

    jax.config.update("jax_enable_x64", row["program"] not in PEERS)  # these take it as their own precision
    block, head = 0.01 if options.tiny else 0.1, (row["what"], row["program"], row["dtype"], row["batch"])
    if row["what"] == "roofs":
        chain = {"chain": 4} if options.tiny else {}
        return row | roofline.measured_roofs(row["dtype"], row["batch"], options.repeats, **chain)
    if row["what"] == "ensemble":
        import gpu_systems

        if row.get("ahead"):
            return row
        run = gpu_systems.ensemble(row["batch"], row["dtype"])
        return row | bench.row_of(*head, 100, timing.steady(run, options.repeats, block))
    call, state, cost, count = case_of(row, options)
    repeats = 0 if row.get("ahead") else options.repeats
    times, _ = timing.compiled(jax.jit(call), *state, repeats=repeats, block_seconds=block)
    if row.get("ahead"):
        row = row | {f"{k} s": times[k] for k in ("trace", "compile", "first")}
    else:
        known = {k: row[k] for k in ("trace s", "compile s", "first s") if k in row}  # else those of the cache
        row = row | bench.row_of(*head, count, times) | known
        if cost:
            row["cost"] = {k: v for k, v in cost.items() if k != "operations"}
            row["operations"] = cost["operations"]
    comparable = row["program"] not in (*PEERS, "lgjax") and row["batch"] <= 2**18
    if comparable and bool(row.get("ahead")) == bool(options.ahead):
        row = row | {"error": error(call, row, options)}
    return row


def work(options: argparse.Namespace) -> None:
    """Rows from standard input, one JSON line each, with their times to standard output."""
    import jax

    jax.config.update("jax_enable_x64", True)
    if options.cache:
        jax.config.update("jax_compilation_cache_dir", options.cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    from benchmarks import harness

    print(json.dumps({"environment": harness.environment()}), flush=True)
    for line in sys.stdin:
        row = json.loads(line)
        try:
            row = measure(row, options)
        except Exception as problem:
            lines = traceback.format_exception_only(problem)
            row["failure"] = " ".join("".join(lines).split())[:500]
        print(json.dumps(row, default=float), flush=True)


# ---- the process that hands out rows
class Worker:
    """A measuring process that answers in time or is ended."""

    def __init__(self):
        command = [sys.executable, __file__, *sys.argv[1:], "--worker"]
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.lines: Queue[str] = Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def ask(self, row: dict | None, seconds: float) -> dict:
        """The answer to a row; None: the worker's greeting. An answer with `failure` where there is none in time."""
        if row is not None:
            try:
                print(json.dumps(row), file=self.process.stdin, flush=True)
            except OSError:
                return row | {"failure": "the process has died"}
        stop = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(stop - time.monotonic(), 0.01))
            except Empty:
                return (row or {}) | {"failure": f"took longer than {seconds:g} s"}
            if not line:
                return (row or {}) | {"failure": f"the process ended with {self.process.wait()}"}
            if line.startswith("{"):
                return json.loads(line)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def _haste(row: dict) -> tuple:
    return row["program"] not in PEERS, "gradient" not in row["what"], row["robot"] != "humanoid"


def ahead(rows: list[dict], options: argparse.Namespace) -> list[dict]:
    """The rows with seconds to compile and errors, by many processes at once."""
    idle: Queue[Worker] = Queue()

    def compiled(row: dict) -> dict:
        if row["what"] == "roofs":
            return row
        try:
            worker = idle.get_nowait()
        except Empty:
            worker = Worker()
            worker.ask(None, 120)
        answer = worker.ask(row | {"ahead": True}, options.row_seconds)
        answer.pop("ahead", None)
        if "longer than" in answer.get("failure", "") or "process" in answer.get("failure", ""):
            worker.end()
        else:
            idle.put(worker)
        print("ahead", {k: answer[k] for k in COLUMNS if answer.get(k) not in (None, "")}, flush=True)
        return answer

    with ThreadPoolExecutor(options.ahead) as pool:  # first those that take long
        answers = {k: pool.submit(compiled, rows[k]) for k in sorted(range(len(rows)), key=lambda k: _haste(rows[k]))}
        rows = [answers[k].result() for k in range(len(rows))]
    while not idle.empty():
        idle.get().end()
    return rows


def main() -> None:
    options = arguments()
    if options.worker:
        work(options)
        return
    from lgjax.cli.bench import timing

    started, rows, worker, where, roofs = time.monotonic(), [], None, {}, {}
    planned = plan(options)
    if options.ahead:
        planned = ahead(planned, options)
        timing.save(options.out, "gpu", where, planned)
    for row in planned:
        if "failure" in row:
            rows.append(row)
            continue
        if time.monotonic() - started > 60 * options.minutes:
            rows.append(row | {"failure": "not started: no time left"})
            continue
        if worker is None:
            worker = Worker()
            where = worker.ask(None, 120).get("environment", where)
        row = worker.ask(row, options.row_seconds)
        if "longer than" in row.get("failure", "") or "process" in row.get("failure", ""):
            worker.end()
            worker = None
        if row["what"] == "roofs" and "failure" not in row:
            roofs = {k: v for k, v in row.items() if k.endswith("per second")}
        if roofs and "cost" in row:
            row["memory"] = row["cost"]["bytes"] * row["per second"] / roofs["bytes per second"]
            row["arithmetic"] = row["cost"]["arithmetic"] * row["per second"] / roofs["operations per second"]
        rows.append(row)
        timing.save(options.out, "gpu", where, rows)
        print({k: row[k] for k in COLUMNS if row.get(k) not in (None, "")}, flush=True)
    if worker is not None:
        worker.end()
    timing.save(options.out, "gpu", where, rows)
    print(timing.table(rows, COLUMNS))


if __name__ == "__main__":
    main()
