"""Pictures and GIFs of a `Scene` by matplotlib, in parallel projection, without a browser.

Triangles are drawn from back to front. Read first: `Paper`, then `still` and `moving`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lgjax.numerics import checks
from lgjax.plot import figure
from lgjax.saving.progress import progress_bar
from lgjax.view.geometry import Mesh
from lgjax.view.scene import Part, Scene, colors, corners

DPI = 100
MARGIN = 0.06  # of the width and height, around the motion
LIGHT = np.array([-0.4, 0.65, 0.65])  # to the right, up, towards the camera
PALETTE, LONGEST = 64, 2000  # colors and frames of a GIF
FINE = 2000  # triangles of a mesh that are not cut further
FAINTEST = 0.25  # of the first pose in a still picture


def basis(camera: Any) -> np.ndarray:
    """Columns right, up and towards the camera of the picture, (3, 3); up is as near to z as it can be."""
    camera = checks.numbers("camera", camera, (3,))
    length = float(np.linalg.norm(camera))
    if not 0 < length < np.inf:
        raise ValueError(f"camera is the direction from the motion to the camera, got {checks.shown(camera.tolist())}")
    toward = camera / length
    right = np.array([-toward[1], toward[0], 0.0])
    if np.linalg.norm(right) < 1e-9:  # from straight above or below
        right = np.array([1.0, 0.0, 0.0])
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(toward, right), toward], axis=1)


def split(mesh: Mesh, longest: float) -> Mesh:
    """The mesh with triangles cut in two until no edge is longer, so that their middles say which is in front."""
    for _ in range(10):
        corner = mesh.vertices[mesh.faces]
        lengths = np.linalg.norm(np.roll(corner, -1, axis=1) - corner, axis=-1)
        long = lengths.max(1) > longest
        if not long.any() or len(mesh.faces) > FINE:
            break
        first = np.argmax(lengths[long], axis=1)[:, None]
        a, b, c = np.take_along_axis(mesh.faces[long], (first + np.arange(3)) % 3, axis=1).T
        middle = len(mesh.vertices) + np.arange(len(a))
        vertices = np.concatenate([mesh.vertices, (mesh.vertices[a] + mesh.vertices[b]) / 2])
        halves = [np.stack([a, middle, c], axis=1), np.stack([middle, b, c], axis=1)]
        mesh = Mesh(vertices, np.concatenate([mesh.faces[~long], *halves]))
    return mesh


class Paper:
    """A figure as large as the picture, in meters of the projection, with what it shows of a scene at its times.

    offset: (T, 3) what is subtracted from all points at each time, the way of the highlighted system where the camera
    follows it. center, half: (2,) of the rectangle that is seen.
    """

    def __init__(self, scene: Scene, camera: Any, size: Any, highlight: int, follow: bool, trail: bool):
        checks.truths(follow=follow, trail=trail)
        pixels = np.array(checks.sizes("size", size))
        if len(pixels) != 2 or pixels.min() < 1:
            raise ValueError(f"size is width and height in pixels, got {checks.shown(size)}")
        fine = tuple(part._replace(mesh=split(part.mesh, 0.12 * scene.radius)) for part in scene.parts)
        self.scene, self.basis, self.trail = scene._replace(parts=fine), basis(camera), trail
        self.highlight = checks.integer("highlight", highlight, -(2**63)) % scene.systems
        path = scene.reference[:, self.highlight]
        self.offset = path - path[0] if follow else np.zeros_like(path)
        lines = () if scene.lines is None else scene.lines
        moved = scene._replace(position=scene.position - self.offset[:, None, None])
        points = [corners(moved).reshape(-1, 3), *(x.reshape(-1, 3) - o for x, o in zip(lines, self.offset))]
        seen = np.concatenate(points) @ self.basis
        low, high = seen.min(0)[:2], seen.max(0)[:2]
        self.center = (low + high) / 2
        self.half = pixels * float(np.max((high - low) / pixels)) / (2 - 4 * MARGIN)
        self.figure = figure(*(pixels / DPI))
        self.figure.set_layout_engine("none")
        self.axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))

    def begin(self, index: int) -> None:
        """Empty paper with ground, scenery, and the path until a time."""
        axes, scene = self.axes, self.scene
        axes.clear()
        axes.set_axis_off()
        (left, low), (right, high) = self.center - self.half, self.center + self.half
        axes.set(xlim=(left, right), ylim=(low, high))
        if scene.ground is not None:
            self._lines(self._grid(scene.ground, index), index, "#d5d5d5", 0.6)
        self._triangles(scene.scenery, index, 1.0)
        if self.trail and index:
            path = scene.position[: index + 1, self.highlight, scene.traced]
            self._lines(np.stack([path[:-1], path[1:]], axis=1), index, "#005ab4", 1.0)

    def add(self, index: int, strength: float = 1.0) -> None:
        """All bodies, lines and arrows at a time, paler for a strength below one."""
        scene = self.scene
        self._triangles(scene.parts, index, strength)
        if scene.lines is not None:
            self._lines(scene.lines[index].reshape(-1, 2, 3), index, "#5a5a5a", 1.2 * strength)
        if scene.arrows is not None and scene.arrow_colors is not None and strength == 1:
            start, end = np.moveaxis(self._seen(scene.arrows[index], index)[..., :2], 1, 0)
            long = np.linalg.norm(scene.arrows[index, :, 1] - scene.arrows[index, :, 0], axis=-1) > 1e-3 * scene.radius
            way, where = end - start, {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.006}
            self.axes.quiver(*start[long].T, *way[long].T, color=scene.arrow_colors[long], zorder=5, **where)

    def pixels(self, text: str = "") -> np.ndarray:
        """Colors (height, width, 3) of the paper as it is, with a text at its lower left."""
        self.axes.text(0.02, 0.02, text, transform=self.axes.transAxes, color="#606060", fontsize=8)
        self.figure.canvas.draw()
        return np.asarray(self.figure.canvas.buffer_rgba())[..., :3].copy()

    def _seen(self, points: np.ndarray, index: int) -> np.ndarray:
        return (points - self.offset[index]) @ self.basis

    def _lines(self, ends: np.ndarray, index: int, color: str, width: float) -> None:
        from matplotlib.collections import LineCollection

        seen = self._seen(ends, index)[..., :2]
        self.axes.add_collection(
            LineCollection(list(seen), colors=color, linewidths=width, zorder=1)
        )  # as triangles have

    def _grid(self, height: float, index: int) -> np.ndarray:
        """Lines (k, 2, 3) of a square grid, far beyond what is seen."""
        size = float(np.linalg.norm(self.half))
        cell = 10.0 ** np.ceil(np.log10(size)) / 10
        middle = self.basis[:, :2] @ self.center + self.offset[index]
        at = cell * np.arange(-np.ceil(6 * size / cell), np.ceil(6 * size / cell) + 1)
        x, y = (np.round(middle[k] / cell) * cell + at for k in (0, 1))
        z = lambda a: np.full_like(a, height)
        along_x = [np.stack([np.full_like(y, end), y, z(y)], 1) for end in (x[0], x[-1])]
        along_y = [np.stack([x, np.full_like(x, end), z(x)], 1) for end in (y[0], y[-1])]
        return np.concatenate([np.stack(ends, axis=1) for ends in (along_x, along_y)])

    def _triangles(self, parts: tuple[Part, ...], index: int, strength: float) -> None:
        """The sides of meshes that face the camera, the farthest first, brighter towards the light."""
        from matplotlib.collections import PolyCollection

        scene, found, paint = self.scene, [], []
        for part in parts:
            vertices, own = part.mesh.vertices[None], np.asarray(part.color, float)[None, :3]
            if part.body >= 0:
                turn, shift = scene.rotation[index, :, part.body], scene.position[index, :, part.body]
                vertices, own = vertices @ turn.swapaxes(1, 2) + shift[:, None], colors(scene, part, self.highlight)
            corner = self._seen(vertices, index)[:, part.mesh.faces]
            normal = np.cross(corner[:, :, 1] - corner[:, :, 0], corner[:, :, 2] - corner[:, :, 0])
            facing = normal[..., 2] > 0
            normal = normal[facing] / np.linalg.norm(normal[facing], axis=-1, keepdims=True)
            bright = 0.55 + 0.45 * np.clip(normal @ LIGHT / np.linalg.norm(LIGHT), 0, None)[:, None]
            lit = np.broadcast_to(own[:, None], (*facing.shape, 3))[facing] * bright
            lit = strength * lit + (1 - strength)
            opacity = np.full((len(lit), 1), 1.0 if part.opacity is None else part.opacity)
            found.append(corner[facing])
            paint.append(np.concatenate([lit, opacity], axis=1))
        if not found:
            return
        corner, paint = np.concatenate(found), np.concatenate(paint).clip(0, 1)
        order = np.argsort(corner[..., 2].mean(1), kind="stable")
        thin = np.where(paint[order, 3] == 1, 0.4, 0.0)  # edges close the seams between triangles
        seen: Any = corner[order, :, :2]  # an array: of a list every triangle would become a path by itself
        self.axes.add_collection(
            PolyCollection(seen, facecolors=paint[order], edgecolors=paint[order], linewidths=thin)
        )


def still(paper: Paper, path: Path, poses: int) -> Path:
    """A picture of several poses, evenly spaced in time, the earlier ones paler."""
    poses = checks.integer("poses", poses)
    ts = paper.scene.ts
    chosen = np.unique(nearest(ts, np.linspace(ts[0], ts[-1], poses) if poses > 1 else ts[-1:]))
    paper.begin(len(ts) - 1)
    for index, strength in zip(chosen, np.linspace(1.0, FAINTEST, len(chosen))[::-1], strict=True):
        paper.add(int(index), float(strength))
    paper.figure.savefig(path, dpi=DPI)
    return path


def moving(paper: Paper, path: Path, fps: float, speed: float, progress: bool | None) -> Path:
    """A GIF; frames follow one another in whole hundredths of a second, as the format wants.

    Ctrl-C ends the GIF with the frames that are drawn, and raises KeyboardInterrupt.
    """
    from PIL import Image

    fps, speed = checks.number("fps", fps, 0.0, 50.0), checks.number("speed", speed, 0.0, inside=True)
    ts, delay = paper.scene.ts, max(2, round(100 / max(fps, 1e-3)))
    count = int((ts[-1] - ts[0]) / (speed * delay / 100) + 1e-6) + 1
    if count > LONGEST:
        raise ValueError(f"the GIF would have {count} frames, at most {LONGEST} are drawn: raise speed or lower fps")
    chosen = nearest(ts, ts[0] + speed * delay / 100 * np.arange(count))

    def frame(index: int) -> Any:
        paper.begin(index)
        paper.add(index)
        return Image.fromarray(paper.pixels(f"{ts[index]:.2f} s" if len(ts) > 1 else ""))

    few = chosen[np.unique(np.linspace(0, count - 1, 4).astype(int))]
    some = np.concatenate([np.asarray(frame(int(k))) for k in few])
    palette = Image.fromarray(some).quantize(PALETTE, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)

    stopped: list[KeyboardInterrupt] = []

    def frames() -> Iterator[Any]:
        with progress_bar(progress, count, 0.0, unit="frame") as bar:
            for n, k in enumerate(chosen):
                try:
                    drawn = frame(int(k)).quantize(palette=palette, dither=Image.Dither.NONE)
                except KeyboardInterrupt as interrupt:
                    if not n:
                        raise
                    stopped.append(interrupt)
                    return
                yield drawn
                bar.update(1)

    rest = frames()
    next(rest).save(path, "GIF", save_all=True, append_images=rest, duration=10 * delay, loop=0, optimize=True)
    if stopped:
        raise stopped[0]
    return path


def nearest(ts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Indices of the saved times nearest to the wanted ones."""
    return np.searchsorted((ts[1:] + ts[:-1]) / 2, wanted)
