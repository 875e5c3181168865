"""Optimal control of robots beside Crocoddyl: the same costs, horizon, start and guesses, one core, float64.

    python benchmarks/optimal_control.py [--cases panda,hexarotor] [--batches 1,64] [--env FOLDER] [--out FILE]
    python benchmarks/optimal_control.py --table

Every case is a reach: a frame of the robot goes to a pose; squared forces, distances from the start and velocities
cost. Steps are those of semi-implicit Euler, as Crocoddyl's. Both programs search by feasibility-driven differential
dynamic programming from the same guesses, the forces that hold the robot at its start with some noise, until the
norm of the gradient is 1e-6. `forces`: controls are forces, as in Crocoddyl. `accelerations`: the same problem with
accelerations as controls and inverse dynamics in the cost (`ControlSystem.of_accelerations`).

ms: processor time of an iteration of one problem, while all problems of the batch search. to the end: processor time
of the whole search for one problem, with the problems of a batch that wait for others. cost: the least found.
difference: to the least cost that Crocoddyl found. at the least: guesses whose cost is within 1e-6 of that, relative;
the others end in another minimum. Crocoddyl solves one problem after the other, `--peers` of them, on the same core.
Both run by turns, `--rounds` times; times are medians, and Crocoddyl ms is that of the rounds beside this row.

--table: one iteration of batches of 1 to 512 problems of a 6-joint arm with 32, 64 and 128 knots.

Crocoddyl runs in an environment of its own, which is made in FOLDER unless it is there.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import forward_dynamics
import harness

ENVIRONMENT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "lgjax-crocoddyl")
PACKAGES = ("crocoddyl==3.2.1", "pin==4.0.0")
COLUMNS = [
    "case", "joints", "knots", "program", "batch", "ms", "Crocoddyl ms", "iterations", "to the end ms", "cost",
    "difference", "ended", "at the least", "trace and compile s",
]  # fmt: skip
# Steps, seconds of one, weights of force, of displacement and speed on the way, of the pose and of both at the end.
CASES = {
    "panda": (100, 0.01, 0.01, 0.1, 1e3, (0.01, 1.0)),
    "ur5": (100, 0.01, 0.01, 0.1, 1e3, (0.01, 1.0)),
    "hexarotor": (50, 0.02, 0.01, 0.1, 1e3, (0.01, 1.0)),
    "humanoid": (50, 0.01, 0.001, 0.1, 1e3, (0.01, 1.0)),
}
TOLERANCE, ITERATIONS, NOISE = 1e-6, 100, 0.1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="panda,ur5,hexarotor,humanoid")
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--forms", default="forces,accelerations")
    parser.add_argument("--peers", type=int, default=8, help="problems that Crocoddyl solves")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="most of lgjax, for large batches")
    parser.add_argument("--rounds", type=int, default=9, help="turns of lgjax and Crocoddyl")
    parser.add_argument("--table", action="store_true", help="iterations of a 6-joint arm by knots and batch instead")
    parser.add_argument("--knots", default="32,64,128", help="of the table")
    parser.add_argument("--table-batches", default="1,64,512")
    parser.add_argument("--env", type=Path, default=ENVIRONMENT)
    parser.add_argument("--out", help="JSON file for the rows")
    options = parser.parse_args()
    for name in options.cases.split(","):
        if name not in CASES:
            parser.error(f"--cases: {name!r} is none of {', '.join(CASES)}")
    return options


# ---- the problems
def robot(name: str) -> tuple[Any, Any, str]:
    """A model, its configuration at the start, and the frame that reaches."""
    import lgjax

    if name == "hexarotor":
        machine = lgjax.systems.aerial_manipulator()
        q = lgjax.configuration(machine.model, joints=list(machine.motion.joint_start))
        return machine.model, q, "left_tip"
    if name == "humanoid":
        file = forward_dynamics.robot_file("talos_reduced")
        model = lgjax.load_urdf(file, floating_base=False, mimic="independent", check_inertia="warn")
        model = model.replace(damping=0 * model.damping)
        joint = lambda part: next(i for i, body in enumerate(model.body_names) if part in body)
        places = [0.0] * model.nv
        for part, angle in (("arm_left_4", -1.0), ("arm_right_4", -1.0), ("arm_left_2", 0.3), ("arm_right_2", -0.3)):
            places[joint(part)] = angle
        return model, lgjax.configuration(model, joints=places), "arm_left_7_link"
    model = forward_dynamics.load(name)
    start = {"panda": [0, -0.5, 0, -2.0, 0, 1.6, 0.8, 0.02, 0.02], "ur5": [0, -1.2, 1.4, -1.0, -1.5, 0.0]}[name]
    return model, lgjax.configuration(model, joints=start), {"panda": "panda_hand_tcp", "ur5": "tool0"}[name]


def case(name: str, knots: int | None, batch: int) -> dict[str, Any]:
    """Everything that both programs are given; forces (batch, knots, nv) are the guesses."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import lgjax

    model, q, frame = robot(name)
    steps, dt, force, along, pose, end = CASES[name]
    steps = knots or steps
    place = lgjax.frame_pose(model, q, frame)
    turn = lgjax.so3.exp(jnp.array([0.3, -0.2, 0.4]))
    goal = lgjax.Pose(turn @ place.rotation, place.translation + jnp.array([-0.1, 0.2, 0.1]))
    hold = lgjax.gravity_forces(model, q)
    noise = NOISE * jax.random.normal(jax.random.key(0), (batch, steps, model.nv), hold.dtype)
    return {
        "name": name, "model": model, "q": q, "frame": frame, "goal": goal, "steps": steps, "dt": dt, "force": force,
        "along": along, "pose": pose, "end": end, "guesses": np.asarray(hold + noise), "hold": np.asarray(hold),
    }  # fmt: skip


# ---- lgjax
def problem_of(form: str, given: dict[str, Any]) -> tuple[Any, Any]:
    """The search, and guesses in its controls."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from lgjax import control
    from lgjax.simulate.control.check_problem import check_problem

    model, costs, n = given["model"], control.costs, given["model"].nv
    start = given["q"], jnp.zeros(n)
    plain = control.ControlSystem.of_model(
        model, given["dt"], controls=n, actuation=lambda u: u, method=control.SemiImplicitEuler()
    )
    weight, guesses = np.sqrt(given["force"]), jnp.asarray(given["guesses"])
    if form == "forces":
        system, force = plain, costs.control(given["hold"], weight)
    else:
        system, force = control.ControlSystem.of_accelerations(model, given["dt"]), None
        force = costs.forces(model, given["hold"], weight)
        guesses = jax.jit(jax.vmap(lambda u: accelerations(plain, start, u)))(guesses)
    ends = np.repeat(np.sqrt(given["end"]), n)
    problem = check_problem(
        system, start, given["steps"], force + given["along"] * costs.state(model, start),
        given["pose"] * costs.frame(model, given["frame"], given["goal"]) + costs.state(model, start, ends), None, None,
        None,
    )  # fmt: skip
    method = control.FDDP(iterations=ITERATIONS, tolerance=TOLERANCE)
    return method.search(problem, given["steps"]), guesses


def accelerations(system: Any, start: Any, forces: Any) -> Any:
    """Those of the motion from `start` under the forces (steps, nv)."""
    import jax

    def step(state: Any, force: Any) -> Any:
        after = system.step(state, force)
        return after, (after[1] - state[1]) / system.dt

    return jax.lax.scan(step, start, forces)[1]


def compiled(form: str, given: dict[str, Any], batch: int, iterations: int | None = None) -> Callable[[], dict]:
    """A search that is run at each call, for a row of lgjax. iterations: at most so many, instead of a whole search."""
    import jax
    import numpy as np

    from lgjax.execution.lasting import in_groups
    from lgjax.numerics.loops import iterate_while

    search, guesses = problem_of(form, given)
    guesses = guesses[:batch]
    started = time.process_time()

    def turn(iterate: Any, most: Any) -> Any:
        more = lambda carry: (carry[1] < most) & search.unfinished(carry[0])
        return iterate_while(more, lambda carry: (search.advance(carry[0]), carry[1] + 1), (iterate, 0 * most))

    first = jax.block_until_ready(jax.jit(jax.vmap(search.init))(guesses))
    one = jax.numpy.ones((), jax.numpy.int32)
    ready = jax.jit(partial(in_groups, turn)).lower(first, one).compile()
    program = lambda iterate: ready(iterate, one)[0]
    compiling = time.process_time() - started
    jax.block_until_ready(program(first))

    def run() -> dict[str, Any]:
        times, iterate = [], first
        while np.any(np.asarray(search.unfinished(iterate))) and len(times) < (iterations or ITERATIONS):
            started = time.process_time()
            iterate = jax.block_until_ready(program(iterate))
            times.append(time.process_time() - started)
        busy = times[: max(1, int(np.min(iterate.iteration)))]
        return {
            "program": f"lgjax, {form}", "batch": batch, "ms": 1e3 * float(np.median(busy)) / batch,
            "iterations": float(np.median(iterate.iteration)), "to the end ms": 1e3 * sum(times) / batch,
            "cost": float(np.min(iterate.cost)), "ended": f"{int(np.sum(np.asarray(iterate.status) == 0))}/{batch}",
            "costs": np.asarray(iterate.cost).tolist(),
            "trace and compile s": compiling,
        }  # fmt: skip

    return run


# ---- Crocoddyl
def prepared(folder: Path) -> Path:
    """The Python of the environment, which is made if it is not there."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"making an environment in {folder}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        (folder / "ready").touch()
    return python


class Peer:
    """Crocoddyl's process, with one problem; it solves when it is asked."""

    def __init__(self, python: Path, given: dict[str, Any], count: int, folder: str) -> None:
        import descriptions
        import numpy as np

        from lgjax.dynamics.jacobians import carrier
        from lgjax.multibody.conventions import to_pinocchio

        model, path = given["model"], Path(folder)
        (path / "robot.urdf").write_text(descriptions.urdf(model))
        body, place = carrier(model, given["frame"])
        floating = int(model.tree.kinds[0].name == "free")
        q = np.asarray(to_pinocchio(model, given["q"], np.zeros(model.nv)).q)
        np.savez(
            path / "case.npz", q=q, floating=floating, body=body, guesses=given["guesses"][:count], hold=given["hold"],
            place=np.r_[np.ravel(place.rotation), place.translation],
            goal=np.r_[np.ravel(given["goal"].rotation), given["goal"].translation],
            **{k: given[k] for k in ("dt", "steps", "force", "along", "pose", "end")},
        )  # fmt: skip
        script = Path(__file__).with_name("optimal_control_crocoddyl.py")
        self.process = subprocess.Popen(
            [python, script, path / "case.npz", path / "robot.urdf", str(TOLERANCE), str(ITERATIONS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            # its OpenMP threads would wait for each other in loops: a hundred times slower where cores are few
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def solve(self) -> dict[str, Any]:
        """Times and costs of all its problems."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("solve\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"Crocoddyl's process ended with {self.process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def by_turns(run: Callable[[], dict], peer: Peer, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows of lgjax and of Crocoddyl: the first ones, with the medians of the times of all."""
    pairs = [(run(), peer.solve()) for _ in range(rounds)]
    ours, theirs = zip(*pairs, strict=True)
    median = lambda rows, key: statistics.median(row[key] for row in rows)
    both = [rows[0] | {key: median(rows, key) for key in ("ms", "to the end ms")} for rows in (ours, theirs)]
    return both[0] | {"Crocoddyl ms": both[1]["ms"]}, both[1]


def rows_of(name: str, options: argparse.Namespace):
    """Rows of one case."""
    batches = [int(n) for n in options.batches.split(",")]
    given = case(name, None, max(*batches, options.peers))
    head = {"case": name, "joints": given["model"].nv, "knots": given["steps"]}
    with tempfile.TemporaryDirectory() as folder:
        peer, runs, ours = Peer(prepared(options.env), given, options.peers, folder), [], []
        for form in options.forms.split(","):
            for batch in batches:
                row, other = by_turns(compiled(form, given, batch, options.iterations), peer, options.rounds)
                ours.append(head | row)
                runs.append(other)
        peer.close()
    medians = {key: statistics.median(run[key] for run in runs) for key in ("ms", "to the end ms")}
    theirs = head | {"program": "Crocoddyl", "batch": 1, **runs[0], **medians}
    for row in (theirs, *ours):
        costs = row.pop("costs")
        same = sum(abs(cost - theirs["cost"]) <= 1e-6 * theirs["cost"] for cost in costs)
        row["at the least"] = f"{same}/{len(costs)}"
        yield row | {"difference": abs(row["cost"] - theirs["cost"]) / theirs["cost"]}


def table_rows(options: argparse.Namespace):
    """One iteration for the 6-joint arm."""
    batches = [int(n) for n in options.table_batches.split(",")]
    for knots in map(int, options.knots.split(",")):
        given = case("ur5", knots, max(*batches, options.peers))
        with tempfile.TemporaryDirectory() as folder:
            peer = Peer(prepared(options.env), given, options.peers, folder)
            for batch in batches:
                row, _ = by_turns(compiled("accelerations", given, batch, 5), peer, options.rounds)
                times = {key: batch * row[key] for key in ("ms", "Crocoddyl ms")}
                yield {"knots": knots, "batch": batch, **times, "trace and compile s": row["trace and compile s"]}
            peer.close()


def main() -> None:
    options = arguments()
    harness.pin_to_cores(1)
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")  # as in `optimize_controls`, to share its traces
    if options.table:
        columns = ["knots", "batch", "ms", "Crocoddyl ms", "trace and compile s"]
        harness.collect("iterations of a 6-joint arm", table_rows(options), columns, options.out)
        return
    rows = (row for name in options.cases.split(",") for row in rows_of(name, options))
    harness.collect("optimal control", rows, COLUMNS, options.out)


if __name__ == "__main__":
    main()
