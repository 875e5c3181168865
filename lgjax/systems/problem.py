"""Record of a ready problem, and the checks of its parameters."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups.homogeneous_space import HomogeneousSpace, product_space, vector_space
from lgjax.numerics import checks

Array = jax.Array


class Problem(NamedTuple):
    """Problem ready for an integrator: ``integrate(system.space, system.field, system.y0, ...)``.

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


def in_coordinates(system: Problem) -> Problem:
    """Problem with the same motion for a classical method: the state is the tuple of its arrays, and steps add to them.

    Only accuracy then keeps rotations orthogonal and directions of length one.
    """
    checks.of_kind("system", system, Problem)
    leaves = jax.tree.leaves(system.y0)
    space = product_space(*(vector_space(leaf.shape[-1]) for leaf in leaves))
    invariants = {name: partial(_of_parts, system.y0, f) for name, f in system.invariants.items()}
    field = partial(_rates_of_parts, system.y0, system.space, system.field)
    return Problem(system.parameters, space, field, tuple(leaves), invariants)


def _rates_of_parts(like: Any, space: HomogeneousSpace, field: Callable, t: Array, parts: tuple) -> tuple[Array, ...]:
    """Time derivatives of the arrays of a state, of the form of `like`."""
    y = jax.tree.unflatten(jax.tree.structure(like), parts)
    xi = field(t, y)
    along = lambda s: space.move(jax.tree.map(lambda x: s * x, xi), y)
    start = jnp.zeros((), parts[0].dtype)
    return tuple(jax.tree.leaves(jax.jvp(along, (start,), (jnp.ones_like(start),))[1]))


def _of_parts(like: Any, function: Callable, parts: tuple[Array, ...]) -> Array:
    return function(jax.tree.unflatten(jax.tree.structure(like), parts))


not_negative = partial(checks.positive, allow_zero=True)


def arrays(dtype: Any, **values: tuple) -> dict[str, Array]:
    """The (value, shape) or (value, shape, check) as finite arrays of one floating dtype, JAX's default if None.

    A number fills its shape, a row a matrix; other shapes are refused.  check(name, array) is one of `checks`.  Values
    that are known stay known inside `jit`, so that they are judged there too.
    """
    dtype = checks.floating("dtype", dtype)

    def as_array(name: str, value: Any, shape: tuple[int, ...], check: Any = checks.finite) -> Array:
        with jax.ensure_compile_time_eval() if checks.known(value) else nullcontext():
            value = checks.floats(name, value, shape, dtype)
            found = checks.array(name, value, shape[len(shape) - min(value.ndim, len(shape)) :], dtype)
            return check(name, jnp.broadcast_to(found, shape))

    return {name: as_array(name, *pair) for name, pair in values.items()}


def gravity_vector(gravity: Any) -> Any:
    """Gravity in m/s² as all systems take it: a vector (3,) is left as it is, a number g >= 0 pulls along -z."""
    if isinstance(gravity, tuple | list) or np.ndim(gravity):
        return gravity
    if checks.known(gravity):
        gravity = checks.number("gravity", gravity)
    return 0.0, 0.0, -not_negative("gravity", gravity)
