"""Programs of this library compiled for an H200 (sm_90a) without a GPU: what they launch and what that consists of.

    python benchmarks/sm90.py [--env FOLDER] [--check | --update] [--out FILE] [CASE...]

A case is WHAT.ROBOT, with .general for parameters as inputs, or .randomized for all those that ensembles draw, and
.float64; without cases, those of `sm90.json`. WHAT is
forward, inverse, mass, hybrid, partials, time1 to time3 (time derivatives), kinematics, pullback (of cotangents of
forward dynamics), gradient (of the sum of squares of its results), rollout (100 steps of RK4), rollout_gradient,
contact (a step of the quadruped on its feet, or of the humanoid on 16 spheres) or contact_pullback (of cotangents of
the velocity after it); ROBOT is
arm, quadruped, humanoid or talos. For example

    python benchmarks/sm90.py forward.quadruped rollout.humanoid.general

It makes an environment for itself in FOLDER unless it is there: JAX with its CUDA compiler, NVIDIA's assembler and
disassembler, 1.2 GB. Each case is traced and compiled for a batch of 65536 in a process of its own.

--check compares with `sm90.json`: instructions, bytes spilled, launches and bytes moved must not grow by more than two
percent; what has grown is named and the exit status is 1. --update writes the file.

launches: own kernels, XLA's kernels for the batch, transposes and copies of arrays of the batch, and the rest (counters
of loops); loops count by their turns. Instructions, spills and mix: of the own kernels, each counted once; if there are
none, of XLA's. Spills: bytes per system, by the library or the assembler; how many of the stores go to shared memory.
Bytes and bounds are per system, for rollouts per system and step: the arguments and results of XLA's kernels as whole
arrays, what the own kernels read and write; 4.8 TB/s; every scheduler issues in every cycle.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks import sm90_counts  # noqa: E402

KEPT = Path(__file__).with_suffix(".json")
ENVIRONMENT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "lgjax-sm90")
JAX = "0.10.2"
PACKAGES = (f"jax=={JAX}", f"jaxlib=={JAX}", "optax", "nvidia-cuda-nvcc-cu12==12.9.86", "nvidia-cuda-nvdisasm==13.5.37")
COMPILER = f"jax-cuda12-pjrt=={JAX}"  # alone: it compiles without the libraries that a GPU needs
BATCH, STEPS = 65536, 100
LIMIT = 900  # seconds for a case
DRAWN = ("inertias", "damping", "friction", "gravity", "placements.translation")
SCHEDULERS, CLOCK, BANDWIDTH = 132 * 4, 1.98e9, 4.8e12
H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 4800000000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 151397597184 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64 device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability 9.0a" device_address_bits: 64 name: "NVIDIA H200 141GB HBM3e"
  driver_version: "13.0.0" runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H200 141GB HBM3e"
"""
GROWING = ("instructions", "spill stores", "spill loads", "launches", "bytes")
COLUMNS = [
    "case", "own", "XLA", "transposes", "rest", "registers", "spill stores", "spill loads", "in shared memory",
    "instructions", "KB", "fma/mul/add", "bytes", "memory bound, M/s", "issue bound, M/s", "temporary MB", "trace s",
    "lower s", "compile s",
]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "case", nargs="*", help="WHAT.ROBOT[.general|.randomized][.float64] (default: those that are kept)"
    )
    parser.add_argument("--env", type=Path, default=ENVIRONMENT, help="its environment (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if anything has grown")
    parser.add_argument("--update", action="store_true", help="keep these numbers")
    parser.add_argument("--out", help="JSON file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- the process that compiles
def model_of(robot: str, dtype: str):
    import lgjax
    from benchmarks.humanoid import humanoid

    if robot == "talos":  # of example-robot-data, where that is installed
        from benchmarks.forward_dynamics import load

        return load("talos_reduced").astype(dtype)
    return {"arm": lgjax.models.arm, "quadruped": lgjax.models.quadruped, "humanoid": humanoid}[robot]().astype(dtype)


def function(what: str):
    """(model, q, v, tau) -> what is computed for one system."""
    import jax
    import jax.numpy as jnp

    import lgjax

    def rollout(model, q, v, tau):
        path = lgjax.rollout(model, q, v, None, 1e-3, STEPS, save_every=None)
        return path.q, path.v

    def gradient(f, model, q, v, tau):
        total = lambda *state: sum(jnp.sum(x**2) for x in jax.tree.leaves(f(model, *state)))
        return jax.grad(total, (0, 1, 2))(q, v, tau)

    def pullback(model, q, v, tau):
        return jax.vjp(partial(lgjax.forward_dynamics, model), q, v, tau)[1](v)

    def contact(model, q, v, tau):
        """A step on four spherical feet, or on the 16 spheres of the humanoid."""
        from benchmarks.humanoid import spheres

        parts = {link: [lgjax.shapes.sphere(r, c) for r, c in some] for link, some in spheres().items()}
        feet = [f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR")]
        touching = feet if "trunk" in model.body_names else parts
        contacts = lgjax.Contacts(model, lgjax.shapes.Plane((0.0, 0.0, 1.0)), touching, friction=0.8)
        found = lgjax.contact.contact_step(model, contacts, q, v, tau, 2e-3)
        return found.q, found.v, found.impulse

    def contact_pullback(model, q, v, tau):
        return jax.vjp(lambda *state: contact(model, *state)[1], q, v, tau)[1](v)

    if what.startswith("time"):  # the force is constant in time
        order = int(what[4:])
        still = lambda tau: jnp.zeros((order + 1, *tau.shape), tau.dtype).at[0].set(tau)
        return lambda model, q, v, tau: lgjax.forward_dynamics_time_derivatives(model, q, v, still(tau))
    return {
        "forward": lgjax.forward_dynamics,
        "inverse": lgjax.inverse_dynamics,
        "mass": lambda model, q, v, tau: lgjax.mass_matrix(model, q),
        "hybrid": lambda model, q, v, tau: lgjax.hybrid_dynamics(model, q, v, tau, tau, range(model.nv // 2)),
        "partials": lgjax.inverse_dynamics_partials,
        "kinematics": lambda model, q, v, tau: lgjax.forward_kinematics(model, q),
        "pullback": pullback,
        "gradient": partial(gradient, lgjax.forward_dynamics),
        "rollout": rollout,
        "rollout_gradient": partial(gradient, rollout),
        "contact": contact,
        "contact_pullback": contact_pullback,
    }[what]


def compiled(case: str) -> tuple[Any, dict[str, float]]:
    """The compiled program of a case, and seconds."""
    import jax
    from jax.experimental import topologies

    import lgjax
    from lgjax.cli.bench.command import states

    what, robot, *options = case.split(".")
    jax.config.update("jax_enable_x64", "float64" in options)
    model = model_of(robot, "float64" if "float64" in options else "float32")
    one, f = states(model, 1), function(what)
    topology = topologies.get_topology_desc(platform="cuda", target_config=H200, topology="1x1x1")
    there = jax.sharding.SingleDeviceSharding(topology.devices[0])
    spec = lambda x, shape: jax.ShapeDtypeStruct(shape, x.dtype, sharding=there)
    state = jax.tree.map(lambda x: spec(x, (BATCH, *x.shape[1:])), one)
    if "general" in options or "randomized" in options:
        model = lgjax.specialize(model, DRAWN) if "randomized" in options else model
        args = (jax.tree.map(lambda x: spec(x, x.shape), model), *state)
        program = jax.jit(jax.vmap(f, (None, 0, 0, 0)))
    else:
        args, program = state, jax.jit(jax.vmap(partial(f, lgjax.specialize(model))))
    times = [time.perf_counter()]
    traced = program.trace(*args)
    times.append(time.perf_counter())
    lowered = traced.lower()
    times.append(time.perf_counter())
    found = lowered.compile()
    times.append(time.perf_counter())
    seconds = [round(b - a, 1) for a, b in pairwise(times)]
    return found, dict(zip(("trace s", "lower s", "compile s"), seconds, strict=True))


def measure(case: str) -> dict[str, Any]:
    """One row of the table."""
    with TemporaryDirectory() as folder:
        os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder} --xla_dump_large_constants=false"
        program, seconds = compiled(case)
        newest = max(Path(folder).glob("*.thunk_sequence.txt"), key=lambda path: path.stat().st_mtime_ns)
        stem = newest.name.removesuffix("thunk_sequence.txt")
        texts = [path.read_text() for path in newest.parent.glob(f"{stem}*.ptx")]
        metadata, hlo = newest.with_name(f"{stem}thunk_metadata.txt").read_text(), program.as_text()
        launches = sm90_counts.launches(newest.read_text(), metadata, hlo)
    row = counts(launches, hlo, texts, STEPS if case.startswith("rollout") else 1)
    temporary = program.memory_analysis().temp_size_in_bytes / 1e6
    return {"case": case, **row, "temporary MB": round(temporary), **seconds}


def counts(launches: list[sm90_counts.Launch], hlo: str, texts: list[str], steps: int) -> dict[str, Any]:
    """Launches by kind, what the kernels consist of, and bounds."""
    site = str(next(Path(p) for p in sys.path if Path(p, sm90_counts.PTXAS).exists()))
    own, whole = sm90_counts.own_kernels(hlo), sm90_counts.traffic(hlo)
    theirs = {}
    for text in texts:
        theirs |= sm90_counts.counted(text, site) if ".entry" in text else {}
    kinds, moved, issued, ours, others = Counter(), 0.0, 0.0, {}, {}
    for launch in launches:
        kind, threads = kind_of(launch, own, whole), launch.blocks * launch.threads * launch.times / BATCH
        kinds[kind] += launch.times
        if kind == "own":
            text = own[launch.instruction]
            ((_, kernel),) = sm90_counts.counted(text, site).items()
            ours[text] = kernel
            moved += kernel["moved"] * threads
        else:
            kernel = theirs.get(launch.kernel)
            moved += whole.get(launch.instruction, 0) * launch.times / BATCH
            others |= {launch.kernel: kernel} if kernel else {}
        issued += kernel["issued"] * threads if kernel else 0
    chosen = list((ours or others).values())
    mix = sum((Counter(kernel["mix"]) for kernel in chosen), Counter())
    arithmetic = [mix[f"F{name}"] + mix[f"D{name}"] for name in ("FMA", "MUL", "ADD")]
    total = lambda name: sum(kernel[name] for kernel in chosen)
    return {
        **{kind: kinds[kind] for kind in ("own", "XLA", "transposes", "rest")},
        "launches": sum(kinds.values()),
        "registers": max(kernel["registers"] for kernel in chosen),
        **{name: total(name) for name in ("spill stores", "spill loads", "in shared memory", "instructions")},
        "KB": round(total("KB")),
        "fma/mul/add": "/".join(map(str, arithmetic)),
        "bytes": round(moved / steps),
        "memory bound, M/s": round(BANDWIDTH / moved * steps / 1e6),
        "issue bound, M/s": round(SCHEDULERS * 32 * CLOCK / issued * steps / 1e6),
        "mix": dict(mix.most_common(20)),
    }


def kind_of(launch: sm90_counts.Launch, own: dict[str, str], whole: dict[str, int]) -> str:
    if launch.instruction in own:
        return "own"
    if whole.get(launch.instruction, 0) < BATCH:
        return "rest"
    moves = launch.kind == "kCopy" or any(word in launch.kernel for word in ("transpose", "copy"))
    return "transposes" if moves else "XLA"


# ---- the process that asks
def prepared(folder: Path) -> Path:
    """The Python of the environment, which is made if it is not there."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"making an environment in {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        for packages in (PACKAGES, ("--no-deps", COMPILER)):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / "ready").touch()
    return python


def row_of(python: Path, case: str) -> dict[str, Any]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]  # where talos's files may be
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    command = [python, __file__, "--worker", case]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"case": case, "failure": f"takes longer than {LIMIT} s"}
    if done.returncode:
        return {"case": case, "failure": done.stderr.strip().splitlines()[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])


def write(file: str | Path, rows: dict[str, dict[str, Any]]) -> None:
    """A row on a line, so that a difference is read easily."""
    head = json.dumps({"versions": [*PACKAGES, COMPILER], "date": time.strftime("%Y-%m-%d")})[:-1]
    Path(file).write_text(f'{head}, "rows": [\n' + ",\n".join(map(json.dumps, rows.values())) + "\n]}\n")


def grown(row: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """What is worse than it was."""
    if "failure" in row:
        return [f"{row['case']}: {row['failure']}"]
    return [f"{row['case']}: {k} {kept[k]} -> {row[k]}" for k in GROWING if row[k] > 1.02 * kept.get(k, row[k])]


def main() -> int:
    options = arguments()
    if options.worker:
        print(json.dumps(measure(options.case[0])))
        return 0
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"rows": []}
    before = {row["case"]: row for row in kept["rows"]}
    python, rows = prepared(options.env), {}
    for case in options.case or before:
        rows[case] = row_of(python, case)
        print({k: v for k, v in rows[case].items() if k != "mix"}, file=sys.stderr, flush=True)
        if options.update:
            write(KEPT, before | {case: row for case, row in rows.items() if "failure" not in row})
    print(table(list(rows.values())))
    if options.out:
        write(options.out, rows)
    worse = [line for case, row in rows.items() if case in before for line in grown(row, before[case])]
    if options.check and worse:
        print("has grown:", *worse, sep="\n  ")
        return 1
    return 0


def table(rows: list[dict[str, Any]]) -> str:
    columns = [*COLUMNS, *(["failure"] if any("failure" in row for row in rows) else [])]
    lines = [[str(row.get(column, "")) for column in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in [columns, ["---"] * len(columns), *lines])


if __name__ == "__main__":
    sys.exit(main())
