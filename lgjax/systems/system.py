"""What every ready problem returns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.groups.homogeneous_space import HomogeneousSpace, product_space, vector_space

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


def in_coordinates(system: System) -> System:
    """The same motion as a classical method sees it: the state is the tuple of its arrays, steps are sums of them.

    Nothing then keeps rotations orthogonal or directions of length one but accuracy.
    """
    structure = jax.tree.structure(system.y0)
    leaves = jax.tree.leaves(system.y0)

    def whole(parts: tuple[Array, ...]) -> Any:
        return jax.tree.unflatten(structure, parts)

    def field(t: Array, parts: tuple[Array, ...]) -> tuple[Array, ...]:
        y = whole(parts)
        xi = system.field(t, y)
        along = lambda s: system.space.move(jax.tree.map(lambda x: s * x, xi), y)
        start = jnp.zeros((), leaves[0].dtype)
        return tuple(jax.tree.leaves(jax.jvp(along, (start,), (jnp.ones_like(start),))[1]))

    space = product_space(*(vector_space(leaf.shape[-1]) for leaf in leaves))
    invariants = {name: lambda parts, f=f: f(whole(parts)) for name, f in system.invariants.items()}
    return System(system.parameters, space, field, tuple(leaves), invariants)


def arrays(dtype: Any, **values: Any) -> dict[str, Array]:
    """The values as arrays of one floating dtype, JAX's default if None."""
    dtype = jnp.result_type(float) if dtype is None else jnp.dtype(dtype)
    return {name: jnp.asarray(value, dtype) for name, value in values.items()}


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
