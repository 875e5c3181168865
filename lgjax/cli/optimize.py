"""`lgjax optimize`: controls of a model or a robot for a problem that a small file describes."""

import argparse
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax import plot
from lgjax.cli.arguments import OF_FILES, add_compiling, as_key, check_figure, check_output, fail, load, spelled
from lgjax.cli.robots import METHODS as INTEGRATORS
from lgjax.cli.robots import Start, method_of, start_of
from lgjax.dynamics.kinematics import frame_pose
from lgjax.dynamics.loops import project_positions, project_velocity
from lgjax.execution.compiled import logger
from lgjax.groups import so3
from lgjax.groups.se3 import Pose
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.configuration import Configuration, configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.numerics.messages import why
from lgjax.robots.robot import Robot
from lgjax.saving.arrays import write_arrays
from lgjax.simulate import control
from lgjax.simulate.control import ControlSystem, OptimizedControls, OptimizeStatus, optimize_controls
from lgjax.simulate.control.check_problem import box

METHODS = {
    "shooting": control.Shooting,
    "multiple_shooting": control.MultipleShooting,
    "ilqr": control.ILQR,
    "fddp": control.FDDP,
}
DTYPES = ("float32", "float64")
EXAMPLE = """
model = "arm"               # built in, or a file beside this one; of files also floating_base, check_inertia,
                            # folder = "..", packages = { name = "folder" }, ignore = ["equality"], keyframe = "home"
method = "ilqr"             # or fddp, shooting, multiple_shooting
dt = 0.02                   # s, a control each
steps = 50
iterations = 100
guesses = 4                 # random ones about zero
spread = 0.1                # of the guesses, N m or N
seed = 0
bounds = [-150.0, 150.0]    # of the controls, joint forces or those of actuators: of all, or lists of them
integrator = "RK4"          # or another one of `lgjax rollout --method`; TIME_STEPPING touches the ground of a file
dtype = "float64"

[start]                     # joints in order or by name, base = [x, y, z], turn = rotation vector; zero if left out
joints = { joint2 = 0.3 }

[goal]                      # the same, and any named frame; all at rest
joints = { joint2 = 0.8, joint4 = 0.5 }
# frame = "tool"; position = [0.4, 0.0, 0.8]; turn = [0.0, 1.57, 0.0]

[weights]                   # of the squares of what is left at the end, and of the forces on the way
goal = 100.0
rest = 1.0
effort = 1e-4
"""
TOP = {
    "model": str, "floating_base": bool, "method": str, "dt": float, "steps": int, "substeps": int, "iterations": int,
    "guesses": int, "spread": float, "seed": int, "bounds": list, "dtype": str, "tolerance": float, "start": dict,
    "goal": dict, "weights": dict, "keyframe": str, "integrator": str,
    **{name: of.value for name, of in OF_FILES.items()},
}  # fmt: skip
STATE = {"joints": (list, dict), "base": list, "turn": list}
GOAL = {**STATE, "frame": str, "position": list}
WEIGHTS = {"goal": 100.0, "rest": 1.0, "effort": 1e-4}


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "optimize",
        description="Find the joint forces that bring a mechanism to a goal, for a problem such as\n" + EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("problem", metavar="PROBLEM.toml", type=Path)
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="write times, controls, states and costs")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw controls, joints and costs")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE.npz", help="save the search there and go on from it")
    add_compiling(parser)
    parser.set_defaults(run=run)


class Task(NamedTuple):
    """A problem as read: what `optimize_controls` takes, and the model. start: (q, v), or (q, v, activation)."""

    model: Model
    system: ControlSystem
    start: tuple
    guesses: jax.Array
    method: str
    options: dict[str, Any]


def run(args: argparse.Namespace) -> int:
    for path in filter(None, (args.out, args.plot)):
        check_output(path)
    if args.plot:
        check_figure(args.plot)
    try:
        with args.problem.open("rb") as file:
            table = tomllib.load(file)
        logger.info("%s, %s, %s steps", args.problem, table.get("model"), table.get("steps"))
        task = read(table, args.problem.parent)
    except OSError as error:
        raise ValueError(f"cannot read {str(args.problem)!r}: {why(error)}") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{args.problem}: {spelled(str(error), as_key)}") from error
    found = optimize_controls(
        task.system, task.start, task.guesses, progress=False if args.quiet else None, checkpoint=args.checkpoint,
        **task.options,
    )  # fmt: skip
    return _report(args, task, found)


# ---- reading
def read(table: dict[str, Any], folder: Path) -> Task:
    """A task from the contents of a file; ValueError naming key and value of what is wrong."""
    values = _typed(table, TOP, "")
    for name in ("model", "steps", "dt", "goal"):
        if name not in values:
            raise ValueError(f"{name} is missing")
    for name, default in {"steps": 0, "guesses": 1, "iterations": 200, "substeps": 1}.items():
        if values.setdefault(name, default) < 1:
            raise ValueError(f"{name} must be at least 1, got {values[name]}")
    for name, default in {"dt": 0.0, "tolerance": 1e-6}.items():
        if not 0 < values.setdefault(name, default) < float("inf"):
            raise ValueError(f"{name} must be positive and finite, got {values[name]}")
    choices = ("method", "ilqr", tuple(METHODS)), ("dtype", "float64", DTYPES), ("integrator", "RK4", INTEGRATORS)
    for name, default, allowed in choices:
        checks.choice(name, values.setdefault(name, default), allowed)
    if values["dtype"] == "float64":
        jax.config.update("jax_enable_x64", True)
    mechanism = _mechanism(values, folder).astype(values["dtype"])
    model, method = checked_model(mechanism), method_of(values["integrator"], mechanism)
    system = ControlSystem.of_model(mechanism, values["dt"], method=method, substeps=values["substeps"])
    start = _start(mechanism, values)
    seed, spread = values.get("seed", 0), checks.number("spread", values.get("spread", 0.1), 0.0)
    if abs(seed) >= 2**63:
        raise ValueError(f"seed must have at most 63 bits, got {seed}")
    noise = jax.random.normal(jax.random.key(seed), (values["guesses"], values["steps"], system.controls))
    running, terminal = _costs(model, values)
    search = METHODS[values["method"]](iterations=values["iterations"], tolerance=values["tolerance"])
    bounds = values.get("bounds", _ranges(mechanism))
    if bounds is not None and len(bounds) != 2:
        raise ValueError(f"bounds must be [lower, upper], got {bounds}")
    box(bounds, system.controls, model.dtype)
    options = {"method": search, "steps": values["steps"], "running": running, "terminal": terminal, "bounds": bounds}
    state = (*start[:2], *(x for x in start[3:] if x is not None and x.size))
    guesses = (spread * noise).astype(model.dtype) + (0 if start.control is None else start.control)
    return Task(model, system, state, guesses, values["method"], options)


def _typed(table: dict[str, Any], known: dict[str, Any], where: str) -> dict[str, Any]:
    for key, value in table.items():
        if key not in known:
            raise ValueError(f"unknown key {where}{key}; known: {', '.join(known)}")
        kind = (int, float) if known[key] is float else known[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            raise ValueError(f"{where}{key} must be {' or '.join(k.__name__ for k in kinds)}, got {value!r}")
    return dict(table)


def _mechanism(values: dict[str, Any], folder: Path) -> Model | Robot:
    given = {option: values[option] for option in OF_FILES if option in values}
    if "folder" in given:
        given["folder"] = folder / given["folder"]
    if "packages" in given:
        packages = _typed(given["packages"], dict.fromkeys(given["packages"], str), "packages.")
        given["packages"] = {name: folder / place for name, place in packages.items()}
    found = load(values["model"], folder / values["model"], values.get("floating_base"), given, as_key)
    actuators = found.actuators if isinstance(found, Robot) else None
    if actuators is not None and np.any(np.asarray(actuators.delay)):
        way = "ignore=('actuator',) searches for joint forces"
        raise ValueError(f"{values['model']}: controls of actuators with delays are not searched for ({way})")
    return found


def _start(mechanism: Model | Robot, values: dict[str, Any]) -> Start:
    """The keyframe, or the state in the table `start`, or that of the file; closed, if there are loops."""
    table, keyframe = values.get("start"), values.get("keyframe")
    if table and keyframe is not None:
        raise ValueError("start stands beside keyframe; give one of them")
    start, model = start_of(mechanism, keyframe), checked_model(mechanism)
    if table:
        start = start._replace(q=_configuration(model, table, "start"), v=jnp.zeros_like(start.v))
    if isinstance(mechanism, Robot) and mechanism.loops:
        q = project_positions(model, mechanism.loops, start.q).q
        start = start._replace(q=q, v=project_velocity(model, mechanism.loops, q, start.v))
    return start


def _ranges(mechanism: Model | Robot) -> list[list[float]] | None:
    """Ranges of controls of actuators, None where none is limited."""
    if not isinstance(mechanism, Robot) or mechanism.actuators is None:
        return None
    ranges = np.asarray(mechanism.actuators.control_range, float)
    return ranges.T.tolist() if np.isfinite(ranges).any() else None


def _vector(table: dict[str, Any], key: str, where: str, default: Any = (0.0, 0.0, 0.0)) -> np.ndarray:
    return checks.numbers(f"{where}.{key}", table.get(key, default), (3,))


def _configuration(model: Any, table: dict[str, Any], where: str) -> Configuration:
    table = _typed(table, STATE, where + ".")
    base = None
    if "base" in table or "turn" in table:
        if model.tree.n_free != 1:
            raise ValueError(f"{where}.base or {where}.turn given, but {model.name} has no free base")
        base = Pose(so3.exp(jnp.asarray(_vector(table, "turn", where))), jnp.asarray(_vector(table, "base", where)))
    try:
        return configuration(model, base, table.get("joints"))
    except ValueError as error:
        raise ValueError(f"{where}.joints: {error}") from error


def _costs(model: Any, values: dict[str, Any]) -> tuple[Any, Any]:
    weights = WEIGHTS | _typed(values.get("weights", {}), dict.fromkeys(WEIGHTS, float), "weights.")
    for name, weight in weights.items():
        if not 0 <= weight < float("inf"):
            raise ValueError(f"weights.{name} must be at least 0 and finite, got {weight}")
    goal = _typed(values["goal"], GOAL, "goal.")
    frame, position = goal.get("frame"), goal.get("position")
    if frame is not None:
        if "base" in goal:
            raise ValueError("goal.base stands beside goal.frame; give one of them")
        frame_pose(model, configuration(model), frame)  # raises where there is none of that name
        place = None if position is None else jnp.asarray(_vector(goal, "position", "goal"), model.dtype)
        turn = so3.exp(jnp.asarray(_vector(goal, "turn", "goal"), model.dtype)) if "turn" in goal else None
        if place is None and turn is None:
            raise ValueError(f"goal.frame = {frame!r} needs goal.position, goal.turn or both")
        goal = {"joints": goal["joints"]} if "joints" in goal else {}
    elif position is not None:
        raise ValueError("goal.position needs goal.frame")
    else:
        place = turn = None
    if not goal and frame is None:
        raise ValueError("goal is empty: give joints, base and turn, or frame with position and turn")
    wanted = _configuration(model, goal, "goal")
    asked = _asked(model, goal)

    def running(t: jax.Array, state: Any, u: jax.Array) -> jax.Array:
        return weights["effort"] * jnp.sum(u * u)

    def terminal(state: Any) -> jax.Array:
        q, v, *_ = state
        missed = jnp.sum(jnp.where(asked, q.joints - wanted.joints, 0) ** 2)
        if "base" in goal:
            missed = missed + jnp.sum((q.free_poses.translation - wanted.free_poses.translation) ** 2)
        if "base" in goal or "turn" in goal:
            missed = missed + 3 - jnp.sum(q.free_poses.rotation * wanted.free_poses.rotation)
        if frame is not None:
            pose = frame_pose(model, q, frame)
            if place is not None:
                missed = missed + jnp.sum((pose.translation - place) ** 2)
            if turn is not None:
                missed = missed + 3 - jnp.sum(pose.rotation * turn)
        return weights["goal"] * missed + weights["rest"] * jnp.sum(v * v)

    return running, terminal


def _asked(model: Any, goal: dict[str, Any]) -> np.ndarray:
    """Mask of the scalar coordinates that the goal mentions."""
    joints = goal.get("joints")
    asked = np.zeros(model.tree.n_joint, bool)
    if isinstance(joints, dict):
        for name, start, kind in zip(model.tree.joint_names, model.tree.q_start, model.tree.kinds, strict=True):
            if name in joints and kind.coordinates == "joints":
                asked[start : start + kind.nq] = True
    elif joints is not None:
        asked[:] = True
    return asked


# ---- reporting
def _report(args: argparse.Namespace, task: Task, found: OptimizedControls) -> int:
    q, v, *_ = found.states
    ts = task.system.dt * np.arange(found.controls.shape[1] + 1)
    if args.out:
        arrays = {
            "times": ts, "controls": found.controls, "base_rotation": q.free_poses.rotation,
            "base_position": q.free_poses.translation, "joints": q.joints, "velocities": v, "cost": found.cost,
            "gradient_norm": found.gradient_norm, "status": found.status,
            "joint_names": np.array(task.model.joint_names, str),
        }  # fmt: skip
        write_arrays(args.out, arrays)
    if args.plot:
        best, costs, bounds = found.best, found.history.cost, task.options["bounds"]
        plot.save(plot.controls_figure(ts, found.controls[best], q.joints[best], costs, bounds), args.plot)
    names = [str(OptimizeStatus(status).name).lower().replace("_", " ") for status in found.status]
    print(f"{task.model.name}: {task.method}, {len(names)} guesses, {len(ts) - 1} steps of {ts[1]:g} s")
    print(f"compiled in {found.compile_seconds:.1f} s, computed in {found.seconds:.2f} s")
    for i, name in enumerate(names):
        best = "  best" if i == found.best else ""
        print(f"guess {i}: cost {found.cost[i]:.6g}, gradient {found.gradient_norm[i]:.1e}, "
              f"{found.iterations[i]} iterations, {name}{best}")  # fmt: skip
    for path in filter(None, (args.out, args.plot)):
        print(f"wrote {path}")
    if all(status == OptimizeStatus.NOT_FINITE for status in found.status):
        return fail(1, "cost or gradient of every guess is not finite; a smaller dt may help")
    return 130 if OptimizeStatus.RUNNING in found.status else 0
