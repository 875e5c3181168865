"""`lgjax cache`: the compiled programs that the command line keeps."""

import argparse
from typing import Any

from lgjax.execution.cache import cache_folder, clear_programs, jax_folder, kept_programs, machine, programs_in


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "cache",
        description="Show the compiled programs that other commands and lgjax.cache_programs() keep, by versions and "
        f"processor. They are in {cache_folder()}; the environment variable LGJAX_CACHE names another folder. Where "
        "JAX_COMPILATION_CACHE_DIR names one, JAX keeps all programs there, and --clear removes none.",
    )
    parser.add_argument("--clear", action="store_true", help="remove them all")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if (told := jax_folder()) is not None:
        if args.clear:
            raise ValueError(
                f"JAX has been told to keep the programs of all its users in {str(told)!r}: remove them yourself, or "
                f"unset JAX_COMPILATION_CACHE_DIR to clear {str(cache_folder())!r}"
            )
        found = programs_in(told)
        print(f"{told}: holds {found.programs} programs, {_megabytes(found.size)}, of all that use JAX "
              "(JAX_COMPILATION_CACHE_DIR)")  # fmt: skip
        return 0
    kept, here = kept_programs(), machine()
    if args.clear:
        clear_programs()
    print(f"{cache_folder()}: {'removed' if args.clear else 'holds'} {sum(x.programs for x in kept)} programs, "
          f"{_megabytes(sum(x.size for x in kept))}")  # fmt: skip
    for x in kept:
        used = ", used by this version on this machine" if x.folder.name == here else ""
        print(f"  {x.folder.name}: {x.programs} programs, {_megabytes(x.size)}{used}")
    return 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
