"""The compiled programs of searches, kept from one call of `optimize_controls` to the next.

A search belongs to its system, costs, constraints, bounds and method: as long as these do the same
(`execution/callbacks.py`), another start and other guesses take the programs that are there.
"""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution.callbacks import contents
from lgjax.execution.compiled import compile_ahead
from lgjax.numerics import checks

KEPT = 16  # searches whose programs are kept, the most recently used

_kept: dict[Hashable, "Programs"] = {}


class Programs:
    """The programs of the functions of a search, each of (search, *arrays), by kind and devices of the arrays.

    The start of the problem is one of the arrays.
    """

    def __init__(self) -> None:
        self.known: dict[Hashable, Callable] = {}

    def compiled(self, name: str, function: Callable, search: Any, *args: Any) -> Callable:
        """The program of `function(search, *args)`: it takes the start of the problem, then args."""
        start = search.problem.start
        leaves, treedef = jax.tree.flatten((start, args))
        key = name, treedef, tuple((x.shape, x.dtype, x.sharding) for x in map(jnp.asarray, leaves))
        if key not in self.known:
            run = jax.jit(lambda start, *args: function(started(search, start), *args))
            checks.holds_nothing_traced("optimize_controls", run, start, *args)  # nor do the system and the costs
            self.known[key] = compile_ahead(run, start, *args)[1]
        return self.known[key]


def started(search: Any, start: Any) -> Any:
    """The search from another start."""
    return search._replace(problem=search.problem._replace(start=start))


def programs_of(search: Any) -> Programs:
    """The programs of a search, or new ones where what it reads may change in place."""
    problem = search.problem
    bounds = tuple(np.asarray(x).tobytes() for x in (problem.lower, problem.upper))
    read = contents(search._replace(problem=problem._replace(start=None, lower=None, upper=None)))
    if read is None:
        return Programs()
    key = read, bounds, str(problem.dtype)
    found = _kept.pop(key, None) or Programs()
    _kept[key] = found
    while len(_kept) > KEPT:
        del _kept[next(iter(_kept))]
    return found
