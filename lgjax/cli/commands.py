"""The commands and what they do, for the help; each is imported when it is used. Styles of text on a terminal."""

import os
import sys
from typing import Any

COMMANDS = {
    "rollout": "integrate a batch of randomized copies of a model",
    "info": "show the tree, joints and masses of a model, and what else a file has",
    "view": "show a model or a motion in three dimensions",
    "bench": "time the algorithms on this machine",
    "optimize": "find controls for a problem described in a small file",
    "cache": "show or remove the compiled programs that are kept",
    "completion": "print the completion of commands and options for a shell",
}
MODULES = {name: f"lgjax.cli.{name}" for name in COMMANDS} | {"bench": "lgjax.cli.bench.command"}


BOLD, RED, YELLOW = "1", "1;31", "1;33"


def styled(text: str, style: str, stream: Any) -> str:
    """`text` in a style where the stream is a terminal that shows it; NO_COLOR in the environment turns this off."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or stream is None or not stream.isatty()
    return text if plain else f"\x1b[{style}m{text}\x1b[0m"


def fail(code: int, message: str) -> int:
    """Print an error as one line and return the exit code."""
    print(f"lgjax: {styled('error:', RED, sys.stderr)} {' '.join(message.split())}", file=sys.stderr)
    return code
