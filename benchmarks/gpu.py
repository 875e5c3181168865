"""Everything that is worth measuring on a GPU in half an hour, the most telling first.

    python benchmarks/gpu.py --out gpu.json [--minutes 25] [--workers 12] [--robots quadruped,humanoid] [--only TEXT]

Forward and inverse dynamics, mass matrix, gradients, RK4 rollouts and their gradients of an arm, a quadruped, a
humanoid and a chain of 100, over batch sizes up to a million: as kernels, for this model, for all parameters that an
ensemble may draw ("randomized") and for any ("general"); the latency of one system;
integrators, an ensemble, and iterations of predictive control; MJX and frax where they are installed; seconds to trace
and to compile, errors against float64, and the fractions of the memory and arithmetic roofs, which are measured first.
"batch last": the caller's arrays have the batch as their last axis, so that nothing is transposed.

Processes compile the rows, N at a time, and compare their results with float64. Then each of them in turn times what it
has compiled, and ends. A row that fails is recorded with its error. Where a row takes longer than --row-seconds, its
process is ended: what else it had compiled is compiled again, or, if they were being timed, not timed. The file is
written after every row. On a machine without a GPU `--tiny` shows in a minute whether everything runs.
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
    parser.add_argument("--workers", type=int, default=1, help="that compile at a time (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="smallest sizes, on any machine")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def plan(options: argparse.Namespace) -> list[dict]:
    """The rows, the most telling first."""
    robots = ["pendulum"] if options.tiny else options.robots.split(",")
    most, many, few = (8, 4, 2) if options.tiny else (2**20, 2**18, 2**16)
    sizes = [1, 3] if options.tiny else [1, 2**10, 2**12, 2**14, 2**16, 2**18]
    row = lambda robot, what, program, batch, dtype="float32": {
        "robot": robot, "what": what, "program": program, "dtype": dtype, "batch": batch,
    }  # fmt: skip
    rows = [row("", "roofs", "device", 64 if options.tiny else 2**27)]
    kernels = ("specialized", "batch last", "randomized", "general")
    for what, batch in (("forward", most), ("rollout", many), ("gradient", most)):
        rows += [row(r, what, p, batch) for r in robots for p in kernels]
    rows += [row(r, "rollout gradient", "specialized", n) for r in robots for n in (sizes[1], few, many)]
    rows += [row(r, w, "specialized", most) for r in robots for w in ("inverse", "mass matrix")]
    rows += [row("arm", w, "batch last", most) for w in ("forward", "rollout", "gradient") if not options.tiny]
    rows += [row("chain", "forward", p, few) for p in ("specialized", "general") if not options.tiny]
    rows += [row(r, "forward", "batch last", most, dtype="float64") for r in robots]
    rows += [row(r, "steps", "lgjax", few) for r in ("heavy top", "pendulum", "bouncing", "slider-crank")]
    rows += [row("quadruped", "ensemble", "lgjax", most)]
    plans = [f"plan of {k} knots" for k in (32, 64, 128)]
    rows += [row(plan, "steps", "lgjax", n) for plan in plans for n in (1, 64, 512) if not options.tiny]
    for what in ("forward", "gradient", "rollout", "rollout gradient"):
        batch = few // 4 if "rollout" in what else few
        rows += [row(r, what, p, max(batch, 1)) for r in robots for p in (*PEERS, "specialized")]
    rows += [row(r, w, "batch last", n) for n in sizes for r in robots for w in ("forward", "rollout")]
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
    from benchmarks.sm90 import DRAWN
    from lgjax.execution.cost import kernel_cost

    model, steps = model_of(row["robot"], row["dtype"]), 4 if options.tiny else options.steps
    if row["program"] == "randomized":
        model = lgjax.specialize(model, DRAWN)
    elif row["program"] != "general":
        model = lgjax.specialize(model)
    forward = partial(lgjax.forward_dynamics, model)
    path = lambda q, v, x: lgjax.rollout(model, q, v, None, 1e-3, steps, save_every=None)
    last = lambda t: (t.q.joints[0], t.v[0])
    one = {
        "forward": forward,
        "inverse": partial(lgjax.inverse_dynamics, model),
        "mass matrix": lambda q, v, x: lgjax.mass_matrix(model, q),
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
    """(function of the batch, a function that makes its inputs, cost per evaluation or None, evaluations per call)."""
    import jax
    import jax.numpy as jnp

    if row["what"] == "steps":
        import gpu_systems

        call, state, count = gpu_systems.SYSTEMS[row["robot"]](row["batch"], row["dtype"])
        return call, lambda: state, None, count
    model = model_of(row["robot"], row["dtype"])
    if row["program"] in PEERS:
        import gpu_peers

        steps = 4 if options.tiny else options.steps
        call = jax.vmap(gpu_peers.function(row["program"], row["what"], model, row["dtype"], steps))
        make = partial(gpu_peers.states, model, row["batch"], row["dtype"])
        return call, make, None, steps if row["what"].startswith("rollout") else 1
    call, cost, count = programs(row, options)

    def make():
        state = states(model, row["batch"])
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), state) if row["program"] == "batch last" else state

    return call, make, cost, count


class Case:
    """A row, compiled; `timed` runs it."""

    def __init__(self, row: dict, options: argparse.Namespace):
        import jax

        self.row, self.options = row, options
        jax.config.update("jax_enable_x64", row["program"] not in PEERS)  # these take it as their own precision
        if row["what"] in ("roofs", "ensemble"):
            return
        call, self.make, cost, self.count = case_of(row, options)
        clock = [time.perf_counter()]
        lowered = jax.jit(call).lower(*jax.eval_shape(self.make))
        clock.append(time.perf_counter())
        self.program = lowered.compile()
        clock.append(time.perf_counter())
        self.row = row = row | {"trace s": clock[1] - clock[0], "compile s": clock[2] - clock[1]}
        if row["program"] not in (*PEERS, "lgjax"):
            row["error"] = error(call, row, options)
        if cost:
            row["cost"] = {k: v for k, v in cost.items() if k != "operations"}
            row["operations"] = cost["operations"]

    def timed(self) -> dict:
        import jax

        from lgjax.cli.bench import command as bench
        from lgjax.cli.bench import roofline, timing

        row, options = self.row, self.options
        jax.config.update("jax_enable_x64", row["program"] not in PEERS)
        block, head = 0.01 if options.tiny else 0.1, (row["what"], row["program"], row["dtype"], row["batch"])
        if row["what"] == "roofs":
            chain = {"chain": 4} if options.tiny else {}
            return row | roofline.measured_roofs(row["dtype"], row["batch"], options.repeats, **chain)
        if row["what"] == "ensemble":
            import gpu_systems

            run = gpu_systems.ensemble(row["batch"], row["dtype"])
            seconds, compiling = zip(*(run() for _ in range(3)), strict=True)
            low, median, high = sorted(seconds)
            times, count = {"low": low, "median": median, "high": high, "disturbed": 0}, 100
            row["compile s"] = min(compiling)
        else:
            state, count = jax.block_until_ready(self.make()), self.count
            start = time.perf_counter()
            jax.block_until_ready(self.program(*state))
            row["first s"] = time.perf_counter() - start
            run = lambda: self.program(*state)
            if jax.default_backend() == "cpu":
                run = lambda: jax.block_until_ready(self.program(*state))
            times = timing.steady(run, options.repeats, block)
        return row | {k: v for k, v in bench.row_of(*head, count, times).items() if not k.endswith(" s")}


def work(options: argparse.Namespace) -> None:
    """Reads {"compile": row} and {"time": number}, one JSON line each; answers with the row as it is then."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from benchmarks import harness

    print(json.dumps({"environment": harness.environment()}), flush=True)
    cases: dict[int, Case] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        row = asked.get("compile") or cases[asked["time"]].row
        try:
            if "compile" in asked:
                cases[row["number"]] = Case(row, options)
                row = cases[row["number"]].row
            else:
                row = cases.pop(row["number"]).timed()
        except Exception as problem:
            lines = traceback.format_exception_only(problem)
            row["failure"] = " ".join("".join(lines).split())[:500]
        print(json.dumps(row, default=float), flush=True)


# ---- the process that hands out rows
class Worker:
    """A measuring process that answers in time or is ended. rows: what it has compiled."""

    def __init__(self):
        command = [sys.executable, __file__, *sys.argv[1:], "--worker"]
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.lines: Queue[str] = Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.rows: list[dict] = []
        self.environment = self.ask(None, 120).get("environment", {})

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def ask(self, question: dict | None, seconds: float) -> dict:
        """The answer to a question; None: the greeting. An answer with `lost` where there is none in time."""
        try:
            if question is not None:
                print(json.dumps(question), file=self.process.stdin, flush=True)
        except OSError:
            return {"lost": "the process has died"}
        stop = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(stop - time.monotonic(), 0.01))
            except Empty:
                return {"lost": f"took longer than {seconds:g} s"}
            if not line:
                return {"lost": f"the process ended with {self.process.wait()}"}
            if line.startswith("{"):
                return json.loads(line)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def groups(rows: list[dict]) -> list[list[dict]]:
    """Rows that one process compiles: those that share what they are compared with; of other programs each its own.

    First those that take long.
    """
    key = lambda row: row["number"] if row["program"] in PEERS else (row["robot"], row["what"])
    found: dict = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    haste = lambda group: ("gradient" not in group[0]["what"], group[0]["robot"] != "humanoid", group[0]["number"])
    return sorted(found.values(), key=haste)


def compiled(rows: list[dict], options: argparse.Namespace) -> tuple[list[Worker], list[dict]]:
    """Workers that have compiled all rows but those that failed, or for which half of the time did not suffice."""
    left, failed, done, lock = groups(rows), [], [], threading.Lock()
    stop = time.monotonic() + 30 * options.minutes

    def compile_group(group: list[dict]) -> None:
        worker = Worker()
        while group:
            row = group.pop(0)
            if time.monotonic() > stop:
                failed.append(row | {"failure": "not compiled: no time left"})
                continue
            answer = worker.ask({"compile": row}, options.row_seconds)
            print("compiled", shown(row | answer), flush=True)
            if "lost" in answer:
                failed.append(row | {"failure": answer["lost"]})
                group += [{k: x[k] for k in row} for x in worker.rows]
                worker.end()
                worker = Worker() if group else None
            elif "failure" in answer:
                failed.append(answer)
            else:
                worker.rows.append(answer)
        if worker is not None:
            done.append(worker)

    def keep_busy(_: int) -> None:
        while True:
            with lock:
                if not left:
                    return
                group = left.pop(0)
            compile_group(group)

    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(keep_busy, range(options.workers)))
    return done, failed


def shown(row: dict) -> dict:
    return {k: row[k] for k in COLUMNS if row.get(k) not in (None, "")}


def main() -> None:
    options = arguments()
    if options.worker:
        work(options)
        return
    from lgjax.cli.bench import timing

    started, roofs = time.monotonic(), {}
    planned = [row | {"number": n} for n, row in enumerate(plan(options))]
    workers, rows = compiled(planned, options)
    workers.sort(key=lambda worker: min((x["number"] for x in worker.rows), default=len(planned)))
    where = next((worker.environment for worker in workers), {})
    for worker in workers:
        ended = ""
        for row in sorted(worker.rows, key=lambda row: row["number"]):
            if time.monotonic() - started > 60 * options.minutes:
                ended = "no time left"
            if ended:
                rows.append(row | {"failure": f"not timed: {ended}"})
                continue
            answer = row | worker.ask({"time": row["number"]}, options.row_seconds)
            if "lost" in answer:
                answer["failure"], ended = answer.pop("lost"), "the process was ended"
            if row["what"] == "roofs" and "failure" not in answer:
                roofs = {k: v for k, v in answer.items() if k.endswith("per second")}
            rows.append(answer)
            timing.save(options.out, "gpu", where, rows)
            print(shown(answer), flush=True)
        worker.end()
    for row in rows:
        if roofs and "cost" in row and "per second" in row:
            row["memory"] = row["cost"]["bytes"] * row["per second"] / roofs["bytes per second"]
            row["arithmetic"] = row["cost"]["arithmetic"] * row["per second"] / roofs["operations per second"]
    rows.sort(key=lambda row: row["number"])
    timing.save(options.out, "gpu", where, rows)
    print(timing.table(rows, COLUMNS))


if __name__ == "__main__":
    main()
