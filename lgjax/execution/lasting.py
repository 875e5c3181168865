"""For drivers on the host, such as searches: programs that last from one call to the next, and batches in groups.

Read first: `compiled.py`, then `forms.py` for the numbers that functions hold.
"""

import os
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution.callbacks import contents
from lgjax.execution.compiled import compile_ahead
from lgjax.execution.forms import NEEDS_NUMBERS, form_of
from lgjax.execution.reference import is_plain

T = TypeVar("T")

KEPT = 16  # sets of programs that are kept, the most recently used
SHAPES = 8  # programs of one name in a set, of arguments of other shapes or devices
GROUP = 32  # systems that one core of a CPU works on side by side

_kept: dict[Hashable, "Programs"] = {}


class Program:
    """A compiled program, the shapes of its results, and the memory that it takes, None if XLA does not say."""

    def __init__(self, lowered: Any, run: Callable) -> None:
        self.run, self.shapes = run, lowered.out_info

    @cached_property
    def memory(self) -> Any:
        return self.run.memory_analysis()  # type: ignore[attr-defined]


class Programs:
    """Compiled programs of functions that read the same, by name, and by kind and devices of their arguments.

    needs_numbers: whether the functions have failed with their numbers as arguments.
    """

    def __init__(self) -> None:
        self.known: dict[str, dict[Hashable, Any]] = {}
        self.needs_numbers = False

    def compiled(self, name: str, function: Callable, *args: Any, options: dict[str, Any] | None = None) -> "Program":
        """The program of `function` for arguments like these; options are the compiler's."""
        make = lambda: Program(*compile_ahead(jax.jit(function), *args, options=options))
        return self.remembered(name, args, make, repr(options))

    def remembered(self, name: str, args: Any, make: Callable[[], Any], *more: Hashable) -> Any:
        """The result of make(), which follows from kind and devices of `args`, JAX's settings and `more`."""
        leaves, treedef = jax.tree.flatten(args)
        kinds = tuple((jax.typeof(x), x.sharding) for x in map(jnp.asarray, leaves))
        settings = is_plain(), jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
        return _recent(self.known.setdefault(name, {}), (treedef, kinds, settings, more), make, SHAPES)


Way = tuple[Programs, list[Any], Callable[[list[Any]], Any]]  # programs, numbers, and what makes the whole of these


def first_traced(read: Any, use: Callable[[Way], T], constant: bool = False) -> T:
    """use(way) for the first of the ways of `programs_of` in which what reads `read` can be traced."""
    refused = []
    for way in programs_of(read, constant):
        try:
            found = use(way)
        except NEEDS_NUMBERS:
            if not way[1]:
                raise
            refused.append(way[0])
        else:
            for programs in refused:
                programs.needs_numbers = True
            return found
    raise AssertionError("the last of them hold all numbers")


def programs_of(read: Any, constant: bool = False) -> Iterator[Way]:
    """Programs of functions that read `read`, its numbers, and `read` as a function of these, in several ways.

    The programs of the first have all numbers as arguments, so other numbers take the same ones. A function that needs
    them to be known fails with one of NEEDS_NUMBERS; then take the next, whose programs hold those of users' functions,
    and in the end all. The last are new ones if what they read can change in place. constant: only the last.
    """
    for closed in () if constant else (False, True):
        found = form_of(read, closed)
        programs = Programs() if found is None else _recent(_kept, found[0], Programs, KEPT)
        if found is not None and not programs.needs_numbers:
            yield programs, found[1], found[0].filled
    key = contents(read)
    yield Programs() if key is None else _recent(_kept, key, Programs, KEPT), [], lambda _: read


def _recent(kept: dict, key: Hashable, make: Callable[[], Any], most: int) -> Any:
    """The value of a key, made if it is not there; of `most` at most, the most recently used."""
    value = kept.pop(key) if key in kept else make()
    kept[key] = value
    while len(kept) > most:
        del kept[next(iter(kept))]
    return value


def default_platform() -> str:
    """The platform of JAX's default device, "cpu" or "gpu".

    For what runs on the host before a program is traced: how a driver cuts a batch, how a benchmark measures. Inside
    programs the platform is chosen where they are lowered (`operation.py`).
    """
    return jax.default_backend()


def in_groups(function: Callable, trees: Any, *others: Any) -> Any:
    """`jax.vmap` of function(tree, *others) over trees; on one CPU one group after the other.

    Loops in a group end when its own systems have ended. The last group is filled up with copies of the last system.
    """
    size, count = GROUP * max(1, os.cpu_count() or 1), len(jax.tree.leaves(trees)[0])
    several = jax.vmap(lambda tree: function(tree, *others))
    if count <= size or default_platform() == "gpu" or jax.local_device_count() > 1:
        return several(trees)
    groups = -(-count // size)
    places = np.minimum(np.arange(groups * size), count - 1).reshape(groups, size)
    found = jax.lax.map(several, jax.tree.map(lambda x: x[places], trees))
    return jax.tree.map(lambda x: x.reshape(groups * size, *x.shape[2:])[:count], found)
