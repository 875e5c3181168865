"""Ctrl-C in the command line, which must not get lost.

Python raises KeyboardInterrupt between any two instructions. If that is inside a callback of JAX, such as the one at
each garbage collection, the exception is printed or dropped, and the program goes on. So an interrupt is repeated while
a program is still being compiled, where nothing can be saved, and where Python reports that it was dropped.
"""

import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn

AGAIN = 0.3  # s after which an interrupt is repeated


class _Interrupts:
    """Handlers of SIGINT and SIGALRM, and the hook for exceptions that Python drops."""

    def __init__(self) -> None:
        self.dropped = False

    def interrupt(self, _number: int, _frame: FrameType | None) -> NoReturn:
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
        raise KeyboardInterrupt

    def repeat(self, number: int, frame: FrameType | None) -> None:
        """At an alarm: interrupt again if the last one got lost."""
        if self.dropped or _compiles(frame):
            self.dropped = False
            self.interrupt(number, frame)

    def unraisable(self, found: Any) -> None:
        if isinstance(found.exc_value, KeyboardInterrupt):
            self.dropped = True
            signal.setitimer(signal.ITIMER_REAL, AGAIN)
        else:
            sys.__unraisablehook__(found)


def repeat_lost_interrupts() -> None:
    """Install the handlers, where the system has alarms and nothing else handles SIGINT."""
    alone = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not alone or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return
    handlers = _Interrupts()
    signal.signal(signal.SIGINT, handlers.interrupt)
    signal.signal(signal.SIGALRM, handlers.repeat)
    sys.unraisablehook = handlers.unraisable


def _compiles(frame: FrameType | None) -> bool:
    """Whether a frame belongs to the compilation of a program ahead of its call."""
    # It is not imported here, where the interrupted program may be about to import it.
    compile_ahead = getattr(sys.modules.get("lgjax.execution.compiled"), "compile_ahead", None)
    while frame is not None and frame.f_code is not getattr(compile_ahead, "__code__", None):
        frame = frame.f_back
    return frame is not None
