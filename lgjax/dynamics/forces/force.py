"""Force: a value that is called as tau = force(t, q, v); its slopes for implicit steps; sums of forces.

Read next: `springs.py`, whose parts every kind of force has.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.execution.compiled import compiled
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks

STATIC = {"static": True}


class Force:
    """tau = force(t, q, v); forces and controllers add up to a force."""

    def __init_subclass__(cls, **options) -> None:
        super().__init_subclass__(**options)
        for name in {"__call__", "energy", "slopes", "rows"} & set(vars(cls)):
            setattr(cls, name, compiled(vars(cls)[name]))

    def __call__(self, t, q: Configuration, v) -> jax.Array:
        raise NotImplementedError

    def energy(self, q: Configuration) -> jax.Array:
        """Potential energy (), J, of what is conservative."""
        return jnp.zeros((), q.joints.dtype)

    def slopes(self, t, q: Configuration, v) -> tuple[jax.Array, jax.Array]:
        """(stiffness, damping), each (nv,): the diagonals of -d tau/dq and -d tau/dv, negative entries as zero.

        Steps that are implicit in the forces of joints use them; q changes as `retract` does. N m/rad and N m s/rad,
        N/m and N s/m. Zero for a force that acts between bodies (see `rows`) or is not stiff.
        """
        return jnp.zeros_like(v), jnp.zeros_like(v)

    def rows(self, t, q: Configuration, v) -> tuple[jax.Array, jax.Array, jax.Array]:
        """(A (m, nv), stiffness (m,), damping (m,)) of m lengths with the rates A v, beyond what `slopes` say.

        To first order the force changes by -A^T (stiffness A dq + damping A dv); none is negative. m is static.
        """
        none = jnp.zeros(0, v.dtype)
        return jnp.zeros((0, len(v)), v.dtype), none, none

    def for_model(self, model: Model) -> "Force":
        """The same force on another model with the same tree: all that it took from its own model is then that one's.

        Numbers that were given to its maker stay.
        """
        return self

    def __add__(self, other) -> "Sum":
        return Sum(_forces(self) + _forces(other), _controllers(self) + _controllers(other))

    def __radd__(self, other) -> "Sum":
        return Sum(_forces(other) + _forces(self), _controllers(other) + _controllers(self))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sum(Force):
    """Several forces, and controllers(t, q, v), at once; controllers have no energy, slopes and rows."""

    forces: tuple[Force, ...]
    controllers: tuple[Callable, ...] = field(default=(), metadata=STATIC)

    def __call__(self, t, q, v):
        return sum((part(t, q, v) for part in (*self.forces, *self.controllers)), start=jnp.zeros_like(v))

    def energy(self, q):
        return sum((part.energy(q) for part in self.forces), start=super().energy(q))

    def slopes(self, t, q, v):
        stiffness, damping = super().slopes(t, q, v)
        for part in self.forces:
            of_q, of_v = part.slopes(t, q, v)
            stiffness, damping = stiffness + of_q, damping + of_v
        return stiffness, damping

    def rows(self, t, q, v):
        found = [super().rows(t, q, v), *(part.rows(t, q, v) for part in self.forces)]
        A, stiffness, damping = (jnp.concatenate(x) for x in zip(*found, strict=True))
        return A, stiffness, damping

    def for_model(self, model):
        return replace(self, forces=tuple(part.for_model(model) for part in self.forces))


def _forces(x) -> tuple:
    return x.forces if isinstance(x, Sum) else (x,) if isinstance(x, Force) else ()


def _controllers(x) -> tuple:
    if not callable(x):
        raise TypeError(f"a force adds to forces and to controllers(t, q, v), not to {checks.shown(x)}")
    return x.controllers if isinstance(x, Sum) else () if isinstance(x, Force) else (x,)


# ---- what the kinds share
def spread(v, index: tuple[int, ...], values) -> jax.Array:
    """A vector (nv,) like v with the values (n,) at the indices and zeros elsewhere."""
    check_velocity(v, 1 + max(index, default=-1))
    return jnp.zeros_like(v).at[np.asarray(index, int)].set(values)


def check_velocity(v, least: int) -> None:
    """Raise for a v that is no vector of floating numbers with at least so many entries."""
    if not isinstance(v, jax.Array | np.ndarray):
        raise TypeError(f"v is {checks.described(v)}, expected an array (nv,)")
    if not jnp.issubdtype(v.dtype, jnp.floating):
        raise TypeError(f"v is {v.dtype}, expected floating numbers")
    if v.ndim != 1 or len(v) < least:
        raise ValueError(f"v has shape {v.shape}, expected (nv,) of the model of the force")


def vectors_of(model: Model, index: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where in the velocity indices those of rotations begin, three each, and those of free bodies' displacements."""
    tree, rotations, translations = model.tree, [], []
    for k, i in enumerate(index):
        body = tree.v_body[i]
        if tree.kinds[body].coordinates != "joints" and i in (tree.v_start[body], tree.v_start[body] + 3):
            (rotations if i == tree.v_start[body] else translations).append(k)
    return tuple(rotations), tuple(translations)
