"""The commands and what they do, for the help; each is imported when it is used."""

import sys

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


def fail(code: int, message: str) -> int:
    """Print an error as one line and return the exit code."""
    print(f"lgjax: error: {' '.join(message.split())}", file=sys.stderr)
    return code
