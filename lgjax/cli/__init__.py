"""The command `lgjax`, one file per command.

Exit codes: 0 success, 1 the run failed or has samples that are not finite, 2 bad usage or input, 130 interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import lgjax
from lgjax.cli import info, optimize, rollout, view
from lgjax.cli.arguments import fail
from lgjax.cli.bench import command as bench


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return the exit code."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        return fail(130, "interrupted")
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`; keep Python from failing again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, ImportError, OSError) as error:
        return fail(2, str(error))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="lgjax", description="Batched rigid-body dynamics on Lie groups.")
    parser.add_argument("--version", action="version", version=f"lgjax {lgjax.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (rollout, info, view, bench, optimize):
        command.add(commands)
    return parser
