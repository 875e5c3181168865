"""The dynamics of a mechanism as functions that OpenSCvx, a solver of non-convex trajectory problems, takes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lgjax.adapters.flat import flat_field
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.model import Mechanism, Model
from lgjax.numerics import checks

Array = jax.Array


def openscvx_dynamics(
    model: Model | Mechanism | Callable[[dict[str, Any]], Model | Mechanism],
    qpos: Any,
    qvel: Any,
    control: Any,
    actuation: Callable[[Array], Array] | None = None,
    wrenches: Callable[[Array], Array] | None = None,
) -> dict[str, Callable[..., Array]]:
    """The entry "dynamics" of OpenSCvx's argument `byof` ("bring your own functions") for a mechanism.

    Use it without symbolic dynamics for the two states:

        dynamics = openscvx_dynamics(model, qpos, qvel, control)
        ox.Problem(dynamics={}, byof={"dynamics": dynamics}, states=[qpos, qvel], ...)

    The dynamics have the dtype of OpenSCvx's vectors, which its argument `Problem(float_dtype=)` sets. Written for
    OpenSCvx 0.5.

    Args:
        model: the mechanism, or a function of the parameters of the problem that returns it.
        qpos, qvel: OpenSCvx's `State`s of sizes (nq,) and (nv,), with the coordinates of `flat_state`.
        control: OpenSCvx's `Control`.
        actuation: maps a control to tau (nv,), N m and N; by default the control is tau.
        wrenches: maps a control to wrenches (nbodies, 6) in body frames, N m and N; None for none.

    Raises:
        ValueError: for a state of the wrong size, when the problem is made.
    """
    if not (isinstance(model, Model | Mechanism) or callable(model)):
        raise TypeError(f"model must be a Model or a function of the parameters, got {checks.shown(model)}")
    checks.functions(actuation=actuation, wrenches=wrenches)
    for role, variable in (("qpos", qpos), ("qvel", qvel), ("control", control)):
        if not hasattr(variable, "slice") or not (variable is control or isinstance(variable.name, str)):
            raise TypeError(f"{role} must be a variable of OpenSCvx, got {checks.shown(variable)}")
    rates = partial(_rates, model, (qpos, qvel, control), actuation, wrenches)

    def of_positions(x: Array, u: Array, node: Any, params: Any) -> Array:  # OpenSCvx reads the code of functions
        found, nq = rates(x, u, params)
        return found[:nq]

    def of_velocities(x: Array, u: Array, node: Any, params: Any) -> Array:
        found, nq = rates(x, u, params)
        return found[nq:]

    return {qpos.name: of_positions, qvel.name: of_velocities}


def _rates(
    model: Any, variables: tuple[Any, Any, Any], actuation: Any, wrenches: Any, x: Array, u: Array, params: Any
) -> tuple[Array, int]:
    """Rates (nq + nv,) of the flat state in x, and nq; OpenSCvx says where the variables are when a problem is made."""
    for role, given in (("x", x), ("u", u)):
        if getattr(given, "ndim", None) != 1 or not jnp.issubdtype(given.dtype, jnp.floating):
            raise TypeError(f"{role} must be a vector of floating numbers, got {checks.shown(given)}")
    given = model if isinstance(model, Model | Mechanism) else model(params)
    mechanism = checked_model(given, leaves=True).astype(x.dtype)
    qpos, qvel, control = variables
    positions, velocities, command = x[qpos.slice], x[qvel.slice], u[control.slice].astype(x.dtype)
    tree = mechanism.tree
    sizes = {"qpos": (positions, 7 * tree.n_free + tree.n_joint + 4 * tree.n_ball), "qvel": (velocities, tree.nv)}
    for role, (found, size) in sizes.items():
        if found.shape != (size,):
            raise ValueError(f"{role} has {len(found)} entries in x, {mechanism.name!r} takes {size}")
    push = wrenches(command) if wrenches is not None else None
    force = command if actuation is None else actuation(command)
    field = flat_field(mechanism, lambda t, q, v: force, None if push is None else lambda t, q, v: push)
    return field(jnp.zeros((), x.dtype), jnp.concatenate([positions, velocities]), None), len(positions)
