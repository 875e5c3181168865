"""Progress bars of long runs, and interrupts that wait for a safe point."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax


class _Silent:
    """A progress bar that shows nothing."""

    def __enter__(self) -> "_Silent":
        return self

    def __exit__(self, *exception: Any) -> None:
        return None

    def update(self, count: int) -> None:
        pass


class _Bar:
    """tqdm over trajectories, with its rate and the time that is left, and simulated seconds per second."""

    def __init__(self, tqdm: Any, count: int, duration: float, done: int, unit: str = "rollout") -> None:
        self.bar = tqdm(total=count, initial=done, unit=unit, leave=False)
        self.duration, self.started, self.done = duration, time.perf_counter(), 0

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.bar.close()

    def update(self, count: int) -> None:
        self.done += count
        if self.duration:
            rate = self.done * self.duration / (time.perf_counter() - self.started)
            self.bar.set_postfix_str(f"{rate:.3g} simulated s/s", refresh=False)
        self.bar.update(count)


def progress_bar(progress: bool | None, count: int, duration: float, done: int = 0, unit: str = "rollout") -> Any:
    """A bar of `count` trajectories of `duration` simulated seconds, `done` of them already computed.

    progress is that of `shown_bar`; of several processes the first shows it.
    """
    tqdm = shown_bar(progress) if jax.process_index() == 0 else None
    return _Silent() if tqdm is None else _Bar(tqdm, count, duration, done, unit)


def shown_bar(progress: bool | None) -> Any:
    """The class of tqdm's bar if one is to be shown, or None.

    None shows it if tqdm is installed and stderr is a terminal or the process is a notebook's: in a file each move of
    a bar is one more line. True insists, False shows nothing.
    """
    watched = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    if not (watched if progress is None else progress):
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        if progress:
            raise ImportError("a progress bar needs tqdm: pip install 'lgjax[progress]'") from None
        return None
    return tqdm


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Context in which Ctrl-C takes effect only at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *arguments: came.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came and callable(before):
        before(*came[0])
