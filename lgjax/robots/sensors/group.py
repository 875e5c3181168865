"""Sensors of one kind side by side: what a record of sensors is made of."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.multibody.model import Model
from lgjax.robots.sensors.scene import Scene

STATIC = {"static": True}
Form = Literal["real", "positive", "direction", "rotation"]


@dataclass(frozen=True)
class Kind:
    """Kind of a measurement. name: in words. size: entries of a reading. needs: fields of `Instant` that it reads.

    form: "real", "positive" (zero where nothing acts), "direction" (a unit vector) or "rotation" (a quaternion wxyz).
    """

    name: str
    size: int
    needs: tuple[str, ...] = ()
    form: Form = "real"

    @property
    def errors(self) -> int:
        """Entries of an error of a reading: directions and rotations are turned by a rotation vector."""
        return 3 if self.form == "rotation" else self.size


class Group:
    """k sensors of one kind: a frozen pytree dataclass whose leaves, and tuples that are static, have k entries."""

    kind: Kind

    def __len__(self) -> int:
        raise NotImplementedError

    def read(self, scene: Scene) -> jax.Array:
        """The readings (k, kind.size)."""
        raise NotImplementedError

    def for_model(self, model: Model) -> "Group":
        """The same sensors on another model with the same tree."""
        return self

    def joined(self, other: "Group") -> "Group | None":
        """These sensors and others, if they are of the same kind."""
        if type(other) is not type(self) or other.kind != self.kind:
            return None
        together: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            a, b = getattr(self, field.name), getattr(other, field.name)
            if field.name == "kind":
                continue
            together[field.name] = a + b if field.metadata.get("static") else jax.tree.map(_joined, a, b)
        return replace(self, **together)  # type: ignore[type-var]


def _joined(a: Any, b: Any) -> Any:
    return jnp.concatenate([a, b])


def index(values: tuple[int, ...]) -> np.ndarray:
    """Static integers as an array of indices."""
    return np.asarray(values, int)
