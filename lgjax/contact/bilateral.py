"""Bilateral rows of a step: closed loops, and forces that act at the end of the step instead of its beginning.

Read first: `step.py`, the scheme. A loop is a row A_i of A v' = target. A force -k s - d ds/dt on a length s, where
ds/dt is A_i v, is larger by -(h k / 4 + d) A_i (v' - v) at the end of the step: a row that gives way. Both are
eliminated before the contacts are solved. With S = A M^-1 A^T the impulses of all rows are

    l = -D (E + S D)^-1 (A v_free - target)

where D is 1 and E is 0 for a loop; D is h d + h^2 k / 4, E is 1 and the target is A v for a force. The contacts then
see a mechanism that moves only as these rows let it: their responses lose M^-1 A^T D (E + S D)^-1 A times them.
Source: elimination of bilateral constraints by the Schur complement, [featherstone2008] section 8.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lgjax.dynamics.jacobians import carrier
from lgjax.dynamics.loops import Loop, loop_constraint
from lgjax.dynamics.loops.forward import rank_tolerance
from lgjax.dynamics.loops.loop import WORLD
from lgjax.dynamics.mass_solve import solve_mass_matrix
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics.rank import independent_rows, longest_row, product, regular_inverse

Array = jax.Array


class Implicit(NamedTuple):
    """How forces change with the state, for a step that takes them at its end.

    stiffness, damping: (nv,) of the joints' own coordinates, N m/rad and N m s/rad, N/m and N s/m, not negative; None
    for none. rows: (m, nv), rates of lengths that others act along, with row_stiffness and row_damping (m,).
    """

    stiffness: Any = None
    damping: Any = None
    rows: Any = None
    row_stiffness: Any = None
    row_damping: Any = None


class Bilateral(NamedTuple):
    """The rows of a step at its middle.

    rows: (m, nv) A. answers: (m, nv), M^-1 A^T transposed. inverse: (m, m), D (E + S D)^-1. target: (m,) of A v'.
    combine: (loop rows, loop rows), independent combinations of the loops' rows, which come first in A. redundant: ()
    bool, whether some of the loops' rows depend on others.
    """

    rows: Array
    answers: Array
    inverse: Array
    target: Array
    combine: Array
    redundant: Array

    def held(self, v: Array) -> Array:
        """A velocity (nv,) of free flight after the impulses of the rows."""
        return self._without(v, product(self.rows, v) - self.target)

    def allowed(self, change: Array) -> Array:
        """The part of a change of velocity (nv,), or of a displacement, that the rows let through."""
        return self._without(change, product(self.rows, change))

    def closing(self, residual: Array) -> Array:
        """The displacement (nv,) that closes loops with a residual (loop rows,), to first order."""
        gaps = jnp.zeros_like(self.target).at[: len(residual)].set(product(self.combine, residual))
        return self._without(jnp.zeros_like(self.rows[0]), gaps)

    def still(self, jacobian: Array, v: Array) -> Array:
        """A velocity (nv,) at another configuration, with the loops' Jacobian there, after impulses of the loops."""
        n = len(self.combine)
        rows, answers = product(self.combine, jacobian), self.answers[:n]
        unused = jnp.where(jnp.sum(jnp.abs(self.combine), 1) > 0, jnp.zeros_like(v[0]), jnp.ones_like(v[0]))
        inverse = regular_inverse(product(rows, answers.T) + jnp.diag(unused))
        return v - product(answers.T, product(inverse, product(rows, v)))

    def _without(self, v: Array, excess: Array) -> Array:
        return v - product(self.answers.T, product(self.inverse, excess))


def bilateral(model: Model, loops: Sequence[Loop], q: Configuration, v, turning, h, implicit: Implicit) -> Any:
    """The rows at (q, v), the state in the middle of the step; None where there are none.

    turning: (nv,), the rate of the components of v at a constant velocity in the world, see `without_turning`.
    A loop is to be at rest at the end of the step: A(q') v' = 0, which is A(q) v' = -h/2 dA/dt v to second order.
    """
    parts, ends, given, gives = [], [], [], []
    combine, redundant = jnp.zeros((0, 0), model.dtype), jnp.zeros((), bool)
    if loops:
        found = loop_constraint(model, loops, q, v)
        chosen = independent_rows(found.jacobian, rank_tolerance(model, None) * longest_row(found.jacobian))
        combine, redundant = chosen.combine, chosen.rank < len(found.residual)
        parts.append(product(combine, found.jacobian))
        ends.append(product(combine, -0.5 * h * (found.bias + product(found.jacobian, turning))))
        given.append(jnp.ones_like(found.residual))
        gives.append(jnp.where(chosen.kept, jnp.zeros_like(found.residual), jnp.ones_like(found.residual)))
    if implicit.rows is not None and len(implicit.rows):
        parts.append(implicit.rows)
        ends.append(product(implicit.rows, v))
        given.append(h * implicit.row_damping + 0.25 * h * h * implicit.row_stiffness)
        gives.append(jnp.ones(len(implicit.rows), model.dtype))
    if not parts:
        return None
    rows, D = jnp.concatenate(parts), jnp.concatenate(given)
    answers = jax.vmap(lambda row: solve_mass_matrix(model, q, row))(rows)
    S = product(rows, answers.T)
    inverse = D[:, None] * regular_inverse(jnp.diag(jnp.concatenate(gives)) + S * D)
    return Bilateral(rows, answers, inverse, jnp.concatenate(ends), combine, redundant)


def joined(model: Model, loops: Sequence[Loop]) -> tuple[tuple[int, ...], ...]:
    """Sets of bodies that loops join, static; a loop that is a function can join all bodies."""
    found = []
    for loop in loops:
        if callable(loop.kind):
            return (tuple(range(model.nbodies)),)
        ends = [body for body in (loop.body_a, loop.body_b) if body is not None and body != WORLD]
        bodies = [carrier(model, body)[0] for body in ends]
        found.append(tuple(int(body) for body in bodies if body >= 0))
    return tuple(found)


def own_inertia(implicit: Implicit, h) -> Any:
    """Inertia (nv,) that stiffness and damping of the joints' own coordinates add in a step of h; 0 for none."""
    added: Any = 0.0
    if implicit.damping is not None:
        added = added + h * implicit.damping
    if implicit.stiffness is not None:
        added = added + 0.25 * h * h * implicit.stiffness
    return added
