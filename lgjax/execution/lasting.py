"""For drivers on the host, such as searches: programs that last from one call to the next, and batches in groups.

Read first: `compiled.py`.
"""

import os
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution.callbacks import contents
from lgjax.execution.compiled import compile_ahead

KEPT = 16  # sets of programs that are kept, the most recently used
GROUP = 32  # systems that one core of a CPU works on side by side

_kept: dict[Hashable, "Programs"] = {}


class Programs:
    """Compiled programs of functions that read the same, by name, and by kind and devices of their arguments."""

    def __init__(self) -> None:
        self.known: dict[Hashable, Callable] = {}

    def compiled(self, name: str, function: Callable, *args: Any) -> Callable:
        """The program of `function` for arguments like these."""
        leaves, treedef = jax.tree.flatten(args)
        key = name, treedef, tuple((x.shape, x.dtype, x.sharding) for x in map(jnp.asarray, leaves))
        if key not in self.known:
            self.known[key] = compile_ahead(jax.jit(function), *args)[1]
        return self.known[key]


def programs_of(read: Any, *values: Hashable) -> Programs:
    """The programs of functions that read `read` (see `contents`) and these values.

    New ones where what they read can change in place.
    """
    found = contents(read)
    if found is None:
        return Programs()
    key = found, values
    programs = _kept.pop(key, None) or Programs()
    _kept[key] = programs
    while len(_kept) > KEPT:
        del _kept[next(iter(_kept))]
    return programs


def in_groups(function: Callable, trees: Any, *others: Any) -> Any:
    """`jax.vmap` of function(tree, *others) over trees; on one CPU one group after the other.

    Loops in a group end when its own systems have ended. The last group is filled up with copies of the last system.
    """
    size, count = GROUP * max(1, os.cpu_count() or 1), len(jax.tree.leaves(trees)[0])
    several = jax.vmap(lambda tree: function(tree, *others))
    if count <= size or jax.default_backend() == "gpu" or jax.local_device_count() > 1:
        return several(trees)
    groups = -(-count // size)
    places = np.minimum(np.arange(groups * size), count - 1).reshape(groups, size)
    found = jax.lax.map(several, jax.tree.map(lambda x: x[places], trees))
    return jax.tree.map(lambda x: x.reshape(groups * size, *x.shape[2:])[:count], found)
