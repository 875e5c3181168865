"""Records: a problem, and a sweep of one method of one program over its settings.

A state is one vector of NumPy: rotation matrices row by row, then joint coordinates, then velocities (a ball joint's in
body axes), in the order of the bodies.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = Any
Call = tuple[Callable[[], Any], Callable[[Any], tuple[np.ndarray, float | None]]]


class Sweep(NamedTuple):
    """One method of one program.

    prepare   (end, setting, batch) -> (call, finish): call() is what is timed, and finish(its result) gives the state
              at `end` and the evaluations of the equations of motion, or None.  batch is None or a number of states,
              1 % apart in their velocities; the first is that of the problem.
    settings  numbers of steps or tolerances, from coarse to fine.
    group     whether the state is an element of a Lie group.
    steps     whether settings are numbers of equal steps, so that a long run can be made of them.
    batched   whether `prepare` takes a batch.
    """

    program: str
    method: str
    prepare: Callable[[float, Any, int | None], Call]
    settings: Sequence[Any]
    group: bool = False
    steps: bool = True
    batched: bool = False

    @property
    def name(self) -> str:
        return f"{self.program}, {self.method}"


class Problem(NamedTuple):
    """A problem with a known end.

    positions   how many entries of a state are positions; the others are velocities.
    invariants  name -> function of a state (NumPy) that the exact motion keeps.
    references  () -> list of (what it is, state at the end), two or more, independent of each other.
    sweeps      () -> the sweeps of all programs.
    """

    name: str
    title: str
    text: str
    end: float
    positions: int
    invariants: dict[str, Callable[[np.ndarray], Any]]
    references: Callable[[], list[tuple[str, Sequence[Any]]]]
    sweeps: Callable[[], list[Sweep]]

    def error(self, state: np.ndarray, exact: np.ndarray) -> float:
        """Largest error of an entry: of positions but for whole turns, of velocities over the largest exact one."""
        gap, n = np.asarray(state, float) - exact, self.positions
        gap[:n] -= 2 * np.pi * np.round(gap[:n] / (2 * np.pi))
        gap = np.abs(gap)
        speed = max(1.0, float(np.max(np.abs(exact[n:]), initial=0.0)))
        return float(max(np.max(gap[:n]), np.max(gap[n:], initial=0.0) / speed))


def doubling(first: int, count: int, ratio: int = 2) -> tuple[int, ...]:
    """Numbers of steps: first, ratio first, ratio² first, ..."""
    return tuple(first * ratio**k for k in range(count))


def spread(velocity: Array, batch: int, together: bool = False) -> np.ndarray:
    """Velocities (batch, n) 1 % apart, or 0.01 where all rest; the first is as given.

    together: a state has one factor, which closed loops allow, and rest stays rest.
    """
    size = np.size(velocity)
    apart = 0.01 * np.random.default_rng(0).standard_normal((batch, 1 if together else size))
    apart[0] = 0.0
    still = not np.any(velocity) and not together
    return apart if still else np.asarray(velocity) * (1.0 + apart)


def matrix(a: Sequence[Any]) -> list[list[Any]]:
    """The rotation of a quaternion (w, x, y, z) of any length, for any kind of number."""
    w, x, y, z = a
    s = 2 / (w * w + x * x + y * y + z * z)
    return [
        [1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)],
        [s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)],
        [s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)],
    ]
