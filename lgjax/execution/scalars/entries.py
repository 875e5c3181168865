"""Small arrays whose entries are scalars of a graph, or Python numbers: NumPy arrays of objects."""

from collections.abc import Callable

import jax
import numpy as np


def map_objects(f: Callable, array: np.ndarray) -> np.ndarray:
    """f on every entry, in order; an object array also where there is one entry."""
    out = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        out[index] = f(array[index])
    return out


def objects(value) -> np.ndarray:
    """A concrete array as an object array of Python numbers."""
    if jax.dtypes.issubdtype(getattr(value, "dtype", float), jax.dtypes.extended):
        raise NotImplementedError("keys of random numbers in a program of scalars")
    array = np.asarray(value)
    out = np.empty(array.shape, object)
    out.flat[:] = array.ravel().tolist()
    return out


def boxed(x) -> np.ndarray:
    """NumPy turns 0-d object results into their entry; put it back."""
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x
    out = np.empty((), object)
    out[()] = x
    return out
