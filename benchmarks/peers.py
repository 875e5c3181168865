"""Forward and inverse dynamics and a gradient of the same robots in the same states by lgjax and by other programs.

    python benchmarks/peers.py [--robots panda,go1,talos_reduced] [--programs lgjax,pinocchio,MJX] [--out FILE]

Each program, robot and dtype has a process of its own, bound to one core; XLA runs with its default flags. What is not
installed is left out with one line, what fails or takes longer than --timeout stays in the table with its reason.
`gradient` is the reverse-mode gradient of the sum of the joint accelerations with respect to all of the program's own
q, v and tau; for Pinocchio it is `computeABADerivatives` called from Python, one state at a time, whole matrices.
`error` is the largest difference to Pinocchio's own reading of the robot's file, relative to the largest entry in the
batch; of gradients the part of the joints is compared, for 16 states. No force acts on a floating base.

XLA's code generator for CPUs recomputes shared values in some programs, MJX's panda is one. A program that takes ten
times as long as Pinocchio is therefore timed again with --xla_cpu_use_fusion_emitters=false; column `emitters` says so.
"""

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import forward_dynamics
import harness
import peer_programs

DTYPES = {"lgjax": ("float32", "float64"), "pinocchio": ("float64",)}
COLUMNS = [
    "robot", "what", "program", "dtype", "emitters", "batch", "us", "low", "high", "times lgjax", "trace s",
    "compile s", "error", "failure",
]  # fmt: skip
WHAT = ("forward", "inverse", "gradient")
CHECKED = 16  # states of which gradients are compared
HEAD = ("robot", "program", "dtype", "emitters", "batch")  # of a row
SLOW = 5.0  # s; a call that takes longer is timed once
WRONG = 1e-3  # of errors


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", default="panda,go1,talos_reduced")
    parser.add_argument("--programs", default=",".join(peer_programs.PROGRAMS))
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--what", default=",".join(WHAT))
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=7, help="blocks of a fifth of a second per time")
    parser.add_argument("--timeout", type=float, default=400.0, help="seconds for a program, robot and dtype")
    parser.add_argument("--quick", action="store_true", help="a first look: a batch of 32, one short block per time")
    parser.add_argument("--out", help="JSON file for the rows with all their times")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    known = {
        "robots": forward_dynamics.ROBOTS,
        "programs": peer_programs.PROGRAMS,
        "dtypes": DTYPES["lgjax"],
        "what": WHAT,
    }
    for name, values in known.items():
        for value in getattr(options, name).split(","):
            if value not in values:
                parser.error(f"--{name}: {value!r} is none of {', '.join(values)}")
    if options.quick:
        options.batch, options.repeats = 32, 1
    return options


# ---- what every program gets
def prepare(name: str, batch: int, folder: Path) -> None:
    """States, Pinocchio's answers in the conventions of all programs, and the robot's descriptions, in files."""
    import descriptions
    import jax
    import numpy as np

    from lgjax.cli.bench import peers
    from lgjax.multibody.conventions import to_mujoco, to_pinocchio

    model = forward_dynamics.load(name)
    q, v, tau = forward_dynamics.states(model, batch)
    base = 6 if forward_dynamics.ROBOTS[name][1] else 0
    tau = tau.at[:, :base].set(0.0)
    vdot = jax.random.normal(jax.random.key(2), v.shape, v.dtype)
    case = reference(name, model, q, v, tau, vdot, base)
    for kind, convert in (("mujoco", to_mujoco), ("pinocchio", to_pinocchio)):
        flat = jax.jit(jax.vmap(lambda *state, convert=convert: convert(model, *state)))
        start, end = flat(q, v, vdot, tau), flat(q, v, case["forward"], case["inverse"])
        case |= {f"{kind} {k}": x for k, x in start._asdict().items()}
        case |= {f"{kind} forward": end.vdot, f"{kind} inverse": end.tau}
    pose = np.tile(np.eye(4), (batch, 1, 1))
    if base:
        pose[:, :3, :3], pose[:, :3, 3] = q.free_poses.rotation[:, 0], q.free_poses.translation[:, 0]
    np.savez(folder / "case.npz", base=base, pose=pose, joints=q.joints, v=v, vdot=vdot, tau=tau, **case)
    (folder / "robot.urdf").write_text(descriptions.urdf(model))
    (folder / "robot.sdf").write_text(descriptions.sdf(model))
    (folder / "robot.xml").write_text(peers.mjcf(model))


def reference(name: str, model, q, v, tau, vdot, base: int) -> dict:
    """Pinocchio on its own reading of the file: its vectors, and in lgjax's order accelerations, forces, gradients."""
    import jax
    import numpy as np
    import pinocchio as pin

    from lgjax.multibody.conventions import from_pinocchio, to_pinocchio

    theirs = peer_programs.pinocchio_model(name)
    names = list(theirs.names)[1:]
    order = {"order": names, "continuous": [n for n, nq in zip(names, list(theirs.nqs)[1:], strict=True) if nq == 2]}
    flat = jax.jit(jax.vmap(lambda *state: to_pinocchio(model, *state, **order)))(q, v, vdot, tau)
    case = {f"own {k}": np.asarray(x, np.float64) for k, x in flat._asdict().items()}
    data, rows = theirs.createData(), list(zip(*case.values(), strict=True))
    case["own forward"] = np.array([pin.aba(theirs, data, x, u, f) for x, u, _, f in rows])
    case["own inverse"] = np.array([pin.rnea(theirs, data, x, u, a) for x, u, a, _ in rows])
    back = jax.jit(jax.vmap(lambda *state: from_pinocchio(model, *state, **order)))
    ours = back(case["own q"], case["own v"], case["own forward"], case["own inverse"])
    sums = []
    for x, u, _, f in rows[:CHECKED]:
        dq, dv, inverse = pin.computeABADerivatives(theirs, data, x, u, f)
        inverse = np.triu(inverse) + np.triu(inverse, 1).T
        sums.append([matrix[base:].sum(0) for matrix in (dq, dv, inverse)])
    parts = [back(case["own q"][:CHECKED], x).v[:, base:] for x in np.moveaxis(np.array(sums), 1, 0)]
    return case | {"forward": ours.vdot, "inverse": ours.tau, "gradient": np.concatenate(parts, 1)}


# ---- the process of one program
def work(job: dict) -> None:
    """Print a row for every kind of evaluation as soon as it is there."""
    import jax
    import numpy as np

    case = dict(np.load(Path(job["folder"]) / "case.npz"))
    calls = None
    for what in job["what"]:
        head = {k: job[k] for k in HEAD} | {"what": what}
        try:
            if job["program"] == "pinocchio":
                say(head | peer_programs.pinocchio_row(job, case, what))
                continue
            calls = calls or peer_programs.PROGRAMS[job["program"]](job, case)
            function, inputs, pick, expected = calls[what]
            inputs = jax.tree.map(lambda x: np.asarray(x, job["dtype"]), inputs)
            say(head | measured(function, inputs, pick, expected, job))
        except Exception as error:
            reason = str(error).strip().splitlines() or [repr(error)]
            say(head | {"failure": f"{type(error).__name__}: {reason[0]}"[:160]})


def say(row: dict) -> None:
    """A row for the process that waits for it."""
    print("ROW " + json.dumps(row), flush=True)


def measured(function, inputs, pick, expected, job: dict) -> dict:
    """Times of the batched function, and its error."""
    import jax
    import numpy as np

    options = {"xla_cpu_use_fusion_emitters": False} if job["emitters"] == "old" else None
    clock = [time.perf_counter()]
    lap = lambda: clock.append(time.perf_counter()) or clock[-1] - clock[-2]
    lowered = jax.jit(function, compiler_options=options).lower(*inputs)
    trace = lap()
    program = lowered.compile()
    compile_ = lap()
    result = jax.block_until_ready(program(*inputs))
    first = lap()
    times = {"median": first, "low": first, "high": first, "disturbed": 0}
    if first < SLOW:
        block = 0.02 if job["repeats"] == 1 else 0.2
        times = harness.steady(lambda: jax.block_until_ready(program(*inputs)), job["repeats"], block)
    actual = np.asarray(pick(jax.tree.map(lambda x: np.asarray(x, np.float64), result)))
    error = np.abs(actual[: len(expected)] - expected).max() / np.abs(expected).max()
    each = {k: times[k] / job["batch"] * 1e6 for k in ("median", "low", "high")}
    kept = {str(x.dtype) for x in jax.tree.leaves(result)}
    row = {"us": each.pop("median"), **each, "trace s": trace, "compile s": compile_, "first s": first}
    row |= {"disturbed": times["disturbed"], "error": float(error)}
    if not error < WRONG:
        return row | {"failure": "another result"}
    return row if kept == {job["dtype"]} else row | {"failure": f"gives {', '.join(kept)}"}


# ---- the driver
def rows_of(robot: str, options: argparse.Namespace):
    """Rows of all programs on one robot."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(robot, options.batch, Path(folder))
        job = vars(options) | {"robot": robot, "folder": folder, "what": options.what.split(","), "emitters": ""}
        limits = {}
        for program in options.programs.split(","):
            for dtype in DTYPES.get(program, DTYPES["lgjax"]):
                if program in MISSING or (dtype not in options.dtypes.split(",") and program != "pinocchio"):
                    continue
                own, again = job | {"program": program, "dtype": dtype}, []
                for row in finished(own):
                    if program == "pinocchio" and "us" in row:
                        limits[row["what"]] = 10 * row["us"]
                    if row.get("us", 0.0) > limits.get(row["what"], math.inf) or row.get("failure", "").startswith(
                        "over"
                    ):
                        again.append(row["what"])
                    yield row
                if again and program not in ("lgjax", "pinocchio"):
                    yield from finished(own | {"what": again, "emitters": "old"})


def finished(job: dict):
    """The rows of one process; where it ended early or took too long, rows that say so."""
    environment = os.environ | {"JAX_ENABLE_X64": str(int(job["dtype"] == "float64")), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, "--job", json.dumps(job)]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as errors:
        try:
            code = subprocess.run(
                command, env=environment, stdout=said, stderr=errors, timeout=job["timeout"]
            ).returncode
            errors.seek(0)
            failure = (errors.read().strip().splitlines() or [""])[-1][:160] or f"exit code {code}"
        except subprocess.TimeoutExpired:
            failure = f"over {job['timeout']:g} s"
        said.seek(0)
        rows = [json.loads(line[4:]) for line in said if line.startswith("ROW ")]
    yield from rows
    for what in job["what"]:
        if all(row["what"] != what for row in rows):
            yield {k: job[k] for k in HEAD} | {"what": what, "failure": failure}


def compare(rows: list[dict]) -> None:
    """Add to each row its time over that of lgjax in the same dtype."""
    key = lambda row: (row["robot"], row["what"], row["dtype"])
    ours = {key(row): row["us"] for row in rows if row["program"] == "lgjax" and "us" in row}
    for row in rows:
        if key(row) in ours and "us" in row:
            row["times lgjax"] = row["us"] / ours[key(row)]


def compact(rows: list[dict], robots: list[str]) -> tuple[list[dict], list[str]]:
    """A row for every program and what it does, a column for every robot: microseconds, and multiples of lgjax's time.

    An exclamation mark: see `failure`.
    """
    table: dict[tuple, dict] = {}
    for row in rows:
        emitters = ", old emitters" if row.get("emitters") else ""
        key = (row["what"], row["program"] + emitters, row["dtype"])
        entry = table.setdefault(key, dict(zip(("what", "program", "dtype"), key, strict=True)))
        if "us" in row:
            ratio = f" ({row['times lgjax']:.3g})" if row["program"] != "lgjax" and "times lgjax" in row else ""
            entry[row["robot"]] = f"{row['us']:.3g}{ratio}" + (" !" if "failure" in row else "")
    lines = sorted(table.values(), key=lambda entry: WHAT.index(entry["what"]))
    return lines, ["what", "program", "dtype", *robots]


def main() -> None:
    options = arguments()
    harness.pin_to_cores(1)
    if options.job:
        work(json.loads(options.job))
        return
    import jax

    jax.config.update("jax_enable_x64", True)
    for program, module in peer_programs.MODULES.items():
        if program in options.programs.split(",") and importlib.util.find_spec(module) is None:
            MISSING.add(program)
            print(f"{program} is not installed: left out", flush=True)
    rows = []
    for robot in options.robots.split(","):
        for row in rows_of(robot, options):
            rows.append(row)
            print({k: f"{v:.3g}" if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        compare(rows)
        if options.out:  # what there is, should the rest fail
            harness.save(options.out, "peers", harness.environment(), rows)
    print("\n" + harness.table(*compact(rows, options.robots.split(","))))
    harness.report("peers", rows, COLUMNS, options.out)


MISSING: set[str] = set()

if __name__ == "__main__":
    main()
