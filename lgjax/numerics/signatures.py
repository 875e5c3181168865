"""Check of a user's function against its call before it is traced, for an error that names both."""

from inspect import signature
from typing import Any


def called_with(name: str, function: Any, *arguments: str, hint: str = "") -> None:
    """Raise TypeError that names the arguments of the call, for a function that takes others."""
    try:
        called = signature(function)
    except (TypeError, ValueError):  # of a function that says nothing of its arguments
        return
    try:
        called.bind(*arguments)
    except TypeError as error:
        raise TypeError(f"{name} must take ({', '.join(arguments)}): {error}{hint}") from None
