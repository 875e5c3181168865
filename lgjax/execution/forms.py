"""The form of a user's function: all of it but the numbers that it holds, which become arguments of a program.

Read first: `callbacks.py`, which says when two functions do the same.  Here they may differ in floating numbers: in
arrays and Python floats of their closures, defaults and partial calls, and of the records, lists and dictionaries that
these hold.  So a new lambda with another gain, or a cost with another target, takes the program that is there.

Of library code only JAX arrays, leaves of pytrees and fields marked `NUMBERS` are numbers; what else it holds, such as
the tolerance of a method, may decide what is computed.  So may a user's number: a function that tests it fails when
it is traced, and whoever calls this module then takes `callbacks.contents`, by which other numbers make another
function.
"""

import dis
from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import jax
import numpy as np

from lgjax.execution._jax import is_traced
from lgjax.execution.callbacks import (
    MARKS,
    ChangingError,
    Same,
    functions_in,
    has_imports,
    is_empty,
    is_of_a_library,
    is_settled,
    members,
    names_in,
    read,
)

Make = Callable[[Sequence], Any] | None  # a value from the numbers of the whole; None for the value itself

HOLDS_NUMBERS = "lgjax numbers"
NUMBERS = {HOLDS_NUMBERS: True}  # metadata of a dataclass's field, whose floats and NumPy arrays are numbers, too
NUMBER = Same("number")
# What a function raises if it needs a number that is traced: `float(x)`, `if x:`, `np.sin(x)`, `table[x]`.
NEEDS_NUMBERS = (TypeError, ValueError, IndexError, AttributeError, KeyError)


class Form:
    """A value without its numbers: equal to others whose values differ in these alone."""

    __slots__ = ("_hash", "count", "key", "make")

    def __init__(self, key: Hashable, count: int, make: Callable[[Sequence], Any]):
        self.key, self.count, self.make = key, count, make
        self._hash = hash(key)

    def filled(self, numbers: Sequence) -> Any:
        """The value with these numbers."""
        return self.make(_Numbers(numbers))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return type(other) is Form and other._hash == self._hash and other.key == self.key


def form_of(value: Any, closed: bool = False) -> tuple[Form, list[Any]] | None:
    """The form of a value and its numbers; None if it has none, or if something that it reads can change in place.

    closed: what users' functions hold belongs to the form, for functions that need to know it.
    """
    reader = _Reader(closed)
    try:
        make = reader.visit(value, False)
        if make is None:
            return None
        return Form(tuple(reader.found), len(reader.numbers), make), reader.numbers
    except (ChangingError, TypeError):  # TypeError: something cannot be hashed
        return None


def with_numbers(function: Callable) -> tuple[Callable[[Sequence], Callable], list[jax.Array]]:
    """(fill, arrays) with fill(arrays) the function: traced arrays that it holds; none where it has no form."""
    found = form_of(function)
    if found is None:
        return lambda _: function, []
    form, numbers = found
    places = [n for n, x in enumerate(numbers) if is_traced(x)]
    fill = lambda values: form.filled(
        list((dict(enumerate(numbers)) | dict(zip(places, values, strict=True))).values())
    )
    return fill, [numbers[n] for n in places]


class _Reader:
    def __init__(self, closed: bool) -> None:
        self.closed = closed
        self.found: list[Hashable] = []
        self.numbers: list[Any] = []
        self.seen: dict[int, int] = {}  # of what is only read
        self.made: dict[int, tuple[int, Make]] = {}
        self.unfinished: set[int] = set()

    def visit(self, value: Any, free: bool) -> Make:
        """free: whether Python floats and NumPy arrays count as numbers."""
        if isinstance(value, jax.Array | np.ndarray | np.generic) or (free and type(value) in (float, complex)):
            return self._number(value, free)
        kind = _kind(value)
        if kind is None:
            read(value, self.found, self.seen)
            return None
        if id(value) in self.unfinished:
            raise ChangingError  # a function that reads itself has no numbers to fill in before it is made
        if id(value) in self.made:
            index, make = self.made[id(value)]
            self.found.append(("again", index))
            return make
        self.unfinished.add(id(value))
        make = _once(kind(self, value, free))
        self.unfinished.discard(id(value))
        self.made[id(value)] = len(self.made), make
        return make

    def _number(self, value: Any, free: bool) -> Make:
        dtype = getattr(value, "dtype", None)
        exact = getattr(dtype, "kind", "V") in "iub"
        if isinstance(value, np.ndarray | np.generic) and (exact or self.closed or not free):
            self.found.append((str(dtype), value.shape, value.tobytes()))
            return None if isinstance(value, np.generic) else _constant(value)
        if exact:
            if is_traced(value):
                raise ChangingError
            held = np.asarray(value)  # integers may decide what is computed
            self.found.append((str(dtype), held.shape, held.tobytes(), "jax"))
            return None
        if self.closed and free:
            read(value, self.found, self.seen)
            return None
        self.found.append(NUMBER)
        self.numbers.append(value)
        index = len(self.numbers) - 1
        return lambda numbers: numbers[index]

    def several(self, values: Sequence, free: bool | list[bool]) -> tuple[Callable[[Sequence], list], bool]:
        """The function that makes all of these, and whether any differs from what is there. free: for all, or each."""
        each = free if isinstance(free, list) else [free] * len(values)
        makes = [self.visit(value, one) for value, one in zip(values, each, strict=True)]
        kept = [value if make is None else None for value, make in zip(values, makes, strict=True)]
        made = lambda numbers: [x if make is None else make(numbers) for x, make in zip(kept, makes, strict=True)]
        return made, any(make is not None for make in makes)


def _constant(array: np.ndarray) -> Make:
    held = np.array(array)
    held.setflags(write=False)
    return lambda numbers: held


class _Numbers(list):
    """The numbers of one filling, and what is made of them: a value that several others hold stays one."""

    def __init__(self, numbers: Sequence):
        super().__init__(numbers)
        self.made: dict[int, Any] = {}


def _once(make: Make) -> Make:
    if make is None:
        return None

    def made(numbers: Any) -> Any:
        if id(make) not in numbers.made:
            numbers.made[id(make)] = make(numbers)
        return numbers.made[id(make)]

    return made


# ---- kinds of values that can be made again
def _kind(value: Any) -> Callable[[_Reader, Any, bool], Make] | None:
    if isinstance(value, FunctionType):
        return None if is_settled(value) else _function
    if isinstance(value, MethodType):
        return _method
    if isinstance(value, partial):
        return _partial
    if isinstance(value, type) or value is None:
        return None
    if isinstance(value, tuple):
        return _tuple
    if type(value) in COPIES:
        return _container
    if not jax.tree_util.all_leaves([value]):
        return _node
    if is_dataclass(value) and type(value).__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return _record
    return None


def _function(reader: _Reader, function: FunctionType, _: bool) -> Make:
    code, users = function.__code__, not is_of_a_library(function.__module__)
    if set(vars(function)) - MARKS or has_imports(code) or _assigns(code):
        raise ChangingError
    cells = function.__closure__ or ()
    filled = [k for k, cell in enumerate(cells) if not is_empty(cell)]
    reader.found.append((code, len(cells), tuple(filled)))
    names = function.__globals__
    for name in names_in(code):
        if name in names:
            read(names[name], reader.found, reader.seen)
    own = [cells[k].cell_contents for k in filled]
    defaults, named = function.__defaults__ or (), function.__kwdefaults__ or {}
    reader.found.append((len(defaults), tuple(named)))
    make, differs = reader.several([*own, *defaults, *named.values()], users)
    if not differs:
        return None
    title, keys, empty = function.__name__, tuple(named), len(cells)
    first, last = len(own), len(own) + len(defaults)

    def made(numbers: Sequence) -> FunctionType:
        values = make(numbers)
        fresh = [CellType() for _ in range(empty)]
        for k, value in zip(filled, values[:first], strict=True):
            fresh[k].cell_contents = value
        new = FunctionType(code, names, title, tuple(values[first:last]) or None, tuple(fresh))
        new.__kwdefaults__ = dict(zip(keys, values[last:], strict=True)) or None
        return new

    return made


def _method(reader: _Reader, method: MethodType, free: bool) -> Make:
    reader.found.append(MethodType)
    make, differs = reader.several([method.__func__, method.__self__], free)
    return (lambda numbers: MethodType(*make(numbers))) if differs else None


def _partial(reader: _Reader, call: partial, _: bool) -> Make:
    if vars(call):
        raise ChangingError
    kind, names = type(call), tuple(call.keywords)
    free = issubclass(kind, jax.tree_util.Partial) or not is_of_a_library(getattr(call.func, "__module__", None))
    reader.found.append((kind, len(call.args), names))
    make, differs = reader.several([call.func, *call.args, *call.keywords.values()], free)
    if not differs:
        return None
    stop = 1 + len(call.args)

    def made(numbers: Sequence) -> partial:
        values = make(numbers)
        return kind(*values[:stop], **dict(zip(names, values[stop:], strict=True)))

    return made


def _tuple(reader: _Reader, value: tuple, free: bool) -> Make:
    kind = type(value)
    reader.found.append((kind, len(value)))
    if not is_of_a_library(kind.__module__):
        free = True
        for part in members(kind, reader.seen):
            read(part, reader.found, reader.seen)
    make, differs = reader.several(value, free)
    return (lambda numbers: tuple.__new__(kind, make(numbers))) if differs else None


def _node(reader: _Reader, value: Any, _: bool) -> Make:
    """A node of a pytree: its leaves are numbers, whosever it is; what is static counts by value."""
    kind = type(value)
    children, treedef = jax.tree.flatten(value, is_leaf=lambda x: x is not value)
    reader.found.append((kind, len(children), treedef))
    for function in functions_in(treedef.node_data()[1]):
        read(function, reader.found, reader.seen)
    if not is_of_a_library(kind.__module__):
        for part in members(kind, reader.seen):
            read(part, reader.found, reader.seen)
    make, differs = reader.several(children, True)
    return (lambda numbers: treedef.unflatten(make(numbers))) if differs else None


def _refuse(*_: Any, **__: Any) -> Any:
    raise TypeError("a program reads a copy of this container, which cannot be changed")


CHANGES = {
    list: "append clear extend insert pop remove reverse sort __setitem__ __delitem__ __iadd__ __imul__",
    dict: "clear pop popitem setdefault update __setitem__ __delitem__ __ior__",
}
COPIES = {
    kind: type(f"_{kind.__name__}", (kind,), dict.fromkeys(names.split(), _refuse)) for kind, names in CHANGES.items()
}
jax.tree_util.register_pytree_node(COPIES[list], lambda x: (tuple(x), None), lambda _, x: COPIES[list](x))
jax.tree_util.register_pytree_with_keys(
    COPIES[dict],
    lambda x: ([(jax.tree_util.DictKey(k), x[k]) for k in sorted(x)], tuple(sorted(x))),
    lambda keys, x: COPIES[dict](zip(keys, x, strict=True)),
)


def _container(reader: _Reader, value: Any, free: bool) -> Make:
    """A copy of a list or dictionary that cannot be changed: a function that tries runs without a program."""
    copy, keys = COPIES[type(value)], range(len(value)) if isinstance(value, list) else tuple(value)
    reader.found.append((type(value), tuple(keys), tuple(map(type, keys))))
    make, _ = reader.several([value[key] for key in keys], free)
    if isinstance(value, list):
        return lambda numbers: copy(make(numbers))
    return lambda numbers: copy(zip(keys, make(numbers), strict=True))


def _record(reader: _Reader, value: Any, _: bool) -> Make:
    """A frozen dataclass, made without its checks."""
    kind, names = type(value), [field.name for field in fields(value)]
    users = not is_of_a_library(kind.__module__)
    free = [users or field.metadata.get(HOLDS_NUMBERS, False) for field in fields(value)]
    reader.found.append(kind)
    if users:
        for part in members(kind, reader.seen):
            read(part, reader.found, reader.seen)
    make, differs = reader.several([getattr(value, name) for name in names], free)
    if not differs:
        return None

    def made(numbers: Sequence) -> Any:
        new = object.__new__(kind)
        for name, x in zip(names, make(numbers), strict=True):
            object.__setattr__(new, name, x)
        return new

    return made


@lru_cache(1024)
def _assigns(code: CodeType) -> bool:
    """Whether a function writes to variables of the functions around it, which one made again would not share."""
    written = {x.argval for x in dis.get_instructions(code) if x.opname in ("STORE_DEREF", "DELETE_DEREF")}
    inner = any(_assigns(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return inner or not written.isdisjoint(code.co_freevars)
