"""The drawings of concepts.md: frames and their names, and the two sides from which a group moves.

python docs/drawings.py
"""

from pathlib import Path

import numpy as np

from lgjax.plot import figure

FOLDER = Path(__file__).parent / "images"
BLUE, RED, GREEN, GRAY = "#0072b2", "#d55e00", "#009e73", "#7f7f7f"


def arrow(axes, start, end, color, text="", offset=(0.0, 0.0), bend=0.0, width=1.6):
    style = {"arrowstyle": "-|>", "color": color, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops={**style, "connectionstyle": f"arc3,rad={bend}"})
    middle = (np.asarray(start) + end) / 2 + offset
    axes.text(*middle, text, color=color, ha="center", va="center", fontsize=11, family="monospace")


def frame(axes, origin, angle, name, color, drop=0.3):
    c, s = np.cos(angle), np.sin(angle)
    for direction in ((c, s), (-s, c)):
        arrow(axes, origin, np.asarray(origin) + 0.75 * np.asarray(direction), color)
    axes.plot(*origin, "o", color=color, markersize=5)
    axes.text(origin[0], origin[1] - drop, name, color=color, ha="center", fontsize=12)


def blank(axes, width, height, title=""):
    axes.set(xlim=(-0.9, width), ylim=(-1.0, height), aspect="equal", title=title)
    axes.axis("off")


def frames():
    """World, parent and body frame, and the poses between them."""
    made = figure(8, 3.3)
    axes = made.add_subplot()
    blank(axes, 8.2, 2.6)
    world, parent, body = (0.0, 0.0), (3.4, 1.3), (6.9, 1.0)
    frame(axes, world, 0.0, "world", GRAY)
    frame(axes, parent, 0.45, "parent", BLUE)
    frame(axes, body, -0.35, "body", RED)
    arrow(axes, world, parent, GRAY, "T_world_parent", (-0.5, 0.65), -0.15, 1.0)
    arrow(axes, parent, body, GRAY, "T_parent_body", (0.1, 0.75), -0.25, 1.0)
    arrow(axes, world, body, GRAY, "T_world_body = T_world_parent @ T_parent_body", (0.2, -1.15), 0.2, 1.0)
    made.savefig(FOLDER / "frames.png", dpi=110)


def sides():
    """The same motion as a spatial twist and as a body twist."""
    made = figure(9, 3.6)
    for number, (title, text) in enumerate(
        (
            ("left translation: y → exp(ξ) y", "spatial twist: world axes,\nat the world's origin"),
            ("right translation: y → y exp(ξ)", "body twist: body axes,\nat the body's origin"),
        )
    ):
        axes = made.add_subplot(1, 2, number + 1)
        blank(axes, 5.6, 2.9, title)
        world, body, angle = np.array([0.0, 0.0]), np.array([3.2, 1.3]), 0.5
        frame(axes, world, 0.0, "world", GRAY, 0.7)
        frame(axes, body, angle, "body", BLUE, 0.7)
        at, turn = (world, 0.0) if number == 0 else (body, angle)
        direction = np.array([np.cos(turn + 0.6), np.sin(turn + 0.6)])
        arrow(axes, at, at + 1.5 * direction, RED, "v", 0.25 * np.array([direction[1], -direction[0]]), 0.0, 2.4)
        t = np.linspace(0.3, 5.0, 60) + turn
        ring = at + 0.42 * np.stack([np.cos(t), np.sin(t)], -1)
        axes.plot(*ring[:-3].T, color=RED, linewidth=1.8)
        arrow(axes, ring[-4], ring[-1], RED)
        axes.text(at[0] - 0.75, at[1] + 0.1, "ω", color=RED, fontsize=12)
        axes.text(3.2, -0.9, text, ha="center", fontsize=10)
    made.savefig(FOLDER / "sides.png", dpi=110)


if __name__ == "__main__":
    frames()
    sides()
