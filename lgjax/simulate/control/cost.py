"""Costs as searches see them: a number, a quadratic model, coupled groups. Next: `costs.py`, which users call."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.numerics import checks
from lgjax.simulate.control.linear_quadratic.sparse import Diagonal

Array = jax.Array
Groups = list[tuple[int, ...]]


class QuadraticModel(NamedTuple):
    """Gradient x (dim,), u (controls,) and Hessian xx, ux, uu of a cost, in tangents of the state and changes of the
    control; None is zero. xx and uu may be `Diagonal`.
    """

    x: Array | None = None
    u: Array | None = None
    xx: Array | Diagonal | None = None
    ux: Array | None = None
    uu: Array | Diagonal | None = None

    def __add__(self, other: Any) -> "QuadraticModel":  # type: ignore[override]
        sums: list[Any] = [b if a is None else a if b is None else a + b for a, b in zip(self, other, strict=True)]
        return QuadraticModel(*sums)

    def scaled(self, factor: Any) -> "QuadraticModel":
        return QuadraticModel(*(None if a is None else a * factor for a in self))


class Cost:
    """Base class of costs; make one with the functions of this module, or with `LeastSquares`."""

    def __call__(self, *args: Any) -> Array:
        """The cost (): cost(state) at the end, or cost(t, state, control) of a step."""
        raise NotImplementedError

    def expand(self, system: Any, t: Any, state: Any, control: Any) -> QuadraticModel:
        """Its quadratic model; t and control are None at the end."""
        raise NotImplementedError

    def factored(
        self, system: Any, t: Any, state: Any, control: Any, factor: Any, positive: bool = False
    ) -> tuple[QuadraticModel, tuple]:
        """The model of a step, scaled by `factor`, and Gauss-Newton factors J (k, dim + controls).

        The whole Hessian is that of the model and J^T J of every J; the kernel that needs the products computes them.
        positive: whether `factor` is known to be so; it may be traced.
        """
        return self.expand(system, t, state, control).scaled(jnp.asarray(factor, control.dtype)), ()

    def following(self, reference: Any) -> "Cost":
        """The same cost with a reference as the last argument of what the user wrote; this one has nothing of it."""
        return self

    def couples(self) -> Groups | None:
        """Groups of velocities that its Hessian couples, besides those of one joint; None if these are not known.

        Of states (q, v) and accelerations; factors then have a row per velocity.
        """
        return None

    def __add__(self, other: "Cost") -> "Cost":
        if not isinstance(other, Cost):
            return NotImplemented
        return _sum((*_terms(self), *_terms(other)))

    def __radd__(self, other: Any) -> "Cost":
        """So that `sum` of a list of costs is one."""
        return self if isinstance(other, int | float) and other == 0 else NotImplemented

    def __mul__(self, factor: float) -> "Cost":
        good = checks.known(factor) and bool(np.all(np.asarray(factor) >= 0))
        return _sum(tuple((factor * f, term, good and positive) for f, term, positive in _terms(self)))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "Cost":
        return self * (1 / divisor)


def _terms(cost: Cost) -> tuple:
    return (
        tuple((*x, y) for x, y in zip(cost.terms, cost.positive, strict=True))
        if isinstance(cost, Sum)
        else ((1.0, cost, True),)
    )


def _sum(terms: tuple) -> "Sum":
    return Sum(tuple((factor, term) for factor, term, _ in terms), tuple(positive for _, _, positive in terms))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sum(Cost):
    """Costs times factors. positive: which factors are known not to be negative."""

    terms: tuple[tuple[Any, Cost], ...]
    positive: tuple[bool, ...] = field(metadata={"static": True})

    def __call__(self, *args: Any) -> Array:
        total = self.terms[0][0] * self.terms[0][1](*args)
        for factor, term in self.terms[1:]:
            total = total + factor * term(*args)
        return total

    def expand(self, system: Any, t: Any, state: Any, control: Any) -> QuadraticModel:
        parts = [term.expand(system, t, state, control).scaled(factor) for factor, term in self.terms]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def factored(
        self, system: Any, t: Any, state: Any, control: Any, factor: Any, positive: bool = False
    ) -> tuple[QuadraticModel, tuple]:
        # a factor that is an array could round a Python number to its own precision
        known = lambda own: own if isinstance(own, float | int) else jnp.asarray(own, control.dtype)
        found = [
            term.factored(system, t, state, control, factor * known(own), positive and good)
            for (own, term), good in zip(self.terms, self.positive, strict=True)
        ]
        total, factors = found[0]
        for model, more in found[1:]:
            total, factors = total + model, (*factors, *more)
        return total, factors

    def following(self, reference: Any) -> Cost:
        return Sum(tuple((factor, term.following(reference)) for factor, term in self.terms), self.positive)

    def couples(self) -> Groups | None:
        found = [term.couples() for _, term in self.terms]
        return None if None in found else [group for groups in found if groups for group in groups]
