"""Forward and hybrid dynamics: the articulated-body algorithm, order 0 of its time derivatives."""

from collections.abc import Sequence
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.mass_solve import (
    by_inverse_dynamics,
    by_partial_inverse_dynamics,
    solve_exchanged,
    solve_mass_matrix,
)
from lgjax.dynamics.spatial import applied_wrenches
from lgjax.dynamics.time_derivatives.series import hybrid_series, inverse_series
from lgjax.dynamics.traversal.traversal import Execution
from lgjax.multibody.arguments import checked_arguments
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.model import Model
from lgjax.numerics import checks


@checked_arguments()
def forward_dynamics(
    model: Model, q: Configuration, v, tau, wrenches=None, *, execution: Execution = "scalarized"
) -> jax.Array:
    """Accelerations vdot (nv,) under the generalised forces tau (nv,): M^-1 (tau - bias - damping v).

    v: (nv,) body-frame velocities. wrenches: (nbodies, 6), [n, f] on each body, body frame, at the body origin.
    Armature and joint damping are included. Source: [kim2012] section 2.3; [ali2026] Alg. 3, order 0.
    """
    applied = None if wrenches is None else [applied_wrenches(model.links, wrenches)]
    if execution == "unrolled":  # a program to be scalarized as a whole, never differentiated
        return _recursion(execution, model, q, v, tau, applied)
    return _accelerations(execution)(model, q, v, tau, applied)


@partial(jax.jit, static_argnums=0)  # one trace, however often a program evaluates it
def _recursion(execution: Execution, model: Model, q: Configuration, v, tau, applied) -> jax.Array:
    return hybrid_series(model, q, v, lambda k, speeds: (None, tau), 0, None, applied, execution)[0][0]


@lru_cache
def _accelerations(execution: Execution):
    return by_inverse_dynamics(
        partial(_recursion, execution),
        lambda model, q, v, vdot, applied: inverse_series(model, q, v, [vdot], applied, execution)[0],
        lambda model, q, f: solve_mass_matrix(model, q, f, execution=execution),
    )


@checked_arguments()
def hybrid_dynamics(
    model: Model,
    q: Configuration,
    v,
    vdot,
    tau,
    prescribed: Sequence[int],
    wrenches=None,
    *,
    execution: Execution = "scalarized",
) -> tuple[jax.Array, jax.Array]:
    """Accelerations and forces (nv,) where some accelerations are prescribed and the other forces given.

    prescribed: static velocity indices, those of a floating base included, whose entry of vdot is taken as given and
    whose entry of tau is solved for; elsewhere the reverse. Other entries of vdot and tau are not read. wrenches: as in
    forward_dynamics. Raises ValueError for an index that is out of range or named twice.
    Source: [kim2012] section 2.3; [ali2026] Alg. 4, order 0.
    """
    given = prescribed_mask(model, prescribed)
    applied = None if wrenches is None else [applied_wrenches(model.links, wrenches)]
    x, f = jnp.where(given, vdot, 0), jnp.where(given, 0, tau)
    if execution == "unrolled":
        return _hybrid_recursion(execution, tuple(given.tolist()), model, q, v, x, f, applied)
    return _hybrid(execution, tuple(given.tolist()))(model, q, v, x, f, applied)


@partial(jax.jit, static_argnums=(0, 1))
def _hybrid_recursion(execution: Execution, given: tuple[bool, ...], model: Model, q: Configuration, v, x, f, applied):
    mask = np.asarray(given) if any(given) else None
    found, forces = hybrid_series(model, q, v, lambda k, speeds: (x, f), 0, mask, applied, execution)
    return found[0], forces[0]


@lru_cache
def _hybrid(execution: Execution, given: tuple[bool, ...]):
    """By hybrid dynamics, or by inverse and forward dynamics where they are the same."""
    mask = np.asarray(given, bool)
    inverse = lambda model, q, v, x, applied: inverse_series(model, q, v, [x], applied, execution)[0]
    if not mask.any():
        return lambda model, q, v, x, f, applied: (_accelerations(execution)(model, q, v, f, applied), f)
    if mask.all():
        return lambda model, q, v, x, f, applied: (x, inverse(model, q, v, x, applied))
    solve = lambda model, q, f, x: solve_exchanged(model, q, f, x, mask, execution=execution)
    return by_partial_inverse_dynamics(partial(_hybrid_recursion, execution, given), inverse, solve, mask)


def prescribed_mask(model: Model, indices: Sequence[int], name: str = "prescribed") -> np.ndarray:
    """(nv,) bool from static velocity indices, checked; errors call them by `name`."""
    mask = np.zeros(model.nv, bool)
    mask[list(checks.indices(name, indices, model.nv))] = True
    return mask
