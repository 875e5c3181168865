"""MuJoCo Warp on the robots of `gpu.py`, on a GPU: forward dynamics and RK4 steps, as CUDA graphs, one JSON line a row.

    python benchmarks/mujoco_warp.py [--batch 16384,65536,262144] [--robots quadruped,humanoid] [--device cuda:0]

The models are those that `gpu_peers.py` gives to MJX: nothing touches. What they do not have is disabled too, and
collisions are not looked for. Errors are those of eight systems beside MuJoCo's C in float64. "us": of one call for the
whole batch; "per second": systems, or steps of one. With --device cpu it shows in a minute whether everything runs.
"""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path = [x for x in sys.path if Path(x or ".").resolve() != HERE]  # the package has the name of this file
sys.path[:0] = [str(HERE.parent)]
os.environ["JAX_PLATFORMS"] = "cpu"  # JAX makes the states and nothing else
COUNT = 10  # calls of a graph, and steps that are compared
UNUSED = "CONSTRAINT EQUALITY FRICTIONLOSS LIMIT CONTACT SPRING DAMPER CLAMPCTRL ACTUATION SENSOR EULERDAMP"

import mujoco  # noqa: E402
import mujoco_warp  # noqa: E402
import numpy as np  # noqa: E402
import warp  # noqa: E402

sys.path.append(str(HERE))
import gpu_peers  # noqa: E402

import lgjax  # noqa: E402
from benchmarks.humanoid import humanoid  # noqa: E402
from lgjax.cli.bench import peers  # noqa: E402

ROBOTS = {"quadruped": lgjax.models.quadruped, "humanoid": humanoid}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", default="16384,65536,262144")
    parser.add_argument("--robots", default=",".join(ROBOTS))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def mujoco_model(model):
    theirs = mujoco.MjModel.from_xml_string(peers.mjcf(model))
    theirs.opt.integrator, theirs.opt.timestep = mujoco.mjtIntegrator.mjINT_RK4, gpu_peers.DT
    return theirs


def reference(model, states: list) -> tuple:
    """(accelerations, positions and velocities after some steps), by MuJoCo's C."""
    found = []
    for state in zip(*states, strict=True):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = state
        mujoco.mj_forward(model, data)
        acceleration = data.qacc.copy()
        for _ in range(COUNT):
            mujoco.mj_step(model, data)
        found.append((acceleration, data.qpos.copy(), data.qvel.copy()))
    return tuple(map(np.stack, zip(*found, strict=True)))


def error(found, expected: np.ndarray) -> float:
    return float(np.abs(np.asarray(found, float) - expected).max() / np.abs(expected).max())


def steady(call: Callable, reset: Callable, repeats: int) -> list[float]:
    """Seconds per call of every block of a tenth of a second, in order of size."""

    def block(calls: int) -> float:
        reset()
        warp.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        warp.synchronize()
        return (time.perf_counter() - start) / calls

    calls = max(1, int(0.1 / min(block(1), block(1))))
    return sorted(block(calls) for _ in range(repeats))


def rows(robot: str, batch: int, repeats: int):
    model = ROBOTS[robot]()
    exact, lean = mujoco_model(model), mujoco_model(model)
    for name in UNUSED.split():
        lean.opt.disableflags |= int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}"))
    states = [np.array(x) for x in gpu_peers.states(model, batch, "float32")]
    theirs, data = mujoco_warp.put_model(lean), mujoco_warp.make_data(lean, nworld=batch, nconmax=0, njmax=0)
    theirs.opt.run_collision_detection = False
    kept = [warp.array(x, dtype=float) for x in states]

    def reset() -> None:
        for to, x in zip((data.qpos, data.qvel, data.qfrc_applied), kept, strict=True):
            warp.copy(to, x)

    acceleration, position, velocity = reference(exact, [x[:8] for x in states])
    for what, function in (("forward", mujoco_warp.forward), ("step", mujoco_warp.step)):
        row = {"robot": robot, "what": what, "program": "MuJoCo Warp", "dtype": "float32", "batch": batch}
        many = lambda function=function: [function(theirs, data) for _ in range(COUNT)]
        start = time.perf_counter()
        reset()
        many()
        warp.synchronize()
        row["first s"] = time.perf_counter() - start
        pairs = [(data.qacc, acceleration)] if what == "forward" else [(data.qpos, position), (data.qvel, velocity)]
        row["error"] = max(error(x.numpy()[:8], y) for x, y in pairs)
        if warp.get_device().is_cuda:
            with warp.ScopedCapture() as capture:
                many()
            many = partial(warp.capture_launch, capture.graph)
        times = np.array(steady(many, reset, repeats)) / COUNT
        low, median, high = np.quantile(times, [0.25, 0.5, 0.75])
        yield row | {"us": 1e6 * median, "low": 1e6 * low, "high": 1e6 * high, "per second": batch / median}


def main() -> None:
    options = arguments()
    warp.init()
    warp.set_device(options.device)
    versions = {"warp": warp.config.version, "mujoco_warp": mujoco_warp.__version__, "mujoco": mujoco.__version__}
    print(json.dumps({"device": warp.get_device().name, "versions": versions}), flush=True)
    for batch in map(int, options.batch.split(",")):
        for robot in options.robots.split(","):
            try:
                for row in rows(robot, batch, options.repeats):
                    print(json.dumps(row, default=float), flush=True)
            except Exception as problem:
                said = " ".join("".join(traceback.format_exception_only(problem)).split())[:500]
                print(json.dumps({"robot": robot, "batch": batch, "failure": said}), flush=True)


if __name__ == "__main__":
    main()
