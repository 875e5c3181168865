"""The command `lgjax`, one file per command.

Exit codes: 0 success, 1 the run failed or has samples that are not finite, 2 bad usage or input, 130 interrupted.
"""

import argparse
import gc
import importlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import lgjax
from lgjax.cli.commands import BOLD, COMMANDS, MODULES, RED, YELLOW, fail, styled
from lgjax.cli.interrupts import repeat_lost_interrupts


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {styled('error:', RED, sys.stderr)} {message}\n")

    def print_help(self, file: Any = None) -> None:
        stream = file or sys.stdout
        heading = lambda found: styled(found[0], BOLD, stream)
        stream.write(re.sub(r"^[a-z][a-z ]*:", heading, self.format_help(), flags=re.MULTILINE))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name) and return the exit code."""
    own_program, argv = argv is None, sys.argv[1:] if argv is None else list(argv)
    try:
        if own_program:
            repeat_lost_interrupts()
        args = _parsed(argv)
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
        from lgjax.cli.arguments import as_option, reason, spelled

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
    """Write messages of the library to stderr, except with --quiet, and each warning in one line, always."""
    logger, shown = logging.getLogger("lgjax"), logging.StreamHandler(sys.stderr)
    word = styled("warning:", YELLOW, sys.stderr)
    said = lambda message, *_, **__: logger.warning("%s %s", word, " ".join(str(message).split()))
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
    import jax

    if not getattr(args, "cache", False) or jax.config.values["jax_compilation_cache_dir"]:
        return
    try:
        lgjax.cache_programs()
    except OSError as error:
        logging.getLogger("lgjax").info("compiled programs are not kept: %s", error)


def _parsed(argv: list[str]) -> argparse.Namespace:
    """The arguments of a command. Help, and what is no command, ends the program without importing one."""
    parser, commands = _parser()
    if not argv:
        parser.print_help()
        parser.exit(0)
    if argv[0] in COMMANDS:
        _add(argv[0], commands)
    elif not argv[0].startswith("-"):
        from lgjax.numerics.messages import nearest

        known = f"commands: {', '.join(COMMANDS)}{nearest(argv[0], COMMANDS)}"
        parser.error(f"unknown command {argv[0]!r}; {known}")
    args, rest = parser.parse_known_args(argv)
    if rest or not hasattr(args, "run"):
        from lgjax.numerics.messages import nearest

        actions = commands.choices.get(argv[0], parser)._actions
        wrong = next((word for word in rest if word.startswith("--")), "")
        hint = nearest(wrong.partition("=")[0], [x for action in actions for x in action.option_strings])
        parser.error(f"unrecognized arguments: {' '.join(rest)}{hint if wrong else ''}")
    return args


def _parser() -> tuple[argparse.ArgumentParser, Any]:
    """The parser, and its commands, which have only names and help as long as they are not imported."""
    width = max(map(len, COMMANDS))
    parser = _Parser(
        prog="lgjax", usage="lgjax [-h] [--version] COMMAND ...",
        description="Batched rigid-body dynamics on Lie groups.",
        epilog="commands:\n" + "\n".join(f"  {name:{width}}  {text}" for name, text in COMMANDS.items())
        + "\n\n`lgjax COMMAND --help` shows the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"lgjax {lgjax.__version__}")
    return parser, parser.add_subparsers(prog="lgjax", metavar="COMMAND", help=argparse.SUPPRESS)


def _add(command: str, commands: Any) -> None:
    importlib.import_module(MODULES[command]).add(commands)


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of a command."""
    _, commands = _parser()
    _add(command, commands)
    return commands.choices[command]
