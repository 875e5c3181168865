"""Parts of a mechanism, such as actuators, whose numbers are constants of the programs that use them.

Read first: `specialized.py`, the same for models.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Constants:
    """The known arrays of a pytree, None for each that is an input, and its structure: one hashable value."""

    def __init__(self, arrays: tuple[np.ndarray | None, ...], structure: Any):
        self.arrays, self.structure = arrays, structure

    @cached_property
    def _content(self) -> tuple:
        known = (x if x is None else (x.shape, x.dtype.name, x.tobytes()) for x in self.arrays)
        return self.structure, tuple(known)

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Constants) and self._content == other._content)


class SpecializedPart:
    """Part of a specialized model: its known arrays (NumPy) are constants, its leaves are its `inputs`.

    Pass it anywhere its class is expected. Only inputs can be batched and differentiated; what replaces a constant is
    an input. `general` returns all numbers as leaves.
    """

    constants: Constants

    def __post_init__(self) -> None:
        """Keep as constants the arrays that still are in their places: `dataclasses.replace` changes some."""
        leaves, structure = jax.tree.flatten(ordinary(self))
        kept = {id(array) for array in self.constants.arrays if array is not None}
        arrays = tuple(leaf if id(leaf) in kept else None for leaf in leaves)
        object.__setattr__(self, "constants", Constants(arrays, structure))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the numbers that are not constants, such as `gain`."""
        given = zip(named(ordinary(self)), self.constants.arrays, strict=True)
        return tuple(name for (name, _), array in given if array is None)

    @property
    def general(self) -> Any:
        """The same part with all numbers as leaves."""
        return jax.tree.map(jnp.asarray, ordinary(self))

    def astype(self, dtype: Any) -> Any:
        """The same part with every array of floating numbers in `dtype`."""
        cast = lambda x: x.astype(dtype) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x
        marks = [array is None for array in self.constants.arrays]
        return _specialized(jax.tree.map(cast, ordinary(self)), marks)

    def __reduce__(self) -> tuple:
        return _specialized, (ordinary(self), [array is None for array in self.constants.arrays])


def specialized_part(part: Any, is_input: Callable[[str], bool]) -> Any:
    """A part with constants in place of all numbers but inputs, by name, and but those of a specialized model in it."""
    return _specialized(part, [is_input(name) or "[<flat" in name for name, _ in named(part)])


def named(tree: Any) -> list[tuple[str, Any]]:
    """Name and value of each leaf."""
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in pairs]


def frozen(leaf: Any) -> np.ndarray:
    """A copy that cannot be written to."""
    array = np.array(leaf)
    array.setflags(write=False)
    return array


def ordinary(part: Any) -> Any:
    """The part as a value of its own class."""
    if not isinstance(part, SpecializedPart):
        return part
    return _copied(type(part).__mro__[2], part)


# ---- as a pytree
def _specialized(part: Any, marks: list[bool]) -> Any:
    """marks: of each leaf, whether it is an input."""
    leaves, structure = jax.tree.flatten(ordinary(part))
    arrays = tuple(None if mark else frozen(leaf) for leaf, mark in zip(leaves, marks, strict=True))
    inputs = [leaf for leaf, mark in zip(leaves, marks, strict=True) if mark]
    return _joined(type(ordinary(part)), Constants(arrays, structure), inputs)


@cache
def _class_of(kind: type) -> type:
    """The class of specialized values of a frozen dataclass."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is no dataclass, so it has no constants")
    own = {"__annotations__": {"constants": Constants}, "constants": field(kw_only=True, repr=False, compare=False)}
    own |= {"__module__": kind.__module__, "__doc__": SpecializedPart.__doc__, "__hash__": object.__hash__}
    made = dataclass(frozen=True, eq=False, repr=False)(
        type(f"Specialized{kind.__name__}", (SpecializedPart, kind), own)
    )
    jax.tree_util.register_pytree_node(made, _parted, lambda constants, inputs: _joined(kind, constants, inputs))
    return made


def _copied(kind: type, part: Any, **more: Any) -> Any:
    """A value of another class with the same fields, which may hold anything that a transformation puts there."""
    made = object.__new__(kind)
    names = [x.name for x in fields(kind) if x.name != "constants"]
    for name, value in {**{name: getattr(part, name) for name in names}, **more}.items():
        object.__setattr__(made, name, value)
    return made


def _joined(kind: type, constants: Constants, inputs: Any) -> Any:
    rest = iter(inputs)
    leaves = [next(rest) if x is None else x for x in constants.arrays]
    return _copied(_class_of(kind), jax.tree.unflatten(constants.structure, leaves), constants=constants)


def _parted(part: Any) -> tuple[tuple, Constants]:
    constants = part.constants
    leaves = constants.structure.flatten_up_to(ordinary(part))
    return tuple(x for x, known in zip(leaves, constants.arrays, strict=True) if known is None), constants
