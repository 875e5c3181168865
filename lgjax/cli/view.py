"""`lgjax view`: a model, or the motion in a file of `lgjax rollout`, in three dimensions."""

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from lgjax import view
from lgjax.cli.arguments import add_keyframe, add_model, check_output, load_model, positive, positive_int
from lgjax.cli.robots import contacts_of, start_of
from lgjax.groups.se3 import Pose
from lgjax.multibody.importers.source import require
from lgjax.multibody.model import Configuration
from lgjax.saving.arrays import read_arrays

REMEMBERED = ("model", "floating", "check_inertia", "folder", "packages", "ignore")


class Stored(NamedTuple):
    """States (batch, times) of a file, and whether each system stayed finite."""

    ts: np.ndarray
    q: Configuration
    v: np.ndarray
    energy: np.ndarray
    success: np.ndarray


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "view",
        description="Show a model, or a motion that `lgjax rollout --out FILE.npz` wrote, in the browser or as a page.",
    )
    add_model(parser)
    parser.add_argument("--robot", metavar="MODEL", help="the model of a motion, if not the one that the file names")
    add_keyframe(parser, "show a model at this keyframe of its file, by its name")
    add_options(parser)
    parser.add_argument("--html", type=Path, metavar="FILE.html", help="write one page that needs no network, and end")
    parser.add_argument("--speed", type=positive, default=1.0, help="of the motion in the page (default: 1)")
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that show something."""
    parser.add_argument("--port", type=positive_int, help="port of the viewer; a free one if not given")
    parser.add_argument("--follow", action="store_true", help="move the camera of the viewer with the first robot")


def run(args: argparse.Namespace) -> int:
    check()
    if args.html is not None:
        check_output(args.html)
    motion = None
    if Path(args.model).suffix == ".npz":
        arrays = read_arrays(Path(args.model))
        motion = _motion(arrays, args.model)
        remembered = json.loads(str(arrays["model"])) if "model" in arrays else {}
        if args.robot is None and not remembered:
            raise ValueError(f"{args.model} does not name its model: give it with --robot")
        for name in REMEMBERED if args.robot is None else ():
            setattr(args, name, remembered.get(name, getattr(args, name)))  # older files know no folder
        args.model = args.robot or args.model
        if motion.q.joints.dtype == np.float64:
            jax.config.update("jax_enable_x64", True)
    elif args.robot is not None:
        raise ValueError("--robot names the model of a motion: give a file .npz first")
    if motion is not None and args.keyframe is not None:
        raise ValueError("--keyframe is for a model: a file .npz has states of its own")
    mechanism = load_model(args)
    if motion is not None:
        return present(mechanism.astype(motion.q.joints.dtype), motion, args, args.html)
    still = args.html is not None or args.keyframe is not None  # else the panel of the viewer moves the joints
    return present(mechanism, start_of(mechanism, args.keyframe).q if still else None, args, args.html)


def check() -> None:
    """Fail now, not after a long run, without the extra `view`."""
    require("viser", "view", "the viewer")


def present(mechanism: Any, motion: Any, args: argparse.Namespace, page: Path | None) -> int:
    """Write a page, or show a viewer until it is interrupted."""
    options = {"follow": args.follow, "contacts": contacts_of(mechanism)}
    if page is not None:
        speed = getattr(args, "speed", 1.0)
        print(f"wrote {view.html(mechanism, motion, page, speed=speed, **options)}")
        return 0
    viewer = view.show(mechanism, motion, port=args.port, **options)
    print(f"open {viewer.url} in a browser; Ctrl-C ends", flush=True)
    try:
        viewer.wait()
    except KeyboardInterrupt:
        print()
    return 0


def remembered(args: argparse.Namespace) -> str:
    """The arguments that name a model, as they are kept in a file of its motion; a file by its full path."""
    kept = {name: getattr(args, name) for name in REMEMBERED}
    if Path(args.model).is_file():
        kept["model"] = str(Path(args.model).resolve())
        kept["folder"] = args.folder and str(Path(args.folder).resolve())
        kept["packages"] = [(name, str(Path(folder).resolve())) for name, folder in args.packages]
    return json.dumps(kept)


def _motion(arrays: dict[str, np.ndarray], name: str) -> Stored:
    needed = ("times", "base_rotation", "base_position", "joints", "velocities", "energies", "status")
    missing = [key for key in needed if key not in arrays]
    if missing:
        raise ValueError(f"{name} is no motion of `lgjax rollout --out`: it lacks {', '.join(missing)}")
    joints = arrays["joints"]
    balls = arrays.get("ball_rotations", np.zeros((*joints.shape[:2], 0, 3, 3), joints.dtype))
    parts: Any = arrays["base_rotation"], arrays["base_position"], joints, balls
    q = Configuration(Pose(*parts[:2]), *parts[2:])
    return Stored(arrays["times"], q, arrays["velocities"], arrays["energies"], arrays["status"] == 0)
