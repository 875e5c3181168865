"""States as flat vectors with quaternions, and the equations of motion as a vector field on them.

Solvers of ordinary differential equations add and scale vectors, so quaternions do not keep the length 1. The field
depends on the direction of a quaternion alone and leaves its length as it is.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lgjax.groups import s3
from lgjax.multibody.arguments import checked_model
from lgjax.multibody.configuration import Configuration
from lgjax.multibody.conventions import from_mujoco, to_mujoco
from lgjax.multibody.model import Mechanism, Model
from lgjax.multibody.tree import Tree
from lgjax.numerics import checks
from lgjax.numerics import small_matrix as sm
from lgjax.simulate.mechanism_field import check_functions, mechanism_field

Array = jax.Array


class _Places(NamedTuple):
    """Indices into the flat vectors: of quaternions (n, 4) and their rates (n, 3), and of everything else."""

    quaternions: np.ndarray
    rates: np.ndarray
    others: np.ndarray
    velocities: np.ndarray


@cache
def _places(tree: Tree) -> _Places:
    quaternions, rates, others, velocities = [], [], [], []
    nq = nv = 0
    for kind in tree.kinds:
        linear = {"free_poses": 3, "ball_rotations": 0}.get(kind.coordinates, kind.nv)
        others.extend(range(nq, nq + linear))
        velocities.extend(range(nv, nv + linear))
        nq, nv = nq + linear, nv + linear
        if kind.coordinates != "joints":
            quaternions.append(range(nq, nq + 4))
            rates.append(range(nv, nv + 3))
            nq, nv = nq + 4, nv + 3
    shaped = lambda rows, n: np.asarray(rows, int).reshape(-1, n)
    return _Places(shaped(quaternions, 4), shaped(rates, 3), np.asarray(others, int), np.asarray(velocities, int))


def flat_state(model: Model | Mechanism, q: Configuration, v: Array) -> Array:
    """The state (q, v) as one vector, MuJoCo's qpos and qvel in body order; broadcasts over leading axes.

    A free joint has a position (m, world) and a unit quaternion wxyz, and as its velocity the linear one in world axes,
    then the angular one in body axes. A ball joint has a quaternion and its angular velocity in body axes. Other joints
    have their coordinates and rates (rad or m).

    Args:
        model: the mechanism.
        q: its configuration.
        v: (nv,) velocities, body frame, rad/s and m/s.

    Returns:
        (nq + nv,).
    """
    theirs = to_mujoco(checked_model(model), q, v)
    if theirs.v is None:
        raise TypeError("v is None, expected an array of shape (..., nv)")
    lead = jnp.broadcast_shapes(theirs.q.shape[:-1], theirs.v.shape[:-1])
    return jnp.concatenate([jnp.broadcast_to(x, (*lead, x.shape[-1])) for x in (theirs.q, theirs.v)], -1)


def from_flat_state(model: Model | Mechanism, y: Array) -> tuple[Configuration, Array]:
    """The inverse of `flat_state`: (q, v) of a vector y (nq + nv,), whose quaternions are normalized first.

    Broadcasts over leading axes. Raises ValueError for a vector of another size.
    """
    model = checked_model(model)
    places = _places(model.tree)
    nq = places.quaternions.size + places.others.size
    if np.shape(y)[-1:] != (nq + model.nv,):
        raise ValueError(f"y has shape {np.shape(y)}, states of {model.name!r} have nq + nv = {nq + model.nv} entries")
    y = checks.floats("y", y, np.shape(y), model.dtype)
    turned = y[..., places.quaternions]
    unit = turned * jax.lax.rsqrt(sm.dot(turned, turned))[..., None]
    found = from_mujoco(model, y[..., :nq].at[..., places.quaternions].set(unit), y[..., nq:])
    return found.q, found.v


def _rates(places: _Places, qpos: Array, qvel: Array) -> Array:
    """Time derivative of flat positions."""
    turning = qvel[places.rates]
    product = s3.compose(qpos[places.quaternions], sm.join(jnp.zeros_like(turning[..., :1]), 0.5 * turning))
    order = np.argsort(np.concatenate([places.others, places.quaternions.ravel()]))
    return jnp.concatenate([qvel[places.velocities], product.reshape(-1)])[order]


def flat_field(
    model: Model | Mechanism,
    controller: Callable[..., Array] | None = None,
    wrenches: Callable[..., Array] | None = None,
) -> Callable[[Any, Array, Any], Array]:
    """The vector field f(t, y, args) -> dy/dt (nq + nv,) of a mechanism on the vectors of `flat_state`.

    `diffrax.ODETerm(flat_field(model))` takes it. Differentiable in y, args and the arrays of the model. y takes one
    system, without leading axes. Its quaternions need not have length 1; the field does not change their length.

    Args:
        model: the mechanism.
        controller, wrenches: (t, q, v) -> tau (nv,) and (t, q, v) -> (nbodies, 6), body frame, as in `rollout`; None
            for no such force. If args is not None, both receive it as a fourth argument.

    Raises:
        ValueError: for results of the wrong shape.
    """
    model = checked_model(model, leaves=True)
    check_functions(controller, wrenches)
    return partial(_field, model, controller, wrenches)


def _field(model: Model, controller: Any, wrenches: Any, t: Any, y: Array, args: Any = None) -> Array:
    places = _places(model.tree)
    nq = places.quaternions.size + places.others.size
    y = checks.floats("y", y, (nq + model.nv,), model.dtype)
    if y.shape != (nq + model.nv,):
        raise ValueError(f"y has shape {y.shape}, one state of {model.name!r} has nq + nv = {nq + model.nv} entries")
    given = () if args is None else (args,)
    told = lambda law: None if law is None else lambda t, q, v: law(t, q, v, *given)
    q, v = from_flat_state(model, y)
    rates = mechanism_field(model, told(controller), told(wrenches))(t, (q, v))
    theirs = to_mujoco(model, q, v, rates[1])
    assert theirs.vdot is not None
    return jnp.concatenate([_rates(places, y[:nq], y[nq:]), theirs.vdot])
