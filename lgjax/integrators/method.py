"""Interface between drivers and methods: to add an integrator, write a class that inherits from `Method`."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax

from lgjax.groups.homogeneous_space import HomogeneousSpace

Array = jax.Array
Point = Any


@runtime_checkable
class Method(Protocol):
    """A method of integration, a hashable value.  Inherit from it and define `init` and `step`; the rest has defaults.

    init(space, field, t, y) checks the inputs and returns the first carry, any pytree that the method needs from step
    to step, such as () or the last rate.  step(space, field, t, y, h, carry) takes one step of size h from the point y
    at time t and returns the new point and the new carry.  field(t, y): an algebra element, see `integrate`.
    Compositions and error control need the order of convergence too, `order`.
    """

    @abstractmethod
    def init(self, space: HomogeneousSpace, field: Callable[..., Any], t: Array, y: Point) -> Any: ...

    @abstractmethod
    def step(
        self, space: HomogeneousSpace, field: Callable[..., Any], t: Array, y: Point, h: Array, carry: Any
    ) -> tuple[Point, Any]: ...

    @property
    def order_hat(self) -> int | None:
        """Order of the embedded method of `embedded_step`, by which `integrate_adaptive` estimates errors, or None."""
        return None

    @property
    def judges_exponents(self) -> bool:
        """Whether `integrate_adaptive` compares the exponents of `embedded_exponents` instead of points."""
        return False

    @property
    def symmetric(self) -> bool:
        """Whether a step of -h undoes a step of h, as `integrate_reversible` and compositions require."""
        return False

    @property
    def needs_series(self) -> bool:
        """Whether it takes field(t, y, order), the field's Taylor coefficients along the solution, as `Taylor` does."""
        return False

    @property
    def one_step_is_one_call(self) -> bool:
        """Whether `step` says itself how it is compiled; otherwise `integrate` has it compiled as one function."""
        return False

    def with_scanned_stages(self, scanned: bool = True) -> "Method":
        """The same method, tracing its field once per step instead of once per stage, if it can.

        Drivers whose fields are expensive to compile, such as `rollout`, use this variant.
        """
        return self


def order_of(method: Any) -> int:
    """The order of convergence; TypeError where a method does not tell it."""
    order = getattr(method, "order", None)
    if order is None:
        raise TypeError(f"{type(method).__name__} has no `order`, its order of convergence, which is needed here")
    return order
