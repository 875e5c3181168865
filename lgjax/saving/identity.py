"""Identity of a run: a hash of what the run was given, the same in every version of JAX and of Python.

Read first: `fingerprint`.
"""

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def fingerprint(*values: Any) -> str:
    """SHA-256 (hexadecimal) of values: arrays, keys, numbers, text, and functions and records made of them.

    Arrays and numbers count with dtype, shape and contents; tuples, dictionaries and dataclasses, such as models,
    item by item. A function counts with its name, its default arguments and what it captured from the functions
    around it, not with its code. Other objects count with their type, their attributes and, as pytrees, their leaves.
    """
    total = hashlib.sha256()
    _add(total, values, ())
    return total.hexdigest()


def _add(total: Any, value: Any, inside: tuple[int, ...]) -> None:
    """Add one value to the hash. inside: identities of the objects that it is a part of."""
    if id(value) in inside:
        total.update(b"itself")
        return
    inside = (*inside, id(value))
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        _say(total, "key", str(jax.random.key_impl(value)))
        value = jax.random.key_data(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        array = np.asarray(value)
        _say(total, "array", str(array.dtype), str(array.shape))
        total.update(np.ascontiguousarray(array).tobytes())
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        _say(total, type(value).__name__, repr(value))
    else:
        name, parts = _parts(value)
        _say(total, name, str(len(parts)))
        for part in parts:
            _add(total, part, inside)


def _say(total: Any, *words: str) -> None:
    total.update(f"{' '.join(words)}\n".encode())


def _parts(value: Any) -> tuple[str, list[Any]]:
    """The name of what kind of object this is, and what it is made of."""
    kind = type(value).__qualname__
    if isinstance(value, Mapping):
        items = sorted(value.items(), key=lambda item: repr(item[0]))
        return kind, [x for item in items for x in item]
    if isinstance(value, tuple | list):
        return kind, list(value)
    if is_dataclass(value) and not isinstance(value, type):
        return kind, [getattr(value, field.name) for field in fields(value) if field.compare]
    if isinstance(value, partial):
        return kind, [value.func, value.args, value.keywords]
    function = inspect.unwrap(value) if callable(value) else value
    if inspect.ismethod(function):
        return kind, [function.__self__, function.__func__]
    if inspect.isfunction(function):
        captured = [x for cell in function.__closure__ or () for x in _content(cell)]
        return function.__qualname__, [function.__defaults__, function.__kwdefaults__, captured]
    leaves = [leaf for leaf in jax.tree.leaves(value) if leaf is not value]
    return f"{kind} {getattr(value, '__qualname__', '')}", [*leaves, *_attributes(value)]


def _attributes(value: Any) -> list[dict]:
    """Attributes of an object, without cached properties; none of types and modules."""
    own = getattr(value, "__dict__", None)
    if not isinstance(own, dict) or isinstance(value, type | ModuleType):
        return []
    cached = {name for base in type(value).__mro__ for name, x in vars(base).items() if isinstance(x, cached_property)}
    return [{name: x for name, x in own.items() if name not in cached}]


def _content(cell: Any) -> list[Any]:
    """Content of a cell of a closure; nothing where the variable has no value yet."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []
