"""Writes the page of the suite from the JSON beside it: tables of least times and errors, and a figure of each problem.

python -m benchmarks.suite.report [--folder docs/benchmarks/suite]
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.suite.figures import draw, ended

GOALS = (1e-6, 1e-10)
HEAD = Path(__file__).parent / "page_head.md"


def best(rows: list[dict[str, Any]], goal: float, ours: bool, what: str = "ms") -> dict[str, Any] | None:
    """The fastest run within an error, of this library or of the others."""
    good = [r for r in rows if r.get("error", 1.0) <= goal and what in r and (r["program"] == "lgjax") == ours]
    return min(good, key=lambda r: r[what], default=None)


def cell(rows: list[dict[str, Any]], goal: float, what: str = "ms") -> str:
    """The time of this library, that of the fastest other program with its name, and their ratio."""
    mine, theirs = best(rows, goal, True, what), best(rows, goal, False, what)
    ours = f"{mine[what]:.3g}" if mine else "-"
    if theirs is None:
        return f"{ours}, -" if mine else "-"
    ratio = f", {float(f'{theirs[what] / mine[what]:.2g}'):g}" if mine else ""
    return f"{ours}, {theirs[what]:.3g} ({theirs['program']}){ratio}"


def summary(result: dict[str, Any]) -> str:
    """The row of a problem: a cell for each goal, and one for a batch."""
    cells = [cell(result["rows"], goal) for goal in GOALS] + [cell(result["rows"], 1e-8, "batch ms")]
    return f"| {result['title']} | " + " | ".join(cells) + " |"


PROGRAMS = ("lgjax", "SciPy", "diffrax", "MuJoCo", "MJX", "Drake", "Pinocchio", "Exudyn")


def errors(results: list[dict[str, Any]]) -> list[str]:
    """A table of how far the references are apart, and of the smallest error of every program, for every problem."""
    present = [p for p in PROGRAMS if any(row["program"] == p for result in results for row in result["rows"])]
    lines = [f"| problem | references | {' | '.join(present)} |", "|---" * (len(present) + 2) + "|"]
    for result in results:
        cells = [f"{result['apart']:.0e}"]
        for program in present:
            mine = [row for row in result["rows"] if row["program"] == program]
            least = min((row["error"] for row in ended(mine)), default=None)
            cells.append("fails" if mine and least is None else "-" if least is None else f"{least:.0e}")
        lines.append(f"| {result['title']} | {' | '.join(cells)} |")
    return lines


def long_runs(results: list[dict[str, Any]]) -> list[str]:
    """A table of what a million steps change, of the problems that have such runs."""
    kept = ("energy", "momentum")
    lines = ["| problem | method | step (s) | energy | momentum |", "|---|---|---|---|---|"]
    for result in results:
        for row in result.get("long", {}).get("rows", []):
            drift = " | ".join(f"{row['drift'][name]:.0e}" if name in row["drift"] else "-" for name in kept)
            lines.append(f"| {result['title']} | {row['program']} {row['method']} | {row['step']:.2g} | {drift} |")
    return ["", "## After a million steps", "", *lines] if len(lines) > 2 else []


def page(folder: Path, order: list[str]) -> str:
    results = [json.loads((folder / f"{name}.json").read_text()) for name in order]
    first = results[0]["environment"]
    dates = ", ".join(sorted({result["environment"]["date"] for result in results}))
    versions = ", ".join(f"{k} {v}" for k, v in first["versions"].items())
    lines = [HEAD.read_text().rstrip(), ""]
    lines.append(f"* **Device:** {first['device']}, one core, shared. **Precision:** float64.")
    lines += [f"* **Versions:** {versions}.", f"* **Dates:** {dates}.", ""]
    lines += [
        "| problem | " + " | ".join(f"{goal:g}" for goal in GOALS) + " | 1e-08, each of 1000 |",
        "|---|---|---|---|",
    ]
    lines += [summary(result) for result in results]
    lines += ["", "## Smallest errors", "", *errors(results), *long_runs(results)]
    for result in results:
        title, text = result["title"], f"{result['text']}; {result['end']:g} s."
        text = text if text[1] == " " else text[0].upper() + text[1:]  # not of "m = 15"
        lines += ["", f"## {title}", "", text, ""]
        lines += [f"![{title}](suite/{result['name']}.png)"]
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
