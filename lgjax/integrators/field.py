"""Checks of states, fields and times, with messages that name what is wrong."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups.homogeneous_space import Dimension, HomogeneousSpace
from lgjax.numerics import checks

Array = jax.Array
Field = Callable[..., Any]  # field(t, y); for Taylor series(t, y, order)


def strong(tree: Any, name: str = "the state") -> Any:
    """The same pytree with every leaf an array of a definite dtype: a weak type would compile everything twice."""

    def convert(leaf: Any) -> Array:
        try:
            leaf = jnp.asarray(leaf)
        except (TypeError, ValueError):
            raise TypeError(f"{name} must hold arrays, got {checks.shown(leaf)} in it") from None
        return jax.lax.convert_element_type(leaf, leaf.dtype)

    return jax.tree.map(convert, tree)


def state_dtype(y: Any) -> jnp.dtype:
    """The one floating dtype of a state; TypeError if it has none or several."""
    dtypes = sorted({str(leaf.dtype) for leaf in jax.tree.leaves(y) if jnp.issubdtype(leaf.dtype, jnp.floating)})
    if len(dtypes) != 1:
        raise TypeError(f"the state needs arrays of one floating dtype, got {dtypes or 'none'}")
    return jnp.dtype(dtypes[0])


def state_on(space: Any, y0: Any) -> tuple[Any, jnp.dtype]:
    """The state as arrays and its dtype; TypeError for what is no state, or no space."""
    if not isinstance(space, HomogeneousSpace):
        raise TypeError(f"space must be a HomogeneousSpace, such as right_translation(SO3), got {checks.shown(space)}")
    y = strong(y0)
    return y, state_dtype(y)


def saved_times(save_at: Any, t0: Any, t1: Any, dtype: jnp.dtype) -> tuple[Array, Array]:
    """The times (n,) to save at, and whether each lies between t0 and t1; known ones that do not raise ValueError.

    A time that misses an end by a rounding or two counts as that end.
    """
    known = checks.known(save_at, t0, t1)
    xp = np if known else jnp  # NumPy judges at once also where JAX is tracing
    ts = checks.real("save_at", save_at).astype(dtype) if known else checks.floats("save_at", save_at, (None,), dtype)
    ends = xp.stack([xp.asarray(t0, dtype), xp.asarray(t1, dtype)])
    if ts.ndim != 1:
        raise ValueError(f"save_at must be a vector of times, got shape {ts.shape}")
    first, last = xp.min(ends), xp.max(ends)
    near = 4 * jnp.finfo(dtype).eps * xp.max(xp.abs(ends))
    ts = xp.where((ts < first) & (ts >= first - near), first, ts)
    ts = xp.where((ts > last) & (ts <= last + near), last, ts)
    inside = (ts >= first) & (ts <= last)
    if known and not np.all(inside):
        raise ValueError(f"save_at must lie between t0 and t1, {t0} and {t1}; got {ts[~np.asarray(inside)][0]}")
    return jnp.asarray(ts), jnp.asarray(inside)


def check_field(space: HomogeneousSpace, field: Field, t: Array, y: Any) -> None:
    """Raise TypeError or ValueError unless the field returns algebra elements that move y without changing its form.

    A field of the library may say that it does, by its attribute `fits`, which saves a trace.
    """
    if getattr(field, "fits", False):
        return
    xi = jax.eval_shape(checks.function("field", field), t, y)
    _check_algebra(space.name, space.dim, xi, state_dtype(y), "the field")
    try:
        moved = jax.eval_shape(space.move, xi, y)
    except (TypeError, ValueError) as error:  # which names an argument of the space
        raise ValueError(f"{space.name} cannot move the state: {error}") from error
    if jax.tree.structure(moved) != jax.tree.structure(y):
        raise TypeError(
            f"{space.name}: the state has structure {jax.tree.structure(y)}, moved by the field it has "
            f"{jax.tree.structure(moved)}"
        )
    for (path, after), before in zip(jax.tree_util.tree_leaves_with_path(moved), jax.tree.leaves(y), strict=True):
        if (after.shape, after.dtype) != (before.shape, before.dtype):
            raise ValueError(
                f"{space.name}: the state{jax.tree_util.keystr(path)} is {before.dtype}{before.shape}, moved by the "
                f"field it is {after.dtype}{after.shape}"
            )


def scalar_event(event: Any, t: Array, y: Any) -> Any:
    """`event`, whose value at (t, y) is one real number; TypeError or ValueError otherwise."""
    found = jax.eval_shape(event, t, y)
    kind = getattr(found, "dtype", None)
    if kind is None or not jnp.issubdtype(kind, jnp.floating):
        raise TypeError(f"event must return a real number, whose sign changes, got {kind or checks.described(found)}")
    if found.shape:
        raise ValueError(
            f"event must return one number, got shape {found.shape}: take the least or a product of several"
        )
    return event


def held(f: Callable, t: Array, y: Any) -> tuple[Callable, Callable]:
    """f(t, y) with what it closes over held fixed, and f itself; a further argument of either is not read."""
    pure, parameters = jax.closure_convert(f, t, y)
    frozen = [jax.lax.stop_gradient(p) for p in parameters]
    return lambda t, y, *_: pure(t, y, *frozen), lambda t, y, *_: pure(t, y, *parameters)


def _check_algebra(name: str, dim: Dimension, xi: Any, dtype: jnp.dtype, what: str) -> None:
    if isinstance(dim, tuple):
        if not isinstance(xi, tuple) or len(xi) != len(dim):
            raise TypeError(f"{name}: {what} must return a tuple of {len(dim)} algebra elements, got {xi}")
        for i, (part, part_dim) in enumerate(zip(xi, dim)):
            _check_algebra(name, part_dim, part, dtype, f"{what}[{i}]")
        return
    if not hasattr(xi, "shape"):
        raise TypeError(f"{name}: {what} must return one array (..., {dim}), got {xi}")
    if not xi.shape or xi.shape[-1] != dim:
        raise ValueError(f"{name}: {what} must return an array (..., {dim}), got shape {xi.shape}")
    if xi.dtype != dtype and not getattr(xi, "weak_type", False):
        raise TypeError(f"{name}: {what} returns {xi.dtype}, the state is {dtype}")
