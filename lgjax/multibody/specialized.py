"""Models whose parameters are constants of the program instead of inputs to it, all or some of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Model
from lgjax.numerics import checks


class Constants:
    """The known arrays of a model, None for each that is an input, and its structure: one hashable value."""

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


@dataclass(frozen=True, eq=False, repr=False)
class SpecializedModel(Model):
    """Model whose known arrays (NumPy) are constants of each program that reads it; its leaves are its `inputs`.

    Pass it anywhere a `Model` is expected. A model without inputs is one hashable value. Only inputs can be batched
    and differentiated. `replace` makes an input of what a traced array replaces; `general` returns all parameters as
    leaves.
    """

    constants: Constants = field(kw_only=True)

    def __post_init__(self) -> None:
        given = zip(self.constants.structure.flatten_up_to(_ordinary(self)), self.constants.arrays, strict=True)
        if any(array is not None and leaf is not array for leaf, array in given):
            raise TypeError(
                "change a specialized model by its method `replace`; dataclasses.replace keeps its constants"
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the parameters that are not constants, such as `inertias.mass`."""
        given = zip(_named(self), self.constants.arrays, strict=True)
        return tuple(name for (name, _), array in given if array is None)

    @property
    def general(self) -> Model:
        """The same model with all parameters as leaves."""
        return jax.tree.map(jnp.asarray, _ordinary(self))

    def astype(self, dtype) -> "SpecializedModel":
        return _specialized(_ordinary(self).astype(dtype), lambda name, leaf: name in self.inputs)

    def replace(self, **changes) -> "SpecializedModel":
        is_input = lambda name, leaf: name in self.inputs or not checks.known(leaf)
        return _specialized(checked_model(_ordinary(self).replace(**changes)), is_input)

    def __hash__(self) -> int:
        return hash(self.constants)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SpecializedModel) or self.inputs:
            return self is other
        return self.constants == other.constants


def specialize(model: Model, inputs: tuple[str, ...] = ()) -> SpecializedModel:
    """Make a model's parameters constants: zeros, ones and repeated values fold into the programs.

    Pass the result anywhere a `Model` is expected; the numbers are the same to round-off. A program is compiled for
    each such model, and derivatives and batches are over states and inputs only. inputs: names of parameters that stay
    arguments of the programs, such as `inertias`, `inertias.mass` or `damping`. Raises ValueError for other parameters
    that are traced or batched, naming the first, and for inputs that are no parameters.
    """
    if isinstance(model, SpecializedModel) and not inputs and not jax.tree.leaves(model):
        return model
    found = _named(checked_model(model))
    belongs = lambda name, group: name == group or name.startswith(f"{group}.")
    for group in checks.names("inputs", inputs):
        if not any(belongs(name, group) for name, _ in found):
            raise ValueError(f"inputs names {group!r}, the parameters are {', '.join(name for name, _ in found)}")
    chosen = {name for name, _ in found if any(belongs(name, group) for group in inputs)}
    for name, leaf in found:
        if name not in chosen and not checks.known(leaf):
            raise ValueError(f"specialize takes a model whose parameters are known, {name} is traced")
        if name == "inertias.mass" and np.ndim(leaf) != 1:
            raise ValueError(f"specialize takes one model, {name} has shape {np.shape(leaf)}")
    return _specialized(checked_model(model, leaves=True), lambda name, leaf: name in chosen)


def _specialized(model: Model, is_input: Callable[[str, Any], bool]) -> SpecializedModel:
    """The model with constants in place of all leaves that are no inputs: is_input(name, leaf)."""
    leaves, structure = jax.tree.flatten(_ordinary(model))
    marks = [is_input(name, leaf) for name, leaf in _named(model)]
    arrays = tuple(None if mark else _frozen(leaf) for leaf, mark in zip(leaves, marks, strict=True))
    return _joined(Constants(arrays, structure), [leaf for leaf, mark in zip(leaves, marks, strict=True) if mark])


def _named(model: Model) -> list[tuple[str, Any]]:
    """Name and value of each parameter."""
    pairs = jax.tree_util.tree_leaves_with_path(_ordinary(model))
    return [(jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in pairs]


def _ordinary(model: Model) -> Model:
    return Model(**{field.name: getattr(model, field.name) for field in fields(Model)})


def _frozen(leaf) -> np.ndarray:
    array = np.array(leaf)
    array.setflags(write=False)
    return array


# ---- as a pytree
def _joined(constants: Constants, inputs) -> SpecializedModel:
    rest = iter(inputs)
    leaves = [next(rest) if x is None else x for x in constants.arrays]
    model = jax.tree.unflatten(constants.structure, leaves)
    return SpecializedModel(**{field.name: getattr(model, field.name) for field in fields(Model)}, constants=constants)


def _parted(model: SpecializedModel) -> tuple[tuple, Constants]:
    constants = model.constants
    leaves = constants.structure.flatten_up_to(_ordinary(model))
    return tuple(x for x, known in zip(leaves, constants.arrays, strict=True) if known is None), constants


jax.tree_util.register_pytree_node(SpecializedModel, _parted, _joined)
