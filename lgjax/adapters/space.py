"""Spaces of actions and observations: what a learner needs to make its networks. Read next: `environment.py`."""

from typing import Any, NamedTuple

import numpy as np


class Space(NamedTuple):
    """Vectors between two bounds, `low` and `high`, arrays of this shape and of the dtype of the vectors."""

    shape: tuple[int, ...]
    low: np.ndarray
    high: np.ndarray

    @property
    def dtype(self) -> Any:
        return self.low.dtype

    def contains(self, x: Any) -> bool:
        """Whether x has the shape, and every entry lies between the bounds."""
        return np.shape(x) == self.shape and bool(np.all((self.low <= x) & (x <= self.high)))

    def gymnasium(self) -> Any:
        """The same as a `gymnasium.spaces.Box`. Raises ImportError that names the extra, if it is not installed."""
        from lgjax.adapters.gymnasium_vector import gymnasium

        return gymnasium().spaces.Box(self.low, self.high, self.shape, self.dtype)
