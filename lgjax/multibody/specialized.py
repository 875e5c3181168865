"""Models whose parameters are constants of the program instead of inputs to it, all or some of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.multibody.arguments import checked_model
from lgjax.multibody.constant_parts import Constants, SpecializedPart, frozen, named, specialized_part
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks


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


M = TypeVar("M", bound=Mechanism)


@overload
def specialize(model: Model, inputs: tuple[str, ...] = ()) -> SpecializedModel: ...
@overload
def specialize(model: M, inputs: tuple[str, ...] = ()) -> M: ...
def specialize(model: Any, inputs: tuple[str, ...] = ()) -> Any:
    """Make a model's parameters constants: zeros, ones and repeated values fold into the programs.

    Pass the result anywhere a `Model` is expected; the numbers are the same to round-off. A program is compiled for
    each such model, and derivatives and batches are over states and inputs only. inputs: names of parameters that stay
    arguments of the programs, such as `inertias`, `inertias.mass` or `damping`. Of a `Robot` the model, the actuators
    and the passive forces become constants; inputs may be `actuators`, `actuators.gain`, `actuators.delay` and so on,
    too, and what replaces a constant of actuators or forces is an input. Raises ValueError for other parameters that
    are traced or batched, naming the first, and for inputs that are no parameters.

    Example:
        >>> arm = lgjax.specialize(lgjax.models.chain(2))
        >>> lgjax.forward_dynamics(arm, lgjax.neutral(arm), jnp.zeros(2), jnp.zeros(2))
        Array([0., 0.], dtype=float32)
    """
    if isinstance(model, SpecializedModel) and not inputs and not jax.tree.leaves(model):
        return model
    alone = checked_model(model)
    parts = model.constant_parts() if isinstance(model, Mechanism) else {}
    general = {part: x.general if isinstance(x, SpecializedPart) else x for part, x in parts.items()}
    of_parts = [(_in_part(part, name), leaf) for part, x in general.items() for name, leaf in named(x)]
    of_parts = [(name, leaf) for name, leaf in of_parts if ".model" not in name]  # which are the model's own again
    chosen = _chosen([*_named(alone), *of_parts], inputs)
    special = _specialized(checked_model(model, leaves=True), lambda name, leaf: name in chosen)
    if not isinstance(model, Mechanism):
        return special
    whole = model.replace(**general).replace(model=special)
    is_input = lambda part, name: _in_part(part, name) in chosen
    made = {part: specialized_part(x, partial(is_input, part)) for part, x in whole.constant_parts().items()}
    return whole.replace(**made)


def _in_part(part: str, name: str) -> str:
    """Name of a parameter of a part among those of the whole."""
    return f"{part}{name}" if name.startswith("[") else f"{part}.{name}"


def _chosen(found: list[tuple[str, Any]], inputs: tuple[str, ...]) -> set[str]:
    """Names of the inputs among all parameters; ValueError for what cannot be specialized."""
    belongs = lambda name, group: name == group or name.startswith((f"{group}.", f"{group}["))
    for group in checks.names("inputs", inputs):
        if not any(belongs(name, group) for name, _ in found):
            raise ValueError(f"inputs names {group!r}, the parameters are {', '.join(name for name, _ in found)}")
    chosen = {name for name, _ in found if any(belongs(name, group) for group in inputs)}
    for name, leaf in found:
        if name not in chosen and not checks.known(leaf):
            raise ValueError(f"specialize takes a model whose parameters are known, {name} is traced")
        if name == "inertias.mass" and np.ndim(leaf) != 1:
            raise ValueError(f"specialize takes one model, {name} has shape {np.shape(leaf)}")
    return chosen


def _specialized(model: Model, is_input: Callable[[str, Any], bool]) -> SpecializedModel:
    """The model with constants in place of all leaves that are no inputs: is_input(name, leaf)."""
    leaves, structure = jax.tree.flatten(_ordinary(model))
    marks = [is_input(name, leaf) for name, leaf in _named(model)]
    arrays = tuple(None if mark else frozen(leaf) for leaf, mark in zip(leaves, marks, strict=True))
    return _joined(Constants(arrays, structure), [leaf for leaf, mark in zip(leaves, marks, strict=True) if mark])


def _named(model: Model) -> list[tuple[str, Any]]:
    """Name and value of each parameter."""
    return named(_ordinary(model))


def _ordinary(model: Model) -> Model:
    return Model(**{field.name: getattr(model, field.name) for field in fields(Model)})


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
