"""Arguments that several commands share, and the numbers that they take."""

import argparse
import inspect
import sys
from pathlib import Path
from typing import Any

from lgjax import plot
from lgjax.multibody import models
from lgjax.multibody.importers import LOADERS


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows what an option is if it is not given, but not for those that are off or nothing then."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False) or isinstance(action, argparse._StoreFalseAction):
            return action.help
        return super()._get_help_string(action)


def fail(code: int, message: str) -> int:
    """Print an error as one line and return the exit code."""
    print(f"lgjax: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def add_model(parser: argparse.ArgumentParser, **options: Any) -> None:
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
    parser.add_argument(
        "--folder", help="where an MJCF may include files and read meshes from (default: its own folder)"
    )


def add_compiling(parser: argparse.ArgumentParser) -> None:
    """The options of commands that compile programs."""
    parser.add_argument("--quiet", action="store_true", help="no messages and no progress bar")
    parser.add_argument("--no-cache", dest="cache", action="store_false", help="keep no compiled programs, use none")


# Options of some files: what they are if they are not given, and which files those are.
OF_FILES = {"mimic": ("error", "URDF files"), "check_inertia": ("error", "files"), "folder": (None, "MJCF files")}


def load_model(args: argparse.Namespace) -> Any:
    """The model that the arguments ask for: a file by its ending, or a built-in one."""
    load = LOADERS.get(Path(args.model).suffix.lower())
    if load is None and Path(args.model).is_file():
        raise ValueError(f"{args.model}: unknown kind of file; known: {', '.join(LOADERS)}")
    known = inspect.signature(load).parameters if load else ()
    for name, (default, kind) in OF_FILES.items():
        if name not in known and getattr(args, name) != default:
            raise ValueError(f"{args.model}: --{name.replace('_', '-')} is for {kind}")
    if load is None:
        return models.by_name(args.model, args.floating)
    options = {name: getattr(args, name) for name in OF_FILES if name in known}
    if "floating_base" in known:
        options["floating_base"] = args.floating is not False
    elif args.floating is not None:
        raise ValueError(f"{args.model}: an MJCF file says itself whether the base floats")
    return load(args.model, **options)


def _number(text: str, good, expected: str):
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not good(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return value


def positive(text: str) -> float:
    return _number(text, lambda x: 0 < x < float("inf"), "a positive number")


def not_negative(text: str) -> float:
    return _number(text, lambda x: 0 <= x < float("inf"), "a number of at least 0")


def positive_int(text: str) -> int:
    return int(_number(text, lambda x: 1 <= x < 2**31 and x == int(x), "a positive integer below 2**31"))


def seed(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 2**63
    if abs(value) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at most 63 bits")
    return value


def check_output(path: Path) -> None:
    """Fails now, not after a long run, for a file that cannot be written."""
    if path.is_dir():
        raise ValueError(f"cannot write {str(path)!r}: it is a folder")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"cannot write {str(path)!r}: its folder does not exist")


def check_figure(path: Path) -> None:
    """Fails now, not after a long run, without matplotlib or for a file that cannot be a figure."""
    known = plot.figure(1, 1).canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise ValueError(f"cannot write {str(path)!r}: figures end in .{', .'.join(sorted(known))}")
