"""Writes the page of the suite from the JSON beside it: tables of least times and errors, and a figure of each problem.

python -m benchmarks.suite.report [--folder docs/benchmarks/suite]
"""

import argparse
import json
import math
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


LONG = {  # of each problem the first run whose program and method begin so
    "RKMK 8": "lgjax, RKMK 8", "symplectic 2": "lgjax, symplectic 2", "variational": "lgjax, variational",
    "diffrax": "diffrax, Dopri8, equal", "MuJoCo": "MuJoCo, RK4",
}  # fmt: skip


def on_a_group(result: dict[str, Any]) -> bool:
    """Whether the state is an element of a Lie group that is no vector space."""
    return any(row["group"] and row["method"].startswith("RKMK 8") for row in result["rows"])


def lead(results: list[dict[str, Any]], goal: float = 1e-8, wanted: float = 3.0) -> str:
    """How far this library is ahead on problems on groups, and where by less than wanted."""
    chosen, ranges, less = [result for result in results if on_a_group(result)], [], []
    for what, name in (("ms", "one state"), ("batch ms", "a batch")):
        ratios = {}
        for result in chosen:
            mine, theirs = (best(result["rows"], goal, ours, what) for ours in (True, False))
            if mine and theirs:
                ratios[result["title"]] = float(f"{theirs[what] / mine[what]:.2g}")
        ranges.append(f"{min(ratios.values()):g} to {max(ratios.values()):g} times for {name}")
        less += [f"{title}, {name}: {ratio:g}" for title, ratio in ratios.items() if ratio < wanted]
    text = f"On the {len(chosen)} problems on Lie groups, lgjax is ahead at {goal:g} by {' and '.join(ranges)}"
    return f"{text}; by less than {wanted:g}: {'; '.join(less)}." if less else f"{text}."


def errors(results: list[dict[str, Any]]) -> list[str]:
    """A table of how far the references are apart, and of the smallest errors of this library and of the others."""
    lines = ["| problem | references | lgjax | others |", "|---|---|---|---|"]
    for result in results:
        mine = [row for row in result["rows"] if row["program"] == "lgjax"]
        theirs = ended([row for row in result["rows"] if row["program"] != "lgjax"])
        ours = min((row["error"] for row in ended(mine)), default=None)
        other = min(theirs, key=lambda row: row["error"], default=None)
        cells = [f"{result['apart']:.0e}", f"{ours:.0e}" if ours is not None else "fails" if mine else "-"]
        cells.append(f"{other['error']:.0e} ({other['program']})" if other else "-")
        lines.append(f"| {result['title']} | {' | '.join(cells)} |")
    return lines


def long_runs(results: list[dict[str, Any]]) -> list[str]:
    """A table of what a million steps change, of the problems that have such runs."""
    lines = [f"| problem | {' | '.join(LONG)} |", "|---" * (1 + len(LONG)) + "|"]
    for result in results:
        rows, cells = result.get("long", {}).get("rows", []), []
        for start in LONG.values():
            found = [row for row in rows if f"{row['program']}, {row['method']}".startswith(start)]
            drift = found[0]["drift"] if found else {}
            kept = [drift[name] for name in ("energy", "momentum") if name in drift]
            lost = found and not (kept and all(map(math.isfinite, kept)))
            cells.append("fails" if lost else ", ".join(f"{x:.0e}" for x in kept) or "-")
        if rows:
            lines.append(f"| {result['title']} | {' | '.join(cells)} |")
    text = (
        "Relative changes of energy and momentum; all take the step with which RKMK 8 first errs by less than 1e-8, or "
        "least. Without invariants: Andrews' mechanism, whose torque speeds it up, the quadrotor, the balls."
    )
    return ["", "## After a million steps", "", text, "", *lines] if len(lines) > 2 else []


def page(folder: Path, order: list[str]) -> str:
    results = [json.loads((folder / f"{name}.json").read_text()) for name in order]
    places = [result["environment"] for result in results]
    dates = ", ".join(sorted({place["date"] for place in places}))
    names = dict.fromkeys(name for place in places for name in place["versions"])
    ran = lambda name: "/".join(sorted({p["versions"][name] for p in places if name in p["versions"]}))
    versions = ", ".join(f"{name} {ran(name)}" for name in names)
    lines = [HEAD.read_text().rstrip(), ""]
    lines.append(f"* **Device:** {places[0]['device']}, one core. **Precision:** float64.")
    lines += [f"* **Versions:** {versions}.", f"* **Dates:** {dates}.", ""]
    lines += [
        "| problem | " + " | ".join(f"{goal:g}" for goal in GOALS) + " | 1e-08, each of 1000 |",
        "|---|---|---|---|",
    ]
    lines += [summary(result) for result in results]
    lines += ["", lead(results)]
    lines += ["", "## Smallest errors", "", *errors(results), *long_runs(results)]
    for result in results:
        title, text = result["title"], f"{result['text']}; {result['end']:g} s."
        text = text if text[1] == " " else text[0].upper() + text[1:]  # not of "m = 15"
        lines += ["", f"## {title}", "", text, ""]
        lines += [f"![Errors](suite/{result['name']}.png)"]
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
