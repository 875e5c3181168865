"""What every driver asks of a method: to add an integrator is to write one of these."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax

from lgjax.groups.homogeneous_space import HomogeneousSpace

Array = jax.Array
Point = Any


@runtime_checkable
class Method(Protocol):
    """A method of integration, a hashable value.  One of your own inherits from it: what follows `step` has defaults.

    `init` checks the inputs and makes what the method carries from step to step; `step` takes one step of size h.
    """

    @abstractmethod
    def init(self, space: HomogeneousSpace, field: Callable[..., Any], t: Array, y: Point) -> Any: ...

    @abstractmethod
    def step(
        self, space: HomogeneousSpace, field: Callable[..., Any], t: Array, y: Point, h: Array, carry: Any
    ) -> tuple[Point, Any]: ...

    @property
    def order_hat(self) -> int | None:
        """Order of the embedded method of `embedded_step`, by which `integrate_adaptive` estimates errors, if any."""
        return None

    @property
    def symmetric(self) -> bool:
        """Whether a step of -h undoes a step of h, as `integrate_reversible` and compositions ask."""
        return False

    @property
    def needs_series(self) -> bool:
        """Whether it takes field(t, y, order), the field's Taylor coefficients along the solution, as `Taylor` does."""
        return False

    def with_scanned_stages(self, scanned: bool = True) -> "Method":
        """The same method, which traces its field once per step, not once per stage, if it can.

        Drivers whose fields are expensive to compile, such as `rollout`, take this one.
        """
        return self
