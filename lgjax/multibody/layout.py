"""Which bodies of a tree run together: levels of equal depth, gathered in rectangles.

Source: none; a static schedule that trades idle lanes against the number of loops that XLA has to compile.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from lgjax.multibody.joints import JointKind
from lgjax.multibody.tree import Tree

RUN_COST = 8  # idle lanes that one run less is worth: a run costs some 200 kernels to compile


@dataclass(frozen=True)
class Group:
    """Lanes of one kind: bodies (length, width), row i + 1 holds the children of row i.

    A lane whose chain has ended repeats its last body until the run ends; `alive` tells them apart.
    """

    kind: JointKind
    bodies: tuple[tuple[int, ...], ...]

    @property
    def width(self) -> int:
        return len(self.bodies[0])

    @cached_property
    def index(self) -> np.ndarray:
        """(length, width) body indices."""
        return np.asarray(self.bodies)

    @cached_property
    def alive(self) -> np.ndarray:
        """(length, width) bool, false where a lane repeats the body of the row before."""
        return np.concatenate([np.ones((1, self.width), bool), self.index[1:] != self.index[:-1]])


@dataclass(frozen=True)
class Run:
    """Groups that advance together, and for each lane of the first level the lane of its parent in the run before."""

    groups: tuple[Group, ...]
    parents: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.groups[0].bodies)

    @property
    def width(self) -> int:
        return sum(group.width for group in self.groups)


@lru_cache(maxsize=256)
def layout(tree: Tree) -> tuple[Run, ...]:
    """The runs of a tree, roots first."""
    runs: list[Run] = []
    level = [b for b in range(tree.nbodies) if tree.parents[b] < 0]
    lanes = {-1: 0}  # body of the last level -> its lane
    families = sorted(dict.fromkeys(kind.family for kind in tree.kinds), key=lambda kind: kind.name)
    rank = {family: number for number, family in enumerate(families)}  # kinds of users may share a name
    while level:
        level.sort(key=lambda b: (rank[tree.kinds[b].family], lanes[tree.parents[b]]))
        rows = [level]
        while (following := _continuation(tree, rows[-1])) is not None:
            rows.append(following)
        for start, stop in _pieces(rows):
            part = _rectangle(tree, rows[start:stop])
            runs.append(Run(_groups(tree, part), tuple(lanes[tree.parents[b]] for b in part[0])))
            lanes = {b: lane for lane, b in enumerate(part[-1]) if b in rows[stop - 1]}
        level = [b for b in range(tree.nbodies) if tree.parents[b] in lanes]
    return tuple(runs)


def _continuation(tree: Tree, row: list[int]) -> list[int] | None:
    """The children of a row if there are any, at most one each and of its parent's family, in the order of the row."""
    children: dict[int, list[int]] = {b: [] for b in row}
    for body, parent in enumerate(tree.parents):
        if parent in children:
            children[parent].append(body)
    following = [c for b in row for c in children[b]]
    straight = all(len(c) <= 1 for c in children.values())
    same = all(tree.kinds[c].family == tree.kinds[tree.parents[c]].family for c in following)
    return following if following and straight and same else None


def _pieces(rows: list[list[int]]) -> list[tuple[int, int]]:
    """Cuts a sequence of rows, each no wider than the one before, so that runs and idle lanes cost least."""
    best: list[tuple[float, int]] = [(0.0, 0)]
    for stop in range(1, len(rows) + 1):
        cost = [best[start][0] + RUN_COST + len(rows[start]) * (stop - start) for start in range(stop)]
        start = int(np.argmin(cost))
        best.append((cost[start], start))
    pieces, stop = [], len(rows)
    while stop:
        pieces.append((best[stop][1], stop))
        stop = best[stop][1]
    return pieces[::-1]


def _rectangle(tree: Tree, rows: list[list[int]]) -> list[list[int]]:
    """Rows of equal width: a lane that has ended repeats its last body."""
    full = [rows[0]]
    for row in rows[1:]:
        child = {tree.parents[b]: b for b in row}
        full.append([child.get(b, b) for b in full[-1]])
    return full


def _groups(tree: Tree, rows: list[list[int]]) -> tuple[Group, ...]:
    """Lanes gathered by family; a family of mixed kinds runs as its most general kind."""
    groups = []
    families = [tree.kinds[b].family for b in rows[0]]
    for family in dict.fromkeys(families):
        lanes = [i for i, f in enumerate(families) if f == family]
        kinds = {tree.kinds[row[i]] for row in rows for i in lanes}
        kind = kinds.pop() if len(kinds) == 1 else family
        groups.append(Group(kind, tuple(tuple(row[i] for i in lanes) for row in rows)))
    return tuple(groups)
