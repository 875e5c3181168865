"""`python -m soak --hours H [--part NAME] [--seed S]`: parts in turn, seed after seed, until the time is over.

Each failure is printed with what reproduces it. The exit code is 1 if there was one.
"""

import argparse
import collections
import importlib
import itertools
import sys
import time
import traceback

from soak import PARTS, Result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument(
        "--hours", type=float, default=0.0, help="begin no part after this time; 0: one seed of each part"
    )
    parser.add_argument("--part", action="append", choices=sorted(PARTS), help="this part alone; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    end = time.monotonic() + 3600 * arguments.hours
    counts: dict[str, collections.Counter[str]] = {part: collections.Counter() for part in arguments.part or PARTS}
    failures = 0
    for seed in itertools.count(arguments.seed):
        for part in counts:
            if time.monotonic() > end and seed > arguments.seed:
                break
            result = run(part, seed)
            counts[part] += result.counts
            failures += len(result.failures)
            print(f"{part} seed {seed}: {_words(result.counts)}", flush=True)  # noqa: T201
            for failure in result.failures:
                print(f"FAILED {failure}\n  again: python -m soak --part {part} --seed {seed}", flush=True)  # noqa: T201
        if time.monotonic() > end:
            break
    for part, count in counts.items():
        print(f"{part} in all: {_words(count)}")  # noqa: T201
    print(f"{failures} failures")  # noqa: T201
    return 1 if failures else 0


def run(part: str, seed: int) -> Result:
    """One call of a part; an exception is a failure."""
    from tests import conftest  # float64, strict types, and programs that compile fast

    conftest.forget()
    module, function = PARTS[part].split(":")
    try:
        return getattr(importlib.import_module(module), function)(seed)
    except Exception:
        return Result(collections.Counter({"raised": 1}), [f"{part}: {traceback.format_exc()}"])


def _words(counts: "collections.Counter[str]") -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
