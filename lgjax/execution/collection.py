"""Python's garbage collection paused while a program is built: it finds nothing there, and looks at every operation.

A kernel of 50,000 operations is half a million small objects, none in a cycle; looking at them takes a fifth of the
time. Next: `kernels/native.py` and `compiled.py`, which pause it.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """A context, or decorator, without garbage collection. Afterwards it is as it was before."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
