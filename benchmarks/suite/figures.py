"""The figure of a problem: error against time of every method."""

from pathlib import Path
from typing import Any

COLORS = {
    "lgjax": "tab:blue", "SciPy": "tab:green", "diffrax": "tab:orange", "MuJoCo": "tab:red", "MJX": "tab:pink",
    "Pinocchio": "tab:purple", "Exudyn": "tab:brown",
}  # fmt: skip
MARKERS = "osv^D<>Ph*Xd"


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.subplots()
    rows = [row for row in result.get("rows", []) if "error" in row]
    counts: dict[str, int] = {}
    for program, method in dict.fromkeys((row["program"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["program"], row["method"]) == (program, method)]
        number = counts[program] = counts.get(program, -1) + 1
        axes.loglog(
            [max(row["error"], 1e-16) for row in mine], [row["ms"] for row in mine],
            color=COLORS.get(program, "gray"), marker=MARKERS[number % len(MARKERS)], markersize=4, linewidth=1,
            label=f"{program}, {method}",
        )  # fmt: skip
    axes.invert_xaxis()
    axes.set_xlim(right=max(1e-13, result["apart"]))
    axes.set_xlabel("error at the end")
    axes.set_ylabel("ms")
    axes.set_title(f"{result['title']}, {result['end']:g} s")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=110)
