"""Models whose parameters are constants of the program instead of inputs to it."""

from dataclasses import fields
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Model
from lgjax.numerics import checks


class SpecializedModel(Model):
    """Model without leaves: one hashable value whose arrays (NumPy) are known whenever a function of it is traced.

    Pass it anywhere a `Model` is expected. It cannot be batched or differentiated; `general` returns the parameters as
    leaves. `replace` and `astype` return a specialised model again, or a general one where a change is traced.
    """

    @cached_property
    def _content(self) -> tuple:
        leaves, treedef = jax.tree.flatten(self._ordinary())
        return treedef, tuple((leaf.shape, leaf.dtype.name, leaf.tobytes()) for leaf in leaves)

    @property
    def general(self) -> Model:
        """The same model with its parameters as leaves."""
        return jax.tree.map(jnp.asarray, self._ordinary())

    def _ordinary(self) -> Model:
        return Model(**{field.name: getattr(self, field.name) for field in fields(Model)})

    def astype(self, dtype) -> Model:
        return specialize(self.general.astype(dtype))

    def replace(self, **changes) -> Model:
        model = self.general.replace(**changes)
        return specialize(model) if checks.known(changes) else model

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other) -> bool:
        return self is other or (type(other) is SpecializedModel and self._content == other._content)


jax.tree_util.register_pytree_node(SpecializedModel, lambda model: ((), model), lambda model, _: model)


def specialize(model: Model) -> SpecializedModel:
    """Make a model's parameters constants: zeros, ones and repeated values fold into the programs.

    Pass the result anywhere a `Model` is expected; the numbers are the same to round-off. It has no leaves: a program
    is compiled for each such model, and derivatives and batches are over states only. Raises ValueError for a model
    with traced or batched parameters, naming the first.
    """
    if isinstance(model, SpecializedModel):
        return model
    for path, leaf in jax.tree_util.tree_leaves_with_path(checked_model(model)):
        name = jax.tree_util.keystr(path).lstrip(".")
        if not checks.known(leaf):
            raise ValueError(f"specialize takes a model whose parameters are known, {name} is traced")
        if name == "inertias.mass" and np.ndim(leaf) != 1:
            raise ValueError(f"specialize takes one model, {name} has shape {np.shape(leaf)}")
    constants = jax.tree.map(_frozen, checked_model(model, leaves=True))
    return SpecializedModel(**{field.name: getattr(constants, field.name) for field in fields(Model)})


def _frozen(leaf) -> np.ndarray:
    array = np.array(leaf)
    array.setflags(write=False)
    return array
