"""Draws a `Scene` with viser: one instanced mesh per part, for all systems at once.

Everything hangs below the node /world, which stands still; for a camera that follows a system, the world moves the
other way, so that it works in a recording as well. Read first: `Drawing`.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from lgjax.multibody.importers.source import require
from lgjax.numerics import checks
from lgjax.view.scene import Part, Scene, colors, quaternions, reached

TRAIL = 60  # segments of a trail
FOV = 0.9  # rad, vertical, or horizontal in a narrow window
MARGIN = 1.1  # of a narrow window beside the scene
FAR = 200.0  # how far the camera sees, in sizes of the scene


def viser_server(port: int | None = None) -> Any:
    """A viser server on this machine alone, at a port that is free if none is given; it prints nothing.

    Raises ImportError in one line without the extra `view`.
    """
    port = 0 if port is None else checks.integer("port", port, 0)
    if port >= 2**16:
        raise ValueError(f"port must be less than {2**16}, got {port}")
    viser = require("viser", "view", "the viewer")
    with _silence():
        return viser.ViserServer(host="127.0.0.1", port=port, verbose=False)


def stop(server: Any) -> None:
    """Stop a server without printing anything."""
    with _silence():
        server.stop()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """viser prints through rich, which in a notebook displays, so that redirecting stdout is not enough."""
    console = require("rich", "view", "the viewer").get_console()
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


class Drawing:
    """A scene drawn on a viser server, at one of its times.

    show(k) moves everything to time k. follow: keep the highlighted system in place. highlight: its index. trail:
    whether its traced body leaves one.
    """

    def __init__(self, server: Any, scene: Scene, highlight: int, follow: bool, trail: bool, labels: bool):
        checks.truths(follow=follow, trail=trail, labels=labels)
        self.server, self.scene = server, scene
        self.highlight, self.follow = checks.integer("highlight", highlight, -(2**63)) % scene.systems, follow
        self.index, self._arrows_of = 0, self.highlight
        self.position, self.quaternion = _rounded(scene)
        self.world = server.scene.add_frame("/world", show_axes=False)
        self._nodes: dict[str, Any] = {}
        self._drawn: dict[str, bytes] = {}
        points = reached(scene, start_only=follow)
        self.low, self.high = points.min(0), points.max(0)
        self.size = float(np.linalg.norm(self.high - self.low)) / 2
        self._add_ground()
        for i, part in enumerate(scene.scenery):
            self._add_still(f"/world/scenery/{i}", part)
        for i, part in enumerate(scene.parts):
            self._add_part(f"{i}", part)
        self._add_lines(trail)
        self._add_labels(labels)
        self.tangents = self._place_camera(points)
        self.show(0)

    def _add_part(self, name: str, part: Part) -> None:
        body = "world" if part.body < 0 else self.scene.body_names[part.body] if part.body < self._bodies else "mount"
        path = f"/world/bodies/{body}/{name}"
        if part.body < 0:
            self._add_still(path, part)
            return
        self._nodes[name] = self.server.scene.add_batched_meshes_simple(
            path, part.mesh.vertices, part.mesh.faces, batched_wxyzs=self.quaternion[0, :, part.body],
            batched_positions=self.position[0, :, part.body], batched_colors=self._colors(part), opacity=part.opacity,
            flat_shading=True, lod="off",
        )  # fmt: skip

    @property
    def _bodies(self) -> int:
        return len(self.scene.body_names)

    def _colors(self, part: Part) -> np.ndarray:
        return (255 * colors(self.scene, part, self.highlight)).round().astype(np.uint8)

    def _add_still(self, path: str, part: Part) -> None:
        self.server.scene.add_mesh_simple(
            path, part.mesh.vertices, part.mesh.faces, color=tuple(int(255 * c) for c in part.color),
            opacity=part.opacity, flat_shading=True,
        )  # fmt: skip

    def _add_ground(self) -> None:
        if self.scene.ground is None:
            return
        size = 10.0 ** np.ceil(np.log10(self.size))
        self.server.scene.add_grid(
            "/world/ground", position=(0.0, 0.0, self.scene.ground), infinite_grid=True, cell_size=size / 20,
            section_size=size / 4, fade_distance=8 * size, shadow_opacity=0.2,
        )  # fmt: skip

    def _add_lines(self, trail: bool) -> None:
        scene, add = self.scene, self.server.scene
        if scene.lines is not None:
            width = 0.01 * scene.radius
            lines = self._at_lines(0)
            self._nodes["lines"] = add.add_line_segments("/world/lines", lines, (90, 90, 90), thickness=width)
        if scene.arrows is not None and scene.arrow_colors is not None:
            colors, r = (255 * scene.arrow_colors).round().astype(np.uint8), scene.radius
            self._nodes["arrows"] = add.add_arrows(
                "/world/wrenches", self._at_arrows(0), colors, shaft_radius=0.01 * r, head_radius=0.025 * r,
                head_length=0.06 * r,
            )  # fmt: skip
        if trail and len(scene.ts) > 1:
            self._nodes["trail"] = add.add_line_segments(
                "/world/trail", self._at_trail(0), (0, 90, 180), thickness=2.0, thickness_units="screen"
            )

    def _add_labels(self, labels: bool) -> None:
        text = self.scene.name if self.scene.systems == 1 else f"{self.scene.name} #{self.highlight}"
        add = self.server.scene.add_label
        self._nodes["label"] = add("/world/label", text, anchor="bottom-center")
        if labels:
            for body, name in enumerate(self.scene.body_names):
                self._nodes[f"name {body}"] = add(f"/world/names/{name}", name, font_screen_scale=0.7)

    def _place_camera(self, points: np.ndarray) -> tuple[float, float]:
        """Place the camera; the tangents of half the vertical and half the horizontal angle that it has to see."""
        size = self.size
        # Steeper over many systems, so that they do not hide one another; a little to the left of the panels.
        alone = self.scene.systems == 1
        view = np.array([0.8, -1.7, 0.6 if alone else 1.1])
        view /= np.linalg.norm(view)
        middle = (self.low + self.high) / 2 + 0.3 * size * np.array([-view[1], view[0], 0.0])
        camera = self.server.initial_camera
        camera.near, camera.far = 0.005 * size, FAR * size
        camera.fov = FOV
        camera.look_at = tuple(middle)
        position = middle + (2.4 if alone else 1.9) * size * view
        camera.position = tuple(position)
        right = np.array([-view[1], view[0], 0.0]) / np.hypot(*view[:2])
        aside, ahead = (points - position) @ right, (position - points) @ view
        return float(np.tan(FOV / 2)), MARGIN * float(np.max(np.abs(aside) / ahead))

    def field_of_view(self, aspect: float) -> float:
        """The vertical angle, rad, at which a window of this width by height shows the scene whole."""
        tall, wide = self.tangents
        return 2 * float(np.arctan(max(tall, wide / aspect)))

    def show(self, index: int) -> None:
        """Move everything to time `index` of the scene."""
        self.index, scene = index, self.scene
        with self.server.atomic():
            for i, part in enumerate(scene.parts):
                if part.body >= 0:
                    node = self._nodes[str(i)]
                    self._set(node, "batched_positions", self.position[index, :, part.body])
                    self._set(node, "batched_wxyzs", self.quaternion[index, :, part.body])
            for name, at in (("lines", self._at_lines), ("arrows", self._at_arrows), ("trail", self._at_trail)):
                if name in self._nodes:
                    self._set(self._nodes[name], "points", at(index))
            here = scene.reference[index, self.highlight]
            top = scene.position[index, self.highlight, : self._bodies, 2].max() + 0.2 * scene.radius
            self._nodes["label"].position = (here[0], here[1], top)
            for body in range(self._bodies):
                if f"name {body}" in self._nodes:
                    self._nodes[f"name {body}"].position = tuple(scene.position[index, self.highlight, body])
            self.world.position = tuple(scene.reference[0, self.highlight] - here) if self.follow else (0.0, 0.0, 0.0)

    def move(self, scene: Scene) -> None:
        """Draw the same bodies in another pose: `scene` differs in its positions alone."""
        self.scene = scene
        self.position, self.quaternion = _rounded(scene)
        self.show(0)

    def _set(self, node: Any, name: str, value: np.ndarray) -> None:
        """Set a property if it is not what was set last: what stands still costs nothing in a recording."""
        value = np.ascontiguousarray(value, np.float32)
        key, content = f"{node.name} {name}", value.tobytes()
        if self._drawn.get(key) != content:
            self._drawn[key] = content
            setattr(node, name, value)

    def emphasize(self, index: int) -> None:
        """Highlight another system; wrenches are known only for the one highlighted first."""
        self.highlight = index
        if "arrows" in self._nodes:
            self._nodes["arrows"].visible = index == self._arrows_of
        for i, part in enumerate(self.scene.parts):
            if part.body >= 0:
                self._nodes[str(i)].batched_colors = self._colors(part)
        self._nodes["label"].text = f"{self.scene.name} #{index}"
        self.show(self.index)

    def _at_lines(self, index: int) -> np.ndarray:
        assert self.scene.lines is not None
        return self.scene.lines[index].reshape(-1, 2, 3)

    def _at_arrows(self, index: int) -> np.ndarray:
        """Arrows of length zero would still have a head: they go farther away than the camera sees."""
        assert self.scene.arrows is not None
        points = np.array(self.scene.arrows[index], float)
        short = np.linalg.norm(points[:, 1] - points[:, 0], axis=-1) < 1e-3 * self.scene.radius
        points[short] = [[0, 0, -100 * FAR * self.size], [0, 0, -99 * FAR * self.size]]
        return points

    def _at_trail(self, index: int) -> np.ndarray:
        """Segments (TRAIL, 2, 3) along the path so far; before the start they are points."""
        at = np.clip(np.arange(index - TRAIL, index + 1), 0, None)
        path = self.scene.position[at, self.highlight, self.scene.traced]
        return np.stack([path[:-1], path[1:]], axis=1)


def _rounded(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """Positions and quaternions with no more digits than are seen (1e-4 of a system, 0.01°), which compress well."""
    step = 2.0 ** np.floor(np.log2(1e-4 * scene.radius))
    position = np.round(scene.position / step) * step
    quaternion = np.round(quaternions(scene.rotation) * 2**12) / 2**12
    return position.astype(np.float32), quaternion.astype(np.float32)
