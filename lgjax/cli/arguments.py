"""Arguments that several commands share, and the numbers that they take."""

import argparse
import json
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from lgjax import plot
from lgjax.cli.commands import fail as fail
from lgjax.execution.compiled import logger
from lgjax.multibody import models
from lgjax.multibody.importers import LOADERS
from lgjax.multibody.model import Model
from lgjax.numerics.messages import why
from lgjax.robots.load import IGNORABLE, load_robot
from lgjax.robots.robot import Robot


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows what an option is if it is not given, but not for those that are off or nothing then."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, []) or isinstance(action, argparse._StoreFalseAction):
            return action.help
        return super()._get_help_string(action)


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
        "--check-inertia", choices=("error", "warn"), default="error",
        help="what to do about impossible inertias in a file (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--folder", help="where an MJCF may include files and read meshes from (default: its own folder)"
    )
    parser.add_argument(
        "--packages", action="append", type=package, metavar="NAME=FOLDER", default=[],
        help="folder of a package that a URDF names; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--ignore", action="append", metavar="KIND", choices=IGNORABLE, default=[],
        help=f"leave out elements of this kind; may be given several times: {', '.join(IGNORABLE)}",
    )  # fmt: skip


def add_keyframe(parser: argparse.ArgumentParser, help: str = "start at this keyframe of a file, by its name") -> None:
    parser.add_argument("--keyframe", metavar="NAME", help=help)


def add_compiling(parser: argparse.ArgumentParser) -> None:
    """The options of commands that compile programs."""
    parser.add_argument("--quiet", action="store_true", help="no messages and no progress bar")
    parser.add_argument("--no-cache", dest="cache", action="store_false", help="keep no compiled programs, use none")


class OfFiles(NamedTuple):
    """An option of some files: what it is if it is not given, and which files those are, by name and ending."""

    default: Any
    kind: str
    endings: tuple[str, ...]
    value: type = str


URDF, MJCF = (".urdf",), (".xml", ".mjcf")
OF_FILES = {
    "check_inertia": OfFiles("error", "files", URDF + MJCF),
    "folder": OfFiles(None, "MJCF files", MJCF),
    "packages": OfFiles({}, "URDF files", URDF, dict),
    "ignore": OfFiles([], "files", URDF + MJCF, list),
}
# Options that errors of the library name as Python spells them.
NAMED = (*OF_FILES, "floating_base", "devices", "chunk", "save_every", "steps")
VALUE = r"""'[^']*'|"[^"]*"|\([^)]*\)|\{[^}]*\}|[\w.-]*"""


def load_model(args: argparse.Namespace) -> Model | Robot:
    """The mechanism that the arguments ask for: a file as a Robot, or a built-in model."""
    given = {name: getattr(args, name) for name in OF_FILES}
    return load(args.model, args.model, args.floating, given | {"packages": dict(args.packages)})


def load(
    name: str, path: str | Path, floating: bool | None, given: dict[str, Any], spell: "Spelling | None" = None
) -> Model | Robot:
    """A file, whose path is given too, as a Robot, or a built-in model by its name. given: options of `OF_FILES`.

    Warnings are said in one line, with options as `spell` has them, on the command line if that is None.
    """
    ending = Path(path).suffix.lower()
    is_file = ending in LOADERS
    if not is_file and Path(path).is_file():
        raise ValueError(f"{path}: unknown kind of file; known: {', '.join(LOADERS)}")
    for option, value in given.items():
        of = OF_FILES[option]
        if ending not in of.endings and value != of.default:
            raise ValueError(f"{name}: {option}= is for {of.kind}")
    if not is_file:
        return models.by_name(name, floating)
    if floating is not None and ending in MJCF:
        raise ValueError(f"{name}: an MJCF file says itself whether the base floats")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        robot = load_robot(path, floating, **given)
    said = dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught)
    if said:
        message = "; ".join(said).replace("(see Robot.ignored)", "(`lgjax info` lists all)")
        logger.warning("warning: %s", spelled(message, spell or as_option))
    return robot


Spelling = Callable[[str, list[str]], str]


def spelled(message: str, spell: Spelling) -> str:
    """A message in which options that Python spells ignore=('mimic',) are spelled by spell(name, values)."""
    message = re.sub(r"\bspread\.(\w+)", lambda found: f"--{found[1].replace('_', '-')}-spread", message)
    pattern = rf"\b({'|'.join(NAMED)})=({VALUE})"
    return re.sub(pattern, lambda found: spell(found[1], _values(found[2])), message)


def _values(text: str) -> list[str]:
    """The values of an option in a message: of a tuple, of a dictionary as name=value, or one."""
    if text.startswith("("):
        return re.findall("'([^']*)'", text)
    if text.startswith("{"):
        return ["=".join(part.strip(" '") for part in pair.split(":", 1)) for pair in text[1:-1].split(",")]
    return [text.strip("'\"")] if text else []


def as_option(name: str, values: list[str]) -> str:
    """An option as the command line spells it."""
    if name == "floating_base" and values:
        return "--floating-base" if values[0] == "True" else "--fixed-base"
    option = f"--{name.replace('_', '-')}"
    return " ".join(f"{option} {value}" for value in values) or option


def as_key(name: str, values: list[str]) -> str:
    """An option as a TOML file spells it."""
    if name == "floating_base" and values:
        return f"{name} = {values[0].lower()}"
    if name == "packages" and values:
        pairs = ", ".join("{} = {}".format(*value.split("=", 1)) for value in values)
        return f"{name} = {{ {pairs} }}"
    if name == "ignore" and values:
        return f"{name} = {json.dumps(values)}"
    return f'{name} = "{values[0]}"' if values else name


def package(text: str) -> tuple[str, str]:
    """The name of a package and its folder."""
    name, mark, folder = text.partition("=")
    if not (name and mark and folder):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER")
    return name, folder


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
