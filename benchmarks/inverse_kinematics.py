"""Inverse kinematics of arms: time per target and share that is solved, beside mink, PyRoki and Pinocchio.

python -m benchmarks.inverse_kinematics [--count 1000] [--peers mink=PYTHON pyroki=PYTHON ...] [--out ik.json]
Targets are poses of a frame at random configurations within the limits. Every program starts from the same guess; what
counts as solved is measured by Pinocchio from the joints that it returns. The programs of
`inverse_kinematics_peers.py` run one after the other, each on one core; PYTHON is an interpreter that has NAME.
"""

import argparse
import importlib.metadata
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import collect, pin_to_cores

ROBOTS = {
    "panda": ("panda_description/urdf/panda.urdf", "panda_hand_tcp"),
    "ur5": ("ur_description/urdf/ur5_robot.urdf", "tool0"),
}
COLUMNS = [
    *("robot", "program", "dtype", "solved to 1e-8", "to 1e-5", "to 1e-3", "within limits"),
    *("us per target", "first result, s"),
]


def targets(path: Path, frame: str, count: int) -> dict:
    """Random configurations and the poses of the frame there, by Pinocchio, with names and limits of the joints."""
    import numpy as np
    import pinocchio as pin

    model = pin.buildModelFromUrdf(str(path))
    lower, upper = model.lowerPositionLimit, model.upperPositionLimit
    drawn = np.random.default_rng(0).uniform(lower, upper, (count, model.nq))
    poses = np.stack([_pose(pin, model, frame, q) for q in drawn])
    guess = np.clip(np.zeros(model.nq), lower, upper)
    return {"lower": lower, "upper": upper, "poses": poses, "guess": guess, "names": list(model.names)[1:]}


def _pose(pin, model, frame: str, q):
    data = model.createData()
    pin.framesForwardKinematics(model, data, q)
    return data.oMf[model.getFrameId(frame)].homogeneous


def ours(path: Path, frame: str, given: dict, dtype: str) -> tuple:
    """Joints in the order of the names, seconds of the first call and of one more."""
    import jax
    import numpy as np

    import lgjax

    jax.config.update("jax_enable_x64", True)
    started = time.perf_counter()
    model = lgjax.load_robot(path, floating_base=False).model.astype(dtype)
    order = [model.tree.joint_names.index(name) for name in given["names"]]
    columns = np.asarray([model.tree.q_start[n] for n in order])
    joints = np.zeros(model.tree.n_joint)
    joints[columns] = given["guess"]
    q0 = lgjax.configuration(model, joints=jax.numpy.asarray(joints, dtype))
    wanted = jax.vmap(lgjax.se3.from_matrix)(jax.numpy.asarray(given["poses"], dtype))
    program = jax.jit(jax.vmap(lambda T: lgjax.inverse_kinematics(model, {frame: T}, q0)))
    first = jax.block_until_ready(program(wanted))
    seconds = time.perf_counter() - started
    times = []
    for _ in range(9):
        started = time.perf_counter()
        jax.block_until_ready(program(wanted))
        times.append(time.perf_counter() - started)
    return np.asarray(first.q.joints)[:, columns], seconds, sorted(times)[4]


def theirs(python: str, program: str, path: Path, frame: str, given: dict, count: int) -> tuple:
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "targets.npz", Path(folder) / "result.npz"
        np.savez(source, urdf=str(path), frame=frame, **(given | {"poses": given["poses"][:count]}))
        script = Path(__file__).with_name("inverse_kinematics_peers.py")
        subprocess.run([python, script, program, source, result], check=True, stdout=sys.stderr)
        found = np.load(result)
        return found["q"], float(found["first"]), float(found["seconds"])


def judged(path: Path, frame: str, given: dict, q) -> dict:
    """Shares of the targets that are reached, by Pinocchio: angles in rad and distances in m below a size."""
    import numpy as np
    import pinocchio as pin

    model = pin.buildModelFromUrdf(str(path))
    errors = []
    for joints, wanted in zip(np.asarray(q, float), given["poses"], strict=False):
        away = pin.SE3(_pose(pin, model, frame, joints)).actInv(pin.SE3(wanted))
        errors.append(max(np.linalg.norm(pin.log3(away.rotation)), np.linalg.norm(away.translation)))
    errors, slack = np.asarray(errors), 1e-6  # round-off of limits in float32
    inside = np.all((q >= given["lower"] - slack) & (q <= given["upper"] + slack), axis=1)
    share = lambda size: f"{100 * np.mean((errors <= size) & inside):.1f} %"
    # 2e-8: each program has its own norm of six numbers.
    sizes = {"solved to 1e-8": 2e-8, "to 1e-5": 2e-5, "to 1e-3": 1e-3}
    return {name: share(size) for name, size in sizes.items()} | {"within limits": f"{100 * np.mean(inside):.1f} %"}


def rows(robots, count: int, peers: dict[str, str], some: int):
    package = importlib.metadata.distribution("example-robot-data")
    for robot in robots:
        file, frame = ROBOTS[robot]
        entry = next(f for f in package.files or () if str(f).endswith(f"robots/{file}"))
        path = Path(str(package.locate_file(entry)))
        given = targets(path, frame, count)
        made = [("lgjax", dtype, count, ours(path, frame, given, dtype)) for dtype in ("float64", "float32")]
        for name, python in peers.items():
            dtype = "float32" if name == "pyroki" else "float64"
            made.append((name, dtype, some, theirs(python, name, path, frame, given, some)))
        for name, dtype, number, (q, first, seconds) in made:
            values = {"us per target": seconds / number * 1e6, "first result, s": first}
            yield {"robot": robot, "program": name, "dtype": dtype} | judged(path, frame, given, q) | values


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--some", type=int, default=200, help="targets for the other programs")
    parser.add_argument("--peers", nargs="*", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--out")
    options = parser.parse_args()
    pin_to_cores(1)
    peers = dict(pair.split("=", 1) for pair in options.peers)
    table = rows(options.robots, options.count, peers, options.some)
    collect("inverse kinematics", table, COLUMNS, options.out)
