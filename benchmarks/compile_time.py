"""What the first call costs: tracing, lowering and compiling public functions, and the kernels of their programs.

    python benchmarks/compile_time.py [--robots arm,quadruped,humanoid] [--functions ...] [--programs lgjax,MJX]

Each row has a process of its own, bound to one core, with XLA's default flags and no kept programs: it is what a user
waits for. `processor s` is the processor time of all three steps, which other work on the machine changes less.
`kernels` counts the operations of the compiled program that run as a kernel or a library call, those in loops once;
`different` counts them up to the names of values. XLA for CPUs spends its time on each different kernel.

The model is an argument in lgjax; other programs hold it as a constant. They run where they are installed and have the
function: forward and inverse dynamics and the gradient of the former.
"""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import harness

ROBOTS = ("arm", "quadruped", "humanoid")
PROGRAMS = ("lgjax", "MJX", "frax", "adam", "JaxSim", "Brax")
PEERS = {"forward_dynamics": "forward", "inverse_dynamics": "inverse", "grad of forward_dynamics": "gradient"}
STEPS = 20  # of a rollout
COLUMNS = [
    "function", "program", "robot", "dtype", "batch", "trace s", "lower s", "compile s", "processor s", "kernels",
    "different", "failure",
]  # fmt: skip
# Operations of a compiled program that run no code of their own.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "after-all"}


# ---- what is measured
def functions() -> dict[str, Callable]:
    """Public functions of (model, q, v, x, wrenches), x a force or an acceleration."""
    import jax
    import jax.numpy as jnp

    import lgjax

    def rollout(model, q, v, x, w):
        path = lgjax.rollout(model, q, v, lambda t, q, v: x, 1e-3, STEPS, save_every=None)
        return jax.tree.map(lambda y: y[0], (path.q.joints, path.v))

    def gradient(function, *extra):
        square = lambda *args: sum(jnp.sum(y * y) for y in jax.tree.leaves(function(*args)))
        return lambda model, q, v, x, w: jax.grad(square, (1, 2, 3))(model, q, v, x, *extra)

    def two(x):
        return jnp.stack([x, x])

    of_q = ("forward_kinematics", "center_of_mass", "mass_matrix", "centroidal_momentum_matrix", "gravity_forces")
    of_v = ("body_twists", "total_energy", "momentum", "coriolis_matrix", "bias_forces")
    of_x = ("forward_dynamics", "inverse_dynamics", "forward_dynamics_partials", "inverse_dynamics_partials")
    found = {name: lambda m, q, v, x, w, name=name: getattr(lgjax, name)(m, q) for name in of_q}
    found |= {name: lambda m, q, v, x, w, name=name: getattr(lgjax, name)(m, q, v) for name in of_v}
    found |= {name: lambda m, q, v, x, w, name=name: getattr(lgjax, name)(m, q, v, x) for name in of_x}
    return found | {
        "jacobian": lambda m, q, v, x, w: lgjax.jacobian(m, q, m.nbodies - 1),
        "solve_mass_matrix": lambda m, q, v, x, w: lgjax.solve_mass_matrix(m, q, x),
        "forward_dynamics with wrenches": lambda m, q, v, x, w: lgjax.forward_dynamics(m, q, v, x, w),
        "hybrid_dynamics": lambda m, q, v, x, w: lgjax.hybrid_dynamics(m, q, v, x, x, prescribed=[m.nv - 1]),
        "forward_dynamics_time_derivatives": lambda m, q, v, x, w: lgjax.forward_dynamics_time_derivatives(
            m, q, v, two(x)
        ),
        "inverse_dynamics_time_derivatives": lambda m, q, v, x, w: lgjax.inverse_dynamics_time_derivatives(
            m, q, jnp.stack([v, x, x]), 1
        ),
        "grad of forward_dynamics": gradient(lgjax.forward_dynamics),
        "grad of inverse_dynamics": gradient(lgjax.inverse_dynamics),
        "rollout": rollout,
        "grad of rollout": gradient(rollout, None),
    }


NAMES = (
    *("forward_kinematics", "center_of_mass", "mass_matrix", "centroidal_momentum_matrix", "gravity_forces"),
    *("body_twists", "total_energy", "momentum", "coriolis_matrix", "bias_forces", "forward_dynamics"),
    *("inverse_dynamics", "forward_dynamics_partials", "inverse_dynamics_partials", "jacobian", "solve_mass_matrix"),
    *("forward_dynamics with wrenches", "hybrid_dynamics"),
    *("forward_dynamics_time_derivatives", "inverse_dynamics_time_derivatives", "grad of forward_dynamics"),
    *("grad of inverse_dynamics", "rollout", "grad of rollout"),
)


def robot(name: str):
    """One of the built-in models, or the humanoid of plain shapes."""
    import humanoid

    import lgjax

    return humanoid.humanoid() if name == "humanoid" else lgjax.models.by_name(name, None)


def inputs(model, batch: int) -> tuple:
    """Random (q, v, x, wrenches), with the batch as leading axis; a batch of 1 is one system."""
    import jax

    import lgjax

    keys = jax.random.split(jax.random.key(0), batch)
    q = jax.vmap(lambda key: lgjax.random_configuration(key, model))(keys)
    v, x = jax.random.normal(jax.random.key(1), (2, batch, model.nv), model.dtype)
    w = jax.random.normal(jax.random.key(2), (batch, model.nbodies, 6), model.dtype)
    return (q, v, x, w) if batch > 1 else jax.tree.map(lambda y: y[0], (q, v, x, w))


def kernels(text: str) -> tuple[int, int]:
    """How many operations of a compiled program run, and how many different ones; `text` is XLA's listing of it."""
    text = re.sub(r", (metadata|backend_config|frontend_attributes)=\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", "", text)
    blocks = {}
    for block in re.findall(r"^(?:ENTRY )?%?[\w.-]+ \(.*?^\}", text, re.M | re.S):
        head, *lines = block.splitlines()
        blocks[re.match(r"(?:ENTRY )?%?([\w.-]+)", head)[1]] = lines[:-1]
    inner = set(re.findall(r"(?:calls|to_apply)=%?([\w.-]+)", text)) - set(
        re.findall(r"call\(.*to_apply=%?([\w.-]+)", text)
    )
    found = []
    for name, lines in blocks.items():
        for line in lines if name not in inner else ():
            operation = re.search(r"= (?:\(.*?\)|\S+) ([\w-]+)\(", line)
            if operation and operation[1] not in FREE:
                found.append(_shape_of(line, blocks))
    return len(found), len(set(found))


def _shape_of(line: str, blocks: dict) -> str:
    """An operation with the computations that it calls, the names of values replaced by their order."""
    called = [blocks.get(name, []) for name in re.findall(r"(?:calls|to_apply)=%?([\w.-]+)", line)]
    names: dict[str, str] = {}
    text = "\n".join([line, *(inner for lines in called for inner in lines)])
    return re.sub(r"%[\w.-]+", lambda name: names.setdefault(name[0], f"%{len(names)}"), text)


# ---- the process of one row
def work(job: dict) -> None:
    """Print the row of one program."""
    import jax

    head = {k: job[k] for k in ("function", "program", "robot", "dtype", "batch")}
    model = robot(job["robot"])
    if job["program"] == "lgjax":
        function, arguments = functions()[job["function"]], (model.astype(job["dtype"]), *inputs(model, job["batch"]))
        arguments = jax.tree.map(lambda x: x.astype(job["dtype"]), arguments)
        if job["batch"] > 1:
            function = jax.vmap(function, (None, 0, 0, 0, 0))
    else:
        function, arguments = peer(job, model)
    jax.block_until_ready(arguments)
    program, clock, used = jax.jit(function), [time.perf_counter()], time.process_time()
    lap = lambda: clock.append(time.perf_counter()) or clock[-1] - clock[-2]
    traced = program.trace(*arguments)
    trace = lap()
    lowered = traced.lower()
    lower = lap()
    compiled = lowered.compile()
    times = {"trace s": trace, "lower s": lower, "compile s": lap(), "processor s": time.process_time() - used}
    count, different = kernels(compiled.as_text())
    print("ROW " + json.dumps(head | times | {"kernels": count, "different": different}), flush=True)


def peer(job: dict, model) -> tuple[Callable, tuple]:
    """(batched function, its inputs) of another program; it maps over a batch of 1 where lgjax takes one system."""
    from collections import defaultdict

    import descriptions
    import jax
    import numpy as np
    import peer_programs

    from lgjax.cli.bench import peers
    from lgjax.multibody.conventions import to_mujoco, to_pinocchio

    batch, base = job["batch"], 6 if model.tree.n_free else 0
    q, v, x, _ = jax.tree.map(lambda y: y.reshape(batch, *y.shape[batch > 1 :]), inputs(model, batch))
    case = defaultdict(lambda: np.zeros(()), base=base, joints=q.joints, v=v, vdot=x, tau=x)
    case["pose"] = np.tile(np.eye(4), (batch, 1, 1))
    if base:
        case["pose"][:, :3, :3], case["pose"][:, :3, 3] = q.free_poses.rotation[:, 0], q.free_poses.translation[:, 0]
    for kind, convert in (("mujoco", to_mujoco), ("pinocchio", to_pinocchio)):
        flat = jax.jit(jax.vmap(lambda *state, convert=convert: convert(model, *state)))(q, v, x, x)
        case |= {f"{kind} {k}": np.asarray(y) for k, y in flat._asdict().items()}
    folder = Path(job["folder"])
    (folder / "robot.urdf").write_text(descriptions.urdf(model))
    (folder / "robot.sdf").write_text(descriptions.sdf(model))
    (folder / "robot.xml").write_text(peers.mjcf(model))
    function, arguments, *_ = peer_programs.PROGRAMS[job["program"]](job, case)[PEERS[job["function"]]]
    return function, jax.tree.map(lambda y: np.asarray(y, job["dtype"]), arguments)


# ---- the driver
def row(job: dict) -> dict:
    """The row of a process of its own, or why there is none."""
    environment = os.environ | {
        "JAX_ENABLE_X64": str(int(job["dtype"] == "float64")), "PYTHONWARNINGS": "ignore",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--job", json.dumps(job | {"folder": folder})]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=job["timeout"])
        except subprocess.TimeoutExpired:
            return job | {"failure": f"over {job['timeout']:g} s"}
    for line in done.stdout.splitlines():
        if line.startswith("ROW "):
            return json.loads(line[4:])
    return job | {"failure": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:160]}


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package
        return False


def rows(options: argparse.Namespace):
    import peer_programs

    for program in options.programs.split(","):
        if program != "lgjax" and not installed(peer_programs.MODULES[program]):
            print(f"{program} is not installed: left out", flush=True)
            continue
        for function in options.functions.split(","):
            for name in options.robots.split(","):
                for dtype in options.dtypes.split(","):
                    for batch in map(int, options.batch.split(",")):
                        if program == "lgjax" or function in PEERS:
                            yield row({"function": function, "program": program, "robot": name, "dtype": dtype,
                                       "batch": batch, "timeout": options.timeout})  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", default=",".join(ROBOTS))
    parser.add_argument("--functions", default=",".join(NAMES))
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--batch", default="1,1024")
    parser.add_argument("--timeout", type=float, default=400.0, help="seconds for a row")
    parser.add_argument("--out", help="JSON file for the rows")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name, known in (("robots", ROBOTS), ("functions", NAMES), ("programs", PROGRAMS)):
        for value in getattr(options, name).split(","):
            if value not in known:
                parser.error(f"--{name}: {value!r} is none of {', '.join(known)}")
    harness.pin_to_cores(1)
    if options.job:
        work(json.loads(options.job))
    else:
        harness.collect("compile time", rows(options), COLUMNS, options.out)


if __name__ == "__main__":
    main()
