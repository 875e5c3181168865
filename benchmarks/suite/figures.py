"""The figure of a problem: error against time, every method thin, the best of each program thick."""

import math
from pathlib import Path
from typing import Any

WORST = 10.0  # errors above which a run is not drawn
COLORS = {
    "lgjax": "tab:blue", "SciPy": "tab:green", "diffrax": "tab:orange", "MuJoCo": "tab:red", "MJX": "tab:pink",
    "Drake": "tab:olive", "Pinocchio": "tab:purple", "Exudyn": "tab:brown",
}  # fmt: skip


def ended(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs with an error that is a number: others have failed, or left the finite numbers."""
    return [row for row in rows if math.isfinite(row.get("error", math.nan))]


def front(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that no other one beats in both time and error, from fast to slow."""
    found: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda r: r["ms"]):
        if not found or row["error"] < found[-1]["error"]:
            found.append(row)
    return found


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    rows = [row for row in ended(result.get("rows", [])) if row["error"] < WORST]
    line = lambda mine, **style: axes.loglog([max(r["error"], 1e-16) for r in mine], [r["ms"] for r in mine], **style)
    for program in dict.fromkeys(row["program"] for row in rows):
        color, mine = COLORS.get(program, "gray"), [row for row in rows if row["program"] == program]
        for method in dict.fromkeys(row["method"] for row in mine):
            line([row for row in mine if row["method"] == method], color=color, linewidth=0.6, alpha=0.4)
        line(front(mine), color=color, marker="o", markersize=4, linewidth=2, label=program)
    axes.invert_xaxis()
    axes.set_xlim(right=1e-13)
    axes.set_xlabel("error at the end")
    axes.set_ylabel("ms")
    axes.set_title(f"{result['title']}, {result['end']:g} s")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=90)
