"""Compiled programs for calls outside jit: one for each structure of the arguments.

Read first: `compiled`, then `callbacks.py` for arguments that are users' functions.  `compile_ahead` is for programs
that take longer to compile than to run.  It says what it does to the logger "lgjax" at the level INFO, which nobody
sees unless asked for; the command line asks.
"""

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from itertools import islice
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from lgjax.execution._jax import is_inside_jit, is_traced
from lgjax.execution.callbacks import Same, contents, functions_in, members
from lgjax.execution.collection import uncollected
from lgjax.execution.forms import NEEDS_NUMBERS, Form, form_of

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("lgjax")

STRUCTURES = 256  # structures of all functions together whose programs are kept, the most recently used
VERSIONS = 64  # programs kept of structures that hold users' functions, one for each content of what these read

COMPILE_TO_TRACE = 6.0  # seconds of compiling for one of tracing and lowering, on a CPU: 5 to 8 for rollouts, searches

ARRAY = Same("array")  # stands for a leaf that may change from call to call


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a pure function that returns arrays, to run as one compiled program outside of jit.

    Under vmap and derivatives outside of jit, the program is transformed as a whole.

    Floating arrays and numbers among the leaves of its arguments may change from call to call; everything else belongs
    to the structure, by value: integers (arrays of them too), text, methods, None.  Users' functions belong to it by
    their code and what they read besides their arguments: a lambda written anew for each call counts as the same one.
    Floating numbers that they hold may change too (`forms.form_of`), unless the function needs them to be known, as for
    an `if`: then they belong to the structure (`callbacks.contents`).  Where something that a function reads can change
    in place, and for values that cannot be compared, each call is traced, as it is without this decorator.

    Inside jit this is `function` itself.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if is_inside_jit():
            return function(*args, **kwargs)
        leaves, treedef = jax.tree.flatten((args, kwargs))
        sorts = [SORTS.get(type(leaf)) or _sort(leaf) for leaf in leaves]
        refused = []
        for closed in (False, True, None) if _function in sorts else (None,):
            structure, arrays = _looked_up(function, treedef, leaves, sorts, closed)
            program = None if structure is None or structure.needs_numbers else structure.program()
            if program is None:
                continue
            try:
                found = program(arrays)
            except NEEDS_NUMBERS:  # or an error of the ordinary call, which names values, not tracers
                refused.append(structure)
            else:
                break
        else:
            found = function(*args, **kwargs)
        for structure in refused:
            structure.needs_numbers = True
        return found

    return call


def _looked_up(function: Callable, treedef: Any, leaves: list, sorts: list, closed: bool | None) -> tuple[Any, list]:
    """The structure of a call, None if it can have no program, and its arrays.

    closed: of functions the numbers are arrays too, if True only what is no user's, if None none.
    """
    arrays, static = [], []
    for leaf, sort in zip(leaves, sorts, strict=True):
        found = form_of(leaf, closed) if closed is not None and sort is _function else None
        if found is not None:
            static.append(found[0])
            arrays += found[1]
            continue
        mark = ARRAY if sort is float else sort(leaf)
        if mark is None:
            return None, []
        static.append(mark)
        if mark is ARRAY:
            arrays.append(leaf)
    if closed is not None and not any(type(mark) is Form for mark in static):
        return None, []
    try:
        return _structure(function, treedef, tuple(static)), arrays
    except TypeError:  # something in it cannot be hashed
        return None, []


# ---- leaves: their markers in the structure, None if there can be no program
def _value(leaf: Any) -> Hashable:
    return type(leaf), leaf


def _array(leaf: Any) -> Hashable:
    """Integers may decide what is computed, so they are known: indices, numbers of steps."""
    if getattr(leaf.dtype, "kind", "V") not in "iub":
        return ARRAY
    numbers = np.asarray(leaf)
    return _Known((numbers.dtype.str, numbers.shape, numbers.tobytes()), leaf)


def _function(leaf: Any) -> Hashable:
    found = contents(leaf)
    return None if found is None else _Known(found, leaf)


def _tracer(leaf: Any) -> Hashable:
    """Integers that are not known can be no part of a structure."""
    return ARRAY if leaf.dtype.kind not in "iub" else None


class _Known:
    """A leaf that belongs to the structure, equal to others with the same key."""

    __slots__ = ("key", "leaf")

    def __init__(self, key: Hashable, leaf: Any):
        self.key, self.leaf = key, leaf

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return type(other) is _Known and other.key == self.key


SORTS: dict[type, Callable[[Any], Any]] = {float: float, complex: float, int: _value, bool: _value, str: _value}


def _sort(leaf: Any) -> Callable[[Any], Any]:
    """The function that marks leaves of this type; remembered for types of arrays, of which there are few."""
    if is_traced(leaf):
        return SORTS.setdefault(type(leaf), _tracer)
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return SORTS.setdefault(type(leaf), _array)
    if isinstance(leaf, type) or (type(leaf).__hash__ not in (None, object.__hash__) and not _calls(leaf)):
        return _value
    return _function


def _calls(leaf: Any) -> bool:
    """Whether a leaf is a function, or a record that holds one, such as a `ControlSystem`."""
    return callable(leaf) or (is_dataclass(leaf) and any(callable(getattr(leaf, x.name)) for x in fields(leaf)))


# ---- programs
class _Structure:
    """A function with all of its arguments but the arrays, and its compiled program."""

    def __init__(self, function: Callable, treedef: Any, static: tuple):
        self.function, self.treedef, self.static = function, treedef, static
        self.needs_numbers = False  # whether it failed with numbers of functions as arguments
        held = [x.leaf if isinstance(x, _Known) else x[1] for x in static if x is not ARRAY and type(x) is not Form]
        held = [x for x in held if not callable(x) or isinstance(x, type)]  # functions themselves are in the structure
        self.functions = [*functions_in(tuple(held)), *functions_of(treedef)]
        self.only = None if self.functions else self._compile()

    def program(self) -> Callable[[list], Any] | None:
        if self.only is not None:
            return self.only
        reads = tuple(map(contents, self.functions))
        return None if None in reads else _version(self, reads)

    def _compile(self) -> Callable[[list], Any]:
        function, treedef, static = self.function, self.treedef, self.static

        def run(arrays):
            stream = iter(arrays)
            args, kwargs = treedef.unflatten([_leaf(mark, stream) for mark in static])
            return function(*args, **kwargs)

        run.__name__ = getattr(function, "__name__", "run")
        return jax.jit(run)


def _leaf(mark: Any, arrays: Iterator) -> Any:
    if mark is ARRAY:
        return next(arrays)
    if type(mark) is Form:
        return mark.filled(list(islice(arrays, mark.count)))
    return mark.leaf if isinstance(mark, _Known) else mark[1]


_structure = lru_cache(STRUCTURES)(_Structure)


@lru_cache(VERSIONS)
def _version(structure: _Structure, reads: tuple) -> Callable[[list], Any]:
    return structure._compile()


def functions_of(treedef: Any) -> list:
    """The users' functions in the structure of a pytree: in its static data, and methods of its nodes."""
    return [*functions_in(tuple(_auxiliary(treedef))), *_methods(treedef)]


def _auxiliary(treedef: Any) -> list:
    """The static data of all nodes of a tree."""
    data = treedef.node_data()
    own = [] if data is None else [data[1]]
    return [*own, *(x for child in treedef.children() for x in _auxiliary(child))]


def _methods(treedef: Any) -> list:
    """Members of users' pytree classes that act, such as a controller that is a named tuple of its gains."""
    data = treedef.node_data()
    kind = tuple if data is None else data[0]
    acts = any(name in vars(base) for base in kind.__mro__ for name in ("__call__", "step"))
    own = members(kind) if acts else []
    return [*own, *(x for child in treedef.children() for x in _methods(child))]


# ---- ahead of the first call
_abandoned: list[Any] = []  # programs that XLA's threads still read after an interrupt: if freed, they crash


def compile_ahead(function: Any, *args: Any, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """(lowered, compiled) of a jitted function for arguments like `args`; options are the compiler's."""
    logger.info("tracing")
    started = time.perf_counter()
    with uncollected():
        lowered = function.lower(*args)
    seconds = COMPILE_TO_TRACE * (time.perf_counter() - started)
    logger.info("compiling, about %.0f s the first time", max(1.0, seconds))
    try:
        return lowered, lowered.compile(compiler_options=options)
    except KeyboardInterrupt:
        _abandoned.append(lowered)
        raise
