"""One HTML file of a motion: viser's recording, which brings its client along, and panels with curves over time."""

import html
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from lgjax.numerics import checks
from lgjax.view.drawing import Drawing, stop, viser_server
from lgjax.view.scene import Scene

PANEL = Path(__file__).with_name("panel.html")
WINDOW = Path(__file__).with_name("window.html")
PAUSE = 0.5  # s, at the end, before the recording begins again


def page(scene: Scene, speed: float, **drawn: Any) -> str:
    """The page of a scene, whose time runs `speed` times as fast as the clock; `drawn` goes to `Drawing`."""
    speed = checks.number("speed", speed)
    if not speed > 0:
        raise ValueError(f"speed must be positive, got {speed}")
    server = viser_server()
    try:
        drawing = Drawing(server, scene, **drawn)
        recording = server.get_scene_serializer()
        for k in range(1, len(scene.ts)):
            recording.insert_sleep(float(scene.ts[k] - scene.ts[k - 1]) / speed)
            drawing.show(k)
        if len(scene.ts) > 1:
            recording.insert_sleep(PAUSE)
        text = recording.as_html()
    finally:
        stop(server)
    window = WINDOW.read_text(encoding="utf-8").replace("TANGENTS", json.dumps(drawing.tangents))
    text = text.replace("<title>Viser</title>", f"<title>{html.escape(scene.name)}</title>")
    text = text.replace("</head>", window + "</head>", 1)
    return text.replace("</body>", _panel(scene, drawing.highlight, speed) + "</body>")


class Inline:
    """A page that a notebook shows below its cell, and keeps when it is saved; `text` is the page."""

    def __init__(self, text: str, height: int):
        self.text, self.height = checks.of_kind("text", text, str), checks.integer("height", height)

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe srcdoc="{html.escape(self.text)}" style="{style}"></iframe>'


def write(text: str, path: str | os.PathLike) -> Path:
    """Write a page to a file."""
    path = Path(path)
    path.write_text(text, encoding="utf-8")
    return path


def _panel(scene: Scene, highlight: int, speed: float) -> str:
    """The panels' script with its data; empty where there is nothing to plot."""
    charts = scene.charts(highlight)
    if not charts:
        return ""
    rounded = lambda x: [float(f"{value:.5g}") if np.isfinite(value) else None for value in x]
    data = {
        "times": rounded(scene.ts - scene.ts[0]),
        "start": float(scene.ts[0]),
        "speed": speed,
        "charts": [
            {"title": chart.title, "names": chart.names, "curves": [rounded(curve) for curve in chart.values.T]}
            for chart in charts
        ],
    }
    return PANEL.read_text(encoding="utf-8").replace("DATA", json.dumps(data).replace("</", "<\\/"))
