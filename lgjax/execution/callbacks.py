"""Contents of a user's function: its code and all that it reads besides its arguments.

They say when a compiled program of it may be used again.  A program is compiled from what a function does when it is
traced.  It can be used again as long as the function's code, its defaults, the values in its closure and the globals
that it names are the same objects, and none of these can change in place.  JAX arrays, numbers, text, tuples, frozen
dataclasses, and modules and classes of libraries cannot, provided that they hold nothing else; lists, dictionaries,
NumPy arrays that can be written to, users' modules and classes, what these import, and instances of ordinary classes
can.  Of a user's dataclass or named tuple, what its methods read counts too.
"""

import dis
import enum
import sys
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache, partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import jax
import numpy as np

from lgjax.execution._jax import is_traced

EXACT = (int, float, complex, str, bytes, bool, type(None))  # classes of users that are based on these can change
NUMBERS = (*EXACT, np.generic, np.dtype, enum.Enum)
FIXED = (type, ModuleType, BuiltinFunctionType)
# In a class, made by Python or by decorators.
MADE = {f"__{name}__" for name in (
    "init", "new", "repr", "eq", "hash", "lt", "le", "gt", "ge", "setattr", "delattr", "getnewargs", "replace", "doc",
    "getstate", "setstate", "module", "dict", "weakref", "annotations", "slots", "match_args", "dataclass_fields",
    "dataclass_params", "orig_bases", "parameters", "static_attributes", "firstlineno", "annotate_func", "qualname",
)} | {"_fields", "_field_defaults", "_abc_impl", "_is_protocol", "_is_runtime_protocol"}  # fmt: skip
MARKS = {"__wrapped__", "__override__", "__final__", "__isabstractmethod__", "__no_type_check__"}  # of functions
LIBRARIES = {"jax", "jaxlib", "numpy", "lgjax", "optax", "equinox", "flax", "jaxtyping", "typing_extensions"}
LIBRARIES |= set(sys.stdlib_module_names) - {"__main__"}


class ChangingError(Exception):
    """A function reads something that can change in place."""


class Same:
    """A value compared by identity; it is held, so that no other object takes its id."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.value is self.value


def contents(function: Any) -> tuple[Hashable, ...] | None:
    """Hashable contents of a function, equal for functions that do the same; None if any can change in place."""
    found: list[Hashable] = []
    try:
        read(function, found, {})
    except ChangingError:
        return None
    return tuple(found)


def read(value: Any, found: list[Hashable], seen: dict[int, int]) -> None:
    """Append the contents of a value; `seen` numbers those that have been read. ChangingError if one can change."""
    if is_traced(value):
        raise ChangingError
    if type(value) in EXACT or isinstance(value, np.generic | np.dtype | enum.Enum):
        # By their digits: -0.0 == 0.0, but what is computed from them differs.
        found.append((type(value), repr(value) if isinstance(value, float | complex | np.generic) else value))
        return
    if id(value) in seen:
        found.append(("again", seen[id(value)]))
        return
    seen[id(value)] = len(seen)
    if isinstance(value, FunctionType) and not is_settled(value):
        if set(vars(value)) - MARKS or has_imports(value.__code__):
            raise ChangingError  # attributes of the function, or a module that it names only inside
        found.append(value.__code__)
        cells = [cell.cell_contents for cell in value.__closure__ or () if not is_empty(cell)]
        globals_ = [value.__globals__[name] for name in names_in(value.__code__) if name in value.__globals__]
        parts = [*cells, *globals_, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    elif isinstance(value, type | ModuleType) and not is_of_a_library(getattr(value, "__module__", value.__name__)):
        raise ChangingError  # attributes of a user's module or class, such as a gain, can be set
    elif isinstance(value, BuiltinFunctionType) and not isinstance(value.__self__, ModuleType | type | None):
        raise ChangingError  # a method of something that may change, such as `dictionary.get`
    elif isinstance(value, (*FIXED, FunctionType, jax.Array)):
        found.append(Same(value))
        return
    elif isinstance(value, tuple | frozenset):
        found.append((type(value), len(value)))
        parts = [*value, *members(type(value), seen)]
    elif isinstance(value, MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, partial):
        parts = [value.func, *value.args, *value.keywords, *value.keywords.values()]
    elif isinstance(value, np.ndarray) and not value.flags.writeable and value.base is None:
        found.append(Same(value))
        return
    elif is_dataclass(value) and type(value).__dataclass_params__.frozen:  # type: ignore[attr-defined]
        found.append((type(value), 0))
        parts = [*(getattr(value, field.name) for field in fields(value)), *members(type(value), seen)]
    elif is_of_a_library(type(value).__module__) and hasattr(value, "__wrapped__"):  # jax.jit(function) and its like
        found.append(type(value))
        parts = [getattr(value, "__wrapped__")]  # noqa: B009
    elif is_of_a_library(type(value).__module__) and type(value).__hash__ not in (None, object.__hash__):
        found.append((type(value), value))  # a value, such as the structure of a pytree
        return
    else:
        raise ChangingError
    for part in parts:
        read(part, found, seen)


def members(kind: type, seen: dict[int, int] | None = None) -> list[Any]:
    """Return the methods and values that an instance of a user's class may read, those of its bases included.

    seen: where the classes are noted, whose members need not be read again.
    """
    mine = [base for base in kind.__mro__ if not is_of_a_library(base.__module__)]
    if seen is not None:
        for base in mine:
            seen.setdefault(id(base), len(seen))
    found = [_plain(x) for base in mine for name, x in vars(base).items() if name not in MADE]
    hidden = lambda x: isinstance(x, FunctionType) and is_of_a_library(x.__globals__["__name__"])
    return [x for x in found if not hidden(x)]


def _plain(attribute: Any) -> Any:
    """The function of a property and the like; None for the places of fields."""
    if isinstance(attribute, MemberDescriptorType | GetSetDescriptorType) or type(attribute).__name__ == "_tuplegetter":
        return None
    for kind, name in ((property, "fget"), (cached_property, "func"), (staticmethod | classmethod, "__func__")):
        if isinstance(attribute, kind):
            return getattr(attribute, name)
    inner = getattr(attribute, "method", None)  # of the methods of equinox
    return inner if isinstance(inner, FunctionType) and is_of_a_library(type(attribute).__module__) else attribute


@lru_cache(1024)
def has_imports(code: CodeType) -> bool:
    """Whether code, or a function within it, imports a module that is no library's."""
    named = [x.argval for x in dis.get_instructions(code) if x.opname == "IMPORT_NAME"]
    inner = any(has_imports(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return inner or not all(map(is_of_a_library, named))


def is_of_a_library(module: str | None) -> bool:
    return (module or "").split(".")[0] in LIBRARIES


def is_settled(function: FunctionType) -> bool:
    """Whether it is a library's and reads nothing of a user's: without a closure, or a library's wrapper of such."""
    if not function.__closure__:
        return is_of_a_library(function.__module__)
    inner = getattr(function, "__wrapped__", None)
    return isinstance(inner, FunctionType) and is_of_a_library(function.__globals__["__name__"]) and is_settled(inner)


def is_empty(cell) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def names_in(code: CodeType) -> list[str]:
    """The globals that code and the functions within it may name; attributes are among them."""
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in names_in(constant)]
    return [*code.co_names, *inner]


def reads(function: Any) -> tuple[set[str], list[Any]]:
    """Names in a user's function, attributes among them, and the objects that it reads, also through functions."""
    words: set[str] = set()
    found: dict[int, Any] = {}
    left = [function]
    while left:
        value = left.pop()
        if id(value) in found:
            continue
        found[id(value)] = value
        if isinstance(value, MethodType):
            left += [value.__func__, value.__self__]
        elif isinstance(value, partial):
            left += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, tuple | list):
            left += value
        elif isinstance(value, FunctionType) and not is_of_a_library(value.__module__):
            names = names_in(value.__code__)
            cells = [cell.cell_contents for cell in value.__closure__ or () if not is_empty(cell)]
            globals_ = [value.__globals__[name] for name in names if name in value.__globals__]
            defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            words.update(names)
            left += [*cells, *globals_, *defaults]
    return words, list(found.values())


def functions_in(value: Any) -> list[Any]:
    """The users' functions that a static value holds: in tuples, dataclasses, partial calls and plain objects."""
    found: list[Any] = []
    _collect(value, found, set())
    return found


def _collect(value: Any, found: list[Any], seen: set[int]) -> None:
    if id(value) in seen or isinstance(value, (*NUMBERS, *FIXED, jax.Array, np.ndarray)):
        return
    seen.add(id(value))
    called = callable(value) and (hasattr(value, "__wrapped__") or not is_of_a_library(type(value).__module__))
    if isinstance(value, FunctionType | MethodType | partial) or called:
        if not (isinstance(value, FunctionType) and is_settled(value)):
            found.append(value)
        return
    inside = value if isinstance(value, tuple | list | frozenset) else getattr(value, "__dict__", {}).values()
    for part in inside:
        _collect(part, found, seen)
