"""Values in the messages of errors: one line of bounded length, whatever was given."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import jax
import numpy as np

LONGEST = 200  # characters of a value
MOST = 40  # names in a list


def described(value: Any) -> str:
    """Description of an argument: an array of a shape, or of a type."""
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array of shape {value.shape}"
    return "None" if value is None else f"of type {type(value).__name__}"


def shown(value: Any) -> str:
    """A value, or the shape of an array of several."""
    if isinstance(value, jax.Array | np.ndarray) and value.ndim:
        return f"an array of shape {value.shape} and {value.dtype}"
    return _cut(repr(value).replace("\n", " "))


def entries(value: Any, wrong: Any = None) -> str:
    """The numbers of an array; of many only the first that is wrong, and its place.

    wrong: a mask over the array or its leading axes.
    """
    array = np.asarray(value)
    text, place = str(array.tolist()), ""
    if len(text) > LONGEST and np.ndim(wrong):
        at = np.argwhere(wrong)
        text = str(array[tuple(at[0])].tolist())
        place = f" at {at[0].tolist()} ({len(at)} of {np.size(wrong)} entries)"
    return _cut(text) + place


def listed(names: Iterable[str]) -> str:
    """Names, the first ones of many."""
    found = list(names)
    return ", ".join(found) if len(found) <= MOST else f"{', '.join(found[:MOST])}, ... ({len(found)} in all)"


def nearest(name: str, names: Iterable[str]) -> str:
    """The question whether a known name was meant, for the end of a message; nothing if none is near."""
    lower = {known.lower(): known for known in names}
    found = get_close_matches(name.lower(), lower, 1, 0.6)
    return f"; did you mean {lower[found[0]]!r}?" if found else ""


def why(error: Exception) -> str:
    """The reason that an error gives, in one line; the system's without its number and the name of the file."""
    found = error.strerror if isinstance(error, OSError) else None
    return found or " ".join(str(error).split())


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
