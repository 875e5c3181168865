"""The command `lgjax`, one file per command.

Exit codes: 0 success, 1 the run failed or has samples that are not finite, 2 bad usage or input, 130 interrupted.
"""

import argparse
import gc
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

import jax

import lgjax
from lgjax.cli import cache, info, optimize, rollout, view
from lgjax.cli.arguments import as_option, fail, reason, spelled
from lgjax.cli.bench import command as bench


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return the exit code."""
    own_program = argv is None
    try:
        args = _parser().parse_args(argv)
        if own_program:
            gc.freeze()  # what is imported stays; to look through it again and again takes a third of the tracing
        with _messages(args):
            _keep_programs(args)
            code = args.run(args)
    except KeyboardInterrupt:
        code = fail(130, "interrupted")
        return _leave(code) if own_program else code  # here, where its frames hold what XLA's threads still read
    except BrokenPipeError:
        # The reader of our output has gone, as with `| head`; keep Python from failing again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, ImportError, OSError) as error:
        return fail(2, spelled(reason(error), as_option))
    return _leave(code) if own_program and code == 130 else code


def _leave(code: int) -> NoReturn:
    """End the process at once: XLA may still compile in threads of its own, which crash in an orderly end."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextmanager
def _messages(args: argparse.Namespace) -> Iterator[None]:
    """What the library says about its work goes to stderr, unless --quiet; a warning in one line, always."""
    logger, shown = logging.getLogger("lgjax"), logging.StreamHandler(sys.stderr)
    said = lambda message, *_, **__: logger.warning("warning: %s", " ".join(str(message).split()))
    shown.setFormatter(logging.Formatter("lgjax: %(message)s"))
    level = logger.level
    logger.setLevel(logging.WARNING if getattr(args, "quiet", False) else logging.INFO)
    logger.addHandler(shown)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = said
            yield
    finally:
        logger.removeHandler(shown)
        logger.setLevel(level)


def _keep_programs(args: argparse.Namespace) -> None:
    """Commands that have the option --no-cache keep their programs, where JAX has not been told another folder."""
    if not getattr(args, "cache", False) or jax.config.values["jax_compilation_cache_dir"]:
        return
    try:
        lgjax.cache_programs()
    except OSError as error:
        logging.getLogger("lgjax").info("compiled programs are not kept: %s", error)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="lgjax", description="Batched rigid-body dynamics on Lie groups.")
    parser.add_argument("--version", action="version", version=f"lgjax {lgjax.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (rollout, info, view, bench, optimize, cache):
        command.add(commands)
    return parser
