"""What every ready problem returns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.groups.homogeneous_space import HomogeneousSpace

Array = jax.Array


class System(NamedTuple):
    """A problem ready for an integrator: ``integrate(system.space, system.field, system.y0, ...)``.

    parameters   the numbers it was made with, a dict of arrays.
    space        the homogeneous space its states live on.
    field        (t, y) -> algebra element.
    y0           the initial state.
    invariants   name -> function of a state that the exact motion keeps (of one state: vmap over several).
    """

    parameters: dict[str, Array]
    space: HomogeneousSpace
    field: Callable[[Any, Any], Any]
    y0: Any
    invariants: dict[str, Callable[[Any], Array]]


def arrays(dtype: Any, **values: Any) -> dict[str, Array]:
    """The values as arrays of one floating dtype, JAX's default if None."""
    dtype = jnp.result_type(float) if dtype is None else jnp.dtype(dtype)
    return {name: jnp.asarray(value, dtype) for name, value in values.items()}


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
