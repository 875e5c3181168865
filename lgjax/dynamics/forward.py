"""Forward and hybrid dynamics: the articulated-body algorithm, order 0 of its time derivatives."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.dynamics.recursion import applied_wrenches
from lgjax.dynamics.series import hybrid_series
from lgjax.multibody.model import Model
from lgjax.multibody.state import Configuration
from lgjax.multibody.traversal import Execution


def forward_dynamics(
    model: Model, q: Configuration, v, tau, wrenches=None, *, execution: Execution = "scalarised"
) -> jax.Array:
    """Accelerations vdot (nv,) under the generalised forces tau (nv,): M^-1 (tau - bias - damping v).

    v: (nv,) body-frame velocities. wrenches: (nbodies, 6), [n, f] on each body, body frame, at the body origin.
    Armature and joint damping are included. Source: [kim2012] section 2.3; [ali2026] Alg. 3, order 0.
    """
    applied = None if wrenches is None else [applied_wrenches(model.links, wrenches)]
    return hybrid_series(model, q, v, lambda k, speeds: (None, tau), 0, None, applied, execution)[0][0]


def hybrid_dynamics(
    model: Model,
    q: Configuration,
    v,
    vdot,
    tau,
    prescribed: Sequence[int],
    wrenches=None,
    *,
    execution: Execution = "scalarised",
) -> tuple[jax.Array, jax.Array]:
    """Accelerations and forces (nv,) where some accelerations are prescribed and the other forces given.

    prescribed: static velocity indices, those of a floating base included, whose entry of vdot is taken as given and
    whose entry of tau is solved for; elsewhere the reverse. Other entries of vdot and tau are not read. wrenches: as in
    forward_dynamics. Raises ValueError for an index that is out of range or named twice.
    Source: [kim2012] section 2.3; [ali2026] Alg. 4, order 0.
    """
    given = prescribed_mask(model, prescribed)
    applied = None if wrenches is None else [applied_wrenches(model.links, wrenches)]
    x, tau = jnp.where(given, vdot, 0), jnp.where(given, 0, tau)
    found, forces = hybrid_series(model, q, v, lambda k, speeds: (x, tau), 0, given, applied, execution)
    return found[0], forces[0]


def prescribed_mask(model: Model, prescribed: Sequence[int]) -> np.ndarray:
    """(nv,) bool from static velocity indices, checked."""
    indices = [int(index) for index in prescribed]
    for index in indices:
        if not 0 <= index < model.nv:
            raise ValueError(f"prescribed velocity index {index} is out of range for nv={model.nv}")
    if len(set(indices)) < len(indices):
        raise ValueError(f"prescribed names an index twice: {sorted(indices)}")
    mask = np.zeros(model.nv, bool)
    mask[indices] = True
    return mask
