"""The command; see the package."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from benchmarks import harness


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("--problems", help="names, separated by commas; all by default")
    parser.add_argument("--programs", help="of these alone, such as 'lgjax RKMK,SciPy'")
    parser.add_argument("--quick", action="store_true", help="one short time per run, no batches: a minute a problem")
    parser.add_argument("--long", action="store_true", help="energy and momentum after a million steps, nothing else")
    parser.add_argument("--references", action="store_true", help="compute the references again (needs mpmath)")
    parser.add_argument("--out", default="docs/benchmarks/suite", help="folder for JSON and figures")
    parser.add_argument("--list", action="store_true", help="the names of the problems")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    harness.pin_to_cores(1)
    import jax

    jax.config.update("jax_enable_x64", True)
    from benchmarks.suite import measure, page
    from benchmarks.suite.problems import problems

    wanted = args.problems.split(",") if args.problems else None
    chosen = [p for p in problems() if wanted is None or p.name in wanted]
    if args.list:
        print("\n".join(f"{p.name:16} {p.title}" for p in chosen))
        return
    kept = measure.kept_references()
    for problem in chosen:
        if args.references or problem.name not in kept:
            started = time.perf_counter()
            kept[problem.name] = measure.compute_reference(problem)
            measure.KEPT.write_text(json.dumps(kept, indent=1) + "\n")
            print(f"{problem.name}: ways {kept[problem.name]['apart']:.1e} apart, "
                  f"{time.perf_counter() - started:.0f} s", flush=True)  # fmt: skip
    if args.references:
        return
    folder = Path(args.out)
    os.makedirs(folder, exist_ok=True)
    for problem in chosen:
        page.run(problem, kept[problem.name], args, folder)
    print(f"written to {folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
