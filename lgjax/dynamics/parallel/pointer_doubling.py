"""Recursions along the paths of a tree in a number of rounds that grows with the logarithm of its depth.

In round k every lane joins its own partial result with that of the lane 2^k steps further along its path, which covers
the next 2^k bodies (pointer doubling): all bodies work in all rounds, so that depth is bought with work. Towards the
root the path of a body is that of its ancestors. Towards the leaves paths branch; there the tree is cut into heavy
paths, each from a body to the child with most descendants and so on, and the paths that hang on a path go first. Of
such levels there are at most log2(nbodies) + 1, one for a chain.

Source: [hillis1986] (doubling); D. D. Sleator and R. E. Tarjan, A data structure for dynamic trees, 1983 (heavy paths).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lgjax.multibody.tree import Tree


class Reach(NamedTuple):
    """For each round k the lane 2^k steps further along the path of each, (rounds, lanes), and whether there is one."""

    lane: np.ndarray
    within: np.ndarray


class Level(NamedTuple):
    """Heavy paths that run together: bodies (m,), and their children on other paths (m, w), padded by nbodies."""

    bodies: np.ndarray
    light: np.ndarray
    reach: Reach


class Paths(NamedTuple):
    """Paths of a tree: reach to ancestors, the heavy child of each body (nbodies for a leaf), levels, leaves first."""

    ancestors: Reach
    heavy: np.ndarray
    levels: tuple[Level, ...]


@lru_cache(maxsize=256)
def paths(tree: Tree) -> Paths:
    """The static schedule of a tree."""
    n = tree.nbodies
    children: list[list[int]] = [[] for _ in range(n)]
    descendants, level, heavy = [1] * n, [0] * n, [n] * n
    for body in reversed(range(n)):  # children come after their parents
        if children[body]:
            heavy[body] = max(children[body], key=lambda c: descendants[c])
            descendants[body] += sum(descendants[c] for c in children[body])
            level[body] = max(level[c] + (c != heavy[body]) for c in children[body])
        if tree.parents[body] >= 0:
            children[tree.parents[body]].append(body)
    for body in range(n):  # a path runs as a whole, when all that hangs on it is done
        if heavy[body] < n:
            level[heavy[body]] = level[body]
    levels = []
    for number in range(max(level) + 1):
        bodies = [body for body in range(n) if level[body] == number]
        light = [[c for c in children[body] if c != heavy[body]] for body in bodies]
        width = max(map(len, light))
        lanes = {body: lane for lane, body in enumerate(bodies)}
        levels.append(
            Level(
                np.asarray(bodies),
                np.asarray([c + [n] * (width - len(c)) for c in light], int),
                _reach([lanes.get(heavy[body], -1) for body in bodies]),
            )
        )
    return Paths(_reach(tree.parents), np.asarray(heavy), tuple(levels))


def _reach(following: Sequence[int]) -> Reach:
    """following: the next lane along the path, -1 at its end."""
    own, further = np.arange(len(following)), np.asarray(following)
    rounds = []
    while (within := further >= 0).any():
        rounds.append((np.where(within, further, own), within))
        further = np.where(within, further[further], -1)
    lane, within = (np.asarray([r[i] for r in rounds]).reshape(-1, len(own)) for i in range(2))
    return Reach(lane.astype(np.int32), within.astype(bool))


def accumulate(join: Callable, elements, reach: Reach):
    """For each lane the elements from it to the end of its path, joined in order by the associative join(near, far).

    elements: a pytree of arrays with a leading lane axis; join takes one element of each lane.
    """

    def double(own, at):
        lane, within = at
        joined = jax.vmap(join)(own, jax.tree.map(lambda x: x[lane], own))
        keep = lambda new, old: jnp.where(within.reshape(-1, *(1,) * (old.ndim - 1)), new, old)
        return jax.tree.map(keep, joined, own), None

    return lax.scan(double, elements, (jnp.asarray(reach.lane), jnp.asarray(reach.within)))[0]


def inward(join: Callable, element: Callable, passed: Callable, zero, paths: Paths):
    """From the leaves to the roots: for each body the sum over its children of what they pass to it.

    element(bodies (m,), received) -> the elements of these bodies, a pytree of arrays, given the sum over the children
    that hang on them beside their path. passed: picks from the elements joined from a body to the end of its path what
    the body passes to its parent. zero: such a value without the body axis. The result has leading axis nbodies.
    """
    n = len(paths.heavy)
    up = jax.tree.map(lambda x: jnp.zeros((n + 1, *x.shape), x.dtype), zero)
    total = jax.tree.map(lambda x: x[:-1], up)
    for level in paths.levels:
        bodies, heavy = level.bodies, paths.heavy[level.bodies]
        received = jax.tree.map(lambda x, i=level.light: x[i].sum(1), up)
        here = passed(accumulate(join, element(bodies, received), level.reach))
        up = jax.tree.map(lambda x, y, i=bodies: x.at[i].set(y), up, here)
        total = jax.tree.map(lambda x, y, z, i=bodies, j=heavy: x.at[i].set(y + z[j]), total, received, up)
    return total
