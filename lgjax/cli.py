"""The command `lgjax`.

Exit codes: 0 fine, 1 the run failed or has samples that are not finite, 2 bad usage or input, 130 interrupted.
"""

import argparse
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

import lgjax
from lgjax import integrators, plot
from lgjax.multibody import models
from lgjax.simulate.ensemble import ensemble

SUFFIXES = {".urdf": lgjax.load_urdf, ".xml": lgjax.load_mjcf, ".mjcf": lgjax.load_mjcf}
TABLEAUX = {name: value for name, value in vars(integrators).items() if isinstance(value, integrators.Tableau)}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return the exit code."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        return _fail(130, "interrupted")
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`; keep Python from failing again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, ImportError, OSError) as error:
        return _fail(2, str(error))


def _fail(code: int, message: str) -> int:
    print(f"lgjax: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="lgjax", description="Batched rigid-body dynamics on Lie groups.")
    parser.add_argument("--version", action="version", version=f"lgjax {lgjax.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_rollout(commands)
    info = commands.add_parser("info", help="show the tree, joints and masses of a model")
    _add_model(info)
    info.set_defaults(run=_info)
    return parser


def _add_model(parser: argparse.ArgumentParser, **options: Any) -> None:
    names = ", ".join(models.BUILT_IN)
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=f"a file (.urdf, .xml) or a built-in model: {names}, with numbers for N, B and L",
        **options,
    )
    base = parser.add_mutually_exclusive_group()
    base.add_argument(
        "--floating-base", dest="floating", action="store_true", default=None, help="put the root on a free joint"
    )
    base.add_argument("--fixed-base", dest="floating", action="store_false", help="fix the root to the world")
    parser.add_argument(
        "--mimic",
        choices=("error", "independent"),
        default="error",
        help="mimic joints of a URDF (default: %(default)s)",
    )
    parser.add_argument(
        "--check-inertia", choices=("error", "warn"), default="error",
        help="what to do about impossible inertias in a file (default: %(default)s)",
    )  # fmt: skip


def _add_rollout(commands: Any) -> None:
    parser = commands.add_parser(
        "rollout",
        help="integrate a batch of randomised copies of a model",
        description="Integrate a batch of copies of a model without controls, from randomised states, and report "
        "speed and energy error.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _add_model(parser, nargs="?", default="quadruped")
    parser.add_argument("--batch", type=_positive_int, default=1, help="number of copies")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=_positive_int, help="number of time steps")
    length.add_argument("--duration", type=_positive, default=1.0, help="simulated time in s, instead of --steps")
    parser.add_argument("--dt", type=_positive, default=1e-3, help="time step in s")
    parser.add_argument("--method", default="RK4", help=f"Munthe-Kaas method: {', '.join(TABLEAUX)}")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial states and masses")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument(
        "--save-every", type=_positive_int, metavar="K", help="keep every K-th step; about 100 are kept if not given"
    )
    parser.add_argument(
        "--mass-spread", type=_not_negative, default=0.0, help="spread of the log of the bodies' masses"
    )
    parser.add_argument("--chunk", type=_positive_int, help="copies at a time, where a batch does not fit in memory")
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="write times, poses, velocities and energies")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw base path, joints and energy error")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(run=_rollout)


def _number(text: str, good, expected: str):
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not good(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return value


def _positive(text: str) -> float:
    return _number(text, lambda x: 0 < x < float("inf"), "a positive number")


def _not_negative(text: str) -> float:
    return _number(text, lambda x: 0 <= x < float("inf"), "a number of at least 0")


def _positive_int(text: str) -> int:
    return int(_number(text, lambda x: x >= 1 and x == int(min(x, 2**62)), "a positive integer"))


def _load(args: argparse.Namespace) -> Any:
    """The model that the arguments ask for: a file by its ending, or a built-in one."""
    load, options = SUFFIXES.get(Path(args.model).suffix.lower()), {}
    if load is None and Path(args.model).is_file():
        raise ValueError(f"{args.model}: unknown kind of file; known: {', '.join(SUFFIXES)}")
    if load is None:
        return models.by_name(args.model, args.floating)
    known = inspect.signature(load).parameters
    if "floating_base" in known:
        options = {"floating_base": args.floating is not False, "mimic": args.mimic}
    elif args.floating is not None:
        raise ValueError(f"{args.model}: an MJCF file says itself whether the base floats")
    return load(args.model, check_inertia=args.check_inertia, **options)


def _rollout(args: argparse.Namespace) -> int:
    if args.method.upper() not in TABLEAUX:
        raise ValueError(f"unknown method {args.method!r}; known: {', '.join(TABLEAUX)}")
    steps = args.steps or round(args.duration / args.dt)
    if steps < 1:
        raise ValueError(f"a duration of {args.duration:g} s is less than one step of {args.dt:g} s")
    save_every = args.save_every or _divisor(steps, steps // 100)
    if steps % save_every:
        raise ValueError(f"--save-every {save_every} does not divide the {steps} steps")
    for path in filter(None, (args.out, args.plot)):
        if path.is_dir():
            raise ValueError(f"cannot write {str(path)!r}: it is a folder")
        if not path.absolute().parent.is_dir():
            raise ValueError(f"cannot write {str(path)!r}: its folder does not exist")
    if args.plot:
        plot.figure(1, 1)  # fails now, not after the run
    if args.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    model = _load(args).astype(args.dtype)
    try:
        result = ensemble(
            model,
            batch=args.batch,
            steps=steps,
            dt=args.dt,
            key=jax.random.key(args.seed),
            method=integrators.MuntheKaas(TABLEAUX[args.method.upper()]),
            mass_spread=args.mass_spread,
            save_every=save_every,
            chunk=args.chunk,
            progress=False if args.quiet else None,
        )
    except Exception as error:  # whatever stops it, the user gets one line
        return _fail(1, f"the run failed: {type(error).__name__}: {error}")
    return _report(args, model, result, steps)


def _divisor(n: int, limit: int) -> int:
    """The largest divisor of n that is at most `limit`, at least 1."""
    return next((d for d in range(min(n, limit), 0, -1) if n % d == 0), 1)


def _report(args: argparse.Namespace, model: Any, result: Any, steps: int) -> int:
    if args.out:
        with args.out.open("wb") as file:
            np.savez(file, **_arrays(model, result))
    if args.plot:
        plot.save(plot.rollout_figure(model, result), args.plot)
    finite = np.asarray(result.finite)
    energy = np.asarray(result.energy, float)[finite]
    drift = f"{np.max(np.abs(energy - energy[:, :1])):.3g} J" if energy.size else "not known"
    print(f"{model.name}: {model.nbodies} bodies, nv {model.nv}, batch {finite.size}, {steps} steps of {args.dt:g} s")
    print(f"compiled in {result.compile_seconds:.1f} s, computed in {result.seconds:.2f} s:", end=" ")
    print(f"{result.simulated_seconds_per_second:.4g} simulated seconds per second")
    print(f"largest energy error {drift}")
    for path in filter(None, (args.out, args.plot)):
        print(f"wrote {path}")
    if not finite.all():
        return _fail(1, f"{np.sum(~finite)} of {finite.size} samples are not finite; a smaller --dt may help")
    return 0


def _arrays(model: Any, result: Any) -> dict[str, Any]:
    """What the output file holds; leading axes (batch, times), one free pose per free joint."""
    return {
        "times": np.asarray(result.ts),
        "base_rotation": np.asarray(result.q.frees.rotation),
        "base_position": np.asarray(result.q.frees.translation),
        "joints": np.asarray(result.q.joints),
        "velocities": np.asarray(result.v),
        "energies": np.asarray(result.energy),
        "finite": np.asarray(result.finite),
        "joint_names": np.array(model.joint_names, dtype=str),
        "body_names": np.array(model.body_names, dtype=str),
    }


def _info(args: argparse.Namespace) -> int:
    model = _load(args)
    tree, masses = model.tree, np.asarray(model.inertias.mass, float)
    gravity = ", ".join(f"{g:g}" for g in np.asarray(model.gravity, float))
    print(f"{model.name}: {tree.nbodies} bodies, {len(model.joint_names)} joints, nv {tree.nv}")
    print(f"total mass {masses.sum():.6g} kg, gravity ({gravity}) m/s^2\n")
    rows = [("body", "joint", "kind", "range", "mass (kg)")]
    for i, name in enumerate(tree.body_names):
        kind, limits = tree.kinds[i], ""
        if kind.coordinates == "joints":
            lower, upper = float(model.lower[tree.q_start[i]]), float(model.upper[tree.q_start[i]])
            limits = "unlimited" if np.isinf([lower, upper]).all() else f"[{lower:.4g}, {upper:.4g}]"
        indent = "  " * tree.depths[i]
        rows.append((indent + name, tree.joint_names[i], kind.name, limits, f"{masses[i]:.6g}"))
    widths = [max(len(row[c]) for row in rows) for c in range(5)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if tree.frames:
        print("\nlinks on fixed joints")
        for name, body in tree.frames:
            print(f"  {name} on {tree.body_names[body] if body >= 0 else 'the world'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
