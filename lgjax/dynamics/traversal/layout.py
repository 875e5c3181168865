"""Schedule of a tree: chains of bodies of equal kind run side by side, gathered in rectangles.

Source: none; the schedule is static and trades idle lanes against the number of loops that XLA has to compile.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from lgjax.multibody.joints import JointKind
from lgjax.multibody.tree import Tree

RUN_COST = 8  # idle lanes that are worth saving one run: a run costs some 250 kernels to compile
SEARCHES = 3  # rounds in which segments look for a better stage


@dataclass(frozen=True)
class LaneRun:
    """Lanes of one kind: bodies (length, width), where row i + 1 holds the children of row i.

    A lane whose chain has ended repeats its last body until the run ends; `alive` is false there. parents: for each
    body of the first row the (run, lane) of its parent, which is in the last row of that run; empty on the world.
    """

    kind: JointKind
    bodies: tuple[tuple[int, ...], ...]
    parents: tuple[tuple[int, int], ...] = ()

    @property
    def length(self) -> int:
        return len(self.bodies)

    @property
    def width(self) -> int:
        return len(self.bodies[0])

    @cached_property
    def index(self) -> np.ndarray:
        """(length, width) body indices."""
        return np.asarray(self.bodies, np.int32)  # of one type, whatever JAX is told of float64 later

    @cached_property
    def alive(self) -> np.ndarray:
        """(length, width) bool, false where a lane repeats the body of the row before."""
        return np.concatenate([np.ones((1, self.width), bool), self.index[1:] != self.index[:-1]])


@lru_cache(maxsize=256)
def layout(tree: Tree) -> tuple[LaneRun, ...]:
    """The runs of a tree, each after the runs of its parents."""
    segments = _segments(tree)
    stages = _stages(tree, segments)
    runs: list[LaneRun] = []
    place: dict[int, tuple[int, int]] = {-1: (-1, 0)}  # body in the last row of a run -> that run and its lane
    for stage in range(max(stages, default=-1) + 1):
        families: dict[tuple[JointKind, bool], list[list[int]]] = {}
        for segment, at in zip(segments, stages, strict=True):
            if at == stage:
                families.setdefault(_family(tree, segment), []).append(segment)
        for members in families.values():
            members.sort(key=lambda segment: (place[tree.parents[segment[0]]], segment[0]))
            for rows in _rectangles(tree, members):
                parents = tuple(place[tree.parents[b]] for b in rows[0])
                run = LaneRun(_kind(tree, rows), rows, () if parents[0][0] < 0 else parents)
                place |= {b: (len(runs), lane) for lane, b in enumerate(rows[-1]) if run.alive[-1, lane]}
                runs.append(run)
    return tuple(runs)


def _segments(tree: Tree) -> list[list[int]]:
    """The longest chains without a branch in which all bodies are of one family."""
    family = [kind.family for kind in tree.kinds]
    children = _children(tree.parents)
    goes_on = lambda body: len(children[body]) == 1 and family[children[body][0]] == family[body]
    segments: list[list[int]] = []
    for body, parent in enumerate(tree.parents):
        if parent >= 0 and goes_on(parent):
            continue
        segments.append([body])
        while goes_on(segments[-1][-1]):
            segments[-1] += children[segments[-1][-1]]
    return segments


def _children(parents) -> list[list[int]]:
    out: list[list[int]] = [[] for _ in parents]
    for child, parent in enumerate(parents):
        if parent >= 0:
            out[parent].append(child)
    return out


def _family(tree: Tree, segment: list[int]) -> tuple[JointKind, bool]:
    """Segments that agree in it can share a run: what moves them, and whether it stands on the world."""
    return tree.kinds[segment[0]].family, tree.parents[segment[0]] < 0


def _stages(tree: Tree, segments: list[list[int]]) -> list[int]:
    """Stage of each segment: roots first, others as late as possible, or earlier if that leaves fewer lanes idle."""
    holder = {body: n for n, segment in enumerate(segments) for body in segment}
    parents = [holder.get(tree.parents[segment[0]], -1) for segment in segments]
    children = _children(parents)
    height = [0] * len(segments)  # segments below, along the longest path
    for n in reversed(range(len(segments))):
        height[n] = max((1 + height[c] for c in children[n]), default=0)
    last = max(height, default=0)
    stages = [0 if parent < 0 else last - h for parent, h in zip(parents, height, strict=True)]
    chains = [(len(segment), bool(below)) for segment, below in zip(segments, children, strict=True)]
    families = [_family(tree, segment) for segment in segments]
    together: dict[tuple, list[tuple[int, bool]]] = {}
    for slot, chain in zip(zip(stages, families, strict=True), chains, strict=True):
        together.setdefault(slot, []).append(chain)
    movable = sorted((n for n, p in enumerate(parents) if p >= 0), key=lambda n: -len(segments[n]))
    for n in movable * SEARCHES:
        slots = range(stages[parents[n]] + 1, min((stages[c] for c in children[n]), default=last + 1))
        if len(slots) == 1:
            continue
        together[stages[n], families[n]].remove(chains[n])
        others = [together.setdefault((at, families[n]), []) for at in slots]
        added = [_cuts([*other, chains[n]])[0] - _cuts(other)[0] for other in others]
        stages[n] = min(slots, key=lambda at: (added[at - slots[0]], at != stages[n], -at))
        together[stages[n], families[n]].append(chains[n])
    return stages


def _cuts(chains: list[tuple[int, bool]]) -> tuple[float, list[int]]:
    """The least cost of runs and idle lanes, and the rows at which to cut chains side by side into such rectangles.

    chains: the length of each, and whether it has children. If so its lane may not run idle, because its children need
    what its last body hands on.
    """
    length = max((size for size, _ in chains), default=0)
    widths = [sum(size > row for size, _ in chains) for row in range(length)]
    ends = sorted({size for size, has_children in chains if has_children})
    best: list[tuple[float, list[int]]] = [(0.0, [0])]
    for stop in range(1, length + 1):
        first = max((end for end in ends if end < stop), default=0)
        options = [best[start][0] + RUN_COST + widths[start] * (stop - start) for start in range(first, stop)]
        start = int(np.argmin(options))
        best.append((options[start], [*best[first + start][1], stop]))
    return best[-1]


def _rectangles(tree: Tree, segments: list[list[int]]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Rows of equal width; a lane that has ended repeats its last body."""
    parents = set(tree.parents)
    _, cuts = _cuts([(len(segment), segment[-1] in parents) for segment in segments])
    for start, stop in pairwise(cuts):
        lanes = [segment for segment in segments if len(segment) > start]
        yield tuple(tuple(lane[min(row, len(lane) - 1)] for lane in lanes) for row in range(start, stop))


def _kind(tree: Tree, rows: tuple[tuple[int, ...], ...]) -> JointKind:
    """The kind of all, or the most general one of their family."""
    kinds = {tree.kinds[body] for row in rows for body in row}
    return kinds.pop() if len(kinds) == 1 else tree.kinds[rows[0][0]].family
