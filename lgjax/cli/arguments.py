"""Arguments that several commands share, and the numbers that they take."""

import argparse
import inspect
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lgjax import plot
from lgjax.multibody import models
from lgjax.multibody.importers import LOADERS
from lgjax.numerics.messages import why


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


def reason(error: Exception) -> str:
    """The message of an error; of one of the system's the file and the reason, without its number."""
    file = getattr(error, "filename", None)
    return str(error) if file is None else f"cannot open {os.fsdecode(file)!r}: {why(error)}"


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
# Options that errors of the library name as Python spells them.
NAMED = (*OF_FILES, "devices", "chunk", "save_every", "steps")


def load_model(args: argparse.Namespace) -> Any:
    """The model that the arguments ask for: a file by its ending, or a built-in one."""
    return load(args.model, args.model, args.floating, {name: getattr(args, name) for name in OF_FILES})


def load(name: str, path: str | Path, floating: bool | None, given: dict[str, Any]) -> Any:
    """A model by its name: a file, whose path is given too, or a built-in one. given: options of `OF_FILES`."""
    loader = LOADERS.get(Path(path).suffix.lower())
    if loader is None and Path(path).is_file():
        raise ValueError(f"{path}: unknown kind of file; known: {', '.join(LOADERS)}")
    known = inspect.signature(loader).parameters if loader else ()
    for option, value in given.items():
        default, kind = OF_FILES[option]
        if option not in known and value != default:
            raise ValueError(f"{name}: {option}= is for {kind}")
    if loader is None:
        return models.by_name(name, floating)
    options = {option: value for option, value in given.items() if option in known}
    if "floating_base" in known:
        options["floating_base"] = floating is not False
    elif floating is not None:
        raise ValueError(f"{name}: an MJCF file says itself whether the base floats")
    return loader(path, **options)


def spelled(message: str, spell: Callable[[str, str], str]) -> str:
    """A message in which options that Python spells mimic='independent' are spelled by spell(name, value)."""
    pattern = rf"\b({'|'.join(NAMED)})=(?:'([^']*)'|\"([^\"]*)\"|([\w.-]*))"
    return re.sub(pattern, lambda found: spell(found[1], found[2] or found[3] or found[4]), message)


def as_option(name: str, value: str) -> str:
    """An option as the command line spells it."""
    return f"--{name.replace('_', '-')} {value}".strip()


def as_key(name: str, value: str) -> str:
    """An option as a TOML file spells it."""
    return f'{name} = "{value}"' if value else name


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
    if path.exists() and not path.is_file():  # files are written beside their place and moved there: a device would go
        raise ValueError(f"cannot write {str(path)!r}: it is no ordinary file")


def check_figure(path: Path) -> None:
    """Fails now, not after a long run, without matplotlib or for a file that cannot be a figure."""
    known = plot.figure(1, 1).canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise ValueError(f"cannot write {str(path)!r}: figures end in .{', .'.join(sorted(known))}")
