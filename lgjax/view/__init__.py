"""Motions in three dimensions: live in a browser while Python runs, as one HTML file that needs no network (extra
`view`), or as a picture or GIF (extra `plot`).

`show`, `html` and `picture` take anything that the library simulates. Every source is turned into a `Scene`
(`sources.py`), which `drawing.py` draws with viser and `projection.py` with matplotlib. Read first: `scene.py`.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from lgjax.numerics import checks
from lgjax.view.live import Viewer
from lgjax.view.page import Inline, page, write
from lgjax.view.projection import Paper, moving, still
from lgjax.view.scene import finished
from lgjax.view.sources import scene_of

__all__ = ["Inline", "Viewer", "html", "inline", "picture", "show"]


def show(
    model: Any,
    trajectory: Any = None,
    *,
    port: int | None = None,
    highlight: int = 0,
    follow: bool = False,
    trail: bool = True,
    labels: bool = False,
    spacing: float | None = None,
    ground: float | str | None = "auto",
    **source: Any,
) -> Viewer:
    """Show a motion in the browser, with a time slider, speed, a camera that follows, and panels; returns the server.

    model, trajectory:
    * a `Model`, `Robot` or `adapters.Environment` with a `Trajectory`, an `Ensemble`, a Configuration, anything with
      `ts` and `q`, or a tuple (ts, q) or (ts, q, v); without a trajectory the panel moves the joints;
    * a shape of `lgjax.shapes` with the result of `collisions.bounce`, and planes=;
    * a `maximal.System` with the result of `maximal.integrate`;
    * `systems.spherical_pendulum` with the result of `integrate`; a `LoopProblem` or `MaximalProblem` in place of its
      model.

    States have the leading axes (times,) or (systems, times): up to 1000 systems are drawn, one of them, `highlight`,
    in its own colors. Systems that overlap are set side by side, `spacing` meters apart (0: where they are). One that
    did not stay finite is red and stops.

    port: of the server, on this machine only; a free one if None. follow: the camera goes with the highlighted system.
    trail: of its base or last body. labels: names of its bodies. ground: height of a grid in m, None for none, "auto"
    for the plane of contacts=, or the lowest point of the motion.

    Further options are loops= of the mechanism; wrenches=, a function (t, q, v) -> (nbodies, 6) or an array (nbodies,
    6) or (times, nbodies, 6), body frame, drawn as arrows, forces orange and torques pink, the longest as long as the
    robot is wide; contacts=, the `Contacts` of a motion, whose grounds and shapes are drawn, and the forces that
    `rollout` recorded as arrows, the robot's weight as long as the robot is wide, with the outlines of the patches in
    which pairs touch and their normals; visuals=, the URDF or MJCF whose meshes are shown, by default the file that the
    model was loaded from, False for shapes that touch and solids with the bodies' inertias; planes= of bouncing bodies,
    whose impulses are drawn as arrows; frames= (200) and systems= (1000), the largest numbers of each that are drawn.

    In a notebook on this machine, the returned viewer displays itself; see `inline` for others. Nothing is loaded from
    the network. Raises ImportError without the extra `view`, TypeError for what cannot be drawn, ValueError for arrays
    that do not fit.
    """
    scene = finished(scene_of(model, trajectory, highlight=highlight, **source), highlight, spacing, ground)
    return Viewer(scene, model, port, highlight=highlight, follow=follow, trail=trail, labels=labels)


def html(
    model: Any,
    trajectory: Any,
    path: str | os.PathLike,
    *,
    speed: float = 1.0,
    highlight: int = 0,
    follow: bool = False,
    trail: bool = True,
    labels: bool = False,
    spacing: float | None = None,
    ground: float | str | None = "auto",
    **source: Any,
) -> Path:
    """Write a motion to one HTML file that needs no network, and return its path; the arguments are those of `show`.

    The page has a time slider, play and pause, speed, and panels for energy and joints. speed: of the motion relative
    to the clock, 0.1 for slow motion.
    """
    path = checks.path("path", path)
    options = {"highlight": highlight, "follow": follow, "trail": trail, "labels": labels}
    return write(_page(model, trajectory, speed, spacing, ground, source, **options), path)


def inline(
    model: Any,
    trajectory: Any,
    *,
    height: int = 500,
    speed: float = 1.0,
    highlight: int = 0,
    follow: bool = False,
    trail: bool = True,
    labels: bool = False,
    spacing: float | None = None,
    ground: float | str | None = "auto",
    **source: Any,
) -> Inline:
    """Show a motion below the cell of a notebook, as the page that `html` writes; the last value of a cell is shown.

    It needs no server, so that it also works in a notebook on another machine and in one that is opened later. height:
    in pixels. The page is stored in the notebook, one to three megabytes each time.
    """
    height = checks.integer("height", height)
    options = {"highlight": highlight, "follow": follow, "trail": trail, "labels": labels}
    return Inline(_page(model, trajectory, speed, spacing, ground, source, **options), height)


def picture(
    model: Any,
    trajectory: Any,
    path: str | os.PathLike,
    *,
    camera: Any = (0.8, -1.7, 0.6),
    size: tuple[int, int] = (480, 320),
    poses: int = 6,
    fps: float = 20.0,
    speed: float = 1.0,
    highlight: int = 0,
    follow: bool = False,
    trail: bool = True,
    spacing: float | None = None,
    ground: float | str | None = "auto",
    progress: bool | None = None,
    **source: Any,
) -> Path:
    """Draw a motion without a browser, and return the path: .gif moves; .png, .pdf and .svg show several poses.

    Needs matplotlib (extra `plot`). The other arguments are those of `show`, with frames=2000 and systems=16 as the
    largest numbers of each. camera: (3,), the direction from the motion to the camera, z up; the projection is
    parallel, with one scale. size: width and height in pixels. poses: of a still picture, evenly spaced in time, the
    earlier ones paler. fps: frames per second of a GIF, at most 50, rounded to whole hundredths of a second between
    frames; a frame shows the saved state that is nearest in time. speed: of the motion relative to the clock. progress:
    None shows a bar of the frames of a GIF on a terminal, True always. Ctrl-C leaves the frames that are drawn.
    """
    path = checks.path("path", path)
    suffix, known = path.suffix.lower(), (".gif", ".png", ".pdf", ".svg")
    if suffix not in known:
        raise ValueError(f"path ends in {path.suffix!r}, motions are drawn as {', '.join(known)}")
    scene = scene_of(model, trajectory, highlight=highlight, **{"frames": 2000, "systems": 16, **source})
    if not np.isfinite(scene.ts).all():
        raise ValueError("ts of the motion must be finite")
    paper = Paper(finished(scene, highlight, spacing, ground), camera, size, highlight, follow, trail)
    return moving(paper, path, fps, speed, progress) if suffix == ".gif" else still(paper, path, poses)


def _page(model: Any, trajectory: Any, speed: float, spacing: Any, ground: Any, source: dict, **options: Any) -> str:
    scene = scene_of(model, trajectory, highlight=options["highlight"], **source)
    return page(finished(scene, options["highlight"], spacing, ground), speed, **options)
