"""A live viewer while Python runs: a viser server with controls of time, camera and joints."""

import threading
import time
from typing import Any

import numpy as np

from lgjax.multibody.configuration import neutral
from lgjax.multibody.model import Model
from lgjax.numerics import checks
from lgjax.view.drawing import Drawing, stop, viser_server
from lgjax.view.scene import Scene, finished
from lgjax.view.sources import tree_scene

RATE = 30.0  # pictures per second
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444", "#999999")


class Viewer:
    """A running viewer: `url` opens it, `wait` blocks until interrupted, `stop` ends it. Also a context manager.

    `show` makes it. model: what the scene shows; a Model at rest gets sliders for its joints. drawn: as in `Drawing`.
    """

    def __init__(self, scene: Scene, model: Any, port: int | None, **drawn: Any):
        checks.of_kind("scene", scene, Scene)
        self.server = viser_server(port)
        self.scene = scene
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._charts: list[Any] = []
        try:
            self.drawing = Drawing(self.server, scene, **drawn)
            self._add_controls(model)
            self.server.on_client_connect(lambda client: client.camera.on_update(self._fit))
        except BaseException:
            stop(self.server)
            raise
        self._player = threading.Thread(target=self._play, daemon=True)
        self._player.start()

    @property
    def url(self) -> str:
        """Address of the viewer in a browser on this machine."""
        return f"http://127.0.0.1:{self.server.get_port()}"

    def wait(self) -> None:
        """Block until the viewer is stopped or the program interrupted."""
        try:
            while not self._ended.wait(0.2):
                pass
        finally:
            self.stop()

    def stop(self) -> None:
        """End the viewer; its page stays open but no longer moves."""
        if not self._ended.is_set():
            self._ended.set()
            self._player.join()
            stop(self.server)

    def __enter__(self) -> "Viewer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def _repr_html_(self) -> str:
        return f'<iframe src="{self.url}" style="width: 100%; height: 500px; border: 0"></iframe>'

    def _add_controls(self, model: Any) -> None:
        gui, ts = self.server.gui, self.scene.ts
        gui.configure_theme(show_share_button=False)  # it would ask a server in the network
        moving = len(ts) > 1
        start, end = float(ts[0]), float(ts[-1]) if moving else float(ts[0]) + 1.0
        self._time = gui.add_slider("time (s)", start, end, (end - start) / 1000, start, visible=moving)
        self._playing = gui.add_checkbox("play", moving, visible=moving)
        self._speed = gui.add_slider("speed", 0.05, 4.0, 0.05, 1.0, visible=moving)
        follow = gui.add_checkbox("follow", self.drawing.follow)
        self._time.on_update(lambda _: self._draw(float(self._time.value)))
        follow.on_update(lambda _: self._follow(follow.value))
        if self.scene.systems > 1:
            chosen = gui.add_slider("system", 0, self.scene.systems - 1, 1, self.drawing.highlight)
            chosen.on_update(lambda _: self._emphasize(int(chosen.value)))
        if not moving and isinstance(model, Model) and self.scene.systems == 1:
            self._add_joints(model)
        self._add_charts()

    def _add_charts(self) -> None:
        from viser import uplot

        for old in self._charts:
            old.remove()
        self._charts = []
        for chart in self.scene.charts(self.drawing.highlight):
            series = [uplot.Series(label="t (s)")]
            for i, name in enumerate(chart.names):
                series.append(uplot.Series(label=name, stroke=COLORS[i % len(COLORS)], width=1.5))
            data = (np.asarray(self.scene.ts, float), *(np.asarray(x, float) for x in chart.values.T))
            scales = {"x": uplot.Scale(time=False)}
            self._charts.append(
                self.server.gui.add_uplot(data, tuple(series), title=chart.title, scales=scales, aspect=1.6)
            )

    def _add_joints(self, model: Model) -> None:
        """A slider for every scalar coordinate, between its limits or one turn."""
        lower, upper = np.asarray(model.lower, float), np.asarray(model.upper, float)
        start = np.asarray(neutral(model).joints, float)
        low, high = np.where(np.isfinite(lower), lower, -np.pi), np.where(np.isfinite(upper), upper, np.pi)
        low, high = np.minimum(low, start), np.maximum(high, start + 1e-3)
        with self.server.gui.add_folder("joints (rad or m)"):
            sliders = [
                self.server.gui.add_slider(name, float(a), float(b), float(b - a) / 1000, float(x))
                for name, a, b, x in zip(model.tree.coordinate_names, low, high, start, strict=True)
            ]
        for slider in sliders:
            slider.on_update(lambda _: self._pose(model, [float(slider.value) for slider in sliders]))

    def _pose(self, model: Model, joints: list[float]) -> None:
        """Draw a model at joint coordinates."""
        q = neutral(model)._replace(joints=np.asarray(joints, model.dtype))
        scene = tree_scene(model, q, None, None, None, False, 0, {"frames": 1, "systems": 1})
        scene = finished(scene._replace(parts=self.scene.parts), 0, 0.0, self.scene.ground)
        with self._lock:
            self.drawing.move(scene)

    def _fit(self, camera: Any) -> None:
        """Show the scene whole in a window of any shape."""
        wanted = self.drawing.field_of_view(float(camera.aspect))
        if abs(camera.fov - wanted) > 1e-3:
            camera.fov = wanted

    def _draw(self, t: float) -> None:
        """Draw the saved state next to time t."""
        index = int(np.argmin(np.abs(self.scene.ts - t)))
        with self._lock:
            if index != self.drawing.index:
                self.drawing.show(index)

    def _follow(self, follow: bool) -> None:
        with self._lock:
            self.drawing.follow = follow
            self.drawing.show(self.drawing.index)

    def _emphasize(self, index: int) -> None:
        with self._lock:
            self.drawing.emphasize(index)
            self._add_charts()

    def _play(self) -> None:
        last = time.monotonic()
        while not self._ended.wait(1 / RATE):
            now = time.monotonic()
            if self._playing.value and len(self.scene.ts) > 1:
                start, end = float(self.scene.ts[0]), float(self.scene.ts[-1])
                t = float(self._time.value) + (now - last) * float(self._speed.value)
                self._time.value = t if t <= end else start + (t - start) % (end - start)
                self._draw(float(self._time.value))
            last = now
