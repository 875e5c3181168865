"""Writes the page of the suite from the JSON beside it: a table of least times, and a figure of each problem.

python -m benchmarks.suite.report [--folder docs/benchmarks/suite]
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.suite.figures import draw, ended

GOALS = (1e-6, 1e-8, 1e-10)
HEAD = Path(__file__).parent / "page_head.md"


def best(rows: list[dict[str, Any]], goal: float, ours: bool, what: str = "ms") -> dict[str, Any] | None:
    """The fastest run within an error, of this library or of the others."""
    good = [r for r in rows if r.get("error", 1.0) <= goal and what in r and (r["program"] == "lgjax") == ours]
    return min(good, key=lambda r: r[what], default=None)


def cell(row: dict[str, Any] | None, what: str = "ms") -> str:
    if row is None:
        return "-"
    name = row["method"] if row["program"] == "lgjax" else f"{row['program']} {row['method']}"
    return f"{row[what]:.3g} ({name})"


def summary(result: dict[str, Any]) -> list[str]:
    """Rows of the table, one for each goal."""
    rows, lines = result["rows"], []
    for goal in GOALS:
        mine, theirs = best(rows, goal, True), best(rows, goal, False)
        ratio = f"{theirs['ms'] / mine['ms']:.2g}" if mine and theirs else "-"
        lines.append(f"| {result['title']} | {goal:g} | {cell(mine)} | {cell(theirs)} | {ratio} |")
    mine, theirs = best(rows, 1e-8, True, "batch ms"), best(rows, 1e-8, False, "batch ms")
    if mine and theirs:
        ratio = theirs["batch ms"] / mine["batch ms"]
        lines.append(
            f"| {result['title']} | 1e-08, each of 1000 | {cell(mine, 'batch ms')} | {cell(theirs, 'batch ms')} "
            f"| {ratio:.2g} |"
        )
    return lines


def errors(result: dict[str, Any]) -> list[str]:
    """The most accurate run of every method: error, evaluations, change of energy and momentum."""
    lines = [
        "| program | setting | error | ms | evaluations | energy | momentum |",
        "|---|---|---|---|---|---|---|",
    ]
    kinds = dict.fromkeys((row["program"], row["method"]) for row in result["rows"])
    for program, method in kinds:
        mine = [r for r in result["rows"] if (r["program"], r["method"]) == (program, method)]
        done = ended(mine)
        if not done:
            lines.append(f"| {program}, {method} | {mine[-1]['setting']} | fails | | | | |")
            continue
        row = min(done, key=lambda r: r["error"])
        drift = [f"{row['drift'][name]:.1e}" if name in row["drift"] else "" for name in ("energy", "momentum")]
        count = f"{row['evaluations']:.0f}" if row["evaluations"] else ""
        setting = f"{row['setting']:g}" if isinstance(row["setting"], float) else f"{row['setting']} steps"
        lines.append(
            f"| {program}, {method} | {setting} | {row['error']:.1e} | {row['ms']:.3g} | {count} | {drift[0]} "
            f"| {drift[1]} |"
        )
    return lines


def page(folder: Path, order: list[str]) -> str:
    results = [json.loads((folder / f"{name}.json").read_text()) for name in order]
    first = results[0]["environment"]
    versions = ", ".join(f"{k} {v}" for k, v in first["versions"].items())
    lines = [HEAD.read_text().rstrip(), ""]
    lines.append(f"* **Device:** {first['device']}, one core, shared. **Precision:** float64.")
    lines += [f"* **Versions:** {versions}.", f"* **Date:** {first['date']}.", ""]
    lines += ["| problem | error at most | lgjax, ms | the fastest other, ms | times |", "|---|---|---|---|---|"]
    for result in results:
        lines += summary(result)
    for result in results:
        ways = "; ".join(result["ways"])
        title, text = result["title"], f"{result['text']}; {result['end']:g} s. References: {ways}; they agree to"
        lines += ["", f"## {title}", "", f"{text} {result['apart']:.0e}.", ""]
        lines += [f"![{title}](suite/{result['name']}.png)", ""]
        lines += errors(result)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="docs/benchmarks/suite")
    args = parser.parse_args()
    from benchmarks.suite.measure import kept_references

    folder = Path(args.folder)
    order = [name for name in kept_references() if (folder / f"{name}.json").exists()]
    for name in order:
        draw(json.loads((folder / f"{name}.json").read_text()), folder / f"{name}.png")
    folder.with_suffix(".md").write_text(page(folder, order))


if __name__ == "__main__":
    main()
