"""Errors for names of earlier versions: they say what the name is now.

`attributes` and `members` make the `__getattr__` of a class and of a module, `arguments` decorates a function. The old
names appear nowhere else: not in `dir`, in signatures or for type checkers. `lgjax/moved.py` has those of `lgjax`
itself.
"""

import sys
from collections.abc import Callable
from functools import wraps
from opcode import opmap
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def attributes(**new: str) -> Callable[[Any, str], Any]:
    """A method `__getattr__` whose error says what an attribute is now; new: {old name: new one}."""

    def missing(self: Any, name: str) -> Any:
        message = f"{type(self).__name__!r} object has no attribute {name!r}{_place(name, new)}"
        raise AttributeError(message, name=name, obj=self)

    return missing


def members(module: str, **new: str) -> Callable[[str], Any]:
    """A function `__getattr__` of a module whose error says what a member is now."""

    def missing(name: str) -> Any:
        raise missing_member(module, name, _place(name, new))

    return missing


def missing_member(module: str, name: str, place: str) -> AttributeError | ImportError:
    """The error for a name that a module does not have; place: the end of its message.

    `from module import name` drops an AttributeError and raises its own without `place`: there it is an ImportError.
    """
    if place and _is_imported():
        return ImportError(f"cannot import name {name!r} from {module!r}{place}", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}{place}", name=name)


def _is_imported() -> bool:
    """Whether the statement outside of `__getattr__` is `from module import name`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in ("lgjax", __name__):
        frame = frame.f_back
    return frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def arguments(**new: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function whose error for an old keyword says what the argument is now."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in new.keys() & kwargs.keys():
                owner = function.__qualname__.removesuffix(".__init__")
                raise TypeError(f"{owner}() has no argument {name!r}{_place(name, new)}")
            return function(*args, **kwargs)

        return call

    return decorate


def _place(name: str, new: dict[str, str]) -> str:
    return f"; it is now {new[name]}" if name in new else ""
