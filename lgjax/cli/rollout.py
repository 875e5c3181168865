"""`lgjax rollout`: a batch of randomized copies of a model or a robot, under controls that stay the same."""

import argparse
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lgjax import plot
from lgjax.cli import view
from lgjax.cli.arguments import (
    Help,
    add_compiling,
    add_keyframe,
    add_model,
    check_figure,
    check_output,
    fail,
    load_model,
    not_negative,
    positive,
    positive_int,
    reason,
    seed,
)
from lgjax.cli.robots import METHODS, check_method, conserves, contacts_of, method_of, start_of
from lgjax.execution.compiled import logger
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Model
from lgjax.robots.robot import Robot
from lgjax.saving.arrays import write_arrays
from lgjax.simulate.ensemble.ensemble import STORES, Spread, ensemble
from lgjax.view import html as draw_page

SPREADS = {
    "position": "spread of the initial configuration in rad and m",
    "velocity": "spread of the initial velocity in rad/s and m/s",
    "mass": "spread of the log of the bodies' masses",
    "inertia": "spread of the log of the bodies' stretch along each axis",
    "geometry": "spread of the log of the distances between joints",
    "friction": "spread of the log of the joints' damping",
    "gravity": "spread of each component of gravity in m/s^2",
    "gain": "spread of the log of what actuators do per unit of control and of length",
    "velocity_gain": "spread of the log of what actuators do per unit of speed",
    "gear": "spread of the log of the gears of actuators",
    "time_constant": "spread of the log of the time constants of actuators",
    "delay": "spread of the delays of actuators in s",
}


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "rollout",
        description="Integrate a batch of copies of a model from randomized states, and report speed and energy error. "
        "Of a file its loops, passive forces and actuators act, under the controls of the keyframe or zero ones; with "
        "TIME_STEPPING it touches its ground, too.",
        formatter_class=Help,
    )
    add_model(parser, nargs="?", default="quadruped")
    parser.add_argument("--batch", type=positive_int, default=1, help="number of copies")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=positive_int, help="number of time steps")
    length.add_argument("--duration", type=positive, default=1.0, help="simulated time in s, instead of --steps")
    parser.add_argument("--dt", type=positive, default=1e-3, help="time step in s")
    parser.add_argument("--method", default="RK4", help=f"one of {', '.join(METHODS)}")
    add_keyframe(parser)
    parser.add_argument("--seed", type=seed, default=0, help="seed of the initial states and masses")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument(
        "--save-every", type=positive_int, metavar="K",
        help="keep every K-th step; if not given, the largest divisor of their number that keeps 101 states or more",
    )  # fmt: skip
    for name, default in Spread()._asdict().items():
        parser.add_argument(
            f"--{name.replace('_', '-')}-spread", type=not_negative, default=default, help=SPREADS[name]
        )
    parser.add_argument("--chunk", type=positive_int, help="copies at a time and device; what fits if not given")
    parser.add_argument("--devices", type=positive_int, help="how many devices; all if not given")
    parser.add_argument("--store", choices=STORES, default="all", help="which of the saved states to keep")
    folder = parser.add_mutually_exclusive_group()
    folder.add_argument("--checkpoint", type=Path, metavar="DIR", help="write states and checkpoints to a folder")
    folder.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in that folder, or begin one")
    parser.add_argument("--statistics", type=Path, metavar="FILE.npz", help="write means, covariances and quantiles")
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="write times, poses, velocities and energies")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw base path, joints and energy error")
    parser.add_argument("--view", action="store_true", help="show the motion in a browser when it is done")
    parser.add_argument("--view-html", type=Path, metavar="FILE.html", help="write the motion as one page to look at")
    view.add_options(parser)
    add_compiling(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    check_method(args.method)
    if args.steps is None and not args.duration / args.dt < 2**31 - 1:
        raise ValueError(f"a duration of {args.duration:g} s is too many steps of {args.dt:g} s")
    steps = args.steps or round(args.duration / args.dt)
    if steps < 1:
        raise ValueError(f"a duration of {args.duration:g} s is less than one step of {args.dt:g} s")
    save_every = args.save_every or _divisor(steps, steps // 100)
    if steps % save_every:
        raise ValueError(f"--save-every {save_every} does not divide the {steps} steps")
    seen = args.plot or args.view or args.view_html
    if args.store == "none" and (args.out or seen):
        raise ValueError("--out, --plot and --view need states, not --store none")
    if args.store == "final" and seen:
        raise ValueError("--plot and --view need --store all")
    for path in _files(args):
        check_output(path)
    if args.plot:
        check_figure(args.plot)
    if args.view or args.view_html:
        view.check()
    if args.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    logger.info("%s, batch %d, %d steps", args.model, args.batch, steps)
    mechanism = load_model(args).astype(args.dtype)
    start, method = start_of(mechanism, args.keyframe), method_of(args.method, mechanism)
    if start.activation is not None and np.any(np.asarray(start.activation)):
        logger.warning("warning: activations start at zero, not at those of the keyframe %r", args.keyframe)
    try:
        result = ensemble(
            mechanism,
            start.control,
            batch=args.batch,
            steps=steps,
            dt=args.dt,
            key=jax.random.key(args.seed),
            method=method,
            q=start.q,
            v=start.v,
            spread=Spread(*(getattr(args, f"{name}_spread") for name in Spread._fields)),
            save_every=save_every,
            store=args.store,
            chunk=args.chunk,
            devices=args.devices,
            folder=args.checkpoint or args.resume,
            resume=args.resume is not None,
            progress=False if args.quiet else None,
        )
    except KeyboardInterrupt as interrupt:  # report what was computed
        result = getattr(interrupt, "result", None)
        if result is None:
            raise
    except (ValueError, ImportError):  # about what was asked for
        raise
    except Exception as error:  # whatever stops it, the user gets one line
        kind = "" if isinstance(error, OSError) else f"{type(error).__name__}: "
        return fail(1, f"the run failed: {kind}{reason(error)}")
    return _report(args, mechanism, result, steps, conserves(mechanism, start.control, method))


def _divisor(n: int, limit: int) -> int:
    """The largest divisor of n that is at most `limit`, at least 1."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return max((d for d in (*small, *(n // d for d in small)) if d <= limit), default=1)


def _files(args: argparse.Namespace) -> list[Path]:
    return [path for path in (args.out, args.plot, args.view_html, args.statistics) if path]


def _report(args: argparse.Namespace, mechanism: Model | Robot, result: Any, steps: int, conserved: bool) -> int:
    model = checked_model(mechanism)
    if args.statistics:
        found = {"times": result.ts, "names": _observed(model), **result.statistics._asdict()}
        write_arrays(args.statistics, found)
    if args.out:
        write_arrays(args.out, {**_arrays(model, result), "model": np.array(view.remembered(args))})
    if args.plot:
        plot.save(plot.rollout_figure(model, result, conserved=conserved), args.plot)
    if args.view_html:
        draw_page(mechanism, result, args.view_html, follow=args.follow, contacts=contacts_of(mechanism))
    good = result.success
    print(f"{model.name}: {model.nbodies} bodies, nv {model.nv}, batch {good.size}, {steps} steps of {args.dt:g} s")
    print(f"compiled in {result.compile_seconds:.1f} s, computed in {result.seconds:.2f} s:", end=" ")
    print(f"{result.simulated_seconds_per_second:.4g} simulated seconds per second")
    if args.store == "all" and (result.folder is None or _files(args)):
        energy = np.asarray(result.energy, float)[good]
        drift = f"{np.max(np.abs(energy - energy[:, :1])):.3g} J" if energy.size else "not known"
        print(f"largest {'energy error' if conserved else 'change of mechanical energy'} {drift}")
    for path in _files(args):
        print(f"wrote {path}")
    if args.view:
        view.present(mechanism, result, args, None)
    if not result.complete:
        return fail(130, f"interrupted after {good.size} of {args.batch} samples")
    if not good.all():
        return fail(1, f"{np.sum(~good)} of {good.size} samples are not finite; a smaller --dt may help")
    return 0


def _observed(model: Any) -> np.ndarray:
    """Names of what statistics are taken of, see `lgjax.simulate.ensemble.ensemble.observation`."""
    counts = {"position": 3 * model.tree.n_free, "joint": model.tree.n_joint, "velocity": model.nv}
    return np.array([f"{name}[{i}]" for name, count in counts.items() for i in range(count)], str)


def _arrays(model: Any, result: Any) -> dict[str, Any]:
    """Contents of the output file; leading axes (batch, times), one free pose per free joint."""
    return {
        "times": np.asarray(result.ts),
        "base_rotation": np.asarray(result.q.free_poses.rotation),
        "base_position": np.asarray(result.q.free_poses.translation),
        "joints": np.asarray(result.q.joints),
        "ball_rotations": np.asarray(result.q.ball_rotations),
        "velocities": np.asarray(result.v),
        "energies": np.asarray(result.energy),
        "status": np.asarray(result.status),
        "joint_names": np.array(model.joint_names, dtype=str),
        "body_names": np.array(model.body_names, dtype=str),
    }
