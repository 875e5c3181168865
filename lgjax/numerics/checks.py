"""Checks of the numbers that users give, once for the whole library.

Values that are known are judged and refused with an error that names them; of traced ones only shape and dtype can be.
`number`, `integer` and `choice` are for settings that must be known; everything else takes values of either sort.
"""

import math
import operator
import os
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution._jax import is_traced
from lgjax.execution._jax import runs_at_once as runs_at_once
from lgjax.numerics.messages import described as described
from lgjax.numerics.messages import entries as entries
from lgjax.numerics.messages import shown as shown

Array = jax.Array
T = TypeVar("T")


def known(*values: Any) -> bool:
    """Whether every number in these pytrees is known now, so that it can be judged."""
    return not any(is_traced(leaf) for leaf in jax.tree.leaves(values))


def float_dtype(value: Any) -> jnp.dtype:
    """The floating dtype of an array; JAX's default one for numbers, tuples and integers."""
    dtype = jnp.result_type(value) if hasattr(value, "dtype") else None
    return dtype if dtype is not None and jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)


def _real(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)


# ---- settings: Python values that have to be known
def integer(name: str, value: Any, least: int = 1) -> int:
    """A Python integer of at least `least`; TypeError or ValueError with its name for anything else."""
    try:
        found = operator.index(value)
    except (TypeError, jax.errors.JAXTypeError) as error:
        raise TypeError(
            f"{name} must be a Python integer, known when the program is built; got {shown(value)}"
        ) from error
    if isinstance(value, bool | np.bool_) or found < least:
        kind = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ValueError(f"{name} must be {kind}, got {shown(value)}")
    return found


def number(name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, inside: bool = False) -> float:
    """A finite Python float from low to high (strictly between them if `inside`), from any real scalar that is known.

    Python, NumPy and JAX scalars are all numbers; booleans, text, traced and complex values are not.
    """
    if not known(value):
        raise TypeError(f"{name} must be a number, known when the program is built; got {shown(value)}")
    array = np.asarray(value)
    if array.shape != () or not (np.issubdtype(array.dtype, np.integer) or jnp.issubdtype(array.dtype, jnp.floating)):
        raise TypeError(f"{name} must be a number, got {shown(value)}")
    found = float(array)
    fits = low < found < high if inside else low <= found <= high
    if not (math.isfinite(found) and fits):
        if not math.isfinite(high):
            least = (f" greater than {low:g}" if inside else f" of at least {low:g}") if math.isfinite(low) else ""
            raise ValueError(f"{name} must be a finite number{least}, got {shown(value)}")
        between = f"lie between {low:g} and {high:g}" if inside else f"be a number from {low:g} to {high:g}"
        raise ValueError(f"{name} must {between}, got {shown(value)}")
    return found


def floating(name: str, value: Any) -> jnp.dtype:
    """The dtype of real numbers that is named, JAX's default one for None; TypeError for anything else."""
    try:
        found = jnp.dtype(jnp.result_type(float) if value is None else value)
    except TypeError:
        found = None
    if found is None or not jnp.issubdtype(found, jnp.floating):
        raise TypeError(f"{name} must be a floating dtype, such as jnp.float32, got {shown(value)}")
    return found


def sizes(name: str, value: Any) -> tuple[int, ...]:
    """A tuple of sizes of axes, integers of at least 0 that are known."""
    if not (isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim == 1)):
        raise TypeError(f"{name} must be a tuple of sizes of axes, got {shown(value)}")
    return tuple(integer(f"{name}[{i}]", size, 0) for i, size in enumerate(value))


def names(name: str, values: Any) -> tuple[str, ...]:
    """Names in a list or tuple, as a tuple; TypeError for anything else, a text by itself included."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of names, got {shown(values)}")
    found = tuple(values)
    for value in found:
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a list of names, got {shown(value)} in it")
    return found


def random_key(name: str, value: Any) -> Any:
    """One key of `jax.random`, of the new or the old sort."""
    new = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    old = isinstance(value, jax.Array | np.ndarray) and value.dtype == np.uint32
    if not ((new and value.ndim == 0) or (old and value.ndim == 1)):
        raise TypeError(f"{name} must be one key, such as jax.random.key(0), got {shown(value)}")
    return value


def truth(name: str, value: Any) -> bool:
    """True or False, of Python or NumPy; TypeError for anything else, such as a text, which Python takes for true."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def truths(**given: Any) -> None:
    """TypeError for what is neither True or False nor None."""
    for name, value in given.items():
        if value is not None:
            truth(name, value)


def path(name: str, value: Any) -> Path:
    """The path of a file or folder; TypeError for anything but a string or an `os.PathLike` that gives one."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise TypeError(f"{name} must be a path, got {shown(value)}")
    return Path(value)


def of_kind(name: str, value: T, kind: type) -> T:
    """`value`, or TypeError if it is not of this type."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "aeiouAEIO" else "a"
        raise TypeError(f"{name} must be {article} {kind.__name__}, got {shown(value)}")
    return value


def on_host(name: str, *values: Any) -> None:
    """TypeError unless all numbers are known and no `jit` is in progress: for functions that run on the host."""
    if not known(*values, jnp.zeros(())):  # which jit traces, whatever the arguments are
        raise TypeError(f"{name} runs on the host: it cannot be traced, mapped or differentiated")


def holds_nothing_traced(name: str, function: Any, *args: Any) -> None:
    """`on_host` for what a function of these arguments closes over."""
    if not runs_at_once():  # outside of all transformations nothing can be traced
        on_host(name, jax.make_jaxpr(function)(*args).consts)


def fixed(x: np.ndarray) -> np.ndarray:
    """A copy that cannot be written to, so that programs may hold it."""
    x = np.array(x)
    x.setflags(write=False)
    return x


def function(name: str, value: T) -> T:
    """`value`, or TypeError if it cannot be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {shown(value)}")
    return value


def functions(**given: Any) -> None:
    """TypeError for what is neither a function nor None."""
    for name, value in given.items():
        if value is not None:
            function(name, value)


def choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of the choices; ValueError lists them."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {shown(value)}")
    return value


def indices(name: str, values: Any, count: int, what: str = "velocity", size: str = "nv") -> tuple[int, ...]:
    """Different integers from 0 to count - 1 that are known; TypeError or ValueError with their name for others."""
    found = []
    if not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        raise TypeError(f"{name} takes {what} indices, several; got {shown(values)}")
    for value in values:
        try:
            index = operator.index(value)
        except (TypeError, jax.errors.JAXTypeError):
            index = None
        if index is None or isinstance(value, bool | np.bool_):
            raise TypeError(
                f"{name} takes {what} indices, integers known when the program is built; got {shown(value)}"
            )
        if not 0 <= index < count:
            raise ValueError(f"{name} {what} index {index} is out of range for {size}={count}")
        found.append(index)
    if len(set(found)) < len(found):
        raise ValueError(f"{name} names an index twice: {sorted(found)}")
    return tuple(found)


def real(name: str, value: Any) -> np.ndarray:
    """Known real numbers, finite or not, as a NumPy array in float64; TypeError for anything else."""
    try:
        found = np.asarray(value)
    except (TypeError, ValueError):  # of uneven lengths
        found = np.asarray(None)
    if not (found.size == 0 or _real(found)):
        raise TypeError(f"{name} must be numbers, got {shown(value)}")
    return found.astype(float)


def numbers(name: str, value: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Known finite numbers as a NumPy array of that shape, any shape if None, in float64; for descriptions."""
    try:
        found = real(name, value)
    except TypeError:
        raise ValueError(f"{name} must be numbers{f' of shape {shape}' if shape else ''}, got {shown(value)}") from None
    if shape is not None and found.shape != shape:
        raise ValueError(f"{name} has shape {found.shape}, expected {shape}")
    return finite(name, found)


# ---- arrays: shapes and dtypes are judged always, entries where they are known
def scalar(
    name: str, value: Any, dtype: Any, low: float = -math.inf, high: float = math.inf, *, positive: bool = False
) -> Array:
    """A real scalar as an array () of that dtype; a known one must be finite, from low to high, positive if asked."""
    if not (known(value) or hasattr(value, "shape")):
        raise TypeError(f"{name} must be a number, got {shown(value)}")
    if np.shape(value) != ():
        raise ValueError(f"{name} must be a scalar, got shape {np.shape(value)}; use vmap for several")
    if known(value):
        found = number(name, value, low, high)
        if positive and found <= 0:
            raise ValueError(f"{name} must be positive and finite, got {shown(value)}")
    elif not _real(value):
        raise TypeError(f"{name} must be a number, got {value.dtype}")
    return jnp.asarray(value, dtype)


def floats(name: str, value: Any, shape: tuple[int | None, ...], dtype: Any) -> Array:
    """`value`, which may hold traced numbers, as an array of that dtype; TypeError for what are no numbers.

    The shape is only mentioned in the error.
    """
    try:
        whole = hasattr(value, "dtype") or known(value)
        found = jnp.asarray(value) if whole else jnp.stack([jnp.asarray(x, dtype) for x in value])
    except (TypeError, ValueError):
        found = None
    if found is None or not (found.size == 0 or _real(found)):
        raise TypeError(f"{name} must be numbers of shape {shape}, got {shown(value)}")
    return found.astype(dtype)


def array(name: str, value: Any, shape: tuple[int | None, ...], dtype: Any, *, exact: bool = False) -> Array:
    """`value` broadcast to `shape`, where None is any length; ValueError names what does not fit or is not finite.

    Only a single number is broadcast, and with `exact` not even that. What is known stays known inside `jit`, so that
    it can be judged further.
    """
    with jax.ensure_compile_time_eval() if known(value) else nullcontext():
        found = floats(name, value, shape, dtype)
        want = tuple(size if size is not None else (found.shape[i : i + 1] or (0,))[0] for i, size in enumerate(shape))
        if found.shape == () != want and (exact or None in shape):
            raise ValueError(f"{name} is a number, not an array of shape {shape}")
        if found.shape not in ((), want):
            raise ValueError(f"{name} has shape {found.shape}, expected {shape}")
        return jnp.broadcast_to(finite(name, found), want)


def of_shape(name: str, value: Array, shape: tuple[int, ...]) -> Array:
    """`value`, an array, or ValueError for another shape."""
    if value.shape != shape:
        raise ValueError(f"{name} has shape {value.shape}, expected {shape}")
    return value


def finite(name: str, value: T) -> T:
    """`value`, or ValueError if a known entry is infinite or NaN."""
    if known(value) and not np.all(good := np.isfinite(np.asarray(value))):
        raise ValueError(f"{name} is not finite: {entries(value, ~good)}")
    return value


def finite_leaves(name: str, tree: T) -> T:
    """`tree`, any pytree of arrays, or ValueError that names the leaf that is known and not finite."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        finite(name + jax.tree_util.keystr(path), leaf)
    return tree


def positive(name: str, value: T, allow_zero: bool = False) -> T:
    """`value`, or ValueError if a known entry is not positive (or negative, with allow_zero)."""
    if known(value) and not np.all(good := np.asarray(value) >= 0 if allow_zero else np.asarray(value) > 0):
        kind = "negative" if allow_zero and not np.any(np.isnan(np.asarray(value))) else "not positive"
        raise ValueError(f"{name} is {kind}: {entries(value, ~good)}")
    return value


def at_least(name: str, value: T, least: float) -> T:
    """`value`, or ValueError if a known entry is below `least`."""
    if known(value) and not np.all(good := np.asarray(value) >= least):
        raise ValueError(f"{name} must be at least {least:g}, got {entries(value, ~good)}")
    return value


def unit_vector(name: str, value: T) -> T:
    """`value` (..., n), or ValueError if the length of a known one is not 1 to within the dtype's digits."""
    if known(value):
        lengths = np.linalg.norm(np.asarray(value, float), axis=-1)
        if not np.all(good := np.abs(lengths - 1.0) <= _round_off(value)):
            found = f"{entries(value, ~good)} of length {entries(lengths, ~good)}"
            raise ValueError(f"{name} must have length 1, got {found}")
    return value


def orthogonal(name: str, value: T, other_name: str, other: Any) -> T:
    """`value` (..., n), or ValueError unless it is orthogonal to `other` (..., n) wherever both are known."""
    if known(value, other):
        x, y = np.broadcast_arrays(np.asarray(value, float), np.asarray(other, float))
        product = np.sum(x * y, -1)
        cosine = np.abs(product) / np.maximum(1.0, np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1))
        if not np.all(good := cosine <= _round_off(value)):
            raise ValueError(
                f"{name} must be orthogonal to {other_name}, got {entries(x, ~good)} and {entries(y, ~good)}, "
                f"whose scalar product is {entries(product, ~good)}"
            )
    return value


def rotation(name: str, value: T, tolerance: float | None = None) -> T:
    """`value` (..., 3, 3), or ValueError unless it is a rotation: RᵀR = I to `tolerance`, det R > 0."""
    if known(value):
        matrix = np.asarray(value, float)
        gap = float(np.max(np.abs(np.swapaxes(matrix, -1, -2) @ matrix - np.eye(3)), initial=0.0))
        if not gap <= (_round_off(value) if tolerance is None else tolerance):
            raise ValueError(f"{name} is not a rotation: R^T R - I has an entry of {gap:.3g}")
        if np.any(np.linalg.det(matrix) < 0):
            raise ValueError(f"{name} is not a rotation but a reflection: its determinant is -1")
    return value


def symmetric(name: str, value: T, tolerance: float = 1e-6) -> T:
    """`value` (..., n, n), or ValueError unless it is symmetric to `tolerance` of its largest entry."""
    if known(value):
        matrix = np.asarray(value, float)
        gap = np.max(np.abs(matrix - np.swapaxes(matrix, -1, -2)), (-2, -1), initial=0.0)
        if np.any(wrong := gap > tolerance * np.max(np.abs(matrix), initial=0.0)):
            raise ValueError(f"{name} is not symmetric: {entries(matrix, wrong)}")
    return value


def inertia(name: str, value: T, *, definite: bool = True, triangle: bool = True) -> T:
    """`value` (..., 3, 3), or ValueError unless it is symmetric and its principal moments pass; see below."""
    if known(symmetric(name, value)):
        principal_moments(name, np.linalg.eigvalsh(np.asarray(value, float)), definite=definite, triangle=triangle)
    return value


def principal_moments(
    name: str, value: T, *, definite: bool = True, triangle: bool = True, round_off: float = 0.0
) -> T:
    """`value` (..., 3) in any order, kg m², or ValueError unless all are positive and keep the triangle inequality.

    The inequality, that no moment exceeds the sum of the other two, is taken to 1e-6 of the largest, or to `round_off`
    if that is more. definite=False takes moments that vanish too, triangle=False those that break the inequality.
    """
    if known(value):
        moments = np.asarray(value, float)
        largest = np.max(moments, -1)
        slack = np.maximum(1e-6 * np.abs(largest), round_off)
        for wrong, what in (
            (definite & ~np.all(moments > 0, -1), "is not positive definite"),
            (~(np.min(moments, -1) >= -slack), "is not positive semi-definite"),
            (triangle & (2 * largest - np.sum(moments, -1) > slack), "breaks the triangle inequality"),
        ):
            if np.any(wrong):
                found = entries(moments, wrong)
                raise ValueError(f"{name} {what}: its principal moments are {found} kg m^2")
    return value


def _round_off(value: Any) -> float:
    """How far a number made by a short computation in this dtype, or typed in with seven digits, may be off."""
    return max(1e-6, 1e2 * float(jnp.finfo(jnp.asarray(value).dtype).eps))
