"""Records of functions that are made inside other functions, where pickle cannot name them.

Such a record is pickled and copied as the call that made it.  Read first: `made_by`.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Made:
    """Base of frozen dataclasses that `made_by` and `makes` mark; `dataclasses.replace` takes the mark off."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return vars(self).get("_made_by") or super().__reduce_ex__(protocol)


def made_by(record: R, maker: Callable[..., Any], args: tuple, kwargs: dict[str, Any] | None = None) -> R:
    """`record`, which pickle and copy make again by maker(*args, **kwargs); a mark that is there already stays."""
    vars(record).setdefault("_made_by", (partial(maker, **kwargs) if kwargs else maker, args))
    return record


def makes(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method or the function of a class method that returns such a record."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        owner: Any = args[0]
        return made_by(method(*args, **kwargs), getattr(owner, method.__name__), args[1:], kwargs)

    return call
