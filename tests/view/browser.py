"""A headless Chromium, driven through its debugging protocol: opens a file without a network and takes pictures."""

import base64
import contextlib
import io
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-extensions", "--no-first-run"),
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--remote-debugging-port=0"),
)


def program() -> str | None:
    """The path of a Chromium on this machine, or None."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Page:
    """A page in the browser; `requests` are the addresses that it asked for, `errors` what its scripts threw."""

    def __init__(self, socket):
        self._socket, self._number = socket, 0
        self.requests: list[str] = []
        self.errors: list[str] = []

    def call(self, method: str, **parameters) -> dict:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=120))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            if message["method"] == "Runtime.exceptionThrown":
                self.errors.append(message["params"]["exceptionDetails"].get("exception", {}).get("description", "?"))

    def value(self, expression: str):
        """The value of a JavaScript expression."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def until(self, expression: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not self._now(expression):
            assert time.monotonic() < end, f"still not: {expression}"
            time.sleep(0.1)

    def _now(self, expression: str):
        """The value of an expression; None while the page loads again."""
        try:
            return self.value(expression)
        except AssertionError as error:
            if "navigated" not in str(error):
                raise
            return None

    def press(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            self._drawn()  # controls read the place when they are drawn next

    def seek(self, fraction: float) -> float:
        """Stop the recording at a part of its length; the time that the page shows then."""
        self.until("!!document.querySelector('[role=slider]')")
        bar = self.value(
            "(({x, y, width, height}) => [x, y, width, height])"
            "(document.querySelector('[role=slider]').parentElement.getBoundingClientRect())"
        )
        # A press stops the recording, which may still take a late step: press until the time is the wanted one.
        shown = "Number(document.querySelector('[role=slider]').getAttribute('aria-valuenow'))"
        length = float(self.value("document.querySelector('[role=slider]').getAttribute('aria-valuemax')"))
        for _ in range(20):
            self.press(bar[0] + fraction * bar[2], bar[1] + bar[3] / 2)
            if abs(self.value(shown) - fraction * length) < 0.05 * length:
                break
        return self.value(shown)

    def _drawn(self, frames: int = 4) -> None:
        """Wait until the page has drawn a few more pictures."""
        wait = "let n = 0; const f = () => ++n > FRAMES ? done() : requestAnimationFrame(f); f()"
        promise = f"new Promise(done => {{ {wait.replace('FRAMES', str(frames))} }})"
        self.call("Runtime.evaluate", awaitPromise=True, expression=promise)

    def picture(self, path: Path | None = None) -> np.ndarray:
        """What the page shows, (height, width, 3) from 0 to 1."""
        import matplotlib.image

        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if path is not None:
            path.write_bytes(data)
        return matplotlib.image.imread(io.BytesIO(data))[..., :3]


@contextlib.contextmanager
def opened(path: Path, width: int = 1000, height: int = 700) -> Iterator[Page]:
    """The page of a file in a browser without a network."""
    from websockets.sync.client import connect

    found = program()
    assert found
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = [*OPTIONS, f"--user-data-dir={folder}", f"--window-size={width},{height}", "about:blank"]
        with subprocess.Popen([found, *options], stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                line = next(line for line in process.stderr if "DevTools listening" in line)
                port = line.split("ws://")[1].split("/")[0]
                with urllib.request.urlopen(f"http://{port}/json") as answer:
                    tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
                with connect(tabs[0]["webSocketDebuggerUrl"], max_size=None) as socket:
                    page = Page(socket)
                    for domain in ("Network", "Page", "Runtime"):
                        page.call(f"{domain}.enable")
                    offline = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
                    page.call("Network.emulateNetworkConditions", offline=True, **offline)
                    page.call("Page.navigate", url=path.resolve().as_uri())
                    page.until("!!document.querySelector('canvas')")
                    page._drawn(8)
                    yield page
            finally:
                process.terminate()
                process.stderr.close()
